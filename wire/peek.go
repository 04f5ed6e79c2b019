package wire

import (
	"cmp"
	"maps"
	"slices"
	"unicode/utf8"
)

// VerbPeek is the admin verb that reads messages of the queue at the end of its
// subject without leasing them.
const VerbPeek = "peek"

// Defaults and bounds of a [PeekRequest].
const (
	DefaultPeekLimit   = 10
	MaxPeekLimit       = 1000
	DefaultPeekPayload = 1 << 10
	MaxPeekPayload     = 64 << 10
)

// PeekRequest asks for messages of a queue as they are, oldest first. Nothing
// changes by it.
type PeekRequest struct {
	Filter       *Filter `json:"filter,omitempty"` // only those; nil: all
	Key          string  `json:"key,omitempty"`    // only those of this fairness key; goes without a filter
	Limit        int     `json:"limit"`            // 1 to 1000, default 10
	After        uint64  `json:"after,omitempty"`  // Next of the reply before; 0 is the beginning
	PayloadBytes int     `json:"payload_bytes"`    // cut payloads, and headers, to so many: 0 to 65536, default 1024
}

// ParsePeek decodes and checks a [PeekRequest].
func ParsePeek(body []byte) (PeekRequest, *Error) {
	return parse(body, PeekRequest{Limit: DefaultPeekLimit, PayloadBytes: DefaultPeekPayload}, func(r *PeekRequest) *Error {
		switch {
		case r.Key == "":
		case r.Filter != nil:
			return BadField("key", quote(r.Key), "it goes without a filter, which has keys")
		default:
			if err := nameKey("key", &r.Key); err != nil {
				return err
			}
		}
		return cmp.Or(
			inRange("limit", r.Limit, 1, MaxPeekLimit),
			inRange("payload_bytes", r.PayloadBytes, 0, MaxPeekPayload),
		)
	})
}

// PeekReply answers a [PeekRequest]. There may be fewer messages than asked for
// although there are more: go on as long as Next is not 0.
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
	State      string `json:"state"`   // pending, parked, delayed, leased or dead
	Attempt    uint32 `json:"attempt"` // the next one, or the present one while it is leased
	EnqueuedAt string `json:"enqueued_at"`
	ReadyAt    string `json:"ready_at,omitempty"`   // when a delay ends
	ExpiresAt  string `json:"expires_at,omitempty"` // end of its TTL
	Consumer   string `json:"consumer,omitempty"`   // that has it
	LeaseUntil string `json:"lease_until,omitempty"`
	// BlockedBy is the pause, the gate or the order that holds a parked message
	// back.
	BlockedBy *GateState `json:"blocked_by,omitempty"`
	WaitsFor  string     `json:"waits_for,omitempty"` // of a pending message: consumer, credit, turn or verdict
	Dead      *DeadInfo  `json:"dead,omitempty"`      // of a dead letter
	// History is what has happened to it, in message-show and of dead letters.
	History []AttemptInfo `json:"history,omitempty"`

	// Headers have their values in the form of [ShowText].
	Headers      map[string][]string `json:"headers"`
	HeadersCut   bool                `json:"headers_cut,omitempty"` // there are more
	PayloadBytes int                 `json:"payload_bytes"`         // of the whole payload
	PayloadCut   bool                `json:"payload_cut,omitempty"` // what follows is only its beginning
	// A payload is text if it is UTF-8.
	Payload       *string `json:"payload,omitempty"`
	PayloadBase64 []byte  `json:"payload_base64,omitempty"`
	Unreadable    string  `json:"unreadable,omitempty"` // why there are neither headers nor payload
}

// What a pending message waits for.
const (
	WaitsForConsumer = "consumer" // none is registered
	WaitsForCredit   = "credit"   // no consumer has room
	WaitsForTurn     = "turn"     // others are before it
	WaitsForVerdict  = "verdict"  // its last attempt failed, and what follows is being decided
)

// MessageRequest names a message: message-delete and message-run-now.
type MessageRequest struct {
	ID    string `json:"id"`              // a UUID, as in the reply to the enqueue
	Queue string `json:"queue,omitempty"` // where it is, or its queue if it is dead; empty: any
}

// ParseMessage decodes and checks a [MessageRequest].
func ParseMessage(body []byte) (MessageRequest, *Error) {
	return parse(body, MessageRequest{}, func(r *MessageRequest) *Error { return r.check() })
}

func (r *MessageRequest) check() *Error {
	if r.ID == "" {
		return BadField("id", "", "the id of the message is expected")
	}
	if r.Queue == "" {
		return nil
	}
	if err := CheckQueueName(r.Queue); err != nil {
		return BadQueueName(err)
	}
	return nil
}

// MessageReply answers message-delete and message-run-now.
type MessageReply struct {
	ID    string `json:"id"`
	Queue string `json:"queue"` // that has it, or had it
	State string `json:"state"` // in which it was: pending, parked, delayed or dead
	Done  bool   `json:"done"`  // false: it was ready, and message-run-now had nothing to do
}

// MessageShowRequest asks for everything about a message.
type MessageShowRequest struct {
	MessageRequest
	PayloadBytes int `json:"payload_bytes"` // as in [PeekRequest]
}

// ParseMessageShow decodes and checks a [MessageShowRequest].
func ParseMessageShow(body []byte) (MessageShowRequest, *Error) {
	return parse(body, MessageShowRequest{PayloadBytes: DefaultPeekPayload}, func(r *MessageShowRequest) *Error {
		return cmp.Or(r.check(), inRange("payload_bytes", r.PayloadBytes, 0, MaxPeekPayload))
	})
}

// MessageInfo answers a [MessageShowRequest]: what [PeekReply] and [ExplainMessage] say.
type MessageInfo struct {
	PeekedMessage
	Queue        string      `json:"queue"`
	Cost         float64     `json:"cost"`
	Reason       string      `json:"reason"`                  // one sentence
	Gates        []GateState `json:"gates"`                   // all of its gates
	BlockedSince string      `json:"blocked_since,omitempty"` // RFC 3339
	Ahead        int64       `json:"ahead"`                   // messages that go before it at the same place
	Estimate     string      `json:"estimate,omitempty"`      // when it may go, if a time is known
}

// DeadInfo says how a message became a dead letter.
type DeadInfo struct {
	Reason      string `json:"reason"` // one of the Reason constants, or "unknown" if it cannot be read
	Error       string `json:"error,omitempty"`
	ErrorCode   string `json:"error_code,omitempty"`
	SourceQueue string `json:"source_queue"`
	At          string `json:"at"`
	Attempts    uint32 `json:"attempts"`
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

// wholeRunes is the length of b without a rune at its end that was cut.
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
			m.Headers[name] = append(m.Headers[name], ShowText(value))
		}
	}
}
