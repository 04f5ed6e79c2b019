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

// Limits that the fleet shares in the rounds: a rate, a window and a concurrency.
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

// admission is a message that passed a limit, with the time in which it was certainly in
// flight.
type admission struct{ from, to time.Time }

// admissions are the messages that passed limits since the last check.
type admissions struct {
	mu struct {
		sync.Mutex
		by map[string][]admission
	}
}

// watchLimits starts consumers of every fila on the limited queue.
func (f *fleet) watchLimits() *admissions {
	a := &admissions{}
	a.mu.by = make(map[string][]admission)
	for i := range f.procs {
		f.deliveries(i, 1, func(m *nats.Msg) { a.take(f, m) })
	}
	return a
}

// take records a delivery and acks it. Its deadline tells when it was admitted, however long
// the delivery took.
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
			to = deadline // its permit may be in use again from then on
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

// limited returns a message for fila i with a throttle key.
func limited(i int, key string) *nats.Msg {
	return &nats.Msg{Subject: fleetPrefix(i) + ".enqueue.q1", Header: nats.Header{"Limit": {key}}}
}

// reach says which instances reached the bucket while limits were in use.
type reach int

const (
	reached reach = iota // all, all the time
	frozen               // all that were not frozen, which may be for more than 10 s
	parted               // one did not for a while
	away                 // none for a while, and then one before the others
	torn                 // none or some for a while, and then one before the others
	started              // none for a while, and one has started meanwhile
)

// bounds returns what three filas may admit: the rate, the burst beyond it, and the
// concurrency. Instances that reach the bucket have the whole rate, each of the others a third
// of it, for at most the time D of docs/shared.md.
func (r reach) bounds() (rate, beyond float64, places int) {
	rate, burst, places := float64(limitRate), float64(limitBurst), limitPlaces
	switch r {
	case frozen: // it returns with permits that others have taken
		places *= 2
	case parted: // one continues with its part while the others share all
		burst, rate, places = 2*burst, rate*(1+1.0/3), 2*places
	case away: // two continue with their parts while one has all
		burst, rate = 2*burst, rate*(1+2.0/3)
	case torn:
		burst, rate, places = 2*burst, rate*(1+2.0/3), 2*places
	case started: // it shares with none, while another one has all and one continues with its part
		burst, rate, places = 3*burst, rate*(2+1.0/3), 2*places
	}
	return rate, burst + rate*limitSlack.Seconds(), places
}

// check fails if the messages since the last check exceed the bounds of docs/shared.md, and
// returns their number.
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

// fullest returns the highest level of a bucket that leaks at rate and gets one unit per
// admission: no interval T has more admissions than this level and rate times T.
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

// most returns the highest number in flight at once.
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

// TestAdmissions tests the check itself.
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

// limit publishes a message with a throttle key.
func (d *trouble) limit() {
	i, key := d.rng.IntN(len(d.f.procs)), limitKeys[d.rng.IntN(len(limitKeys))]
	m := limited(i, key)
	m.Header.Set("Nats-TTL", "1s") // it does not wait for the end of the round
	_ = d.f.nc.PublishMsg(m)
}

// settleLimits passes one more message through each limit of each fila: no limit is stuck.
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
