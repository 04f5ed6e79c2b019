package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// outcome is what a client knows about a request.
type outcome int

const (
	unknown  outcome = iota // no answer: it may have happened, and it may happen still
	accepted                // the reply said so
	refused                 // the reply said no
)

// history is everything that producers and consumers have seen of fila, from
// the first start to the last drain, over any number of kills. It proves the
// first three invariants of DESIGN.md:
//
//  1. A confirmed enqueue is delivered and finished, with its content intact.
//  2. A confirmed ack is final: no delivery starts after it.
//  3. Leases of one message do not overlap, and what is not the current lease
//     is refused.
//
// Times are of the machine's clock, which fila and the test share: a delivery
// starts at its Fila-Deadline minus the visibility timeout, whenever it may
// arrive. A kill may undo the leases of the last milliseconds (store.md), so
// leases of two processes are compared only where something confirmed lies
// between them.
//
// In a cluster who serves a queue may change at any moment of a trouble, see troubled.
// From its begin to its end only what has been confirmed holds: each answer is compared
// with what began after the test had it.
type history struct {
	visibility int64 // nanoseconds
	now        func() int64
	redriven   string // the queue whose dead letters are moved back: attempts start anew, there and in its DLQ

	mu struct {
		sync.Mutex
		starts   []int64 // of the processes, Unix nanoseconds
		troubled []bool  // by process: it may be several, one after the other
		sent     map[string]*sentMessage
		lives    map[string]*life // by message id
		problems []string
		open     int // confirmed and not acked yet, as far as is known
		events   int // confirmations of any kind
	}
}

// sentMessage is what a producer has published under a key of its own.
type sentMessage struct {
	queue, tenant, payload string
	id                     string // as confirmed or delivered, empty until then
	process                int    // that gave the id
	confirmed              bool
	at                     int64  // when it was first confirmed
	finished               string // the id under which an ack was accepted
}

// life is what became of one message id.
type life struct {
	key    string
	leases map[string]*seenLease // by reply subject
	acked  *answer               // the confirmed ack
	closed bool                  // acked, or perhaps: not counted as open
}

// seenLease is a delivery that reached a consumer.
type seenLease struct {
	queue    string
	token    string
	attempt  int
	start    int64
	deadline int64
	process  int // by start
	answers  []*answer
}

// answer is what a consumer has sent on a reply subject.
type answer struct {
	kind    string // ack, nack or term
	delay   int64  // of a nack, nanoseconds
	sent    int64
	told    int64 // when the outcome was known
	process int   // that had to answer it
	outcome outcome
}

func newHistory(visibility int64) *history {
	h := &history{visibility: visibility, now: func() int64 { return time.Now().UnixNano() }}
	h.mu.sent = map[string]*sentMessage{}
	h.mu.lives = map[string]*life{}
	return h
}

// started notes a new process, before it is started.
func (h *history) started(now int64) { h.begin(now, false) }

// troubledSince notes that from now on, until the next process is noted, queues may be
// served by one process after the other.
func (h *history) troubledSince(now int64) { h.begin(now, true) }

func (h *history) begin(now int64, troubled bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.starts, h.mu.troubled = append(h.mu.starts, now), append(h.mu.troubled, troubled)
}

func (h *history) problem(format string, args ...any) {
	h.mu.problems = append(h.mu.problems, fmt.Sprintf(format, args...))
}

// published notes a message before its first publish.
func (h *history) published(key, queue, tenant, payload string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.sent[key] = &sentMessage{queue: queue, tenant: tenant, payload: payload}
}

// confirmed notes the confirmation of an enqueue.
func (h *history) confirmed(key, id string) {
	now := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.events++
	s := h.mu.sent[key]
	h.identify(key, s, id, len(h.mu.starts)-1, now)
	if !s.confirmed {
		s.confirmed, s.at = true, now
		if l := h.mu.lives[id]; l == nil || !l.closed {
			h.mu.open++
		}
	}
}

// identify checks that a key has one id for ever. But deliveries do not wait for
// the disk: what was delivered and not confirmed may be gone after a kill, and when
// the producer sends it again it gets another id.
func (h *history) identify(key string, s *sentMessage, id string, process int, at int64) {
	troubled := process >= 0 && h.mu.troubled[process]
	switch {
	case s.id == id:
	case s.id == "", !s.confirmed && (process > s.process || troubled):
		s.id, s.process = id, process
	case process < s.process, troubled && at < s.at: // it is late
	default:
		h.problem("%s: message has two ids, %s and %s", key, s.id, id)
	}
}

// delivered notes a delivery and checks its content.
func (h *history) delivered(d delivery, queue string, attempt int, deadline int64) *seenLease {
	h.mu.Lock()
	defer h.mu.Unlock()
	key, id := d.Header.Get("Test-Key"), d.id()
	s := h.mu.sent[key]
	if s == nil {
		h.problem("delivery of a message that nobody sent: key %q id %s", key, id)
		return nil
	}
	h.identify(key, s, id, h.processAt(deadline-h.visibility), deadline-h.visibility)
	if string(d.Data) != s.payload {
		h.problem("%s: payload of %d bytes instead of %d, or with other content", key, len(d.Data), len(s.payload))
	}
	if source := strings.TrimSuffix(queue, ".dlq"); s.queue != source || d.key() != s.tenant {
		h.problem("%s: delivered by %s with key %q, sent to %s with %q", key, queue, d.key(), s.queue, s.tenant)
	}
	l := h.mu.lives[id]
	if l == nil {
		l = &life{key: key, leases: map[string]*seenLease{}}
		h.mu.lives[id] = l
	}
	start := deadline - h.visibility
	lease := &seenLease{queue: queue, token: d.Reply, attempt: attempt, start: start, deadline: deadline, process: h.processAt(start)}
	if l.leases[d.Reply] != nil {
		h.problem("%s: the same lease was delivered twice", key)
	}
	l.leases[d.Reply] = lease
	return lease
}

func (h *history) processAt(at int64) int {
	n, _ := slices.BinarySearch(h.mu.starts, at+1)
	return n - 1
}

// answering notes an answer before it is sent; settle notes its outcome.
func (h *history) answering(lease *seenLease, kind string, delay, now int64) *answer {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := &answer{kind: kind, delay: delay, sent: now, process: len(h.mu.starts) - 1}
	lease.answers = append(lease.answers, a)
	return a
}

func (h *history) settle(id string, a *answer, o outcome) {
	now := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	a.outcome, a.told = o, now
	l := h.mu.lives[id]
	if a.kind == "ack" && o != refused && !l.closed {
		l.closed = true
		if h.mu.sent[l.key].confirmed {
			h.mu.open--
		}
	}
	if o != accepted {
		return
	}
	h.mu.events++
	switch {
	case a.kind != "ack":
	case l.acked != nil:
		h.problem("%s: two acks were confirmed", l.key)
	default:
		l.acked = a
		s := h.mu.sent[l.key]
		if s.finished != "" && s.finished != id {
			h.problem("%s: finished as two messages, %s and %s", l.key, s.finished, id)
		}
		s.finished = id
	}
}

// counts returns how many confirmed messages are probably not finished, and how
// many confirmations there have been.
func (h *history) counts() (open, events int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.open, h.mu.events
}

// soFar returns the problems found while it happened.
func (h *history) soFar() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.mu.problems)
}

// report is what check has found and how much it has seen.
type report struct {
	problems                                              []string
	sent, confirmed, deliveries, acked, nacked, uncertain int
	staleRefused                                          int
}

func (r *report) String() string {
	return fmt.Sprintf("%d sent, %d confirmed, %d deliveries, %d confirmed acks, %d confirmed nacks, %d stale answers refused, %d finished by an ack without answer",
		r.sent, r.confirmed, r.deliveries, r.acked, r.nacked, r.staleRefused, r.uncertain)
}

// check judges the whole history. drained says that the queues are empty, so
// that every confirmed message must have come to its end.
func (h *history) check(drained bool) *report {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &report{problems: slices.Clone(h.mu.problems), sent: len(h.mu.sent)}
	bad := func(format string, args ...any) { r.problems = append(r.problems, fmt.Sprintf(format, args...)) }
	for key, s := range h.mu.sent {
		if !s.confirmed {
			continue
		}
		r.confirmed++
		l := h.mu.lives[s.id]
		switch {
		case !drained:
		case l == nil:
			bad("%s: LOST: confirmed as %s, never delivered", key, s.id)
		case l.acked == nil && !l.unsettled():
			bad("%s: LOST: confirmed as %s, delivered %d times, the queues are empty, and no ack was accepted", key, s.id, len(l.leases))
		case l.acked == nil:
			r.uncertain++
		}
	}
	for _, l := range h.mu.lives {
		r.deliveries += len(l.leases)
		h.checkLife(l, r, bad)
	}
	return r
}

// unsettled says whether an ack without answer may have finished the message.
func (l *life) unsettled() bool {
	for _, lease := range l.leases {
		for _, a := range lease.answers {
			if a.outcome == unknown && a.kind == "ack" {
				return true
			}
		}
	}
	return false
}

func (h *history) checkLife(l *life, r *report, bad func(string, ...any)) {
	leases := make([]*seenLease, 0, len(l.leases))
	for _, lease := range l.leases {
		leases = append(leases, lease)
	}
	slices.SortFunc(leases, func(a, b *seenLease) int { return cmp.Compare(a.start, b.start) })
	for i, lease := range leases {
		h.checkAnswers(l, lease, leases[i+1:], r, bad)
		if i > 0 {
			h.checkPair(l, leases[i-1], lease, bad)
		}
	}
}

// checkAnswers judges what was accepted on one lease, given the later ones.
func (h *history) checkAnswers(l *life, lease *seenLease, later []*seenLease, r *report, bad func(string, ...any)) {
	ended := 0
	for _, a := range lease.answers {
		if a.outcome == refused {
			r.staleRefused++
		}
		if a.outcome != accepted {
			continue
		}
		if ended++; ended > 1 {
			bad("%s: %s: a token was accepted %d times", l.key, lease.queue, ended)
		}
		switch a.kind {
		case "ack":
			r.acked++
		default:
			r.nacked++
		}
		for _, next := range later {
			// The process that accepted knew of every delivery of its own, and
			// nothing may start after an answer that ended the message.
			troubled := h.mu.troubled[a.process] || h.mu.troubled[next.process]
			switch stale := next.start > lease.start && next.start < a.sent && next.process == a.process; {
			case troubled && next.start <= a.told: // given by another process than the one that accepted, perhaps
			case stale:
				bad("%s: %s: a stale token was accepted: attempt %d, though attempt %d had been delivered", l.key, lease.queue, lease.attempt, next.attempt)
			case a.kind == "ack" && next.start >= h.mu.starts[a.process] && next.start > lease.start:
				bad("%s: %s: CAME BACK: attempt %d was delivered after the ack of attempt %d was confirmed", l.key, lease.queue, next.attempt, lease.attempt)
			case a.kind == "ack" || next.queue != lease.queue || h.startsAnew(next.queue) || next.start <= a.sent:
			case a.kind == "nack" && next.attempt <= lease.attempt:
				bad("%s: %s: attempt %d follows the confirmed nack of attempt %d", l.key, lease.queue, next.attempt, lease.attempt)
			case a.kind == "nack" && next.start < a.sent+a.delay:
				bad("%s: %s: a delay of %d ms was not waited for", l.key, lease.queue, a.delay/1e6)
			}
		}
	}
}

// checkPair judges two leases of which the second started next.
func (h *history) checkPair(l *life, a, b *seenLease, bad func(string, ...any)) {
	if a.process != b.process || h.mu.troubled[a.process] {
		return
	}
	givenUp := slices.ContainsFunc(a.answers, func(x *answer) bool { return x.sent <= b.start })
	if b.start < a.deadline && !givenUp {
		bad("%s: %s: two leases at once: attempt %d from %d to %d, attempt %d from %d", l.key, a.queue, a.attempt, a.start, a.deadline, b.attempt, b.start)
	}
	if a.queue == b.queue && !h.startsAnew(a.queue) && b.attempt <= a.attempt {
		bad("%s: %s: attempt %d after attempt %d", l.key, a.queue, b.attempt, a.attempt)
	}
}

func (h *history) startsAnew(queue string) bool {
	return h.redriven != "" && strings.TrimSuffix(queue, ".dlq") == h.redriven
}
