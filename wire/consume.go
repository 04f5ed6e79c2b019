package wire

import (
	"cmp"
	"encoding/json"
	"time"
)

// Defaults and bounds of consumers' requests.
const (
	DefaultMaxInFlight = 64
	MaxInFlightLimit   = 65_536
	MaxBatch           = 65_536
	MaxExpiresMs       = 3_600_000
	MaxRegistrationMs  = MaxSettingMs
)

// Which headers fila adds to deliveries.
const (
	HeadersAll = "all"
	HeadersMin = "min" // only [HeaderID] and [HeaderAttempt]
)

// ConsumeRequest registers a consumer, renews its registration, changes its credit, or ends
// it.
type ConsumeRequest struct {
	Consumer    string `json:"consumer,omitempty"`
	MaxInFlight int    `json:"max_in_flight,omitempty"` // 1 to 65536, default 64
	TTLMs       int64  `json:"ttl_ms,omitempty"`        // 0 (for ever) to 365 days
	Headers     string `json:"headers,omitempty"`       // of its deliveries: all (default) or min
	Batch       int    `json:"batch,omitempty"`         // most messages in a delivery, 1 to 1000; 0: deliveries are no batches
	BatchBytes  int    `json:"batch_bytes,omitempty"`   // most bytes of a batch, 4096 to 64 MiB, rounded down to a power of two; 0: as many as NATS allows
	BatchWaitMs int    `json:"batch_wait_ms,omitempty"` // how long a batch that is not full waits for more, 0 to 1000
	Leave       bool   `json:"leave,omitempty"`         // ends the registrations of the name
}

// ParseConsume decodes and checks a [ConsumeRequest].
func ParseConsume(body []byte) (ConsumeRequest, *Error) {
	return Decode(body, ConsumeRequest{MaxInFlight: DefaultMaxInFlight}, (*ConsumeRequest).check)
}

func (r *ConsumeRequest) check() *Error {
	if err := CheckConsumerName(r.Consumer); err != nil {
		return BadConsumerName(err)
	}
	return cmp.Or(
		CheckBounds(r),
		r.checkBatch(),
	)
}

// Bounds implements [Bounded].
func (r *ConsumeRequest) Bounds() []Bound {
	return []Bound{
		{Field: "max_in_flight", Value: int64(r.MaxInFlight), Min: 1, Max: MaxInFlightLimit},
		{Field: "ttl_ms", Value: r.TTLMs, Max: MaxRegistrationMs},
		boundOfHeaders(r.Headers),
		{Field: "batch", Value: int64(r.Batch), Max: MaxBatchMessages},
		{Field: "batch_bytes", Value: int64(r.BatchBytes), Min: MinBatchBytes, Max: MaxBatchBytes, Zero: "as many as NATS allows"},
		{Field: "batch_wait_ms", Value: int64(r.BatchWaitMs), Max: MaxBatchWaitMs},
	}
}

// Bounds of batched deliveries.
const (
	MinBatchBytes  = 4 << 10
	MaxBatchBytes  = 64 << 20
	MaxBatchWaitMs = 1000
)

func (r *ConsumeRequest) checkBatch() *Error {
	if r.Batch == 0 && (r.BatchBytes != 0 || r.BatchWaitMs != 0) {
		return BadField("batch", "", "batch_bytes and batch_wait_ms go with it")
	}
	return nil
}

func boundOfHeaders(which string) Bound {
	return Bound{Field: "headers", Text: which, OneOf: []string{HeadersAll, HeadersMin}, Zero: HeadersAll}
}

// ConsumerRequest is a request on fila.consumer.<consumer>.<queue>: a [ConsumeRequest] or one fetch.
type ConsumerRequest struct {
	ConsumeRequest
	Fetch json.RawMessage `json:"fetch,omitempty"` // a [FetchRequest]; nil: none
}

// ParseConsumer decodes and checks a [ConsumerRequest] of the consumer that the
// subject names. The body may name the same consumer or none.
func ParseConsumer(name string, body []byte) (ConsumerRequest, *Error) {
	if err := CheckConsumerName(name); err != nil {
		return ConsumerRequest{}, BadConsumerName(err)
	}
	r := ConsumerRequest{ConsumeRequest: ConsumeRequest{Consumer: name, MaxInFlight: DefaultMaxInFlight}}
	plain := r.ConsumeRequest
	return Decode(body, r, func(r *ConsumerRequest) *Error {
		switch {
		case r.Consumer != name:
			return BadField("consumer", Quote(r.Consumer), "the subject says "+name)
		case r.Fetch != nil && r.ConsumeRequest != plain:
			return BadField("fetch", string(r.Fetch), "only consumer goes with it; headers and batched are in the fetch")
		}
		return r.check()
	})
}

// TTL is how long the registration lasts without renewal, 0 for ever.
func (r ConsumeRequest) TTL() time.Duration { return time.Duration(r.TTLMs) * time.Millisecond }

// FetchRequest asks for up to Batch messages on the reply subject.
type FetchRequest struct {
	Batch     int    `json:"batch,omitempty"`      // 1 to 65536, default 1
	ExpiresMs int64  `json:"expires_ms,omitempty"` // 0 (do not wait) to an hour
	Headers   string `json:"headers,omitempty"`    // of the messages: all (default) or min
	Batched   bool   `json:"batched,omitempty"`    // messages that are there at once come as batches
}

// ParseFetch decodes and checks a [FetchRequest].
func ParseFetch(body []byte) (FetchRequest, *Error) {
	return Decode(body, FetchRequest{Batch: 1}, func(r *FetchRequest) *Error { return CheckBounds(r) })
}

// Bounds implements [Bounded].
func (r *FetchRequest) Bounds() []Bound {
	return []Bound{
		{Field: "batch", Value: int64(r.Batch), Min: 1, Max: MaxBatch},
		{Field: "expires_ms", Value: r.ExpiresMs, Max: MaxExpiresMs},
		boundOfHeaders(r.Headers),
	}
}

// Expires is how long the fetch waits.
func (r FetchRequest) Expires() time.Duration { return time.Duration(r.ExpiresMs) * time.Millisecond }

// EnqueueReply confirms an enqueue: the message is on disk or finished.
type EnqueueReply struct {
	ID        string `json:"id"` // a UUID; of the first message if Duplicate
	Queue     string `json:"queue"`
	Duplicate bool   `json:"duplicate,omitempty"`

	// Of an enqueue that made a schedule, which has no id.
	Schedule  string `json:"schedule,omitempty"`  // its name
	Replaced  bool   `json:"replaced,omitempty"`  // it replaced one of the same name
	Unchanged bool   `json:"unchanged,omitempty"` // it existed already
	Next      string `json:"next,omitempty"`      // its first run, RFC 3339 in its time zone
}

// ConsumeReply answers a [ConsumeRequest].
type ConsumeReply struct {
	Deliver             string `json:"deliver"` // the subject of the deliveries
	MaxInFlight         int    `json:"max_in_flight"`
	VisibilityTimeoutMs int64  `json:"visibility_timeout_ms"`
	Left                bool   `json:"left,omitempty"` // the name was registered and is no longer
}
