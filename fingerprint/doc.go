// Package fingerprint groups equal errors: it makes of an error's code and text a short
// name that does not depend on the parts that vary, such as numbers, ids, quoted parts
// and paths.
//
// [Of] returns the name, and [Normalise] the text behind it. Both are pure, and
// their cost is linear in the text, of which no more than [MaxText] bytes count.
package fingerprint
