package fleet

import (
	"cmp"
	"slices"
	"time"
)

// beat is one of this instance: when it was sent and written, by this host's clock.
type beat struct {
	rev        uint64
	sent, done int64
	err        error
}

// offset is what a beat that was stored at a time tells of the fleet's clock.
func (b *beat) offset(at time.Time) int64 { return at.UnixNano() - b.sent - (b.done-b.sent)/2 }

// clock learns the fleet's clock from beats: of the last few the one that was answered
// fastest knows it best. A beat and its echo come in any order.
type clock struct {
	asked   beat
	echoed  Entry
	samples []sample
}

type sample struct{ took, offset int64 }

const maxSamples = 8

func (c *clock) beat(b beat) (offset int64, known bool) {
	c.asked = b
	return c.match()
}

func (c *clock) echo(e Entry) (offset int64, known bool) {
	c.echoed = e
	return c.match()
}

func (c *clock) match() (offset int64, known bool) {
	if c.asked.rev == 0 || c.asked.rev != c.echoed.Rev {
		return 0, false
	}
	c.samples = append(c.samples, sample{c.asked.done - c.asked.sent, c.asked.offset(c.echoed.At)})
	if len(c.samples) > maxSamples {
		c.samples = c.samples[1:]
	}
	return slices.MinFunc(c.samples, func(a, b sample) int { return cmp.Compare(a.took, b.took) }).offset, true
}
