package drr

import (
	"maps"
	"slices"
)

// Clone returns a copy of the scheduler, which decides as the original would from here on
// and does not change it. It copies 64 bytes for each flow.
func (s *Scheduler) Clone() *Scheduler {
	c := *s
	c.flows = flowSlab{chunks: slices.Clone(s.flows.chunks), active: slices.Clone(s.flows.active), used: s.flows.used}
	for i, chunk := range c.flows.chunks {
		if chunk != nil {
			flows := *chunk
			c.flows.chunks[i] = &flows
		}
	}
	if s.wheel != nil {
		w := *s.wheel
		c.wheel = &w
	}
	return &c
}

// Clone returns a copy of the line, which serves as the original would from here on and
// does not change it.
func (l *Line) Clone() *Line {
	c := *l
	c.flows, c.lanes = slices.Clone(l.flows), slices.Clone(l.lanes)
	if l.index != nil {
		x := *l.index
		x.flows, x.lanes, x.heap = maps.Clone(x.flows), maps.Clone(x.lanes), slices.Clone(x.heap)
		c.index = &x
	}
	return &c
}
