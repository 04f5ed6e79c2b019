package web

import (
	"bytes"
	"net/http"
	"slices"
	"strings"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// findData are the results: a message by its id, queues by a part of their names, and
// queues in which a fairness key has messages.
type findData struct {
	Text    string
	Message *api.MessageInfo
	Queues  []string
	Exact   string // the queue of this name; "": none
	More    int    // queues that are not shown
	Keys    []api.ExplainKey
	Gates   []string  // as in filters: throttle:KEY and circuit:KEY
	Places  []navItem // pages and actions
	Asked   int       // queues searched for the key
	Of      int
}

// Bounds of a search.
const (
	maxFoundQueues = 50
	maxKeyQueues   = 200 // queues that are searched for a key, the ones with the most messages
	maxDialog      = 20  // of them while a user types
	maxFoundGates  = 10  // of each kind
)

func find(a *ask) (any, error) { return a.find(maxKeyQueues) }

// find searches for the text of the query, for a key in at most this many queues.
func (a *ask) find(keyQueues int) (findData, error) {
	d := findData{Text: strings.TrimSpace(a.query("text"))}
	if d.Text == "" {
		return d, nil
	}
	if _, ok := wire.ParseID(d.Text); ok {
		var m api.MessageInfo
		switch err := a.verb(api.VerbMessageShow, "", showRequest("", d.Text, 0), &m); {
		case err == nil:
			d.Message = &m
		case !refusedWith(err, wire.CodeMessageNotFound):
			return d, err
		}
	}
	s, err := a.web.history.fresh(a.web)
	if err != nil {
		return d, err
	}
	text := strings.ToLower(d.Text)
	dead := strings.Contains(text, wire.DLQSuffix) // otherwise a queue is enough for both
	d.Places = a.findPlaces(text)
	if err := a.findGates(&d); err != nil {
		return d, err
	}
	for i := range s.queues {
		name := s.queues[i].Name
		if name == d.Text {
			d.Exact = name
		}
		switch {
		case !strings.Contains(strings.ToLower(name), text) || wire.IsDLQ(name) && !dead:
		case len(d.Queues) == maxFoundQueues:
			d.More++
		default:
			d.Queues = append(d.Queues, name)
		}
	}
	if wire.CheckNamedKey(d.Text) != nil {
		return d, nil
	}
	full := s.pick("depth", func(q *api.QueueSummary) bool { return depthOf(q) > 0 })
	d.Of = len(full)
	for _, q := range full[:min(len(full), keyQueues)] {
		var k api.ExplainKey
		d.Asked++
		err := a.verb(api.VerbExplain, "", api.ExplainRequest{Kind: "key", Queue: q.Name, Key: d.Text}, &k)
		switch {
		case err == nil:
			d.Keys = append(d.Keys, k)
		case refusedWith(err, wire.CodeKeyNotFound), refusedWith(err, wire.CodeQueueNotFound):
		default:
			return d, err
		}
	}
	return d, nil
}

// search replies with the results for the dialog of the search, as HTML without a page
// around it.
func (w *Web) search(a *ask) {
	d, err := a.find(maxDialog)
	if err != nil {
		http.Error(a.rw, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if d.Text == "" {
		d.Places = a.findPlaces("")
	}
	v := &view{Data: d}
	w.fill(a, v)
	var out bytes.Buffer
	if err := part(&out, w.looks.pages, "find", "results", v); err != nil {
		w.Log.Error("a page cannot be rendered", "page", "search", "error", err)
		http.Error(a.rw, "The results cannot be rendered. The log has the error.", http.StatusInternalServerError)
		return
	}
	a.rw.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = a.rw.Write(out.Bytes()) // fails only if the browser is gone
}

// findGates adds the throttles and circuits whose key begins with the text.
func (a *ask) findGates(d *findData) error {
	req := api.KeyListRequest{Prefix: d.Text, Limit: maxFoundGates}
	var throttles api.ThrottleList
	if err := a.verb(api.VerbThrottleList, "", req, &throttles); err != nil {
		return err
	}
	for i := range throttles.Throttles {
		d.Gates = append(d.Gates, "throttle:"+throttles.Throttles[i].Key)
	}
	var circuits api.CircuitList
	if err := a.verb(api.VerbCircuitList, "", api.CircuitListRequest{KeyListRequest: req}, &circuits); err != nil {
		return err
	}
	for i := range circuits.Circuits {
		d.Gates = append(d.Gates, "circuit:"+circuits.Circuits[i].Key)
	}
	return nil
}

// tasks are actions that the search finds, with the page and the form that has them.
var tasks = []navItem{
	{Title: "Add a schedule", Path: "/schedules#add"},
	{Title: "Set limits of a throttle", Path: "/gates#set"},
	{Title: "Open a circuit", Path: "/gates#open"},
	{Title: "Set a configuration key", Path: "/settings#set"},
	{Title: "Reload the configuration files", Path: "/settings#reload"},
}

// placesOf returns the pages that the search finds by their title.
func placesOf(w *Web) (list []navItem) {
	for i := range pages {
		p := &pages[i]
		switch {
		case p.only != nil && !p.only(w):
		case p.nav:
			list = append(list, navItem{Title: p.title, Path: p.path})
		case p.group == ofActivity || p.group == ofSettings:
			list = append(list, navItem{Title: p.title + ": " + p.tab, Path: p.path})
		}
	}
	return list
}

// findPlaces returns the pages and actions whose title contains a text.
func (a *ask) findPlaces(text string) (list []navItem) {
	all := a.web.places
	if a.principal.Role >= Operator {
		all = slices.Concat(all, tasks)
	}
	for _, p := range all {
		if strings.Contains(strings.ToLower(p.Title), text) {
			list = append(list, navItem{Title: p.Title, Path: a.web.base + p.Path})
		}
	}
	return list
}
