package throttle

import "slices"

// prefixes has the limits of keys by prefix. A lookup takes time in proportion to
// the number of different lengths, not to the number of prefixes.
type prefixes struct {
	limits  map[string]Limits
	used    map[string]bool // prefixes whose limits a key has used
	lengths []prefixLength  // the longest first
}

// prefixLength counts the prefixes of one length.
type prefixLength struct{ length, prefixes int }

// of returns the limits of the longest prefix of a key, or zero Limits.
func (p *prefixes) of(key string) Limits {
	l, _ := p.longest(key, -1)
	return l
}

// longest returns the limits of the longest prefix of a key whose length is not
// except, and its length, or -1.
func (p *prefixes) longest(key string, except int) (Limits, int) {
	for _, n := range p.lengths {
		if n.length > len(key) || n.length == except {
			continue
		}
		if l, ok := p.limits[key[:n.length]]; ok {
			return l, n.length
		}
	}
	return Limits{}, -1
}

// use marks the longest prefix of a key as used.
func (p *prefixes) use(key string) {
	if _, n := p.longest(key, -1); n >= 0 {
		p.used[key[:n]] = true
	}
}

// set gives a prefix limits and returns its old ones. Zero Limits remove them.
func (p *prefixes) set(prefix string, l Limits) (old Limits) {
	old = p.limits[prefix]
	if l == (Limits{}) {
		delete(p.limits, prefix)
		delete(p.used, prefix)
	} else {
		p.limits[prefix] = l
	}
	i, found := slices.BinarySearchFunc(p.lengths, len(prefix), func(n prefixLength, length int) int { return length - n.length })
	if !found {
		p.lengths = slices.Insert(p.lengths, i, prefixLength{length: len(prefix)})
	}
	n := &p.lengths[i]
	if old != (Limits{}) {
		n.prefixes--
	}
	if l != (Limits{}) {
		n.prefixes++
	}
	if n.prefixes == 0 {
		p.lengths = slices.Delete(p.lengths, i, i+1)
	}
	return old
}
