package ordered

import (
	"iter"
	"slices"
	"sort"
	"strings"
)

// blockSize is how many keys a block holds before it is split.
const blockSize = 512

// Map keeps values by key. The zero value is empty.
type Map[V any] struct {
	blocks []block[V] // in order, none empty; all keys of a block are before the keys of the next one
	n      int
}

// block is some of the keys, in order, and their values.
type block[V any] struct {
	keys   []string
	values []V
}

// Set is a set of strings. The zero value is empty.
type Set struct{ Map[struct{}] }

// Add adds a key, unless it is there.
func (s *Set) Add(key string) { s.Put(key, struct{}{}) }

// Cursor is a place in a [Map]. The zero value is the first one.
type Cursor struct{ block, place int }

// Page is a part of a [Map].
type Page struct {
	Keys  []string // in order
	Total int      // keys with the requested prefix
	Next  string   // the last of Keys if more follow it, otherwise empty
}

// Len is the number of keys.
func (m *Map[V]) Len() int { return m.n }

// Get returns the value of a key, and whether the key is there.
func (m *Map[V]) Get(key string) (value V, ok bool) {
	b, i, found := m.find(key)
	if !found {
		return value, false
	}
	return m.blocks[b].values[i], true
}

// Put gives a key a value, instead of the one that it may have.
func (m *Map[V]) Put(key string, value V) {
	b, i, found := m.find(key)
	if found {
		m.blocks[b].values[i] = value
		return
	}
	m.n++
	if len(m.blocks) == 0 {
		m.blocks = append(m.blocks, block[V]{[]string{key}, []V{value}})
		return
	}
	if b == len(m.blocks) { // after all others
		b--
		i = len(m.blocks[b].keys)
	}
	at := &m.blocks[b]
	at.keys, at.values = slices.Insert(at.keys, i, key), slices.Insert(at.values, i, value)
	if len(at.keys) < blockSize {
		return
	}
	// Copy both halves: the first one would keep room that is never used where keys come in order.
	low, high := at.part(0, blockSize/2), at.part(blockSize/2, blockSize)
	m.blocks[b] = low
	m.blocks = slices.Insert(m.blocks, b+1, high)
}

// part is a copy of the entries from one place up to another.
func (b *block[V]) part(from, to int) block[V] {
	return block[V]{slices.Clone(b.keys[from:to:to]), slices.Clone(b.values[from:to:to])}
}

// Remove removes a key, if it is there.
func (m *Map[V]) Remove(key string) {
	b, i, found := m.find(key)
	if !found {
		return
	}
	m.n--
	at := &m.blocks[b]
	at.keys, at.values = slices.Delete(at.keys, i, i+1), slices.Delete(at.values, i, i+1)
	// Merge a block with few keys into its neighbour, so that blocks do not waste memory.
	switch n := len(at.keys); {
	case n == 0:
		m.blocks = slices.Delete(m.blocks, b, b+1)
	case n < blockSize/4 && b > 0 && len(m.blocks[b-1].keys)+n < blockSize/2:
		m.join(b - 1)
	case n < blockSize/4 && b+1 < len(m.blocks) && len(m.blocks[b+1].keys)+n < blockSize/2:
		m.join(b)
	}
}

// join puts the block after b into it.
func (m *Map[V]) join(b int) {
	at, next := &m.blocks[b], &m.blocks[b+1]
	at.keys, at.values = append(at.keys, next.keys...), append(at.values, next.values...)
	m.blocks = slices.Delete(m.blocks, b+1, b+2)
}

// Next returns the entry at c and moves c to the one after it, from the last to the
// first. An entry that is added or removed between two calls may be skipped once, or met twice.
// ok is false if there is none at all.
func (m *Map[V]) Next(c *Cursor) (key string, value V, ok bool) {
	if m.n == 0 {
		return "", value, false
	}
	if c.block < len(m.blocks) && c.place >= len(m.blocks[c.block].keys) {
		c.block, c.place = c.block+1, 0
	}
	if c.block >= len(m.blocks) {
		*c = Cursor{}
	}
	at := &m.blocks[c.block]
	key, value = at.keys[c.place], at.values[c.place]
	c.place++
	return key, value, true
}

// From returns the entries whose keys begin with prefix, in order. Values may be
// replaced meanwhile; no key may come or go.
func (m *Map[V]) From(prefix string) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		b, i, _ := m.find(prefix)
		for ; b < len(m.blocks); b, i = b+1, 0 {
			at := &m.blocks[b]
			for ; i < len(at.keys); i++ {
				if !strings.HasPrefix(at.keys[i], prefix) || !yield(at.keys[i], at.values[i]) {
					return
				}
			}
		}
	}
}

// Page returns up to limit keys that begin with prefix. It begins after the key after, unless that
// is empty, and leaves out the first offset keys. The key after need not exist any more.
func (m *Map[V]) Page(prefix, after string, offset, limit int) Page {
	low, high := m.rank(prefix), m.n
	if end := afterPrefix(prefix); end != "" {
		high = m.rank(end)
	}
	from := low
	if after != "" {
		from = max(low, m.rank(after+"\x00")) // nothing is between a key and that
	}
	from += min(offset, max(0, high-from))
	left := min(limit, max(0, high-from))
	p, more := Page{Total: high - low}, from+left < high
	for _, at := range m.blocks {
		if left == 0 {
			break
		}
		if from >= len(at.keys) {
			from -= len(at.keys)
			continue
		}
		part := at.keys[from:min(len(at.keys), from+left)]
		p.Keys = append(p.Keys, part...)
		left -= len(part)
		from = 0
	}
	if n := len(p.Keys); n > 0 && more {
		p.Next = p.Keys[n-1]
	}
	return p
}

// find returns the block that a key is in, or would be, and its place there. A key
// after all others would be in a block after the last.
func (m *Map[V]) find(key string) (block, place int, found bool) {
	block = sort.Search(len(m.blocks), func(b int) bool {
		keys := m.blocks[b].keys
		return keys[len(keys)-1] >= key
	})
	if block == len(m.blocks) {
		return block, 0, false
	}
	place, found = slices.BinarySearch(m.blocks[block].keys, key)
	return block, place, found
}

// rank is how many keys are before a key.
func (m *Map[V]) rank(key string) int {
	block, n, _ := m.find(key)
	for _, at := range m.blocks[:block] {
		n += len(at.keys)
	}
	return n
}

// afterPrefix returns the first string after all strings that begin with prefix; empty if there is
// none.
func afterPrefix(prefix string) string {
	end := []byte(prefix)
	for len(end) > 0 && end[len(end)-1] == 0xff {
		end = end[:len(end)-1]
	}
	if len(end) > 0 {
		end[len(end)-1]++
	}
	return string(end)
}
