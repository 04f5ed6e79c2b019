package store

import (
	"slices"

	"go.etcd.io/bbolt"
)

// Log makes batches durable elsewhere before a [Bolt] has them in its file. The Bolt calls
// it from one goroutine at a time. It must not call the Bolt.
type Log interface {
	// Append appends the batches of one commit in order. When they are durable, it
	// returns the position of the log behind them, which the commit writes to the file.
	// It must not keep the batches. An error stops the store: then it is unknown whether
	// the log has the batches, as after a failed sync.
	Append(batches []*Batch) (position []byte, err error)
}

// SetLog sets the log, or with nil removes it, between two commits. With a log, Done is
// called when the log has a batch. The file follows; messages that are not in it yet are
// read from memory. After a crash in between, the owner of the log applies the batches
// behind [Bolt.Position] again.
func (s *Bolt) SetLog(l Log) {
	s.committing.Lock()
	defer s.committing.Unlock()
	s.log = l
}

// Apply commits batches from a log in one transaction with the position behind them, which
// must not be empty. Without batches it writes the position. It waits for the disk and does
// not call Done. A refused batch means that the store does not match its log, and stops
// the store like a failed commit. Do not submit batches before Apply returns.
func (s *Bolt) Apply(batches []*Batch, position []byte) error {
	s.committing.Lock()
	defer s.committing.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	o := outcome{batches: batches, errs: make([]error, len(batches))}
	err := s.path.Guard("apply", func() error { return s.transact(&o, position) })
	if err != nil {
		err = s.fail(err)
	}
	s.endPlan()
	return err
}

// Position returns how far the file applied its log, nil if it has none.
func (s *Bolt) Position() (position []byte, err error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	err = s.path.Guard("position", func() error {
		return s.db.View(func(tx *bbolt.Tx) error { position, err = s.path.ReadPosition(tx); return err })
	})
	return position, err
}

// Fail stops the store like a failed commit.
func (s *Bolt) Fail(cause error) { _ = s.fail(cause) }

// accepted returns the batches that were not refused.
func (o *outcome) accepted() []*Batch {
	if !slices.ContainsFunc(o.errs, func(err error) bool { return err != nil }) {
		return o.batches
	}
	var out []*Batch
	for i, b := range o.batches {
		if o.errs[i] == nil {
			out = append(out, b)
		}
	}
	return out
}

// planned returns the place of a message that is in the log and not yet in the file. The
// caller holds mu. The data of the place remains valid after the plan is reset.
func (s *Bolt) planned(l loc, index bool) place {
	a := &s.plan.adds[l.slotNo()]
	n := &s.plan.segments[a.segment]
	p := place{l: loc{slot: uint32(a.slot)}, id: n.id, data: n.data, ok: true}
	if index {
		p.data = n.index
	}
	return p
}

// endPlan empties the plan. Readers do not use it any more.
func (s *Bolt) endPlan() {
	if s.log != nil {
		s.mu.Lock()
		s.ahead = false // still set after a failed commit
		s.mu.Unlock()
	}
	s.plan.reset()
}
