// Package guard answers callers that are no consumers: may this call be made now, and
// what to make of how it went. Circuits and limits are the same that messages pass, so
// that a vendor which is down is down for queues and callers alike.
//
// A check that is allowed gives a permit. It holds what a delivery would: a place
// under concurrency, what was taken from buckets and windows, and the pass of the
// circuit, until it is done or its time is over. Permits are in memory alone; their
// ids are signed, so that nobody can make one up or end another one's. Of calls under
// limits of concurrency somebody else keeps over a crash until when they may go on.
package guard
