package shard

import (
	"sync/atomic"
	"time"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Disk is the state of the disk of the store.
type Disk struct {
	Free    int64 // bytes
	MinFree int64 // bytes; 0: there is no alarm
	Low     bool  // less than MinFree is free: messages are refused
}

// alarm refuses new messages while the disk is nearly full, so that stored ones can still be
// delivered, acked and deleted. A failed commit would end all of that.
type alarm struct {
	state   atomic.Pointer[Disk] // nil: not known
	written atomic.Int64         // bytes of messages that were committed since the last check
	check   chan struct{}        // holds one token to ask for a check now
}

const (
	// AutoMinFree as [Options].MinFreeBytes means autoMinFree, or one in autoMinFreeShare of
	// the disk if that is less.
	AutoMinFree      = -1
	autoMinFree      = 256 << 20
	autoMinFreeShare = 20

	// The disk is checked once in diskInterval and after every diskBytes, since the alarm
	// cannot see a disk that fills up in between.
	diskInterval = time.Second
	diskBytes    = 16 << 20

	// calmShare: the alarm ends when 1/calmShare of MinFree more is free. Without that,
	// it would toggle with every page.
	calmShare = 4
)

// minFree returns how much has to stay free on a disk of a size.
func (o *Options) minFree(total int64) int64 {
	if o.MinFreeBytes == AutoMinFree {
		return min(autoMinFree, total/autoMinFreeShare)
	}
	return o.MinFreeBytes
}

// Disk returns the state of the disk at the last check; nil: not known.
func (s *Set) Disk() *Disk { return s.disk.state.Load() }

// wrote counts the bytes of a commit.
func (a *alarm) wrote(bytes int64) {
	if bytes > 0 && a.written.Add(bytes) >= diskBytes {
		select {
		case a.check <- struct{}{}:
		default:
		}
	}
}

// watchDisk checks the disk until the set ends.
func (s *Set) watchDisk() {
	tick := time.NewTicker(diskInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.disk.check:
		case <-s.ended.Done():
			return
		}
		s.checkDisk()
	}
}

// checkDisk starts and ends the alarm. It treats messages that wait for a commit as written.
// If the space is not known any more, the state stays.
func (s *Set) checkDisk() {
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
		s.Log.Warn("the disk is nearly full: messages are refused, everything else continues",
			"free_bytes", now.Free, "min_free_bytes", now.MinFree)
		s.Event(wire.EventDiskLow, "", wire.Event{Data: data})
		return
	}
	s.Log.Info("the disk has room again: messages are accepted", "free_bytes", now.Free, "min_free_bytes", now.MinFree)
	s.Event(wire.EventDiskRecovered, "", wire.Event{Data: data})
}

// noSpace is [Options].Space for a store that is not on a disk.
func noSpace() (store.Space, bool) { return store.Space{}, false }
