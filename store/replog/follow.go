package replog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/filaq/fila/store"
)

// errPromoted ends following: the epoch record of this node has arrived.
var errPromoted = errors.New("promoted")

// run follows, serves as the owner, and follows again. err is why the file cannot follow yet,
// nil if it can.
func (r *Replica) run(err error) {
	defer func() {
		if err := r.closeFile(); err != nil {
			r.o.Log.Warn("replog: closing", "file", r.o.Path, "error", err)
		}
	}()
	var said string
	for r.ctx.Err() == nil {
		for err != nil && r.ctx.Err() == nil {
			if said != err.Error() && !errors.Is(err, errRepaired) {
				said = err.Error()
				r.o.Log.Error("replog: the replica does not follow", "shard", r.o.Shard, "error", err)
			}
			r.change(func(s *Seen) {
				s.Err, s.Unread = err, r.unread
				r.tellFile(s)
			})
			r.rest(err)
			err = r.open(r.ctx)
		}
		if r.ctx.Err() != nil {
			return
		}
		err = r.follow()
		if errors.Is(err, errPromoted) {
			if r.own(); r.isClosed() {
				return
			}
			said, r.stuck, r.unread = "", 0, 0
			err = r.open(r.ctx)
			continue
		}
		r.dropAttempt(err)
		r.stuck = r.seq + 1
		if r.bolt != nil && r.bolt.Err() != nil {
			if err := r.closeFile(); err != nil {
				r.o.Log.Warn("replog: closing", "file", r.o.Path, "error", err)
			}
			r.heal(err)
		}
	}
}

// tellFile sets what the file has, which others must know if the log lacks it.
func (r *Replica) tellFile(s *Seen) {
	if r.safe.seq != 0 && r.mu.store == nil {
		s.Data, s.End, s.Torn = r.safe.data, r.end, r.bolt == nil
		s.Epoch = max(s.Epoch, r.safe.at.epoch)
	}
}

// lacks reports whether the log lacks what a file has, or what comes behind it.
func lacks(err error) bool {
	return errors.Is(err, ErrShorter) || errors.Is(err, ErrGone) || errors.Is(err, ErrGap)
}

// rest waits before another attempt, longer after an error that does not pass by itself, and
// repairs the log on request.
func (r *Replica) rest(err error) {
	wait := lastRetry
	for _, lasting := range []error{ErrGone, ErrForeign, ErrReplicas, ErrShorter, ErrGap, ErrUnknown, ErrBroken} {
		if errors.Is(err, lasting) {
			wait = max(wait, r.o.Check)
		}
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case ask := <-r.repairs:
		mark, err := r.repair(ask)
		ask.done <- repairedAt{mark, err}
	case <-r.ctx.Done():
	}
}

// follow applies records until that fails, or the node is promoted.
func (r *Replica) follow() error {
	in := newIntake()
	defer in.close()
	stop, ended, err := r.j.follow(r.ctx, r.seq+1, in.put)
	if err != nil {
		return err
	}
	defer stop()
	defer in.close() // before stop, which waits for put
	check := time.NewTicker(r.o.Check)
	defer check.Stop()
	due := time.NewTimer(0) // for received records
	defer due.Stop()
	var applied time.Time
	for {
		select {
		case <-in.some:
			due.Reset(r.applyIn(applied))
		case <-due.C:
			if err := r.take(in.take()); err != nil {
				if (errors.Is(err, ErrBroken) || errors.Is(err, ErrShorter) || errors.Is(err, errRepaired)) && r.bolt.Err() == nil {
					r.unread = r.seq + 1
				}
				return err
			}
			applied = r.o.Now()
		case err := <-ended:
			return err
		case <-check.C:
			if err := r.check(); err != nil {
				return err
			}
		case <-r.ctx.Done():
			return ErrClosed
		}
	}
}

// applyEvery is the interval at which a follower applies received records. A message that
// finishes within it is never written.
const applyEvery = 50 * time.Millisecond

// applyIn returns how long received records wait: 0 if they arrive seldom, or if the node
// waits for its epoch record.
func (r *Replica) applyIn(applied time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.try != nil {
		return 0
	}
	return max(applyEvery-r.o.Now().Sub(applied), 0)
}

// check checks that the stream exists and has what is applied, and updates the lag.
func (r *Replica) check() error {
	if err := r.unsynced.sync(r.o.Now()); err != nil {
		r.bolt.Fail(err)
		return err
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.o.AckTimeout)
	defer cancel()
	st, err := r.j.state(ctx)
	switch {
	case errors.Is(err, ErrGone):
		return err
	case err != nil:
		return nil //nolint:nilerr // no answer, which shows by silence
	case !st.created.Equal(r.created):
		return fmt.Errorf("%w: it was made anew at %v", ErrGone, st.created)
	}
	if err := r.compareAt(ctx, st, r.safe.mark()); errors.Is(err, ErrShorter) {
		r.end = st.last
		return err
	}
	if st.last < r.seq { // records that are stale, or part of a commit: lost, or read from a replica that has not lost them
		return fmt.Errorf("replog: shard %d: the log has lost records that do not count: %d were read, the stream has %d", r.o.Shard, r.seq, st.last)
	}
	r.change(func(s *Seen) { s.Lag = st.last - r.seq })
	return nil
}

const (
	groupBytes   = 8 << 20 // approximate bytes of records that one transaction applies
	writtenEvery = 1024    // records after which the file writes its position in any case
)

// take applies records.
func (r *Replica) take(entries []entry) error {
	var group []*store.Batch
	size := 0
	flush := func() error {
		if len(group) == 0 && r.unwritten < writtenEvery {
			return nil
		}
		if err := r.bolt.Apply(group, r.safe.append(nil)); err != nil {
			return fmt.Errorf("%w: record %d: %w", ErrBroken, r.safe.seq, err)
		}
		group, size, r.unwritten = nil, 0, 0
		return nil
	}
	for i := range entries {
		e := &entries[i]
		if e.seq <= r.seq {
			continue // it came twice
		}
		batches, mine, err := r.read(e)
		if err == nil {
			group = append(group, batches...)
			if size += len(e.record); size >= groupBytes || mine != nil || i == len(entries)-1 {
				err = flush()
			}
		}
		if err != nil {
			return errors.Join(err, flush())
		}
		if mine != nil || i == len(entries)-1 {
			r.change(func(s *Seen) {
				s.Seq, s.At, s.Lag = r.seq, e.at, e.behind
				s.N, s.Chain, s.Data, s.tail = r.at.n, r.at.chain, r.safe.data, r.tail
				if r.at.ended { // a successor must know the sequence, too
					s.Ended, s.To = true, r.to
				}
				if r.seq >= r.stuck {
					s.Err = nil
				}
				if r.seq >= r.unread {
					s.Unread, r.unread = 0, 0
				}
			})
		}
		if mine != nil {
			return errPromoted
		}
	}
	if r.at.ended {
		select {
		case r.ended <- struct{}{}:
		default:
		}
	}
	return nil
}

// read judges a record and returns the batches to apply. mine is the promotion attempt of this
// node whose epoch it opens.
func (r *Replica) read(e *entry) (batches []*store.Batch, mine *attempt, err error) {
	if e.seq != r.seq+1 {
		return nil, nil, fmt.Errorf("%w: record %d follows %d", ErrGap, e.seq, r.seq)
	}
	h, body, err := decode(e.record)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: record %d: %w", ErrBroken, e.seq, err)
	}
	next, v := r.at.next(h)
	switch v {
	case unknown:
		return nil, nil, fmt.Errorf("%w: record %d is of kind %d", ErrUnknown, e.seq, h.kind)
	case broken:
		return nil, nil, fmt.Errorf("%w: record %d is %d of epoch %d, after %d of %d", ErrBroken, e.seq, h.n, h.epoch, r.at.n, r.at.epoch)
	case stale:
		r.seq, r.tail = e.seq, sumOf(e.record)
		r.o.Log.Info("replog: skipping a record of an earlier owner", "shard", r.o.Shard, "seq", e.seq, "epoch", h.epoch)
		return nil, nil, nil
	}
	if !r.at.follows(h) {
		return nil, nil, fmt.Errorf("%w: record %d, %d of epoch %d, comes after another record than was applied", ErrBroken, e.seq, h.n, h.epoch)
	}
	next.chain = chainOf(h, e.record)
	var b beginning
	switch h.kind {
	case kindEpoch:
		r.parts = nil
		if b, err = decodeBeginning(body, h.chained); err == nil {
			if err := r.begins(e.seq, h, b); err != nil {
				return nil, nil, err
			}
		}
	case kindResign:
		r.to, err = decodeResign(body)
	case kindCommit:
		if r.parts != nil || h.more {
			r.parts = append(r.parts, body...)
			body = r.parts
		}
		if !h.more {
			r.parts = nil
			if h.packed {
				body, err = unpack(body)
			}
			if err == nil {
				batches, err = decodeBatches(body)
			}
		}
	case kindBeat:
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: record %d: %w", ErrBroken, e.seq, err)
	}
	r.seq, r.tail, r.at = e.seq, next.chain, next
	r.unwritten++
	if !next.more {
		r.safe.seq, r.safe.at = e.seq, next
		if h.kind == kindCommit {
			r.safe.data = r.safe.mark()
		}
	}
	if h.kind == kindEpoch {
		mine = r.begun(next.epoch, b)
	}
	return batches, mine, nil
}

// errRepaired ends following: the log goes on behind records that it lacks, and a snapshot
// has them.
var errRepaired = errors.New("replog: the log was repaired")

// begins checks that the owner of a new epoch has not applied more than the log has, or something else.
// Two beginnings of the first epoch, before its first commit, are the same: both have nothing, or the seed of
// the log. One takes the place of the other if the log is lost right after it was made.
func (r *Replica) begins(seq uint64, h head, b beginning) error {
	if !h.chained {
		return nil
	}
	switch has := b.after.compare(r.at.place()); {
	case has > 0 && b.snapshot != "":
		return errRepaired
	case has > 0:
		return fmt.Errorf("%w: shard %d: the owner of epoch %d has applied record %d of epoch %d, which is not before record %d",
			ErrShorter, r.o.Shard, h.epoch, b.after.n, b.after.epoch, seq)
	case b.after == place{epoch: 1, n: 1} && r.safe.data == (Mark{}):
	case has == 0 && h.before != 0 && r.at.chain != 0 && h.before != r.at.chain:
		return fmt.Errorf("%w: record %d begins epoch %d after another history than was applied", ErrBroken, seq, h.epoch)
	}
	return nil
}

// begun notes a new epoch and returns the attempt of this node that started it, if any.
func (r *Replica) begun(epoch uint64, b beginning) *attempt {
	var mine *attempt
	r.change(func(s *Seen) {
		s.Epoch, s.Owner, s.Ended, s.To = epoch, b.owner, false, ""
		if a := r.mu.try; a != nil && a.token == b.token {
			a.taken, mine = true, a
		}
	})
	return mine
}

// intake has the received records that are not applied yet: intakeBytes at most, or one
// record.
type intake struct {
	some chan struct{} // has an element when there are entries

	mu      sync.Mutex
	room    sync.Cond // on mu
	entries []entry
	bytes   int
	closed  bool
}

const intakeBytes = 32 << 20

func newIntake() *intake {
	in := &intake{some: make(chan struct{}, 1)}
	in.room.L = &in.mu
	return in
}

// put adds an entry. It waits while the intake is full.
func (in *intake) put(e entry) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for in.bytes > 0 && in.bytes+len(e.record) > intakeBytes && !in.closed {
		in.room.Wait()
	}
	if in.closed {
		return
	}
	in.entries = append(in.entries, e)
	in.bytes += len(e.record)
	select {
	case in.some <- struct{}{}:
	default:
	}
}

func (in *intake) take() []entry {
	in.mu.Lock()
	defer in.mu.Unlock()
	out := in.entries
	in.entries, in.bytes = nil, 0
	in.room.Broadcast()
	return out
}

func (in *intake) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	in.room.Broadcast()
}
