package natsio

import (
	"context"
	"sync/atomic"
	"time"
)

// A process that was frozen finds what has come meanwhile when it goes on. Nobody notes when
// that was sent, so until it is handled each request may be as old as the standstill is long.
// fila does not notice that its machine was suspended: its clock stands still as well.
const (
	beatEvery = 250 * time.Millisecond // how often the process notes that it runs
	standsFor = 750 * time.Millisecond // without such a note it has stood still
	// catchUp is how long a process that goes on leaves an embedded server to read what
	// waits for it at its clients' connections.
	catchUp       = 250 * time.Millisecond
	catchUpAtMost = 10 * time.Second
)

// standstill knows how old requests may be that are handled now.
type standstill struct {
	ran    atomic.Int64 // when the process was seen to run (Unix ns); 0: nobody looks
	unsure atomic.Int64 // since when what is handled may have waited; 0: it has not
	times  atomic.Int64 // how often it has stood still
}

// since is the earliest time at which a request that is handled now was sent. sure says that
// it is known to be no older than it takes a request to come.
func (s *standstill) since(now int64) (sent int64, sure bool) {
	if since := s.unsure.Load(); since != 0 {
		return since, false
	}
	if ran := s.ran.Load(); ran != 0 && now-ran > int64(standsFor) { // and nobody has noticed yet
		return ran, false
	}
	return now, true
}

// beat notes that the process runs, and reports whether it has stood still before.
func (s *standstill) beat(now int64) (stood bool) {
	ran := s.ran.Load()
	stood = ran != 0 && now-ran > int64(standsFor)
	if stood { // before ran, or a request between the two would count as new
		s.times.Add(1)
		s.unsure.CompareAndSwap(0, ran)
	}
	s.ran.Store(now)
	return stood
}

// watchStandstills notices standstills until the requests end.
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

// catchUp waits until what came during a standstill has been handled, as far as that is on
// its way to handlers, and then lets what comes count as new, unless there was another one.
func (f *Front) catchUp(times int64, over <-chan struct{}) {
	select {
	case <-over:
		return
	case <-time.After(catchUp):
	}
	ctx, cancel := context.WithTimeout(context.Background(), catchUpAtMost)
	defer cancel()
	// What the server has for this connection comes before its answer to the flush. If the
	// connection is lost, nothing more comes of it.
	_ = f.Conn.FlushWithContext(ctx)
	handled := make(chan struct{})
	if f.Conn.Barrier(func() { close(handled) }) != nil {
		return // it is closed for good
	}
	select {
	case <-handled: // all that came before the barrier
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
