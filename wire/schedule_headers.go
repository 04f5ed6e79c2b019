package wire

import (
	"cmp"
	"strings"
	"time"
)

// Headers of an enqueue that makes or replaces a schedule, as in NATS's ADR-51. Only the
// name differs: there the subject is the name.
const (
	HeaderSchedule       = "Nats-Schedule"           // @at, @every, @daily and others, or cron
	HeaderScheduleTarget = "Nats-Schedule-Target"    // the queue, or the subject of its enqueues
	HeaderScheduleZone   = "Nats-Schedule-Time-Zone" // of a cron schedule; UTC without it
	HeaderScheduleTTL    = "Nats-Schedule-TTL"       // Nats-TTL of its messages
	HeaderScheduleName   = "Fila-Schedule-Name"      // a schedule of the same name is replaced
	HeaderScheduleMissed = "Fila-Schedule-Missed"    // skip, one or all
)

// Headers of a message that a schedule made. Consumers get them.
const (
	HeaderScheduledBy = "Fila-Schedule"     // the name of the schedule
	HeaderScheduledAt = "Fila-Scheduled-At" // when it was due, RFC 3339
)

// Treatments of missed runs, when fila was down or the queue took no messages.
const (
	MissedSkip = "skip" // they are skipped, as is a run that is more than a minute late
	MissedOne  = "one"  // the last missed run is made
	MissedAll  = "all"  // all missed runs are made, up to the last 1,000
)

// ScheduleHeaders are the unchecked headers of an enqueue that makes a schedule.
type ScheduleHeaders struct {
	Name, Schedule, TimeZone, Missed string
	Target                           string // must be the queue of the enqueue
	TTLMs                            int64
}

// scheduleFields are the headers of an enqueue that makes a schedule.
type scheduleFields struct{ schedule, target, zone, ttl, name, missed field }

// add takes a header if it is a schedule's.
func (f *scheduleFields) add(name string, values []string) (known bool, err *Error) {
	for _, h := range []struct {
		name string
		into *field
	}{
		{HeaderSchedule, &f.schedule},
		{HeaderScheduleTarget, &f.target},
		{HeaderScheduleZone, &f.zone},
		{HeaderScheduleTTL, &f.ttl},
		{HeaderScheduleName, &f.name},
		{HeaderScheduleMissed, &f.missed},
	} {
		if strings.EqualFold(name, h.name) {
			return true, h.into.add(h.name, values)
		}
	}
	return false, nil
}

// parse reads the headers of a schedule, which do not go with the other ones of an enqueue.
func (f *scheduleFields) parse(of *enqueueFields) (*ScheduleHeaders, *Error) {
	for _, other := range []struct {
		name string
		field
	}{{HeaderMsgID, of.msgID}, {HeaderDelay, of.delay}, {HeaderNotBefore, of.notBefore}, {HeaderTTL, of.ttl}} {
		if other.set {
			return nil, BadSchedule("header " + other.name + " does not go with a schedule")
		}
	}
	switch {
	case !f.schedule.set:
		return nil, BadSchedule("header " + HeaderSchedule + " is missing")
	case !f.name.set:
		return nil, BadSchedule("header " + HeaderScheduleName + " is missing: it names the schedule, and one of that name is replaced")
	case !f.target.set:
		return nil, BadSchedule("header " + HeaderScheduleTarget + " is missing: the queue of the enqueue is expected")
	}
	s := &ScheduleHeaders{
		Name: f.name.value, Schedule: f.schedule.value, TimeZone: f.zone.value,
		Missed: cmp.Or(f.missed.value, MissedOne), Target: f.target.value,
	}
	if f.ttl.set {
		ttl, err := parseTTL(f.ttl.value)
		if err != nil {
			return nil, err
		}
		s.TTLMs = int64(ttl / time.Millisecond)
	}
	return s, nil
}
