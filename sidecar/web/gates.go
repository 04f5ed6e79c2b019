package web

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// gatesData is the data of the page of all gates: one page of each list, by key.
type gatesData struct {
	Prefix    string
	NotClosed bool
	Throttles cursor[api.ThrottleInfo]
	Circuits  cursor[api.CircuitInfo]
	Pauses    cursor[api.PauseInfo]
}

// cursor is one page of a list with a cursor.
type cursor[T any] struct {
	Rows  []T
	Total int
	First string // address of the first page; "": this is it
	Next  string // address of the next page; "": none
}

// cursorOf returns the addresses of a list whose cursor is a query value.
func cursorOf[T any](a *ask, name string, rows []T, total int, next string) cursor[T] {
	c := cursor[T]{Rows: rows, Total: total}
	if a.query(name) != "" {
		c.First = a.with(name, "")
	}
	if next != "" {
		c.Next = a.with(name, next)
	}
	return c
}

func gatesPage(a *ask) (any, error) {
	d := gatesData{Prefix: a.query("prefix"), NotClosed: a.query("not_closed") != ""}
	req := api.KeyListRequest{Prefix: d.Prefix, Limit: perPage, After: a.query("throttle")}
	var throttles api.ThrottleList
	if err := a.verb(api.VerbThrottleList, "", req, &throttles); err != nil {
		return nil, err
	}
	req.After = a.query("circuit")
	var circuits api.CircuitList
	if err := a.verb(api.VerbCircuitList, "", api.CircuitListRequest{KeyListRequest: req, NotClosed: d.NotClosed}, &circuits); err != nil {
		return nil, err
	}
	var pauses api.PauseList
	if err := a.verb(api.VerbPauseList, "", api.ListRequest{Limit: perPage, After: a.query("pause")}, &pauses); err != nil {
		return nil, err
	}
	d.Throttles = cursorOf(a, "throttle", throttles.Throttles, throttles.Total, throttles.Next)
	d.Circuits = cursorOf(a, "circuit", circuits.Circuits, circuits.Total, circuits.Next)
	d.Pauses = cursorOf(a, "pause", pauses.Pauses, pauses.Total, pauses.Next)
	return d, nil
}

// throttleData is the data of the page of a throttle key.
type throttleData struct {
	api.ThrottleInfo
	Guard   *api.GuardStatus  // nil for a prefix, which has no calls
	In      map[string]string // limits as form fields
	From    string            // the prefix whose limits are in force; empty: none
	SetBy   string            // who set the limits in force, in words
	SetOf   string            // whose limits Changes is about: the key, or From
	Changes []gateChange
	drains  time.Duration // 0: its backlog does not shrink
	Rates   chart         // per second
	Depths  chart         // messages in flight and waiting
	// PerSecond is what it admits and newly blocks a second now.
	PerSecond struct{ Admitted, Blocked float32 }
	Marks     marks
	Minutes   int
	Ranges    []timeRange
}

// gateChange is a change of the limits of a throttle key, the newest first.
type gateChange struct {
	Time, Action, Client string
	Fields               []fieldChange
	Back                 *api.LimitsChange // it is the latest one, and can be undone; nil: no
}

// shownGateChanges is how many log entries the changes of a gate are made of.
const shownGateChanges = 20

// gateChanges returns the last changes of the limits of a throttle key. Entries of one change
// have the same time.
func gateChanges(a *ask, key string) (list []gateChange, err error) {
	var log api.ConfigLog
	prefix := "throttle:" + key + ":"
	if err := a.verb(api.VerbConfigLog, "", api.KeyListRequest{Prefix: prefix, Limit: shownGateChanges}, &log); err != nil {
		return nil, err
	}
	for _, e := range log.Entries {
		name := e.Key[min(len(prefix), len(e.Key)):]
		if !new(api.ThrottleLimits).Put(name, nil) {
			continue // of a longer key
		}
		if n := len(list); n == 0 || list[n-1].Time != e.Time || list[n-1].Client != e.Client {
			list = append(list, gateChange{Time: e.Time, Action: e.By, Client: e.Client})
		}
		c, f := &list[len(list)-1], fieldChange{Name: name, HadOld: e.Old != nil, HasNew: e.New != nil}
		if f.HasNew {
			f.New = *e.New
		}
		if f.HadOld {
			f.Old = *e.Old
		}
		c.Fields = append(c.Fields, f)
	}
	return list, nil
}

// Gate is the name of the gate in filters.
func (d throttleData) Gate() string { return "throttle:" + d.Key }

// Crumbs are the pages above it.
func (d throttleData) Crumbs() []crumb { return []crumb{{"Gates", "/gates"}} }

// Next is when the throttle admits messages again, unless it is at once.
func (d throttleData) Next() string {
	return later(d.AdmitsAt)
}

// later returns a time unless it is over, or less than a second ahead.
func later(text string) string {
	if at, err := time.Parse(time.RFC3339Nano, text); err != nil || time.Until(at) < time.Second {
		return ""
	}
	return text
}

// Title is the key.
func (d throttleData) Title() string {
	if d.Prefix() {
		return "Throttle keys " + d.Key
	}
	return "Throttle " + d.Key
}

func throttlePage(a *ask) (any, error) {
	var d throttleData
	tail, key := api.KeyTail(a.query("key"))
	if err := a.verb(api.VerbThrottleShow, tail, api.GateKeyRequest{Key: key}, &d.ThrottleInfo); err != nil {
		return nil, err
	}
	var err error
	d.Guard, err = guardOf(a, a.query("key"))
	d.In = map[string]string{}
	if l := d.ThrottleLimits; l.Rate != nil {
		d.In["rate"] = string(*l.Rate)
	}
	if rate := a.query("rate"); d.In["rate"] == "" {
		d.In["rate"] = rate // that the page of a circuit has found
	}
	for name, v := range map[string]*float64{"burst": d.Burst, "budget": d.Budget} {
		if v != nil {
			d.In[name] = strconv.FormatFloat(*v, 'f', -1, 64)
		}
	}
	for name, v := range map[string]*string{"period": d.Period, "zone": d.Zone, "on_empty": d.OnEmpty} {
		if v != nil {
			d.In[name] = *v
		}
	}
	if v := d.WarnAt; v != nil {
		d.In["warn_at"] = api.PartsText(*v)
	}
	for name, v := range map[string]*int64{"concurrency": d.Concurrency, "limit": d.Limit} {
		if v != nil {
			d.In[name] = strconv.FormatInt(*v, 10)
		}
	}
	if v := d.WindowMs; v != nil {
		d.In["window"] = (time.Duration(*v) * time.Millisecond).String()
	}
	if err != nil {
		return d, err
	}
	d.SetOf, d.SetBy = d.Key, api.SetByText(d.Source)
	if newest := d.Sources.Newest(); api.AuthorText(newest.Client, newest.Owner) != "" {
		d.SetBy = newest.Text()
	}
	if from, ok := strings.CutPrefix(d.Source, "prefix "); ok {
		d.From = from[:max(strings.LastIndex(from, ", "), 0)]
		d.SetOf = d.From
		d.SetBy = strings.TrimSuffix(d.SetBy, " for "+d.From)
	}
	if d.Changes, err = gateChanges(a, d.SetOf); err != nil {
		return d, err
	}
	if c := d.Change; c != nil && len(d.Changes) > 0 && c.At == d.Changes[0].Time {
		d.Changes[0].Back = c
	}
	if d.Prefix() {
		return d, nil
	}
	return d, d.charts(a)
}

// Prefix reports whether the key is a prefix, whose keys have the limits each for itself.
func (d throttleData) Prefix() bool { return api.IsThrottlePrefix(d.Key) }

// Drains says how long its backlog needs until it is empty; "": it does not shrink, or that is not known.
func (d throttleData) Drains() string {
	if d.drains == 0 {
		return ""
	}
	return wire.Span(d.drains.Round(time.Second))
}

// charts adds what the history knows of the throttle.
func (d *throttleData) charts(a *ask) (err error) {
	if _, err := a.web.history.fresh(a.web); err != nil {
		return err
	}
	d.Minutes, d.Ranges = timeRanges(a)
	if d.Marks, err = marksOf(a, api.MarksRequest{Throttle: d.Key}, time.Duration(d.Minutes)*time.Minute); err != nil {
		return err
	}
	now := time.Now()
	points := a.web.history.gate(d.Key, now, d.Minutes)
	d.PerSecond.Admitted, d.PerSecond.Blocked = a.web.history.gateRates(now, &d.ThrottleInfo)
	d.drains = drainTime(points, now, d.WaitingMessages)
	d.Rates, d.Depths = chartOf(points, d.Marks, gateRates...), chartOf(points, d.Marks, gateDepths...)
	return nil
}

// circuitData is the data of the page of a circuit.
type circuitData struct {
	api.CircuitInfo
	Guard  *api.GuardStatus
	Band   bandPicture
	Marks  marks
	Failed *failedMessage // nil: no waiting message has failed
}

// failedMessage is a message that waits at a circuit after a failed attempt.
type failedMessage struct {
	api.MessageInfo
	Last      api.AttemptInfo // that ended with an error
	Throttles []throttleOfMessage
}

// throttleOfMessage is a throttle key that a message has.
type throttleOfMessage struct {
	Key, Limits string
	HasRate     bool // its rate is the one that the last error names
}

// failedMessageOf returns a message with an error among those that wait at a circuit, or the one that
// failed last. After a restart it stands for the last failure, which the circuit keeps in memory.
func failedMessageOf(a *ask, c *api.CircuitInfo) (*failedMessage, error) {
	queue, id := "", ""
	if c.LastFailure != nil {
		id = c.LastFailure.ID
	}
	if len(c.WaitingQueues) > 0 {
		var found api.PeekReply
		req := api.PeekRequest{Filter: &api.Filter{Gate: "circuit:" + c.Key, AttemptsMin: 1}, Limit: 1}
		if err := a.verb(api.VerbPeek, c.WaitingQueues[0].Queue, req, &found); err != nil {
			return nil, err
		}
		if len(found.Messages) > 0 {
			queue, id = c.WaitingQueues[0].Queue, found.Messages[0].ID
		}
	}
	if id == "" {
		return nil, nil
	}
	m := &failedMessage{}
	if err := a.verb(api.VerbMessageShow, "", showRequest(queue, id, 0), &m.MessageInfo); err != nil {
		if refusedWith(err, wire.CodeMessageNotFound) {
			return nil, nil // it has gone meanwhile
		}
		return nil, err
	}
	for i := range m.History {
		if h := &m.History[i]; h.Error != "" || h.ErrorCode != "" {
			m.Last = *h
		}
	}
	if m.Last.At == "" && c.LastFailure == nil {
		return nil, nil
	}
	for i := range m.Gates {
		if key, ok := strings.CutPrefix(m.Gates[i].Gate, "throttle:"); ok {
			m.Throttles = append(m.Throttles, throttleOfMessage{Key: key, Limits: cmp.Or(m.Gates[i].Limits, "none")})
		}
	}
	return m, nil
}

// RateLimited reports whether the destination asks for pauses, so that a throttle helps.
func (d circuitData) RateLimited() bool {
	return d.Cause == api.CauseRetryAfter || d.Openings != nil && d.Openings.Cause == api.CauseRetryAfter
}

// namedRate matches a rate in an error, such as "20 messages per second".
var namedRate = regexp.MustCompile(`\b(\d{1,6}(?:\.\d{1,3})?)(?: [a-z]+){0,2} ?(?:per second|a second|/ ?s\b)`)

// Rate is the rate that the last error names; "": none.
func (d circuitData) Rate() string {
	text := ""
	if d.LastFailure != nil {
		text = d.LastFailure.Error
	} else if d.Failed != nil {
		text = d.Failed.Last.Error
	}
	if found := namedRate.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return ""
}

// Gate is the name of the gate in filters.
func (d circuitData) Gate() string { return "circuit:" + d.Key }

// Crumbs are the pages above it.
func (d circuitData) Crumbs() []crumb { return []crumb{{"Gates", "/gates"}} }

// Title is the key.
func (d circuitData) Title() string { return "Circuit " + d.Key }

func circuitPage(a *ask) (any, error) {
	var d circuitData
	tail, key := api.KeyTail(a.query("key"))
	if err := a.verb(api.VerbCircuitShow, tail, api.GateKeyRequest{Key: key}, &d.CircuitInfo); err != nil {
		return nil, err
	}
	now := time.Now()
	d.Band = bandOf(d.History, d.State, now)
	var err error
	if d.Marks, err = marksOf(a, api.MarksRequest{Circuit: d.Key}, bandTime); err != nil {
		return nil, err
	}
	d.Band.Marks = d.Marks.Until(now, d.Band.Minutes)
	if d.Guard, err = guardOf(a, a.query("key")); err != nil {
		return d, err
	}
	if d.Failed, err = failedMessageOf(a, &d.CircuitInfo); d.Failed == nil {
		return d, err
	}
	for i := range d.Failed.Throttles {
		t := &d.Failed.Throttles[i]
		t.HasRate = d.Rate() != "" && strings.HasPrefix(t.Limits, d.Rate()+"/s")
	}
	return d, err
}

// guardOf returns the guard's state of a key. It takes nothing.
func guardOf(a *ask, text string) (*api.GuardStatus, error) {
	if text == "" || text[len(text)-1] == '*' {
		return nil, nil
	}
	tail, key := api.KeyTail(text)
	body, err := json.Marshal(api.GateKeyRequest{Key: key})
	if err != nil {
		return nil, err
	}
	data, refused := a.web.Guard(api.GuardState, tail, body)
	if refused != nil {
		return nil, refused
	}
	var status api.GuardStatus
	return &status, json.Unmarshal(data, &status)
}

// throttleOf parses limits from a form. A field that is there and empty removes its limit, unless the form
// has keep.
func throttleOf(form url.Values, now api.ThrottleLimits) (req api.ThrottleSetRequest, err error) {
	whole := func(name string) *int64 {
		text := form.Get(name)
		if text == "" {
			return nil
		}
		n, bad := strconv.ParseInt(text, 10, 64)
		if bad != nil {
			err = errors.Join(err, wrongField(name, "%q is not a whole number", text))
		}
		return &n
	}
	if text := form.Get("rate"); text != "" {
		rate := wire.Rate(text)
		req.Rate = &rate
	}
	number := func(name string) *float64 {
		text := form.Get(name)
		if text == "" {
			return nil
		}
		n, bad := strconv.ParseFloat(text, 64)
		if bad != nil {
			err = errors.Join(err, wrongField(name, "%q is not a number", text))
		}
		return &n
	}
	req.Burst, req.Budget = number("burst"), number("budget")
	req.Concurrency, req.Limit = whole("concurrency"), whole("limit")
	if req.Budget != nil || now.Budget == nil { // otherwise the budget is removed, and the others with it
		for name, into := range map[string]**string{"period": &req.Period, "zone": &req.Zone, "on_empty": &req.OnEmpty} {
			if text := form.Get(name); text != "" {
				*into = &text
			}
		}
		if text := form.Get("warn_at"); text != "" {
			parts, bad := api.ParseParts(text)
			if bad != nil {
				err = errors.Join(err, wrongField("warn_at", "%s", bad))
			}
			req.WarnAt = &parts
		}
	}
	if window, bad := duration(form, "window"); bad != nil {
		err = errors.Join(err, bad)
	} else if window > 0 {
		req.WindowMs = &window
	}
	for _, name := range now.Names() {
		if form.Get("keep") == "" && form.Has(strings.TrimSuffix(name, "_ms")) && !slices.Contains(req.Names(), name) {
			req.Unset = append(req.Unset, name)
		}
	}
	if err == nil {
		req.ForMs, err = duration(form, "for")
	}
	return req, err
}

func throttleSet(a *ask, form url.Values) (string, error) {
	tail, key := api.KeyTail(form.Get("key"))
	var now api.ThrottleInfo
	err := a.verb(api.VerbThrottleShow, tail, api.GateKeyRequest{Key: key}, &now)
	if err != nil && !refusedWith(err, wire.CodeThrottleNotFound) {
		return "", err
	}
	if !api.SetForKey(now.Source) {
		now.ThrottleLimits = api.ThrottleLimits{} // limits of a prefix cannot be removed here
	}
	req, err := throttleOf(form, now.ThrottleLimits)
	if err != nil {
		return "", err
	}
	req.Key = key
	note := "The limits of " + form.Get("key") + " are set."
	if req.ForMs > 0 {
		note = fmt.Sprintf("The limits of %s are set for %s.", form.Get("key"), form.Get("for"))
	}
	return note, a.verb(api.VerbThrottleSet, tail, req, nil)
}

// throttleBack undoes the latest change of the limits of a throttle key or prefix.
func throttleBack(a *ask, form url.Values) (string, error) {
	tail, key := api.KeyTail(form.Get("key"))
	var now api.ThrottleInfo
	if err := a.verb(api.VerbThrottleShow, tail, api.GateKeyRequest{Key: key}, &now); err != nil {
		return "", err
	}
	if now.Change == nil || now.Change.At != form.Get("at") || now.Change.Key != form.Get("key") {
		return "", fmt.Errorf("the limits of %s have been changed again since; now they are: %s", form.Get("key"), now.ThrottleLimits.Text())
	}
	req := now.Change.Back()
	req.Key = key
	return fmt.Sprintf("The limits of %s are set back to %s.", now.Change.Key, now.Change.Old.Text()), a.verb(api.VerbThrottleSet, tail, req, nil)
}

// asksThrottleBack says what throttleBack changes, and for whom.
func asksThrottleBack(form url.Values) string {
	text := about("Set the limits of %s from %s back to %s?", "key", "new", "old")(form)
	if key := form.Get("key"); api.IsThrottlePrefix(key) {
		text += " This changes all throttle keys that begin with " + strings.TrimSuffix(key, "*") + " and have no limits of their own."
	}
	return text
}

// backToGates is the next page after a gate may have gone.
func backToGates(url.Values) string { return "/gates" }

// aboutGate returns an action that calls a verb without fields for a gate.
func aboutGate(verb api.AnyVerb, note string) func(*ask, url.Values) (string, error) {
	return func(a *ask, form url.Values) (string, error) {
		tail, key := api.KeyTail(form.Get("key"))
		return fmt.Sprintf(note, form.Get("key")), a.verb(verb, tail, api.GateKeyRequest{Key: key}, nil)
	}
}

func circuitOpen(a *ask, form url.Values) (string, error) {
	tail, key := api.KeyTail(form.Get("key"))
	req := api.CircuitOpenRequest{Key: key}
	var err error
	if req.ForMs, err = duration(form, "for"); err != nil {
		return "", err
	}
	note := "The circuit " + form.Get("key") + " is open until an operator closes it."
	if req.ForMs > 0 {
		note = fmt.Sprintf("The circuit %s is open for %s.", form.Get("key"), form.Get("for"))
	}
	return note, a.verb(api.VerbCircuitOpen, tail, req, nil)
}
