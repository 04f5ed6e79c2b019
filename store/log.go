package store

import (
	"slices"

	"go.etcd.io/bbolt"
)

// Log makes what a [Bolt] commits durable elsewhere, before the Bolt has it in its
// file. The Bolt calls it from one goroutine at a time, and it must not call the
// Bolt.
type Log interface {
	// Append takes the batches that one commit writes, in order, and returns when
	// they are durable, with the position of the log behind them, which is written
	// in the same transaction. Nothing of the batches may be kept. An error ends the
	// store; whether the log has the batches is unknown then, as it is with a sync
	// that has failed.
	Append(batches []*Batch) (position []byte, err error)
}

// SetLog gives the store a log or, with nil, takes it away, between two commits.
// With a log Done is called once the log has a batch: the file follows, and what is
// not yet in it is read from memory. A crash in between is healed by whoever knows
// the log: what lies behind [Bolt.Position] is applied again.
func (s *Bolt) SetLog(l Log) {
	s.committing.Lock()
	defer s.committing.Unlock()
	s.log = l
}

// Apply commits batches that a log has, in one transaction with the position behind
// them, which may not be empty, and without batches that alone. It waits for the
// disk. Done is not called. A batch that is refused was not refused where it was
// logged, so the store holds something else than its log says: that ends it, as a
// failed commit does. Nothing may be submitted before Apply has returned.
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

// Position returns how far the file has its log, nil if it has none.
func (s *Bolt) Position() (position []byte, err error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	err = s.path.Guard("position", func() error {
		return s.db.View(func(tx *bbolt.Tx) error { position, err = s.path.ReadPosition(tx); return err })
	})
	return position, err
}

// Fail ends the store as a failed commit does.
func (s *Bolt) Fail(cause error) { _ = s.fail(cause) }

// accepted are the batches that are not refused.
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

// planned returns the place of a message that is in the log and not yet in the
// file. The caller holds mu. What it refers to stays as it is when the plan goes:
// the batches belong to their submitters again.
func (s *Bolt) planned(l loc, index bool) place {
	a := &s.plan.adds[l.slotNo()]
	n := &s.plan.segments[a.segment]
	p := place{l: loc{slot: uint32(a.slot)}, id: n.id, data: n.data, ok: true}
	if index {
		p.data = n.index
	}
	return p
}

// endPlan empties the plan, which nobody reads from then on.
func (s *Bolt) endPlan() {
	if s.log != nil {
		s.mu.Lock()
		s.ahead = false // a commit that has failed has left it
		s.mu.Unlock()
	}
	s.plan.reset()
}
