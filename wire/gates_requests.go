package wire

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// MaxGateValue is the largest burst, concurrency and window limit.
const MaxGateValue = 1_000_000_000

// KeyInBody is the tail of an admin subject whose key stands in the body.
const KeyInBody = "_"

// KeyTail returns how a key goes into an admin request: as the tail of the
// subject if it is legal there, or as the body's key field with the tail
// [KeyInBody].
func KeyTail(key string) (tail, bodyKey string) {
	if tail = EventTail(key); tail == KeyInBody {
		return KeyInBody, key
	}
	return tail, ""
}

// resolveKey is the opposite of [KeyTail]: it completes the key of a body, which
// is in the form of [ShowKey] until then.
func resolveKey(tail string, key *string) *Error {
	switch {
	case tail == KeyInBody || tail == "":
		if *key == "" {
			return BadField("key", "", "name it at the end of the subject, or as key in the body if the subject ends in _")
		}
	case *key != "" && *key != tail:
		return BadField("key", quote(*key), "the subject names "+quote(tail))
	default:
		*key = tail
	}
	return nameKey("key", key)
}

func badGateKey(field, key string) *Error {
	value := ""
	if key != "" {
		value = quote(key)
	}
	return BadField(field, value, "allowed are 1 to 256 bytes of UTF-8")
}

// ParseThrottleSet decodes and checks a [ThrottleSetRequest]. Key is set to the
// throttle key in any case. What does not depend on what is set already is
// checked, so a burst without a rate passes.
func ParseThrottleSet(tail string, body []byte) (ThrottleSetRequest, *Error) {
	return parse(body, ThrottleSetRequest{}, func(r *ThrottleSetRequest) *Error {
		return cmp.Or(resolveKey(tail, &r.Key), r.check())
	})
}

// limitNames are the fields of [ThrottleLimits], in their order.
var limitNames = []string{"rate", "burst", "concurrency", "limit", "window_ms"}

func (r ThrottleSetRequest) check() *Error {
	if err := r.ThrottleLimits.check(false); err != nil {
		return err
	}
	set := r.Names()
	for i, name := range r.Unset {
		switch {
		case !slices.Contains(limitNames, name):
			return BadThrottle("unset names " + quote(name) + ": allowed are rate, burst, concurrency, limit, window_ms")
		case slices.Contains(set, name):
			return BadThrottle(name + " is given and in unset, too: only one is allowed")
		case slices.Contains(r.Unset[:i], name):
			return BadThrottle("unset names " + name + " twice")
		}
	}
	if len(set)+len(r.Unset) == 0 {
		return BadThrottle("nothing to set: give at least one of rate, burst, concurrency, limit, window_ms and unset")
	}
	if r.If != nil {
		if err := r.If.check(true); err != nil {
			return err
		}
	}
	return inRange("for_ms", r.ForMs, 0, MaxSettingMs)
}

// Names returns the names of the limits that are not nil, in the order of the
// fields.
func (l ThrottleLimits) Names() []string {
	var names []string
	for i, given := range []bool{l.Rate != nil, l.Burst != nil, l.Concurrency != nil, l.Limit != nil, l.WindowMs != nil} {
		if given {
			names = append(names, limitNames[i])
		}
	}
	return names
}

// Validate returns nil or the refusal of the first limit that is out of its
// range. Limits that miss their other half pass: fila knows whether the key has it.
func (l ThrottleLimits) Validate() *Error { return l.check(false) }

// check allows an empty rate and zeros only if none is: as an expectation they
// say that the limit is not set.
func (l ThrottleLimits) check(none bool) *Error {
	if l.Rate != nil && !(none && *l.Rate == "") {
		if err := l.Rate.Check(); err != nil {
			return BadThrottle("rate is " + quote(string(*l.Rate)) + ": " + err.Error())
		}
	}
	if b := l.Burst; b != nil && !(none && *b == 0) && !(*b >= 1 && *b <= MaxGateValue) {
		return BadThrottle("burst is " + strconv.FormatFloat(*b, 'g', -1, 64) + ": allowed are 1 to " + strconv.Itoa(MaxGateValue))
	}
	for _, f := range []struct {
		name  string
		value *int64
		hi    int64
	}{
		{"concurrency", l.Concurrency, MaxGateValue},
		{"limit", l.Limit, MaxGateValue},
		{"window_ms", l.WindowMs, MaxSettingMs},
	} {
		if v := f.value; v != nil && !(none && *v == 0) && (*v < 1 || *v > f.hi) {
			return BadThrottle(fmt.Sprintf("%s is %d: allowed are 1 to %d", f.name, *v, f.hi))
		}
	}
	return nil
}

// ParseGateKey decodes and checks a [GateKeyRequest]. Key is set in any case.
func ParseGateKey(tail string, body []byte) (GateKeyRequest, *Error) {
	return parse(body, GateKeyRequest{}, func(r *GateKeyRequest) *Error {
		return resolveKey(tail, &r.Key)
	})
}

// ParseCircuitOpen decodes and checks a [CircuitOpenRequest]. Key is set in any
// case.
func ParseCircuitOpen(tail string, body []byte) (CircuitOpenRequest, *Error) {
	return parse(body, CircuitOpenRequest{}, func(r *CircuitOpenRequest) *Error {
		return cmp.Or(resolveKey(tail, &r.Key), inRange("for_ms", r.ForMs, 0, MaxSettingMs))
	})
}

// ParsePause decodes and checks a [PauseRequest]. Whether its time is still to
// come is for [PauseRequest.End] to say.
func ParsePause(body []byte) (PauseRequest, *Error) {
	return parse(body, PauseRequest{}, func(r *PauseRequest) *Error {
		err := r.check()
		if r.Kind != PauseQueue {
			r.Name = NamedKey(r.Name)
		}
		return err
	})
}

// ParseResume decodes and checks a [PauseRequest] sent to resume, which has no
// time.
func ParseResume(body []byte) (PauseRequest, *Error) {
	r, err := ParsePause(body)
	switch {
	case err != nil:
		return PauseRequest{}, err
	case r.Until != "":
		return PauseRequest{}, BadField("until", quote(r.Until), "only a pause has a time")
	case r.ForMs != 0:
		return PauseRequest{}, BadField("for_ms", strconv.FormatInt(r.ForMs, 10), "only a pause has a time")
	}
	return r, nil
}

func (r PauseRequest) check() *Error {
	switch {
	case !slices.Contains([]string{PauseQueue, PauseKey, PauseThrottle, PauseCircuit}, r.Kind):
		return BadField("kind", quote(r.Kind), "allowed are queue, key, throttle and circuit")
	case r.Kind == PauseQueue && CheckQueueName(r.Name) != nil:
		return BadField("name", quote(r.Name), "allowed is the name of a queue")
	case r.Kind != PauseQueue && CheckNamedKey(r.Name) != nil:
		return badGateKey("name", r.Name)
	case r.Kind == PauseKey && CheckQueueName(r.Queue) != nil:
		return BadField("queue", quote(r.Queue), "a fairness key needs the name of its queue")
	case r.Kind != PauseKey && r.Queue != "":
		return BadField("queue", quote(r.Queue), "only a fairness key has one; the name of what to pause is name")
	}
	if err := inRange("for_ms", r.ForMs, 0, MaxSettingMs); err != nil || r.Until == "" {
		return err
	}
	if r.ForMs != 0 {
		return BadField("until", quote(r.Until), "not together with for_ms")
	}
	if _, ok := parseUntil(r.Until); !ok {
		return badUntil(r.Until)
	}
	return nil
}

// End returns when the pause ends, in Unix nanoseconds, or math.MaxInt64 if
// only resume ends it. A time that is over at now, or more than 365 days away,
// is refused.
func (r PauseRequest) End(now int64) (int64, *Error) {
	switch {
	case r.ForMs > 0:
		return now + r.ForMs*int64(time.Millisecond), nil
	case r.Until == "":
		return math.MaxInt64, nil
	}
	until, ok := parseUntil(r.Until)
	if !ok || until <= now || until-now > MaxSettingMs*int64(time.Millisecond) {
		return 0, badUntil(r.Until)
	}
	return until, nil
}

func badUntil(value string) *Error {
	return BadField("until", quote(value), "allowed is a future time as RFC 3339, such as 2030-01-02T15:04:05Z, within 365 days")
}

// parseUntil takes times that fit Unix nanoseconds and are not before 1970.
func parseUntil(s string) (int64, bool) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.Year() < 1970 || t.Year() > 2261 {
		return 0, false
	}
	return t.UnixNano(), true
}

// What an explanation is about.
const (
	ExplainKindMessage = "message"
	ExplainKindKey     = "key"
	ExplainKindQueue   = "queue"
)

// ParseExplain decodes and checks an [ExplainRequest].
func ParseExplain(body []byte) (ExplainRequest, *Error) {
	return parse(body, ExplainRequest{}, func(r *ExplainRequest) *Error {
		err := r.check()
		r.Key = NamedKey(r.Key)
		return err
	})
}

func (r ExplainRequest) check() *Error {
	message := r.Kind == ExplainKindMessage
	switch {
	case !slices.Contains([]string{ExplainKindMessage, ExplainKindKey, ExplainKindQueue}, r.Kind):
		return BadField("kind", quote(r.Kind), "allowed are message, key and queue")
	case message && r.ID == "":
		return BadField("id", "", "the id of the message is expected")
	case message && r.Key != "":
		return BadField("key", quote(r.Key), "a message is named by its id")
	case r.Kind == ExplainKindKey && CheckNamedKey(r.Key) != nil:
		return badGateKey("key", r.Key)
	case r.Kind == ExplainKindQueue && r.Key != "":
		return BadField("key", quote(r.Key), "ask for kind key to have a fairness key explained")
	case !message && r.ID != "":
		return BadField("id", quote(r.ID), "ask for kind message to have a message explained")
	case message && r.Queue == "":
		return nil // it is looked for everywhere
	}
	if err := CheckQueueName(r.Queue); err != nil {
		return BadQueueName(err)
	}
	return nil
}
