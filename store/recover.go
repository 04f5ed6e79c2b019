package store

import (
	"bytes"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/filaq/fila/store/storefile"
)

const progressStep = 1 << 16

// Recover implements [Store].
func (s *Bolt) Recover(v Visitor) (RecoveryStats, error) {
	if s.closed.Load() {
		return RecoveryStats{}, ErrClosed
	}
	// The index must not change and must agree with the transaction. Before the first
	// Submit no goroutine waits for these locks.
	s.gate.RLock()
	defer s.gate.RUnlock()
	s.mu.RLock()
	defer s.mu.RUnlock()

	start := time.Now()
	r := recovery{s: s, v: v, in: storefile.NewInterner(), now: s.o.Now()}
	r.stats.Corrupt = slices.Clone(s.loaded.Corrupt)
	r.stats.CorruptN = s.loaded.CorruptN
	r.stats.Segments = s.segs.n
	tx, err := s.db.Begin(false)
	if err != nil {
		return RecoveryStats{}, ErrClosed
	}
	defer tx.Rollback() //nolint:errcheck // of a read transaction
	r.tx = tx
	err = r.messages()
	if err == nil {
		err = r.dedupes()
	}
	r.stats.Duration = time.Since(start)
	if err == nil && r.stats.CorruptN > 0 {
		err = r.stats.Corrupt[0]
	}
	return r.stats, err
}

// recovery is one run of Recover.
type recovery struct {
	s     *Bolt
	tx    *bbolt.Tx
	v     Visitor
	in    *storefile.Interner
	now   int64
	stats RecoveryStats

	indexes []storefile.Block // by handle of the segment, opened on demand

	states       *bbolt.Cursor
	stateK       []byte
	stateV       []byte
	wantK        []byte
	statesBegun  bool
	nextProgress int64
}

// messages visits the messages by queue in the order of the location index, with their
// states, which have the same order on disk.
func (r *recovery) messages() error {
	var total int64
	for _, q := range r.s.queues {
		total += q.index.live
	}
	r.indexes = make([]storefile.Block, len(r.s.segs.segs))
	err := r.s.path.Guard("recovery", func() error {
		r.states = r.tx.Bucket(storefile.BucketState).Cursor()
		return nil
	})
	if err != nil {
		return err
	}
	var m Message
	var st State
	for _, id := range slices.Sorted(maps.Keys(r.s.queues)) {
		for seq, l := range r.s.queues[id].index.all() {
			if l.seg == pendingSeg {
				continue
			}
			ref := Ref{Queue: id, Seq: seq}
			var have *State
			err := r.s.path.Guard("recovery", func() error { return r.message(ref, l, &m) })
			if err == nil && l.slot&stateBit != 0 {
				err = r.s.path.Guard("recovery", func() (err error) { have, err = r.state(ref, &st); return err })
			}
			if err != nil {
				r.stats.note(err)
				continue
			}
			r.stats.Messages++
			r.stats.Bytes += int64(l.size)
			if r.v.Message != nil {
				if err := r.v.Message(&m, int(l.size), have); err != nil {
					return err
				}
			}
			if r.v.Progress != nil && r.stats.Messages >= r.nextProgress {
				r.v.Progress(r.stats.Messages, total)
				r.nextProgress = r.stats.Messages + progressStep
			}
		}
	}
	if r.v.Progress != nil {
		r.v.Progress(r.stats.Messages, total)
	}
	return nil
}

func (r *recovery) message(ref Ref, l loc, m *Message) error {
	g := r.s.segs.segs[l.seg]
	index := r.indexes[l.seg]
	if !index.IsOpen() {
		var err error
		if index, err = storefile.OpenBlock(storefile.SegmentBucket(r.tx, g.id).Get(storefile.KeyIndex), storefile.KindIndex, g.id); err != nil {
			return r.s.path.Corrupt("index", g.id, 0, err)
		}
		r.indexes[l.seg] = index
	}
	raw, off, err := index.Item(l.slotNo())
	if err == nil {
		err = storefile.DecodeEntry(raw, m, r.in)
	}
	if err == nil {
		r.s.clock.WallMessage(m)
	}
	if err == nil && m.Ref != ref {
		err = storefile.ErrChecksum
	}
	return r.s.path.Corrupt("index", g.id, off, err)
}

// state advances to the state of ref.
func (r *recovery) state(ref Ref, st *State) (*State, error) {
	if !r.statesBegun {
		r.statesBegun = true
		r.stateK, r.stateV = r.states.First()
	}
	r.wantK = storefile.AppendRefKey(r.wantK[:0], ref)
	for r.stateK != nil && bytes.Compare(r.stateK, r.wantK) < 0 {
		r.stateK, r.stateV = r.states.Next()
	}
	if !bytes.Equal(r.stateK, r.wantK) {
		return nil, r.s.path.CorruptMeta("state "+hex.EncodeToString(r.wantK), errors.New("is missing"))
	}
	if err := r.s.path.DecodeState(r.stateK, r.stateV, st, r.in, &r.s.clock); err != nil {
		return nil, err
	}
	r.stats.States++
	return st, nil
}

// dedupes visits the dedupe ids that have not expired.
func (r *recovery) dedupes() error {
	log, err := storefile.NewDedupeReader(r.s.path, r.tx, r.now)
	if err != nil {
		return err
	}
	return log.Each(r.stats.note, func(d Dedupe) error {
		if r.s.queues[d.Queue] == nil {
			return nil
		}
		r.stats.Dedupes++
		if r.v.Dedupe == nil {
			return nil
		}
		return r.v.Dedupe(d)
	})
}
