package inspect

import (
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/store"
)

// Match says which messages are selected: those that fit every field. It is what a
// queue knows of a api.Filter.
type Match struct {
	States      []MessageState    // one of these; none: any
	Keys        []string          // one of these fairness keys; none: any
	IDs         map[store.ID]bool // one of these; none: any
	AttemptsMin uint32            // ended attempts, at least
	Since       int64             // enqueued then or later
	Before      int64             // enqueued earlier; 0: at any time
	Consumer    string            // leased to it; empty: any, or not leased
	Throttle    string            // one of its throttle keys; empty: any
	Circuit     string            // its circuit key; empty: any
	Last        uint64            // the last sequence; 0: all
}

// Select appends to list up to limit messages that match, from the sequence from on,
// and visits slots messages at most. next is where to go on, 0 at the end. It skips
// messages that are moving, and leaves out Ahead, First, Share, Throttles and Circuit.
func (r *Reader) Select(match *Match, from uint64, limit, slots int, list []MessageView, now int64) (found []MessageView, next uint64) {
	f, e := selection{Reader: r, Match: match}, r.evaluator(now)
	next = f.each(from, limit, slots, func(seq uint64, s *backlog.Slot) bool {
		v := r.view(e, seq, s)
		if !f.hasState(&v) {
			return false
		}
		list = append(list, v)
		return true
	})
	return list, next
}

// Member is what a job needs to know of a message that it may include.
type Member struct {
	Seq        uint64
	EnqueuedAt int64
	ID         store.ID
	Size       uint32 // of headers and payload
}

// Members is Select for jobs. It evaluates what a message waits for only if the match
// names states.
func (r *Reader) Members(match *Match, from uint64, limit, slots int, list []Member, now int64) (found []Member, next uint64) {
	f, e := selection{Reader: r, Match: match}, r.evaluator(now)
	next = f.each(from, limit, slots, func(seq uint64, s *backlog.Slot) bool {
		if len(f.States) > 0 {
			if v := r.view(e, seq, s); !f.hasState(&v) {
				return false
			}
		}
		list = append(list, Member{Seq: seq, EnqueuedAt: s.EnqueuedAt, ID: s.ID, Size: s.Size})
		return true
	})
	return list, next
}

// selection is one Select or Members.
type selection struct {
	*Reader
	*Match
	flows map[drr.Flow]bool // of Keys
	gated map[gates.ID]bool // subqueues, by whether they pass Throttle and Circuit
}

// each calls take for messages that may match until take has accepted limit of them.
// It returns where to go on.
func (f *selection) each(from uint64, limit, slots int, take func(seq uint64, s *backlog.Slot) bool) (next uint64) {
	if !f.begin() {
		return 0
	}
	n, found := 0, 0
	for seq, s := range f.t.Slots.From(from) {
		switch n++; {
		case f.Last != 0 && seq > f.Last:
			return 0
		case n > slots || found == limit:
			return seq
		case f.fits(s) && take(seq, s):
			found++
		}
	}
	return 0
}

// begin looks the keys up. It reports false if no message can match.
func (f *selection) begin() bool {
	if len(f.Throttle)+len(f.Circuit) > 0 {
		f.gated = make(map[gates.ID]bool)
	}
	if len(f.Match.Keys) == 0 {
		return true
	}
	f.flows = make(map[drr.Flow]bool, len(f.Match.Keys))
	for _, key := range f.Match.Keys {
		if flow, ok := f.t.Keys.IDs[key]; ok {
			f.flows[flow] = true
		}
	}
	return len(f.flows) > 0
}

// fits reports whether a message matches apart from the states.
func (f *selection) fits(s *backlog.Slot) bool {
	return s.State != backlog.Moving &&
		(f.flows == nil || f.flows[s.Flow]) &&
		(len(f.IDs) == 0 || f.IDs[s.ID]) &&
		s.Attempts >= f.AttemptsMin &&
		s.EnqueuedAt >= f.Since && (f.Before == 0 || s.EnqueuedAt < f.Before) &&
		(f.Consumer == "" || s.State == backlog.Leased && f.t.Leases.Items[s.Ref].Consumer.Name == f.Consumer) &&
		(f.gated == nil || f.passes(s.Sub))
}

func (f *selection) passes(id gates.ID) bool {
	if id == 0 {
		return false
	}
	yes, known := f.gated[id]
	if !known {
		yes = passes(f.g.Subs.At(id), f.Throttle, f.Circuit)
		f.gated[id] = yes
	}
	return yes
}

func (f *selection) hasState(v *MessageView) bool {
	return len(f.States) == 0 || slices.Contains(f.States, v.State)
}

// Sequences appends to list the sequences of all messages, moving ones too, from the
// sequence from on, up to slots of them. next is where to go on, 0 at the end. It is
// cheap: a caller that keeps the last result finds what has changed.
func (r *Reader) Sequences(from uint64, slots int, list []uint64) (all []uint64, next uint64) {
	n := 0
	for seq := range r.t.Slots.From(from) {
		if n++; n > slots {
			return list, seq
		}
		list = append(list, seq)
	}
	return list, 0
}

// Listed is the entry of a message in a list.
type Listed struct {
	Seq uint64
	ID  store.ID
	Key string // fairness key
}

// List appends to list the messages seqs that exist.
func (r *Reader) List(seqs []uint64, list []Listed) []Listed {
	for _, seq := range seqs {
		if s := r.t.Slots.Get(seq); s != nil {
			list = append(list, Listed{Seq: seq, ID: s.ID, Key: r.t.Name(s.Flow)})
		}
	}
	return list
}
