package api

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/filaq/fila/wire"
)

// Verbs of the guard, for callers that are not consumers: check before a call, done after it,
// and state of a key. The verb is a token of the subject, with the key as its tail, see
// [KeyTail].
const (
	GuardCheck = "check"
	GuardDone  = "done"
	GuardState = "state"
)

// Bounds of guard requests.
const (
	MaxGuardKeys        = 8   // of one call, with the first
	MaxGuardChecks      = 100 // in one request
	DefaultPermitMs     = 30_000
	MaxPermitMs         = 3_600_000
	MaxGuardCost        = 1_000_000
	MaxGuardCallerBytes = 64
	MaxGuardUserBytes   = 256
	maxGuardErrorBytes  = 4 << 10
	maxGuardCodeBytes   = 256
)

// GuardAsk is one call to check. The first key is the destination: its circuit decides, and
// gets the outcome of the call. The limits of all keys must allow the call; otherwise it uses
// none of them.
type GuardAsk struct {
	Key   string   `json:"key,omitempty"`    // the first key, if it is not the subject's tail
	With  []string `json:"with,omitempty"`   // further keys, at most seven
	Cost  float64  `json:"cost,omitempty"`   // for rates; 0.001 to 1e6, default 1
	TTLMs int64    `json:"ttl_ms,omitempty"` // how long the permit lives without a done: up to an hour, default 30 s
}

// GuardCheckRequest checks one call, or with Checks several, independently.
type GuardCheckRequest struct {
	GuardAsk
	Caller string     `json:"caller,omitempty"` // up to 64 bytes; the done must name the same
	Checks []GuardAsk `json:"checks,omitempty"` // up to 100, instead of the fields of GuardAsk
}

// ParseGuardCheck decodes and checks a [GuardCheckRequest], and sets its keys.
func ParseGuardCheck(tail string, body []byte) (GuardCheckRequest, *wire.Error) {
	return wire.Decode(body, GuardCheckRequest{}, func(r *GuardCheckRequest) *wire.Error {
		if err := checkCaller(r.Caller); err != nil {
			return err
		}
		if r.Checks == nil {
			return r.complete(tail)
		}
		switch {
		case len(r.Checks) == 0 || len(r.Checks) > MaxGuardChecks:
			return wire.BadField("checks", strconv.Itoa(len(r.Checks))+" of them", "allowed are 1 to "+strconv.Itoa(MaxGuardChecks))
		case r.Key != "" || r.With != nil || r.Cost != 0 || r.TTLMs != 0:
			return wire.BadField("checks", "given with key, with, cost or ttl_ms", "these belong into each check; beside checks only caller is allowed")
		}
		for i := range r.Checks {
			if err := r.Checks[i].complete(tail); err != nil {
				err.Description = fmt.Sprintf("checks[%d]: %s", i, err.Description)
				return err
			}
		}
		return nil
	})
}

// GuardOrigin is the origin of a request to the guard.
type GuardOrigin struct {
	User  string           // the NATS user, as account/user; empty: unknown
	Trace wire.TraceParent // of the request, if it is sampled
	Until int64            // how long its caller waits for the reply (Unix ns); 0: unknown
}

// Late reports whether the caller has stopped waiting.
func (o *GuardOrigin) Late(now int64) bool { return o.Until != 0 && now >= o.Until }

// GuardReply is the reply to a request to the guard.
type GuardReply struct {
	Body    []byte
	Headers map[string][]string
	Err     *wire.Error       // replaces Body and Headers
	Later   func() GuardReply // waits for the reply, in a goroutine of its own; nil: the reply is here
}

// GuardVerb carries out the requests of a guard verb. tail is the rest of the subject. It does
// not block: a reply that takes time is Later.
type GuardVerb func(tail string, body []byte, from GuardOrigin) GuardReply

// GuardUntil returns how long the caller of a check waits for the reply (Unix ns), from the
// headers; 0: unknown. The request was sent at time sent or later.
func GuardUntil(get func(header string) string, sent int64) (until int64, err *wire.Error) {
	if text := get(wire.HeaderTimeoutMs); text != "" {
		ms, bad := strconv.ParseInt(text, 10, 64)
		if bad != nil || ms < 1 || ms > wire.MaxSettingMs {
			return 0, wire.BadHeaderValue(wire.HeaderTimeoutMs, text, "allowed are 1 to "+strconv.FormatInt(wire.MaxSettingMs, 10)+" milliseconds")
		}
		until = sent + ms*int64(time.Millisecond)
	}
	if text := get(wire.HeaderDeadline); text != "" {
		at, bad := time.Parse(time.RFC3339Nano, text)
		if bad != nil || at.Year() < 1970 || at.Year() > 2200 {
			return 0, wire.BadHeaderValue(wire.HeaderDeadline, text, "allowed is a time such as 2030-01-02T15:04:05.678Z")
		}
		if until == 0 || at.UnixNano() < until {
			until = max(at.UnixNano(), 1)
		}
	}
	return until, nil
}

// complete checks a call and sets its defaults.
func (a *GuardAsk) complete(tail string) *wire.Error {
	if err := firstKey(tail, &a.Key); err != nil {
		return err
	}
	if len(a.With) >= MaxGuardKeys {
		return wire.BadField("with", strconv.Itoa(len(a.With))+" keys", "allowed are "+strconv.Itoa(MaxGuardKeys-1))
	}
	for i, key := range a.With {
		switch {
		case wire.CheckKey(key) != nil:
			return wire.BadField("with", wire.Quote(key), wire.AllowedKey)
		case key == a.Key || slices.Contains(a.With[:i], key):
			return wire.BadField("with", wire.Quote(key), "each key is allowed once")
		}
	}
	a.Cost = cmp.Or(a.Cost, 1)
	if !(a.Cost >= 0.001 && a.Cost <= MaxGuardCost) {
		return wire.BadField("cost", strconv.FormatFloat(a.Cost, 'g', -1, 64), fmt.Sprintf("allowed are 0.001 to %d", MaxGuardCost))
	}
	if a.TTLMs == 0 {
		a.TTLMs = DefaultPermitMs
		return nil
	}
	return wire.CheckBounds(a)
}

// Bounds implements [wire.Bounded].
func (a *GuardAsk) Bounds() []wire.Bound {
	return []wire.Bound{
		{Field: "ttl_ms", Value: a.TTLMs, Min: 1, Max: MaxPermitMs, Zero: "the default"},
		{Field: "cost", Max: MaxGuardCost},
		{Field: "with", Value: int64(len(a.With)), Max: MaxGuardKeys - 1},
	}
}

// Bounds implements [wire.Bounded].
func (r *GuardCheckRequest) Bounds() []wire.Bound {
	return append(r.GuardAsk.Bounds(), wire.Bound{Field: "checks", Value: int64(len(r.Checks)), Max: MaxGuardChecks})
}

// firstKey sets and checks the first key of a request.
func firstKey(tail string, key *string) *wire.Error {
	if err := resolveKey(tail, key); err != nil {
		return err
	}
	if wire.CheckKey(*key) != nil {
		return wire.BadField("key", wire.Quote(*key), wire.AllowedKey)
	}
	return nil
}

// Keys returns all keys, the first one first.
func (a *GuardAsk) Keys() []string { return append([]string{a.Key}, a.With...) }

// Thousandths returns the cost in thousandths, as gates count it.
func (a *GuardAsk) Thousandths() int64 { return int64(math.Round(a.Cost * 1000)) }

// Thousandths returns the actual cost in thousandths, as gates count it, or estimate if the
// request has none.
func (r *GuardDoneRequest) Thousandths(estimate int64) int64 {
	if r.Cost == nil {
		return estimate
	}
	return max(int64(math.Round(*r.Cost*1000)), 1)
}

func checkCaller(caller string) *wire.Error {
	if len(caller) > MaxGuardCallerBytes || !wire.Plain(caller) {
		return wire.BadField("caller", wire.Quote(caller), fmt.Sprintf("allowed are up to %d bytes of UTF-8 without control characters", MaxGuardCallerBytes))
	}
	return nil
}

// FailureOfCall is the kind, in the data of an event, of a failure of a guarded call. Events
// about messages have none.
const FailureOfCall = "call"

// GateLate is the gate of a check that is refused because its caller may have stopped waiting.
const GateLate = "late"

// GuardLimit is the state of one limit.
type GuardLimit struct {
	Key        string `json:"key"`
	Gate       string `json:"gate"`                  // rate, window or concurrency; of a state's answer also a key of [limits]
	Limit      int64  `json:"limit"`                 // calls of cost 1 at once, or in the window
	Remaining  int64  `json:"remaining"`             // now
	ResetS     int64  `json:"reset_s,omitempty"`     // seconds until it is full again if unused, rounded up
	ResetEpoch int64  `json:"reset_epoch,omitempty"` // the same as Unix time in seconds
	WindowMs   int64  `json:"window_ms,omitempty"`
}

// GuardAnswer answers a check.
type GuardAnswer struct {
	Allowed bool `json:"allowed"`

	// If allowed: the permit for done, and when it expires. Probe says that the circuit is
	// half-open and this call is its probe.
	Permit    string `json:"permit,omitempty"`
	ExpiresAt string `json:"expires_at,omitempty"` // RFC 3339
	Probe     bool   `json:"probe,omitempty"`

	// Otherwise: the gate and key that refuse it, and when to retry.
	Gate         string      `json:"gate,omitempty"` // circuit, rate, window, concurrency, reserved, turn, paused or late; of a state also a key of [limits]
	Key          string      `json:"key,omitempty"`
	RetryAfterMs int64       `json:"retry_after_ms,omitempty"` // rounded up; absent: unknown
	Limit        *GuardLimit `json:"limit,omitempty"`          // of a rate, window or concurrency
}

// AppendAllowed appends the JSON of an allowed answer, whose fields need no escapes. It is
// faster than json.Marshal.
func (a *GuardAnswer) AppendAllowed(b []byte) []byte {
	b = slices.Grow(b, 128)
	b = append(b, `{"allowed":true,"permit":"`...)
	b = append(b, a.Permit...)
	b = append(b, `","expires_at":"`...)
	b = append(b, a.ExpiresAt...)
	if a.Probe {
		return append(b, `","probe":true}`...)
	}
	return append(b, `"}`...)
}

// Headers returns the headers of a refusal; an allowed answer has none.
func (a *GuardAnswer) Headers() map[string][]string {
	if a.Allowed {
		return nil
	}
	h := make(map[string][]string)
	if ms := a.RetryAfterMs; ms > 0 {
		h[wire.HeaderRetryAfter] = []string{strconv.FormatInt((ms+999)/1000, 10)}
		h[wire.HeaderRetryAfterMs] = []string{strconv.FormatInt(ms, 10)}
	}
	if l := a.Limit; l != nil {
		h[wire.HeaderRateLimitLimit] = []string{strconv.FormatInt(l.Limit, 10)}
		h[wire.HeaderRateLimitRemaining] = []string{strconv.FormatInt(l.Remaining, 10)}
		h[wire.HeaderRateLimitReset] = []string{strconv.FormatInt(l.ResetS, 10)}
	}
	return h
}

// GuardAnswers answers a check with Checks, in order.
type GuardAnswers struct {
	Answers []GuardAnswer `json:"answers"`
}

// Outcomes of a call, in [GuardDoneRequest].
const (
	GuardOK    = "ok"
	GuardError = "error"
)

// GuardDoneRequest reports the outcome of a call.
type GuardDoneRequest struct {
	Key     string `json:"key,omitempty"` // the first key, if it is not the subject's tail
	Permit  string `json:"permit"`
	Caller  string `json:"caller,omitempty"` // as in the check
	Outcome string `json:"outcome"`          // ok or error

	// Cost is the actual cost of the call, 0 to 1e6, in place of the estimate of the check. 0 counts
	// as 0.001. Absent: the estimate stands.
	Cost *float64 `json:"cost,omitempty"`
	// Remaining is the cost that the destination still admits, from 0 to 1e12, and ResetMs the
	// time until it admits more, for throttle keys that learn their limits.
	Remaining *float64 `json:"remaining,omitempty"`
	ResetMs   *int64   `json:"reset_ms,omitempty"`

	// Of an error.
	ErrorCode    string `json:"error_code,omitempty"`
	Error        string `json:"error,omitempty"`
	RetryAfterMs int64  `json:"retry_after_ms,omitempty"` // the destination's Retry-After
	Attempt      uint32 `json:"attempt,omitempty"`        // number of calls for the same work, this one included; default 1
	RetryPolicy  string `json:"retry_policy,omitempty"`   // a [[retry_policy]], unless an error rule names one; empty: the default of queues
}

// ParseGuardDone decodes and checks a [GuardDoneRequest], and sets its key.
func ParseGuardDone(tail string, body []byte) (GuardDoneRequest, *wire.Error) {
	return wire.Decode(body, GuardDoneRequest{Attempt: 1}, func(r *GuardDoneRequest) *wire.Error {
		if err := cmp.Or(firstKey(tail, &r.Key), checkCaller(r.Caller)); err != nil {
			return err
		}
		switch {
		case len(r.Permit) != wire.PermitLen:
			return wire.BadField("permit", wire.Quote(r.Permit), "allowed is the permit of a check")
		case r.Cost != nil && !(*r.Cost >= 0 && *r.Cost <= wire.MaxAckCost):
			return wire.BadField("cost", strconv.FormatFloat(*r.Cost, 'g', -1, 64), fmt.Sprintf("allowed are 0 to %d", wire.MaxAckCost))
		case r.Outcome == GuardOK && (r.ErrorCode != "" || r.Error != "" || r.RetryAfterMs != 0):
			return wire.BadField("outcome", wire.Quote(r.Outcome), "error_code, error and retry_after_ms are only for error")
		}
		if _, err := wire.NewFeedback(r.Remaining, r.ResetMs); err != nil {
			return wire.BadField("remaining", "given", err.Error())
		}
		return cmp.Or(checkFailure(r.ErrorCode, &r.Error, r.Attempt), wire.CheckBounds(r))
	})
}

// Bounds implements [wire.Bounded].
func (r *GuardDoneRequest) Bounds() []wire.Bound {
	return []wire.Bound{
		{Field: "outcome", Text: r.Outcome, OneOf: []string{GuardOK, GuardError}},
		{Field: "retry_after_ms", Value: r.RetryAfterMs, Max: wire.MaxSettingMs},
	}
}

// GuardVerdict answers a done.
type GuardVerdict struct {
	Duplicate bool `json:"duplicate,omitempty"` // reported before: the first outcome counts

	// Of an error: the judgement of the rules.
	Severity    string `json:"severity,omitempty"` // low, medium, high or critical
	Rule        string `json:"rule,omitempty"`
	Description string `json:"description,omitempty"`
	Retry       bool   `json:"retry"`
	DelayMs     int64  `json:"delay_ms,omitempty"`     // until the retry, rounded up
	RetriesLeft *int64 `json:"retries_left,omitempty"` // after this attempt; absent: unlimited
}

// GuardStateRequest asks for the state of a key and, with an error, for the judgement of the
// rules about it. The error does not count.
type GuardStateRequest struct {
	Key         string `json:"key,omitempty"`    // if it is not the subject's tail
	Caller      string `json:"caller,omitempty"` // whose limits on permits apply
	ErrorCode   string `json:"error_code,omitempty"`
	Error       string `json:"error,omitempty"`
	Attempt     uint32 `json:"attempt,omitempty"`      // of the call that would have failed; default 1
	RetryPolicy string `json:"retry_policy,omitempty"` // as in [GuardDoneRequest]
}

// ParseGuardState decodes and checks a [GuardStateRequest], and sets its key.
func ParseGuardState(tail string, body []byte) (GuardStateRequest, *wire.Error) {
	return wire.Decode(body, GuardStateRequest{Attempt: 1}, func(r *GuardStateRequest) *wire.Error {
		if err := cmp.Or(resolveKey(tail, &r.Key), checkCaller(r.Caller)); err != nil {
			return err
		}
		if r.ErrorCode == "" && r.Error == "" && (r.Attempt != 1 || r.RetryPolicy != "") {
			return wire.BadField("error_code", "", "it is required with attempt or retry_policy, unless error is given")
		}
		return checkFailure(r.ErrorCode, &r.Error, r.Attempt)
	})
}

// Failure returns the error in the request, or nil.
func (r *GuardStateRequest) Failure() *GuardDoneRequest {
	if r.ErrorCode == "" && r.Error == "" {
		return nil
	}
	return &GuardDoneRequest{Key: r.Key, Outcome: GuardError, ErrorCode: r.ErrorCode, Error: r.Error, Attempt: r.Attempt, RetryPolicy: r.RetryPolicy}
}

// checkFailure checks an error and its attempt, and cuts a text that is too long.
func checkFailure(code string, text *string, attempt uint32) *wire.Error {
	switch {
	case len(code) > maxGuardCodeBytes:
		return wire.BadField("error_code", wire.Quote(code), "allowed are up to "+strconv.Itoa(maxGuardCodeBytes)+" bytes")
	case attempt < 1:
		return wire.BadField("attempt", "0", "allowed is 1 and more")
	}
	*text = (*text)[:min(len(*text), maxGuardErrorBytes)]
	return nil
}

// GuardStatus answers a state request, which uses no limits.
type GuardStatus struct {
	Key     string       `json:"key"`
	Answer  GuardAnswer  `json:"answer"` // of a check with only this key and cost 1; without a permit
	Limits  []GuardLimit `json:"limits"`
	Circuit *CircuitInfo `json:"circuit,omitempty"` // absent: closed, without failures
	Permits int          `json:"permits"`           // of calls with this key as the first

	Verdict *GuardVerdict `json:"verdict,omitempty"` // about the error of the request
}
