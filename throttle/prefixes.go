package throttle

import "slices"

// prefixes are the limits of keys by how they begin. What finding them costs grows
// with how many lengths there are among the prefixes, not with how many prefixes.
type prefixes struct {
	limits  map[string]Limits
	used    map[string]bool // those of limits whose limits a key has had
	lengths []prefixLength  // the longest first
}

// prefixLength is how many prefixes have a length.
type prefixLength struct{ length, prefixes int }

// of is the limits of the longest prefix of a key; none if it has none.
func (p *prefixes) of(key string) Limits {
	l, _ := p.longest(key, -1)
	return l
}

// longest is the limits of the longest prefix of a key, of another length than except,
// and its length, or -1.
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

// use notes that a key goes by the limits of its longest prefix.
func (p *prefixes) use(key string) {
	if _, n := p.longest(key, -1); n >= 0 {
		p.used[key[:n]] = true
	}
}

// set gives a prefix limits; zero Limits take them away. It returns those of before.
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
