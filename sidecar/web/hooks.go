package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// hooksData are the queues with hooks among one page of queues.
type hooksData struct {
	Queues []hookedQueue
	Pager  pager
}

type hookedQueue struct {
	Name  string
	Hooks []api.HookInfo
}

// hooksPerPage is how many queues one page reads hooks of.
const hooksPerPage = 200

func hookList(a *ask) (any, error) {
	s, err := a.web.history.fresh(a.web)
	if err != nil {
		return nil, err
	}
	d := new(hooksData)
	var queues []*api.QueueSummary
	queues, d.Pager = pagedBy(a, s.pick("name", func(q *api.QueueSummary) bool { return !wire.IsDLQ(q.Name) }), hooksPerPage)
	for _, q := range queues {
		name := q.Name
		var info api.QueueInfo
		err := a.verb(api.VerbQueueInspect, name, api.QueueInspectRequest{}, &info)
		switch {
		case refusedWith(err, wire.CodeQueueNotFound):
		case err != nil:
			return nil, err
		case len(info.Hooks) > 0:
			d.Queues = append(d.Queues, hookedQueue{name, info.Hooks})
		}
	}
	return d, nil
}

// hookData has the hooks of one queue.
type hookData struct {
	Queue  string
	Hooks  []hookSource
	Sample sample
	// Messages are messages of the queue that a script can be tried on.
	Messages []api.PeekedMessage
}

// hookSource is a hook with its script. A hook that has been removed has no state.
type hookSource struct {
	api.HookInfo
	api.HookVersion
	Before *api.HookVersion
	Lines  []string
	Diff   []diffLine // from the version before; empty: there is none
}

// sampleMessages is how many messages of its queue a hook can be tried on.
const sampleMessages = 5

func hookPage(a *ask) (any, error) {
	d := &hookData{Queue: a.r.PathValue("queue")}
	if err := d.read(a); err != nil {
		return nil, err
	}
	d.Sample = sample{Queue: d.Queue, Hook: string(hooks.OnEnqueue), Attempts: "1", Headers: "tenant: acme", Size: "100", Error: "connection refused", ErrorCode: "503"}
	for i := range d.Hooks {
		if h := &d.Hooks[i]; i == 0 || h.Hook == a.query("edit") {
			d.Sample.Hook, d.Sample.Script = h.Hook, h.Script
		}
	}
	var peeked api.PeekReply
	if err := a.verb(api.VerbPeek, d.Queue, api.PeekRequest{Limit: sampleMessages}, &peeked); err != nil {
		return nil, err
	}
	d.Messages = peeked.Messages
	if id := a.query("message"); id != "" {
		return d, d.Sample.from(a, id)
	}
	return d, nil
}

// hookPart is the part of it that changes.
func hookPart(a *ask) (any, error) {
	d := &hookData{Queue: a.r.PathValue("queue")}
	return d, d.read(a)
}

// read reads the hooks.
func (d *hookData) read(a *ask) error {
	var info api.QueueInfo
	if err := a.verb(api.VerbQueueInspect, d.Queue, api.QueueInspectRequest{}, &info); err != nil {
		return err
	}
	for _, kind := range []hooks.Kind{hooks.OnEnqueue, hooks.OnFailure} {
		var reply api.HookReply
		if err := a.verb(api.VerbHookShow, d.Queue, api.HookShowRequest{Hook: string(kind)}, &reply); err != nil {
			return err
		}
		h := hookSource{HookInfo: api.HookInfo{Hook: string(kind)}, HookVersion: reply.HookVersion, Before: reply.Before}
		for i := range info.Hooks {
			if info.Hooks[i].Hook == string(kind) {
				h.HookInfo = info.Hooks[i]
			}
		}
		if h.Script != "" || h.Before != nil {
			h.Lines = linesOf(h.Script)
			if h.Before != nil {
				h.Diff = diffOf(h.Before.Script, h.Script)
			}
			d.Hooks = append(d.Hooks, h)
		}
	}
	return nil
}

// from takes the fields of a sample from a message of the queue.
func (s *sample) from(a *ask, id string) error {
	var m editData
	if err := a.editable(s.Queue, id, &m); err != nil {
		return err
	}
	s.Headers, s.Size, s.Attempts = m.Headers, strconv.Itoa(m.PayloadBytes), strconv.FormatUint(uint64(max(m.Attempt, 1)), 10)
	if s.Route = m.Route; s.Route == "" && len(m.History) > 0 {
		s.Route = m.History[len(m.History)-1].Route
	}
	return nil
}

// saveHook replaces the script of a hook. One that does not load is refused beside its field.
func saveHook(a *ask, form url.Values) (string, error) {
	queue, kind, script := form.Get("queue"), hooks.Kind(form.Get("hook")), strings.ReplaceAll(form.Get("script"), "\r\n", "\n")
	if script != "" {
		if _, err := hooks.Compile(kind, queue+"."+string(kind), script, hooks.Limits{}); err != nil {
			return "", wrongField("script", "%s", err)
		}
	}
	note := fmt.Sprintf("Saved %s of %s. It runs for the next message. The button Roll back restores the previous version.", kind, queue)
	return note, a.verb(api.VerbHookSet, queue, api.HookSetRequest{Hook: string(kind), Script: &script, Reason: form.Get("reason")}, nil)
}

// rollbackHook puts the version of a hook before the present one in force.
func rollbackHook(a *ask, form url.Values) (string, error) {
	queue, hook := form.Get("queue"), form.Get("hook")
	req := api.HookSetRequest{Hook: hook, Rollback: true, Reason: form.Get("reason")}
	return fmt.Sprintf("%s of %s is rolled back. Another rollback undoes this.", hook, queue), a.verb(api.VerbHookSet, queue, req, nil)
}

func backToHooks(form url.Values) string { return queuePath(form.Get("queue"), "/hooks") }

// sample is a script and a made-up message, as form fields.
type sample struct {
	Queue, Hook, Script, Headers, Size, Attempts, Error, ErrorCode, Route string
}

// tried is the result of a script for a sample. The script runs in the sandbox of hooks
// with their limits, and changes nothing.
type tried struct {
	sample
	Loads    bool
	Mistake  string // load or run error
	Line     int
	Warnings []hooks.Warning
	Ran      bool
	Decision []field
	Returned string
	Said     []string // its log
	Elapsed  time.Duration
	Units    int64 // units of work
	Bytes    int64 // allocated bytes
	Fixed    int64 // fields with defaults
}

// Title is the title of the page.
func (*tried) Title() string { return "Hook check" }

// Crumbs are the pages above it.
func (t *tried) Crumbs() []crumb {
	return crumbsOf(t.Queue, crumb{"Hooks", queuePath(t.Queue, "/hooks")})
}

// Bounds of a tried script.
const (
	maxScript = 256 << 10
	maxSaid   = 100
)

// tryHook checks a script and runs it on a sample.
func tryHook(a *ask, form url.Values) (any, error) {
	t := &tried{sample: sample{
		form.Get("queue"), form.Get("hook"), form.Get("script"), form.Get("headers"), form.Get("size"), form.Get("attempts"), form.Get("error"), form.Get("error_code"), form.Get("route"),
	}}
	t.Script = strings.ReplaceAll(t.Script, "\r\n", "\n")
	kind := hooks.Kind(t.Hook)
	switch {
	case kind != hooks.OnEnqueue && kind != hooks.OnFailure:
		return nil, wrongField("hook", "%q is not a hook: use %s or %s", t.Hook, hooks.OnEnqueue, hooks.OnFailure)
	case len(t.Script) > maxScript:
		return nil, wrongField("script", "the script is longer than %d bytes", maxScript)
	}
	headers, err := headerLines(t.Headers)
	if err != nil {
		return nil, err
	}
	size, err := count(form, "size")
	if err != nil {
		return nil, err
	}
	attempts, err := strconv.ParseUint(t.Attempts, 10, 32)
	if err != nil {
		return nil, wrongField("attempts", "%q is not a number of attempts: use a whole number from 0", t.Attempts)
	}
	in := hooks.FailureInput{
		ID: "00000000-0000-0000-0000-000000000000", Queue: t.Queue, Error: t.Error, ErrorCode: t.ErrorCode, Route: t.Route, Attempts: uint32(attempts),
		Headers: make(map[string][]string, len(headers)),
	}
	for name, value := range headers {
		in.Headers[name] = []string{value}
	}
	t.run(a, kind, &in, int(size))
	return t, nil
}

func (t *tried) run(a *ask, kind hooks.Kind, in *hooks.FailureInput, size int) {
	script, err := hooks.Compile(kind, t.Queue+"."+string(kind), t.Script, hooks.Limits{})
	if err != nil {
		t.Mistake = err.Error()
		var load *hooks.LoadError
		if errors.As(err, &load) {
			t.Mistake, t.Line = load.Message, load.Line
		}
		return
	}
	t.Loads, t.Warnings = true, script.Warnings()
	r := hooks.NewTester(hooks.TesterOptions{
		Kind: kind, Script: script,
		Get: func(key string) (string, bool) { // the present value, as for the hook
			var e api.ConfigEntry
			err := a.verb(api.VerbConfigGet, wire.ShowKey(key), nil, &e)
			return e.Value, err == nil
		},
		Log: func(level slog.Level, line string) {
			if len(t.Said) < maxSaid {
				t.Said = append(t.Said, strings.ToLower(level.String())+": "+line)
			}
		},
	})
	var res hooks.Result
	if kind == hooks.OnEnqueue {
		res = r.OnEnqueue(&hooks.EnqueueInput{Headers: in.Headers, PayloadSize: size, Queue: in.Queue})
		t.enqueue(&res.Enqueue)
	} else {
		res = r.OnFailure(in)
		t.failure(&res.Failure)
	}
	t.Ran, t.Elapsed, t.Units, t.Bytes, t.Fixed = res.Err == nil, res.Elapsed, res.Instructions, res.Allocated, res.Warnings
	if res.Err != nil {
		t.Mistake, t.Line = res.Err.Message, res.Err.Line
	}
	if text, err := json.Marshal(res.Returned); err == nil {
		t.Returned = string(text)
	}
}

func (t *tried) decide(name string, value any) {
	t.Decision = append(t.Decision, field{name, fmt.Sprint(value)})
}

func (t *tried) enqueue(d *hooks.EnqueueDecision) {
	t.decide("fairness_key", wire.ShowKey(d.Key))
	t.decide("weight", float64(d.Weight)/1000)
	t.decide("cost", float64(d.Cost)/1000)
	for _, key := range d.ThrottleKeys {
		t.decide("throttle_key", wire.ShowKey(key))
	}
	if d.CircuitKey != "" {
		t.decide("circuit_key", wire.ShowKey(d.CircuitKey))
	}
	for _, r := range d.Routes {
		t.decide("route", routeText(&r))
	}
	t.decide("priority", d.Priority)
}

// routeText is a route with its gates.
func routeText(r *hooks.Route) string {
	text := wire.ShowKey(r.Name)
	if r.CircuitKey != "" {
		text += ", circuit_key " + wire.ShowKey(r.CircuitKey)
	}
	for _, key := range r.ThrottleKeys {
		text += ", throttle_key " + wire.ShowKey(key)
	}
	if r.Weight > 0 {
		text += fmt.Sprint(", weight ", float64(r.Weight)/1000)
	}
	return text
}

func (t *tried) failure(d *hooks.FailureDecision) {
	t.decide("action", d.Action)
	if d.HasDelay {
		t.decide("delay", d.Delay)
	}
}
