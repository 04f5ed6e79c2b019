package store

import (
	"time"

	"go.etcd.io/bbolt"
)

// clock keeps what remains of delays and leases when the wall clock has been set back
// before a store is opened again.
//
// In the file their ends are in steady time: the wall clock plus shift. Whenever the
// wall clock is found behind the time of the last commit, shift grows by the
// difference, so that steady time goes on from there. In memory, and for everybody
// outside of the codec, all times are of the wall clock. What is wall time in the file
// too: not-before times, TTLs, dedupe windows, and when something has happened.
//
// Every commit writes the clock with which it has written the rest. So a crash at any
// moment leaves times and shift that belong together, and none moves twice.
//
// The value is sealed:
//
//	0  i64  the wall clock at the last commit or at Close
//	8  i64  shift
type clock struct {
	last  int64 // as it is in the file; owned by the committer. 0: it is not in the file
	shift int64 // set when the file is opened
	moved bool  // shift is not that of the file yet
}

const (
	clockSize = 16
	// clockSlack is how far back the wall clock may be without that it counts as set
	// back, and how far from the time in the file Close must be to write it again.
	clockSlack = int64(time.Second)
)

func appendClock(dst []byte, c clock) []byte {
	return le.AppendUint64(le.AppendUint64(dst, uint64(c.last)), uint64(c.shift))
}

// openedAt is c as it goes on at now.
func (c clock) openedAt(now int64) clock {
	passed := now - c.last
	switch {
	case passed < -clockSlack:
		c.shift -= passed
	case passed >= c.shift:
		// The wall clock is where it would be had it not been set back: it has been
		// set right, or so much time has passed that nothing ends early by this.
		c.shift = 0
	}
	return c
}

// steady and wall translate the end of a delay or a lease; 0 is none.
func (c *clock) steady(t int64) int64 {
	if t == 0 {
		return 0
	}
	return t + c.shift
}

func (c *clock) wall(t int64) int64 {
	if t == 0 {
		return 0
	}
	return t - c.shift
}

// toWall gives a decoded message the end of its delay by the wall clock.
func (s *Bolt) toWall(m *Message) {
	if m.Delayed {
		m.NotBefore = s.clock.wall(m.NotBefore)
	}
}

// loadClock lets the clock of the file go on.
func (s *Bolt) loadClock(tx *bbolt.Tx) error {
	var c clock
	if meta := tx.Bucket(bucketMeta); meta.Get(keyClock) != nil {
		v, err := s.metaValue(meta, keyClock, clockSize)
		if err != nil {
			return err
		}
		c = clock{last: int64(le.Uint64(v)), shift: int64(le.Uint64(v[8:]))}
	}
	s.clock = c.openedAt(s.o.Now())
	s.clock.moved = s.clock.shift != c.shift
	if back := s.clock.shift - c.shift; back > 0 && s.serving {
		s.o.Logger.Warn("store: the clock has been set back: delays and leases keep what remains of them, other times stay as they are",
			"file", s.path, "by", time.Duration(back).Round(time.Millisecond))
	}
	return nil
}

// writeClock is part of every commit.
func (s *Bolt) writeClock(tx *bbolt.Tx) error {
	s.clock.last, s.clock.moved = s.o.Now(), false
	value := appendClock(s.plan.grab(clockSize), s.clock)
	return tx.Bucket(bucketMeta).Put(keyClock, seal(s.plan.grab(4+clockSize), keyClock, value))
}

// closeClock writes the time of an orderly end: what has passed since the last commit
// counts as well, or since the opening that found the clock set back. Nothing is lost if
// it fails.
func (s *Bolt) closeClock() {
	since := s.o.Now() - s.clock.last
	if s.Err() != nil || !s.clock.moved && since > -clockSlack && since < clockSlack {
		return
	}
	s.plan.reset()
	if err := s.guard("close", func() error { return s.db.Update(s.writeClock) }); err != nil {
		s.o.Logger.Warn("store: the time of the end is not on disk: should the clock be set back now, delays and leases last longer",
			"file", s.path, "error", err)
	}
}
