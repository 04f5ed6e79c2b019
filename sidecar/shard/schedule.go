package shard

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/schedule"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// What the store of a shard keeps of a schedule, among its configuration:
//
//	\x00schedule/<queue>/<name>     what it is: scheduleSpec, JSON, written once
//	\x00schedule/<queue>/<name>/at  how far it is: scheduleState, JSON, written with each
//	                                message that it makes
//
// So a run is made with what is known of it, or not at all, however long fila is down and
// whatever the queue remembers of dedupe ids.
const (
	keySchedule   = "\x00schedule/"
	keyScheduleAt = "/at"
)

const (
	// tooLate is from when on a run is missed, for schedules that make up for none.
	tooLate = time.Minute
	// mostMadeUp is how many missed runs a schedule makes up for.
	mostMadeUp = 1000
)

// scheduleSpec is what a schedule is. It never changes.
type scheduleSpec struct {
	wire.ScheduleAddRequest
	CreatedAt int64 `json:"created"` // Unix ns
	ByEnqueue bool  `json:"by_enqueue,omitzero"`
}

// scheduleState is how a schedule stands.
type scheduleState struct {
	Last   int64          `json:"last"` // Unix ns: what became of the runs until then is decided
	Paused bool           `json:"paused,omitzero"`
	Runs   int64          `json:"runs,omitzero"`
	Missed int64          `json:"missed,omitzero"`
	Recent []scheduledRun `json:"recent,omitempty"` // the newest last
}

// scheduledRun is a run that was made.
type scheduledRun struct {
	At   int64    `json:"at"`   // Unix ns: when it was to run
	Made int64    `json:"made"` // when it did
	ID   store.ID `json:"id"`
}

// scheduled is a schedule of a queue.
type scheduled struct {
	scheduleSpec
	q     *Queue
	runs  *schedule.Schedule
	bytes int64

	// Under the lock of the intake.
	state   scheduleState
	nextAt  int64       // Unix ns: the first run after state.Last; 0: there is none
	gone    bool        // deleted, replaced, or it has run once
	refused *wire.Error // why its last run is late

	// Under the lock of the shard's schedules.
	due   int64 // Unix ns; when it is looked at
	index int   // in the heap; -1: it is not there
}

func newScheduled(q *Queue, spec scheduleSpec) (*scheduled, error) {
	runs, err := schedule.Parse(spec.Schedule, spec.TimeZone, time.Unix(0, spec.CreatedAt))
	if err != nil {
		return nil, err
	}
	sc := &scheduled{scheduleSpec: spec, q: q, runs: runs, bytes: int64(len(spec.Payload)), index: -1}
	for name, values := range spec.Headers {
		for _, v := range values {
			sc.bytes += int64(len(name) + len(v))
		}
	}
	return sc, nil
}

func (sc *scheduled) key() string { return keySchedule + sc.q.name + "/" + sc.Name }

func (sc *scheduled) keys() []string { return []string{sc.key(), sc.key() + keyScheduleAt} }

// entry is what is kept of the schedule when it stands so.
func (sc *scheduled) entry(at *scheduleState) store.Entry {
	return store.Entry{Key: sc.key() + keyScheduleAt, Value: encodeSchedule(at)}
}

func encodeSchedule(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("shard: a schedule: " + err.Error()) // these types can be encoded
	}
	return string(text)
}

// same reports whether a request asks for what the schedule is.
func (sc *scheduled) same(req *wire.ScheduleAddRequest) bool {
	return encodeSchedule(&sc.ScheduleAddRequest) == encodeSchedule(req)
}

// next is when the schedule runs next, Unix ns; 0: never, or it is paused. Its caller
// holds the lock of the intake.
func (sc *scheduled) next() int64 {
	if sc.state.Paused {
		return 0
	}
	return sc.nextAt
}

// runAfter is the first run after a time, both Unix ns; 0: there is none. It searches a
// calendar: its caller holds no lock.
func (sc *scheduled) runAfter(last int64) int64 {
	t, ok := sc.runs.Next(time.Unix(0, last))
	if !ok {
		return 0
	}
	return t.UnixNano()
}

// showComing puts the runs to come into what info has returned, in the time zone of the
// schedule. It searches a calendar: its caller holds no lock.
func (sc *scheduled) showComing(i *wire.ScheduleInfo, last int64) {
	if i.State != wire.ScheduleActive {
		return
	}
	i.Next = []string{}
	for t, ok := sc.runs.Next(time.Unix(0, last)); ok && len(i.Next) < wire.ScheduleNext; t, ok = sc.runs.Next(t) {
		i.Next = append(i.Next, sc.showTime(t))
	}
}

func (sc *scheduled) showTime(t time.Time) string {
	return t.In(sc.runs.Zone()).Format(time.RFC3339Nano)
}

// info is the schedule for people, with one run to come; showComing adds the others. Its
// caller holds the lock of the intake.
func (sc *scheduled) info() wire.ScheduleInfo {
	i := wire.ScheduleInfo{
		Queue: sc.q.name, Name: sc.Name, Schedule: sc.Schedule, TimeZone: sc.TimeZone, Missed: sc.Missed, TTLMs: sc.TTLMs,
		State: wire.ScheduleActive, CreatedAt: wire.Timestamp(sc.CreatedAt), ByEnqueue: sc.ByEnqueue,
		Next: []string{}, Last: []wire.ScheduleRun{}, Runs: sc.state.Runs, MissedN: sc.state.Missed, Bytes: sc.bytes,
	}
	if sc.refused != nil {
		i.Why = sc.refused.Description
	}
	if sc.state.Paused {
		i.State = wire.SchedulePaused
	} else if sc.nextAt != 0 {
		i.Next = append(i.Next, sc.showTime(time.Unix(0, sc.nextAt)))
	}
	for _, r := range slices.Backward(sc.state.Recent) {
		i.Last = append(i.Last, wire.ScheduleRun{At: wire.Timestamp(r.At), MadeAt: wire.Timestamp(r.Made), ID: formatID(r.ID)})
	}
	return i
}

// run makes the runs that are due, and plans the next one.
func (sc *scheduled) run() {
	in, s := &sc.q.intake, sc.q.shard
	in.mu.Lock()
	last := sc.state.Last
	in.mu.Unlock()
	now := s.wall()
	if s.silent() { // another node may make them
		in.mu.Lock()
		sc.plan(now + int64(scheduleRetry))
		in.mu.Unlock()
		return
	}
	for _, r := range sc.dueRuns(last, now) {
		in.mu.Lock()
		// Another who pauses, resumes or ends the schedule has planned what comes.
		stop := sc.gone || sc.state.Paused || sc.state.Last != last
		if !stop {
			if werr := sc.make(r, now); werr != nil {
				sc.late(werr, now)
				stop = true
			}
		}
		last = sc.state.Last
		in.mu.Unlock() // producers come by
		if stop {
			return
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if !sc.gone && sc.state.Last == last {
		sc.plan(sc.next())
	}
}

// plan has the schedule looked at when it is due; 0: it is not. Its caller holds the lock
// of the intake.
func (sc *scheduled) plan(due int64) { sc.q.shard.planSchedule(sc, due) }

// dueRun is a run that is to be made now, or none, with what follows it.
type dueRun struct {
	at     int64 // Unix ns; 0: none, only runs that are missed
	missed int   // runs before it that nobody makes
	last   int64 // Unix ns: up to when all runs are decided then
	next   int64 // Unix ns: the run after last; 0: none
}

// dueRuns are the runs after a time that are to be made now. It searches a calendar: its
// caller holds no lock.
func (sc *scheduled) dueRuns(last, now int64) []dueRun {
	most := 1
	if sc.Missed == wire.MissedAll {
		most = mostMadeUp
	}
	until := time.Unix(0, now)
	times, all := sc.runs.Due(time.Unix(0, last), until, most)
	if sc.Missed == wire.MissedSkip && len(times) > 0 && until.Sub(times[0]) > tooLate {
		times = nil
	}
	missed := all - len(times)
	if len(times) == 0 {
		if missed == 0 {
			return nil
		}
		return []dueRun{{missed: missed, last: now, next: sc.runAfter(now)}}
	}
	runs := make([]dueRun, len(times))
	for i, t := range times {
		runs[i] = dueRun{at: t.UnixNano(), last: t.UnixNano()}
		if i > 0 {
			runs[i-1].next = runs[i].at
		}
	}
	runs[0].missed = missed
	runs[len(runs)-1].next = sc.runAfter(runs[len(runs)-1].at)
	return runs
}

// make enqueues the message of a run, and keeps that with it and how many runs before it
// are missed. It returns why the queue does not take it. Its caller holds the lock of the
// intake.
func (sc *scheduled) make(r dueRun, now int64) (werr *wire.Error) {
	in := &sc.q.intake
	next := sc.state
	next.Missed += int64(r.missed)
	next.Last = r.last
	keep := queue.WriteEntries{}
	if at := r.at; at != 0 {
		next.Runs++
		id := sc.runID(at)
		if keep.Message, werr = sc.message(at, id); werr != nil {
			return werr
		}
		if keep.Message == nil { // its dedupe id is known
			seen, _ := in.seen.find(sc.dedupeID(at), sc.q.shard.Now())
			id = seen
		}
		next.Recent = append(slices.Clone(next.Recent[max(0, len(next.Recent)-wire.ScheduleRuns+1):]), scheduledRun{At: at, Made: now, ID: id})
	}
	if r.next != 0 {
		keep.Put = []store.Entry{sc.entry(&next)}
	} else {
		keep.Delete = sc.keys()
	}
	post := func() bool {
		_, ok := sc.q.run.do(sc.q.changed(keep))
		return ok
	}
	if keep.Message != nil {
		werr = in.hand(sc.q, keep.Message, post)
	} else if !post() {
		werr = sc.q.Gone()
	}
	if werr != nil {
		return werr
	}
	sc.state, sc.nextAt, sc.refused = next, r.next, nil
	in.nextRunStale.Store(true)
	if r.at != 0 {
		sc.q.metrics.Scheduled()
	}
	if r.missed > 0 {
		sc.q.metrics.Missed(r.missed)
		sc.event(wire.EventScheduleMissed, map[string]any{"missed": r.missed})
		sc.q.shard.Log.Warn("runs of a schedule were missed", "queue", sc.q.name, "schedule", sc.Name, "missed", r.missed)
	}
	if r.next == 0 {
		sc.q.forgetSchedule(sc)
		sc.event(wire.EventScheduleEnded, nil)
	}
	return nil
}

// message makes the message of a run; nil: it has been made before.
func (sc *scheduled) message(at int64, id store.ID) (*queue.Message, *wire.Error) {
	q, now := sc.q, sc.q.shard.Now()
	opts := wire.EnqueueOptions{DedupeID: sc.dedupeID(at), TTL: time.Duration(sc.TTLMs) * time.Millisecond}
	q.intake.seen.sweep(now)
	if _, ok := q.intake.seen.find(opts.DedupeID, now); ok {
		q.metrics.Duplicate()
		return nil, nil //nolint:nilnil // there is none to be made
	}
	header := make(nats.Header, len(sc.Headers)+2)
	for name, values := range sc.Headers {
		header[name] = values
	}
	header[wire.HeaderScheduledBy] = []string{sc.Name}
	header[wire.HeaderScheduledAt] = []string{wire.Timestamp(at)}
	msg, werr := q.intake.take(q, header, sc.Payload, &opts, now)
	if werr != nil {
		return nil, werr
	}
	msg.HeaderMap, msg.ID = header, id
	return msg, nil
}

func (sc *scheduled) dedupeID(at int64) string {
	return "sched/" + sc.Name + "/" + time.Unix(0, at).UTC().Format(time.RFC3339Nano)
}

// runID is the id of the message of a run, a UUIDv7 of its time. It is always the same: a
// message may have been delivered whose commit a kill kept from the disk, and then it is
// made again.
func (sc *scheduled) runID(at int64) (id store.ID) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s/%d/%d", sc.q.id, sc.Name, sc.CreatedAt, at))
	copy(id[:], sum[:])
	ms := uint64(at / 1e6)
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	const version, variant = 0x70, 0x80
	id[6], id[8] = id[6]&0x0f|version, id[8]&0x3f|variant
	return id
}

// late notes that the queue does not take a run now, and plans to try it again. Its caller
// holds the lock of the intake.
func (sc *scheduled) late(werr *wire.Error, now int64) {
	s := sc.q.shard
	if s.ended.Err() != nil || sc.q.deleted.Load() {
		return
	}
	sc.q.metrics.Refused(werr.ErrCode)
	if sc.refused == nil {
		sc.event(wire.EventScheduleRefused, map[string]any{"err_code": werr.ErrCode, "description": werr.Description})
		s.Log.Warn("a run of a schedule is refused; it is tried again", "queue", sc.q.name, "schedule", sc.Name, "why", werr.Description)
	}
	sc.refused = werr
	sc.plan(now + int64(max(scheduleRetry, werr.RetryAfter)))
}

// event tells news of a schedule.
func (sc *scheduled) event(typ string, more map[string]any) {
	data := map[string]any{"schedule": sc.Name, "text": sc.Schedule}
	for k, v := range more {
		data[k] = v
	}
	sc.q.shard.event(typ, sc.q.name, wire.Event{Queue: sc.q.name, Data: data})
}

// recoveredSchedules are those that a store has kept, by queue and name.
func recoveredSchedules(kept []store.Entry) (specs map[string]scheduleSpec, at map[string]scheduleState, broken map[string]error) {
	specs, at, broken = make(map[string]scheduleSpec), make(map[string]scheduleState), make(map[string]error)
	for _, e := range kept {
		name, ok := strings.CutPrefix(e.Key, keySchedule)
		if !ok {
			continue
		}
		var err error
		if of, ok := strings.CutSuffix(name, keyScheduleAt); ok && strings.Contains(of, "/") {
			var s scheduleState
			name, err = of, json.Unmarshal([]byte(e.Value), &s)
			at[name] = s
		} else {
			var s scheduleSpec
			err = json.Unmarshal([]byte(e.Value), &s)
			specs[name] = s
		}
		if err != nil {
			broken[name] = err
		}
	}
	return specs, at, broken
}
