package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
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
	at := func(value string) string {
		q := a.r.URL.Query()
		q.Set(name, value)
		if value == "" {
			q.Del(name)
		}
		return a.path() + "?" + q.Encode()
	}
	if a.query(name) != "" {
		c.First = at("")
	}
	if next != "" {
		c.Next = at(next)
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
	Guard *api.GuardStatus  // nil for a prefix, which has no calls
	In    map[string]string // limits as form fields
}

// Gate is the name of the gate in filters.
func (d throttleData) Gate() string { return "throttle:" + d.Key }

// Crumbs are the pages above it.
func (d throttleData) Crumbs() []crumb { return []crumb{{"Gates", "/gates"}} }

// Title is the key.
func (d throttleData) Title() string { return "Throttle " + d.Key }

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
	if v := d.Burst; v != nil {
		d.In["burst"] = strconv.FormatFloat(*v, 'f', -1, 64)
	}
	for name, v := range map[string]*int64{"concurrency": d.Concurrency, "limit": d.Limit} {
		if v != nil {
			d.In[name] = strconv.FormatInt(*v, 10)
		}
	}
	if v := d.WindowMs; v != nil {
		d.In["window"] = (time.Duration(*v) * time.Millisecond).String()
	}
	return d, err
}

// circuitData is the data of the page of a circuit.
type circuitData struct {
	api.CircuitInfo
	Guard *api.GuardStatus
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
	var err error
	d.Guard, err = guardOf(a, a.query("key"))
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

// throttleOf parses limits from a form. An empty field removes its limit, unless the form
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
	if text := form.Get("burst"); text != "" {
		burst, bad := strconv.ParseFloat(text, 64)
		if bad != nil {
			err = errors.Join(err, wrongField("burst", "%q is not a number", text))
		}
		req.Burst = &burst
	}
	req.Concurrency, req.Limit = whole("concurrency"), whole("limit")
	if window, bad := duration(form, "window"); bad != nil {
		err = errors.Join(err, bad)
	} else if window > 0 {
		req.WindowMs = &window
	}
	for _, name := range now.Names() {
		if form.Get("keep") == "" && !slices.Contains(req.Names(), name) {
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
