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
func (m *Queue) Select(s Role, match *Match, from uint64, limit, slots int, list []MessageView, now int64) (found []MessageView, next uint64) {
	f := selection{q: &m.sides[s], Match: match}
	a := f.q.asking(now)
	next = f.each(from, limit, slots, func(seq uint64, s *slot) bool {
		v := f.q.view(a, seq, s)
		if !f.is(&v) {
			return false
		}
		list = append(list, v)
		return true
	})
	return list, next
}

// Member is what a job knows of a message that it may be about.
type Member struct {
	Seq        uint64
	EnqueuedAt int64
	ID         store.ID
	Size       uint32 // of headers and payload
}

// Members is Select for who wants to know which messages they are, and little else: of
// what a message waits for nothing is found out, unless states are asked for.
func (m *Queue) Members(s Role, match *Match, from uint64, limit, slots int, list []Member, now int64) (found []Member, next uint64) {
	f := selection{q: &m.sides[s], Match: match}
	a := f.q.asking(now)
	next = f.each(from, limit, slots, func(seq uint64, s *slot) bool {
		if len(f.States) > 0 {
			if v := f.q.view(a, seq, s); !f.is(&v) {
				return false
			}
		}
		list = append(list, Member{Seq: seq, EnqueuedAt: s.enqueuedAt, ID: s.id, Size: s.size})
		return true
	})
	return list, next
}

// selection is one Select, or Members.
type selection struct {
	*Match
	q     *side
	flows map[drr.Flow]bool // of Keys
	gated map[subID]bool    // those that have been asked for the gates
}

// each looks at messages, and calls take for those that may match until it has said so
// often that one does. It returns where to go on.
func (f *selection) each(from uint64, limit, slots int, take func(seq uint64, s *slot) bool) (next uint64) {
	if !f.begin() {
		return 0
	}
	n, found := 0, 0
	for seq, s := range f.q.slots.From(from) {
		switch n++; {
		case f.Last != 0 && seq > f.Last:
			return 0
		case n > slots || found == limit:
			return seq
		case f.may(s) && take(seq, s):
			found++
		}
	}
	return 0
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

// Sequences appends to list those of the messages on side s, also of those on their way
// out, from the sequence from on, up to slots of them. next is where to go on, 0 at the
// end. It costs next to nothing for each: who keeps what they were told before finds what
// has changed.
func (m *Queue) Sequences(s Role, from uint64, slots int, list []uint64) (all []uint64, next uint64) {
	n := 0
	for seq := range m.sides[s].slots.From(from) {
		if n++; n > slots {
			return list, seq
		}
		list = append(list, seq)
	}
	return list, 0
}

// Listed is what a list says of a message.
type Listed struct {
	Seq uint64
	ID  store.ID
	Key string // fairness key
}

// List appends to list those of the messages seqs of side s that are there.
func (m *Queue) List(s Role, seqs []uint64, list []Listed) []Listed {
	q := &m.sides[s]
	for _, seq := range seqs {
		if s := q.slots.Get(seq); s != nil {
			list = append(list, Listed{Seq: seq, ID: s.id, Key: q.keys.name(s.flow)})
		}
	}
	return list
}
