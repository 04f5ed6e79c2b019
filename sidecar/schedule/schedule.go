package schedule

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/filaq/fila/sidecar/schedule/calendar"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// The configuration in the store of a shard has two entries for a schedule:
//
//	\x00schedule/<queue>/<name>     spec, JSON, written once
//	\x00schedule/<queue>/<name>/at  state, JSON, written in the commit of each run
const (
	keyPrefix      = "\x00schedule/"
	keyStateSuffix = "/at"
)

// spec is the part of a schedule that never changes.
type spec struct {
	api.ScheduleAddRequest
	CreatedAt int64 `json:"created"` // Unix ns
	ByEnqueue bool  `json:"by_enqueue,omitzero"`
}

// state is the part of a schedule that changes with each run.
type state struct {
	Last   int64 `json:"last"` // Unix ns: all runs up to here have been made or missed
	Paused bool  `json:"paused,omitzero"`
	Runs   int64 `json:"runs,omitzero"`
	Missed int64 `json:"missed,omitzero"`
	Recent []run `json:"recent,omitempty"` // the newest last
}

// run is a run that was made.
type run struct {
	At   int64    `json:"at"`   // Unix ns: when it was due
	Made int64    `json:"made"` // Unix ns: when it was made
	ID   store.ID `json:"id"`   // of its message
}

// schedule is one schedule of a queue.
type schedule struct {
	spec
	owner *Schedules
	times *calendar.Schedule
	bytes int64 // headers and payload

	// Under the lock of owner.
	state   state
	nextAt  int64       // Unix ns: the first run after state.Last; 0: there is none
	gone    bool        // deleted, replaced, or it has made its only run
	refused *wire.Error // why the queue has not taken the last run yet

	// Under the lock of the Runner.
	due   int64 // Unix ns
	index int   // in the heap; -1: not in it
}

func newSchedule(owner *Schedules, sp spec) (*schedule, error) {
	times, err := calendar.Parse(sp.Schedule, sp.TimeZone, time.Unix(0, sp.CreatedAt))
	if err != nil {
		return nil, err
	}
	sc := &schedule{spec: sp, owner: owner, times: times, bytes: int64(len(sp.Payload)), index: -1}
	for name, values := range sp.Headers {
		for _, v := range values {
			sc.bytes += int64(len(name) + len(v))
		}
	}
	return sc, nil
}

func (sc *schedule) key() string { return keyPrefix + sc.owner.queue.Name() + "/" + sc.Name }

func (sc *schedule) keys() []string { return []string{sc.key(), sc.key() + keyStateSuffix} }

// stateEntry is the entry that stores st as the state of the schedule.
func (sc *schedule) stateEntry(st *state) store.Entry {
	return store.Entry{Key: sc.key() + keyStateSuffix, Value: encode(st)}
}

func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("schedule: " + err.Error()) // these types can be encoded
	}
	return string(text)
}

// matches reports whether req describes the schedule as it is.
func (sc *schedule) matches(req *api.ScheduleAddRequest) bool {
	return encode(&sc.ScheduleAddRequest) == encode(req)
}

// nextRun is when the schedule runs next, Unix ns; 0: never, or it is paused. Its caller
// holds the lock of owner.
func (sc *schedule) nextRun() int64 {
	if sc.state.Paused {
		return 0
	}
	return sc.nextAt
}

// runAfter returns the first run after a time, both Unix ns; 0: there is none. It searches
// a calendar: its caller holds no lock.
func (sc *schedule) runAfter(last int64) int64 {
	t, ok := sc.times.Next(time.Unix(0, last))
	if !ok {
		return 0
	}
	return t.UnixNano()
}

// info describes the schedule with at most one run to come; addComingRuns adds the others.
// Its caller holds the lock of owner.
func (sc *schedule) info() api.ScheduleInfo {
	i := api.ScheduleInfo{
		Queue: sc.owner.queue.Name(), Name: sc.Name, Schedule: sc.Schedule, TimeZone: sc.TimeZone, Missed: sc.Missed, TTLMs: sc.TTLMs,
		State: api.ScheduleActive, CreatedAt: wire.Timestamp(sc.CreatedAt), ByEnqueue: sc.ByEnqueue,
		Next: []string{}, Last: []api.ScheduleRun{}, Runs: sc.state.Runs, MissedN: sc.state.Missed, Bytes: sc.bytes,
	}
	if sc.refused != nil {
		i.Why = sc.refused.Description
	}
	if sc.state.Paused {
		i.State = api.SchedulePaused
	} else if sc.nextAt != 0 {
		i.Next = append(i.Next, sc.formatTime(time.Unix(0, sc.nextAt)))
	}
	for _, r := range slices.Backward(sc.state.Recent) {
		i.Last = append(i.Last, api.ScheduleRun{At: wire.Timestamp(r.At), MadeAt: wire.Timestamp(r.Made), ID: uuid.UUID(r.ID).String()})
	}
	return i
}

// addComingRuns adds to i the runs after last, in the time zone of the schedule. It
// searches a calendar: its caller holds no lock.
func (sc *schedule) addComingRuns(i *api.ScheduleInfo, last int64) {
	if i.State != api.ScheduleActive {
		return
	}
	i.Next = []string{}
	for t, ok := sc.times.Next(time.Unix(0, last)); ok && len(i.Next) < api.ScheduleNext; t, ok = sc.times.Next(t) {
		i.Next = append(i.Next, sc.formatTime(t))
	}
}

func (sc *schedule) formatTime(t time.Time) string {
	return t.In(sc.times.Zone()).Format(time.RFC3339Nano)
}

// event publishes an event about the schedule.
func (sc *schedule) event(typ string, more map[string]any) {
	data := map[string]any{"schedule": sc.Name, "text": sc.Schedule}
	for k, v := range more {
		data[k] = v
	}
	queue := sc.owner.queue.Name()
	sc.owner.runner.Event(typ, queue, wire.Event{Queue: queue, Data: data})
}

// decodeStored decodes the schedules among the entries of a store, by queue and name.
func decodeStored(entries []store.Entry) (specs map[string]spec, states map[string]state, broken map[string]error) {
	specs, states, broken = make(map[string]spec), make(map[string]state), make(map[string]error)
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Key, keyPrefix)
		if !ok {
			continue
		}
		var err error
		if of, ok := strings.CutSuffix(name, keyStateSuffix); ok && strings.Contains(of, "/") {
			var st state
			name, err = of, json.Unmarshal([]byte(e.Value), &st)
			states[name] = st
		} else {
			var sp spec
			err = json.Unmarshal([]byte(e.Value), &sp)
			specs[name] = sp
		}
		if err != nil {
			broken[name] = err
		}
	}
	return specs, states, broken
}
