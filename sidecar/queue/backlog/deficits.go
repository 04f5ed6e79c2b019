package backlog

import (
	"maps"
	"slices"
)

// Deficits are the deficits that flows carry while nothing of them is in the schedule:
// their messages have cost more than estimated, or they left the schedule with a
// deficit. They are kept by fairness key, which may have no messages meanwhile, and
// come back with the flow, less what it would have earned in the rounds since. When
// the schedule is empty nobody was disadvantaged, so all carried deficits are forgotten.
type Deficits struct {
	byKey map[string]carried
	order []string // the keys of byKey, in the order in which sweep visits them
}

type carried struct {
	deficit int64 // thousandths; 0: none
	pays    int64 // per round
	round   uint64
}

// maxDeficits bounds the keys that are remembered; beyond it each new one replaces
// another.
const maxDeficits = 1 << 16

// rest is the deficit that is left in a round.
func (d carried) rest(round uint64) int64 {
	if n := round - d.round; d.deficit > 0 && n <= uint64(d.deficit/d.pays) {
		return d.deficit - int64(n)*d.pays
	}
	return 0
}

// Add adds a deficit, which may be negative, to the deficit of a key. pays is what a round pays
// back.
func (d *Deficits) Add(key string, deficit, pays int64, round uint64) {
	old, known := d.byKey[key]
	if deficit += old.rest(round); deficit <= 0 && !known {
		return
	}
	if !known {
		d.sweep(round)
		if d.byKey == nil {
			d.byKey = make(map[string]carried)
		}
		d.order = append(d.order, key)
	}
	d.byKey[key] = carried{deficit: max(0, deficit), pays: pays, round: round}
}

// sweep visits two keys and forgets what is paid back. So in the long run no more
// keys are remembered than have a deficit.
func (d *Deficits) sweep(round uint64) {
	for range min(2, len(d.order)) {
		key := d.order[0]
		d.order = d.order[1:]
		if d.byKey[key].rest(round) == 0 || len(d.byKey) >= maxDeficits {
			delete(d.byKey, key)
		} else {
			d.order = append(d.order, key)
		}
	}
}

// Take returns and forgets the deficit of a key.
func (d *Deficits) Take(key string, round uint64) int64 {
	x, ok := d.byKey[key]
	if !ok {
		return 0
	}
	d.byKey[key] = carried{}
	return x.rest(round)
}

// Len is the number of keys that are remembered.
func (d *Deficits) Len() int { return len(d.byKey) }

// Clone returns a copy that may change.
func (d *Deficits) Clone() Deficits {
	return Deficits{byKey: maps.Clone(d.byKey), order: slices.Clone(d.order)}
}
