package container

import (
	"iter"
	"maps"
	"math/bits"
	"slices"
)

// Values lie in chunks of 16, so that one that stays long holds few others, and chunks
// in directories.
const (
	chunkBits = 4
	chunkSize = 1 << chunkBits
	dirBits   = 10
	dirChunks = 1 << dirBits
	spanBits  = chunkBits + dirBits

	spareChunks = 16
)

// directory finds the chunks of a range of sequences.
type directory[V any] struct {
	chunks [dirChunks]*[chunkSize]V // nil: without values
	used   [dirChunks]uint16        // bit i of used[c]: chunks[c][i] is a value
	n      int                      // chunks
}

// Table holds a value for each of many sequences. Its memory is bounded by the
// values that it has, not by the gaps between their sequences, which are dense as a
// rule. The zero value is an empty table.
type Table[V any] struct {
	dirs   map[uint64]*directory[V] // by sequence>>spanBits; only the newest may be empty
	newest uint64
	last   *directory[V] // the one that was looked for last
	lastNo uint64
	n      int64
	spare  []*[chunkSize]V // of zero values
}

// Len is the number of values.
func (t *Table[V]) Len() int64 { return t.n }

// Add makes room for seq, which must not be there, and returns its value: a zero one.
func (t *Table[V]) Add(seq uint64) *V {
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
			c = new([chunkSize]V)
		}
		d.chunks[i] = c
		d.n++
	}
	d.used[i] |= 1 << (seq & (chunkSize - 1))
	t.n++
	return &c[seq&(chunkSize-1)]
}

// dir returns directory no, or nil.
func (t *Table[V]) dir(no uint64) *directory[V] {
	if t.last != nil && t.lastNo == no {
		return t.last
	}
	d := t.dirs[no]
	if d != nil {
		t.last, t.lastNo = d, no
	}
	return d
}

// newDir adds directory no, which is the newest one but for a late sequence.
func (t *Table[V]) newDir(no uint64) *directory[V] {
	if t.dirs == nil {
		t.dirs = make(map[uint64]*directory[V])
	}
	var d *directory[V]
	if old := t.dirs[t.newest]; old != nil && old.n == 0 {
		d = old
		delete(t.dirs, t.newest)
	} else {
		d = new(directory[V])
	}
	if len(t.dirs) == 0 || no > t.newest {
		t.newest = no
	}
	t.dirs[no] = d
	t.last, t.lastNo = d, no
	return d
}

// Get returns the value of seq, or nil if there is none.
func (t *Table[V]) Get(seq uint64) *V {
	d := t.dir(seq >> spanBits)
	if d == nil {
		return nil
	}
	i := seq >> chunkBits & (dirChunks - 1)
	if d.used[i]>>(seq&(chunkSize-1))&1 == 0 {
		return nil
	}
	return &d.chunks[i][seq&(chunkSize-1)]
}

// Remove forgets seq, which must be there.
func (t *Table[V]) Remove(seq uint64) {
	no, i := seq>>spanBits, seq>>chunkBits&(dirChunks-1)
	d := t.dir(no)
	c := d.chunks[i]
	var zero V
	c[seq&(chunkSize-1)] = zero
	t.n--
	if d.used[i] &^= 1 << (seq & (chunkSize - 1)); d.used[i] != 0 {
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

// From yields the values of sequences of at least seq, in order. Nothing may be added or
// removed meanwhile.
func (t *Table[V]) From(seq uint64) iter.Seq2[uint64, *V] {
	return func(yield func(uint64, *V) bool) {
		for _, no := range slices.Sorted(maps.Keys(t.dirs)) {
			if no < seq>>spanBits {
				continue
			}
			d := t.dirs[no]
			for i, c := range &d.chunks {
				first := (no<<dirBits | uint64(i)) << chunkBits
				for left := d.used[i]; left != 0; left &= left - 1 {
					j := uint64(bits.TrailingZeros16(left))
					if first+j >= seq && !yield(first+j, &c[j]) {
						return
					}
				}
			}
		}
	}
}
