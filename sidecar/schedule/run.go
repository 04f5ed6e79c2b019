package schedule

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

const (
	// missedAfter is how late a run may be for schedules that make up for no missed runs.
	missedAfter = time.Minute
	// maxMadeUp is how many missed runs a schedule makes up for.
	maxMadeUp = 1000
)

// dueRun is a step of a schedule: a run to make now, or only runs that are missed.
type dueRun struct {
	at     int64 // Unix ns; 0: only missed runs
	missed int   // runs before it that are not made
	last   int64 // Unix ns: state.Last after the step
	next   int64 // Unix ns: the run after last; 0: there is none
}

// dueRuns returns the steps of the runs after last that are due now. It searches a
// calendar: its caller holds no lock.
func (sc *schedule) dueRuns(last, now int64) []dueRun {
	limit := 1
	if sc.Missed == wire.MissedAll {
		limit = maxMadeUp
	}
	until := time.Unix(0, now)
	times, all := sc.times.Due(time.Unix(0, last), until, limit)
	if sc.Missed == wire.MissedSkip && len(times) > 0 && until.Sub(times[0]) > missedAfter {
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

// makeRuns makes the runs that are due and plans the next one. It releases the lock between
// runs, so that changes of schedules do not wait for all of them.
func (sc *schedule) makeRuns() {
	s := sc.owner
	s.mu.Lock()
	last := sc.state.Last
	s.mu.Unlock()
	now := wallClock()
	if s.runner.Silent() { // another node may make them
		s.mu.Lock()
		s.runner.plan(sc, now+int64(retryInterval))
		s.mu.Unlock()
		return
	}
	for _, r := range sc.dueRuns(last, now) {
		s.mu.Lock()
		// A pause, a resume or a delete has planned the next run.
		stop := sc.gone || sc.state.Paused || sc.state.Last != last
		if !stop {
			if werr := sc.makeRun(r, now); werr != nil {
				sc.postpone(werr, now)
				stop = true
			}
		}
		last = sc.state.Last
		s.mu.Unlock()
		if stop {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !sc.gone && sc.state.Last == last {
		s.runner.plan(sc, sc.nextRun())
	}
}

// makeRun enqueues the message of a run, if there is one, and writes the new state in the
// same commit. It returns why the queue does not take it. Its caller holds the lock of owner.
func (sc *schedule) makeRun(r dueRun, now int64) (werr *wire.Error) {
	s := sc.owner
	next := sc.state
	next.Missed += int64(r.missed)
	next.Last = r.last
	if r.at == 0 {
		werr = s.queue.WriteEntries(sc.write(&next, r.next))
	} else {
		next.Runs++
		werr = s.queue.EnqueueRun(sc.message(r.at), func(id store.ID) queue.WriteEntries {
			next.Recent = append(slices.Clone(next.Recent[max(0, len(next.Recent)-api.ScheduleRuns+1):]), run{At: r.at, Made: now, ID: id})
			return sc.write(&next, r.next)
		})
	}
	if werr != nil {
		return werr
	}
	sc.state, sc.nextAt, sc.refused = next, r.next, nil
	s.nextRunStale.Store(true)
	if r.at != 0 {
		s.metrics.Scheduled()
	}
	if r.missed > 0 {
		s.metrics.Missed(r.missed)
		sc.event(wire.EventScheduleMissed, map[string]any{"missed": r.missed})
		s.runner.Log.Warn("runs of a schedule were missed", "queue", s.queue.Name(), "schedule", sc.Name, "missed", r.missed)
	}
	if r.next == 0 {
		s.remove(sc)
		sc.event(wire.EventScheduleEnded, nil)
	}
	return nil
}

// write stores the new state, or deletes the schedule if no run is to come.
func (sc *schedule) write(st *state, next int64) queue.WriteEntries {
	if next == 0 {
		return queue.WriteEntries{Delete: sc.keys()}
	}
	return queue.WriteEntries{Put: []store.Entry{sc.stateEntry(st)}}
}

// message returns the message of the run that is due at a time.
func (sc *schedule) message(at int64) *Message {
	headers := make(map[string][]string, len(sc.Headers)+2)
	for name, values := range sc.Headers {
		headers[name] = values
	}
	headers[wire.HeaderScheduledBy] = []string{sc.Name}
	headers[wire.HeaderScheduledAt] = []string{wire.Timestamp(at)}
	return &Message{
		ID: sc.messageID(at), DedupeID: "sched/" + sc.Name + "/" + time.Unix(0, at).UTC().Format(time.RFC3339Nano),
		TTL: time.Duration(sc.TTLMs) * time.Millisecond, Headers: headers, Payload: sc.Payload,
	}
}

// messageID returns the id of the message of a run, a UUIDv7. It depends only on the schedule and
// the run: if a crash loses the commit of a message that has been delivered, the run is made again
// with the same id.
func (sc *schedule) messageID(at int64) (id store.ID) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s/%d/%d", sc.owner.queue.ID(), sc.Name, sc.CreatedAt, at))
	copy(id[:], sum[:])
	ms := uint64(at / 1e6)
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	const version, variant = 0x70, 0x80
	id[6], id[8] = id[6]&0x0f|version, id[8]&0x3f|variant
	return id
}

// postpone plans another try of a run that the queue refuses. Its caller holds the lock of
// owner.
func (sc *schedule) postpone(werr *wire.Error, now int64) {
	s := sc.owner
	if s.runner.Ended.Err() != nil {
		return
	}
	defer s.runner.plan(sc, now+int64(max(retryInterval, werr.RetryAfter)))
	if s.queue.Deleted() { // or not, if it is found to have messages
		return
	}
	s.metrics.Refused(werr.ErrCode)
	if sc.refused == nil {
		sc.event(wire.EventScheduleRefused, map[string]any{"err_code": werr.ErrCode, "description": werr.Description})
		s.runner.Log.Warn("a run of a schedule is refused; fila retries it", "queue", s.queue.Name(), "schedule", sc.Name, "why", werr.Description)
	}
	sc.refused = werr
}
