package queue

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/filaq/fila/wire"
)

// Past is one record of the history of a message: an attempt that has ended, a redrive or a
// move to another queue.
// Nothing is recorded of a message that is done at its first attempt, and the machine
// keeps nothing of it: the store does.
type AttemptRecord struct {
	Outcome   string // one of wire.Attempt...
	Number    uint32 // of the attempt; 0: it is none
	Dead      bool   // it was delivered from the dead letter queue
	At        int64  // when it was delivered, or what else it is happened (Unix ns); 0: not known
	Took      int64  // ns until it ended
	Consumer  string
	Error     string
	Code      string
	DecidedBy string            // one of wire.DecidedBy...; empty: nothing had to be decided
	Rule      string            // error rule that the failure fits
	Reason    string            // why it became a dead letter; empty: it did not
	Delay     int64             // ns until the retry
	Waited    int64             // ns from when it was ready until it was delivered
	Blocked   []BlockedInterval // what held it meanwhile, the longest first
	Times     uint32            // how many attempts in a row have ended like that; 0 and 1: this one
	Last      int64             // when the last of several was delivered (Unix ns); Consumer is that of it
	From, To  string            // of a move: the queues
}

// Hold is how long a gate has held a message back.
type BlockedInterval struct {
	Kind  string // of a [BlockKind]
	Place string // "throttle:", "circuit:", "key:" or "queue:"
	Key   string
	For   int64 // ns
	From  int64 // Unix ns: since when, the first time; not in a record
}

// Gate names it as wire.GateState does.
func (h *BlockedInterval) Gate() string { return h.Place + h.Key }

const (
	maxHolds  = 4
	leastHold = int64(1e6) // shorter ones are not worth a word
)

// A record is, integers being uvarints and times varints:
//
//	version, u8; flags, u8: 1 = dead
//	outcome, string; number; at; took
//	consumer, error, code, decided by, rule, reason, strings; delay
//	waited; holds
//	times; last
//
// It is of version 1 and ends with the holds, unless it is about several attempts: those
// are of version 2.
//
// Holds are their number and, of each, kind and gate, strings, and for. A string is its
// length and its bytes; a long one is cut, so that a record never exceeds what a store
// takes.
//
// The record of a move names its queues as holds of 0 ns with the kinds "from" and "to". A
// program that does not know moves reads such a record, and says that the message was moved.
const (
	pastVersion  = 1
	pastRepeated = 2 // the version of those about several attempts
	pastDead     = 1

	maxPastWord = 24 // of our own
	maxPastName = 64 // of consumers and rules, and codes
	maxPastGate = 96

	maxPastQueue = wire.MaxQueueName + len(wire.DLQSuffix)

	movedFrom = "from"
	movedTo   = "to"
)

// Append appends the record.
func (p *AttemptRecord) Append(dst []byte) []byte {
	version, flags := byte(pastVersion), byte(0)
	if p.Times > 1 {
		version = pastRepeated
	}
	if p.Dead {
		flags = pastDead
	}
	dst = append(dst, version, flags)
	dst = appendText(dst, p.Outcome, maxPastWord)
	dst = binary.AppendUvarint(dst, uint64(p.Number))
	dst = binary.AppendVarint(dst, p.At)
	dst = appendSpan(dst, p.Took)
	dst = appendText(dst, p.Consumer, maxPastName)
	dst = appendText(dst, p.Error, wire.MaxErrorText)
	dst = appendText(dst, p.Code, maxPastName)
	dst = appendText(dst, p.DecidedBy, maxPastWord)
	dst = appendText(dst, p.Rule, maxPastName)
	dst = appendText(dst, p.Reason, maxPastWord)
	dst = appendSpan(dst, p.Delay)
	dst = appendSpan(dst, p.Waited)
	if p.Outcome == wire.AttemptMoved {
		queues := []BlockedInterval{{Kind: movedFrom, Place: placeQueue, Key: p.From}, {Kind: movedTo, Place: placeQueue, Key: p.To}}
		dst = appendHolds(dst, queues, maxPastQueue)
	} else {
		dst = appendHolds(dst, p.Blocked, maxPastGate)
	}
	if version == pastRepeated {
		dst = binary.AppendVarint(binary.AppendUvarint(dst, uint64(p.Times)), p.Last)
	}
	return dst
}

// ReadPast reads a record. The result keeps nothing of it.
func ReadAttempt(record []byte) (p AttemptRecord, err error) {
	r := pastReader{b: record}
	version := r.byte()
	if r.err == nil && version != pastVersion && version != pastRepeated {
		return p, fmt.Errorf("a record of version %d, this program knows those up to %d", version, pastRepeated)
	}
	flags := r.byte()
	if flags&^pastDead != 0 {
		r.fail()
	}
	p = AttemptRecord{
		Dead: flags&pastDead != 0, Outcome: r.text(), Number: r.u32(), At: r.varint(), Took: r.span(), Consumer: r.text(),
		Error: r.text(), Code: r.text(), DecidedBy: r.text(), Rule: r.text(), Reason: r.text(),
		Delay: r.span(), Waited: r.span(), Blocked: r.holds(),
	}
	if version == pastRepeated {
		if p.Times, p.Last = r.u32(), r.varint(); p.Times < 2 {
			r.fail()
		}
	}
	if p.Outcome == wire.AttemptMoved {
		p.readQueues()
	}
	return p, r.done()
}

// readQueues takes the queues of a move out of the holds.
func (p *AttemptRecord) readQueues() {
	for i := range p.Blocked {
		switch h := &p.Blocked[i]; h.Kind {
		case movedFrom:
			p.From = h.Key
		case movedTo:
			p.To = h.Key
		}
	}
	p.Blocked = nil
}

// JoinPast makes one record of the newest of a history and the next one, if both are
// about deliveries that reached nobody: a message whose consumers are away for long would
// have no others. nil: they are two. It depends on nothing but the records, so copies of
// a store do not differ.
func JoinAttempts(last, next []byte) []byte {
	if !unreached(last) || !unreached(next) {
		return nil
	}
	p, err := ReadAttempt(last)
	n, nerr := ReadAttempt(next)
	if err != nil || nerr != nil || p.Dead != n.Dead || p.Number != n.Number {
		return nil
	}
	times := uint64(max(p.Times, 1)) + uint64(max(n.Times, 1))
	p.Times, p.Last, p.Consumer = uint32(min(times, math.MaxUint32)), n.At, n.Consumer
	if n.Times > 1 {
		p.Last = n.Last
	}
	return p.Append(nil)
}

// unreached reports whether a record is about a delivery that reached nobody, without
// reading it.
func unreached(record []byte) bool {
	const text = string(rune(len(wire.AttemptNoResponders))) + wire.AttemptNoResponders
	return len(record) > 2 && bytes.HasPrefix(record[2:], []byte(text))
}

// IsRedrive reports whether a record is about a redrive, without reading it. The newest
// one is kept whatever comes behind it: it says that a dead letter has been one before.
func IsRedrive(record []byte) bool {
	const text = string(rune(len(wire.AttemptRedriven))) + wire.AttemptRedriven
	return len(record) > 2 && bytes.HasPrefix(record[2:], []byte(text))
}

func appendHolds(dst []byte, held []BlockedInterval, longestKey int) []byte {
	held = held[:min(len(held), maxHolds)]
	dst = binary.AppendUvarint(dst, uint64(len(held)))
	for i := range held {
		h := &held[i]
		dst = appendText(dst, h.Kind, maxPastWord)
		dst = appendText(dst, h.Place, maxPastWord)
		dst = appendText(dst, h.Key, longestKey)
		dst = appendSpan(dst, h.For)
	}
	return dst
}

func appendText(dst []byte, s string, most int) []byte {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// appendSpan appends a time that has passed, which is not negative: the clock may have
// been set back.
func appendSpan(dst []byte, d int64) []byte { return binary.AppendUvarint(dst, uint64(max(d, 0))) }

// pastReader takes a record apart. After an error it returns zeros.
type pastReader struct {
	b   []byte
	err error
}

var errPast = errors.New("a record that is cut short or broken")

func (r *pastReader) fail() {
	r.err, r.b = errPast, nil
}

func (r *pastReader) done() error {
	if r.err == nil && len(r.b) > 0 {
		return errPast
	}
	return r.err
}

func (r *pastReader) byte() (b byte) {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	b, r.b = r.b[0], r.b[1:]
	return b
}

func (r *pastReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *pastReader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *pastReader) u32() uint32 {
	v := r.uvarint()
	if v > math.MaxUint32 {
		r.fail()
		return 0
	}
	return uint32(v)
}

func (r *pastReader) span() int64 {
	v := r.uvarint()
	if v > math.MaxInt64 {
		r.fail()
		return 0
	}
	return int64(v)
}

func (r *pastReader) text() string {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.fail()
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *pastReader) holds() (held []BlockedInterval) {
	n := r.uvarint()
	if n > maxHolds {
		r.fail()
		return nil
	}
	for range n {
		held = append(held, BlockedInterval{Kind: r.text(), Place: r.text(), Key: r.text(), For: r.span()})
	}
	return held
}

// spent is an attempt that has ended, as far as its lease tells.
type spent struct {
	outcome  string
	at, took int64
	consumer string
	held     []BlockedInterval
}

// spentBy is the attempt under a lease that ends now.
func spentBy(le *lease, outcome string, now int64) spent {
	a := spent{outcome: outcome, at: le.at, consumer: le.consumer.name, held: le.held}
	if le.at != 0 {
		a.took = now - le.at
	}
	return a
}

// past is the record of attempt a, the last one of message s, whose place it has not
// left yet otherwise: readyAt is that of the attempt.
func (q *side) past(s *slot, number uint32, a *spent) AttemptRecord {
	p := AttemptRecord{
		Outcome: a.outcome, Number: number, Dead: q.isDead(), At: a.at, Took: a.took, Consumer: a.consumer, Blocked: a.held,
	}
	if a.at != 0 {
		p.Waited = a.at - s.readyAt
	}
	return p
}

// remember adds a record to the history of message seq.
func (q *side) remember(seq uint64, p *AttemptRecord) {
	j := &q.m.journal
	j.record(j.change(q.m.now), q.ref(seq), p)
}

// stall is a stretch of time in which a gate held messages back.
type stall struct {
	kind  BlockKind
	place string
	key   string
	from  int64
	to    int64 // math.MaxInt64: it still does
}

// stalls are the latest ones of a subqueue, or those of a side by its pauses, the oldest
// first. They do not overlap.
type stalls []stall

const (
	maxStalls = 8
	stillHeld = math.MaxInt64
)

// begin notes that a gate holds messages back from now on, whatever did until now.
func (t *stalls) begin(kind BlockKind, place, key string, now int64) {
	if n := len(*t); n > 0 {
		last := &(*t)[n-1]
		if last.place == place && last.key == key && last.to >= now {
			last.to = stillHeld
			if kind != ByTurn {
				last.kind = kind // what it is a turn for says more
			}
			return
		}
		t.end(now)
		if n == maxStalls {
			*t = append((*t)[:0], (*t)[1:]...)
		}
	}
	*t = append(*t, stall{kind, place, key, now, stillHeld})
}

// end notes that nothing holds messages back any more.
func (t *stalls) end(now int64) {
	if n := len(*t); n > 0 && (*t)[n-1].to == stillHeld {
		(*t)[n-1].to = now
	}
}

// during adds to held what held a message that was ready since a time and is delivered
// now.
func (t stalls) during(held []BlockedInterval, since, now int64) []BlockedInterval {
	for i := range t {
		s := &t[i]
		d := min(s.to, now) - max(s.from, since)
		if d <= 0 {
			continue
		}
		at := slices.IndexFunc(held, func(h BlockedInterval) bool { return h.Place == s.place && h.Key == s.key })
		if at < 0 {
			at = len(held)
			held = append(held, BlockedInterval{Kind: s.kind.String(), Place: s.place, Key: s.key, From: max(s.from, since)})
		}
		held[at].For = min(held[at].For+d, now-since) // stretches overlap where the clock was set back
	}
	return held
}

// heldUntil says what held message s, of a subqueue, until its delivery now; nil: nothing
// that is worth a word.
func (q *side) heldUntil(id subID, s *slot, now int64) []BlockedInterval {
	var own stalls
	if id != 0 {
		if row := q.gating.subs.at(id).stalls; row != 0 {
			own = q.gating.stalls.at(row)
		}
	}
	if len(own)+len(q.pauses.stalls) == 0 || now-s.readyAt < leastHold {
		return nil
	}
	held := q.pauses.stalls.during(own.during(q.gating.held[:0], s.readyAt, now), s.readyAt, now)
	q.gating.held = held
	held = slices.DeleteFunc(held, func(h BlockedInterval) bool { return h.For < leastHold })
	slices.SortStableFunc(held, func(a, b BlockedInterval) int { return cmp.Compare(b.For, a.For) })
	return slices.Clone(held[:min(len(held), maxHolds)])
}

// stallTable holds the stalls of the subqueues that have been blocked.
type stallTable struct {
	rows []stalls // rows[0] is not used
	free []uint32
}

func (t *stallTable) at(row uint32) stalls { return t.rows[row] }

// stalled notes where a subqueue is blocked from now on.
func (q *side) stalled(sub *subqueue, now int64) {
	t := &q.gating.stalls
	if sub.stalls == 0 {
		if n := len(t.free); n > 0 {
			sub.stalls, t.free = t.free[n-1], t.free[:n-1]
		} else {
			if len(t.rows) == 0 {
				t.rows = make([]stalls, 1)
			}
			sub.stalls = uint32(len(t.rows))
			t.rows = append(t.rows, nil)
		}
	}
	place, key := q.gating.waits.at(sub.wait).named()
	if place == placeKey {
		key = q.keys.name(sub.flow)
	}
	t.rows[sub.stalls].begin(sub.kind, place, key, now)
}

// ran notes that nothing blocks a subqueue any more.
func (q *side) ran(sub *subqueue) {
	if sub.stalls != 0 {
		q.gating.stalls.rows[sub.stalls].end(q.m.now)
	}
}

// forgetStalls forgets those of a subqueue that is gone.
func (g *gating) forgetStalls(sub *subqueue) {
	if row := sub.stalls; row != 0 {
		g.stalls.rows[row] = nil
		g.stalls.free = append(g.stalls.free, row)
	}
}

// Places of holds.
const (
	placeThrottle = "throttle:"
	placeCircuit  = "circuit:"
	placeKey      = "key:"
	placeQueue    = "queue:"
)

// named says which gate the wait list is for. That of a paused key is not known to it.
func (wl *waitList) named() (place, key string) {
	switch wl.kind {
	case waitThrottle:
		return placeThrottle, wl.gate.Key()
	case waitCircuit:
		return placeCircuit, wl.circuit.Key()
	}
	return placeKey, ""
}
