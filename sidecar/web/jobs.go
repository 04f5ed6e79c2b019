package web

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// jobOp is an operation of jobs on the messages of a queue.
type jobOp struct {
	Op, Title string
	Destroys  bool
}

// jobOps are all operations except edit, which is for one message.
func jobOps(queue string) []jobOp {
	if wire.IsDLQ(queue) {
		return []jobOp{{api.JobRedrive, "Redrive", false}, {api.JobMove, "Move", false}, {api.JobDelete, "Delete", true}}
	}
	return []jobOp{
		{api.JobRunNow, "Run now", false},
		{api.JobDelay, "Delay", false},
		{api.JobReprioritise, "Another key or weight", false},
		{api.JobMove, "Move", false},
		{api.JobCancel, "Cancel", true},
	}
}

// newJobData is the form of a new job with its dry run.
type newJobData struct {
	Op     jobOp
	Queue  string
	Ticked int // messages that were selected one by one; 0: the filter selects them
	Filter filterForm
	Groups *deadGroups // for the text of an error group; nil: none is selected
	IDs    []string
	Dry    *api.JobInfo // what it would do; nil: a field is missing
	Form   url.Values
	Back   string
}

// Title is the title of the page.
func (d *newJobData) Title() string { return d.Op.Title + " messages" }

// Crumbs are the pages above it.
func (d *newJobData) Crumbs() []crumb { return messageCrumbs(d.Queue) }

// Value returns the value of a form field.
func (d *newJobData) Value(name string) string { return d.Form.Get(name) }

// Missing reports whether the form lacks a field that the job needs besides its messages.
func (d *newJobData) Missing() bool { return d.Dry == nil }

// newJob shows the effect of a job and asks for confirmation.
func newJob(a *ask) (any, error) {
	form := a.r.URL.Query()
	req, filter, err := jobRequest(form)
	if err != nil {
		return nil, &backTo{messagesPath("", req.Queue, filter), "new-job", err}
	}
	d := &newJobData{Queue: req.Queue, Ticked: len(req.Filter.IDs), IDs: req.Filter.IDs, Filter: filter, Form: form, Back: messagesPath(a.web.base, req.Queue, filter)}
	ops := jobOps(req.Queue)
	at := slices.IndexFunc(ops, func(op jobOp) bool { return op.Op == req.Op })
	if at < 0 {
		return nil, fmt.Errorf("a job cannot %s messages of %s", req.Op, req.Queue)
	}
	d.Op = ops[at]
	if filter.ErrorGroup != "" {
		if d.Groups, err = groupsOf(a, req.Queue, nil); err != nil {
			return nil, &backTo{d.Back[len(a.web.base):], "new-job", err}
		}
	}
	if req.Op == api.JobMove && req.To == "" || req.Op == api.JobDelay && req.RunAt == "" || req.Op == api.JobReprioritise && req.Key == "" && req.Weight == 0 {
		return d, nil
	}
	req.DryRun, req.IfCount = true, nil
	d.Dry = new(api.JobInfo)
	if err := a.verb(api.VerbJobCreate, "", req, d.Dry); err != nil {
		return nil, &backTo{d.Back[len(a.web.base):], "new-job", err}
	}
	return d, nil
}

// messagesPath is the page of the messages that a filter selects.
func messagesPath(base, queue string, f filterForm) string {
	path := queuePath(queue, "/messages")
	if wire.IsDLQ(queue) {
		path = queuePath(wire.Source(queue), "/dead")
	}
	var query []string
	for _, one := range f.Fields {
		query = append(query, one.Name, one.Value)
	}
	return href(base, path, query...)
}

// jobRequest reads a job from a form: the selected messages, or all messages of its filter.
func jobRequest(form url.Values) (api.JobCreateRequest, filterForm, error) {
	f, filter, err := readFilter(form)
	if err != nil {
		return api.JobCreateRequest{}, f, err
	}
	req := api.JobCreateRequest{
		Queue: form.Get("queue"), Op: form.Get("op"), Filter: &filter, To: strings.TrimSpace(form.Get("to")), RunAt: strings.TrimSpace(form.Get("run_at")),
		Key: form.Get("new_key"), Order: form.Get("order"), Reason: strings.TrimSpace(form.Get("reason")),
	}
	switch form.Get("which") {
	case "ticked":
		if len(form["id"]) == 0 {
			return req, f, wrongField("id", "no message is selected")
		}
		*req.Filter = api.Filter{IDs: form["id"]}
	case "all":
	default:
		return req, f, wrongField("which", "which is missing: allowed are ticked (selected messages) and all")
	}
	if req.Op != api.JobMove {
		req.To = ""
	}
	if req.Op != api.JobDelay {
		req.RunAt = ""
	}
	if req.Op != api.JobReprioritise {
		req.Key = ""
	} else if text := form.Get("weight"); text != "" {
		if req.Weight, err = strconv.ParseFloat(text, 64); err != nil {
			return req, f, wrongField("weight", "%q is not a weight: use a number above 0", text)
		}
	}
	for _, one := range []struct {
		name string
		to   *int64
	}{{"rate", &req.Rate}, {"limit", &req.Limit}} {
		if *one.to, err = count(form, one.name); err != nil {
			return req, f, err
		}
	}
	if form.Get("unless_changed") == "yes" {
		n, err := count(form, "count")
		if err != nil {
			return req, f, err
		}
		req.IfCount = &n
	}
	return req, f, nil
}

// count parses a number of messages, 0 for none.
func count(form url.Values, name string) (int64, error) {
	text := form.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, wrongField(name, "%q is not a number of messages: use a whole number from 0", text)
	}
	return n, nil
}

// startJob creates the job after the confirmation of newJob.
func startJob(a *ask, form url.Values) (string, error) {
	req, _, err := jobRequest(form)
	if err != nil {
		return "", err
	}
	return a.createJob(req, form)
}

// createdJob is the form field with the id of the created job.
const createdJob = "created"

// createJob creates a job and redirects to its page.
func (a *ask) createJob(req api.JobCreateRequest, form url.Values) (string, error) {
	var job api.JobInfo
	if err := a.verb(api.VerbJobCreate, "", req, &job); err != nil {
		return "", err
	}
	form.Set(createdJob, job.ID)
	return fmt.Sprintf("The job %s was created.", job.ID), nil
}

func backToJob(form url.Values) string { return "/jobs/" + url.PathEscape(form.Get(createdJob)) }

// aboutJob returns an action for one job.
func aboutJob(verb api.AnyVerb, done string) func(*ask, url.Values) (string, error) {
	return func(a *ask, form url.Values) (string, error) {
		var job api.JobInfo
		if err := a.verb(verb, "", api.JobRequest{ID: form.Get("id")}, &job); err != nil {
			return "", err
		}
		form.Set(createdJob, job.ID)
		return fmt.Sprintf("The job %s was %s.", job.ID, done), nil
	}
}

// jobData is one job.
type jobData struct {
	api.JobInfo
	Groups    *deadGroups // for the text of an error group; nil: none is selected
	PerSecond float64     // matching messages that a running job has visited, since its start
	EndsAt    string      // RFC 3339: when it will have visited Most, at this rate; empty: not known
}

// pace computes the rate of a running job and its end.
func (d *jobData) pace(now time.Time) {
	started, err := time.Parse(time.RFC3339Nano, d.StartedAt)
	if seconds := now.Sub(started).Seconds(); err == nil && d.State == api.JobRunning && seconds > 0 {
		d.PerSecond = float64(d.Matched) / seconds
	}
	if left := d.Most() - d.Matched; left > 0 && d.PerSecond > 0 {
		d.EndsAt = wire.Timestamp(now.Add(time.Duration(min(float64(left)/d.PerSecond, 1e9) * 1e9)).UnixNano())
	}
}

// Did says what the job has done to the messages that it counts as done.
func (d *jobData) Did() string {
	switch d.Op {
	case api.JobRedrive:
		return "Redriven"
	case api.JobMove:
		return "Moved"
	case api.JobDelete:
		return "Deleted"
	case api.JobCancel:
		return "Canceled"
	case api.JobDelay:
		return "Delayed"
	}
	return "Changed"
}

// Again is how many of the messages of a redrive are dead letters again.
func (d *jobData) Again() int64 {
	if d.CameBack == nil {
		return 0
	}
	return *d.CameBack
}

// Title is the title of the page.
func (d *jobData) Title() string { return "Job " + shortID(d.ID) }

// Crumbs are the pages above it.
func (d *jobData) Crumbs() []crumb { return []crumb{{"Jobs", "/jobs"}} }

// Most is how many messages the job selects; 0: not known yet.
func (d *jobData) Most() int64 {
	switch {
	case d.Limit > 0:
		return d.Limit
	case d.IfCount != nil:
		return *d.IfCount
	}
	if d.Filter == nil {
		return 0
	}
	return int64(len(d.Filter.IDs))
}

func job(a *ask) (any, error) {
	d := new(jobData)
	err := a.verb(api.VerbJobShow, "", api.JobRequest{ID: a.r.PathValue("id")}, &d.JobInfo)
	if err != nil {
		return nil, err
	}
	d.pace(time.Now())
	if d.Filter != nil && d.Filter.ErrorGroup != "" {
		if groups, err := groupsOf(a, d.Queue, nil); err == nil { // the queue may be gone
			d.Groups = groups
		}
	}
	return d, nil
}

// jobsData is a page of jobs.
type jobsData struct {
	Queue string
	api.JobList
	Following string // address of the next page
}

func jobs(a *ask) (any, error) {
	if queue := a.query("queue"); queue != "" {
		return nil, &elsewhere{queuePath(queue, "/jobs")}
	}
	d := &jobsData{Queue: a.r.PathValue("queue")}
	if err := a.verb(api.VerbJobList, "", api.JobListRequest{Queue: d.Queue, After: a.query("after"), Limit: perPage}, &d.JobList); err != nil {
		return nil, err
	}
	if d.Next != "" {
		d.Following = href("", a.path(), "after", d.Next)
	}
	return d, nil
}
