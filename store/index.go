package store

import (
	"iter"
	"maps"
	"slices"
)

// loc is the location of a live message: the handle of its segment, its slot there, and the
// size of headers and payload. The highest bits of the slot mark a message with a State and
// with a history. Handle 0 is no message. With pendingSeg the running commit adds the
// message, and slot is its index in the plan.
type loc struct {
	seg, slot, size uint32
}

const (
	pendingSeg = ^uint32(0)
	stateBit   = uint32(1) << 31
	historyBit = uint32(1) << 30
	slotBits   = stateBit | historyBit // of slot, that are no part of its number
)

func (l loc) slotNo() int { return int(l.slot &^ slotBits) }

// seqIndex maps the sequence numbers of the live messages of a queue to their locations, in
// 13 bytes per message and almost without pointers. It has directories of small chunks, so
// that a long-lived message keeps little memory. A chunk is freed with its last message.
//
// The committer writes it under Bolt.mu and reads it without; others read it under Bolt.mu.
type seqIndex struct {
	dirs map[uint64]*seqDir // by sequence>>spanBits
	live int64
}

const (
	chunkBits = 4
	dirBits   = 10
	dirChunks = 1 << dirBits
	spanBits  = chunkBits + dirBits
)

type (
	seqChunk [1 << chunkBits]loc
	seqDir   struct {
		chunks [dirChunks]*seqChunk
		live   [dirChunks]uint8 // messages of the chunk
		n      int              // chunks
	}
)

func (x *seqIndex) get(seq uint64) (loc, bool) {
	d := x.dirs[seq>>spanBits]
	if d == nil {
		return loc{}, false
	}
	c := d.chunks[seq>>chunkBits&(dirChunks-1)]
	if c == nil {
		return loc{}, false
	}
	l := c[seq&(1<<chunkBits-1)]
	return l, l.seg != 0
}

// put sets the location of seq.
func (x *seqIndex) put(seq uint64, l loc) {
	d := x.dirs[seq>>spanBits]
	if d == nil {
		if x.dirs == nil {
			x.dirs = make(map[uint64]*seqDir)
		}
		d = new(seqDir)
		x.dirs[seq>>spanBits] = d
	}
	i := seq >> chunkBits & (dirChunks - 1)
	if d.chunks[i] == nil {
		d.chunks[i] = new(seqChunk)
		d.n++
	}
	p := &d.chunks[i][seq&(1<<chunkBits-1)]
	if p.seg == 0 {
		d.live[i]++
		x.live++
	}
	*p = l
}

func (x *seqIndex) del(seq uint64) {
	if _, ok := x.get(seq); !ok {
		return
	}
	d, i := x.dirs[seq>>spanBits], seq>>chunkBits&(dirChunks-1)
	d.chunks[i][seq&(1<<chunkBits-1)] = loc{}
	x.live--
	if d.live[i]--; d.live[i] > 0 {
		return
	}
	d.chunks[i] = nil
	if d.n--; d.n == 0 {
		delete(x.dirs, seq>>spanBits)
	}
}

// all yields the live messages by sequence number. Meanwhile only yielded messages may be
// deleted.
func (x *seqIndex) all() iter.Seq2[uint64, loc] {
	return func(yield func(uint64, loc) bool) {
		for _, no := range slices.Sorted(maps.Keys(x.dirs)) {
			for i, c := range &x.dirs[no].chunks {
				if c == nil {
					continue
				}
				for j, l := range c {
					seq := no<<spanBits | uint64(i)<<chunkBits | uint64(j)
					if l.seg != 0 && !yield(seq, l) {
						return
					}
				}
			}
		}
	}
}

// memory returns the approximate size of the index in bytes.
func (x *seqIndex) memory() int64 {
	var n int64
	for _, d := range x.dirs {
		n += dirBytes + int64(d.n)*(12<<chunkBits)
	}
	return n
}

// dirBytes is the allocated size of a directory.
const dirBytes = 9472
