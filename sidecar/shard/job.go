package shard

import (
	"cmp"
	"encoding/json"
	"maps"
	"strings"
	"sync"

	"github.com/filaq/fila/sidecar/deadletter"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// What the store of a shard keeps of a job, among its configuration:
//
//	\x00job/<id>     what it is: jobSpec, JSON, written once
//	\x00job/<id>/at  how far it is: jobProgress, JSON, written with what it does
//	\x00job/<id>/out what it has sent to another shard last, see parcel
const (
	keyJob   = "\x00job/"
	keyJobAt = "/at"
)

// jobSpec is what a job is about. It never changes.
type jobSpec struct {
	wire.JobCreateRequest
	ID        string `json:"job"`
	CreatedAt int64  `json:"created"`        // Unix ns
	Last      uint64 `json:"last"`           // the last sequence of its queue then: what came later is none of its business
	Asked     bool   `json:"asked,omitzero"` // by the verb redrive, which waits for it
}

// kept is how many bytes it has in the store, whatever the last sequence is.
func (s jobSpec) kept() int {
	s.Last = store.MaxSeq
	return len(encodeJob(&s))
}

// jobProgress is how a job stands.
type jobProgress struct {
	State    string           `json:"state"` // JobWaiting, JobPaused, JobDone or JobCanceled
	Why      string           `json:"why,omitempty"`
	Started  int64            `json:"started,omitempty"` // Unix ns
	Ended    int64            `json:"ended,omitempty"`
	Matched  int64            `json:"matched"`
	Done     int64            `json:"done"`
	Left     map[string]int64 `json:"left,omitempty"`
	At       place            `json:"at,omitzero"` // of the last message that it has come by
	NewSince *int64           `json:"new_since,omitempty"`
}

// place is where a message is in the order of a job.
type place struct {
	Seq        uint64   `json:"seq,omitempty"`
	EnqueuedAt int64    `json:"enqueued,omitempty"`
	ID         store.ID `json:"id,omitzero"`
}

// clone is a copy that can be changed.
func (p jobProgress) clone() jobProgress {
	p.Left = maps.Clone(p.Left)
	return p
}

// leave counts n messages that are left as they are.
func (p *jobProgress) leave(why string, n int64) {
	if n == 0 {
		return
	}
	if p.Left == nil {
		p.Left = make(map[string]int64)
	}
	p.Left[why] += n
}

// leftAlone is how many messages the job has come by and not done anything with.
func (p *jobProgress) leftAlone() (n int64) {
	for _, left := range p.Left {
		n += left
	}
	return n
}

// isRedrive reports whether the job takes dead letters back to their queue, so that they
// count among those of their groups that left.
func (j *job) isRedrive() bool { return j.Op == wire.JobRedrive }

func (p *jobProgress) ended() bool { return p.State == wire.JobDone || p.State == wire.JobCanceled }

// job is one job of a queue.
type job struct {
	jobSpec
	q     *Queue            // the side that it is about
	names deadletter.Reader // for who works on it

	mu struct {
		sync.Mutex
		jobProgress               // what is on disk
		parcel      parcel        // likewise
		settled     bool          // the machine knows what becomes of it
		claimed     bool          // somebody does something about it
		running     bool          // work does
		stop        string        // what it is to become: JobPaused or JobCanceled; empty: nothing else
		refused     *wire.Error   // why it paused itself, or left messages that could go later
		failed      *wire.Error   // why it left messages that could not be read
		stuck       *wire.Error   // why how it stands cannot be written
		changed     chan struct{} // closed when something of this has changed
	}
}

func newJob(q *Queue, spec jobSpec, at jobProgress, out parcel) *job {
	j := &job{jobSpec: spec, q: q, names: deadletter.NewReader()}
	j.mu.jobProgress, j.mu.parcel, j.mu.changed = at, out, make(chan struct{})
	return j
}

// change changes what is known of the job, and tells those who wait for it.
func (j *job) change(fn func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fn()
	close(j.mu.changed)
	j.mu.changed = make(chan struct{})
}

// claim makes the caller the one who does something about the job, until release. It
// reports false if somebody does, who is told to stop then, unless stop is empty; the
// channel is closed when something has changed.
func (j *job) claim(stop string) (changed <-chan struct{}, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.mu.claimed {
		j.mu.claimed = true
		return nil, true
	}
	if stop != "" && stop != j.mu.stop {
		j.mu.stop = stop
		close(j.mu.changed)
		j.mu.changed = make(chan struct{})
	}
	return j.mu.changed, false
}

func (j *job) release() {
	j.names = deadletter.NewReader()
	j.change(func() { j.mu.claimed, j.mu.running, j.mu.stop = false, false, "" })
}

// standing is how the job stands, and a channel that is closed when that has changed.
func (j *job) standing() (at jobProgress, running bool, changed <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.jobProgress.clone(), j.mu.running, j.mu.changed
}

// wanted is what the job is to become; empty: nothing else.
func (j *job) wanted() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.stop
}

// info is the job for people.
func (j *job) info() wire.JobInfo {
	at, running, _ := j.standing()
	out := j.out()
	i := wire.JobInfo{
		ID: j.ID, JobCreateRequest: j.JobCreateRequest, State: at.State, Why: at.Why, CreatedAt: wire.Timestamp(j.CreatedAt),
		Matched: at.Matched, Done: at.Done, Left: at.Left, NewSince: at.NewSince, UnderWay: int64(len(out.held())),
	}
	i.Payload = nil // it may be large
	if running && at.State == wire.JobWaiting {
		i.State = wire.JobRunning
	}
	if at.Started != 0 {
		i.StartedAt = wire.Timestamp(at.Started)
	}
	if at.Ended != 0 {
		i.EndedAt = wire.Timestamp(at.Ended)
	}
	return i
}

// entries are what is kept of the job when it stands so; the first time with what it is.
func (j *job) entries(at *jobProgress, first bool) []store.Entry {
	list := []store.Entry{{Key: keyJob + j.ID + keyJobAt, Value: encodeJob(at)}}
	if first {
		list = append(list, store.Entry{Key: keyJob + j.ID, Value: encodeJob(&j.jobSpec)})
	}
	return list
}

// keys are under which the job is kept.
func (j *job) keys() []string {
	return []string{keyJob + j.ID, keyJob + j.ID + keyJobAt, keyJob + j.ID + keyJobOut}
}

func encodeJob(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("shard: a job: " + err.Error()) // these types can be encoded
	}
	return string(text)
}

// keep writes how the job stands now, behind what the queue has handed to the store so
// far, and waits for the disk.
func (j *job) keep(at jobProgress, first bool) *wire.Error {
	done := make(chan error, 1)
	if !j.q.run.settle(j.q, queue.Claim{}, func(*queue.Claimed) queue.Complete {
		if first { // all that has a sequence so far is on disk before the job is
			j.Last = j.q.run.machine.LastSeq(j.q.side)
		}
		return queue.Complete{Put: j.entries(&at, first), Ticket: done}
	}) {
		return j.q.Gone()
	}
	select {
	case err := <-done:
		if err != nil {
			return commitError(err)
		}
	case <-j.q.shard.lost:
		return wire.OutcomeUnknown()
	}
	j.change(func() { j.mu.jobProgress = at })
	return nil
}

// settle makes a turn for a pick, and the next one for what becomes of it: nothing else
// happens in between. What of returns has something to write.
func (r *runner) settle(q *Queue, p queue.Claim, of func(*queue.Claimed) queue.Complete) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false
	}
	said := r.step(append(r.mail.take(r.spare), q.changed(p)))
	r.step([]queue.Input{q.changed(of(said.picked))})
	return true
}

// recoveredJobs are those that a store has kept, by id.
func recoveredJobs(kept []store.Entry) (specs map[string]jobSpec, at map[string]jobProgress, out map[string]parcel, broken []string) {
	specs, at, out = make(map[string]jobSpec), make(map[string]jobProgress), make(map[string]parcel)
	for _, e := range kept {
		name, ok := strings.CutPrefix(e.Key, keyJob)
		if !ok {
			continue
		}
		id, part, _ := strings.Cut(name, "/")
		var err error
		switch "/" + part {
		case keyJobAt:
			at[id], err = decodeJob[jobProgress](e.Value)
		case keyJobOut:
			out[id], err = decodeJob[parcel](e.Value)
		default:
			var s jobSpec
			s, err = decodeJob[jobSpec](e.Value)
			s.ID = cmp.Or(s.ID, id)
			specs[id] = s
		}
		if err != nil {
			broken = append(broken, id)
		}
	}
	return specs, at, out, broken
}

func decodeJob[T any](text string) (v T, err error) {
	err = json.Unmarshal([]byte(text), &v)
	return v, err
}
