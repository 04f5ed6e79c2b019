package wire

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Defaults and bounds of requests.
const (
	DefaultMaxInFlight  = 64
	MaxInFlightLimit    = 65_536
	MaxBatch            = 65_536
	MaxExpiresMs        = 3_600_000
	MaxRegistrationMs   = MaxSettingMs
	DefaultListLimit    = 100
	MaxListLimit        = 1000
	DefaultInspectFlows = 20
	MaxInspectFlows     = 1000
)

// ConsumeRequest registers a consumer, renews it, changes its credit, or ends
// it.
type ConsumeRequest struct {
	Consumer    string `json:"consumer,omitempty"`
	MaxInFlight int    `json:"max_in_flight,omitempty"` // 1 to 65536, default 64
	TTLMs       int64  `json:"ttl_ms,omitempty"`        // 0 (for ever) to 365 days
	Leave       bool   `json:"leave,omitempty"`         // ends the whole name
}

// ParseConsume decodes and checks a [ConsumeRequest].
func ParseConsume(body []byte) (ConsumeRequest, *Error) {
	return parse(body, ConsumeRequest{MaxInFlight: DefaultMaxInFlight}, (*ConsumeRequest).check)
}

func (r *ConsumeRequest) check() *Error {
	if err := CheckConsumerName(r.Consumer); err != nil {
		return BadConsumerName(err)
	}
	return cmp.Or(
		inRange("max_in_flight", r.MaxInFlight, 1, MaxInFlightLimit),
		inRange("ttl_ms", r.TTLMs, 0, MaxRegistrationMs),
	)
}

// ConsumerRequest is what a consumer may ask for on [Subjects.Consumer]: what
// [ConsumeRequest] says, or one fetch.
type ConsumerRequest struct {
	ConsumeRequest
	Fetch json.RawMessage `json:"fetch,omitempty"` // a [FetchRequest]; nil: none
}

// ParseConsumer decodes and checks a [ConsumerRequest] of the consumer that the
// subject names. The body need not name it, and cannot name another one.
func ParseConsumer(name string, body []byte) (ConsumerRequest, *Error) {
	if err := CheckConsumerName(name); err != nil {
		return ConsumerRequest{}, BadConsumerName(err)
	}
	r := ConsumerRequest{ConsumeRequest: ConsumeRequest{Consumer: name, MaxInFlight: DefaultMaxInFlight}}
	plain := r.ConsumeRequest
	return parse(body, r, func(r *ConsumerRequest) *Error {
		switch {
		case r.Consumer != name:
			return BadField("consumer", quote(r.Consumer), "the subject says "+name)
		case r.Fetch != nil && r.ConsumeRequest != plain:
			return BadField("fetch", string(r.Fetch), "it goes with none of max_in_flight, ttl_ms and leave")
		}
		return r.check()
	})
}

// TTL is the registration's life without renewal, 0 for ever.
func (r ConsumeRequest) TTL() time.Duration { return time.Duration(r.TTLMs) * time.Millisecond }

// FetchRequest asks for up to Batch messages on the reply subject.
type FetchRequest struct {
	Batch     int   `json:"batch,omitempty"`      // 1 to 65536, default 1
	ExpiresMs int64 `json:"expires_ms,omitempty"` // 0 (what is there now) to an hour
}

// ParseFetch decodes and checks a [FetchRequest].
func ParseFetch(body []byte) (FetchRequest, *Error) {
	return parse(body, FetchRequest{Batch: 1}, func(r *FetchRequest) *Error {
		return cmp.Or(
			inRange("batch", r.Batch, 1, MaxBatch),
			inRange("expires_ms", r.ExpiresMs, 0, MaxExpiresMs),
		)
	})
}

// Expires is how long the fetch waits, 0 not at all.
func (r FetchRequest) Expires() time.Duration { return time.Duration(r.ExpiresMs) * time.Millisecond }

// QueueDeleteRequest deletes a queue and its dead letter queue.
type QueueDeleteRequest struct {
	Force bool `json:"force,omitempty"` // messages, too
}

// ParseQueueDelete decodes a [QueueDeleteRequest].
func ParseQueueDelete(body []byte) (QueueDeleteRequest, *Error) {
	var r QueueDeleteRequest
	err := DecodeStrict(body, &r)
	return r, err
}

// QueuePurgeRequest removes what waits in a queue.
type QueuePurgeRequest struct {
	After string `json:"after,omitempty"` // next of the reply before
}

// PurgeCursor says where a purge goes on: it is next of its reply and after of the
// request that follows.
type PurgeCursor struct{ From, Last uint64 }

func (c PurgeCursor) String() string { return fmt.Sprintf("%d-%d", c.From, c.Last) }

// ParseQueuePurge decodes and checks a [QueuePurgeRequest].
func ParseQueuePurge(body []byte) (PurgeCursor, *Error) {
	var r QueuePurgeRequest
	if err := DecodeStrict(body, &r); err != nil || r.After == "" {
		return PurgeCursor{}, err
	}
	from, last, _ := strings.Cut(r.After, "-")
	first, err1 := strconv.ParseUint(from, 10, 64)
	until, err2 := strconv.ParseUint(last, 10, 64)
	if err1 != nil || err2 != nil {
		return PurgeCursor{}, BadField("after", quote(r.After), "allowed is next of the reply before")
	}
	return PurgeCursor{first, until}, nil
}

// ListRequest pages through the pauses, or, in a [QueueListRequest], through the queues
// in the order of their names.
type ListRequest struct {
	After  string `json:"after,omitempty"`  // next of the page before
	Offset int    `json:"offset,omitempty"` // from 0, of what comes after After
	Limit  int    `json:"limit,omitempty"`  // 1 to 1000, default 100
}

// ParseList decodes and checks a [ListRequest].
func ParseList(body []byte) (ListRequest, *Error) {
	return parse(body, ListRequest{Limit: DefaultListLimit}, func(r *ListRequest) *Error {
		return checkPage(r.Offset, r.Limit)
	})
}

// QueueListRequest pages through the queues.
type QueueListRequest struct {
	ListRequest
	Detail bool `json:"detail,omitempty"` // with [QueueDetail]
}

// ParseQueueList decodes and checks a [QueueListRequest].
func ParseQueueList(body []byte) (QueueListRequest, *Error) {
	return parse(body, QueueListRequest{ListRequest: ListRequest{Limit: DefaultListLimit}}, func(r *QueueListRequest) *Error {
		return checkPage(r.Offset, r.Limit)
	})
}

// KeyListRequest pages through what has a key that starts with Prefix: the
// runtime configuration, throttles and circuits by key, and the audit log, newest
// first.
type KeyListRequest struct {
	Prefix string `json:"prefix,omitempty"`
	After  string `json:"after,omitempty"`  // next of the page before
	Offset int    `json:"offset,omitempty"` // from 0, of what comes after After
	Limit  int    `json:"limit,omitempty"`  // 1 to 1000, default 100
}

// ParseKeyList decodes and checks a [KeyListRequest].
func ParseKeyList(body []byte) (KeyListRequest, *Error) {
	return parse(body, KeyListRequest{Limit: DefaultListLimit}, func(r *KeyListRequest) *Error {
		r.Prefix = NamedKey(r.Prefix)
		return checkPage(r.Offset, r.Limit)
	})
}

// CircuitListRequest pages through the circuits.
type CircuitListRequest struct {
	KeyListRequest
	NotClosed bool `json:"not_closed,omitempty"` // those alone that are open or half-open
}

// ParseCircuitList decodes and checks a [CircuitListRequest].
func ParseCircuitList(body []byte) (CircuitListRequest, *Error) {
	return parse(body, CircuitListRequest{KeyListRequest: KeyListRequest{Limit: DefaultListLimit}}, func(r *CircuitListRequest) *Error {
		r.Prefix = NamedKey(r.Prefix)
		return checkPage(r.Offset, r.Limit)
	})
}

// QueueInspectRequest asks for a [QueueInfo].
type QueueInspectRequest struct {
	Flows int `json:"flows"` // how many flows to show, 0 to 1000, default 20
}

// ParseQueueInspect decodes and checks a [QueueInspectRequest].
func ParseQueueInspect(body []byte) (QueueInspectRequest, *Error) {
	return parse(body, QueueInspectRequest{Flows: DefaultInspectFlows}, func(r *QueueInspectRequest) *Error {
		return inRange("flows", r.Flows, 0, MaxInspectFlows)
	})
}

// ConfigSetRequest sets a key of the runtime configuration.
type ConfigSetRequest struct {
	Value string `json:"value"` // at most 64 KiB
	// IfValue, unless nil, must be the present value.
	IfValue *string `json:"if_value,omitempty"`
}

// ParseConfigSet decodes and checks a [ConfigSetRequest] for key.
func ParseConfigSet(key string, body []byte) (ConfigSetRequest, *Error) {
	var r ConfigSetRequest
	seen, err := decodeStrict(body, &r)
	if err != nil {
		return ConfigSetRequest{}, err
	}
	if !slices.Contains(seen, "value") {
		return ConfigSetRequest{}, BadField("value", "", "a string is expected")
	}
	if len(r.Value) > MaxConfigValue {
		return ConfigSetRequest{}, BadConfigValue(key, r.Value, "allowed are at most "+strconv.Itoa(MaxConfigValue)+" bytes")
	}
	return r, nil
}

// RedriveRequest moves messages of a dead letter queue back, oldest first.
type RedriveRequest struct {
	Count int64 `json:"count,omitempty"` // 0: all
}

// ParseRedrive decodes and checks a [RedriveRequest].
func ParseRedrive(body []byte) (RedriveRequest, *Error) {
	return parse(body, RedriveRequest{}, func(r *RedriveRequest) *Error {
		if r.Count < 0 {
			return BadField("count", strconv.FormatInt(r.Count, 10), "allowed are 0 (all) and more")
		}
		return nil
	})
}

// Names of hooks in requests, replies and events.
const (
	HookOnEnqueue = "on_enqueue"
	HookOnFailure = "on_failure"
)

// HookResetRequest closes the circuits of a queue's hooks.
type HookResetRequest struct {
	Hook string `json:"hook,omitempty"` // on_enqueue or on_failure; empty: both
}

// ParseHookReset decodes and checks a [HookResetRequest].
func ParseHookReset(body []byte) (HookResetRequest, *Error) {
	return parse(body, HookResetRequest{}, func(r *HookResetRequest) *Error {
		if r.Hook != "" && r.Hook != HookOnEnqueue && r.Hook != HookOnFailure {
			return BadField("hook", quote(r.Hook), "allowed are on_enqueue, on_failure and nothing, which is both")
		}
		return nil
	})
}

// ParseEmpty checks the body of a request that has no fields: config-get and
// config-delete.
func ParseEmpty(body []byte) *Error {
	var r struct{}
	return DecodeStrict(body, &r)
}

func checkPage(offset, limit int) *Error {
	if offset < 0 {
		return BadField("offset", strconv.Itoa(offset), "allowed are 0 and more")
	}
	return inRange("limit", limit, 1, MaxListLimit)
}

func inRange[T int | int64](name string, value, lo, hi T) *Error {
	if value >= lo && value <= hi {
		return nil
	}
	return BadField(name, fmt.Sprint(value), fmt.Sprintf("allowed are %d to %d", lo, hi))
}
