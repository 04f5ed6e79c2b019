package wire

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What a job does to messages.
const (
	JobRedrive      = "redrive"      // dead letters go back to their queue
	JobMove         = "move"         // to another queue
	JobDelete       = "delete"       // dead letters
	JobCancel       = "cancel"       // messages that wait
	JobDelay        = "delay"        // until a time
	JobRunNow       = "run-now"      // delayed ones wait no longer
	JobReprioritise = "reprioritise" // they get another fairness key or weight
	JobEdit         = "edit"         // one message gets other headers or another payload
)

// JobOps are all of these.
func JobOps() []string {
	return []string{JobRedrive, JobMove, JobDelete, JobCancel, JobDelay, JobRunNow, JobReprioritise, JobEdit}
}

// In which order a job takes its messages.
const (
	OrderArrival = "arrival" // in that of their first enqueue
	OrderDeath   = "death"   // in that in which they came to their queue, which is that of their deaths in a dead letter queue
)

// How a job stands.
const (
	JobWaiting  = "waiting"  // another job of its queue runs
	JobRunning  = "running"  //
	JobPaused   = "paused"   // by hand, or by itself: Why says it
	JobDone     = "done"     //
	JobCanceled = "canceled" // what it has done stays done
)

// Why messages that a job came by were left as they are.
const (
	LeftGone       = "gone"        // finished meanwhile
	LeftInFlight   = "in_flight"   // a consumer works on it, or its last attempt is being judged
	LeftMoving     = "moving"      // it is on its way to another queue
	LeftNotDelayed = "not_delayed" // it waits for no time
	LeftKeyFull    = "key_full"    // its fairness key has as many messages as it may
	LeftBadKey     = "bad_key"     // on_enqueue or a header gives it a key that is none, a weight or a priority
	LeftUnreadable = "unreadable"  // its record is broken
	LeftRefused    = "refused"     // the target takes no such message
)

// Bounds of jobs.
const (
	MaxJobRate    = 1_000_000
	MaxJobReason  = 1024 // bytes
	MaxEditHeader = 64   // headers that one edit sets or removes
	JobSamples    = 10
)

// JobCreateRequest begins a job about messages of a queue.
type JobCreateRequest struct {
	// These begin the JSON, of which the audit log keeps the beginning.
	Queue  string `json:"queue"`
	Op     string `json:"op"`
	Reason string `json:"reason,omitempty"` // for the audit log

	Filter *Filter `json:"filter"`

	To            string            `json:"to,omitempty"`             // of move: the queue
	RunAt         string            `json:"run_at,omitempty"`         // of delay: RFC 3339, or a Go duration from now on
	Key           string            `json:"key,omitempty"`            // of reprioritise
	Weight        float64           `json:"weight,omitempty"`         // of reprioritise: 1 to 1,000,000
	SetHeaders    map[string]string `json:"set_headers,omitempty"`    // of edit
	RemoveHeaders []string          `json:"remove_headers,omitempty"` // of edit
	Payload       *string           `json:"payload,omitempty"`        // of edit: base64

	Order   string `json:"order,omitempty"`    // arrival, the default, or death
	Rate    int64  `json:"rate,omitempty"`     // messages per second; 0: 40,000
	Limit   int64  `json:"limit,omitempty"`    // no more than so many; 0: all
	DryRun  bool   `json:"dry_run,omitempty"`  // say what would be done, and do nothing
	IfCount *int64 `json:"if_count,omitempty"` // only if it is about so many messages
}

// ParseJobCreate decodes and checks a [JobCreateRequest]. Times in it that are relative
// are made absolute.
func ParseJobCreate(body []byte, now time.Time) (JobCreateRequest, *Error) {
	return parse(body, JobCreateRequest{Order: OrderArrival}, func(r *JobCreateRequest) *Error { return r.check(now) })
}

// ParseJobCreateOf is ParseJobCreate for a request whose subject ends in tail, a [JobTail]:
// what the body says of op and queue must be what the subject says, or missing. Permissions go
// by the subject, so nothing in the body may overrule it.
func ParseJobCreateOf(tail string, body []byte, now time.Time) (JobCreateRequest, *Error) {
	op, queue, _ := strings.Cut(tail, ".")
	named := JobCreateRequest{Op: op, Queue: queue, Order: OrderArrival}
	return parse(body, named, func(r *JobCreateRequest) *Error {
		if r.Op != op {
			return BadField("op", quoted(r.Op), "the subject says "+quote(op))
		}
		if r.Queue != queue && (op != JobRedrive || DeadLetters(r.Queue) != DeadLetters(queue)) {
			return BadField("queue", quoted(r.Queue), "the subject says "+quote(queue))
		}
		return r.check(now)
	})
}

func (r *JobCreateRequest) check(now time.Time) *Error {
	if err := CheckQueueName(r.Queue); err != nil {
		return BadQueueName(err)
	}
	if r.Op == JobRedrive { // only dead letters can be redriven
		r.Queue = DeadLetters(r.Queue)
	}
	dead := IsDLQ(r.Queue)
	switch {
	case !slices.Contains(JobOps(), r.Op):
		return BadField("op", quoted(r.Op), "allowed are "+strings.Join(JobOps(), ", "))
	case !dead && r.Op == JobDelete: // it may mean the messages that wait, and nothing brings back dead letters
		return OnlyForDLQ("op delete removes dead letters, op cancel messages that wait: delete", r.Queue)
	case dead && slices.Contains([]string{JobCancel, JobDelay, JobRunNow, JobReprioritise}, r.Op):
		return NotForDLQ("a job with op "+r.Op, r.Queue)
	case r.Filter == nil:
		return BadField("filter", "", `what is meant has to be named; {"all":true} is everything`)
	}
	if err := r.Filter.Resolve(now); err != nil {
		return err
	}
	if err := r.Filter.For(r.Queue); err != nil {
		return err
	}
	if err := r.checkOp(now); err != nil {
		return err
	}
	switch {
	case r.Order != OrderArrival && r.Order != OrderDeath:
		return BadField("order", quote(r.Order), "allowed are arrival and death")
	case r.IfCount != nil && *r.IfCount < 0:
		return BadField("if_count", strconv.FormatInt(*r.IfCount, 10), "allowed are 0 and more")
	case r.Limit < 0:
		return BadField("limit", strconv.FormatInt(r.Limit, 10), "allowed are 0 (all) and more")
	}
	return cmp.Or(
		inRange("rate", r.Rate, 0, MaxJobRate),
		inRange("bytes of reason", len(r.Reason), 0, MaxJobReason),
	)
}

// quoted is a value for [BadField]: an empty one is missing.
func quoted(value string) string {
	if value == "" {
		return ""
	}
	return quote(value)
}

// checkOp checks the fields that belong to one op.
func (r *JobCreateRequest) checkOp(now time.Time) *Error {
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
			return BadField(f.name, "of a job with op "+quote(r.Op), "it belongs to "+f.of)
		}
	}
	switch r.Op {
	case JobMove:
		return r.checkTarget()
	case JobDelay:
		return r.checkRunAt(now)
	case JobReprioritise:
		return r.checkPriority()
	case JobEdit:
		return r.checkEdit()
	}
	return nil
}

func (r *JobCreateRequest) checkTarget() *Error {
	switch {
	case r.To == "":
		return BadField("to", "", "a queue is expected")
	case CheckQueueName(r.To) != nil:
		return BadQueueName(CheckQueueName(r.To))
	case IsDLQ(r.To):
		return NotForDLQ("a move", r.To)
	case r.To == Source(r.Queue):
		return BadField("to", quote(r.To), "another queue is expected; dead letters go back by redrive")
	}
	return nil
}

func (r *JobCreateRequest) checkRunAt(now time.Time) *Error {
	at, err := time.Parse(time.RFC3339, r.RunAt)
	if after, wrong := time.ParseDuration(r.RunAt); wrong == nil && after >= 0 {
		at, err = now.Add(after), nil
	}
	if err != nil || at.Year() < 1970 || at.Year() > 2261 { // what 64 bits of nanoseconds hold
		return BadField("run_at", quoted(r.RunAt), noUnit(r.RunAt)+"allowed are a time such as 2030-01-02T15:04:05Z and a Go duration from now on such as 90m")
	}
	r.RunAt = Timestamp(at.UnixNano())
	return nil
}

func (r *JobCreateRequest) checkPriority() *Error {
	switch {
	case r.Key == "" && r.Weight == 0:
		return BadField("key", "", "a fairness key or a weight is expected")
	case r.Weight != 0 && !(r.Weight >= 1 && r.Weight <= 1_000_000):
		return BadField("weight", strconv.FormatFloat(r.Weight, 'g', -1, 64), "allowed are 1 to 1000000")
	case r.Key == "":
		return nil
	}
	return nameKey("key", &r.Key)
}

func (r *JobCreateRequest) checkEdit() *Error {
	if len(r.Filter.IDs) != 1 {
		return BadField("ids", strconv.Itoa(len(r.Filter.IDs)), "an edit is of one message, and its filter names that by its id")
	}
	if len(r.SetHeaders)+len(r.RemoveHeaders) == 0 && r.Payload == nil {
		return BadField("set_headers", "", "headers to set or to remove, or a payload, are expected")
	}
	for name := range r.SetHeaders {
		if !legalHeaderName(name) || Reserved(name) {
			return BadField("set_headers", quote(name), "a name of a header is expected that deliveries have and fila does not add")
		}
		if strings.ContainsAny(r.SetHeaders[name], "\r\n") {
			return BadField("set_headers", quote(name), "a value of one line is expected")
		}
	}
	if r.Payload != nil {
		if _, err := base64.StdEncoding.DecodeString(*r.Payload); err != nil {
			return BadField("payload", "that was sent", "base64 is expected")
		}
	}
	return inRange("headers of an edit", len(r.SetHeaders)+len(r.RemoveHeaders), 0, MaxEditHeader)
}

// JobRequest names a job.
type JobRequest struct {
	ID string `json:"id"`
}

// ParseJob decodes and checks a [JobRequest].
func ParseJob(body []byte) (JobRequest, *Error) {
	return parse(body, JobRequest{}, func(r *JobRequest) *Error {
		if r.ID == "" || len(r.ID) > MaxKeyBytes {
			return BadField("id", quoted(r.ID), "the id of a job is expected")
		}
		return nil
	})
}

// JobListRequest asks for jobs, the newest first.
type JobListRequest struct {
	Queue string `json:"queue,omitempty"` // those of this queue and its dead letters; empty: all
	After string `json:"after,omitempty"` // Next of the page before
	Limit int    `json:"limit"`           // 1 to 1000, default 100
}

// ParseJobList decodes and checks a [JobListRequest].
func ParseJobList(body []byte) (JobListRequest, *Error) {
	return parse(body, JobListRequest{Limit: DefaultListLimit}, func(r *JobListRequest) *Error {
		if r.Queue != "" {
			if err := CheckQueueName(r.Queue); err != nil {
				return BadQueueName(err)
			}
		}
		return inRange("limit", r.Limit, 1, MaxListLimit)
	})
}

// JobInfo is a job, and the answer to what is done about one. After a dry run it has no
// id.
type JobInfo struct {
	ID string `json:"id,omitempty"`
	JobCreateRequest
	State     string `json:"state"`
	Why       string `json:"why,omitempty"` // it has paused itself, would so after a dry run, or was canceled other than by hand
	CreatedAt string `json:"created_at,omitempty"`
	StartedAt string `json:"started_at,omitempty"`
	EndedAt   string `json:"ended_at,omitempty"`

	Matched  int64            `json:"matched"`             // messages that it has come by: those that are meant
	Done     int64            `json:"done"`                // of them, those that it has done
	Eligible int64            `json:"eligible,omitempty"`  // after a dry run: those that it would have done
	Left     map[string]int64 `json:"left,omitempty"`      // of them, those that were left as they are, by why
	UnderWay int64            `json:"under_way,omitempty"` // messages that are on their way to another shard: held, until it has said which it has
	NewSince *int64           `json:"new_since,omitempty"`
	Samples  []JobSample      `json:"samples,omitempty"` // after a dry run: the first
}

// JobSample is a message that a job would be about.
type JobSample struct {
	ID         string `json:"id"`
	Key        string `json:"key"`
	State      string `json:"state"`
	EnqueuedAt string `json:"enqueued_at"`
}

// Ended reports whether nothing more happens to the job.
func (j *JobInfo) Ended() bool { return j.State == JobDone || j.State == JobCanceled }

// JobList is a page of jobs, the newest first.
type JobList struct {
	Total   int       `json:"total"` // of all pages
	Jobs    []JobInfo `json:"jobs"`
	Next    string    `json:"next,omitempty"`           // goes into After
	Missing []int     `json:"missing_shards,omitempty"` // shards of a cluster that nobody has answered for
}

// Shorten implements [Long].
func (l JobList) Shorten(room int) any {
	trim(&l.Jobs, &l.Next, room, func(j *JobInfo) string { return j.ID })
	return l
}
