package api

import (
	"cmp"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/filaq/fila/wire"
)

// Defaults and bounds of a [PeekRequest].
const (
	DefaultPeekLimit   = 10
	MaxPeekLimit       = 1000
	DefaultPeekPayload = 1 << 10
	MaxPeekPayload     = 64 << 10
)

// PeekRequest asks for messages of a queue, oldest first. It changes nothing.
type PeekRequest struct {
	Filter       *Filter `json:"filter,omitempty"` // nil: all messages
	Key          string  `json:"key,omitempty"`    // only messages of this fairness key; not with a filter
	Limit        int     `json:"limit"`            // 1 to 1000, default 10
	After        uint64  `json:"after,omitempty"`  // Next of the previous reply; 0 is the beginning
	PayloadBytes int     `json:"payload_bytes"`    // where to cut payloads, and headers: 0 to 65536, default 1024
}

func (r *PeekRequest) check() *wire.Error {
	if r.Key != "" {
		if r.Filter != nil {
			return wire.BadField("key", wire.Quote(r.Key), "it is not allowed with a filter; use keys of the filter")
		}
		if err := wire.NameKey("key", &r.Key); err != nil {
			return err
		}
	}
	return wire.CheckBounds(r)
}

// Bounds implements [wire.Bounded].
func (r *PeekRequest) Bounds() []wire.Bound {
	return []wire.Bound{{Field: "limit", Value: int64(r.Limit), Min: 1, Max: MaxPeekLimit}, boundOfPayload(r.PayloadBytes)}
}

func boundOfPayload(bytes int) wire.Bound {
	return wire.Bound{Field: "payload_bytes", Value: int64(bytes), Max: MaxPeekPayload}
}

// PeekReply answers a [PeekRequest]. A page may have fewer messages than requested although
// there are more: continue as long as Next is not 0.
type PeekReply struct {
	Queue    string          `json:"queue"`
	Messages []PeekedMessage `json:"messages"`
	Next     uint64          `json:"next,omitempty"` // After of the next request; absent at the end
}

// PeekedMessage is a message as it is in its queue. Times are RFC 3339.
type PeekedMessage struct {
	ID         string `json:"id"`
	Key        string `json:"key"`
	Priority   uint8  `json:"priority,omitempty"`
	State      string `json:"state"`   // ready, blocked, delayed, leased or dead
	Attempt    uint32 `json:"attempt"` // the next one, or the present one while it is leased
	EnqueuedAt string `json:"enqueued_at"`
	ReadyAt    string `json:"ready_at,omitempty"`   // when a delay ends
	ExpiresAt  string `json:"expires_at,omitempty"` // end of its TTL
	Consumer   string `json:"consumer,omitempty"`   // that has it
	LeaseUntil string `json:"lease_until,omitempty"`
	// BlockedBy is the pause, the gate or the order that blocks a blocked message.
	BlockedBy *GateState    `json:"blocked_by,omitempty"`
	WaitsFor  string        `json:"waits_for,omitempty"` // of a ready message: consumer, credit, turn or verdict
	Dead      *DeadInfo     `json:"dead,omitempty"`      // of a dead letter
	History   []AttemptInfo `json:"history,omitempty"`   // in message-show, and of dead letters

	// Headers have \xNN for bytes of their values that JSON cannot have.
	Headers      map[string][]string `json:"headers"`
	HeadersCut   bool                `json:"headers_cut,omitempty"` // there are more
	PayloadBytes int                 `json:"payload_bytes"`         // of the whole payload
	PayloadCut   bool                `json:"payload_cut,omitempty"` // what follows is only its beginning
	// Payload is set if the payload is UTF-8, PayloadBase64 otherwise.
	Payload       *string `json:"payload,omitempty"`
	PayloadBase64 []byte  `json:"payload_base64,omitempty"`
	Unreadable    string  `json:"unreadable,omitempty"` // why there are neither headers nor payload
}

// Reasons why a ready message waits.
const (
	WaitsForConsumer = "consumer" // none is registered
	WaitsForCredit   = "credit"   // no consumer takes more messages
	WaitsForTurn     = "turn"     // other messages go first
	WaitsForVerdict  = "verdict"  // its last attempt failed and is being judged
)

// MessageRequest names a message: message-delete and message-run-now.
type MessageRequest struct {
	ID    string `json:"id"`              // a UUID, as in the reply to the enqueue
	Queue string `json:"queue,omitempty"` // its queue, also if it is dead; empty: any
}

func (r *MessageRequest) check() *wire.Error {
	if r.ID == "" {
		return wire.BadField("id", "", "the id of the message is required")
	}
	return checkOptionalQueue(r.Queue)
}

// MessageReply answers message-delete and message-run-now.
type MessageReply struct {
	ID    string `json:"id"`
	Queue string `json:"queue"` // that has, or had, the message
	State string `json:"state"` // before the request: ready, blocked, delayed or dead
	Done  bool   `json:"done"`  // false: the message was ready already, so message-run-now did nothing
}

// MessageShowRequest asks for everything about a message.
type MessageShowRequest struct {
	MessageRequest
	PayloadBytes int `json:"payload_bytes"` // as in [PeekRequest]
}

func (r *MessageShowRequest) check() *wire.Error {
	return cmp.Or(r.MessageRequest.check(), wire.CheckBounds(r))
}

// Bounds implements [wire.Bounded].
func (r *MessageShowRequest) Bounds() []wire.Bound {
	return []wire.Bound{boundOfPayload(r.PayloadBytes)}
}

// MessageInfo answers a [MessageShowRequest] with what [PeekReply] and [ExplainMessage] say.
type MessageInfo struct {
	PeekedMessage
	Queue        string       `json:"queue"`
	Cost         float64      `json:"cost"`
	Reason       string       `json:"reason"`                  // one sentence
	Gates        []GateState  `json:"gates"`                   // all of its gates
	Routes       []RouteState `json:"routes,omitempty"`        // as in ExplainMessage
	Route        string       `json:"route,omitempty"`         // as in ExplainMessage
	BlockedSince string       `json:"blocked_since,omitempty"` // RFC 3339
	Ahead        int64        `json:"ahead"`                   // messages that go before it at the same gate or in the same flow
	Estimate     string       `json:"estimate,omitempty"`      // when it may go, if a time is known
}

// DeadInfo says how a message became a dead letter.
type DeadInfo struct {
	Reason      string `json:"reason"` // why it died, such as max_deliveries; "unknown" if it cannot be read
	Error       string `json:"error,omitempty"`
	ErrorCode   string `json:"error_code,omitempty"`
	SourceQueue string `json:"source_queue"`
	At          string `json:"at"`
	Attempts    uint32 `json:"attempts"`
}

// AttemptInfo is one record of a message's history, which is ordered oldest first. A history
// keeps the first record and the newest ones, so attempt numbers may be missing. Times are
// RFC 3339.
type AttemptInfo struct {
	Outcome   string     `json:"outcome"`               // such as nack, term or expired; "unreadable" if it cannot be read
	Attempt   uint32     `json:"attempt,omitempty"`     // its number, from 1 again after a redrive
	Dead      bool       `json:"dead,omitempty"`        // it was delivered from the dead letter queue
	At        string     `json:"at,omitempty"`          // when it was delivered, redriven or moved
	Consumer  string     `json:"consumer,omitempty"`    // that had it
	Route     string     `json:"route,omitempty"`       // by which it went, if it had a choice
	TookMs    int64      `json:"took_ms,omitempty"`     // from the delivery to the end
	Error     string     `json:"error,omitempty"`       // from the consumer
	ErrorCode string     `json:"error_code,omitempty"`  // from the consumer
	DecidedBy string     `json:"decided_by,omitempty"`  // such as hook, consumer or rule
	Rule      string     `json:"rule,omitempty"`        // the error rule that matches the failure, whatever decided
	Reason    string     `json:"dead_reason,omitempty"` // why it became a dead letter then
	DelayMs   int64      `json:"delay_ms,omitempty"`    // until the retry
	WaitedMs  int64      `json:"waited_ms,omitempty"`   // from when it was ready to the delivery
	Held      []HeldInfo `json:"held,omitempty"`        // gates that blocked it meanwhile, at most four, or three with a route, longest first
	Times     uint32     `json:"times,omitempty"`       // if more than one: how many deliveries in a row this record stands for; it describes the first, except that LastAt and Consumer are of the last
	LastAt    string     `json:"last_at,omitempty"`
	From      string     `json:"from,omitempty"` // of a moved message: the queue it left
	To        string     `json:"to,omitempty"`   // of a moved message: the queue it came to
}

// HeldInfo is how long a gate blocked a message.
type HeldInfo struct {
	Kind string `json:"kind"` // as in [GateState]
	Gate string `json:"gate"` // as in [GateState]
	Ms   int64  `json:"ms"`
}

// SetContent fills in headers and payload, each cut to limit bytes. It keeps
// neither h nor payload.
func (m *PeekedMessage) SetContent(h map[string][]string, payload []byte, limit int) {
	m.setHeaders(h, limit)
	m.PayloadBytes = len(payload)
	whole := payload
	if m.PayloadCut = len(payload) > limit; m.PayloadCut {
		payload = payload[:limit]
		whole = payload[:wholeRunes(payload)]
	}
	if utf8.Valid(whole) {
		text := string(whole)
		m.Payload = &text
		return
	}
	m.PayloadBase64 = slices.Clone(payload)
}

// wholeRunes returns the length of b without an incomplete rune at its end.
func wholeRunes(b []byte) int {
	for n := len(b); n > 0 && n > len(b)-utf8.UTFMax; n-- {
		if !utf8.RuneStart(b[n-1]) {
			continue
		}
		if !utf8.FullRune(b[n-1:]) {
			return n - 1
		}
		break
	}
	return len(b)
}

// setHeaders takes headers in the order of their names as long as they fit into
// limit bytes.
func (m *PeekedMessage) setHeaders(h map[string][]string, limit int) {
	m.Headers = make(map[string][]string, len(h))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			if limit -= len(name) + len(value); limit < 0 {
				m.HeadersCut = true
				return
			}
			m.Headers[name] = append(m.Headers[name], wire.ShowText(value))
		}
	}
}
