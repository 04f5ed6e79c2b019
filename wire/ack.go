package wire

import (
	"cmp"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
)

// AckKind says what a message on an ack or nack subject means.
type AckKind uint8

// The kinds of acks.
const (
	AckDone         AckKind = iota + 1 // finished
	AckNack                            // failed, to be retried or dead-lettered
	AckProgress                        // still at work: renew the lease
	AckTerm                            // dead-letter now
	AckNoResponders                    // from the server: nobody received the delivery
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
	// MaxNackDelay is the longest delay or retry-after that a nack may ask for:
	// 365 days.
	MaxNackDelay = 365 * 24 * time.Hour
	// MaxErrorText is how many bytes of an error text or reason are kept.
	MaxErrorText = 1024
	// MaxErrorCode is how many bytes of an error code are kept.
	MaxErrorCode = 64
	// MaxAckCost is the largest cost that an ack may name.
	MaxAckCost = 1_000_000
)

// Ack is what a consumer says about a delivery.
type Ack struct {
	Kind AckKind
	// Delay is how long a nacked message waits before its next attempt, 0 to
	// 365 days; it counts only if HasDelay.
	Delay    time.Duration
	HasDelay bool
	// Cost is what the message has cost in thousandths, 0 to 1,000,000,000; it counts
	// only if HasCost, with [AckDone].
	HasCost bool
	Cost    uint32
	// Error and ErrorCode describe a failure; for [AckTerm], Error is the
	// reason. Valid UTF-8 of at most 1024 and 64 bytes, longer ones are cut.
	Error, ErrorCode string
	// RetryAfter is for how long the destination asked not to be called, 0 to
	// 365 days; 0 if it did not.
	RetryAfter time.Duration
}

// Ack payloads.
const (
	payloadAck      = "+ACK"
	payloadOK       = "+OK"
	payloadNext     = "+NXT"
	payloadProgress = "+WPI"
	payloadTerm     = "+TERM"
	payloadNak      = "-NAK"
)

// ParseAck reads a message on an ack subject. A Status header decides before
// the payload does: 503 with an empty payload is the server's answer that
// nobody received the delivery, everything else with a Status is refused, and
// neither is ever an ack.
//
// Then: empty, "+ACK", "+OK" and "+NXT" are [AckDone], where "+ACK" may be followed by
// a JSON object with "cost", and the header Fila-Cost says it as well; "+WPI" is
// [AckProgress], "+TERM" with an optional reason is [AckTerm], and "-NAK" is
// [AckNack], followed by nothing, a Go duration, or a JSON object with any of
// "delay" (nanoseconds or a Go duration), "error", "code" and
// "retry_after_ms". For nacks and terms the headers Fila-Error,
// Fila-Error-Code and Fila-Retry-After-Ms fill in what the payload leaves
// open; where both speak the payload wins.
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
			return parseAckCost(arg, h)
		}
	}
	if rest, ok := cutVerb(payload, payloadTerm); ok {
		a := Ack{Kind: AckTerm, Error: clean(strings.TrimSpace(rest), MaxErrorText)}
		return fillFromHeaders(a, false, h)
	}
	if rest, ok := cutVerb(payload, payloadNak); ok {
		a, hasRetryAfter, err := parseNak(strings.TrimSpace(rest))
		if err != nil {
			return Ack{}, err
		}
		return fillFromHeaders(a, hasRetryAfter, h)
	}
	shown := payload[:min(len(payload), 2*maxQuoted)] // it may be megabytes
	return Ack{}, BadAckPayload(quote(string(shown)) +
		" is not one of empty, +ACK, +OK, +NXT, +WPI, -NAK and +TERM")
}

// ParseNack reads a message on a nack subject, whose payload is the error text
// as it is. The Status header and the nack headers count as in [ParseAck].
func ParseNack(payload []byte, h map[string][]string) (Ack, *Error) {
	if a, done, err := parseStatus(payload, h); done || err != nil {
		return a, err
	}
	return fillFromHeaders(Ack{Kind: AckNack, Error: clean(string(payload), MaxErrorText)}, false, h)
}

// parseStatus deals with messages that carry a Status header.
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
		return Ack{}, false, BadAckStatus("Status " + quote(status.value) + " is not understood on an ack")
	case len(payload) > 0:
		return Ack{}, false, BadAckStatus("Status 503 says that nobody received the delivery, but there is a payload")
	}
	return Ack{Kind: AckNoResponders}, true, nil
}

// cutVerb returns what follows verb in payload. What follows must be set apart
// by white space, or be a JSON object, which JetStream clients may append
// directly.
func cutVerb(payload []byte, verb string) (string, bool) {
	if len(payload) < len(verb) || string(payload[:len(verb)]) != verb {
		return "", false
	}
	rest := string(payload[len(verb):])
	if rest == "" || strings.IndexByte(" \t\r\n", rest[0]) >= 0 || rest[0] == '{' && verb != payloadTerm {
		return rest, true
	}
	return "", false
}

// parseAckCost reads the JSON object after +ACK.
func parseAckCost(arg string, h map[string][]string) (Ack, *Error) {
	var body struct {
		Cost *float64 `json:"cost"`
	}
	if arg[0] != '{' {
		return Ack{}, BadAckPayload("+ACK " + quote(arg) + ": allowed is a JSON object with cost")
	}
	if err := DecodeStrict([]byte(arg), &body); err != nil {
		return Ack{}, BadAckPayload("+ACK: " + err.Description)
	}
	a, err := costFromHeader(Ack{Kind: AckDone}, h)
	if err != nil || body.Cost == nil {
		return a, err
	}
	cost, ok := costThousandths(*body.Cost)
	if !ok {
		return Ack{}, BadAckPayload("+ACK: cost is " + strconv.FormatFloat(*body.Cost, 'g', -1, 64) + ": " + costAllowed)
	}
	a.Cost, a.HasCost = cost, true
	return a, nil
}

const costAllowed = "allowed is a number from 0 to 1000000"

// costFromHeader takes the cost of an ack from its header, if that has one.
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

// nakBody is the JSON object after -NAK.
type nakBody struct {
	Delay        *json.RawMessage `json:"delay"` // text or number
	Error        string           `json:"error"`
	Code         string           `json:"code"`
	RetryAfterMs *int64           `json:"retry_after_ms"`
}

// parseNak reads what follows -NAK, and whether it has a retry_after_ms.
func parseNak(arg string) (a Ack, hasRetryAfter bool, refusal *Error) {
	a.Kind = AckNack
	if arg == "" {
		return a, false, nil
	}
	if arg[0] != '{' {
		d, ok := delayText(arg)
		if !ok {
			return Ack{}, false, BadAckPayload("-NAK " + quote(arg) + ": " + delayAllowed + ", or a JSON object")
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
			return Ack{}, false, BadAckPayload("-NAK: delay " + quote(string(*body.Delay)) + ": " + delayAllowed + ", or nanoseconds")
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

// delayJSON reads a JSON string as a duration and a JSON number as
// nanoseconds, in any notation that numbers have: some languages have no
// integers. A fraction of a nanosecond is dropped.
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

// fillFromHeaders checks the nack headers and takes from them what the payload
// does not say. A retry-after of 0 is something said, hence hasRetryAfter.
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

// clean makes a client's text safe to keep and to send on: valid UTF-8 of at
// most limit bytes.
func clean(s string, limit int) string {
	return cut(strings.ToValidUTF8(cut(s, limit), "\uFFFD"), limit)
}
