package wire

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Admin verbs of schedules. All but the list end in the queue that the schedule is for.
const (
	VerbScheduleAdd    = "schedule-add"
	VerbScheduleList   = "schedule-list"
	VerbScheduleShow   = "schedule-show"
	VerbScheduleDelete = "schedule-delete"
	VerbSchedulePause  = "schedule-pause"
	VerbScheduleResume = "schedule-resume"
)

// Headers of an enqueue that makes or replaces a schedule, as in NATS's ADR-51 but for the
// name, for which a stream has a subject.
const (
	HeaderSchedule       = "Nats-Schedule"           // @at, @every, @daily and others, or cron
	HeaderScheduleTarget = "Nats-Schedule-Target"    // the queue, or the subject of its enqueues
	HeaderScheduleZone   = "Nats-Schedule-Time-Zone" // of a cron schedule; UTC without it
	HeaderScheduleTTL    = "Nats-Schedule-TTL"       // of the messages that it makes, as Nats-TTL
	HeaderScheduleName   = "Fila-Schedule-Name"      // one of that name is replaced
	HeaderScheduleMissed = "Fila-Schedule-Missed"    // skip, one or all
)

// Headers of a message that a schedule has made. Consumers get them.
const (
	HeaderScheduledBy = "Fila-Schedule"     // the name of the schedule
	HeaderScheduledAt = "Fila-Scheduled-At" // when it was to run, RFC 3339
)

// What becomes of runs that were missed: fila was down, or the queue took nothing.
const (
	MissedSkip = "skip" // they are left out, and so is one that is more than a minute late
	MissedOne  = "one"  // the last of them is made up for
	MissedAll  = "all"  // all of them are, up to the last 1,000
)

// How a schedule stands.
const (
	ScheduleActive = "active"
	SchedulePaused = "paused"
)

// Bounds of schedules.
const (
	MaxScheduleName  = 64       // bytes
	MaxScheduleText  = 256      // bytes of a schedule, and of a time zone
	MaxScheduleBytes = 64 << 10 // of headers and payload
	ScheduleNext     = 5        // runs to come that are shown
	ScheduleRuns     = 5        // past ones
)

// ScheduleAddRequest makes a schedule of a queue, or replaces the one of that name. One
// that is already there with all of this stays as it is.
type ScheduleAddRequest struct {
	Name     string              `json:"name"`
	Schedule string              `json:"schedule"`
	TimeZone string              `json:"time_zone,omitempty"` // of cron; empty: UTC
	Missed   string              `json:"missed"`              // one by default
	TTLMs    int64               `json:"ttl_ms,omitempty"`    // of its messages; 0: they live for ever
	Headers  map[string][]string `json:"headers,omitempty"`
	Payload  []byte              `json:"payload,omitempty"` // base64
}

// ParseScheduleAdd decodes a [ScheduleAddRequest]; whoever makes the schedule checks it.
func ParseScheduleAdd(body []byte) (ScheduleAddRequest, *Error) {
	return parse(body, ScheduleAddRequest{Missed: MissedOne}, func(*ScheduleAddRequest) *Error { return nil })
}

// Check returns what is wrong with a request, but for Schedule and TimeZone.
func (r *ScheduleAddRequest) Check() *Error {
	if err := checkName("schedule name", r.Name, MaxScheduleName); err != nil {
		return BadSchedule(err.Error())
	}
	const most = int64(MaxDelay / time.Millisecond)
	switch {
	case r.Schedule == "":
		return BadSchedule("the schedule is missing, such as @every 90m")
	case len(r.Schedule) > MaxScheduleText || len(r.TimeZone) > MaxScheduleText:
		return BadSchedule("the schedule or its time zone has more than " + strconv.Itoa(MaxScheduleText) + " bytes")
	case !slices.Contains([]string{MissedSkip, MissedOne, MissedAll}, r.Missed):
		return BadSchedule("missed is " + quote(r.Missed) + ": allowed are skip, one and all")
	case r.TTLMs != 0 && (r.TTLMs < 1000 || r.TTLMs > most):
		return BadSchedule("ttl_ms is " + strconv.FormatInt(r.TTLMs, 10) + ": allowed are 0 (for ever) and 1000 to " + strconv.FormatInt(most, 10))
	}
	size := len(r.Payload)
	for name, values := range r.Headers {
		switch {
		case Reserved(name):
			return HeaderReserved(name, "the messages of a schedule get none of them; how long they live is its ttl_ms")
		case !legalHeaderName(name):
			return BadHeaderName(name)
		}
		for _, v := range values {
			if HeaderValue(v) != v || !utf8.ValidString(v) {
				return BadSchedule("a value of header " + quote(name) + " is not one line of UTF-8")
			}
			size += len(name) + len(v)
		}
	}
	if size > MaxScheduleBytes {
		return MessageTooLarge(int64(size), MaxScheduleBytes)
	}
	return nil
}

// ScheduleRequest names a schedule of the queue at the end of the subject.
type ScheduleRequest struct {
	Name string `json:"name"`
}

// ParseSchedule decodes a [ScheduleRequest].
func ParseSchedule(body []byte) (ScheduleRequest, *Error) {
	return parse(body, ScheduleRequest{}, func(*ScheduleRequest) *Error { return nil })
}

// ScheduleListRequest asks for schedules by queue and name.
type ScheduleListRequest struct {
	Queue string `json:"queue,omitempty"` // those of this queue; empty: all
	After string `json:"after,omitempty"` // Next of the page before
	Limit int    `json:"limit"`           // 1 to 1000, default 100
}

// ParseScheduleList decodes and checks a [ScheduleListRequest].
func ParseScheduleList(body []byte) (ScheduleListRequest, *Error) {
	return parse(body, ScheduleListRequest{Limit: DefaultListLimit}, func(r *ScheduleListRequest) *Error {
		if r.Queue != "" {
			if err := CheckQueueName(r.Queue); err != nil {
				return BadQueueName(err)
			}
		}
		return inRange("limit", r.Limit, 1, MaxListLimit)
	})
}

// ScheduleInfo is a schedule, and the answer to what is done about one.
type ScheduleInfo struct {
	Queue     string              `json:"queue"`
	Name      string              `json:"name"`
	Schedule  string              `json:"schedule"`
	TimeZone  string              `json:"time_zone,omitempty"`
	Missed    string              `json:"missed"`
	TTLMs     int64               `json:"ttl_ms,omitempty"`
	State     string              `json:"state"`
	Why       string              `json:"why,omitempty"` // its last run is late: what refuses it
	CreatedAt string              `json:"created_at"`
	ByEnqueue bool                `json:"by_enqueue,omitempty"` // a producer has made it
	Replaced  bool                `json:"replaced,omitempty"`   // when it was added: there was another one of that name
	Unchanged bool                `json:"unchanged,omitempty"`  // when it was added: it was there
	Next      []string            `json:"next"`                 // up to five runs to come, in its time zone
	Last      []ScheduleRun       `json:"last"`                 // up to five that were made, the newest first
	Runs      int64               `json:"runs"`                 // that were made
	MissedN   int64               `json:"missed_runs"`          // that were not
	Bytes     int64               `json:"bytes"`                // of headers and payload
	Headers   map[string][]string `json:"headers,omitempty"`    // when it is shown alone
	Payload   []byte              `json:"payload,omitempty"`    // so is this; base64
}

// ScheduleRun is a run that was made.
type ScheduleRun struct {
	At     string `json:"at"`      // when it was to run
	MadeAt string `json:"made_at"` // when it did
	ID     string `json:"id"`      // of its message
}

// ScheduleList is a page of schedules by queue and name.
type ScheduleList struct {
	Total     int            `json:"total"` // of all pages
	Schedules []ScheduleInfo `json:"schedules"`
	Next      string         `json:"next,omitempty"`           // goes into After
	Missing   []int          `json:"missing_shards,omitempty"` // shards of a cluster that nobody has answered for
}

// Cursor is After of the page that begins behind s.
func (s *ScheduleInfo) Cursor() string { return s.Queue + "/" + s.Name }

// Shorten implements [Long].
func (l ScheduleList) Shorten(room int) any {
	trim(&l.Schedules, &l.Next, room, (*ScheduleInfo).Cursor)
	return l
}

// scheduleFields are the headers of an enqueue that makes a schedule.
type scheduleFields struct{ schedule, target, zone, ttl, name, missed field }

// add takes a header if it is one of them.
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

// parse makes a request of the headers, without headers and payload, and returns the
// target.
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
	s := &ScheduleHeaders{Target: f.target.value}
	s.Name, s.Schedule, s.TimeZone = f.name.value, f.schedule.value, f.zone.value
	s.Missed = cmp.Or(f.missed.value, MissedOne)
	if f.ttl.set {
		ttl, err := parseTTL(f.ttl.value)
		if err != nil {
			return nil, err
		}
		s.TTLMs = int64(ttl / time.Millisecond)
	}
	return s, nil
}

// ScheduleHeaders are what the headers of an enqueue say that makes a schedule; it is not
// checked.
type ScheduleHeaders struct {
	ScheduleAddRequest        // without headers and payload
	Target             string // must be the own queue
}
