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
	unknown  outcome = iota // no answer: it may have happened, or may still happen
	accepted                // accepted
	refused                 // refused
)

// history has everything that producers and consumers saw of fila, from the first start to the
// last drain, over any number of kills. It checks three invariants: (1) a confirmed enqueue is
// delivered and finished, with its content; (2) a confirmed ack is final: no delivery starts
// after it; (3) leases of one message do not overlap, and fila refuses acks of any other lease.
// Times are from the machine's clock, which fila and the test share: a delivery starts at its
// Fila-Deadline minus the visibility timeout, whenever it arrives. A kill may lose the leases
// of the last milliseconds (docs/store.md), so leases of two processes are compared only with a
// confirmation between them. In a cluster the owner of a queue may change at any moment of a
// trouble, see troubled: from its start to its end only confirmations hold, so each answer is
// compared with what began after the test received it.
type history struct {
	visibility int64 // nanoseconds
	now        func() int64
	redriven   string // the queue whose dead letters are redriven: attempts restart, there and in its DLQ

	mu struct {
		sync.Mutex
		starts   []int64 // starts of the processes, Unix nanoseconds
		troubled []bool  // by process: it may be several processes, one after the other
		sent     map[string]*sentMessage
		lives    map[string]*life // by message id
		problems []string
		open     int // confirmed and not acked yet, as far as known
		events   int // confirmations of any kind
	}
}

// sentMessage is a published message with its own key.
type sentMessage struct {
	queue, tenant, payload string
	id                     string // from a confirmation or delivery, "" until then
	process                int    // process that gave the id
	confirmed              bool
	at                     int64  // first confirmation
	finished               string // the id under which an ack was accepted
}

// life is the history of one message id.
type life struct {
	key    string
	leases map[string]*seenLease // by reply subject
	acked  *answer               // the confirmed ack
	closed bool                  // acked, or perhaps: does not count as open
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

// answer is an ack payload that a consumer sent on a reply subject.
type answer struct {
	kind    string // ack, nack or term
	delay   int64  // of a nack, in nanoseconds
	sent    int64
	told    int64 // when the outcome was known
	process int   // process that had to answer
	outcome outcome
}

func newHistory(visibility int64) *history {
	h := &history{visibility: visibility, now: func() int64 { return time.Now().UnixNano() }}
	h.mu.sent = map[string]*sentMessage{}
	h.mu.lives = map[string]*life{}
	return h
}

// started records a new process, before its start.
func (h *history) started(now int64) { h.begin(now, false) }

// troubledSince records that from now on, until the next process, queues may change their
// process.
func (h *history) troubledSince(now int64) { h.begin(now, true) }

func (h *history) begin(now int64, troubled bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.starts, h.mu.troubled = append(h.mu.starts, now), append(h.mu.troubled, troubled)
}

func (h *history) problem(format string, args ...any) {
	h.mu.problems = append(h.mu.problems, fmt.Sprintf(format, args...))
}

// published records a message before its first publish.
func (h *history) published(key, queue, tenant, payload string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.sent[key] = &sentMessage{queue: queue, tenant: tenant, payload: payload}
}

// confirmed records the confirmation of an enqueue.
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

// identify checks that a key keeps one id. Deliveries do not wait for the disk, so a message
// that was delivered and not confirmed may be lost in a kill, and gets another id when the
// producer repeats it.
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

// delivered records a delivery and checks its content.
func (h *history) delivered(d delivery, queue string, attempt int, deadline int64) *seenLease {
	h.mu.Lock()
	defer h.mu.Unlock()
	key, id := d.Header.Get("Test-Key"), d.id()
	s := h.mu.sent[key]
	if s == nil {
		h.problem("delivery of a message that was never sent: key %q id %s", key, id)
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

// answering records an answer before it is sent; settle records its outcome.
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

// counts returns how many confirmed messages are probably not finished, and the number of
// confirmations.
func (h *history) counts() (open, events int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.open, h.mu.events
}

// soFar returns the problems found during the run.
func (h *history) soFar() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.mu.problems)
}

// report has the problems and the counts of a check.
type report struct {
	problems                                              []string
	sent, confirmed, deliveries, acked, nacked, uncertain int
	staleRefused                                          int
}

func (r *report) String() string {
	return fmt.Sprintf("%d sent, %d confirmed, %d deliveries, %d confirmed acks, %d confirmed nacks, %d stale answers refused, %d finished by an ack without answer",
		r.sent, r.confirmed, r.deliveries, r.acked, r.nacked, r.staleRefused, r.uncertain)
}

// check checks the whole history. drained says that the queues are empty, so every confirmed
// message must be finished.
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

// unsettled reports whether an unanswered ack may have finished the message.
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

// checkAnswers checks the accepted answers of one lease against the later leases.
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
			// The process that accepted an answer knew all of its own deliveries, and nothing may
			// start after an answer that finished the message.
			troubled := h.mu.troubled[a.process] || h.mu.troubled[next.process]
			switch stale := next.start > lease.start && next.start < a.sent && next.process == a.process; {
			case troubled && next.start <= a.told: // perhaps given by another process than the one that accepted
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

// checkPair checks two leases, of which b started next after a.
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
