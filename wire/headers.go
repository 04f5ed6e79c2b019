package wire

import (
	"slices"
	"strings"
)

// Headers of a delivery. RFC 3339 times have nanoseconds and are in UTC.
const (
	HeaderID         = "Fila-Id"          // the message's id, a UUIDv7
	HeaderQueue      = "Fila-Queue"       // the queue that delivers it
	HeaderKey        = "Fila-Key"         // its fairness key
	HeaderAttempt    = "Fila-Attempt"     // 1 on the first delivery
	HeaderEnqueuedAt = "Fila-Enqueued-At" // RFC 3339
	HeaderDeadline   = "Fila-Deadline"    // end of the lease, RFC 3339
	HeaderRoute      = "Fila-Route"       // the route by which it goes, if it has a choice
)

// Headers of a delivery from a dead letter queue.
const (
	HeaderDeadReason    = "Fila-Dead-Reason"     // why the message died, such as max_deliveries
	HeaderDeadError     = "Fila-Dead-Error"      // the last error text, if any
	HeaderDeadErrorCode = "Fila-Dead-Error-Code" // the last error code, if any
	HeaderDeadAt        = "Fila-Dead-At"         // RFC 3339
	HeaderDeadAttempts  = "Fila-Dead-Attempts"   // attempts made in the source queue
	HeaderSourceQueue   = "Fila-Source-Queue"    // the queue in which it died
)

// Headers of an admin request: who makes it and why.
const (
	HeaderClient = "Fila-Client" // for the audit log
	HeaderOwner  = "Fila-Owner"  // in whose name, such as a team or service
	HeaderReason = "Fila-Reason" // for the audit log
	HeaderForce  = "Fila-Force"  // true: also change what belongs to another owner
)

// Headers understood on an enqueue.
const (
	HeaderMsgID     = "Nats-Msg-Id"     // deduplication id within the queue's window
	HeaderDelay     = "Fila-Delay"      // Go duration
	HeaderNotBefore = "Fila-Not-Before" // RFC 3339
	HeaderTTL       = "Nats-TTL"        // seconds, Go duration or "never"
)

// Headers understood on a nack.
const (
	HeaderError        = "Fila-Error"
	HeaderErrorCode    = "Fila-Error-Code"
	HeaderRetryAfterMs = "Fila-Retry-After-Ms" // also in error replies
)

// HeaderTimeoutMs is how long the caller of a guard check waits for the reply. A check may have
// [HeaderDeadline] as well.
const HeaderTimeoutMs = "Fila-Timeout-Ms"

// HeaderCost is understood on an ack.
const HeaderCost = "Fila-Cost" // the actual cost of the message, 0 to 1,000,000

// Headers of a refusal by an enqueue limit: its state.
const (
	HeaderRateLimitLimit     = "Fila-RateLimit-Limit"     // messages that the limit admits at once
	HeaderRateLimitRemaining = "Fila-RateLimit-Remaining" // messages that it would admit now
	HeaderRateLimitReset     = "Fila-RateLimit-Reset"     // seconds until it admits Limit again, rounded up
)

// Headers of NATS itself and of error replies.
const (
	HeaderStatus           = "Status"
	HeaderServiceError     = "Nats-Service-Error"
	HeaderServiceErrorCode = "Nats-Service-Error-Code"
	HeaderRetryAfter       = "Retry-After" // whole seconds, rounded up
)

// Values of [HeaderStatus].
const (
	StatusNotFound     = "404" // fetch: nothing to deliver now
	StatusExpired      = "408" // fetch: expires_ms has passed
	StatusNoResponders = "503" // no consumer received the delivery
)

// Reasons of dead letters, the values of [HeaderDeadReason].
const (
	ReasonExpired       = "expired"        // its TTL ended before it was finished
	ReasonMaxDeliveries = "max_deliveries" // delivered as often as the queue allows
	ReasonTerm          = "term"           // the consumer sent +TERM
	ReasonOnFailure     = "on_failure"     // the hook returned dlq
	ReasonCritical      = "critical"       // an error rule gave it severity critical
	ReasonRetryPolicy   = "retry_policy"   // an error rule or retry policy allows no more retries
	ReasonBudgetEmpty   = "budget_empty"   // it costs more than is left of a budget with on_empty = "dead_letter"
)

// MaxClient is the maximum length of a stored client name in bytes.
const MaxClient = 128

// Reasons returns all Reason constants.
func Reasons() []string {
	return []string{ReasonExpired, ReasonMaxDeliveries, ReasonTerm, ReasonOnFailure, ReasonCritical, ReasonRetryPolicy, ReasonBudgetEmpty}
}

// HeaderRoom is the part of the server's max_payload that is reserved for the headers that a
// delivery adds: payload and headers of an enqueue may have max_payload minus HeaderRoom
// bytes.
const HeaderRoom = 8 << 10

// Reserved reports whether a header's name starts with Fila- or Nats-, in any case, or is
// Status. Such a header of a producer is for fila or NATS, and is never delivered, so that
// nobody can forge a Fila-Id or the end of a fetch. An enqueue with an unknown one is refused.
func Reserved(name string) bool {
	if len(name) >= 5 && (strings.EqualFold(name[:5], "Fila-") || strings.EqualFold(name[:5], "Nats-")) {
		return true
	}
	return strings.EqualFold(name, HeaderStatus)
}

// kept reports whether a header is stored: a header of the producer, or of a schedule's run.
func kept(name string) bool {
	return !Reserved(name) || name == HeaderScheduledBy || name == HeaderScheduledAt
}

// OfDelivery reports whether fila adds a header of this name to deliveries.
func OfDelivery(name string) bool {
	return slices.Contains([]string{
		HeaderID, HeaderQueue, HeaderKey, HeaderAttempt, HeaderEnqueuedAt, HeaderDeadline, HeaderRoute,
		HeaderDeadReason, HeaderDeadError, HeaderDeadErrorCode, HeaderDeadAt, HeaderDeadAttempts, HeaderSourceQueue,
		HeaderScheduledBy, HeaderScheduledAt,
	}, name)
}

// HeaderValue replaces each carriage return and line feed of a header's value by a space.
func HeaderValue(text string) string {
	if !strings.ContainsAny(text, "\r\n") {
		return text
	}
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(text)
}

// LegalHeaderName reports whether name is an RFC 7230 token, as NATS clients require.
func LegalHeaderName(name string) bool {
	for i := range len(name) {
		if !nameBytes[name[i]] {
			return false
		}
	}
	return name != ""
}

// nameBytes are the bytes that a header's name may have.
var nameBytes = func() (legal [256]bool) {
	for c := '!'; c <= '~'; c++ {
		legal[c] = !strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	}
	return legal
}()

// field is the value of a header that may have one value.
type field struct {
	value string
	set   bool
}

func (f *field) add(name string, values []string) *Error {
	for _, v := range values {
		if f.set && f.value != v {
			return HeaderRepeated(name)
		}
		f.value, f.set = v, true
	}
	return nil
}

// find returns a header by its name in any case. It refuses different values of one header.
func find(h map[string][]string, name string) (f field, err *Error) {
	for k, values := range h {
		if len(k) != len(name) || !strings.EqualFold(k, name) {
			continue
		}
		if err := f.add(name, values); err != nil {
			return field{}, err
		}
	}
	return f, nil
}
