package shard

import (
	"sync/atomic"
	"time"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Disk says how full the disk of the store is.
type Disk struct {
	Free    int64 // bytes
	MinFree int64 // below which it is low; 0: the alarm is off
	Low     bool  // messages are refused
}

// alarm refuses new messages while the disk is nearly full: what is stored can be
// delivered, finished and deleted then, which a commit that fails would end.
type alarm struct {
	state   atomic.Pointer[Disk] // nil: not known; written by watchDisk and before it begins
	written atomic.Int64         // bytes of messages that were committed since the last look
	look    chan struct{}        // asks for a look now; has room for one
}

const (
	// AutoMinFree is the value of [Options].MinFreeBytes that stands for
	// autoMinFree, or one in autoMinFreeShare of a disk where that is less.
	AutoMinFree      = -1
	autoMinFree      = 256 << 20
	autoMinFreeShare = 20

	// The disk is looked at so often, and whenever so much has been written: a disk
	// that fills in the time between is the one thing that the alarm cannot see.
	diskInterval = time.Second
	diskBytes    = 16 << 20

	// calmShare is what has to be free beyond MinFree for the alarm to end: one in
	// calmShare of it. Without it, producers would be let in and out for each page.
	calmShare = 4
)

// minFree is how much has to stay free on a disk of that size.
func (o *Options) minFree(total int64) int64 {
	if o.MinFreeBytes == AutoMinFree {
		return min(autoMinFree, total/autoMinFreeShare)
	}
	return o.MinFreeBytes
}

// Disk returns how full the disk was a moment ago; nil: nobody knows.
func (s *Set) Disk() *Disk { return s.disk.state.Load() }

// wrote counts what a commit has brought to the disk.
func (a *alarm) wrote(bytes int64) {
	if bytes > 0 && a.written.Add(bytes) >= diskBytes {
		select {
		case a.look <- struct{}{}:
		default:
		}
	}
}

// watchDisk looks at the disk until the set ends.
func (s *Set) watchDisk() {
	tick := time.NewTicker(diskInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.disk.look:
		case <-s.ended.Done():
			return
		}
		s.lookAtDisk()
	}
}

// lookAtDisk begins and ends the alarm. Messages that wait for the disk count as
// written: they will be. Where the space cannot be told any more, what was known stays.
func (s *Set) lookAtDisk() {
	a := &s.disk
	a.written.Store(0)
	space, known := s.Space()
	if !known {
		return
	}
	now := Disk{Free: space.Free, MinFree: s.minFree(space.Total)}
	enough := now.MinFree
	was := a.state.Load()
	wasLow := was != nil && was.Low
	if wasLow {
		enough += enough / calmShare
	}
	now.Low = now.MinFree > 0 && space.Free-s.uncommitted.Load() < enough
	a.state.Store(&now)
	if now.Low == wasLow {
		return
	}
	data := map[string]any{"free_bytes": now.Free, "min_free_bytes": now.MinFree}
	if now.Low {
		s.Log.Warn("the disk is nearly full: messages are refused, all else goes on",
			"free_bytes", now.Free, "min_free_bytes", now.MinFree)
		s.Event(wire.EventDiskLow, "", wire.Event{Data: data})
		return
	}
	s.Log.Info("the disk has room again: messages are taken", "free_bytes", now.Free, "min_free_bytes", now.MinFree)
	s.Event(wire.EventDiskRecovered, "", wire.Event{Data: data})
}

// noSpace is the [Options].Space of a store that is on no disk.
func noSpace() (store.Space, bool) { return store.Space{}, false }
