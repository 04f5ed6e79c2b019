package store

import "iter"

// loc says where a live message lies: the handle of its segment, its slot
// there, and the size of headers and payload. The highest bit of the slot says
// that the message has a State on disk. Handle 0 is no message; pendingSeg is
// one that the running commit adds, its slot counting within the plan.
type loc struct {
	seg, slot, size uint32
}

const (
	pendingSeg = ^uint32(0)
	stateBit   = uint32(1) << 31
)

func (l loc) slotNo() int { return int(l.slot &^ stateBit) }

// seqIndex finds the locations of a queue's live messages by sequence number, in
// 12 bytes per message and without pointers in the bulk of it: fixed chunks,
// found through directories that only span the live range. A chunk goes when
// its last message does.
//
// The committer writes it under Bolt.mu and reads it without; others read it
// under Bolt.mu.
type seqIndex struct {
	base uint64 // number of dirs[0]
	dirs []*seqDir
	live int64
}

const (
	chunkBits = 8
	dirBits   = 10
	spanBits  = chunkBits + dirBits
	maxDirs   = 1 << 20 // live messages of a queue span at most this many directories
)

type (
	seqChunk struct {
		n    int
		locs [1 << chunkBits]loc
	}
	seqDir struct {
		n      int
		chunks [1 << dirBits]*seqChunk
	}
)

func (x *seqIndex) get(seq uint64) (loc, bool) {
	d := seq>>spanBits - x.base
	if d >= uint64(len(x.dirs)) || x.dirs[d] == nil {
		return loc{}, false
	}
	c := x.dirs[d].chunks[seq>>chunkBits&(1<<dirBits-1)]
	if c == nil {
		return loc{}, false
	}
	l := c.locs[seq&(1<<chunkBits-1)]
	return l, l.seg != 0
}

// fits says whether seq can be put without stretching the directory beyond all
// proportion.
func (x *seqIndex) fits(seq uint64) bool {
	if len(x.dirs) == 0 {
		return true
	}
	d := seq >> spanBits
	if d < x.base {
		return x.base+uint64(len(x.dirs))-d <= maxDirs
	}
	return d-x.base < maxDirs
}

// put sets the location of seq, which fits.
func (x *seqIndex) put(seq uint64, l loc) {
	d := seq >> spanBits
	switch {
	case len(x.dirs) == 0:
		x.base = d
	case d < x.base:
		x.dirs = append(make([]*seqDir, x.base-d), x.dirs...)
		x.base = d
	}
	for uint64(len(x.dirs)) <= d-x.base {
		x.dirs = append(x.dirs, nil)
	}
	dir := x.dirs[d-x.base]
	if dir == nil {
		dir = new(seqDir)
		x.dirs[d-x.base] = dir
	}
	slot := &dir.chunks[seq>>chunkBits&(1<<dirBits-1)]
	if *slot == nil {
		*slot = new(seqChunk)
		dir.n++
	}
	p := &(*slot).locs[seq&(1<<chunkBits-1)]
	if p.seg == 0 {
		(*slot).n++
		x.live++
	}
	*p = l
}

func (x *seqIndex) del(seq uint64) {
	d := seq>>spanBits - x.base
	if d >= uint64(len(x.dirs)) || x.dirs[d] == nil {
		return
	}
	dir := x.dirs[d]
	slot := &dir.chunks[seq>>chunkBits&(1<<dirBits-1)]
	if *slot == nil || (*slot).locs[seq&(1<<chunkBits-1)].seg == 0 {
		return
	}
	(*slot).locs[seq&(1<<chunkBits-1)] = loc{}
	x.live--
	if (*slot).n--; (*slot).n > 0 {
		return
	}
	*slot = nil
	if dir.n--; dir.n > 0 {
		return
	}
	x.dirs[d] = nil
	lead := 0
	for lead < len(x.dirs) && x.dirs[lead] == nil {
		lead++
	}
	x.base += uint64(lead)
	if x.dirs = x.dirs[lead:]; len(x.dirs) == 0 {
		x.dirs = nil
	}
}

// all yields the live messages by sequence number. It is not safe against
// changes but the deletion of what was yielded.
func (x *seqIndex) all() iter.Seq2[uint64, loc] {
	return func(yield func(uint64, loc) bool) {
		base, dirs := x.base, x.dirs
		for d, dir := range dirs {
			if dir == nil {
				continue
			}
			for i := range dir.chunks {
				c := dir.chunks[i]
				if c == nil {
					continue
				}
				for j := range c.locs {
					if c.locs[j].seg == 0 {
						continue
					}
					seq := (base+uint64(d))<<spanBits | uint64(i)<<chunkBits | uint64(j)
					if !yield(seq, c.locs[j]) {
						return
					}
				}
			}
		}
	}
}

// memory returns about how many bytes the index takes.
func (x *seqIndex) memory() int64 {
	n := int64(cap(x.dirs)) * 8
	for _, d := range x.dirs {
		if d != nil {
			n += 8 + 8<<dirBits + int64(d.n)*(8+12<<chunkBits)
		}
	}
	return n
}
