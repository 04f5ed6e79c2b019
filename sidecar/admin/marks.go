package admin

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/filaq/fila/sidecar/attention"
	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Marks explain changes in charts. Nothing keeps them: annotations, pauses, changes of limits and of
// hooks are entries of the audit log, and circuits know their last hour.

// annotationKey is the key of annotations in the audit log; for one queue a colon and its name follow.
const annotationKey = "annotation"

// annotation is the value of an annotation in the audit log.
type annotation struct {
	Text string `json:"text"`
	At   string `json:"at"`
}

// annotate records an annotation.
func (a *Admin) annotate(by control.Actor, req api.AnnotateRequest) (api.Mark, *wire.Error) {
	at, err := req.Time(a.now())
	if err != nil {
		return api.Mark{}, err
	}
	key, object := annotationKey, ""
	if req.Queue != "" {
		if _, err := a.queue(req.Queue); err != nil {
			return api.Mark{}, err
		}
		key, object = key+":"+req.Queue, "queue:"+req.Queue
	}
	m := api.Mark{At: wire.Timestamp(at.UnixNano()), Kind: api.MarkAnnotation, Object: object, Text: req.Text, By: by.By, Client: by.Client}
	a.audit(by, key, annotation{m.Text, m.At})
	return m, nil
}

// marked is the objects of a request for marks.
type marked struct {
	queue string
	gates map[string]bool // as filters name them, such as throttle:stripe
}

// marks returns what happened to a queue and the gates that blocked its messages, or to a gate.
func (a *Admin) marks(req api.MarksRequest) (api.Marks, *wire.Error) {
	now := a.now()
	since := now.Add(-time.Duration(req.WindowMs) * time.Millisecond)
	about := marked{queue: req.Queue, gates: make(map[string]bool)}
	switch {
	case req.Queue != "":
		if _, err := a.queue(req.Queue); err != nil {
			return api.Marks{}, err
		}
		about.gates = a.blocked.of(req.Queue, since)
	case req.Throttle != "":
		about.gates["throttle:"+wire.ShowKey(req.Throttle)] = true
	case req.Circuit != "":
		about.gates["circuit:"+wire.ShowKey(req.Circuit)] = true
	}
	return a.marksOf(&about, a.pastSince(since), since, now, req.Limit), nil
}

// past is the audit log since a time.
type past struct {
	log []api.ConfigLogEntry // the newest first
	at  []time.Time
	// again is when an entry's key of the runtime configuration or hook was changed next; empty: it was not.
	again []string
}

func (a *Admin) pastSince(since time.Time) *past {
	p := &past{log: a.control.AuditSince(since)}
	p.at, p.again = make([]time.Time, len(p.log)), make([]string, len(p.log))
	latest := make(map[string]string)
	for i := range p.log {
		e := &p.log[i]
		p.at[i] = timeOf(e.Time)
		changed := []string{e.Key}
		if !isConfig(e) {
			changed = hooksOf(e)
		}
		for _, name := range changed {
			name += " of " + e.Key
			p.again[i] = cmp.Or(p.again[i], latest[name])
			latest[name] = e.Time
		}
	}
	return p
}

// auditMark is a mark of an entry of the audit log.
type auditMark struct {
	api.Mark
	entry *api.ConfigLogEntry // nil: the log does not have it
}

// marksOf returns the newest marks of objects between two times, with how to set back the ones that are
// the latest change of their object.
func (a *Admin) marksOf(about *marked, p *past, since, until time.Time, limit int) api.Marks {
	var list []auditMark
	for i := range slices.Backward(p.log) { // the entries of a change are in the order of their limits
		e := &p.log[i]
		if p.at[i].After(until) && !strings.HasPrefix(e.Key, annotationKey) {
			continue
		}
		m, ok := about.mark(e)
		m.ChangedAgain = p.again[i]
		if n := len(list); ok && n > 0 && m.Kind == api.MarkLimits && sameChange(&list[n-1].Mark, &m) {
			list[n-1].Text += ", " + m.Text
		} else if ok {
			list = append(list, auditMark{m, e})
		}
	}
	for gate := range about.gates {
		if key, ok := strings.CutPrefix(gate, "circuit:"); ok {
			for _, m := range openings(gate, a.control.CircuitHistory(wire.NamedKey(key))) {
				list = append(list, auditMark{m, nil})
			}
		}
	}
	list = slices.DeleteFunc(list, func(m auditMark) bool {
		at := timeOf(m.At)
		return at.Before(since) || at.After(until)
	})
	slices.SortStableFunc(list, func(a, b auditMark) int {
		return cmp.Or(timeOf(b.At).Compare(timeOf(a.At)), cmp.Compare(a.Object, b.Object))
	})
	reply := api.Marks{Total: len(list), Marks: []api.Mark{}}
	for _, m := range list[:min(len(list), limit)] {
		if m.entry != nil && m.ChangedAgain == "" {
			m.Undo = a.undo(m.entry)
		}
		reply.Marks = append(reply.Marks, m.Mark)
	}
	return reply
}

// addBefore adds, for n problems, the changes of their queues in the two minutes before. of gives the queue of
// a problem, when it began (RFC 3339; empty: unknown), and where to put the changes.
func (a *Admin) addBefore(n int, of func(i int) (queue, at string, before *[]api.Mark)) {
	var first time.Time
	for i := range n {
		if _, began, _ := of(i); began != "" {
			if at := timeOf(began); first.IsZero() || at.Before(first) {
				first = at
			}
		}
	}
	if first.IsZero() {
		return
	}
	p := a.pastSince(first.Add(-api.BeforeWindow))
	for i := range n {
		if queue, began, before := of(i); began != "" {
			at := timeOf(began)
			since := at.Add(-api.BeforeWindow)
			about := marked{queue: queue, gates: a.blocked.of(queue, since)}
			*before = a.marksOf(&about, p, since, at, api.MaxBefore).Marks
		}
	}
}

// undo returns how to set back a change that is the latest of its object, or nil if nothing can be set
// back.
func (a *Admin) undo(e *api.ConfigLogEntry) *api.Undo {
	kind, name, _ := strings.Cut(e.Key, ":")
	switch {
	case isConfig(e):
		u := &api.Undo{Text: "Delete " + e.Key, Command: attention.Command("config", "delete", e.Key), Page: "/settings", Key: e.Key, Old: e.Old, New: e.New}
		if e.Old != nil {
			u.Text = "Set " + e.Key + " back to " + shortValue(*e.Old)
			u.Command = attention.Command("config", "set", e.Key, *e.Old)
		}
		return u
	case kind == "queue":
		hooks := hooksOf(e)
		if len(hooks) != 1 || e.By == api.VerbQueueCreate.Name {
			return nil
		}
		q := a.shards.Queue(name)
		if q == nil {
			return nil
		}
		settings := q.Settings()
		if _, before := a.control.HookVersions(name, hooks[0], *scriptOf(&settings, hooks[0])); before == nil {
			return nil
		}
		return &api.Undo{
			Text: "Roll " + hooks[0] + " back", Command: attention.Command("hook", "rollback", name) + " --hook " + hooks[0],
			Page: attention.QueuePage(name, "/hooks"), Hook: hooks[0],
		}
	case kind == "throttle" && e.By == api.VerbThrottleSet.Name:
		cut := strings.LastIndexByte(e.Key, ':')
		key := e.Key[len("throttle:"):max(cut, len("throttle:"))]
		if c := a.control.LimitsChange(wire.NamedKey(key)); c != nil && c.Key == key && c.At == e.Time {
			return &api.Undo{
				Text: "Set the limits of " + key + " back to " + c.Old.Text(), Command: attention.SetBack(c),
				Page: attention.ThrottlePage(key),
			}
		}
	}
	return nil
}

// isConfig reports whether an entry is about a key of the runtime configuration that is no setting of
// fila itself.
func isConfig(e *api.ConfigLogEntry) bool {
	switch e.By {
	case api.VerbConfigSet.Name, api.VerbConfigEdit.Name, api.VerbConfigDelete.Name:
		kind, _, found := strings.Cut(e.Key, ":")
		return !found || !slices.Contains(ownSettings, kind)
	}
	return false
}

// ownSettings are the first parts of keys of the runtime configuration that fila reads itself.
var ownSettings = []string{"weight", "throttle", "circuit", "retry_policy", "error_rule", "guard", "route_choice", "owner"}

// shortValue is the beginning of a value.
func shortValue(text string) string {
	const most = 60
	if short := strings.ToValidUTF8(text[:min(len(text), most)], ""); len(short) < len(text) {
		return short + "…"
	}
	return text
}

// sameChange reports whether two marks are of one request, which has an entry for each limit.
func sameChange(a, b *api.Mark) bool {
	return a.Kind == b.Kind && a.Object == b.Object && a.At == b.At && a.By == b.By && a.Client == b.Client
}

// openings returns the times at which a circuit has opened by itself: one mark for a minute in which
// it has opened more often.
func openings(gate string, h *api.CircuitHistory) (list []api.Mark) {
	if h == nil {
		return nil
	}
	often := make(map[string]int64)
	for _, o := range h.Openings {
		often[o.Minute] = o.Openings
	}
	marked := make(map[string]bool)
	for _, c := range h.Changes {
		if c.New != "open" || c.Cause == api.CauseByHand { // the audit log has these, with the client
			continue
		}
		m := api.Mark{At: c.At, Kind: api.MarkCircuit, Object: gate, Text: "opened: " + c.Cause, By: c.Cause}
		at, _ := time.Parse(time.RFC3339Nano, c.At) // this process has written it
		minute := wire.Timestamp(at.Truncate(time.Minute).UnixNano())
		if marked[minute] {
			continue
		}
		marked[minute] = true
		if n := often[minute]; n > 1 {
			m.Count = n
		}
		list = append(list, m)
	}
	return list
}

// mark returns an entry of the audit log as a mark. It reports false if the entry is about something
// else.
func (o *marked) mark(e *api.ConfigLogEntry) (m api.Mark, ok bool) {
	m = api.Mark{At: e.Time, By: e.By, Client: e.Client}
	if isConfig(e) {
		m.Kind, m.Text = api.MarkConfig, configText(e)
		return m, true
	}
	kind, rest, _ := strings.Cut(e.Key, ":")
	switch kind {
	case annotationKey:
		var value annotation
		ok = (rest == "" || rest == o.queue) && e.New != nil && json.Unmarshal([]byte(*e.New), &value) == nil
		if m.Kind, m.At, m.Text = api.MarkAnnotation, value.At, value.Text; rest != "" {
			m.Object = "queue:" + rest
		}
	case "pause":
		m.Object, ok = rest, o.paused(rest)
		m.Kind, m.Text = api.MarkPause, "paused "+textOf(e.New)
		if e.New == nil {
			m.Kind, m.Text = api.MarkResume, "resumed"
		}
	case "queue":
		m.Object, m.Kind = e.Key, api.MarkHook
		if m.Text = hookText(e); m.Text == "" {
			m.Kind, m.Text = api.MarkSettings, settingsText(e)
		}
		ok = rest == o.queue && m.Text != ""
	case "circuit", "throttle":
		m.Object, m.Kind, m.Text = gateChange(e)
		ok = o.has(m.Object)
	}
	return m, ok
}

// paused reports whether a paused object, as the audit log names it, is one of these.
func (o *marked) paused(object string) bool {
	kind, name, _ := strings.Cut(object, ":")
	switch kind {
	case api.PauseQueue:
		return name == o.queue
	case api.PauseKey:
		return o.queue != "" && strings.HasPrefix(name, o.queue+":")
	}
	return o.gates[object]
}

// has reports whether a gate is one of these, or a prefix of one.
func (o *marked) has(gate string) bool {
	if o.gates[gate] {
		return true
	}
	prefix, ok := strings.CutSuffix(gate, "*")
	for one := range o.gates {
		if ok && strings.HasPrefix(one, prefix) {
			return true
		}
	}
	return false
}

// gateChange describes a change of the limits of a throttle or circuit, or of a circuit by hand.
func gateChange(e *api.ConfigLogEntry) (gate, kind, text string) {
	switch e.By {
	case api.VerbCircuitOpen.Name:
		return e.Key, api.MarkCircuit, "opened by hand"
	case api.VerbCircuitClose.Name, api.VerbCircuitReset.Name:
		return e.Key, api.MarkCircuit, "closed by hand"
	}
	cut := max(strings.LastIndexByte(e.Key, ':'), 0)
	text = strings.TrimPrefix(e.Key[cut:], ":")
	switch {
	case e.New == nil && text == "override":
		text = "the override is over"
	case e.New == nil:
		text += " removed, was " + textOf(e.Old)
	case e.Old == nil:
		text += " " + *e.New
	default:
		text += " from " + *e.Old + " to " + *e.New
	}
	return e.Key[:cut], api.MarkLimits, text
}

// configText describes a change of a key of the runtime configuration.
func configText(e *api.ConfigLogEntry) string {
	switch {
	case e.New == nil:
		return e.Key + " removed, was " + shortValue(textOf(e.Old))
	case e.Old == nil:
		return e.Key + " set to " + shortValue(*e.New)
	}
	return e.Key + " from " + shortValue(*e.Old) + " to " + shortValue(*e.New)
}

// settingsText names the settings of a queue that an entry changes, empty if it is about none.
func settingsText(e *api.ConfigLogEntry) string {
	if names := control.ChangedSettings(e); len(names) > 0 && e.By == api.VerbQueueUpdate.Name {
		return strings.Join(names, ", ") + " changed"
	}
	return ""
}

// hooksOf returns the hooks that an entry about a queue changes.
func hooksOf(e *api.ConfigLogEntry) (hooks []string) {
	for _, name := range control.ChangedSettings(e) {
		if name == wire.HookOnEnqueue || name == wire.HookOnFailure {
			hooks = append(hooks, name)
		}
	}
	return hooks
}

// hookText describes a change of the hooks of a queue, empty if the entry is none.
func hookText(e *api.ConfigLogEntry) string {
	hooks := hooksOf(e)
	if len(hooks) == 0 || e.By == api.VerbQueueCreate.Name {
		return ""
	}
	var change struct {
		Rollback bool
		Reason   string
	}
	_ = json.Unmarshal([]byte(*e.New), &change) // ChangedSettings has read it
	text := strings.Join(hooks, " and ") + " set"
	if change.Rollback {
		text = hooks[0] + " rolled back"
	}
	if change.Reason != "" {
		text += ": " + change.Reason
	}
	return text
}

func textOf(s *string) string {
	if s == nil {
		return "none"
	}
	return *s
}
