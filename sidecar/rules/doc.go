// Package rules decides about failed attempts that no hook has decided about: an
// [ErrorRule] of the configuration classifies the failure, and a [RetryPolicy] delays the
// retry.
//
// [Compile] checks the tables and compiles them to [Rules], which are immutable: a reload
// compiles new ones. [Rules.Judge] takes time in proportion to the number of rules and to
// the error text, allocates nothing, and is safe for concurrent use.
package rules
