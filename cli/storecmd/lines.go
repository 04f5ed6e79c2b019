package storecmd

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// exportVersion is the version of the lines below.
const exportVersion = 1

// An export has one JSON object per line, each with its type. The header is first and the
// end last; a queue is before the lines that name it. Times are RFC 3339 in UTC with
// nanoseconds; an absent time means none. Values are as stored, so that an export of an
// import has the same lines.
type (
	headerLine struct {
		Type    string `json:"type"`
		Format  string `json:"format"`
		Version int    `json:"version"`
		Secret  []byte `json:"secret,omitempty"` // of the ack tokens
	}
	queueLine struct {
		Type     string          `json:"type"`
		Name     string          `json:"name"`
		Settings json.RawMessage `json:"settings"`
	}
	configLine struct {
		Type  string  `json:"type"`
		Key   rawText `json:"key"`
		Value rawText `json:"value"`
	}
	consumerLine struct {
		Type        string `json:"type"`
		Queue       string `json:"queue"`
		Name        string `json:"name"`
		MaxInFlight uint32 `json:"max_in_flight"`
		ExpiresAt   stamp  `json:"expires_at,omitempty"`
		Reg         uint64 `json:"reg,omitempty"`
		MinHeaders  bool   `json:"min_headers,omitempty"`
		Batch       uint16 `json:"batch,omitempty"`
		BatchBytes  uint32 `json:"batch_bytes,omitempty"`
	}
	messageLine struct {
		Type          string              `json:"type"`
		Queue         string              `json:"queue"`
		Seq           uint64              `json:"seq"`
		ID            id                  `json:"id"`
		EnqueuedAt    stamp               `json:"enqueued_at,omitempty"`
		NotBefore     stamp               `json:"not_before,omitempty"`
		Delayed       bool                `json:"delayed,omitempty"` // not_before is the end of a delay
		ExpiresAt     stamp               `json:"expires_at,omitempty"`
		Key           rawText             `json:"key,omitempty"`
		Weight        milli               `json:"weight"`
		Cost          milli               `json:"cost"`
		ThrottleKeys  []rawText           `json:"throttle_keys,omitempty"`
		CircuitKey    rawText             `json:"circuit_key,omitempty"`
		Priority      uint8               `json:"priority,omitempty"`
		Routes        []routeLine         `json:"routes,omitempty"`
		Attempts      uint32              `json:"attempts,omitempty"`
		Dead          *deadLine           `json:"dead,omitempty"`
		State         *stateLine          `json:"state,omitempty"`
		History       [][]byte            `json:"history,omitempty"` // as stored, the oldest record first
		Headers       map[string][]string `json:"headers,omitempty"`
		HeadersBase64 []byte              `json:"headers_base64,omitempty"` // as stored, if JSON cannot represent them
		Payload       rawText             `json:"payload"`
	}
	routeLine struct {
		Name         rawText   `json:"name"`
		Weight       milli     `json:"weight,omitempty"`
		ThrottleKeys []rawText `json:"throttle_keys,omitempty"`
		CircuitKey   rawText   `json:"circuit_key,omitempty"`
	}
	deadLine struct {
		Reason      rawText `json:"reason,omitempty"`
		Error       rawText `json:"error,omitempty"`
		ErrorCode   rawText `json:"error_code,omitempty"`
		SourceQueue rawText `json:"source_queue,omitempty"`
		At          stamp   `json:"at,omitempty"`
		Attempts    uint32  `json:"attempts,omitempty"`
	}
	stateLine struct {
		Attempts  uint32     `json:"attempts"`
		ReadyAt   stamp      `json:"ready_at,omitempty"`
		LastError rawText    `json:"last_error,omitempty"`
		Lease     *leaseLine `json:"lease,omitempty"`
	}
	leaseLine struct {
		ID       uint64  `json:"id,string"` // too large for the numbers of many programs
		Consumer rawText `json:"consumer,omitempty"`
		Deadline stamp   `json:"deadline,omitempty"`
		Began    stamp   `json:"delivered_at,omitempty"`
		Held     []byte  `json:"held,omitempty"` // as stored: what blocked the message before
	}
	dedupeLine struct {
		Type     string  `json:"type"`
		Queue    string  `json:"queue"`
		DedupeID rawText `json:"dedupe_id"`
		ID       id      `json:"id"`
		Until    stamp   `json:"until"`
	}
	endLine struct {
		Type  string `json:"type"`
		Lines int64  `json:"lines"` // before this one
	}
)

// The types of lines.
const (
	lineHeader   = "header"
	lineQueue    = "queue"
	lineConfig   = "config"
	lineConsumer = "consumer"
	lineMessage  = "message"
	lineDedupe   = "dedupe"
	lineEnd      = "end"

	exportFormat = "fila-export"
)

// rawText is a string of any bytes: JSON text if it is UTF-8, and {"base64":"..."}
// otherwise.
type rawText string

type base64Text struct {
	Base64 *[]byte `json:"base64"`
}

func (t rawText) MarshalJSON() ([]byte, error) {
	if !utf8.ValidString(string(t)) {
		b := []byte(t)
		return json.Marshal(base64Text{&b})
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(string(t))
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), err
}

func (t *rawText) UnmarshalJSON(b []byte) error {
	if len(b) == 0 || b[0] != '{' {
		var s string
		err := json.Unmarshal(b, &s)
		*t = rawText(s)
		return err
	}
	var v base64Text
	if err := wire.DecodeStrict(b, &v); err != nil {
		return err
	}
	if v.Base64 == nil {
		return fmt.Errorf("an object here has one field, base64")
	}
	*t = rawText(*v.Base64)
	return nil
}

// stamp is a time in Unix nanoseconds; 0 is none.
type stamp int64

func (s stamp) MarshalJSON() ([]byte, error) {
	return []byte(`"` + time.Unix(0, int64(s)).UTC().Format(time.RFC3339Nano) + `"`), nil
}

func (s *stamp) UnmarshalJSON(b []byte) error {
	var v string
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	t, err := time.Parse(time.RFC3339Nano, v)
	if err != nil || !time.Unix(0, t.UnixNano()).Equal(t) {
		return fmt.Errorf("%q: allowed is a time such as 2026-01-02T15:04:05.123456789Z, from 1678 to 2262", v)
	}
	*s = stamp(t.UnixNano())
	return nil
}

// milli is a number in thousandths.
type milli uint32

func (m milli) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(m)/1000, 'f', -1, 64), nil
}

func (m *milli) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseFloat(string(b), 64)
	n := math.Round(v * 1000)
	if err != nil || n < 0 || n > math.MaxUint32 || math.Abs(v*1000-n) > 1e-6 {
		return fmt.Errorf("%s: allowed is a number from 0 to 4294967.295 in thousandths", b)
	}
	*m = milli(n)
	return nil
}

// id is a message id, a UUID in its usual form.
type id store.ID

func (i id) MarshalText() ([]byte, error) {
	return []byte(fmt.Sprintf("%x-%x-%x-%x-%x", i[0:4], i[4:6], i[6:8], i[8:10], i[10:16])), nil
}

func (i *id) UnmarshalText(b []byte) error {
	raw, err := hex.DecodeString(strings.ReplaceAll(string(b), "-", ""))
	if err == nil && len(raw) == len(i) {
		copy(i[:], raw)
		if again, _ := i.MarshalText(); string(again) == string(b) {
			return nil
		}
	}
	return fmt.Errorf("%q: allowed is an id such as 01981c2e-7b2a-7def-8abc-0123456789ab", b)
}

func newMessageLine(queue string, m *store.Message, st *store.State, history [][]byte) messageLine {
	l := messageLine{
		Type: lineMessage, Queue: queue, Seq: m.Seq, ID: id(m.ID), EnqueuedAt: stamp(m.EnqueuedAt), NotBefore: stamp(m.NotBefore), Delayed: m.Delayed,
		ExpiresAt: stamp(m.ExpiresAt), Key: rawText(m.Key), Weight: milli(m.Weight), Cost: milli(m.Cost),
		CircuitKey: rawText(m.CircuitKey), Priority: m.Priority, Attempts: m.Attempts, Payload: rawText(m.Payload), History: history,
	}
	l.ThrottleKeys = texts[rawText](m.ThrottleKeys)
	for i := range m.Routes {
		r := &m.Routes[i]
		l.Routes = append(l.Routes, routeLine{rawText(r.Name), milli(r.Weight), texts[rawText](r.ThrottleKeys), rawText(r.CircuitKey)})
	}
	if d := m.Dead; d != nil {
		l.Dead = &deadLine{rawText(d.Reason), rawText(d.Error), rawText(d.ErrorCode), rawText(d.SourceQueue), stamp(d.At), d.Attempts}
	}
	if st != nil {
		l.State = &stateLine{Attempts: st.Attempts, ReadyAt: stamp(st.ReadyAt), LastError: rawText(st.LastError)}
		if le := st.Lease; le != (store.Lease{}) {
			l.State.Lease = &leaseLine{le.ID, rawText(le.Consumer), stamp(le.Deadline), stamp(le.DeliveredAt), []byte(le.Held)}
		}
	}
	if l.Headers = plainHeaders(m.Headers); l.Headers == nil {
		l.HeadersBase64 = m.Headers
	}
	return l
}

// texts converts a list of strings; an empty one is nil.
func texts[To, From ~string](list []From) []To {
	var out []To
	for _, s := range list {
		out = append(out, To(s))
	}
	return out
}

// plainHeaders returns stored headers if JSON can represent them, or nil.
func plainHeaders(stored []byte) map[string][]string {
	h, err := wire.DecodeHeaders(stored)
	if err != nil || !bytes.Equal(wire.EncodeHeaders(nil, h), stored) {
		return nil
	}
	for k, values := range h {
		if !utf8.ValidString(k) || slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }) {
			return nil
		}
	}
	return h
}

// message is the inverse of newMessageLine.
func (l *messageLine) message(queue store.QueueID) (store.Message, *store.State, error) {
	ref := store.Ref{Queue: queue, Seq: l.Seq}
	m := store.Message{
		Ref: ref, ID: store.ID(l.ID), EnqueuedAt: int64(l.EnqueuedAt), NotBefore: int64(l.NotBefore), Delayed: l.Delayed, ExpiresAt: int64(l.ExpiresAt),
		Class:    store.Class{Key: string(l.Key), Weight: uint32(l.Weight), Cost: uint32(l.Cost), CircuitKey: string(l.CircuitKey), Priority: l.Priority},
		Attempts: l.Attempts, Headers: l.HeadersBase64, Payload: []byte(l.Payload),
	}
	if len(l.Headers) > 0 {
		if len(l.HeadersBase64) > 0 {
			return m, nil, fmt.Errorf("headers and headers_base64 are both given: only one is allowed")
		}
		m.Headers = wire.EncodeHeaders(nil, l.Headers)
		if back, err := wire.DecodeHeaders(m.Headers); err != nil || len(back) != len(l.Headers) {
			return m, nil, fmt.Errorf("headers: a name is empty, has no value, or begins with Fila- or Nats-")
		}
	}
	m.ThrottleKeys = texts[string](l.ThrottleKeys)
	for i := range l.Routes {
		r := &l.Routes[i]
		m.Routes = append(m.Routes, store.Route{
			Name: string(r.Name), Weight: uint32(r.Weight), ThrottleKeys: texts[string](r.ThrottleKeys), CircuitKey: string(r.CircuitKey),
		})
	}
	if d := l.Dead; d != nil {
		m.Dead = &store.Dead{
			Reason: string(d.Reason), Error: string(d.Error), ErrorCode: string(d.ErrorCode),
			SourceQueue: string(d.SourceQueue), At: int64(d.At), Attempts: d.Attempts,
		}
	}
	if l.State == nil {
		return m, nil, nil
	}
	st := &store.State{Ref: ref, Attempts: l.State.Attempts, ReadyAt: int64(l.State.ReadyAt), LastError: string(l.State.LastError)}
	if le := l.State.Lease; le != nil {
		st.Lease = store.Lease{
			ID: le.ID, Consumer: string(le.Consumer), Deadline: int64(le.Deadline), DeliveredAt: int64(le.Began), Held: string(le.Held),
		}
	}
	return m, st, nil
}
