package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// assets are scripts, styles and licences. Third-party files are unmodified releases.
//
//go:embed assets
var assets embed.FS

// Options of a [Web].
type Options struct {
	Log     *slog.Logger
	HTTP    config.HTTPConfig
	Version string
	// Serving returns why verbs are not available; nil: they are.
	Serving func() error
	// Do calls an admin verb with the tail of its subject, and returns the JSON reply. It is
	// called from any goroutine while Serving returns nil.
	Do func(by api.Sender, verb, tail string, body []byte) ([]byte, *wire.Error)
	// Queues is queue-list without encoding. Its result is immutable.
	Queues func(api.QueueListRequest) (api.QueueList, *wire.Error)
	// Guard is Do for read-only verbs of the guard.
	Guard func(verb, tail string, body []byte) ([]byte, *wire.Error)
	// Here returns the state of this node.
	Here func() Node
	// Events calls each with every event (JSON) until stop is called, or refused with the
	// reason when NATS ends the subscription. Both must return fast.
	Events func(each func(event []byte), refused func(error)) (stop func(), err error)
	// Needs is the subject that Events subscribes to.
	Needs string
	// Clustered means that this fila is a node of a cluster.
	Clustered bool
}

// Node is the state of one fila.
type Node struct {
	State     string // as in /readyz
	Ready     bool
	DiskKnown bool
	DiskLow   bool
	DiskFree  int64 // bytes
	Store     int64 // bytes of its files
}

// Web serves the pages. It is an [http.Handler].
type Web struct {
	Options
	base    string // prefix of all paths, without a final slash
	access  *access
	handler http.Handler
	pages   http.Handler // handler without the check of origins
	looks   looks
	history history
	events  eventLog
	live    *live
	places  []navItem // pages that the search finds

	mu struct {
		sync.Mutex
		stopped bool
		running sync.WaitGroup // requests under way
	}
}

// New reads the tokens and returns the pages. Nothing runs before [Web.Start].
func New(o Options) (*Web, error) {
	o.Log = o.Log.With("component", "web")
	access, err := newAccess(o.HTTP, time.Now, o.Log)
	if err != nil {
		return nil, err
	}
	w := &Web{Options: o, base: o.HTTP.BasePath, access: access}
	if w.looks, err = newLooks(w.base); err != nil {
		return nil, err
	}
	w.live = newLive(w)
	w.places = placesOf(w)
	w.handler = http.NewCrossOriginProtection().Handler(w.routes())
	return w, nil
}

// Start starts the history, if any request can be allowed.
func (w *Web) Start() {
	if w.access.possible() {
		w.live.start()
	}
}

// Stop ends live streams and waits for requests under way, or until ctx ends. Later
// requests are refused.
func (w *Web) Stop(ctx context.Context) {
	w.mu.Lock()
	w.mu.stopped = true
	w.mu.Unlock()
	w.live.stop()
	w.events.rest(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.mu.running.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// begin counts a request. It reports false after Stop.
func (w *Web) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.stopped {
		return false
	}
	w.mu.running.Add(1)
	return true
}

// policy lets a page load only our own files.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements [http.Handler].
func (w *Web) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	h := rw.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if !w.begin() {
		http.Error(rw, "fila is stopping", http.StatusServiceUnavailable)
		return
	}
	defer w.mu.running.Done()
	w.handler.ServeHTTP(rw, r)
}

// route is one path and its handler.
type route struct {
	pattern string // method and path after the base path, as in [http.ServeMux]
	serve   http.HandlerFunc
}

// Routes returns the patterns of all pages, live parts and form actions, without the base
// path. The browser tests check that each was requested.
func Routes() []string {
	var list []string
	for _, r := range new(Web).table() {
		list = append(list, r.pattern)
	}
	return list
}

// table returns all routes.
func (w *Web) table() []route {
	list := []route{{"GET /assets/{file}", w.asset}, {"GET /login", w.loginPage}, {"POST /login", w.login}, {"POST /logout", w.logout}}
	for i := range pages {
		p := &pages[i]
		path := p.path
		if path == "/" {
			path = "/{$}"
		}
		list = append(list, route{"GET " + path, w.let(p.role, func(a *ask) { w.shown(a, p, w.page) })})
		if p.live {
			list = append(list, route{"GET /live" + path, w.let(p.role, func(a *ask) { w.shown(a, p, w.live.serve) })})
		}
	}
	for _, m := range moved {
		list = append(list, route{"GET " + m.from, w.let(Viewer, func(a *ask) { w.redirect(a, m.to) })})
	}
	list = append(list, route{"GET /search", w.let(Viewer, w.search)})
	for i := range actions {
		act := &actions[i]
		list = append(list, route{"POST /do/" + act.name, w.let(Operator, func(a *ask) { w.act(a, act) })})
	}
	return list
}

func (w *Web) routes() http.Handler {
	mux := http.NewServeMux()
	for _, r := range w.table() {
		method, path, _ := strings.Cut(r.pattern, " ")
		mux.HandleFunc(method+" "+w.base+path, r.serve)
	}
	w.pages = mux
	mux.HandleFunc(w.base+"/", w.let(Viewer, func(a *ask) {
		if a.r.Method == http.MethodGet && strings.HasSuffix(a.r.URL.Path, "/") && a.r.URL.Path != w.base+"/" {
			u := url.URL{Path: "/" + strings.Trim(a.r.URL.Path, "/"), RawQuery: a.r.URL.RawQuery}
			http.Redirect(a.rw, a.r, u.RequestURI(), http.StatusSeeOther)
			return
		}
		w.fail(a, http.StatusNotFound, "This page does not exist.")
	}))
	return mux
}

// shown serves a page that this fila has.
func (w *Web) shown(a *ask, p *page, serve func(*ask, *page)) {
	if p.only != nil && !p.only(w) {
		w.fail(a, http.StatusNotFound, "This page does not exist.")
		return
	}
	serve(a, p)
}

// let serves a page to principals with a role.
func (w *Web) let(role Role, next func(*ask)) http.HandlerFunc {
	role = max(role, Viewer)
	return func(rw http.ResponseWriter, r *http.Request) {
		asker, refused := w.access.whose(r)
		a := &ask{web: w, principal: asker, rw: rw, r: r}
		switch {
		case refused != nil:
			w.fail(a, refused.status, refused.text)
		case asker.Role == Nobody && r.Method == http.MethodGet:
			http.Redirect(rw, r, w.base+"/login?to="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		case asker.Role == Nobody:
			w.fail(a, http.StatusUnauthorized, "You are not logged in, or your session has ended.")
		case asker.Role < role:
			w.fail(a, http.StatusForbidden, "Only operators may do this.")
		default:
			if err := w.Serving(); err != nil {
				w.fail(a, http.StatusServiceUnavailable, "fila cannot answer now: "+err.Error()+".")
				return
			}
			next(a)
		}
	}
}

// Guarded lets viewers pass and refuses others without a page. It is for metrics.
func (w *Web) Guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asker, refused := w.access.whose(r)
		switch {
		case refused != nil:
			http.Error(rw, refused.text, refused.status)
		case asker.Role == Nobody:
			rw.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(rw, "A token is missing: Authorization: Bearer TOKEN", http.StatusUnauthorized)
		default:
			next.ServeHTTP(rw, r)
		}
	})
}

func (w *Web) asset(rw http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	data, err := fs.ReadFile(assets, "assets/"+name)
	if err != nil {
		http.NotFound(rw, r)
		return
	}
	types := map[string]string{"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
	ext := name[strings.LastIndexByte(name, '.')+1:]
	kind, ok := types[ext]
	if !ok {
		kind = "text/plain"
	}
	rw.Header().Set("Content-Type", kind+"; charset=utf-8")
	// Assets change only with the binary, and pages name them with a checksum.
	rw.Header().Set("Cache-Control", "public, max-age=86400, immutable")
	rw.Header().Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		rw.Header().Set("Content-Encoding", "gzip")
		data = compressed(name, data)
	}
	_, _ = rw.Write(data) // fails only if the browser is gone
}

// packed has the compressed assets by name, as they are first needed. Pages are not
// compressed: their length would say something about what is on them.
var packed sync.Map

// compressed returns an asset compressed by gzip.
func compressed(name string, data []byte) []byte {
	if done, ok := packed.Load(name); ok {
		return done.([]byte)
	}
	var out bytes.Buffer
	zip, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // the level is a valid one
	_, _ = zip.Write(data)                                    // a buffer takes everything
	_ = zip.Close()
	packed.Store(name, out.Bytes())
	return out.Bytes()
}

func (w *Web) loginPage(rw http.ResponseWriter, r *http.Request) {
	a := &ask{web: w, rw: rw, r: r}
	asker, refused := w.access.whose(r)
	if refused != nil {
		w.fail(a, refused.status, refused.text)
		return
	}
	a.principal = asker
	w.showLogin(a, http.StatusOK, "", r.URL.Query().Get("to"))
}

func (w *Web) showLogin(a *ask, status int, mistake, to string) {
	w.render(a, status, "login", &view{Title: "Log in", Data: map[string]string{"Mistake": mistake, "To": w.local(to)}})
}

// login exchanges a token for a session.
func (w *Web) login(rw http.ResponseWriter, r *http.Request) {
	a := &ask{web: w, rw: rw, r: r}
	if refused := w.access.checkHost(r); refused != nil {
		w.fail(a, refused.status, refused.text)
		return
	}
	r.Body = http.MaxBytesReader(rw, r.Body, 16<<10)
	to := w.local(r.PostFormValue("to"))
	role, refused := w.access.login(r, strings.TrimSpace(r.PostFormValue("token")))
	switch {
	case refused != nil:
		w.showLogin(a, refused.status, refused.text, to)
	case role == Nobody:
		w.showLogin(a, http.StatusUnauthorized, "The token is wrong.", to)
	default:
		http.SetCookie(rw, w.access.cookie(r, w.access.newSession(role)))
		http.Redirect(rw, r, to, http.StatusSeeOther)
	}
}

func (w *Web) logout(rw http.ResponseWriter, r *http.Request) {
	http.SetCookie(rw, w.access.cookie(r, ""))
	http.Redirect(rw, r, w.base+"/login", http.StatusSeeOther)
}

// local returns a local path to go back to, or the first page. A path with dot segments,
// even encoded ones, may lead out of base, since browsers resolve them.
func (w *Web) local(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, w.base+"/") || hasDotSegment(u.Path) ||
		strings.HasPrefix(u.Path, "//") || strings.ContainsAny(to, "\\\r\n") || strings.HasPrefix(u.Path, w.base+"/live/") {
		return w.base + "/"
	}
	return u.RequestURI()
}

func hasDotSegment(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// fail replies with an error page.
func (w *Web) fail(a *ask, status int, text string) {
	if m := mistakeOf(a.r); m != nil { // the page of the form is gone
		status, text = m.status, m.Text
	}
	w.render(a, status, "error", &view{Title: fmt.Sprintf("%d %s", status, http.StatusText(status)), Data: errorData{Text: text}})
}

// errorData is the data of the error page: a sentence, and where to go on.
type errorData struct {
	Text  string
	Links []crumb
}

// errorOf describes why a page has no data. A message that is gone leads to its queue.
func errorOf(a *ask, err error) errorData {
	if !refusedWith(err, wire.CodeMessageNotFound) {
		return errorData{Text: err.Error()}
	}
	d := errorData{Text: "This message is not here any more: it was acked, moved or deleted, or it has expired."}
	if queue := wire.Source(a.query("queue")); queue != "" {
		d.Links = []crumb{{"Queue " + queue, queuePath(queue, "")}, {"Dead letters of " + queue, queuePath(queue, "/dead")}}
	} else {
		d.Links = []crumb{{"Queues", "/queues"}, {"Dead letters", "/dead"}}
	}
	return d
}

// failed replies with an error page for err, or sends the browser elsewhere if err says so.
func (w *Web) failed(a *ask, err error) {
	var to *elsewhere
	var back *backTo
	switch {
	case errors.As(err, &to):
		http.Redirect(a.rw, a.r, w.base+to.path, http.StatusSeeOther)
	case refusedWith(err, wire.CodeMessageNotFound) && mistakeOf(a.r) == nil:
		w.render(a, http.StatusNotFound, "error", &view{Title: "Message not found", Data: errorOf(a, err)})
	case errors.As(err, &back) && w.again(a, back.path, mistakeFrom(back.form, a.r.URL.Query(), back.error)):
	default:
		m := mistakeFrom("", nil, err)
		w.fail(a, m.status, m.Text)
	}
}

// elsewhere is an error that sends the browser to another page.
type elsewhere struct{ path string }

func (e *elsewhere) Error() string { return "the page is at " + e.path }
