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
	only  func(*Web) bool
	live  bool     // its template "live" is sent again while the page is open
	query []string // query values that the data of a live page use
	role  Role     // role that it needs, at least [Viewer]
	data  func(*ask) (any, error)
}

// pages is the table of pages.
var pages = []page{
	{path: "/", name: "overview", title: "Overview", nav: true, live: true, query: []string{"find", "sort", "page"}, data: overview},
	{path: "/find", name: "find", title: "Find", nav: true, data: find},
	{path: "/queues/{queue}", name: "queue", live: true, data: queuePage},
	{path: "/queues/{queue}/messages", name: "messages", data: messages},
	{path: "/messages/{id}", name: "message", live: true, query: []string{"queue", "payload"}, data: message},
	{path: "/messages/{id}/edit", name: "edit", role: Operator, data: edit},
	{path: "/dead", name: "dead", title: "Dead letters", nav: true, live: true, query: []string{"page"}, data: deadList},
	{path: "/dead/{queue}", name: "messages", data: dead},
	{path: "/jobs", name: "jobs", title: "Jobs", nav: true, live: true, query: []string{"queue", "after"}, data: jobs},
	{path: "/jobs/new", name: "newjob", role: Operator, data: newJob},
	{path: "/jobs/{id}", name: "job", live: true, data: job},
	{path: "/schedules", name: "schedules", title: "Schedules", nav: true, live: true, query: []string{"queue", "after"}, data: schedules},
	{path: "/gates", name: "gates", title: "Gates", nav: true, live: true, query: []string{"prefix", "not_closed", "throttle", "circuit", "pause"}, data: gatesPage},
	{path: "/gates/throttle", name: "throttle", live: true, query: []string{"key"}, data: throttlePage},
	{path: "/gates/circuit", name: "circuit", live: true, query: []string{"key"}, data: circuitPage},
	{path: "/hooks", name: "hooks", title: "Hooks", nav: true, data: hookList},
	{path: "/hooks/{queue}", name: "hook", data: hookPage},
	{path: "/configuration", name: "configuration", title: "Configuration", nav: true, data: configuration},
	{path: "/cluster", name: "cluster", title: "Cluster", nav: true, only: func(w *Web) bool { return w.Clustered }, live: true, data: clusterPage},
	{path: "/events", name: "events", title: "Events", nav: true, live: true, query: []string{"find", "paused"}, data: eventsPage},
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
}

// query returns a value of the query, "" if there is none.
func (a *ask) query(name string) string { return a.r.URL.Query().Get(name) }

// verb calls an admin verb. It encodes the request and, unless reply is nil, decodes the
// reply. A refusal is a *wire.Error.
func (a *ask) verb(verb api.AnyVerb, tail string, request, reply any) error {
	return a.web.verb(a.principal.Name, verb, tail, request, reply)
}

func (w *Web) verb(client string, verb api.AnyVerb, tail string, request, reply any) error {
	var body []byte
	if request != nil {
		var err error
		if body, err = json.Marshal(request); err != nil {
			return err
		}
	}
	data, refused := w.Do(verb.String(), client, tail, body)
	switch {
	case refused != nil:
		return refused
	case reply == nil:
		return nil
	}
	return json.Unmarshal(data, reply)
}

// view is the data of templates.
type view struct {
	Title     string
	Principal principal
	Version   string
	Nav       []navItem
	Note      string // result of the last action
	Live      string // address of the live part; "": none
	Here      string // path and query of this page
	Now       time.Time
	Clustered bool
	Data      any
}

// Operator is for templates.
func (v *view) Operator() bool { return v.Principal.Role >= Operator }

type navItem struct {
	Title, Path string
	Here        bool
}

// page replies with a page.
func (w *Web) page(a *ask, p *page) {
	data, err := p.data(a)
	if err != nil {
		w.failed(a, err)
		return
	}
	v := &view{Title: titleOf(p, data), Data: data}
	if still, ok := data.(interface{ Still() bool }); p.live && (!ok || !still.Still()) {
		v.Live = w.base + "/live" + strings.TrimPrefix(a.r.URL.RequestURI(), w.base)
	}
	w.render(a, http.StatusOK, p.name, v)
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
	for i := range pages {
		p := &pages[i]
		if p.nav && a.principal.Role >= p.role && (p.only == nil || p.only(w)) {
			path := w.base + p.path
			v.Nav = append(v.Nav, navItem{Title: p.title, Path: path, Here: a.path() == path})
		}
	}
}

// render replies with the page of a template.
func (w *Web) render(a *ask, status int, name string, v *view) {
	w.fill(a, v)
	v.Note = w.takeNote(a)
	var out bytes.Buffer
	if err := w.looks.page(&out, name, v); err != nil {
		w.Log.Error("a page cannot be made", "page", name, "error", err)
		http.Error(a.rw, "This page cannot be made; the log says why.", http.StatusInternalServerError)
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
