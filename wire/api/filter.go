package api

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/filaq/fila/wire"
)

// Bounds of a [Filter].
const (
	MaxFilterKeys    = 1000
	MaxFilterIDs     = 1000
	MaxFilterHeaders = 16
)

// Filter selects messages of a queue. A message must match all fields that are set; a filter
// without fields is invalid, and All selects every message. In replies its times are
// absolute. Keys and texts have \xNN for bytes that JSON cannot have.
type Filter struct {
	All    bool              `json:"all,omitempty"`    // every message; goes with no other field
	State  string            `json:"state,omitempty"`  // ready, blocked, delayed, leased or dead
	Keys   []string          `json:"keys,omitempty"`   // any of these fairness keys
	IDs    []string          `json:"ids,omitempty"`    // any of these ids
	Header map[string]string `json:"header,omitempty"` // headers and their values; names in any case

	AttemptsMin    uint32 `json:"attempts_min,omitempty"`    // finished attempts; of a dead letter, before it died
	EnqueuedAfter  string `json:"enqueued_after,omitempty"`  // RFC 3339, or a Go duration before now; inclusive
	EnqueuedBefore string `json:"enqueued_before,omitempty"` // exclusive
	Consumer       string `json:"consumer,omitempty"`        // the consumer that has it, or the inbox of the fetch
	Gate           string `json:"gate,omitempty"`            // one of its gates: throttle:KEY or circuit:KEY

	// The last error of the message's attempts; of a dead letter, the error it died of.
	ErrorCode     string `json:"error_code,omitempty"`
	ErrorContains string `json:"error_contains,omitempty"` // a part of its text
	ErrorGroup    string `json:"error_group,omitempty"`    // as in dead-groups

	// Only of dead letters.
	Reason     string `json:"reason,omitempty"`     // why they died, such as max_deliveries
	DiedAfter  string `json:"died_after,omitempty"` // as EnqueuedAfter
	DiedBefore string `json:"died_before,omitempty"`

	named []string // the fields in the JSON, until Resolve
}

// ParseFilter decodes and resolves a filter.
func ParseFilter(body []byte, now time.Time) (Filter, *wire.Error) {
	var f Filter
	err := f.decode(body)
	if err == nil {
		err = f.Resolve(now)
	}
	if err != nil {
		return Filter{}, err
	}
	return f, nil
}

// UnmarshalJSON decodes a filter; [Filter.Resolve] checks it.
func (f *Filter) UnmarshalJSON(body []byte) error {
	if err := f.decode(body); err != nil {
		return err
	}
	return nil
}

func (f *Filter) decode(body []byte) (err *wire.Error) {
	type fields Filter // without UnmarshalJSON
	var plain fields
	if plain.named, err = wire.DecodeNamed(body, &plain); err != nil {
		return err
	}
	*f = Filter(plain)
	return headersOnce(body)
}

// Resolve checks a decoded filter, and replaces each duration by the time that long before
// now.
func (f *Filter) Resolve(now time.Time) *wire.Error {
	err := f.check(f.named, now)
	f.named = nil
	return err
}

// check checks a filter with the fields seen in its JSON, and makes its times absolute. It
// refuses a field with an empty value, for instance of an unset variable, because it would
// select more messages than intended.
func (f *Filter) check(seen []string, now time.Time) *wire.Error {
	switch {
	case len(seen) == 0 || len(seen) == 1 && seen[0] == "all" && !f.All:
		return wire.BadField("filter", "", `name the messages by its fields, or all of them by {"all":true}`)
	case f.All && len(seen) > 1:
		return wire.BadField("all", "true", "no other field of the filter is allowed with it")
	}
	f.State = CurrentState(f.State)
	for _, c := range []struct {
		name  string
		named bool
		check func(name string) *wire.Error
	}{
		{"state", f.State != "", nil},
		{"keys", len(f.Keys) > 0, f.checkKeys},
		{"ids", len(f.IDs) > 0, f.checkIDs},
		{"header", len(f.Header) > 0, f.checkHeader},
		{"attempts_min", f.AttemptsMin > 0, nil},
		{"enqueued_after", f.EnqueuedAfter != "", resolve(&f.EnqueuedAfter, now)},
		{"enqueued_before", f.EnqueuedBefore != "", resolve(&f.EnqueuedBefore, now)},
		{"consumer", f.Consumer != "", f.checkConsumer},
		{"gate", f.Gate != "", f.checkGate},
		{"reason", f.Reason != "", nil},
		{"error_code", f.ErrorCode != "", atMost(f.ErrorCode, wire.MaxErrorCode)},
		{"error_contains", f.ErrorContains != "", atMost(f.ErrorContains, wire.MaxErrorText)},
		{"error_group", f.ErrorGroup != "", f.checkGroup},
		{"died_after", f.DiedAfter != "", resolve(&f.DiedAfter, now)},
		{"died_before", f.DiedBefore != "", resolve(&f.DiedBefore, now)},
	} {
		switch {
		case !slices.Contains(seen, c.name):
		case !c.named:
			return wire.BadField(c.name, "", "a value is required")
		case c.check != nil:
			if err := c.check(c.name); err != nil {
				return err
			}
		}
	}
	if err := wire.CheckBounds(f); err != nil {
		return err
	}
	if err := inOrder("enqueued", f.EnqueuedAfter, f.EnqueuedBefore); err != nil {
		return err
	}
	return inOrder("died", f.DiedAfter, f.DiedBefore)
}

// inOrder refuses an empty range of two resolved times, each of which may be missing.
func inOrder(what, after, before string) *wire.Error {
	from, err := time.Parse(time.RFC3339, after)
	until, wrong := time.Parse(time.RFC3339, before)
	if err != nil || wrong != nil || from.Before(until) { // a missing time does not parse
		return nil
	}
	return wire.BadField(what+"_before", wire.Quote(before), "allowed are times after "+what+"_after")
}

// Bounds implements [wire.Bounded]. A field that is missing counts as one that is allowed.
func (f *Filter) Bounds() []wire.Bound {
	return []wire.Bound{
		{Field: "state", Text: cmp.Or(f.State, StateReady), OneOf: []string{StateReady, StateBlocked, StateDelayed, StateLeased, StateDead}},
		{Field: "reason", Text: cmp.Or(f.Reason, wire.ReasonExpired), OneOf: wire.Reasons()},
		{Field: "keys", Value: int64(max(len(f.Keys), 1)), Min: 1, Max: MaxFilterKeys},
		{Field: "ids", Value: int64(max(len(f.IDs), 1)), Min: 1, Max: MaxFilterIDs},
		{Field: "header", Value: int64(max(len(f.Header), 1)), Min: 1, Max: MaxFilterHeaders},
	}
}

func (f *Filter) checkKeys(name string) *wire.Error {
	for _, key := range f.Keys {
		if wire.CheckNamedKey(key) != nil {
			return wire.BadKey(name, key)
		}
	}
	return nil
}

func (f *Filter) checkIDs(name string) *wire.Error {
	for _, id := range f.IDs {
		if _, ok := wire.ParseID(id); !ok {
			return wire.BadField(name, wire.Quote(id), "allowed are ids of messages (UUIDs)")
		}
	}
	return nil
}

func (f *Filter) checkHeader(name string) *wire.Error {
	for header := range f.Header {
		if !wire.LegalHeaderName(header) || wire.Reserved(header) {
			return wire.BadField(name, wire.Quote(header), "allowed are names of headers that producers set, without Fila- and Nats-")
		}
	}
	return nil
}

// checkConsumer accepts what peek and explain show: the name of a consumer, or the inbox of a
// fetch, which may be any subject.
func (f *Filter) checkConsumer(name string) *wire.Error {
	if len(f.Consumer) > maxInbox || strings.ContainsFunc(f.Consumer, unicode.IsSpace) {
		return wire.BadField(name, wire.Quote(f.Consumer), "allowed are the name of a consumer and the inbox of a fetch")
	}
	return nil
}

// maxInbox is the maximum length of a subject, a line of the NATS protocol.
const maxInbox = 4096

func (f *Filter) checkGate(name string) *wire.Error {
	if kind, key, _ := strings.Cut(f.Gate, ":"); kind != PauseThrottle && kind != PauseCircuit || wire.CheckNamedKey(key) != nil {
		return wire.BadField(name, wire.Quote(f.Gate), "allowed are throttle:KEY and circuit:KEY")
	}
	return nil
}

func (f *Filter) checkGroup(name string) *wire.Error {
	if n, err := hex.DecodeString(f.ErrorGroup); err != nil || len(n) != 8 || f.ErrorGroup != strings.ToLower(f.ErrorGroup) {
		return wire.BadField(name, wire.Quote(f.ErrorGroup), "allowed is a group that dead-groups lists")
	}
	return nil
}

// atMost checks the length of a text.
func atMost(text string, most int) func(string) *wire.Error {
	return func(name string) *wire.Error {
		if len(text) <= most {
			return nil
		}
		return wire.BadField(name, wire.Quote(text), "allowed are at most "+strconv.Itoa(most)+" bytes")
	}
}

// resolve checks a time and makes it absolute.
func resolve(text *string, now time.Time) func(string) *wire.Error {
	return func(name string) *wire.Error {
		at, err := time.Parse(time.RFC3339, *text)
		if ago, wrong := time.ParseDuration(*text); wrong == nil && ago >= 0 {
			at, err = now.Add(-ago), nil
		}
		if err != nil || at.Year() < 1970 || at.Year() > 2261 { // what 64 bits of nanoseconds hold
			return wire.BadField(name, wire.Quote(*text), noUnit(*text)+"allowed are a time such as 2030-01-02T15:04:05Z and a Go duration such as 90m, for 90 minutes ago")
		}
		*text = wire.Timestamp(at.UnixNano())
		return nil
	}
}

// noUnit explains that a bare number lacks a unit; it returns "" for other texts.
func noUnit(text string) string {
	if text == "" || strings.Trim(text, "0123456789.") != "" {
		return ""
	}
	return "the unit is missing, as in " + text + "s or " + text + "m; "
}

// headersOnce refuses a filter that names a header twice, because a decoder takes the last.
// The body has been decoded as a filter.
func headersOnce(body []byte) *wire.Error {
	if bytes.Count(body, []byte{'{'}) < 2 {
		return nil
	}
	var raw struct {
		Header json.RawMessage `json:"header"`
	}
	if err := json.Unmarshal(body, &raw); err != nil || len(raw.Header) == 0 || raw.Header[0] != '{' {
		return nil //nolint:nilerr // the decoder has accepted it
	}
	dec := json.NewDecoder(bytes.NewReader(raw.Header))
	_, _ = dec.Token() // the brace
	seen := make(map[string]bool)
	for dec.More() {
		tok, _ := dec.Token()
		name := strings.ToLower(fmt.Sprint(tok))
		if seen[name] {
			return wire.FieldRepeated("header " + name)
		}
		seen[name] = true
		_, _ = dec.Token() // its value
	}
	return nil
}

// For refuses a filter for dead letters on an ordinary queue, and the reverse, because no
// message can match it.
func (f *Filter) For(queue string) *wire.Error {
	dead := wire.IsDLQ(queue)
	for _, field := range []struct {
		name  string
		named bool
		dead  bool
	}{
		{"state " + StateDead, f.State == StateDead, true},
		{"reason", f.Reason != "", true},
		{"died_after", f.DiedAfter != "", true},
		{"died_before", f.DiedBefore != "", true},
		{"state " + f.State, f.State != "" && f.State != StateDead && f.State != StateLeased, false},
		{"gate", f.Gate != "", false},
	} {
		switch {
		case field.named && field.dead && !dead:
			return wire.OnlyForDLQ("a filter by "+field.name, queue)
		case field.named && !field.dead && dead:
			return wire.NotForDLQ("a filter by "+field.name, queue)
		}
	}
	return nil
}

// Enqueued returns the bounds of the enqueue time in Unix nanoseconds, since inclusive and
// before exclusive; 0 is no bound. f has been resolved.
func (f *Filter) Enqueued() (since, before int64) {
	return timeOf(f.EnqueuedAfter), timeOf(f.EnqueuedBefore)
}

// Died returns the bounds of the time of death, as [Filter.Enqueued].
func (f *Filter) Died() (since, before int64) { return timeOf(f.DiedAfter), timeOf(f.DiedBefore) }

func timeOf(text string) int64 {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil { // there is none
		return 0
	}
	return at.UnixNano()
}

// Gates returns the key of the gate in f, as a throttle key or as a circuit key; the other is
// "".
func (f *Filter) Gates() (throttle, circuit string) {
	switch kind, key, _ := strings.Cut(f.Gate, ":"); kind {
	case PauseThrottle:
		return wire.NamedKey(key), ""
	case PauseCircuit:
		return "", wire.NamedKey(key)
	}
	return "", ""
}
