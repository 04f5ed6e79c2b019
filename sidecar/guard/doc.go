// Package guard answers callers that are no consumers: may this call be made now, and what
// follows from its outcome. Its circuits and limits are the ones that messages pass, so
// that a vendor that is down is down for queues and callers alike.
//
// An allowed check gives a permit. The permit holds what a delivery would hold: a place
// under a concurrency limit, tokens, a window entry and a permission of the circuit, until
// done arrives or the permit expires. Permits are in memory only. Their ids are signed, so
// that no caller can invent one or end another caller's. Options.Keep stores until when
// calls under concurrency limits may go on, for the time after a crash.
package guard
