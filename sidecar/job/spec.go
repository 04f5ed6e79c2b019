package job

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"strings"
	"time"

	"github.com/filaq/fila/sidecar/deadletter"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire/api"
)

// The store of a shard has jobs in its configuration, as JSON:
//
//	\x00job/<id>      spec, written once
//	\x00job/<id>/at   progress, written with each batch
//	\x00job/<id>/out  transfer, the last one of the job
//	\x00moved/<id>    receipt, of the last transfer of a job of another shard
const (
	keyPrefix   = "\x00job/"
	keyProgress = "/at"
	keyTransfer = "/out"
	keyReceipt  = "\x00moved/"
)

// KeptFor is the time that ended jobs are listed.
const KeptFor = deadletter.KeptFor

// spec is the definition of a job. It never changes.
type spec struct {
	api.JobCreateRequest
	ID        string `json:"job"`
	CreatedAt int64  `json:"created"`        // Unix ns
	Last      uint64 `json:"last"`           // the last sequence of its queue then; later messages are not part of the job
	ByRedrive bool   `json:"asked,omitzero"` // the verb redrive made it and waits for it
}

// storedSize is the size of the spec in the store, with the longest possible Last.
func (s spec) storedSize() int {
	s.Last = store.MaxSeq
	return len(encode(&s))
}

// entries are what the store has of a job at a progress; first: with its spec.
func (s *spec) entries(at *progress, first bool) []store.Entry {
	list := []store.Entry{{Key: keyPrefix + s.ID + keyProgress, Value: encode(at)}}
	if first {
		list = append(list, store.Entry{Key: keyPrefix + s.ID, Value: encode(s)})
	}
	return list
}

func (s *spec) transferEntry(t *transfer) store.Entry {
	return store.Entry{Key: keyPrefix + s.ID + keyTransfer, Value: encode(t)}
}

// keys are the keys of all entries of a job.
func (s *spec) keys() []string {
	return []string{keyPrefix + s.ID, keyPrefix + s.ID + keyProgress, keyPrefix + s.ID + keyTransfer}
}

// rewrites reports whether the op writes new records of messages. The others finish them,
// or end their delay.
func (s *spec) rewrites() bool {
	return s.Op != api.JobDelete && s.Op != api.JobCancel && s.Op != api.JobRunNow
}

// runAt is when delayed messages are due, Unix ns.
func (s *spec) runAt() int64 {
	at, _ := time.Parse(time.RFC3339, s.RunAt) // it has been checked
	return at.UnixNano()
}

// progress is the state of a job, and what it has done.
type progress struct {
	State    string           `json:"state"` // JobWaiting, JobPaused, JobDone or JobCanceled
	Why      string           `json:"why,omitempty"`
	Started  int64            `json:"started,omitempty"` // Unix ns
	Ended    int64            `json:"ended,omitempty"`
	Matched  int64            `json:"matched"`
	Done     int64            `json:"done"`
	Left     map[string]int64 `json:"left,omitempty"` // messages by why they were left as they were
	At       position         `json:"at,omitzero"`    // of the last message that was handled
	NewSince *int64           `json:"new_since,omitempty"`
}

func (p progress) clone() progress {
	p.Left = maps.Clone(p.Left)
	return p
}

// leave counts n messages that are left as they are.
func (p *progress) leave(why string, n int64) {
	if n == 0 {
		return
	}
	if p.Left == nil {
		p.Left = make(map[string]int64)
	}
	p.Left[why] += n
}

func (p *progress) ended() bool { return p.State == api.JobDone || p.State == api.JobCanceled }

// position is where a message is in the order of a job.
type position struct {
	Seq        uint64   `json:"seq,omitempty"`
	EnqueuedAt int64    `json:"enqueued,omitempty"`
	ID         store.ID `json:"id,omitzero"`
}

// byArrival and bySeq are the orders of jobs.
func byArrival(a, b position) int {
	return cmp.Or(cmp.Compare(a.EnqueuedAt, b.EnqueuedAt), bytes.Compare(a.ID[:], b.ID[:]))
}

func bySeq(a, b position) int { return cmp.Compare(a.Seq, b.Seq) }

// stored is one job in the store.
type stored struct {
	spec     *spec
	progress progress
	transfer transfer
}

// readStored returns the jobs in the configuration of a store by id, and the ids of those
// with an entry that cannot be read: they would start again from the beginning.
func readStored(config []store.Entry) (jobs map[string]*stored, broken []string) {
	jobs = make(map[string]*stored)
	for _, e := range config {
		name, ok := strings.CutPrefix(e.Key, keyPrefix)
		if !ok {
			continue
		}
		id, part, _ := strings.Cut(name, "/")
		j := jobs[id]
		if j == nil {
			j = new(stored)
			jobs[id] = j
		}
		var into any
		switch "/" + part {
		case keyProgress:
			into = &j.progress
		case keyTransfer:
			into = &j.transfer
		default:
			j.spec = &spec{ID: id}
			into = j.spec
		}
		if json.Unmarshal([]byte(e.Value), into) != nil {
			broken = append(broken, id)
		}
	}
	return jobs, broken
}

func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("job: " + err.Error()) // all stored types can be encoded
	}
	return string(text)
}
