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

// Store is the shard of its owner: a store.Store whose batches are done when the log
// has them. Once another node has begun an epoch it fails with store.ErrFenced. Whoever
// got it from Promote closes it, also when it has failed: then the replica follows
// again.
type Store struct {
	*store.Bolt
	r      *Replica
	w      *writer
	cancel context.CancelCauseFunc // gives up on the stream

	beating sync.WaitGroup // of beats, looks and cut
	stop    chan struct{}  // ends beats and looks
	closing sync.Once
	cutting atomic.Bool // a snapshot is being made
	full    bool        // what was said last about the room in the log; of looks
	spoiled atomic.Pointer[error]
	ended   chan struct{} // closed when the file is closed
}

var _ store.Store = (*Store)(nil)

// newStore makes the owner's store: the log has been read up to its epoch record.
func (r *Replica) newStore() *Store {
	s := &Store{Bolt: r.bolt, r: r, stop: make(chan struct{}), ended: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(r.ctx)
	s.cancel = cancel
	r.mu.Lock()
	sent := r.mu.try.sent
	r.mu.Unlock()
	s.w = newWriter(ctx, &r.o, r.j, r.at.epoch, r.seq, sent, state{created: r.created})
	s.Bolt.SetLog(s.w)
	s.beating.Go(s.beats)
	s.beating.Go(s.looks)
	return s
}

// Epoch returns the number of this time of ownership.
func (s *Store) Epoch() uint64 { return s.w.epoch }

// Owns says whether a record that lies in the log was sent at most d ago, by monotonic
// time. A node that waits for longer than d of silence before it begins an epoch has
// not begun one yet.
func (s *Store) Owns(d time.Duration) bool { return s.Err() == nil && s.w.silence() <= d }

// Full says that the log is nearly full: new messages have to be refused before they
// are batches, so that there is room for what finishes messages. A batch that the stream
// has no room for waits, and all that come after it.
func (s *Store) Full() bool { return s.w.room.full() }

// Discard has the file put aside when the store is closed, because it is corrupt: the
// replica begins anew, with snapshot and log.
func (s *Store) Discard(cause error) { s.spoiled.CompareAndSwap(nil, &cause) }

// Resign ends the ownership in favour of another node, or of any with "". What was
// submitted before should be done: later batches fail with store.ErrFenced. After an
// error whether it is in the log is not known, and the store fails all the same. The
// store remains to be closed.
func (s *Store) Resign(ctx context.Context, to string) error {
	stop := context.AfterFunc(ctx, func() { s.cancel(ctx.Err()) })
	defer stop()
	if err := s.w.say(kindResign, putString(nil, to)); err != nil {
		s.Fail(err)
		return fmt.Errorf("replog: resigning: %w", err)
	}
	return nil
}

// Close implements store.Store. It waits for the stream, but not for ever.
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

// beats lets others know that the owner lives. Nothing else may keep it from that.
func (s *Store) beats() {
	beat := time.NewTimer(s.r.o.Beat)
	defer beat.Stop()
	for {
		select {
		case <-beat.C:
			if s.w.silence() >= s.r.o.Beat {
				if err := s.w.say(kindBeat, nil); err != nil {
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

// looks looks at the stream at times, which may not answer.
func (s *Store) looks() {
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

// failBeat ends the store, unless that is what has ended the beat.
func (s *Store) failBeat(err error) {
	select {
	case <-s.stop:
	default:
		s.Fail(err)
	}
}

// measure learns how full the stream is, and has it cut. What is written later is
// added.
func (s *Store) measure() {
	ctx, cancel := context.WithTimeout(s.w.ctx, s.r.o.AckTimeout)
	defer cancel()
	st, err := s.r.j.state(ctx)
	if err != nil {
		return
	}
	s.w.room.set(st)
	s.sayFull()
	if s.r.o.Snapshots == nil {
		return
	}
	newest, err := s.r.newest(ctx)
	if err != nil || !due(st, newest, s.Stats().LiveBytes, s.r.o.truncateBytes) || !s.cutting.CompareAndSwap(false, true) {
		return
	}
	s.beating.Go(s.cut)
}

// sayFull tells when messages begin to be refused, and when that is over.
func (s *Store) sayFull() {
	full, room := s.Full(), &s.w.room
	if full == s.full {
		return
	}
	s.full = full
	if full {
		s.r.o.Log.Warn("replog: the log is nearly full: messages are refused, all else goes on",
			"shard", s.r.o.Shard, "bytes", room.used.Load(), "max_bytes", room.most.Load())
		return
	}
	s.r.o.Log.Info("replog: the log has room again: messages are taken", "shard", s.r.o.Shard,
		"bytes", room.used.Load(), "max_bytes", room.most.Load())
}

// corrupt is why the file of a store that is closed has to be put aside; nil: it need
// not be.
func (s *Store) corrupt() error {
	if cause := s.spoiled.Load(); cause != nil {
		return *cause
	}
	if err := s.Err(); errors.Is(err, store.ErrCorrupt) {
		return err
	}
	return nil
}

// cut makes a snapshot, so that the log gets shorter.
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

// advance has the file know how far the log is. Beats are not in it, and of an owner that
// commits nothing they are all that is to be cut. A log that takes nothing is not waited
// for.
func (s *Store) advance() {
	ctx, cancel := context.WithTimeout(s.w.ctx, s.r.o.AckTimeout)
	defer cancel()
	for range 2 { // the second is logged when the file has the first
		done := make(chan struct{})
		// What writes nothing is not logged, so it deletes what is not there.
		s.Submit(&store.Batch{DeleteConfig: []string{"\x00advance"}, Done: func(error) { close(done) }})
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// cutAgain is how long a snapshot that failed is not tried again.
const cutAgain = time.Minute

// newest is how far the newest snapshot goes, 0 if there is none.
func (r *Replica) newest(ctx context.Context) (uint64, error) {
	r.mu.Lock()
	known := r.mu.newest
	r.mu.Unlock()
	if known != nil {
		return known.Seq, nil
	}
	all, err := r.o.list(ctx)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.newest = &all[0]
	return all[0].Seq, nil
}
