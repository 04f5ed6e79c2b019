// Package history describes what happened to a message before it was done: an
// [AttemptRecord] for each attempt that failed, for a redrive and for a move, and
// the [BlockedInterval]s that explain why a delivery had to wait.
//
// The queue writes records, the store keeps and bounds them, and the admin API
// reads them. A message that is done at its first attempt has no records. The
// package is pure: it has no clock and no state besides [Intervals].
package history
