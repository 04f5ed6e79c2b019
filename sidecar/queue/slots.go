package queue

import (
	"maps"
	"math"
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/store"
)

// slotState says where a message is.
//
//	new     -> ready | delayed
//	delayed -> ready                       its time has come
//	ready: waiting | ordered               or its key is taken
//	ordered -> waiting                     its predecessors are done
//	waiting -> leased                      delivered
//	leased  -> waiting                     taken back: nobody received it
//	leased  -> failing | ready | delayed   nack or expiry, to be judged or not
//	failing -> ready | delayed             the verdict is there
//	any     -> moving                      on its way to the other side, or gone
//	waiting -> moving -> waiting           a redrive that had to stop
//
// A waiting message is blocked or not as its subqueue is.
type slotState uint8

const (
	slotFree slotState = iota
	slotDelayed
	slotWaiting
	slotOrdered
	slotLeased
	slotFailing
	slotMoving // in no place: it is just being put into one, or on its way
)

// slot is what is kept in memory of one message. It has no pointers, so
// that the garbage collector never walks a backlog.
type slot struct {
	id         store.ID
	enqueuedAt int64
	readyAt    int64 // when it became, or becomes, pending
	size       uint32
	attempts   uint32 // ended ones
	cost       uint32 // thousandths
	flow       drr.Flow
	sub        subID
	ref        uint32 // waiting, ordered: its link; leased: index of the lease
	state      slotState
	stored     bool // the store has a State of it that differs from "fresh"
	open       bool // its Add is in the open commit
	owns       bool // it owns its fairness key, see keyOrder
	ttl        bool // it has a TTL, see slotTable.expiresAt
}

// Slots lie in chunks of 1 KiB, so that one that stays long holds few others, and
// chunks in directories.
const (
	chunkBits = 4
	chunkSize = 1 << chunkBits
	dirBits   = 10
	dirChunks = 1 << dirBits
	spanBits  = chunkBits + dirBits

	spareChunks = 16
)

type slotChunk [chunkSize]slot

// slotDir is where the chunks of so many sequences are.
type slotDir struct {
	chunks [dirChunks]*slotChunk // nil: none live
	live   [dirChunks]uint8      // messages of the chunk
	n      int                   // chunks
}

// slotTable finds a slot by sequence. What it takes is measured by the messages
// that live, not by those between them; sequences are dense, as a rule.
type slotTable struct {
	dirs   map[uint64]*slotDir // by sequence>>spanBits; only the newest may be empty
	newest uint64
	last   *slotDir // the one that was looked for last
	lastNo uint64
	live   int64
	spare  []*slotChunk
	ends   map[uint64]int64 // of messages with a TTL; most have none
}

// add makes room for seq and returns its slot, which is in no place yet.
func (t *slotTable) add(seq uint64) *slot {
	d := t.dir(seq >> spanBits)
	if d == nil {
		d = t.newDir(seq >> spanBits)
	}
	i := seq >> chunkBits & (dirChunks - 1)
	c := d.chunks[i]
	if c == nil {
		if n := len(t.spare); n > 0 {
			c, t.spare = t.spare[n-1], t.spare[:n-1]
		} else {
			c = new(slotChunk)
		}
		d.chunks[i] = c
		d.n++
	}
	d.live[i]++
	t.live++
	s := &c[seq&(chunkSize-1)]
	*s = slot{state: slotMoving}
	return s
}

// dir returns directory no, or nil.
func (t *slotTable) dir(no uint64) *slotDir {
	if t.last != nil && t.lastNo == no {
		return t.last
	}
	d := t.dirs[no]
	if d != nil {
		t.last, t.lastNo = d, no
	}
	return d
}

// newDir adds directory no, which is the newest one but for a late message.
func (t *slotTable) newDir(no uint64) *slotDir {
	if t.dirs == nil {
		t.dirs = make(map[uint64]*slotDir)
	}
	var d *slotDir
	if old := t.dirs[t.newest]; old != nil && old.n == 0 {
		d = old
		delete(t.dirs, t.newest)
	} else {
		d = new(slotDir)
	}
	if len(t.dirs) == 0 || no > t.newest {
		t.newest = no
	}
	t.dirs[no] = d
	t.last, t.lastNo = d, no
	return d
}

// get returns the slot of seq, or nil when the queue has no such message.
func (t *slotTable) get(seq uint64) *slot {
	d := t.dir(seq >> spanBits)
	if d == nil {
		return nil
	}
	c := d.chunks[seq>>chunkBits&(dirChunks-1)]
	if c == nil {
		return nil
	}
	if s := &c[seq&(chunkSize-1)]; s.state != slotFree {
		return s
	}
	return nil
}

// expire notes when message seq, which has a TTL, expires.
func (t *slotTable) expire(seq uint64, s *slot, at int64) {
	if t.ends == nil {
		t.ends = make(map[uint64]int64)
	}
	s.ttl = true
	t.ends[seq] = at
}

// expiresAt is when message seq expires; 0: never.
func (t *slotTable) expiresAt(seq uint64, s *slot) int64 {
	if !s.ttl {
		return 0
	}
	return t.ends[seq]
}

// expired reports whether the TTL of message seq is over.
func (t *slotTable) expired(seq uint64, s *slot, now int64) bool {
	return s.ttl && t.ends[seq] <= now
}

// remove forgets seq, which must be there.
func (t *slotTable) remove(seq uint64) {
	no, i := seq>>spanBits, seq>>chunkBits&(dirChunks-1)
	d := t.dir(no)
	c := d.chunks[i]
	s := &c[seq&(chunkSize-1)]
	if s.ttl {
		delete(t.ends, seq)
		if len(t.ends) == 0 {
			t.ends = nil // a map keeps the size that it once had
		}
	}
	*s = slot{}
	t.live--
	if d.live[i]--; d.live[i] > 0 {
		return
	}
	d.chunks[i] = nil
	if len(t.spare) < spareChunks {
		t.spare = append(t.spare, c)
	}
	if d.n--; d.n == 0 && no != t.newest {
		delete(t.dirs, no)
		t.last = nil
	}
}

// from calls fn for every message with a sequence of at least seq, in order,
// until fn returns false. fn must not add or remove.
func (t *slotTable) from(seq uint64, fn func(seq uint64, s *slot) bool) {
	for _, no := range slices.Sorted(maps.Keys(t.dirs)) {
		if no < seq>>spanBits {
			continue
		}
		for i, c := range &t.dirs[no].chunks {
			n := no<<dirBits | uint64(i)
			if c == nil || n < seq>>chunkBits {
				continue
			}
			for j := range c {
				at := n<<chunkBits | uint64(j)
				if c[j].state != slotFree && at >= seq && !fn(at, &c[j]) {
					return
				}
			}
		}
	}
}

// oldest is the enqueue time of the message with the lowest sequence; 0 when
// there is none.
func (t *slotTable) oldest() int64 {
	first := uint64(math.MaxUint64)
	for no, d := range t.dirs {
		if d.n > 0 {
			first = min(first, no)
		}
	}
	if first == math.MaxUint64 {
		return 0
	}
	for _, c := range &t.dirs[first].chunks {
		if c == nil {
			continue
		}
		for i := range c {
			if c[i].state != slotFree {
				return c[i].enqueuedAt
			}
		}
	}
	return 0
}
