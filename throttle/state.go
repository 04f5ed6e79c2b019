package throttle

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// State is the state of a gate that a clean stop stores. It does not include
// messages in flight: they have leases, and Set.Adopt counts them again. Older
// versions stored it as JSON.
type State struct {
	Key string `json:"key"`
	// At is the time of the snapshot in Unix nanoseconds.
	At int64 `json:"at"`
	// Tokens in the bucket at that time, in thousandths, rounded down; negative:
	// debt. Nil if it was full or there was none.
	Tokens *int64 `json:"tokens,omitempty"`
	// Entries of the window, oldest first.
	Entries []Entry `json:"entries,omitempty"`
}

// Entry is a number of messages that a window treats as one moment.
type Entry struct {
	Age   int64 `json:"age"` // ns before the time of the snapshot
	Count int64 `json:"count"`
}

// ErrState is returned for a text that AppendState does not write.
var ErrState = errors.New("not the state of a gate")

// AppendState appends a state to buf. base is a time near the times of all states
// that are stored together:
//
//	key      uvarint of its length, and the bytes
//	at       varint: At - base
//	tokens   byte: 0, or 1 and a varint
//	entries  uvarint: how many; for each
//	         varint: Age, minus the Age of the entry before
//	         uvarint: Count
func AppendState(buf []byte, s *State, base int64) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(s.Key)))
	buf = append(buf, s.Key...)
	buf = binary.AppendVarint(buf, s.At-base)
	if s.Tokens == nil {
		buf = append(buf, 0)
	} else {
		buf = binary.AppendVarint(append(buf, 1), *s.Tokens)
	}
	buf = binary.AppendUvarint(buf, uint64(len(s.Entries)))
	age := int64(0)
	for _, e := range s.Entries {
		buf = binary.AppendVarint(buf, e.Age-age)
		buf = binary.AppendUvarint(buf, uint64(e.Count))
		age = e.Age
	}
	return buf
}

// ReadStates appends the states in text to states. An error wraps ErrState.
func ReadStates(states []State, text string, base int64) ([]State, error) {
	r := reader{text: text}
	for r.text != "" {
		s := State{Key: r.bytes(r.uvarint()), At: base + r.varint()}
		if r.byte() != 0 {
			tokens := r.varint()
			s.Tokens = &tokens
		}
		age := int64(0)
		for n := r.uvarint(); n > 0 && !r.bad; n-- {
			age += r.varint()
			s.Entries = append(s.Entries, Entry{Age: age, Count: int64(r.uvarint())})
		}
		if r.bad {
			return nil, fmt.Errorf("%w: byte %d", ErrState, len(text)-len(r.text))
		}
		states = append(states, s)
	}
	return states, nil
}

// reader reads the texts of AppendState and asDormant. Past the end it reads zeros
// and sets bad.
type reader struct {
	text string
	bad  bool
}

func (r *reader) bytes(n uint64) string {
	if n > uint64(len(r.text)) {
		r.bad, n = true, 0
	}
	b := r.text[:n]
	r.text = r.text[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.bytes(1); b != "" {
		return b[0]
	}
	return 0
}

func (r *reader) uvarint() (u uint64) {
	for shift := 0; shift < 64; shift += 7 {
		b := r.byte()
		u |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return u
		}
	}
	r.bad = true
	return 0
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}
