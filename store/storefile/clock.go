package storefile

import (
	"time"

	"go.etcd.io/bbolt"
)

// Clock preserves the remaining time of delays and leases if the wall clock was set
// back before a store is opened again.
//
// In the file their ends are in steady time: the wall clock plus Shift. Whenever the
// wall clock is behind the time of the last commit, Shift grows by the difference, so
// that steady time continues from there. In memory, and everywhere outside of the
// file, all times are of the wall clock. In the file, not-before times, TTLs, dedupe
// windows and times of past events are wall time, too.
//
// Every commit writes the clock with which it wrote its other times. So after a crash
// at any moment times and Shift belong together, and no time moves twice.
//
// The value is sealed:
//
//	0  i64  the wall clock at the last commit or at Close
//	8  i64  shift
type Clock struct {
	Last  int64 // as in the file; 0: not in the file
	Shift int64 // set when the file is opened
	Moved bool  // Shift differs from the file
}

const (
	// ClockSize is the size of an encoded clock.
	ClockSize = 16
	// ClockSlack is how far the wall clock may be behind without counting as set back.
	ClockSlack = int64(time.Second)
)

// AppendClock encodes a clock.
func AppendClock(dst []byte, c Clock) []byte {
	return le.AppendUint64(le.AppendUint64(dst, uint64(c.Last)), uint64(c.Shift))
}

// openedAt continues the clock of a file at now.
func (c Clock) openedAt(now int64) Clock {
	passed := now - c.Last
	switch {
	case passed < -ClockSlack:
		c.Shift -= passed
	case passed >= c.Shift:
		// The wall clock was corrected, or so much time has passed that no delay or
		// lease ends early by this.
		c.Shift = 0
	}
	return c
}

// Steady converts the end of a delay or a lease to steady time; 0 is none.
func (c *Clock) Steady(t int64) int64 {
	if t == 0 {
		return 0
	}
	return t + c.Shift
}

// Wall converts the end of a delay or a lease to wall time; 0 is none.
func (c *Clock) Wall(t int64) int64 {
	if t == 0 {
		return 0
	}
	return t - c.Shift
}

// WallMessage converts the end of the delay of a decoded message to wall time.
func (c *Clock) WallMessage(m *Message) {
	if m.Delayed {
		m.NotBefore = c.Wall(m.NotBefore)
	}
}

// ReadClock continues the clock of the file at now, and returns by how much the wall
// clock was set back since the last commit.
func (p Path) ReadClock(tx *bbolt.Tx, now int64) (c Clock, back int64, err error) {
	var old Clock
	if meta := tx.Bucket(BucketMeta); meta.Get(KeyClock) != nil {
		v, err := p.metaValue(meta, KeyClock, ClockSize)
		if err != nil {
			return c, 0, err
		}
		old = Clock{Last: int64(le.Uint64(v)), Shift: int64(le.Uint64(v[8:]))}
	}
	c = old.openedAt(now)
	c.Moved = c.Shift != old.Shift
	return c, c.Shift - old.Shift, nil
}
