package replog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filaq/fila/store"
)

// Store is the store of the owner: a store.Store whose batches are done when the log has
// them. When another node starts an epoch, it fails with store.ErrFenced. The caller of
// Promote must close it, also after a failure. Then the replica follows again.
type Store struct {
	*store.Bolt
	r      *Replica
	w      *writer
	cancel context.CancelCauseFunc // abandons requests to the stream

	beating sync.WaitGroup // of beatLoop, checkLoop and cut
	stop    chan struct{}  // ends beatLoop and checkLoop
	closing sync.Once
	cutting atomic.Bool   // a snapshot is being made
	wanted  atomic.Uint64 // record that a snapshot has to cover
	full    bool          // as logged last; of checkLoop
	spoiled atomic.Pointer[error]
	ended   chan struct{} // closed when the file is closed
}

var _ store.Store = (*Store)(nil)

// newStore returns the store of the owner. The log was read up to its epoch record.
func (r *Replica) newStore() *Store {
	s := &Store{Bolt: r.bolt, r: r, stop: make(chan struct{}), ended: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(r.ctx)
	s.cancel = cancel
	r.mu.Lock()
	sent := r.mu.try.sent
	r.mu.Unlock()
	s.w = r.newWriter(ctx, sent)
	s.Bolt.SetLog(s.w)
	s.beating.Go(s.beatLoop)
	s.beating.Go(s.checkLoop)
	return s
}

// Epoch returns the epoch of this ownership.
func (s *Store) Epoch() uint64 { return s.w.epoch }

// Owns reports whether a record in the log was sent at most d ago, by monotonic time. A node
// that waits for more than d of silence before it starts an epoch has not started one yet.
func (s *Store) Owns(d time.Duration) bool { return s.Err() == nil && s.w.silence() <= d }

// Full reports that the log is nearly full. Then the caller must refuse new messages before
// they become batches, so that there is space for records that finish messages. A batch
// that does not fit into the stream waits, and all batches after it.
func (s *Store) Full() bool { return s.w.room.full() }

// Discard marks the file as corrupt. When the store is closed, the file is moved aside and
// the replica starts again from snapshot and log.
func (s *Store) Discard(cause error) { s.spoiled.CompareAndSwap(nil, &cause) }

// SnapshotBehind has a snapshot made soon, unless there is one of all records up to seq, see
// [Seen.Unread]. It does not block.
func (s *Store) SnapshotBehind(seq uint64) { s.wanted.Store(seq) }

// Resign ends the ownership in favour of another node, or of any node with "". Earlier
// batches should be done; later batches fail with store.ErrFenced. After an error it is
// unknown whether the resignation is in the log, but the store fails in any case. The
// caller must still close the store.
func (s *Store) Resign(ctx context.Context, to string) error {
	stop := context.AfterFunc(ctx, func() { s.cancel(ctx.Err()) })
	defer stop()
	if err := s.w.writeControl(kindResign, putString(nil, to)); err != nil {
		s.Fail(err)
		return fmt.Errorf("replog: resigning: %w", err)
	}
	return nil
}

// Close implements store.Store. It waits for the stream for Options.Linger at most.
func (s *Store) Close() error {
	var err error
	s.closing.Do(func() {
		late := time.AfterFunc(s.r.o.Linger, func() { s.cancel(ErrClosed) })
		err = s.Bolt.Close()
		late.Stop()
		close(s.stop)
		s.cancel(ErrClosed)
		s.beating.Wait()
		s.r.released(s)
		close(s.ended)
	})
	return err
}

// beatLoop writes beats, which show that the owner is alive. It must do nothing else that
// can block.
func (s *Store) beatLoop() {
	beat := time.NewTimer(s.r.o.Beat)
	defer beat.Stop()
	for {
		select {
		case <-beat.C:
			if s.w.silence() >= s.r.o.Beat {
				if err := s.w.writeControl(kindBeat, nil); err != nil {
					s.failBeat(err)
					return
				}
			}
			beat.Reset(max(s.r.o.Beat-s.w.silence(), s.r.o.Beat/8))
		case <-s.stop:
			return
		case <-s.Failed():
			return
		}
	}
}

// checkLoop checks the stream at intervals. The stream may not answer.
func (s *Store) checkLoop() {
	check := time.NewTicker(s.r.o.Check)
	defer check.Stop()
	for {
		if err := s.r.unsynced.sync(s.r.o.Now()); err != nil {
			s.Fail(err)
			return
		}
		s.measure()
		select {
		case <-check.C:
		case <-s.stop:
			return
		case <-s.Failed():
			return
		}
	}
}

// failBeat fails the store, unless its end ended the beat.
func (s *Store) failBeat(err error) {
	select {
	case <-s.stop:
	default:
		s.Fail(err)
	}
}

// measure reads the size of the stream and starts a snapshot if it is due. The writer adds
// later records to the size.
func (s *Store) measure() {
	ctx, cancel := context.WithTimeout(s.w.ctx, s.r.o.AckTimeout)
	defer cancel()
	st, err := s.r.j.state(ctx)
	if err != nil {
		return
	}
	s.w.room.set(st)
	s.logFull()
	if s.r.o.Snapshots == nil {
		return
	}
	newest, err := s.r.newest(ctx)
	if err != nil || newest >= s.wanted.Load() && !due(st, newest, s.Stats().LiveBytes, s.r.o.truncateBytes) || !s.cutting.CompareAndSwap(false, true) {
		return
	}
	s.beating.Go(s.cut)
}

// logFull logs when the log becomes full, and when it is not full any more.
func (s *Store) logFull() {
	full, room := s.Full(), &s.w.room
	if full == s.full {
		return
	}
	s.full = full
	if full {
		s.r.o.Log.Warn("replog: the log is nearly full: messages are refused, everything else continues",
			"shard", s.r.o.Shard, "bytes", room.used.Load(), "max_bytes", room.most.Load())
		return
	}
	s.r.o.Log.Info("replog: the log has room again: messages are accepted", "shard", s.r.o.Shard,
		"bytes", room.used.Load(), "max_bytes", room.most.Load())
}

// corrupt returns why the file of a closed store must be moved aside, or nil.
func (s *Store) corrupt() error {
	if cause := s.spoiled.Load(); cause != nil {
		return *cause
	}
	if err := s.Err(); errors.Is(err, store.ErrCorrupt) {
		return err
	}
	return nil
}

// cut makes a snapshot, which shortens the log.
func (s *Store) cut() {
	defer s.cutting.Store(false)
	s.advance()
	if _, err := s.r.Snapshot(s.w.ctx); err != nil && s.w.ctx.Err() == nil {
		s.r.o.Log.Error("replog: no snapshot was made, and the log grows", "shard", s.r.o.Shard, "error", err)
		again := time.NewTimer(cutAgain)
		defer again.Stop()
		select {
		case <-again.C:
		case <-s.w.ctx.Done():
		}
	}
}

// advance makes the file write the position of the log. Beats do not change it, and the log
// of an owner without commits consists of beats. It does not wait for a log that accepts no
// records.
func (s *Store) advance() {
	ctx, cancel := context.WithTimeout(s.w.ctx, s.r.o.AckTimeout)
	defer cancel()
	for range 2 { // the second is logged when the file has the first
		done := make(chan struct{})
		// A batch without changes is not logged, so this one deletes an absent key.
		s.Submit(&store.Batch{DeleteConfig: []string{"\x00advance"}, Done: func(error) { close(done) }})
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// cutAgain is the wait after a failed snapshot.
const cutAgain = time.Minute

// newest returns the sequence of the newest snapshot, 0 if there is none.
func (r *Replica) newest(ctx context.Context) (uint64, error) {
	r.mu.Lock()
	known := r.mu.newest
	r.mu.Unlock()
	if known != nil {
		return known.Seq, nil
	}
	all, err := r.usable(ctx, nil)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.newest = &all[0]
	return all[0].Seq, nil
}
