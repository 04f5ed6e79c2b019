package wire

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// MaxDelay is the longest delay and TTL of a message: ten years of 365 days.
	MaxDelay = 10 * 365 * 24 * time.Hour
	// MaxDedupeID is the maximum length of a deduplication id in bytes.
	MaxDedupeID = 256
)

// EnqueueOptions are the parsed headers of an enqueue.
type EnqueueOptions struct {
	// DedupeID is the value of Nats-Msg-Id, 1 to 256 bytes of UTF-8 without
	// control characters; empty if absent.
	DedupeID string
	// NotBefore is the time before which the message must not be delivered, in
	// Unix nanoseconds; 0 if it may be delivered at once.
	NotBefore int64
	// Delayed says that NotBefore comes from a delay rather than a time.
	Delayed bool
	// TTL is how long the message lives: at least one second, or 0 for ever.
	TTL time.Duration
	// Schedule is set if the enqueue makes a schedule; the other fields are then zero.
	Schedule *ScheduleHeaders
	// Batch is set if the enqueue has several messages; the other fields are then zero.
	Batch *Batch
}

// ParseEnqueueHeaders parses the headers that fila understands on an enqueue, with names in
// any case. now is in Unix nanoseconds. It refuses invalid values, a delay together with a
// not-before time, times more than ten years away, names that cannot be delivered, and
// unknown reserved names, which would otherwise be lost silently. A not-before time that has
// passed is no delay. Headers of a schedule or a batch do not go with the others.
func ParseEnqueueHeaders(h map[string][]string, now int64) (EnqueueOptions, *Error) {
	var o EnqueueOptions
	if len(h) == 0 {
		return o, nil
	}
	f, err := collect(h)
	if err != nil {
		return EnqueueOptions{}, err
	}
	switch {
	case f.batch != nil:
		o.Batch, err = f.batch.parse(&f)
		return o, err
	case f.schedule != nil:
		o.Schedule, err = f.schedule.parse(&f)
		return o, err
	}
	o.DedupeID = f.msgID.value
	switch {
	case f.delay.set && f.notBefore.set:
		err = DelayAndNotBefore()
	case f.msgID.set && (o.DedupeID == "" || len(o.DedupeID) > MaxDedupeID || !Plain(o.DedupeID)):
		err = BadMsgID(o.DedupeID)
	case f.delay.set:
		o.NotBefore, err = parseDelay(f.delay.value, now)
		o.Delayed = o.NotBefore != 0
	case f.notBefore.set:
		o.NotBefore, err = parseNotBefore(f.notBefore.value, now)
	}
	if err == nil && f.ttl.set {
		o.TTL, err = parseTTL(f.ttl.value)
	}
	if err != nil {
		return EnqueueOptions{}, err
	}
	return o, nil
}

type enqueueFields struct {
	msgID, delay, notBefore, ttl field
	schedule                     *scheduleFields // nil: no schedule
	batch                        *batchFields    // nil: no batch
	others                       int             // headers of the producer
}

// collect finds the known headers in one pass and checks the names of the others.
func collect(h map[string][]string) (enqueueFields, *Error) {
	var f enqueueFields
	for k, values := range h {
		if !Reserved(k) {
			if !LegalHeaderName(k) {
				return enqueueFields{}, BadHeaderName(k)
			}
			f.others++
			continue
		}
		var err *Error
		switch {
		case strings.EqualFold(k, HeaderMsgID):
			err = f.msgID.add(HeaderMsgID, values)
		case strings.EqualFold(k, HeaderDelay):
			err = f.delay.add(HeaderDelay, values)
		case strings.EqualFold(k, HeaderNotBefore):
			err = f.notBefore.add(HeaderNotBefore, values)
		case strings.EqualFold(k, HeaderTTL):
			err = f.ttl.add(HeaderTTL, values)
		case strings.EqualFold(k, HeaderBatch), strings.EqualFold(k, HeaderBatchAtomic):
			err = f.ofBatch(k, values)
		case !addedByNATS(k):
			err = f.ofSchedule(k, values)
		}
		if err != nil {
			return enqueueFields{}, err
		}
	}
	return f, nil
}

// ofSchedule takes a header of a schedule, and refuses other reserved headers.
func (f *enqueueFields) ofSchedule(name string, values []string) *Error {
	s := f.schedule
	if s == nil {
		s = new(scheduleFields)
	}
	known, err := s.add(name, values)
	if !known {
		return HeaderReserved(name, "allowed of them are "+HeaderDelay+", "+HeaderNotBefore+", "+HeaderMsgID+", "+HeaderTTL+" and those that make a schedule")
	}
	f.schedule = s
	return err
}

// ofBatch takes a header of a batch.
func (f *enqueueFields) ofBatch(name string, values []string) *Error {
	if f.batch == nil {
		f.batch = new(batchFields)
	}
	if strings.EqualFold(name, HeaderBatch) {
		return f.batch.number.add(HeaderBatch, values)
	}
	return f.batch.atomic.add(HeaderBatchAtomic, values)
}

// addedByNATS reports whether NATS itself adds a reserved header on the way to fila: for an
// import, a trace, or a stream's republish.
func addedByNATS(name string) bool {
	const trace = "Nats-Trace-"
	return len(name) > len(trace) && strings.EqualFold(name[:len(trace)], trace) ||
		slices.ContainsFunc(natsHeaders, func(known string) bool { return strings.EqualFold(known, name) })
}

var natsHeaders = []string{
	"Nats-Request-Info", "Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Last-Sequence", "Nats-Time-Stamp", "Nats-Msg-Size", "Nats-Stream-Source",
}

func parseDelay(v string, now int64) (int64, *Error) {
	d, err := time.ParseDuration(strings.TrimSpace(v))
	if err != nil || d < 0 || d > MaxDelay {
		return 0, BadDelay(v)
	}
	if d == 0 {
		return 0, nil
	}
	return now + int64(d), nil
}

func parseNotBefore(v string, now int64) (int64, *Error) {
	t, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(v))
	if err != nil {
		return 0, BadNotBefore(v)
	}
	// Compare as times: distant years do not fit into nanoseconds.
	from := time.Unix(0, now)
	switch {
	case !t.After(from):
		return 0, nil
	case t.After(from.Add(MaxDelay)):
		return 0, BadNotBefore(v)
	}
	return t.UnixNano(), nil
}

// parseTTL reads a TTL as JetStream does: "never", a Go duration of at least a
// second, or whole seconds.
func parseTTL(v string) (time.Duration, *Error) {
	s := strings.TrimSpace(v)
	if strings.EqualFold(s, "never") {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		n, err := strconv.ParseUint(s, 10, 63)
		if err != nil || n > uint64(MaxDelay/time.Second) {
			return 0, BadTTL(v)
		}
		d = time.Duration(n) * time.Second
	}
	if d < time.Second || d > MaxDelay {
		return 0, BadTTL(v)
	}
	return d, nil
}
