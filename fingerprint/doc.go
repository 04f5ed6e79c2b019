// Package fingerprint says which errors are the same one: it makes of an error's code and
// text a short name that does not depend on what differs each time, such as numbers, ids,
// quoted parts and paths.
//
// [Of] gives the name, and [Normalise] the text that it stands for. Both are pure, and
// their cost is linear in the text, of which no more than [MaxText] bytes count.
package fingerprint
