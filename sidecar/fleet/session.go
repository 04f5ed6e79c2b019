package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	mrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// run tries sessions until ctx ends. begun gets one value when the first has begun or failed.
func (s *Sync) run(ctx context.Context, begun chan<- error) {
	told := func(err error) {
		select {
		case begun <- err:
		default:
		}
	}
	failures := 0
	for ctx.Err() == nil {
		err := s.session(ctx, func() {
			failures = 0
			s.opt.Degraded(nil)
			told(nil)
		})
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		s.mu.why = err
		s.mu.Unlock()
		s.opt.Degraded(err)
		told(err)
		wait := s.opt.RetryFirst << min(failures, 3)
		failures++
		select {
		case <-time.After(wait + mrand.N(wait/4)):
		case <-ctx.Done():
		}
	}
}

// session runs one session until something fails.
func (s *Sync) session(ctx context.Context, begun func()) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	within := func(d time.Duration, do func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return do(ctx)
	}
	s.mu.Lock()
	s.mu.highest = 0
	s.mu.Unlock()
	if err := within(s.opt.StartTimeout, s.opt.Bucket.Open); err != nil {
		return err
	}
	watch, err := s.opt.Bucket.Watch(ctx)
	if err != nil {
		return err
	}
	if err := within(s.opt.StartTimeout, func(ctx context.Context) error { return s.collect(ctx, watch) }); err != nil {
		return err
	}
	select {
	case late := <-s.failed: // of the last session
		s.opt.Log.Debug("shared gates", "error", late)
	default:
	}
	s.join(ctx)
	begun()
	err = s.follow(ctx, watch)
	if ctx.Err() != nil { // only here no heartbeat can follow the last one
		s.goodbye()
	}
	cancel()
	s.part(err)
	return err
}

// collect reads all existing records and sends heartbeats until one has come back and the clock is
// known well, or as well as a few heartbeats allow. The estimate of earlier sessions still counts.
func (s *Sync) collect(ctx context.Context, watch <-chan Entry) error {
	entries := make(map[string]Entry)
	var freshest time.Time
	beats := make(chan beat, 1)
	var x exchange
	begun := time.Now()
	sent, beating := 0, false
	for {
		select {
		case e, ok := <-watch:
			if !ok {
				return errors.New("the watch has ended")
			}
			if e.Key == "" { // the end of the existing entries
				sent, beating = 1, true
				go func() { beats <- s.beat(ctx) }()
				continue
			}
			entries[e.Key] = e
			if e.At.After(freshest) {
				freshest = e.At
			}
			if e.Key == bucketKey(beatPrefix, s.me) {
				x.echoed = e
			}
		case x.asked = <-beats:
			if x.asked.err != nil {
				return x.asked.err
			}
			beating = false
		case <-ctx.Done():
			return fmt.Errorf("reading the bucket: %w", ctx.Err())
		}
		if sent == 0 || beating {
			continue
		}
		switch at := x.echoed.At; {
		case x.matches():
			s.learnClock(x.asked, at)
			fine := s.clock.Load().errAt(s.opt.Now()) <= clockFine
			if fine || sent == firstBeats || time.Since(begun) > s.opt.StartTimeout/2 {
				s.mu.Lock()
				defer s.mu.Unlock()
				clear(s.mu.strangers)
				s.mu.entries, s.mu.freshest, s.mu.began, s.mu.seen = entries, freshest, at, time.Now()
				for _, e := range entries {
					s.mu.highest = max(s.mu.highest, e.Rev)
				}
				return nil
			}
		case x.echoed.Rev <= x.asked.rev:
			continue // the echo is on its way
		} // an earlier heartbeat, given up and stored later, has replaced the echo
		sent, beating = sent+1, true
		go func() { beats <- s.beat(ctx) }()
	}
}

// learnClock takes in a heartbeat that was stored at a time.
func (s *Sync) learnClock(b beat, stored time.Time) {
	next := s.clock.Load().learn(b, stored)
	s.clock.Store(&next)
}

// errWentBack ends a session: the bucket has lost its newest records, as the stream of a bucket does
// when most of its servers come back with older disks. The watch does not bring records whose
// revisions are given out again.
var errWentBack = errors.New("the bucket has lost records: it gives revisions out again")

func (s *Sync) beat(ctx context.Context) (b beat) {
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	s.mu.Lock()
	highest := s.mu.highest
	s.mu.Unlock()
	b.sent = s.opt.Now()
	b.rev, b.err = s.opt.Bucket.Set(ctx, bucketKey(beatPrefix, s.me), s.card)
	b.done = s.opt.Now()
	if b.err == nil && b.rev <= highest {
		b.err = errWentBack
	}
	return b
}

// join passes the existing records to every Kind and allows writes.
func (s *Sync) join(ctx context.Context) {
	s.mu.Lock()
	of := make(map[string]map[string]Entry)
	for kind := range s.kinds {
		of[kind] = make(map[string]Entry)
	}
	for key, e := range s.mu.entries {
		if kind, name, ok := parseKey(key); ok && of[kind] != nil {
			of[kind][name] = e
		}
	}
	s.mu.session, s.mu.why = ctx, nil
	s.mu.Unlock()
	for _, kind := range s.kindNames() {
		s.kinds[kind].Join(of[kind])
	}
}

func (s *Sync) kindNames() []string { return slices.Sorted(maps.Keys(s.kinds)) }

// part ends writes and tells every Kind.
func (s *Sync) part(why error) {
	s.mu.Lock()
	s.mu.session, s.mu.why = nil, why // from now on Touch does nothing
	for _, st := range s.mu.states {
		if st.later != nil {
			st.later.Stop()
		}
	}
	clear(s.mu.states)
	s.mu.Unlock()
	s.swaps.Wait()
	for _, kind := range s.kindNames() {
		s.kinds[kind].Away()
	}
}

// follow handles the watch, sends heartbeats, and returns the first failure.
func (s *Sync) follow(ctx context.Context, watch <-chan Entry) error {
	tick := time.NewTicker(s.opt.BeatEvery)
	defer tick.Stop()
	sweep := time.NewTimer(mrand.N(s.opt.SweepEvery)) // so that the instances sweep at different times
	defer sweep.Stop()
	beats := make(chan beat, 1)
	beating := false
	var x exchange
	var out sync.WaitGroup
	defer out.Wait()
	aside, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		select {
		case e, ok := <-watch:
			if !ok {
				return errors.New("the watch has ended")
			}
			if e.Key == bucketKey(beatPrefix, s.me) {
				if x.echoed = e; x.matches() {
					s.learnClock(x.asked, e.At)
				}
				s.mu.Lock()
				s.mu.seen = time.Now()
				s.mu.Unlock()
			}
			s.learn(e)
		case b := <-beats:
			beating = false
			if b.err != nil {
				return fmt.Errorf("beat: %w", b.err)
			}
			at := x.echoed.At
			if x.asked = b; x.matches() {
				s.learnClock(b, at)
			}
		case <-tick.C:
			if err := s.stale(); err != nil {
				return err
			}
			if !beating {
				beating = true
				out.Go(func() { beats <- s.beat(aside) })
			}
		case <-sweep.C:
			sweep.Reset(s.opt.SweepEvery)
			out.Go(func() { s.sweep(aside) })
		case err := <-s.failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stale returns an error if the watch has stalled.
func (s *Sync) stale() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := 3*s.opt.BeatEvery + s.opt.Timeout
	if d := time.Since(s.mu.seen); d > limit {
		return fmt.Errorf("the watch has brought nothing for %s", d.Round(time.Millisecond))
	}
	for key, st := range s.mu.states {
		if !st.waiting.IsZero() && time.Since(st.waiting) > limit {
			return fmt.Errorf("the watch does not bring the newest record of %s", key)
		}
	}
	return nil
}

// goodbye deletes the heartbeat, so that others can take at once what this instance holds.
func (s *Sync) goodbye() {
	ctx, cancel := context.WithTimeout(context.Background(), s.opt.Timeout)
	defer cancel()
	if err := s.opt.Bucket.Delete(ctx, bucketKey(beatPrefix, s.me), 0); err != nil {
		s.opt.Log.Debug("the last beat", "error", err)
	}
}

// learn handles an entry of the watch.
func (s *Sync) learn(e Entry) {
	s.mu.Lock()
	if old := s.mu.entries[e.Key]; old.Rev > e.Rev || old.Rev == e.Rev && !old.At.IsZero() {
		s.mu.Unlock()
		return // it is an own write
	}
	s.mu.entries[e.Key], s.mu.highest = e, max(s.mu.highest, e.Rev)
	if e.At.After(s.mu.freshest) {
		s.mu.freshest = e.At
	}
	s.mu.Unlock()
	kind, name, ok := parseKey(e.Key)
	k := s.kinds[kind]
	if !ok || k == nil {
		return
	}
	k.Learn(name, e)
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.mu.states[e.Key]; st != nil && !st.waiting.IsZero() && e.Rev > st.over {
		s.start(e.Key, st)
	}
}

// sweep deletes idle records and heartbeats of dead instances.
func (s *Sync) sweep(ctx context.Context) {
	s.mu.Lock()
	var old []Entry
	for _, e := range s.mu.entries {
		if e.Value != nil && !e.At.IsZero() && s.mu.freshest.Sub(e.At) > s.opt.IdleAfter {
			old = append(old, e)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(old, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	deleted := 0
	for _, e := range old {
		kind, name, ok := parseKey(e.Key)
		if k := s.kinds[kind]; !ok || kind != beatPrefix && (k == nil || !k.Idle(name, e.Value)) {
			continue
		}
		one, cancel := context.WithTimeout(ctx, s.opt.Timeout)
		err := s.opt.Bucket.Delete(one, e.Key, e.Rev)
		cancel()
		switch {
		case err == nil:
			deleted++
		case !errors.Is(err, ErrConflict): // a changed record is in use
			s.opt.Log.Debug("sweep of shared gates", "error", err)
			return
		}
	}
	if err := s.opt.Bucket.Purge(ctx, s.opt.SweepEvery); err != nil {
		s.opt.Log.Debug("sweep of shared gates", "error", err)
	} else {
		s.forgetMarks()
	}
	s.opt.Log.Debug("swept the shared gates", "deleted", deleted)
}

// forgetMarks forgets deletion markers that the bucket has purged. It purges by the clock of the
// caller, which may be behind the server's; only markers twice as old are certainly gone.
func (s *Sync) forgetMarks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.mu.entries, func(_ string, e Entry) bool {
		return e.Value == nil && s.mu.freshest.Sub(e.At) > 2*s.opt.SweepEvery
	})
}
