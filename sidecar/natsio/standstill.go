package natsio

import (
	"context"
	"sync/atomic"
	"time"
)

// A process that was frozen finds old requests when it goes on. They carry no time of sending,
// so until they are handled, each request may be as old as the standstill is long. A suspended
// machine goes unnoticed, since its clock stands still as well.
const (
	beatEvery = 250 * time.Millisecond // how often the process records that it runs
	standsFor = 750 * time.Millisecond // a longer gap is a standstill
	// catchUp is how long an embedded server gets after a standstill to read what waits at its
	// clients' connections.
	catchUp       = 250 * time.Millisecond
	catchUpAtMost = 10 * time.Second
)

// standstill tracks how old the requests may be that are handled now.
type standstill struct {
	ran    atomic.Int64 // when the process last recorded that it runs (Unix ns); 0: not watched
	unsure atomic.Int64 // requests handled now may have waited since then; 0: they have not
	times  atomic.Int64 // number of standstills
}

// since returns the earliest time at which a request that is handled now may have been sent.
// sure reports that it cannot have waited.
func (s *standstill) since(now int64) (sent int64, sure bool) {
	if since := s.unsure.Load(); since != 0 {
		return since, false
	}
	if ran := s.ran.Load(); ran != 0 && now-ran > int64(standsFor) { // beat is late itself
		return ran, false
	}
	return now, true
}

// beat records that the process runs, and reports whether it has stood still before.
func (s *standstill) beat(now int64) (stood bool) {
	ran := s.ran.Load()
	stood = ran != 0 && now-ran > int64(standsFor)
	if stood { // store unsure before ran, or a request in between would count as new
		s.times.Add(1)
		s.unsure.CompareAndSwap(0, ran)
	}
	s.ran.Store(now)
	return stood
}

// watchStandstills detects standstills until StopRequests.
func (f *Front) watchStandstills() {
	over := make(chan struct{})
	f.watched = over
	f.standstill.beat(f.now())
	go func() {
		tick := time.NewTicker(beatEvery)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			if f.standstill.beat(f.now()) {
				go f.catchUp(f.standstill.times.Load(), over)
			}
		}
	}()
}

// catchUp waits until everything that arrived during a standstill has been handled, as far as it
// is on its way to handlers. Then requests count as new, unless there was another standstill.
func (f *Front) catchUp(times int64, over <-chan struct{}) {
	select {
	case <-over:
		return
	case <-time.After(catchUp):
	}
	ctx, cancel := context.WithTimeout(context.Background(), catchUpAtMost)
	defer cancel()
	// Everything that the server has sent on this connection arrives before its answer to the
	// flush. If the connection is lost, nothing more arrives.
	_ = f.Conn.FlushWithContext(ctx)
	handled := make(chan struct{})
	if f.Conn.Barrier(func() { close(handled) }) != nil {
		return // the connection is closed for good
	}
	select {
	case <-handled: // everything before the barrier
	case <-over:
		return
	}
	if f.standstill.times.Load() == times {
		f.standstill.unsure.Store(0)
	}
}

func (f *Front) now() int64 {
	if f.Now == nil {
		return time.Now().UnixNano()
	}
	return f.Now()
}
