package wire

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// AckKind is the meaning of a message on an ack or nack subject.
type AckKind uint8

// The kinds of acks.
const (
	AckDone         AckKind = iota + 1 // finished
	AckNack                            // failed: retry or dead-letter
	AckProgress                        // still working: extend the lease
	AckTerm                            // dead-letter now
	AckNoResponders                    // from the server: no consumer received the delivery
)

// String returns "ack", "nack", "progress", "term" or "no-responders".
func (k AckKind) String() string {
	names := [...]string{AckDone: "ack", AckNack: "nack", AckProgress: "progress", AckTerm: "term", AckNoResponders: "no-responders"}
	if k < AckDone || k > AckNoResponders {
		return "AckKind(" + strconv.Itoa(int(k)) + ")"
	}
	return names[k]
}

const (
	// MaxNackDelay is the longest delay or retry-after of a nack: 365 days.
	MaxNackDelay = 365 * 24 * time.Hour
	// MaxErrorText is the maximum length of a stored error text or reason in bytes.
	MaxErrorText = 1024
	// MaxErrorCode is the maximum length of a stored error code in bytes.
	MaxErrorCode = 64
	// MaxAckCost is the largest cost in an ack.
	MaxAckCost = 1_000_000
)

// Ack is a consumer's answer to a delivery.
type Ack struct {
	Kind AckKind
	// Delay is how long a nacked message waits before its next attempt, 0 to
	// 365 days; it counts only if HasDelay.
	Delay    time.Duration
	HasDelay bool
	// Cost is the actual cost of the message, or of its failed attempt, in thousandths, 0 to
	// 1,000,000,000; it counts only if HasCost, with [AckDone] and [AckNack].
	HasCost bool
	Cost    uint32
	// Error and ErrorCode describe a failure; for [AckTerm], Error is the
	// reason. Valid UTF-8 of at most 1024 and 64 bytes, longer ones are cut.
	Error, ErrorCode string
	// RetryAfter is the destination's Retry-After, up to 365 days; 0 if there is none.
	RetryAfter time.Duration
	// Feedback is what the destination has said about its limit, with [AckDone] and
	// [AckNack]; nil if it said nothing.
	Feedback *Feedback
}

// Feedback is how much more a destination admits, as its reply says, for throttle keys that
// learn their limit.
type Feedback struct {
	Remaining int64         // cost in thousandths, 0 to 1e15
	Reset     time.Duration // until it admits more, up to 365 days; 0: not known
}

// MaxRemaining is the largest remaining in an ack, a nack or the done of a guard call.
const MaxRemaining = 1e12

// NewFeedback returns the feedback of a request with these fields; nil if remaining is nil. An
// error says what is wrong, and what is allowed.
func NewFeedback(remaining *float64, resetMs *int64) (*Feedback, error) {
	switch {
	case remaining == nil && resetMs == nil:
		return nil, nil
	case remaining == nil:
		return nil, errors.New("reset_ms is given without remaining: they go together")
	case !(*remaining >= 0 && *remaining <= MaxRemaining):
		return nil, errors.New("remaining is " + strconv.FormatFloat(*remaining, 'g', -1, 64) + ": allowed is a number from 0 to 1e12")
	}
	f := &Feedback{Remaining: int64(math.Round(*remaining * 1000))}
	if resetMs != nil {
		reset, ok := millis(*resetMs)
		if !ok {
			return nil, errors.New("reset_ms is " + strconv.FormatInt(*resetMs, 10) + ": " + millisAllowed)
		}
		f.Reset = reset
	}
	return f, nil
}

// OverloadCode reports whether an error code says that a destination has too much to do: the
// HTTP statuses 429 Too Many Requests, 503 Service Unavailable and 529 of overloaded sites.
func OverloadCode(code string) bool { return code == "429" || code == "503" || code == "529" }

// Ack payloads.
const (
	payloadAck      = "+ACK"
	payloadOK       = "+OK"
	payloadNext     = "+NXT"
	payloadProgress = "+WPI"
	payloadTerm     = "+TERM"
	payloadNak      = "-NAK"
)

// ParseAck parses a message on an ack subject. A message with a Status header is never an ack:
// 503 with an empty payload is the server's report that no consumer received the delivery, and
// any other Status is refused.
//
// Then: empty, "+ACK", "+OK" and "+NXT" are [AckDone], where "+ACK" may be followed by
// a JSON object with any of "cost", which may be in the header Fila-Cost instead, "remaining" and "reset_ms"; "+WPI" is
// [AckProgress]; "+TERM" is [AckTerm], followed by nothing, a reason, or a JSON object with any of
// "error" and "code"; and "-NAK" is [AckNack], followed by nothing, a Go duration, or a JSON object
// with any of "delay" (nanoseconds or a Go duration), "error", "code", "retry_after_ms", "cost", "remaining" and "reset_ms". For nacks and terms the headers Fila-Error, Fila-Error-Code and
// Fila-Retry-After-Ms supplement the payload, which has priority.
func ParseAck(payload []byte, h map[string][]string) (Ack, *Error) {
	if a, done, err := parseStatus(payload, h); done || err != nil {
		return a, err
	}
	switch string(payload) {
	case "", payloadAck, payloadOK, payloadNext:
		return costFromHeader(Ack{Kind: AckDone}, h)
	case payloadProgress:
		return Ack{Kind: AckProgress}, nil
	}
	if rest, ok := cutVerb(payload, payloadAck); ok {
		if arg := strings.TrimSpace(rest); arg != "" {
			return parseAckBody(arg, h)
		}
	}
	if rest, ok := cutVerb(payload, payloadTerm); ok {
		a, err := parseTerm(strings.TrimSpace(rest))
		if err != nil {
			return Ack{}, err
		}
		return fillFromHeaders(a, false, h)
	}
	if rest, ok := cutVerb(payload, payloadNak); ok {
		a, hasRetryAfter, err := parseNak(strings.TrimSpace(rest))
		if err != nil {
			return Ack{}, err
		}
		return fillFromHeaders(a, hasRetryAfter, h)
	}
	shown := payload[:min(len(payload), 2*maxQuoted)] // the payload may have megabytes
	return Ack{}, BadAckPayload(Quote(string(shown)) +
		" is not one of empty, +ACK, +OK, +NXT, +WPI, -NAK and +TERM")
}

// ParseNack parses a message on a nack subject, whose payload is the plain error text. Its
// headers are as in [ParseAck].
func ParseNack(payload []byte, h map[string][]string) (Ack, *Error) {
	if a, done, err := parseStatus(payload, h); done || err != nil {
		return a, err
	}
	return fillFromHeaders(Ack{Kind: AckNack, Error: clean(string(payload), MaxErrorText)}, false, h)
}

// parseStatus parses a message with a Status header; done means that it has one.
func parseStatus(payload []byte, h map[string][]string) (Ack, bool, *Error) {
	if len(h) == 0 {
		return Ack{}, false, nil
	}
	status, err := find(h, HeaderStatus)
	switch {
	case err != nil:
		return Ack{}, false, err
	case !status.set:
		return Ack{}, false, nil
	case status.value != StatusNoResponders:
		return Ack{}, false, BadAckStatus("Status " + Quote(status.value) + " is not understood on an ack")
	case len(payload) > 0:
		return Ack{}, false, BadAckStatus("Status 503 says that nobody received the delivery, but there is a payload")
	}
	return Ack{Kind: AckNoResponders}, true, nil
}

// cutVerb returns the rest of payload after verb. The rest must begin with white space, or be
// a JSON object, which JetStream clients append directly.
func cutVerb(payload []byte, verb string) (string, bool) {
	if len(payload) < len(verb) || string(payload[:len(verb)]) != verb {
		return "", false
	}
	rest := string(payload[len(verb):])
	if rest == "" || strings.IndexByte(" \t\r\n", rest[0]) >= 0 || rest[0] == '{' {
		return rest, true
	}
	return "", false
}

// parseAckBody reads the JSON object after +ACK.
func parseAckBody(arg string, h map[string][]string) (Ack, *Error) {
	var body struct {
		Cost      *float64 `json:"cost"`
		Remaining *float64 `json:"remaining"`
		ResetMs   *int64   `json:"reset_ms"`
	}
	if arg[0] != '{' {
		return Ack{}, BadAckPayload("+ACK " + Quote(arg) + ": allowed is a JSON object with any of cost, remaining and reset_ms")
	}
	if err := DecodeStrict([]byte(arg), &body); err != nil {
		return Ack{}, BadAckPayload("+ACK: " + err.Description)
	}
	feedback, bad := NewFeedback(body.Remaining, body.ResetMs)
	if bad != nil {
		return Ack{}, BadAckPayload("+ACK: " + bad.Error())
	}
	a, err := costFromHeader(Ack{Kind: AckDone, Feedback: feedback}, h)
	if err != nil || body.Cost == nil {
		return a, err
	}
	if err := a.setCost(payloadAck, *body.Cost); err != nil {
		return Ack{}, err
	}
	return a, nil
}

// setCost sets the cost that a payload of kind verb has.
func (a *Ack) setCost(verb string, cost float64) *Error {
	n, ok := costThousandths(cost)
	if !ok {
		return BadAckPayload(verb + ": cost is " + strconv.FormatFloat(cost, 'g', -1, 64) + ": " + costAllowed)
	}
	a.Cost, a.HasCost = n, true
	return nil
}

const costAllowed = "allowed is a number from 0 to 1000000"

// costFromHeader sets the cost of an ack from its header, if there is one.
func costFromHeader(a Ack, h map[string][]string) (Ack, *Error) {
	if len(h) == 0 {
		return a, nil
	}
	cost, err := find(h, HeaderCost)
	if err != nil {
		return Ack{}, err
	}
	if !cost.set {
		return a, nil
	}
	var f float64
	text := strings.TrimSpace(cost.value)
	number := text != "" && text != "null" && json.Unmarshal([]byte(text), &f) == nil
	n, ok := costThousandths(f)
	if !number || !ok {
		return Ack{}, BadAckHeader(HeaderCost, cost.value, costAllowed)
	}
	a.Cost, a.HasCost = n, true
	return a, nil
}

// costThousandths rounds a cost to thousandths.
func costThousandths(f float64) (uint32, bool) {
	if math.Signbit(f) || f > MaxAckCost {
		return 0, false
	}
	return uint32(math.Round(f * 1000)), true
}

// parseTerm parses the argument of +TERM.
func parseTerm(arg string) (Ack, *Error) {
	body := struct {
		Error string `json:"error"`
		Code  string `json:"code"`
	}{Error: arg}
	if strings.HasPrefix(arg, "{") {
		body.Error = ""
		if err := DecodeStrict([]byte(arg), &body); err != nil {
			return Ack{}, BadAckPayload("+TERM: " + err.Description)
		}
	}
	return Ack{Kind: AckTerm, Error: clean(body.Error, MaxErrorText), ErrorCode: clean(body.Code, MaxErrorCode)}, nil
}

// nakBody is the JSON object after -NAK.
type nakBody struct {
	Delay        *json.RawMessage `json:"delay"` // text or number
	Error        string           `json:"error"`
	Code         string           `json:"code"`
	RetryAfterMs *int64           `json:"retry_after_ms"`
	Cost         *float64         `json:"cost"`
	Remaining    *float64         `json:"remaining"`
	ResetMs      *int64           `json:"reset_ms"`
}

// parseNak parses the argument of -NAK, and reports whether it has a retry_after_ms.
func parseNak(arg string) (a Ack, hasRetryAfter bool, refusal *Error) {
	a.Kind = AckNack
	if arg == "" {
		return a, false, nil
	}
	if arg[0] != '{' {
		d, ok := delayText(arg)
		if !ok {
			return Ack{}, false, BadAckPayload("-NAK " + Quote(arg) + ": " + delayAllowed + ", or a JSON object")
		}
		a.Delay, a.HasDelay = d, true
		return a, false, nil
	}
	var body nakBody
	if err := DecodeStrict([]byte(arg), &body); err != nil {
		return Ack{}, false, BadAckPayload("-NAK: " + err.Description)
	}
	if body.Delay != nil {
		d, ok := delayJSON(string(*body.Delay))
		if !ok {
			return Ack{}, false, BadAckPayload("-NAK: delay " + Quote(string(*body.Delay)) + ": " + delayAllowed + ", or nanoseconds")
		}
		a.Delay, a.HasDelay = d, true
	}
	if body.RetryAfterMs != nil {
		d, ok := millis(*body.RetryAfterMs)
		if !ok {
			return Ack{}, false, BadAckPayload("-NAK: retry_after_ms is " +
				strconv.FormatInt(*body.RetryAfterMs, 10) + ": " + millisAllowed)
		}
		a.RetryAfter = d
	}
	feedback, err := NewFeedback(body.Remaining, body.ResetMs)
	if err != nil {
		return Ack{}, false, BadAckPayload("-NAK: " + err.Error())
	}
	a.Feedback = feedback
	if body.Cost != nil {
		if err := a.setCost(payloadNak, *body.Cost); err != nil {
			return Ack{}, false, err
		}
	}
	a.Error = clean(body.Error, MaxErrorText)
	a.ErrorCode = clean(body.Code, MaxErrorCode)
	return a, body.RetryAfterMs != nil, nil
}

const (
	delayAllowed  = "allowed is a Go duration such as 30s, from 0 to 8760h"
	millisAllowed = "allowed are whole milliseconds from 0 to 31536000000"
)

func delayText(s string) (time.Duration, bool) {
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0 && d <= MaxNackDelay
}

// delayJSON parses a JSON string as a duration and a JSON number as nanoseconds, in any
// notation of numbers, because some languages have no integers.
func delayJSON(raw string) (time.Duration, bool) {
	if raw[0] == '"' {
		// No duration needs an escape.
		return delayText(strings.Trim(raw, `"`))
	}
	if n, err := strconv.ParseInt(raw, 10, 64); err == nil {
		return time.Duration(n), n >= 0 && n <= int64(MaxNackDelay)
	}
	if c := raw[0]; c != '-' && (c < '0' || c > '9') {
		return 0, false // true, an object, an array
	}
	f, err := strconv.ParseFloat(raw, 64)
	if err != nil || math.IsNaN(f) || math.Signbit(f) || f > float64(MaxNackDelay) {
		return 0, false
	}
	return time.Duration(f), true
}

func millis(n int64) (time.Duration, bool) {
	if n < 0 || n > int64(MaxNackDelay/time.Millisecond) {
		return 0, false
	}
	return time.Duration(n) * time.Millisecond, true
}

// fillFromHeaders checks the nack headers and sets what the payload does not have. A
// retry-after of 0 in the payload has priority, hence hasRetryAfter.
func fillFromHeaders(a Ack, hasRetryAfter bool, h map[string][]string) (Ack, *Error) {
	if len(h) == 0 {
		return a, nil
	}
	text, err1 := find(h, HeaderError)
	code, err2 := find(h, HeaderErrorCode)
	after, err3 := find(h, HeaderRetryAfterMs)
	if err := cmp.Or(err1, err2, err3); err != nil {
		return Ack{}, err
	}
	if after.set {
		n, err := strconv.ParseInt(strings.TrimSpace(after.value), 10, 64)
		d, legal := millis(n)
		if err != nil || !legal {
			return Ack{}, BadAckHeader(HeaderRetryAfterMs, after.value, millisAllowed)
		}
		if !hasRetryAfter {
			a.RetryAfter = d
		}
	}
	a.Error = cmp.Or(a.Error, clean(text.value, MaxErrorText))
	a.ErrorCode = cmp.Or(a.ErrorCode, clean(code.value, MaxErrorCode))
	return a, nil
}

// clean returns a client's text as valid UTF-8 of at most limit bytes.
func clean(s string, limit int) string {
	return Cut(strings.ToValidUTF8(Cut(s, limit), "\uFFFD"), limit)
}
