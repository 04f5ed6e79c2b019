package api

import (
	"cmp"
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/wire"
)

// Ops: what a job does to messages.
const (
	JobRedrive      = "redrive"      // dead letters go back to their queue
	JobMove         = "move"         // to another queue
	JobDelete       = "delete"       // dead letters
	JobCancel       = "cancel"       // waiting messages
	JobDelay        = "delay"        // until a time
	JobRunNow       = "run-now"      // delayed messages become ready
	JobReprioritise = "reprioritise" // they get another fairness key or weight
	JobEdit         = "edit"         // one message gets other headers or another payload
)

// JobOps returns all ops.
func JobOps() []string {
	return []string{JobRedrive, JobMove, JobDelete, JobCancel, JobDelay, JobRunNow, JobReprioritise, JobEdit}
}

// The order in which a job takes its messages.
const (
	OrderArrival = "arrival" // by their first enqueue
	OrderDeath   = "death"   // by when they came to their queue: in a dead letter queue, when they died
)

// States of a job.
const (
	JobWaiting  = "waiting"  // until another job of its queue ends
	JobRunning  = "running"  //
	JobPaused   = "paused"   // by an operator, or by itself: see Why
	JobDone     = "done"     //
	JobCanceled = "canceled" // finished work is not undone
)

// Why a job left matching messages unchanged.
const (
	LeftGone       = "gone"        // finished meanwhile
	LeftInFlight   = "in_flight"   // leased, or its last attempt is being judged
	LeftMoving     = "moving"      // being transferred to another queue
	LeftNotDelayed = "not_delayed" // it is not delayed
	LeftKeyFull    = "key_full"    // its fairness key has max_pending_per_key messages
	LeftBadKey     = "bad_key"     // on_enqueue or a header gives it an invalid key, weight or priority
	LeftUnreadable = "unreadable"  // its record is corrupt
	LeftRefused    = "refused"     // the target queue refuses it
)

// Bounds of jobs.
const (
	MaxJobRate    = 1_000_000
	MaxJobReason  = 1024 // bytes
	MaxEditHeader = 64   // headers that an edit sets or removes
	JobSamples    = 10
)

// JobCreateRequest begins a job that changes messages of a queue.
type JobCreateRequest struct {
	// These fields come first because the audit log keeps the beginning of the JSON.
	Queue  string `json:"queue"`
	Op     string `json:"op"`
	Reason string `json:"reason,omitempty"` // for the audit log

	Filter *Filter `json:"filter"`

	To            string            `json:"to,omitempty"`             // move: the target queue
	RunAt         string            `json:"run_at,omitempty"`         // delay: RFC 3339, or a Go duration from now
	Key           string            `json:"key,omitempty"`            // reprioritise
	Weight        float64           `json:"weight,omitempty"`         // reprioritise: 1 to 1,000,000
	SetHeaders    map[string]string `json:"set_headers,omitempty"`    // edit
	RemoveHeaders []string          `json:"remove_headers,omitempty"` // edit
	Payload       *string           `json:"payload,omitempty"`        // edit: base64

	Order   string `json:"order,omitempty"`    // arrival, the default, or death
	Rate    int64  `json:"rate,omitempty"`     // messages per second; 0: 40,000
	Limit   int64  `json:"limit,omitempty"`    // how many messages at most; 0: all
	DryRun  bool   `json:"dry_run,omitempty"`  // only report what the job would do
	IfCount *int64 `json:"if_count,omitempty"` // only if exactly this many messages match
}

// prepare takes op and queue from the tail of the subject, a [JobTail], unless that is empty.
func (r *JobCreateRequest) prepare(tail string) { r.Op, r.Queue, _ = strings.Cut(tail, ".") }

// bind refuses a body that names another op or queue than the subject: permissions go by the
// subject, so the body must not overrule it.
func (r *JobCreateRequest) bind(tail string) *wire.Error {
	op, queue, _ := strings.Cut(tail, ".")
	switch {
	case tail == "":
	case r.Op != op:
		return wire.BadField("op", quoted(r.Op), "the subject has "+wire.Quote(op))
	case r.Queue != queue && (op != JobRedrive || wire.DeadLetters(r.Queue) != wire.DeadLetters(queue)):
		return wire.BadField("queue", quoted(r.Queue), "the subject has "+wire.Quote(queue))
	}
	return nil
}

// Resolve checks the filter of a parsed request and makes its relative times absolute.
func (r *JobCreateRequest) Resolve(now time.Time) *wire.Error {
	if err := cmp.Or(r.Filter.Resolve(now), r.Filter.For(r.Queue)); err != nil || r.Op != JobDelay {
		return err
	}
	return r.resolveRunAt(now)
}

// check checks everything but the filter and the time, see [JobCreateRequest.Resolve].
func (r *JobCreateRequest) check() *wire.Error {
	if err := wire.CheckQueueName(r.Queue); err != nil {
		return wire.BadQueueName(err)
	}
	if r.Op == JobRedrive { // only dead letters can be redriven
		r.Queue = wire.DeadLetters(r.Queue)
	}
	if err := wire.CheckBounds(r); err != nil {
		return err
	}
	dead := wire.IsDLQ(r.Queue)
	switch {
	case !dead && r.Op == JobDelete: // pending and delayed messages have op cancel
		return wire.OnlyForDLQ("op delete (op cancel is for other queues)", r.Queue)
	case dead && slices.Contains([]string{JobCancel, JobDelay, JobRunNow, JobReprioritise}, r.Op):
		return wire.NotForDLQ("a job with op "+r.Op, r.Queue)
	case r.Filter == nil:
		return wire.BadField("filter", "", `name the messages by a filter, or all of them by {"all":true}`)
	}
	if err := r.checkOp(); err != nil {
		return err
	}
	return wire.InRange("bytes of reason", len(r.Reason), 0, MaxJobReason)
}

// Bounds implements [wire.Bounded].
func (r *JobCreateRequest) Bounds() []wire.Bound {
	ifCount := int64(0)
	if r.IfCount != nil {
		ifCount = *r.IfCount
	}
	return []wire.Bound{
		{Field: "op", Text: r.Op, OneOf: JobOps()},
		{Field: "order", Text: r.Order, OneOf: []string{OrderArrival, OrderDeath}},
		{Field: "if_count", Value: ifCount, Max: math.MaxInt64},
		{Field: "limit", Value: r.Limit, Min: 1, Max: math.MaxInt64, Zero: "all"},
		{Field: "rate", Value: r.Rate, Max: MaxJobRate},
		{Field: "weight", Min: 1, Max: 1_000_000, Zero: "as it is"},
	}
}

// quoted is Quote for [BadField], to which an empty value is a missing one.
func quoted(value string) string {
	if value == "" {
		return ""
	}
	return wire.Quote(value)
}

// checkOp checks the fields that belong to one op.
func (r *JobCreateRequest) checkOp() *wire.Error {
	for _, f := range []struct {
		name  string
		named bool
		of    string
	}{
		{"to", r.To != "", JobMove},
		{"run_at", r.RunAt != "", JobDelay},
		{"key", r.Key != "", JobReprioritise},
		{"weight", r.Weight != 0, JobReprioritise},
		{"set_headers", len(r.SetHeaders) > 0, JobEdit},
		{"remove_headers", len(r.RemoveHeaders) > 0, JobEdit},
		{"payload", r.Payload != nil, JobEdit},
	} {
		if f.named && f.of != r.Op {
			return wire.BadField(f.name, "given with op "+wire.Quote(r.Op), "it is only for op "+f.of)
		}
	}
	switch r.Op {
	case JobMove:
		return r.checkTarget()
	case JobReprioritise:
		return r.checkPriority()
	case JobEdit:
		return r.checkEdit()
	}
	return nil
}

func (r *JobCreateRequest) checkTarget() *wire.Error {
	switch {
	case r.To == "":
		return wire.BadField("to", "", "a queue is required")
	case wire.CheckQueueName(r.To) != nil:
		return wire.BadQueueName(wire.CheckQueueName(r.To))
	case wire.IsDLQ(r.To):
		return wire.NotForDLQ("a move", r.To)
	case r.To == wire.Source(r.Queue):
		return wire.BadField("to", wire.Quote(r.To), "allowed is another queue; op redrive moves dead letters back")
	}
	return nil
}

func (r *JobCreateRequest) resolveRunAt(now time.Time) *wire.Error {
	at, err := time.Parse(time.RFC3339, r.RunAt)
	if after, wrong := time.ParseDuration(r.RunAt); wrong == nil && after >= 0 {
		at, err = now.Add(after), nil
	}
	if err != nil || at.Year() < 1970 || at.Year() > 2261 { // what 64 bits of nanoseconds hold
		return wire.BadField("run_at", quoted(r.RunAt), noUnit(r.RunAt)+"allowed are a time such as 2030-01-02T15:04:05Z and a Go duration from now such as 90m")
	}
	r.RunAt = wire.Timestamp(at.UnixNano())
	return nil
}

func (r *JobCreateRequest) checkPriority() *wire.Error {
	switch {
	case r.Key == "" && r.Weight == 0:
		return wire.BadField("key", "", "a fairness key or a weight is required")
	case r.Weight != 0 && !(r.Weight >= 1 && r.Weight <= 1_000_000):
		return wire.BadField("weight", strconv.FormatFloat(r.Weight, 'g', -1, 64), "allowed are 1 to 1000000")
	case r.Key == "":
		return nil
	}
	return wire.NameKey("key", &r.Key)
}

func (r *JobCreateRequest) checkEdit() *wire.Error {
	if len(r.Filter.IDs) != 1 {
		return wire.BadField("ids", strconv.Itoa(len(r.Filter.IDs)), "an edit changes one message: allowed is a filter with one id")
	}
	if len(r.SetHeaders)+len(r.RemoveHeaders) == 0 && r.Payload == nil {
		return wire.BadField("set_headers", "", "set_headers, remove_headers or payload is required")
	}
	for name := range r.SetHeaders {
		if !wire.LegalHeaderName(name) || wire.Reserved(name) {
			return wire.BadField("set_headers", wire.Quote(name), "allowed are names of headers that producers set, without Fila- and Nats-")
		}
		if strings.ContainsAny(r.SetHeaders[name], "\r\n") {
			return wire.BadField("set_headers", wire.Quote(name), "allowed is a value of one line")
		}
	}
	if r.Payload != nil {
		if _, err := base64.StdEncoding.DecodeString(*r.Payload); err != nil {
			return wire.BadField("payload", "not base64", "allowed is base64")
		}
	}
	return wire.InRange("headers of an edit", len(r.SetHeaders)+len(r.RemoveHeaders), 0, MaxEditHeader)
}

// JobRequest names a job.
type JobRequest struct {
	ID string `json:"id"`
}

func (r *JobRequest) check() *wire.Error {
	if r.ID == "" || len(r.ID) > wire.MaxKeyBytes {
		return wire.BadField("id", quoted(r.ID), "allowed is the id of a job")
	}
	return nil
}

// JobListRequest asks for a page of jobs, newest first.
type JobListRequest struct {
	Queue string `json:"queue,omitempty"` // including its dead letters; empty: the jobs of all queues
	After string `json:"after,omitempty"` // Next of the previous page
	Limit int    `json:"limit"`           // 1 to 1000, default 100
}

func (r *JobListRequest) check() *wire.Error {
	return cmp.Or(checkOptionalQueue(r.Queue), wire.CheckBounds(r))
}

// Bounds implements [wire.Bounded].
func (r *JobListRequest) Bounds() []wire.Bound { return []wire.Bound{boundOfLimit(r.Limit)} }

// JobInfo is a job. It answers all verbs about one job. After a dry run it has no id.
type JobInfo struct {
	ID string `json:"id,omitempty"`
	JobCreateRequest
	State     string `json:"state"`
	Why       string `json:"why,omitempty"` // why it paused itself (or would, of a dry run), or was canceled by something other than an operator
	CreatedAt string `json:"created_at,omitempty"`
	StartedAt string `json:"started_at,omitempty"`
	EndedAt   string `json:"ended_at,omitempty"`

	Matched  int64            `json:"matched"`             // matching messages that it has visited
	Done     int64            `json:"done"`                // of these, how many it has changed
	Eligible int64            `json:"eligible,omitempty"`  // of a dry run: how many it would have changed
	Left     map[string]int64 `json:"left,omitempty"`      // of these, how many it left unchanged, by reason
	UnderWay int64            `json:"under_way,omitempty"` // messages being transferred to another shard, until it confirms them
	NewSince *int64           `json:"new_since,omitempty"`
	// CameBack is how many of the messages of a redrive are dead letters again. Only job-show of a
	// job that has started has it.
	CameBack *int64      `json:"came_back,omitempty"`
	Samples  []JobSample `json:"samples,omitempty"` // of a dry run: the first ones
}

// JobSample is a message that matches the filter of a job.
type JobSample struct {
	ID         string `json:"id"`
	Key        string `json:"key"`
	State      string `json:"state"`
	EnqueuedAt string `json:"enqueued_at"`
}

// Ended reports whether the job is done or canceled.
func (j *JobInfo) Ended() bool { return j.State == JobDone || j.State == JobCanceled }

// JobList is a page of jobs, newest first.
type JobList struct {
	Total   int       `json:"total"` // of all pages
	Jobs    []JobInfo `json:"jobs"`
	Next    string    `json:"next,omitempty"`           // After of the next request
	Missing []int     `json:"missing_shards,omitempty"` // shards of a cluster that did not answer
}
