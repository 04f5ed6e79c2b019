package sidecar

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/store"
)

// circuitState begins the configuration keys under which open circuits are
// stored; the circuit key follows.
const circuitState = statePrefix + "circuit/"

// circuitRecord is an open or half-open circuit on disk. Times are Unix
// nanoseconds. A closed one has no record.
type circuitRecord struct {
	Cause     string `json:"cause"`
	HalfOpen  bool   `json:"half_open,omitempty"`
	Failures  int    `json:"failures"`
	OpenedAt  int64  `json:"opened_at"`
	Since     int64  `json:"since"`
	OpenUntil int64  `json:"open_until"` // math.MaxInt64: until it is closed by hand
	Floor     int64  `json:"floor,omitempty"`
	Cooling   bool   `json:"cooling,omitempty"`
	// ThenClosed says that it is closed when its time is over, not half-open.
	ThenClosed bool `json:"then_closed,omitempty"`
}

// saveState is what a circuit knows of its record. At most one write is under
// way; what changes meanwhile is written after it, as it is then, so that no
// older state ever follows a newer one and a flapping circuit does not flood
// the store.
type saveState struct {
	dirty  bool // the record is not what it should be
	saving bool // a write is under way
	stored bool // there is a record, or will be when the write has ended
	err    error
	after  []func(error) // called when what is dirty is on disk
}

// write brings the record up to date, if no write is under way: its end does it
// then. It does not wait for the disk.
func (ci *circuit) write() {
	ci.mu.Lock()
	s := &ci.mu.save
	if !s.dirty || s.saving {
		ci.mu.Unlock()
		return
	}
	s.dirty = false
	after := s.after
	s.after = nil
	closed := ci.mu.m.State() == breaker.Closed
	if closed && !s.stored {
		err := s.err
		ci.mu.Unlock()
		call(after, err)
		return
	}
	b := &store.Batch{Done: func(err error) { ci.written(err, after) }}
	key := circuitState + ci.key
	if closed {
		b.DeleteConfig = []string{key}
	} else {
		b.PutConfig = []store.Entry{{Key: key, Value: ci.record()}}
	}
	s.saving, s.stored = true, !closed
	ci.mu.Unlock()
	ci.cs.submit(b)
}

// written runs on the store's notifier when a write has ended.
func (ci *circuit) written(err error, after []func(error)) {
	ci.mu.Lock()
	s := &ci.mu.save
	s.saving = false
	if err != nil {
		s.err = err
	}
	ci.mu.Unlock()
	if err != nil && !errors.Is(err, store.ErrClosed) {
		ci.cs.log.Error("the state of a circuit could not be written", "circuit", ci.key, "error", err)
	}
	call(after, err)
	ci.write()
	ci.cs.settle(ci)
}

func call(after []func(error), err error) {
	for _, f := range after {
		f(err)
	}
}

// flush calls then when the present state is on disk: at once if it is.
func (ci *circuit) flush(then func(error)) {
	ci.mu.Lock()
	s := &ci.mu.save
	if !s.dirty && !s.saving {
		err := s.err
		ci.mu.Unlock()
		then(err)
		return
	}
	s.dirty = true
	s.after = append(s.after, then)
	ci.mu.Unlock()
	ci.write()
}

// sync waits until the present state is on disk.
func (ci *circuit) sync() error {
	done := make(chan error, 1)
	ci.flush(func(err error) { done <- err })
	return <-done
}

// record encodes what is to be stored. Its caller holds mu.
func (ci *circuit) record() string {
	s := ci.mu.m.Save()
	data, err := json.Marshal(circuitRecord{
		Cause: ci.mu.cause, HalfOpen: s.State == breaker.HalfOpen, Failures: s.Failures,
		OpenedAt: s.OpenedAt, Since: s.Since, OpenUntil: s.OpenUntil, Floor: s.Floor,
		Cooling: s.Cooling, ThenClosed: s.After == breaker.Closed,
	})
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(data)
}

// restore takes over what a process before has stored, before any circuit is in
// use. It writes nothing, since a recovery wants to be the first to use the store.
func (cs *circuits) restore(entries []store.Entry, now int64) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, e := range entries {
		key, ok := strings.CutPrefix(e.Key, circuitState)
		if !ok {
			continue
		}
		var r circuitRecord
		if err := json.Unmarshal([]byte(e.Value), &r); err != nil {
			cs.log.Warn("the stored state of a circuit cannot be read; the circuit is closed", "circuit", key, "error", err)
			continue
		}
		ci := cs.get(key, now)
		s := breaker.Saved{
			State: breaker.Open, Failures: r.Failures, OpenedAt: r.OpenedAt, Since: r.Since,
			OpenUntil: r.OpenUntil, Floor: r.Floor, Cooling: r.Cooling, After: breaker.HalfOpen,
		}
		if r.HalfOpen {
			s.State = breaker.HalfOpen
		}
		if r.ThenClosed {
			s.After = breaker.Closed
		}
		ci.mu.Lock()
		ci.mu.m.Restore(now, s)
		ci.mu.cause = r.Cause
		ci.mu.save.stored = true
		// If the clock was set back, the record is put right with the next change,
		// or when the limits are set: every restart would begin the wait again.
		ci.mu.save.dirty = s.State == breaker.Open && ci.mu.m.OpenUntil() != r.OpenUntil
		ci.mu.Unlock()
		cs.place(ci)
	}
}
