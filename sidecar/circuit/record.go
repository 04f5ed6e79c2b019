package circuit

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/store"
)

// recordPrefix begins the configuration keys of stored circuits; the circuit key follows. Operators
// cannot name such keys.
const recordPrefix = "\x00circuit/"

// storedCircuit is the record of an open or half-open circuit in the store; closed circuits have
// none. Times are Unix nanoseconds.
type storedCircuit struct {
	Cause     string `json:"cause"`
	Client    string `json:"client,omitempty"` // that opened it by hand
	HalfOpen  bool   `json:"half_open,omitempty"`
	Failures  int    `json:"failures"`
	OpenedAt  int64  `json:"opened_at"`
	Since     int64  `json:"since"`
	OpenUntil int64  `json:"open_until"` // math.MaxInt64: until closed by hand
	Floor     int64  `json:"floor,omitempty"`
	Cooling   bool   `json:"cooling,omitempty"`
	// ThenClosed means that the circuit is closed when its time is over, not half-open.
	ThenClosed bool `json:"then_closed,omitempty"`
	// NotClosedSince is when the circuit was last closed; 0: not known.
	NotClosedSince int64 `json:"not_closed_since,omitempty"`
}

// saveState is the state of a circuit's record. Only one write is running at a time; later changes
// are written after it, in their latest state. So an older state never follows a newer one, and a
// flapping circuit does not flood the store.
type saveState struct {
	dirty  bool // the record is out of date
	saving bool // a write is running
	stored bool // there is a record, or will be after the write
	err    error
	after  []chan error // each gets a value when the dirty state is on disk
}

// write updates the record, unless a write is running: then written does. It does not wait for the
// disk.
func (c *Circuit) write() {
	c.mu.Lock()
	s := &c.mu.save
	if !s.dirty || s.saving {
		c.mu.Unlock()
		return
	}
	s.dirty = false
	after := s.after
	s.after = nil
	closed := c.machine().State() == breaker.Closed
	if closed && !s.stored {
		err := s.err
		c.mu.Unlock()
		answer(after, err)
		return
	}
	b := &store.Batch{Done: func(err error) { c.written(err, after) }}
	if closed {
		b.DeleteConfig = []string{recordPrefix + c.key}
	} else {
		b.PutConfig = []store.Entry{{Key: recordPrefix + c.key, Value: c.encode()}}
	}
	s.saving, s.stored = true, !closed
	c.mu.Unlock()
	c.r.opt.Submit(b)
}

// written handles the end of a write. The notifier of the store calls it.
func (c *Circuit) written(err error, after []chan error) {
	c.mu.Lock()
	s := &c.mu.save
	s.saving = false
	if err != nil {
		s.err = err
	}
	c.mu.Unlock()
	if err != nil && !errors.Is(err, store.ErrClosed) {
		c.r.opt.Log.Error("the state of a circuit could not be written", "circuit", c.key, "error", err)
	}
	answer(after, err)
	c.write()
	c.r.revisit(c)
}

func answer(after []chan error, err error) {
	for _, done := range after {
		done <- err
	}
}

// saved returns a channel that gets one value when the present state is safe: on disk or, for a
// shared circuit, in its record.
func (c *Circuit) saved() <-chan error {
	c.mu.Lock()
	sh := c.mu.share
	if sh == nil {
		c.mu.Unlock()
		return c.stored()
	}
	defer c.mu.Unlock()
	done := make(chan error, 1)
	if sh.r.Settled() {
		done <- nil
	} else {
		sh.settled = append(sh.settled, done)
	}
	return done
}

// stored is like saved, but writes to the disk only. The disk copy of a shared circuit is for a
// start without the bucket.
func (c *Circuit) stored() <-chan error {
	done := make(chan error, 1)
	c.mu.Lock()
	s := &c.mu.save
	if !s.dirty && !s.saving {
		done <- s.err
		c.mu.Unlock()
		return done
	}
	s.dirty = true
	s.after = append(s.after, done)
	c.mu.Unlock()
	c.write()
	return done
}

// encode encodes the record. Its caller holds mu.
func (c *Circuit) encode() string {
	s, cause, client := c.mu.m.Save(), c.mu.cause, c.mu.client
	if sh := c.mu.share; sh != nil {
		s = sh.r.Machine().Save()
		cause, _, client = sh.r.Opening()
		s.OpenedAt, s.Since, s.OpenUntil, s.Floor = c.toHost(s.OpenedAt), c.toHost(s.Since), c.toHost(s.OpenUntil), c.toHost(s.Floor)
	}
	data, err := json.Marshal(storedCircuit{
		Cause: cause, Client: client, HalfOpen: s.State == breaker.HalfOpen, Failures: s.Failures,
		OpenedAt: s.OpenedAt, Since: s.Since, OpenUntil: s.OpenUntil, Floor: s.Floor,
		Cooling: s.Cooling, ThenClosed: s.After == breaker.Closed, NotClosedSince: c.mu.unwell,
	})
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(data)
}

// machine returns the machine of a record.
func (r *storedCircuit) machine() breaker.Saved {
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
	return s
}

// Restore loads the stored circuits of an earlier process, before any circuit is used. It ignores
// other entries and writes nothing, because recovery has to use the store first.
func (r *Registry) Restore(entries []store.Entry) {
	now := r.opt.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range entries {
		key, ok := strings.CutPrefix(e.Key, recordPrefix)
		if !ok {
			continue
		}
		var rec storedCircuit
		if err := json.Unmarshal([]byte(e.Value), &rec); err != nil {
			r.opt.Log.Warn("the stored state of a circuit cannot be read; the circuit is closed", "circuit", key, "error", err)
			continue
		}
		c := r.get(key, now)
		c.restore(&rec, now)
		r.updateIdle(c)
	}
}

func (c *Circuit) restore(rec *storedCircuit, now int64) {
	s := rec.machine()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.save.stored = true
	c.mu.unwell = rec.NotClosedSince
	if sh := c.mu.share; sh != nil { // the bucket has not been read yet
		sh.r.Restore(now, s, rec.Cause, rec.Client)
		sh.r.News()
		sh.byHand = sh.r.Cause() == causeByHand
		return
	}
	c.mu.m.Restore(now, s)
	c.mu.cause, c.mu.client = rec.Cause, rec.Client
	// If the clock was set back, the record is corrected with the next change or when the limits
	// are set; otherwise every restart would begin the wait again.
	c.mu.save.dirty = s.State == breaker.Open && c.mu.m.OpenUntil() != rec.OpenUntil
}
