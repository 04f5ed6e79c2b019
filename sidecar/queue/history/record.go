package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/filaq/fila/wire"
)

// AttemptRecord is one entry of the history of a message: an attempt that ended, a
// redrive, or a move to another queue.
type AttemptRecord struct {
	Outcome   string // one of wire.Attempt...
	Number    uint32 // of the attempt; 0: the record is about something else
	Dead      bool   // the message was delivered from the dead letter queue
	At        int64  // Unix ns of the delivery, redrive or move; 0: not known
	Took      int64  // ns until the attempt ended
	Consumer  string
	Route     string // by which the message went; empty: it had no choice
	Error     string
	Code      string
	DecidedBy string // one of wire.DecidedBy...; empty: nothing had to be decided
	Rule      string // error rule that matched the failure
	Reason    string // why the message became a dead letter; empty: it did not
	Delay     int64  // ns until the retry
	Waited    int64  // ns between ready and delivered
	Blocked   []BlockedInterval
	Times     uint32 // how many attempts in a row this record stands for; 0 and 1: one
	Last      int64  // Unix ns of the last delivery if Times > 1; Consumer is its consumer, Route is of the first
	From, To  string // queues of a move
}

// BlockedInterval is how long one gate or pause blocked a message.
type BlockedInterval struct {
	Kind  string // name of what blocks: "rate", "paused", ...
	Place string // one of the Place constants
	Key   string
	For   int64 // ns
	From  int64 // Unix ns of the first time; not part of a record
}

// The values of BlockedInterval.Place.
const (
	PlaceThrottle = "throttle:"
	PlaceCircuit  = "circuit:"
	PlaceKey      = "key:"
	PlaceQueue    = "queue:"
)

// Gate names the gate in the form of api.GateState.
func (b *BlockedInterval) Gate() string { return b.Place + b.Key }

// Format of a record; integers are uvarints, times varints, a string is its length
// and its bytes:
//
//	version, u8; flags, u8: 1 = dead
//	outcome, string; number; at; took
//	consumer, error, code, decided by, rule, reason, strings; delay
//	waited; number of intervals; for each: kind, place, key, strings; for
//	version 2 only: times; last
//
// Long strings are cut, so that a record never exceeds what a store takes. A record
// about several attempts has version 2, every other one version 1.
//
// The record of a move stores its queues as intervals of 0 ns with the kinds "from"
// and "to": a program that does not know moves can still read it. A route is such an
// interval with the kind "route", behind the others: the record of an attempt by a
// route has one interval less. A program that does not know routes shows it as an
// interval, and writes the same record when it joins two.
const (
	versionOne     = 1
	versionSeveral = 2
	flagDead       = 1

	maxWord     = 24 // outcomes, kinds, reasons
	maxName     = 64 // consumers, rules, codes
	maxGate     = 96
	maxMoveName = wire.MaxQueueName + len(wire.DLQSuffix)

	kindMovedFrom = "from"
	kindMovedTo   = "to"
	kindRoute     = "route"
	placeRoute    = "route:"
)

// Append appends the encoded record to dst.
func (r *AttemptRecord) Append(dst []byte) []byte {
	version, flags := byte(versionOne), byte(0)
	if r.Times > 1 {
		version = versionSeveral
	}
	if r.Dead {
		flags = flagDead
	}
	dst = append(dst, version, flags)
	dst = appendText(dst, r.Outcome, maxWord)
	dst = binary.AppendUvarint(dst, uint64(r.Number))
	dst = binary.AppendVarint(dst, r.At)
	dst = appendSpan(dst, r.Took)
	dst = appendText(dst, r.Consumer, maxName)
	dst = appendText(dst, r.Error, wire.MaxErrorText)
	dst = appendText(dst, r.Code, maxName)
	dst = appendText(dst, r.DecidedBy, maxWord)
	dst = appendText(dst, r.Rule, maxName)
	dst = appendText(dst, r.Reason, maxWord)
	dst = appendSpan(dst, r.Delay)
	dst = appendSpan(dst, r.Waited)
	switch {
	case r.Outcome == wire.AttemptMoved:
		dst = appendIntervals(dst, []BlockedInterval{
			{Kind: kindMovedFrom, Place: PlaceQueue, Key: r.From}, {Kind: kindMovedTo, Place: PlaceQueue, Key: r.To},
		}, maxMoveName)
	case r.Route != "":
		var list [maxIntervals]BlockedInterval
		n := copy(list[:maxIntervals-1], r.Blocked)
		list[n] = BlockedInterval{Kind: kindRoute, Place: placeRoute, Key: r.Route}
		dst = appendIntervals(dst, list[:n+1], maxGate)
	default:
		dst = appendIntervals(dst, r.Blocked, maxGate)
	}
	if version == versionSeveral {
		dst = binary.AppendVarint(binary.AppendUvarint(dst, uint64(r.Times)), r.Last)
	}
	return dst
}

// Read decodes a record. The result does not refer to it.
func Read(record []byte) (AttemptRecord, error) {
	d := decoder{b: record}
	version := d.byte()
	if d.err == nil && version != versionOne && version != versionSeveral {
		return AttemptRecord{}, fmt.Errorf("a history record of version %d: this program reads versions up to %d", version, versionSeveral)
	}
	flags := d.byte()
	if flags&^flagDead != 0 {
		d.fail()
	}
	r := AttemptRecord{
		Dead: flags&flagDead != 0, Outcome: d.text(), Number: d.u32(), At: d.varint(), Took: d.span(), Consumer: d.text(),
		Error: d.text(), Code: d.text(), DecidedBy: d.text(), Rule: d.text(), Reason: d.text(),
		Delay: d.span(), Waited: d.span(), Blocked: d.intervals(),
	}
	if version == versionSeveral {
		if r.Times, r.Last = d.u32(), d.varint(); r.Times < 2 {
			d.fail()
		}
	}
	if r.Outcome == wire.AttemptMoved {
		for _, b := range r.Blocked {
			switch b.Kind {
			case kindMovedFrom:
				r.From = b.Key
			case kindMovedTo:
				r.To = b.Key
			}
		}
		r.Blocked = nil
	} else if n := len(r.Blocked) - 1; n >= 0 && r.Blocked[n].Kind == kindRoute {
		r.Route = r.Blocked[n].Key
		if r.Blocked = r.Blocked[:n]; n == 0 {
			r.Blocked = nil
		}
	}
	return r, d.finish()
}

// Join merges the newest record of a history with the next one if both are about
// deliveries that reached nobody; otherwise it returns nil. Without it, a message
// whose consumers are away for long would have no other records. The result depends
// on the two records alone, so all copies of a store agree.
func Join(last, next []byte) []byte {
	if !hasOutcome(last, wire.AttemptNoResponders) || !hasOutcome(next, wire.AttemptNoResponders) {
		return nil
	}
	r, err := Read(last)
	n, nerr := Read(next)
	if err != nil || nerr != nil || r.Dead != n.Dead || r.Number != n.Number {
		return nil
	}
	times := uint64(max(r.Times, 1)) + uint64(max(n.Times, 1))
	r.Times, r.Last, r.Consumer = uint32(min(times, math.MaxUint32)), n.At, n.Consumer
	if n.Times > 1 {
		r.Last = n.Last
	}
	return r.Append(nil)
}

// IsRedrive reports whether a record is about a redrive. The store keeps the newest
// such record: it tells that a dead letter has been one before.
func IsRedrive(record []byte) bool { return hasOutcome(record, wire.AttemptRedriven) }

// hasOutcome compares the outcome of a record without decoding it.
func hasOutcome(record []byte, outcome string) bool {
	return len(record) > 2 && int(record[2]) == len(outcome) && bytes.HasPrefix(record[3:], []byte(outcome))
}

// AppendBlocked encodes what a store keeps of a lease: what blocked the message, without the
// times at which the intervals began, and the number of its route. The first route, 0, is
// left out.
func AppendBlocked(dst []byte, list []BlockedInterval, route int) []byte {
	dst = appendIntervals(dst, list, maxGate)
	if route > 0 {
		dst = binary.AppendUvarint(dst, uint64(route))
	}
	return dst
}

func appendIntervals(dst []byte, list []BlockedInterval, longestKey int) []byte {
	list = list[:min(len(list), maxIntervals)]
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for i := range list {
		b := &list[i]
		dst = appendText(dst, b.Kind, maxWord)
		dst = appendText(dst, b.Place, maxWord)
		dst = appendText(dst, b.Key, longestKey)
		dst = appendSpan(dst, b.For)
	}
	return dst
}

// ReadBlocked decodes what AppendBlocked wrote.
func ReadBlocked(b []byte) (list []BlockedInterval, route int, err error) {
	d := decoder{b: b}
	list = d.intervals()
	if len(d.b) > 0 {
		route = int(d.u32())
	}
	return list, route, d.finish()
}

func appendText(dst []byte, s string, most int) []byte {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// appendSpan encodes a negative duration as 0: the clock may have been set back.
func appendSpan(dst []byte, d int64) []byte { return binary.AppendUvarint(dst, uint64(max(d, 0))) }

// decoder reads the fields of a record. After an error it returns zeros.
type decoder struct {
	b   []byte
	err error
}

var errBroken = errors.New("a history record that is cut short or broken")

func (d *decoder) fail() { d.err, d.b = errBroken, nil }

func (d *decoder) finish() error {
	if d.err == nil && len(d.b) > 0 {
		return errBroken
	}
	return d.err
}

// next returns the next n bytes.
func (d *decoder) next(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) byte() byte {
	if b := d.next(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > most {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) u32() uint32  { return uint32(d.uvarint(math.MaxUint32)) }
func (d *decoder) span() int64  { return int64(d.uvarint(math.MaxInt64)) }
func (d *decoder) text() string { return string(d.next(d.uvarint(math.MaxUint64))) }

func (d *decoder) intervals() (list []BlockedInterval) {
	for range d.uvarint(maxIntervals) {
		list = append(list, BlockedInterval{Kind: d.text(), Place: d.text(), Key: d.text(), For: d.span()})
	}
	return list
}
