package web

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// page is one page: a row of the table.
type page struct {
	path  string // after the base path, as http.ServeMux has it
	name  string // of its template in templates/, without .html
	title string // data with a method Title override it
	nav   bool   // in the navigation
	tab   string // its title among the tabs of its group
	group string // pages with the same group are the tabs of each other
	only  func(*Web) bool
	live  bool     // its template "live" is sent again while the page is open, with what is wrong with its queue
	query []string // query values that the data of the live part use
	role  Role     // role that it needs, at least [Viewer]
	data  func(*ask) (any, error)
	part  func(*ask) (any, error) // the data of the live part; nil: data
}

// Groups of tabs.
const (
	ofQueue    = "queue"
	ofActivity = "activity"
	ofSettings = "settings"
)

// pages is the table of pages.
var pages = []page{
	{path: "/", name: "overview", title: "Overview", nav: true, live: true, data: overview},
	{path: "/queues", name: "queues", title: "Queues", nav: true, live: true, query: []string{"find", "sort", "page"}, data: queueList},
	{path: "/queues/{queue}", name: "queue", group: ofQueue, tab: "Overview", live: true, data: queuePage},
	{path: "/queues/{queue}/tenants", name: "tenants", group: ofQueue, tab: "Tenants", live: true, query: []string{"sort", "minutes"}, data: tenantsPage},
	{path: "/queues/{queue}/messages", name: "messages", group: ofQueue, tab: "Messages", live: true, data: messages, part: nothing},
	{path: "/queues/{queue}/dead", name: "messages", group: ofQueue, tab: "Dead letters", live: true, query: []string{"minutes", "error_group"}, data: dead, part: deadPart},
	{path: "/queues/{queue}/jobs", name: "jobs", group: ofQueue, tab: "Jobs", live: true, query: []string{"after"}, data: jobs},
	{path: "/queues/{queue}/schedules", name: "schedules", group: ofQueue, tab: "Schedules", live: true, query: []string{"after"}, data: schedules},
	{path: "/queues/{queue}/hooks", name: "hook", group: ofQueue, tab: "Hooks", live: true, data: hookPage, part: hookPart},
	{path: "/queues/{queue}/settings", name: "queuesettings", group: ofQueue, tab: "Settings", live: true, data: queueSettings, part: nothing},
	{path: "/messages/{id}", name: "message", live: true, query: []string{"queue", "payload"}, data: message},
	{path: "/messages/{id}/edit", name: "edit", role: Operator, data: edit},
	{path: "/dead", name: "dead", title: "Dead letters", nav: true, live: true, query: []string{"page", "minutes"}, data: deadList},
	{path: "/gates", name: "gates", title: "Gates", nav: true, live: true, query: []string{"prefix", "not_closed", "throttle", "circuit", "pause"}, data: gatesPage},
	{path: "/gates/throttle", name: "throttle", live: true, query: []string{"key", "minutes"}, data: throttlePage},
	{path: "/gates/circuit", name: "circuit", live: true, query: []string{"key"}, data: circuitPage},
	{path: "/schedules", name: "schedules", title: "Schedules", nav: true, live: true, query: []string{"after"}, data: schedules},
	{path: "/jobs", name: "jobs", title: "Jobs", nav: true, live: true, query: []string{"after"}, data: jobs},
	{path: "/jobs/new", name: "newjob", role: Operator, data: newJob},
	{path: "/jobs/{id}", name: "job", live: true, data: job},
	{path: "/activity", name: "events", title: "Activity", nav: true, group: ofActivity, tab: "Events", live: true, query: []string{"find", "paused"}, data: eventsPage},
	{path: "/activity/audit", name: "audit", title: "Activity", group: ofActivity, tab: "Audit log", data: auditPage},
	{path: "/cluster", name: "cluster", title: "Cluster", nav: true, only: func(w *Web) bool { return w.Clustered }, live: true, data: clusterPage},
	{path: "/settings", name: "configuration", title: "Settings", nav: true, group: ofSettings, tab: "Configuration", data: configuration},
	{path: "/settings/hooks", name: "hooks", title: "Settings", group: ofSettings, tab: "Hooks", live: true, query: []string{"page"}, data: hookList},
	{path: "/find", name: "find", title: "Search", data: find},
	{path: "/styleguide", name: "styleguide", title: "Style guide", only: func(w *Web) bool { return w.HTTP.StyleGuide }, data: styleGuide},
}

// moved are the paths that pages had before, and their paths now.
var moved = []struct{ from, to string }{
	{"/configuration", "/settings"},
	{"/events", "/activity"},
	{"/hooks", "/settings/hooks"},
	{"/hooks/{queue}", "/queues/{queue}/hooks"},
	{"/dead/{queue}", "/queues/{queue}/dead"},
}

// redirect sends a request for an old path to the new one.
func (w *Web) redirect(a *ask, to string) {
	to = w.base + strings.ReplaceAll(to, "{queue}", url.PathEscape(a.r.PathValue("queue")))
	if a.r.URL.RawQuery != "" {
		to += "?" + a.r.URL.RawQuery
	}
	http.Redirect(a.rw, a.r, to, http.StatusMovedPermanently)
}

// used returns the URL with the query values that the page uses, in canonical form.
func (p *page) used(u *url.URL) *url.URL {
	asked, kept := u.Query(), url.Values{}
	for _, name := range p.query {
		if value := asked.Get(name); value != "" {
			kept.Set(name, value)
		}
	}
	short := *u
	short.RawQuery, short.ForceQuery = kept.Encode(), false
	return &short
}

// ask is one request.
type ask struct {
	web       *Web
	principal principal
	rw        http.ResponseWriter // not to be used by data of live pages
	r         *http.Request
	warnings  []string // of the verbs of an action
}

// query returns a value of the query, "" if there is none.
func (a *ask) query(name string) string { return a.r.URL.Query().Get(name) }

// verb calls an admin verb. It encodes the request and, unless reply is nil, decodes the
// reply. A refusal is a *wire.Error.
func (a *ask) verb(verb api.AnyVerb, tail string, request, reply any) error {
	data, err := a.web.verbData(api.Sender{Client: a.principal.Name, Force: a.r.PostForm.Get("force") == "yes"}, verb, tail, request)
	if err != nil {
		return err
	}
	if a.r.Method == http.MethodPost {
		var warned struct{ Warnings []string }
		_ = json.Unmarshal(data, &warned) // not every reply is an object
		a.warnings = append(a.warnings, warned.Warnings...)
	}
	if reply == nil {
		return nil
	}
	return json.Unmarshal(data, reply)
}

func (w *Web) verb(by api.Sender, verb api.AnyVerb, tail string, request, reply any) error {
	data, err := w.verbData(by, verb, tail, request)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, reply)
}

// verbData is verb with the encoded reply.
func (w *Web) verbData(by api.Sender, verb api.AnyVerb, tail string, request any) ([]byte, error) {
	var body []byte
	if request != nil {
		var err error
		if body, err = json.Marshal(request); err != nil {
			return nil, err
		}
	}
	data, refused := w.Do(by, verb.String(), tail, body)
	if refused != nil {
		return nil, refused
	}
	return data, nil
}

// view is the data of templates.
type view struct {
	Title     string
	Principal principal
	Version   string
	Nav       []navItem
	Tabs      []navItem      // of the group of the page
	Crumbs    []crumb        // the pages above this one
	Queue     string         // the queue of a tab of a queue
	Paused    bool           // it is paused
	Attention *api.Attention // what is wrong with it; nil: the page itself says so
	Tab       string         // title of the tab
	Note      string         // result of the last action
	Live      string         // address of the live part; "": none
	Here      string         // path and query of this page
	Now       time.Time
	Clustered bool
	Mistake   *mistake // of the form that has led back to this page; nil: none
	Data      any
}

// Operator is for templates.
func (v *view) Operator() bool { return v.Principal.Role >= Operator }

type navItem struct {
	Title, Path string
	Here        bool // this page, or one below it
	Exact       bool // this page
}

// Icon is the name of its drawing.
func (n navItem) Icon() string { return strings.ToLower(n.Title) }

// crumb is a page above another one.
type crumb struct{ Title, Path string }

// page replies with a page.
func (w *Web) page(a *ask, p *page) {
	data, err := p.data(a)
	if err != nil {
		w.failed(a, err)
		return
	}
	v := w.view(a, p, data)
	if v.Queue != "" {
		var why api.ExplainQueue
		if err := a.verb(api.VerbExplain, "", api.ExplainRequest{Kind: api.ExplainKindQueue, Queue: v.Queue}, &why); err != nil {
			w.failed(a, err)
			return
		}
		v.Paused = why.Paused != ""
	}
	if err := v.attend(a); err != nil {
		w.failed(a, err)
		return
	}
	if still, ok := data.(interface{ Still() bool }); p.live && (!ok || !still.Still()) {
		v.Live = w.base + "/live" + strings.TrimPrefix(a.r.URL.RequestURI(), w.base)
	}
	w.render(a, http.StatusOK, p.name, v)
}

// nothing is the data of a live part that only has what is wrong.
func nothing(*ask) (any, error) { return nil, nil }

// attend adds what is wrong with the queue, unless the data say it.
func (v *view) attend(a *ask) error {
	if _, says := v.Data.(queueData); says || v.Queue == "" {
		return nil
	}
	found, err := attentionOf(a, v.Queue)
	v.Attention = &found
	return err
}

// view returns the view of a page, with its tabs and the pages above it.
func (w *Web) view(a *ask, p *page, data any) *view {
	v := &view{Title: titleOf(p, data), Data: data}
	if p.group == ofQueue {
		v.Queue = a.r.PathValue("queue")
		v.Title = v.Queue
	}
	v.Tabs, v.Tab = w.tabs(a, p), p.tab
	if above, ok := data.(interface{ Crumbs() []crumb }); ok {
		v.Crumbs = above.Crumbs()
	} else if v.Queue != "" {
		v.Crumbs = crumbsOf(v.Queue)[:1]
	}
	return v
}

// crumbsOf returns the pages above a page of a queue.
func crumbsOf(queue string, more ...crumb) []crumb {
	return append([]crumb{{"Queues", "/queues"}, {queue, queuePath(queue, "")}}, more...)
}

// queuePath returns the path of a tab of a queue, without the base path.
func queuePath(queue, tab string) string { return "/queues/" + url.PathEscape(queue) + tab }

// tabs returns the tabs of the group of a page.
func (w *Web) tabs(a *ask, p *page) (list []navItem) {
	if p.group == "" {
		return nil
	}
	queue := a.r.PathValue("queue")
	for i := range pages {
		q := &pages[i]
		if q.group != p.group || p.group == ofQueue && !hasTab(queue, q.tab) {
			continue
		}
		path := strings.ReplaceAll(q.path, "{queue}", url.PathEscape(queue))
		list = append(list, navItem{Title: q.tab, Path: w.base + path, Here: q == p, Exact: q == p})
	}
	return list
}

// hasTab reports whether a queue has a tab. The messages of a dead letter queue are on the
// tab of the queue that they come from.
func hasTab(queue, tab string) bool {
	if !wire.IsDLQ(queue) {
		return true
	}
	return tab != "Dead letters" && tab != "Hooks" && tab != "Schedules"
}

func titleOf(p *page, data any) string {
	if t, ok := data.(interface{ Title() string }); ok {
		return t.Title()
	}
	return p.title
}

// fill adds the fields that all pages have.
func (w *Web) fill(a *ask, v *view) {
	v.Principal, v.Version, v.Now, v.Clustered = a.principal, w.Version, time.Now(), w.Clustered
	v.Here = a.here()
	if a.principal.Role == Nobody {
		return
	}
	here := strings.TrimPrefix(a.path(), w.base)
	if strings.HasPrefix(here, "/messages/") {
		here = "/queues/" // messages belong to queues
	}
	for i := range pages {
		p := &pages[i]
		if p.nav && a.principal.Role >= p.role && (p.only == nil || p.only(w)) {
			v.Nav = append(v.Nav, navItem{Title: p.title, Path: w.base + p.path, Here: here == p.path || p.path != "/" && strings.HasPrefix(here, p.path+"/"), Exact: here == p.path})
		}
	}
}

// render replies with the page of a template.
func (w *Web) render(a *ask, status int, name string, v *view) {
	w.fill(a, v)
	v.Note = w.takeNote(a)
	if m := mistakeOf(a.r); m != nil && status < http.StatusBadRequest {
		v.Mistake, status = m, m.status
	}
	var out bytes.Buffer
	if err := w.looks.page(&out, name, v); err != nil {
		w.Log.Error("a page cannot be rendered", "page", name, "error", err)
		http.Error(a.rw, "This page cannot be rendered. The log has the error.", http.StatusInternalServerError)
		return
	}
	a.rw.Header().Set("Content-Type", "text/html; charset=utf-8")
	a.rw.WriteHeader(status)
	_, _ = a.rw.Write(out.Bytes()) // fails only if the browser is gone
}

// A note shows the result of an action on the next page. It travels as a cookie, which no
// other site can set.
const (
	noteName = "fila_note"
	maxNote  = 1000 // bytes
)

func (w *Web) setNote(a *ask, text string) {
	text = strings.ToValidUTF8(text[:min(len(text), maxNote)], "")
	http.SetCookie(a.rw, &http.Cookie{
		Name: noteName, Value: base64.RawURLEncoding.EncodeToString([]byte(text)), Path: w.base + "/",
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: w.access.encrypted(a.r), MaxAge: 60,
	})
}

func (w *Web) takeNote(a *ask) string {
	cookie, err := a.r.Cookie(noteName)
	if err != nil || a.principal.Role == Nobody {
		return ""
	}
	http.SetCookie(a.rw, &http.Cookie{Name: noteName, Path: w.base + "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: -1})
	text, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil || len(text) > maxNote {
		return ""
	}
	return string(text)
}

// href returns the address of a page from path arguments and query pairs.
func href(base, path string, query ...string) string {
	var values []string
	for i := 0; i+1 < len(query); i += 2 {
		if query[i+1] != "" {
			values = append(values, query[i]+"="+url.QueryEscape(query[i+1]))
		}
	}
	if len(values) > 0 {
		path += "?" + strings.Join(values, "&")
	}
	return base + path
}

// refusedWith reports whether err is a refusal with this error number.
func refusedWith(err error, code int) bool {
	var refused *wire.Error
	return errors.As(err, &refused) && refused.ErrCode == code
}
