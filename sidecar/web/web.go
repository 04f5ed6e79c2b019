package web

import (
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
)

// assets are scripts, styles and licences. What is not ours is as its makers have released
// it: assets_test.go has where from, and the checksums.
//
//go:embed assets
var assets embed.FS

// Options of a [Web].
type Options struct {
	Log     *slog.Logger
	HTTP    config.HTTPConfig
	Version string
	// Serving returns why verbs cannot be carried out yet, or any more; nil: they can.
	Serving func() error
	// Do carries out an admin verb for a client, with the tail of its subject, and returns
	// the reply, JSON. It is called from any goroutine, while Serving returns nil.
	Do func(verb, client, tail string, body []byte) ([]byte, *wire.Error)
	// Queues is the verb queue-list, likewise, without its encoding. What it returns nobody
	// changes.
	Queues func(wire.QueueListRequest) (wire.QueueList, *wire.Error)
	// Guard carries out a verb of the guard that takes nothing, likewise.
	Guard func(verb, tail string, body []byte) ([]byte, *wire.Error)
	// Here returns what this node alone knows of itself. It is called as Do is.
	Here func() Node
	// Events calls each with every event of fila, JSON, until stop is called, or refused,
	// with the reason, when NATS lets nothing more come. Neither must be held up.
	Events func(each func(event []byte), refused func(error)) (stop func(), err error)
	// Needs is the subject that Events needs, for those whom NATS refuses it.
	Needs string
	// Clustered says that this fila is a node of a cluster.
	Clustered bool
}

// Node is how one fila stands.
type Node struct {
	State     string // as /readyz says it
	Ready     bool
	DiskKnown bool
	DiskLow   bool
	DiskFree  int64 // bytes
	DiskTotal int64 // 0: not known
	Store     int64 // bytes of its files
}

// Web has the pages. Make it with [New]; it is an [http.Handler].
type Web struct {
	Options
	base    string // what paths begin with, without a slash at the end
	access  *access
	handler http.Handler
	looks   looks
	history history
	events  eventLog
	live    *live

	mu struct {
		sync.Mutex
		stopped bool
		running sync.WaitGroup // requests that have begun
	}
}

// New reads the tokens and makes the pages; nothing runs before [Web.Start].
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
	w.handler = http.NewCrossOriginProtection().Handler(w.routes())
	return w, nil
}

// Start begins to keep the history. Nobody who may not look needs one.
func (w *Web) Start() {
	if w.access.possible() {
		w.live.start()
	}
}

// Stop ends what is live, and waits until nothing is carried out any more, or ctx ends.
// Requests that come later are refused.
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

// begin counts a request, unless the pages have been stopped.
func (w *Web) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.stopped {
		return false
	}
	w.mu.running.Add(1)
	return true
}

// policy lets a page load what is ours, and nothing else.
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

// route is what is at a path.
type route struct {
	pattern string // a method and a path after the base path, as [http.ServeMux] has them
	serve   http.HandlerFunc
}

// Routes returns the patterns of all pages, of the parts of them that change, and of what
// forms do, without the base path. The tests in a browser hold that each was asked for.
func Routes() []string {
	var list []string
	for _, r := range new(Web).table() {
		list = append(list, r.pattern)
	}
	return list
}

// table is what is at which path.
func (w *Web) table() []route {
	list := []route{{"GET /assets/{file}", w.asset}, {"GET /login", w.loginPage}, {"POST /login", w.login}, {"POST /logout", w.logout}}
	for i := range pages {
		p := &pages[i]
		path := p.path
		if path == "/" {
			path = "/{$}"
		}
		list = append(list, route{"GET " + path, w.let(p.role, func(a *ask) { w.page(a, p) })})
		if p.live {
			list = append(list, route{"GET /live" + path, w.let(p.role, func(a *ask) { w.live.serve(a, p) })})
		}
	}
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
	mux.HandleFunc(w.base+"/", w.let(Viewer, func(a *ask) {
		w.fail(a, http.StatusNotFound, "There is no such page.")
	}))
	return mux
}

// let has a page answer those who may see it.
func (w *Web) let(role Role, next func(*ask)) http.HandlerFunc {
	role = max(role, Viewer)
	return func(rw http.ResponseWriter, r *http.Request) {
		somebody, refused := w.access.whose(r)
		a := &ask{web: w, who: somebody, rw: rw, r: r}
		switch {
		case refused != nil:
			w.fail(a, refused.status, refused.text)
		case somebody.Role == Nobody && r.Method == http.MethodGet:
			http.Redirect(rw, r, w.base+"/login?to="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		case somebody.Role == Nobody:
			w.fail(a, http.StatusUnauthorized, "You are not logged in, or not any more.")
		case somebody.Role < role:
			w.fail(a, http.StatusForbidden, "Only operators may do that.")
		default:
			if err := w.Serving(); err != nil {
				w.fail(a, http.StatusServiceUnavailable, "fila cannot say anything now: "+err.Error()+".")
				return
			}
			next(a)
		}
	}
}

// Guarded lets those who may look pass, without a page for others: it is for metrics.
func (w *Web) Guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		somebody, refused := w.access.whose(r)
		switch {
		case refused != nil:
			http.Error(rw, refused.text, refused.status)
		case somebody.Role == Nobody:
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
	// They change with the binary alone, and pages name them with its checksum.
	rw.Header().Set("Cache-Control", "public, max-age=86400, immutable")
	_, _ = rw.Write(data) // the browser has gone: nobody to tell
}

func (w *Web) loginPage(rw http.ResponseWriter, r *http.Request) {
	a := &ask{web: w, rw: rw, r: r}
	somebody, refused := w.access.whose(r)
	if refused != nil {
		w.fail(a, refused.status, refused.text)
		return
	}
	a.who = somebody
	w.showLogin(a, http.StatusOK, "", r.URL.Query().Get("to"))
}

func (w *Web) showLogin(a *ask, status int, mistake, to string) {
	w.render(a, status, "login", &view{Title: "Log in", Data: map[string]string{"Mistake": mistake, "To": w.local(to)}})
}

// login takes a token for a session.
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
		w.showLogin(a, http.StatusUnauthorized, "There is no such token.", to)
	default:
		http.SetCookie(rw, w.access.cookie(r, w.access.newSession(role)))
		http.Redirect(rw, r, to, http.StatusSeeOther)
	}
}

func (w *Web) logout(rw http.ResponseWriter, r *http.Request) {
	http.SetCookie(rw, w.access.cookie(r, ""))
	http.Redirect(rw, r, w.base+"/login", http.StatusSeeOther)
}

// local is a path of ours to go back to, the first page if it is none. A path with dot
// segments, also encoded ones, may lead out of base: browsers resolve them.
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

// fail answers with a page that says what is wrong.
func (w *Web) fail(a *ask, status int, text string) {
	w.render(a, status, "error", &view{Title: fmt.Sprintf("%d %s", status, http.StatusText(status)), Data: text})
}

// failed answers with a page that says what err is.
func (w *Web) failed(a *ask, err error) {
	var refused *wire.Error
	switch {
	case errors.As(err, &refused):
		w.fail(a, refused.Code, refused.Description)
	default:
		w.fail(a, http.StatusBadRequest, err.Error())
	}
}
