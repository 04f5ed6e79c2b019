package web

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// live renders the live parts of pages, once for all viewers of the same part. One
// goroutine takes a sample of fila, once a second while there are viewers and every ten
// seconds otherwise, and then renders each viewed part. It rests at least twenty times as
// long as it works, so it needs at most a twentieth of a core. If a shard without an owner
// made it wait, it goes on at once, since there is much to see then.
type live struct {
	web  *Web
	wake chan struct{} // a viewer has come
	done chan struct{} // nil before start; closed when the goroutine has ended
	ctx  context.Context
	end  context.CancelFunc

	mu struct {
		sync.Mutex
		scenes  map[string]*scene
		viewers int
		of      map[string]int // viewers by person
	}
}

// scene is the live part of a page with its viewers.
type scene struct {
	page    *page
	ask     *ask // of the first of them; all others have asked for the same with the same role
	last    []byte
	viewers map[*viewer]bool
}

// viewer is one viewer of a scene. frames holds one frame: a slow viewer gets the newest.
type viewer struct{ frames chan []byte }

// Bounds and pace of live parts.
const (
	maxViewers  = 1000
	maxScenes   = 100
	maxOfPerson = 25 // viewers of one person: a person at one address
	pace        = time.Second
	idlePace    = historyStep
	restFactor  = 20
	// frameTimeout is how long sending a frame may take.
	frameTimeout = 10 * time.Second
)

func newLive(w *Web) *live {
	l := &live{web: w, wake: make(chan struct{}, 1)}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.mu.scenes = make(map[string]*scene)
	l.mu.of = make(map[string]int)
	return l
}

func (l *live) start() {
	l.done = make(chan struct{})
	go l.run()
}

func (l *live) stop() {
	l.end()
	if l.done != nil {
		<-l.done
	}
}

func (l *live) run() {
	defer close(l.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		if l.web.Serving() == nil {
			l.web.history.sample(l.web)
			l.frame()
			l.web.events.rest(false)
		}
		rest := l.web.history.rest(time.Since(began))
		// The first viewer does not wait for the slow pace.
		for long := max(idlePace, rest); ; {
			if l.watched() {
				long = max(pace, rest)
			}
			timer.Reset(max(long-time.Since(began), 0))
			select {
			case <-l.ctx.Done():
				return
			case <-l.wake:
				continue
			case <-timer.C:
				timer.Reset(0)
			}
			break
		}
	}
}

func (l *live) watched() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.viewers > 0
}

// frame renders all scenes and hands them to their viewers.
func (l *live) frame() {
	l.mu.Lock()
	scenes := make([]*scene, 0, len(l.mu.scenes))
	for _, s := range l.mu.scenes {
		scenes = append(scenes, s)
	}
	l.mu.Unlock()
	for _, s := range scenes { // s.page, s.ask and s.last are this goroutine's
		frame := l.web.frame(s.ask, s.page)
		if bytes.Equal(frame, s.last) {
			continue
		}
		s.last = frame
		l.mu.Lock()
		for v := range s.viewers {
			v.show(frame)
		}
		l.mu.Unlock()
	}
}

// show needs the lock of live.
func (v *viewer) show(frame []byte) {
	select {
	case <-v.frames: // an older frame that was not sent yet
	default:
	}
	v.frames <- frame
}

// frame returns the live part of a page as a server-sent event.
func (w *Web) frame(a *ask, p *page) []byte {
	name := p.name
	var out bytes.Buffer
	read := p.data
	if p.part != nil {
		read = p.part
	}
	data, err := read(a)
	v := w.view(a, p, data)
	if err = cmp.Or(err, v.attend(a)); err != nil {
		name, v.Data = "error", errorOf(a, err)
	}
	w.fill(a, v)
	if err := w.looks.live(&out, name, v); err != nil {
		w.Log.Error("a page cannot be rendered", "page", name, "error", err)
		return nil
	}
	frame := []byte("data: ")
	frame = append(frame, bytes.ReplaceAll(bytes.TrimSpace(out.Bytes()), []byte("\n"), []byte("\ndata: "))...)
	return append(frame, "\n\n"...)
}

// look adds a viewer of a page. Viewers share a scene if page, role and used query are the
// same. v is nil if there are too many; then refused names the limit.
func (l *live) look(a *ask, p *page) (v *viewer, leave func(), refused string) {
	shown := p.used(a.r.URL)
	key := a.principal.Role.String() + " " + shown.RequestURI()
	person := l.web.access.person(a)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.mu.scenes[key]
	switch {
	case l.mu.of[person] >= maxOfPerson:
		return nil, nil, fmt.Sprintf("You have %d live pages open, the maximum. Close one and reload this page.", maxOfPerson)
	case l.mu.viewers >= maxViewers || s == nil && len(l.mu.scenes) >= maxScenes:
		return nil, nil, "Too many live pages are open at this fila. This page stays as loaded."
	}
	if s == nil {
		// Later frames have no request.
		r := a.r.Clone(l.ctx)
		r.URL = shown
		s = &scene{page: p, ask: &ask{web: a.web, principal: principal{Role: a.principal.Role, Name: "web"}, r: r}, viewers: make(map[*viewer]bool)}
		l.mu.scenes[key] = s
	}
	v = &viewer{frames: make(chan []byte, 1)}
	s.viewers[v] = true
	l.mu.of[person]++
	if l.mu.viewers++; l.mu.viewers == 1 {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	return v, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(s.viewers, v)
		l.mu.viewers--
		if l.mu.of[person]--; l.mu.of[person] == 0 {
			delete(l.mu.of, person)
		}
		if len(s.viewers) == 0 && l.mu.scenes[key] == s {
			delete(l.mu.scenes, key)
		}
	}, ""
}

// serve sends the frames of a page until the browser disconnects.
func (l *live) serve(a *ask, p *page) {
	rc := http.NewResponseController(a.rw)
	if err := rc.SetReadDeadline(time.Time{}); err != nil { // replaces the deadline of the request
		l.web.Log.Debug("a stream has a deadline", "error", err)
	}
	v, leave, refused := l.look(a, p)
	if v == nil {
		http.Error(a.rw, refused, http.StatusServiceUnavailable)
		return
	}
	defer leave()
	a.rw.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	a.rw.Header().Set("X-Accel-Buffering", "no") // tells proxies not to buffer
	send := func(data []byte) bool {
		if err := rc.SetWriteDeadline(time.Now().Add(frameTimeout)); err != nil {
			return false
		}
		if _, err := a.rw.Write(data); err != nil {
			return false
		}
		return rc.Flush() == nil
	}
	if !send([]byte(": fila\n\n")) {
		return
	}
	alive := time.NewTicker(20 * time.Second)
	defer alive.Stop()
	for {
		var data []byte
		select {
		case <-a.r.Context().Done():
			return
		case <-l.ctx.Done():
			return
		case data = <-v.frames:
		case <-alive.C: // writing detects a dead connection
			data = []byte(": \n\n")
		}
		if !send(data) {
			return
		}
	}
}
