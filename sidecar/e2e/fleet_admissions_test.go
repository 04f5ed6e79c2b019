//go:build unix

package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// What a fleet shares of limits in the rounds: a rate, a window and places.
const (
	limitRate     = 30 // a second
	limitBurst    = 5
	limitWindow   = time.Second
	limitInWindow = 20
	limitPlaces   = 2
	limitLease    = 3 * time.Second        // visibility_timeout_ms
	limitSlack    = 200 * time.Millisecond // L of docs/shared.md
	limitTables   = "[[throttle]]\nkey = \"rate\"\nrate = 30\nburst = 5\n" +
		"[[throttle]]\nkey = \"window\"\nlimit = 20\nwindow_ms = 1000\n" +
		"[[throttle]]\nkey = \"places\"\nconcurrency = 2\n"
	limitQueue = "visibility_timeout_ms = 3000\nthrottle_headers = [\"Limit\"]"
)

var limitKeys = []string{"rate", "window", "places"}

// admission is a message that a fila has let through, from when to when at most it was
// in flight for certain.
type admission struct{ from, to time.Time }

// admissions are what has come through limits since somebody looked.
type admissions struct {
	mu struct {
		sync.Mutex
		by map[string][]admission
	}
}

// watchLimits has consumers of every fila take what comes through limits.
func (f *fleet) watchLimits() *admissions {
	a := &admissions{}
	a.mu.by = make(map[string][]admission)
	for i := range f.procs {
		f.deliveries(i, 1, func(m *nats.Msg) { a.take(f, m) })
	}
	return a
}

// take notes a delivery when its ack goes out. When it was admitted is known from its
// deadline, however long it was under way.
func (a *admissions) take(f *fleet, m *nats.Msg) {
	deadline, err := time.Parse(time.RFC3339Nano, m.Header.Get("Fila-Deadline"))
	key := m.Header.Get("Limit")
	if err != nil || key == "" {
		f.t.Errorf("a delivery without deadline or limit: %v", m.Header)
		return
	}
	done := func() {
		to := time.Now()
		if to.After(deadline) {
			to = deadline // others may have it since then
		}
		a.mu.Lock()
		a.mu.by[key] = append(a.mu.by[key], admission{deadline.Add(-limitLease), to})
		a.mu.Unlock()
		_ = f.nc.Publish(m.Reply, []byte("+ACK"))
	}
	if key == "places" {
		time.AfterFunc(50*time.Millisecond, done)
	} else {
		done()
	}
}

// limited is a message for fila i behind a limit.
func limited(i int, key string) *nats.Msg {
	return &nats.Msg{Subject: fleetPrefix(i) + ".enqueue.q1", Header: nats.Header{"Limit": {key}}}
}

// reach says what a fleet could reach while limits were used.
type reach int

const (
	reached reach = iota // the bucket, all the time
	frozen               // the bucket, by those that were not frozen, which may be for more than 10 s
	parted               // for a while one did not, while the others did
	away                 // for a while nobody, and then one before the others
	torn                 // for a while nobody, or some, and then one before the others
	started              // for a while nobody, and one has started then
)

// bounds is what three filas may admit: at a rate, beyond it at once, and at a time in
// flight. Those that reach the bucket have the whole rate, each of the others its third:
// this is the time D of docs/shared.md, as long as it may be.
func (r reach) bounds() (rate, beyond float64, places int) {
	rate, burst, places := float64(limitRate), float64(limitBurst), limitPlaces
	switch r {
	case frozen: // it comes back with permits that others have taken
		places *= 2
	case parted: // one goes on with its part while the others divide all
		burst, rate, places = 2*burst, rate*(1+1.0/3), 2*places
	case away: // two go on with their parts while one has all
		burst, rate = 2*burst, rate*(1+2.0/3)
	case torn:
		burst, rate, places = 2*burst, rate*(1+2.0/3), 2*places
	case started: // it divides by none, while another one has all and one goes on with its part
		burst, rate, places = 3*burst, rate*(2+1.0/3), 2*places
	}
	return rate, burst + rate*limitSlack.Seconds(), places
}

// check says whether what came since the last time keeps the bounds of docs/shared.md,
// and how many messages those were.
func (a *admissions) check(t testing.TB, r reach, when string) int {
	t.Helper()
	a.mu.Lock()
	all := a.mu.by
	a.mu.by = make(map[string][]admission)
	a.mu.Unlock()
	n := 0
	for _, key := range limitKeys {
		slices.SortFunc(all[key], func(a, b admission) int { return a.from.Compare(b.from) })
		n += len(all[key])
	}
	rate, beyond, places := r.bounds()
	require.LessOrEqual(t, fullest(all["rate"], rate), beyond, "%s: the rate", when)
	for i, x := range all["window"] {
		if i >= limitInWindow {
			require.GreaterOrEqual(t, x.from.Sub(all["window"][i-limitInWindow].from), limitWindow, "%s: the window, admission %d", when, i)
		}
	}
	require.LessOrEqual(t, most(all["places"]), places, "%s: places", when)
	return n
}

// fullest is how much there is at most in a bucket into which each admission puts one and
// that leaks at a rate: no time T has more admissions than that and rate times T.
func fullest(all []admission, rate float64) float64 {
	level, top := 0.0, 0.0
	for i, x := range all {
		if i > 0 {
			level = max(0, level-rate*x.from.Sub(all[i-1].from).Seconds())
		}
		level++
		top = max(top, level)
	}
	return top
}

// most is how many were in flight at once.
func most(all []admission) int {
	type step struct {
		at time.Time
		by int
	}
	var steps []step
	for _, x := range all {
		if x.to.After(x.from) {
			steps = append(steps, step{x.from, 1}, step{x.to, -1})
		}
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
	n, top := 0, 0
	for _, s := range steps {
		n += s.by
		top = max(top, n)
	}
	return top
}

// TestAdmissions: what the check of limits relies on.
func TestAdmissions(t *testing.T) {
	at := func(ms ...int) (all []admission) {
		for _, from := range ms {
			begin := time.UnixMilli(int64(from))
			all = append(all, admission{begin, begin.Add(100 * time.Millisecond)})
		}
		return all
	}
	require.InDelta(t, 3, fullest(at(0, 0, 0, 100, 200), 10), 1e-9)
	require.InDelta(t, 4.5, fullest(at(0, 0, 0, 50, 50), 10), 1e-9)
	require.Equal(t, 2, most(at(0, 50, 100, 150, 200)))
	require.Equal(t, 3, most(at(0, 50, 99)))
	require.Equal(t, 1, most(at(0, 100, 200)))
	require.Zero(t, most(nil))

	// One fila reaches the bucket 1.5 s before the two others.
	late := at(0, 0, 0, 0, 0)
	for ms := range 1500 {
		if ms%100 == 50 {
			late = append(late, at(ms, ms)...)
		}
		if ms%33 == 0 {
			late = append(late, at(ms)...)
		}
	}
	for r, ok := range map[reach]bool{reached: false, parted: false, away: true, torn: true, started: true} {
		rate, beyond, _ := r.bounds()
		require.Equal(t, ok, fullest(late, rate) <= beyond, "%d", r)
	}
}

// limit publishes a message behind a limit.
func (d *trouble) limit() {
	i, key := d.rng.IntN(len(d.f.procs)), limitKeys[d.rng.IntN(len(limitKeys))]
	m := limited(i, key)
	m.Header.Set("Nats-TTL", "1s") // what is too much for a limit does not wait for the end of the round
	_ = d.f.nc.PublishMsg(m)
}

// settleLimits sends one more message through each limit of each fila: none is stuck.
func (d *trouble) settleLimits(when string) {
	t, f := d.f.t, d.f
	t.Helper()
	for i := range f.procs {
		for _, key := range limitKeys {
			d.enqueue(limited(i, key), when)
		}
	}
	for i := range f.procs {
		if !poll(func() bool { return d.depth(i, "q1") == 0 }) {
			require.Fail(t, fmt.Sprintf("%s: fila %d has messages that limits hold", when, i), d.ask(i, "queue-inspect.q1")+d.ask(i, "throttle-list"))
		}
	}
}
