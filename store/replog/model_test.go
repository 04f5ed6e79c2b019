package replog

import (
	"flag"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// The model: one stream, two nodes, and everything that can happen to three records of
// commits, the epochs of two promotions (three with -model.deep) and a resignation, in every order. Records
// arrive at any time or never, answers are lost, nodes crash at any moment and with or
// without their file, what is read of the log may be old, and the stream accepts some
// records although their expectation is wrong. The rules are in rules.go.

var deep = flag.Bool("model.deep", false, "explore more promotions and corners: a minute, and a gigabyte")

// rules are the rules to explore. The model must detect broken ones.
type rules struct {
	next      func(mark, head) (mark, verdict)
	find      func(h head, epoch, n uint64) finding
	confirmed func(known, at uint64) bool
	eager     bool // an owner serves before it has read up to its epoch record
}

var theRules = rules{next: mark.next, find: find, confirmed: confirmed}

// modelRecord is a record. Two records are equal if their bytes are.
type modelRecord struct {
	kind     kind
	more     bool
	epoch, n uint8
	by, try  uint8
	value    uint8
}

func (r modelRecord) head() head {
	return head{kind: r.kind, more: r.more, epoch: uint64(r.epoch), n: uint64(r.n)}
}

type role uint8

const (
	follower role = iota
	candidate
	owner
)

// modelNode is the knowledge of a node. It has applied the log, by the rules, up to pos
// or, as an owner, up to last.
type modelNode struct {
	role     role
	pos      uint8
	try      uint8 // of a candidate
	epoch, n uint8
	last     uint8
	view     uint8 // values that an owner has applied, a bit for each
	doubt    bool  // record is on its way, or in the log
	record   modelRecord
	ack      uint8 // the sequence that the stream has answered; 0: none
}

type modelSent struct {
	record modelRecord
	behind uint8
}

const (
	modelNodes  = 2
	modelLog    = 8
	modelFlight = 4
	modelValues = 2 // the first is one record, the second takes two
)

type modelState struct {
	log       [modelLog]modelRecord
	logged    uint8
	nodes     [modelNodes]modelNode
	flight    [modelFlight]modelSent // sorted
	flying    uint8
	submitted uint8
	confirmed [modelValues]uint8 // the epoch that did; 0: nobody
	tries     uint8
	corners   uint8 // how often the stream has accepted what it should not have
	resigned  bool
}

// explorer visits every reachable state.
type explorer struct {
	rules
	tries, corners uint8
	resign         bool
	seen           map[modelState]struct{}
	todo           []modelState
	violation      string
	full           int // states in which something could not happen for lack of room
	confirmations  int
	takeovers      int
}

func (x *explorer) run() {
	x.seen = make(map[modelState]struct{})
	x.reach(modelState{})
	for len(x.todo) > 0 && x.violation == "" {
		s := x.todo[len(x.todo)-1]
		x.todo = x.todo[:len(x.todo)-1]
		x.check(&s)
		for i := range s.nodes {
			x.node(s, i)
		}
		for i := range s.flying {
			x.arrive(s, i)
		}
	}
}

func (x *explorer) reach(s modelState) {
	if _, ok := x.seen[s]; ok {
		return
	}
	x.seen[s] = struct{}{}
	x.todo = append(x.todo, s)
}

func (x *explorer) violated(s *modelState, format string, args ...any) {
	if x.violation == "" {
		x.violation = fmt.Sprintf(format, args...) + fmt.Sprintf("\nlog %+v\nnodes %+v\nconfirmed %v", s.log[:s.logged], s.nodes, s.confirmed)
	}
}

// fold reads the log up to a sequence, as a replica does.
func (x *explorer) fold(s *modelState, upTo uint8) (m mark, values uint8) {
	for i := range upTo {
		r := s.log[i]
		next, v := x.next(m, r.head())
		if v == broken || v == unknown {
			x.violated(s, "record %d stops a reader", i+1)
			return m, values
		}
		m = next
		if v == counts && r.kind == kindCommit && !r.more {
			if values>>r.value&1 != 0 {
				x.violated(s, "value %d is in the log twice", r.value)
			}
			values |= 1 << r.value
		}
	}
	return m, values
}

// check checks the invariants of every state.
func (x *explorer) check(s *modelState) {
	_, all := x.fold(s, s.logged)
	for v, epoch := range s.confirmed {
		if epoch != 0 && all>>v&1 == 0 {
			x.violated(s, "value %d is confirmed, and is not in the log", v)
		}
	}
	owners := map[uint8]int{}
	for i := range s.nodes {
		n := &s.nodes[i]
		if n.role != owner {
			continue
		}
		if owners[n.epoch]++; owners[n.epoch] > 1 {
			x.violated(s, "two nodes own epoch %d", n.epoch)
		}
		if _, values := x.fold(s, n.last); values != n.view {
			x.violated(s, "node %d has values %b, the log up to %d has %b", i, n.view, n.last, values)
		}
		for v, epoch := range s.confirmed {
			if epoch != 0 && epoch <= n.epoch && n.view>>v&1 == 0 {
				x.violated(s, "node %d owns epoch %d without value %d, which epoch %d has confirmed", i, n.epoch, v, epoch)
			}
		}
	}
}

// send puts a record on its way.
func (x *explorer) send(s *modelState, r modelRecord, behind uint8) bool {
	m := modelSent{r, behind}
	for i := range s.flying {
		if s.flight[i] == m {
			return true
		}
	}
	if s.flying == modelFlight {
		x.full++
		return false
	}
	i := s.flying
	for ; i > 0 && m.less(s.flight[i-1]); i-- {
		s.flight[i] = s.flight[i-1]
	}
	s.flight[i] = m
	s.flying++
	return true
}

func (m modelSent) key() [7]uint8 {
	return [7]uint8{m.behind, m.record.epoch, m.record.n, m.record.by, m.record.try, uint8(m.record.kind), m.record.value}
}

func (m modelSent) less(o modelSent) bool {
	a, b := m.key(), o.key()
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

// arrive lets a record come to the stream; lost ones never do.
func (x *explorer) arrive(s modelState, i uint8) {
	m := s.flight[i]
	copy(s.flight[i:], s.flight[i+1:])
	s.flying--
	s.flight[s.flying] = modelSent{}
	right := m.behind == s.logged
	if !right {
		x.reach(s) // refused
		if s.corners == x.corners {
			return
		}
		s.corners++
	}
	if s.logged == modelLog {
		x.full++
		return
	}
	s.log[s.logged] = m.record
	s.logged++
	x.reach(s) // the answer is lost, or late
	if n := &s.nodes[m.record.by]; n.role == owner && n.doubt && n.record == m.record {
		n.ack = s.logged
		x.reach(s)
	}
}

// node does everything that a node can do next.
func (x *explorer) node(s modelState, i int) {
	switch s.nodes[i].role {
	case follower:
		x.read(s, i)
		x.campaign(s, i)
		x.crash(s, i)
	case candidate:
		x.read(s, i)
		s.nodes[i].role, s.nodes[i].try = follower, 0 // it gives up
		x.reach(s)
	case owner:
		if s.nodes[i].doubt {
			x.answered(s, i)
			x.resolve(s, i)
		} else {
			x.submit(s, i)
		}
		x.crash(s, i)
	}
}

// follow makes a node a follower that has applied the log up to pos.
func follow(pos uint8) modelNode { return modelNode{pos: pos} }

func (x *explorer) crash(s modelState, i int) {
	n := s.nodes[i]
	s.nodes[i] = follow(0) // its file is lost
	x.reach(s)
	if n.role == owner {
		s.nodes[i] = follow(n.last)
		x.reach(s)
	}
}

func (x *explorer) read(s modelState, i int) {
	n := &s.nodes[i]
	if n.pos == s.logged {
		return
	}
	m, _ := x.fold(&s, n.pos)
	r := s.log[n.pos]
	_, v := x.next(m, r.head())
	n.pos++
	if n.role == candidate && v == opens {
		if r.by == uint8(i) && r.try == n.try {
			x.promote(&s, i, r.epoch)
		} else {
			n.role, n.try = follower, 0 // another one has won
		}
	}
	x.reach(s)
}

func (x *explorer) promote(s *modelState, i int, epoch uint8) {
	n := &s.nodes[i]
	pos := n.pos
	_, values := x.fold(s, pos)
	*n = modelNode{role: owner, epoch: epoch, n: 1, last: pos, view: values}
	x.takeovers++
}

func (x *explorer) campaign(s modelState, i int) {
	if s.tries == x.tries {
		return
	}
	s.tries++
	n := &s.nodes[i]
	m, _ := x.fold(&s, n.pos)
	r := modelRecord{kind: kindEpoch, epoch: uint8(m.epoch) + 1, n: 1, by: uint8(i), try: s.tries}
	if !x.send(&s, r, n.pos) {
		return
	}
	n.role, n.try = candidate, s.tries
	if x.eager {
		x.promote(&s, i, r.epoch)
	}
	x.reach(s)
}

func (x *explorer) submit(s modelState, i int) {
	if x.resign && !s.resigned {
		r := s
		r.resigned = true
		x.write(&r, i, modelRecord{kind: kindResign})
	}
	if s.submitted < modelValues {
		s.submitted++
		x.write(&s, i, modelRecord{kind: kindCommit, value: s.submitted - 1, more: s.submitted == modelValues})
	}
}

// write sends the next record of an owner.
func (x *explorer) write(s *modelState, i int, r modelRecord) {
	n := &s.nodes[i]
	r.epoch, r.n, r.by = n.epoch, n.n+1, uint8(i)
	n.record, n.doubt, n.ack = r, true, 0
	if x.send(s, r, n.last) {
		x.reach(*s)
	}
}

func (x *explorer) answered(s modelState, i int) {
	n := &s.nodes[i]
	if n.ack != 0 && x.confirmed(uint64(n.last), uint64(n.ack)) {
		x.written(s, i, n.ack)
	}
}

// resolve reads the log as far as some moment, and sends the record again if it is not
// there.
func (x *explorer) resolve(s modelState, i int) {
	for end := s.nodes[i].last; end <= s.logged; end++ {
		x.look(s, i, end)
	}
}

func (x *explorer) look(s modelState, i int, end uint8) {
	n := &s.nodes[i]
	for n.last < end {
		r := s.log[n.last]
		switch x.find(r.head(), uint64(n.epoch), uint64(n.record.n)) {
		case passed:
			n.last++
		case fenced:
			s.nodes[i] = follow(n.last)
			x.reach(s)
			return
		case own:
			if r != n.record {
				x.violated(&s, "record %d was not written by node %d", n.last+1, i)
			}
			x.written(s, i, n.last+1)
			return
		case foreign:
			x.violated(&s, "record %d is of the epoch of node %d", n.last+1, i)
			return
		}
	}
	n.ack = 0
	if x.send(&s, n.record, n.last) {
		x.reach(s)
	}
}

// written continues when a record is known to be in the log at a sequence.
func (x *explorer) written(s modelState, i int, seq uint8) {
	n := &s.nodes[i]
	r := n.record
	n.last, n.n, n.doubt, n.ack, n.record = seq, r.n, false, 0, modelRecord{}
	switch {
	case r.kind == kindResign:
		s.nodes[i] = follow(seq)
	case r.more:
		x.write(&s, i, modelRecord{kind: kindCommit, value: r.value})
		return
	default:
		n.view |= 1 << r.value
		s.confirmed[r.value] = n.epoch
		x.confirmations++
	}
	x.reach(s)
}

// No order of events loses a confirmed record, allows two owners of one epoch, lets the
// knowledge of an owner differ from the log, or stops a reader.
func TestModel(t *testing.T) {
	explorers := map[string]*explorer{
		"promotions":        {tries: 2},
		"resignation":       {tries: 2, resign: true},
		"stream in corners": {tries: 2, corners: 1},
	}
	if *deep {
		explorers["promotions"].tries, explorers["stream in corners"].corners = 3, 2
	}
	for name, x := range explorers {
		t.Run(name, func(t *testing.T) {
			x.rules = theRules
			x.run()
			t.Logf("%d states, %d confirmations, %d promotions, %d without room", len(x.seen), x.confirmations, x.takeovers, x.full)
			require.Empty(t, x.violation)
			require.Greater(t, x.confirmations, 100)
			require.Greater(t, x.takeovers, 100)
		})
	}
}

// The model detects wrong rules.
func TestModelFindsWhatIsWrong(t *testing.T) {
	for name, broken := range map[string]func(*rules){
		"any answer confirms": func(r *rules) { r.confirmed = func(_, _ uint64) bool { return true } },
		"a higher epoch is passed over": func(r *rules) {
			r.find = func(h head, epoch, n uint64) finding {
				if h.epoch != epoch {
					return passed
				}
				return find(h, epoch, n)
			}
		},
		"records of any epoch count": func(r *rules) {
			r.next = func(m mark, h head) (mark, verdict) {
				if h.kind == kindCommit && h.epoch < m.epoch {
					return m, counts
				}
				return m.next(h)
			}
		},
		"a second epoch record of the same number opens": func(r *rules) {
			r.next = func(m mark, h head) (mark, verdict) {
				if h.kind == kindEpoch && h.epoch == m.epoch {
					return mark{epoch: h.epoch, n: 1}, opens
				}
				return m.next(h)
			}
		},
		"an owner serves at once": func(r *rules) { r.eager = true },
	} {
		t.Run(name, func(t *testing.T) {
			x := explorer{rules: theRules, tries: 2, corners: 2}
			broken(&x.rules)
			x.run()
			require.NotEmpty(t, x.violation)
			t.Logf("%d states: %s", len(x.seen), x.violation)
		})
	}
}
