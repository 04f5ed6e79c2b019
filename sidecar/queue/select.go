package queue

import (
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/store"
)

// Match says which messages are looked for: those of which all is so that it names. It
// is what a machine knows of a wire.Filter.
type Match struct {
	States      []MessageState    // one of these; none: any
	Keys        []string          // one of these fairness keys; none: any
	IDs         map[store.ID]bool // one of these; none: any
	AttemptsMin uint32            // so many have ended
	Since       int64             // enqueued then or later
	Before      int64             // enqueued earlier; 0: at any time
	Consumer    string            // leased to it; empty: to whomever, or to nobody
	Throttle    string            // one of its throttle keys; empty: any
	Circuit     string            // its circuit key; empty: any
	Last        uint64            // the last sequence that is looked at; 0: there is none
}

// Select appends up to limit messages of side s that match to list, from the sequence from
// on, looking at slots messages at most. next is where to go on, 0 at the end. What is on
// its way out is left out, and so are Ahead, First, Share, Throttles and Circuit.
func (m *Queue) Select(s Side, match *Match, from uint64, limit, slots int, list []MessageView, now int64) (found []MessageView, next uint64) {
	f := selection{q: &m.sides[s], Match: match}
	if !f.begin() {
		return list, 0
	}
	found, limit = list, len(list)+limit
	n, a := 0, f.q.asking(now)
	for seq, s := range f.q.slots.From(from) {
		switch n++; {
		case match.Last != 0 && seq > match.Last:
			return found, 0
		case n > slots || len(found) == limit:
			return found, seq
		case !f.may(s):
			continue
		}
		if v := f.q.view(a, seq, s); f.is(&v) {
			found = append(found, v)
		}
	}
	return found, 0
}

// selection is one Select.
type selection struct {
	*Match
	q     *side
	flows map[drr.Flow]bool // of Keys
	gated map[subID]bool    // those that have been asked for the gates
}

// begin looks the keys up. It reports false if no message can match.
func (f *selection) begin() bool {
	if len(f.Throttle)+len(f.Circuit) > 0 {
		f.gated = make(map[subID]bool)
	}
	if len(f.Keys) == 0 {
		return true
	}
	f.flows = make(map[drr.Flow]bool, len(f.Keys))
	for _, key := range f.Keys {
		if flow, ok := f.q.keys.ids[key]; ok {
			f.flows[flow] = true
		}
	}
	return len(f.flows) > 0
}

// may reports whether a message matches as far as its slot says it.
func (f *selection) may(s *slot) bool {
	return s.state != slotMoving &&
		(f.flows == nil || f.flows[s.flow]) &&
		(len(f.IDs) == 0 || f.IDs[s.id]) &&
		s.attempts >= f.AttemptsMin &&
		s.enqueuedAt >= f.Since && (f.Before == 0 || s.enqueuedAt < f.Before) &&
		(f.Consumer == "" || s.state == slotLeased && f.q.leases.items[s.ref].consumer.name == f.Consumer) &&
		(f.gated == nil || f.passes(s.sub))
}

// passes reports whether the messages of a subqueue pass the gates that are named.
func (f *selection) passes(id subID) bool {
	if id == 0 {
		return false
	}
	yes, known := f.gated[id]
	if !known {
		sub := f.q.gating.subs.at(id)
		yes = f.Circuit == "" || sub.circuit != nil && sub.circuit.Key() == f.Circuit
		if yes && f.Throttle != "" {
			yes = false
			for _, g := range sub.set.Gates() {
				yes = yes || g.Key() == f.Throttle
			}
		}
		f.gated[id] = yes
	}
	return yes
}

// is reports whether a message that may match is in one of the states.
func (f *selection) is(v *MessageView) bool {
	return len(f.States) == 0 || slices.Contains(f.States, v.State)
}

// Listed is what a list says of a message.
type Listed struct {
	Seq uint64
	ID  store.ID
	Key string // fairness key
}

// List appends to list what there is on side s from the sequence from on, slots messages
// at most, also those on their way out. next is where to go on, 0 at the end. It costs
// little for each: who keeps what they were told before finds what has changed.
func (m *Queue) List(s Side, from uint64, slots int, list []Listed) (all []Listed, next uint64) {
	q, n := &m.sides[s], 0
	for seq, s := range q.slots.From(from) {
		if n++; n > slots {
			return list, seq
		}
		list = append(list, Listed{Seq: seq, ID: s.id, Key: q.keys.name(s.flow)})
	}
	return list, 0
}
