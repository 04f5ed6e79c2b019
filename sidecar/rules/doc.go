// Package rules decides about failed attempts of messages that nothing else
// decides about: what an [ErrorRule] of the configuration says of a failure that
// fits it, and what a [RetryPolicy] says of the retry.
//
// [Compile] checks the tables and makes [Rules] of them, which never change: a
// reload makes new ones. [Rules.Judge] takes time in proportion to the number of
// rules and to the text of the error, allocates nothing, and may be called from
// any goroutine.
package rules
