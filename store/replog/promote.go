package replog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// attempt is a running promotion.
type attempt struct {
	token string
	sent  time.Time
	taken bool // its epoch record has arrived; under Replica.mu
	done  chan promoted
}

type promoted struct {
	store *Store
	err   error
}

// dropAttempt ends an attempt whose epoch record arrived and could not be applied.
func (r *Replica) dropAttempt(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.mu.try; a != nil && a.taken {
		r.mu.try = nil
		a.done <- promoted{err: err}
	}
}

// Promote makes this node the owner of the shard if the log is still as seen, and returns
// ErrLost otherwise. When it returns, everything before the new epoch is applied. After
// other errors it is unknown whether the epoch started; the log shows it in time.
func (r *Replica) Promote(ctx context.Context, seen Seen) (*Store, error) {
	a := &attempt{token: rand.Text(), sent: r.o.Now(), done: make(chan promoted, 1)}
	if err := r.try(a); err != nil {
		return nil, err
	}
	has := r.Seen() // as the caller saw it, or newer: then the attempt is lost
	h := head{kind: kindEpoch, epoch: r.nextEpoch(seen), n: 1, chained: r.format.Load() >= chains, before: has.Chain}
	after := place{has.Epoch, has.N}
	record := encode(h, beginning{owner: r.o.Node, token: a.token, after: after}.append(nil, h.chained))
	again := time.NewTimer(0)
	defer again.Stop()
	wait := firstRetry
	var unsure error // error of an append that may have succeeded: then another one is refused
	for {
		now, changed := r.seenAndChanged()
		if now.Epoch > seen.Epoch || now.Seq > seen.Seq {
			return r.giveUp(a, ErrLost) // another record took the place
		}
		select {
		case <-again.C:
			var err error
			if unsure != nil || r.o.Now().Sub(has.At) >= r.o.AckTimeout { // the log may have changed since
				err = r.endsAs(ctx, has)
			}
			if err == nil {
				err = r.begin(ctx, record, seen.Seq)
			}
			switch {
			case err == nil, errors.Is(err, errMoved) && unsure != nil: // the record arrives, or one that was faster
			case errors.Is(err, errMoved), errors.Is(err, errAnother):
				return r.giveUp(a, fmt.Errorf("%w: %w", ErrLost, err))
			case errors.Is(err, errRefused):
				return r.giveUp(a, err)
			default:
				unsure = err
				again.Reset(wait)
				wait = min(2*wait, lastRetry)
			}
		case p := <-a.done:
			return p.store, p.err
		case <-changed:
		case <-ctx.Done():
			return r.giveUp(a, errors.Join(fmt.Errorf("replog: whether epoch %d has begun is not known: %w", h.epoch, ctx.Err()), unsure))
		case <-r.ctx.Done():
			return r.giveUp(a, ErrClosed)
		}
	}
}

// nextEpoch returns an epoch that no other history has: it is also later than the epochs whose
// records were given up.
func (r *Replica) nextEpoch(seen Seen) uint64 {
	epoch := seen.Epoch
	if r.o.Verdict != nil {
		if v, ok := r.o.Verdict(); ok && v.GivenUp {
			epoch = max(epoch, v.Copy.Epoch)
		}
	}
	return epoch + 1
}

// endsAs returns errAnother if the log has another record where it ended as it was seen: it has lost
// records, and become as long as before.
func (r *Replica) endsAs(ctx context.Context, seen Seen) error {
	if seen.Seq == 0 || seen.tail == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaderAnswers)
	defer cancel()
	data, err := r.j.get(ctx, seen.Seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound): // the log was cut behind it
		return nil
	case err != nil || sumOf(data) == seen.tail:
		return err
	}
	return errAnother
}

// errAnother means that the log has another record than was seen.
var errAnother = errors.New("the log ends with another record than was seen")

// begin appends a record behind a sequence once.
func (r *Replica) begin(ctx context.Context, record []byte, behind uint64) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.AckTimeout)
	defer cancel()
	_, err := r.j.append(ctx, record, behind)
	return err
}

// try registers a promotion attempt.
func (r *Replica) try(a *attempt) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.mu.closed:
		return ErrClosed
	case r.mu.store != nil || r.mu.try != nil:
		return fmt.Errorf("%w: this node owns the shard, or tries to", ErrLost)
	case r.mu.seen.Seq == 0 && r.mu.seen.Epoch > 0: // see released
		return fmt.Errorf("%w: the file is not open again", ErrLost)
	}
	r.mu.try = a
	return nil
}

// giveUp ends an attempt with an error, unless it won meanwhile.
func (r *Replica) giveUp(a *attempt, err error) (*Store, error) {
	r.mu.Lock()
	if taken := a.taken; !taken {
		r.mu.try = nil
		r.mu.Unlock()
		return nil, err
	}
	r.mu.Unlock()
	p := <-a.done
	return p.store, p.err
}

// own gives the file to a store and waits until the store is closed.
func (r *Replica) own() {
	s := r.newStore()
	r.mu.Lock()
	a := r.mu.try
	r.mu.try, r.mu.store, r.mu.newest = nil, s, nil
	closed := r.mu.closed
	r.mu.Unlock()
	a.done <- promoted{store: s}
	if closed {
		_ = s.Close() // no batch was submitted
	}
	<-s.ended
	r.setFile(nil) // the store has closed it
	if err := r.endUnsynced(); err != nil {
		r.o.Log.Error("replog: the file is not on the disk", "shard", r.o.Shard, "error", err)
	}
	r.heal(s.corrupt())
}

// released notes that a store was closed. The position of the file is read when it is opened
// again.
func (r *Replica) released(s *Store) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.w.progress(&r.mu.seen)
	r.mu.seen.Seq, r.mu.store = 0, nil
}
