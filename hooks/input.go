package hooks

import (
	"slices"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// input is the message table, which is used again as long as no run wrote to
// it. It remembers what it holds: only what differs is written.
//
// The tables never hold a key that a message before had and this one has not:
// a script could see it in the order of pairs. A message with other header
// names gets another header table.
type input struct {
	msg         *lua.LTable
	headers     *lua.LTable
	names       []headerValue // what headers holds, by name
	payloadSize int
	attempts    uint32
	hasDelay    bool
	delay       time.Duration
	strs        [len(stringFields)]string
}

type headerValue struct{ name, value string }

const (
	fieldQueue = iota
	fieldID
	fieldError
	fieldErrorCode
)

var stringFields = [...]string{fieldQueue: "queue", fieldID: "id", fieldError: "error", fieldErrorCode: "error_code"}

func (m *input) drop() { *m = input{names: m.names[:0]} }

func (m *input) enqueue(x *exec, in *EnqueueInput) *lua.LTable {
	if m.msg == nil {
		m.create(x)
		m.payloadSize = -1
	}
	if m.payloadSize != in.PayloadSize {
		m.payloadSize = in.PayloadSize
		m.msg.RawSetString("payload_size", lua.LNumber(in.PayloadSize))
	}
	m.str(x, fieldQueue, in.Queue)
	m.fillHeaders(x, in.Headers)
	return m.msg
}

func (m *input) failure(x *exec, in *FailureInput) *lua.LTable {
	if m.msg == nil {
		m.create(x)
		for _, f := range stringFields[fieldID:] {
			m.msg.RawSetString(f, lua.LString(""))
		}
		m.msg.RawSetString("attempts", lua.LNumber(0))
	}
	if m.attempts != in.Attempts {
		m.attempts = in.Attempts
		m.msg.RawSetString("attempts", lua.LNumber(in.Attempts))
	}
	m.str(x, fieldQueue, in.Queue)
	m.str(x, fieldID, in.ID)
	m.str(x, fieldError, in.Error)
	m.str(x, fieldErrorCode, in.ErrorCode)
	m.fillHeaders(x, in.Headers)
	// The only field that comes and goes is the last one of a new table, too.
	if m.hasDelay != in.HasDelay || m.delay != in.RequestedDelay {
		m.hasDelay, m.delay = in.HasDelay, in.RequestedDelay
		m.msg.RawSetString("requested_delay_ms", requestedDelay(in))
	}
	return m.msg
}

// requestedDelay is nil unless the nack names a delay.
func requestedDelay(in *FailureInput) lua.LValue {
	if !in.HasDelay {
		return lua.LNil
	}
	return lua.LNumber(float64(in.RequestedDelay) / float64(time.Millisecond))
}

func (m *input) create(x *exec) {
	m.msg = x.L.CreateTable(0, 8)
	x.guard[m.msg] = outlives
	m.msg.RawSetString("queue", lua.LString(""))
}

func (m *input) str(x *exec, field int, s string) {
	if m.strs[field] != s {
		m.strs[field] = s
		m.msg.RawSetString(stringFields[field], lua.LString(s))
	}
	x.saw(len(s))
}

func (m *input) fillHeaders(x *exec, h map[string][]string) {
	if m.headers != nil && len(h) == len(m.names) && m.refill(x, h) {
		return
	}
	if m.headers != nil {
		delete(x.guard, m.headers)
	}
	m.names = m.names[:0]
	for k, v := range h {
		if len(v) > 0 {
			m.names = append(m.names, headerValue{k, v[0]})
		}
	}
	// sorted, so that pairs has one order whatever map order Go chose
	slices.SortFunc(m.names, func(a, b headerValue) int { return strings.Compare(a.name, b.name) })
	m.headers = x.L.CreateTable(0, len(m.names))
	for _, e := range m.names {
		m.headers.RawSetString(e.name, lua.LString(e.value))
		x.saw(len(e.value))
	}
	x.guard[m.headers] = outlives
	m.msg.RawSetString("headers", m.headers)
}

// refill writes the values that differ. It reports false if the names differ.
func (m *input) refill(x *exec, h map[string][]string) bool {
	for i := range m.names {
		if v := h[m.names[i].name]; len(v) == 0 {
			return false
		}
	}
	for i := range m.names {
		e := &m.names[i]
		if v := h[e.name][0]; v != e.value {
			e.value = v
			m.headers.RawSetString(e.name, lua.LString(v))
		}
		x.saw(len(e.value))
	}
	return true
}
