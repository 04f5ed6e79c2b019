package ordered

import (
	"slices"
	"sort"
)

// blockSize is how many keys a block holds before it is split.
const blockSize = 512

// Set is a set of strings. The zero value is empty.
type Set struct {
	blocks [][]string // in order, none empty; all keys of one are before those of the next
	n      int
}

// Page is a part of a [Set].
type Page struct {
	Keys  []string // in order
	Total int      // keys with the prefix that was asked for
	Next  string   // the last of Keys if more follow it, otherwise empty
}

// Len is the number of keys.
func (s *Set) Len() int { return s.n }

// Add adds a key, unless it is there.
func (s *Set) Add(key string) {
	b, i, found := s.find(key)
	if found {
		return
	}
	s.n++
	if len(s.blocks) == 0 {
		s.blocks = append(s.blocks, []string{key})
		return
	}
	if b == len(s.blocks) { // after all others
		b--
		i = len(s.blocks[b])
	}
	block := slices.Insert(s.blocks[b], i, key)
	s.blocks[b] = block
	if len(block) < blockSize {
		return
	}
	half := len(block) / 2
	s.blocks = slices.Insert(s.blocks, b+1, slices.Clone(block[half:]))
	clear(block[half:])
	s.blocks[b] = block[:half]
}

// Remove removes a key, if it is there.
func (s *Set) Remove(key string) {
	b, i, found := s.find(key)
	if !found {
		return
	}
	s.n--
	s.blocks[b] = slices.Delete(s.blocks[b], i, i+1)
	// A block with few keys goes into its neighbour: so they stay as full as not to
	// waste memory.
	switch n := len(s.blocks[b]); {
	case n == 0:
		s.blocks = slices.Delete(s.blocks, b, b+1)
	case n < blockSize/4 && b > 0 && len(s.blocks[b-1])+n < blockSize/2:
		s.join(b - 1)
	case n < blockSize/4 && b+1 < len(s.blocks) && len(s.blocks[b+1])+n < blockSize/2:
		s.join(b)
	}
}

// join puts the block after b into it.
func (s *Set) join(b int) {
	s.blocks[b] = append(s.blocks[b], s.blocks[b+1]...)
	s.blocks = slices.Delete(s.blocks, b+1, b+2)
}

// Page returns up to limit keys that begin with prefix, from the first one after
// the key after on, unless that is empty, and without the first offset of those.
// The key after need not be there any more.
func (s *Set) Page(prefix, after string, offset, limit int) Page {
	low, high := s.rank(prefix), s.n
	if end := afterPrefix(prefix); end != "" {
		high = s.rank(end)
	}
	from := low
	if after != "" {
		from = max(low, s.rank(after+"\x00")) // nothing is between a key and that
	}
	from += min(offset, max(0, high-from))
	left := min(limit, max(0, high-from))
	p, more := Page{Total: high - low}, from+left < high
	for _, block := range s.blocks {
		if left == 0 {
			break
		}
		if from >= len(block) {
			from -= len(block)
			continue
		}
		part := block[from:min(len(block), from+left)]
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
func (s *Set) find(key string) (block, place int, found bool) {
	block = sort.Search(len(s.blocks), func(b int) bool {
		keys := s.blocks[b]
		return keys[len(keys)-1] >= key
	})
	if block == len(s.blocks) {
		return block, 0, false
	}
	place, found = slices.BinarySearch(s.blocks[block], key)
	return block, place, found
}

// rank is how many keys are before a key.
func (s *Set) rank(key string) int {
	block, n, _ := s.find(key)
	for _, keys := range s.blocks[:block] {
		n += len(keys)
	}
	return n
}

// afterPrefix is the first string after all those that begin with prefix; empty if
// there is none.
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
