package queuetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
)

// way is gates that a message may pass: its own, or with routes the gates of one of them.
type way struct {
	name      string
	throttles []string // sorted
	circuit   string   // empty: none
}

// ways returns the ways of m.
func (m *message) ways() []way {
	if len(m.Routes) == 0 {
		return []way{{throttles: m.ThrottleKeys, circuit: m.CircuitKey}}
	}
	list := make([]way, len(m.Routes))
	for i, r := range m.Routes {
		w := way{name: r.Name, circuit: r.CircuitKey, throttles: slices.Concat(m.ThrottleKeys, r.ThrottleKeys)}
		slices.Sort(w.throttles)
		w.throttles = slices.Compact(w.throttles)
		if w.circuit == "" {
			w.circuit = m.CircuitKey
		}
		list[i] = w
	}
	return list
}

// wayOf returns the way of m with a name.
func (m *message) wayOf(name string) (way, bool) {
	ways := m.ways()
	i := slices.IndexFunc(ways, func(w way) bool { return w.name == name })
	if i < 0 {
		return way{}, false
	}
	return ways[i], true
}

// mayPass reports whether a throttle key is on any way of m.
func (m *message) mayPass(key string) bool {
	return slices.ContainsFunc(m.ways(), func(w way) bool { return slices.Contains(w.throttles, key) })
}

// keys returns the throttle keys on all ways of m.
func (m *message) keys() []string {
	var keys []string
	for _, w := range m.ways() {
		keys = append(keys, w.throttles...)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// routesText is the routes of m for its lane and for texts.
func (m *message) routesText() string {
	var b strings.Builder
	for _, r := range m.Routes {
		fmt.Fprintf(&b, "|%s %d %v %s", r.Name, r.Weight, slices.Sorted(slices.Values(r.ThrottleKeys)), r.CircuitKey)
	}
	return b.String()
}

// drawRoutes draws the routes of a message.
func (s *Sim) drawRoutes() (routes []store.Route) {
	weighted := s.chance(2)
	for i := range 1 + s.rnd.IntN(3) {
		r := store.Route{Name: fmt.Sprint("route-", i)}
		for _, k := range s.rnd.Perm(throttleKeys)[:s.rnd.IntN(3)] {
			r.ThrottleKeys = append(r.ThrottleKeys, throttleKey(k))
		}
		if s.chance(2) {
			r.CircuitKey = pick(s, []string{"c0", "c1"})
		}
		if weighted {
			r.Weight = pick(s, []uint32{1000, 3000})
		}
		routes = append(routes, r)
	}
	return routes
}

// checkRoutes checks that the messages that a step has delivered went by the first of their routes that
// admitted them. A delivery shuts gates and opens none, so a route that admits a message after the
// step did so at its delivery. The model does not know who comes first where others wait, or have a
// reservation: such a route is not checked, nor is a drawn order.
func (n *node) checkRoutes(went []*flight) {
	s := n.s
	if !s.exact {
		return
	}
	for _, f := range went {
		m := f.m
		if slices.ContainsFunc(m.Routes, func(r store.Route) bool { return r.Weight != 0 }) {
			continue
		}
		for _, w := range m.ways() {
			if w.name == f.by.name {
				break
			}
			crowded := slices.ContainsFunc(w.throttles, func(key string) bool { return n.held[key] }) ||
				slices.ContainsFunc(s.all, func(o *message) bool {
					flies := o.flight != nil && slices.Contains(went, o.flight)
					return (o.node != n || o.side != m.side || o.lane != m.lane) && (flies || o.isReady()) && o.mayMeet(&w)
				})
			if crowded {
				continue
			}
			if (w.circuit == "" || s.circuit(w.circuit).admits(s.Now)) && s.admits(m, &w) {
				require.Fail(s.T, "a message went by a later route", "%s by %q instead of %q\n%s", m, f.by.name, w.name, s.gateText(m))
			}
		}
	}
}

// mayMeet reports whether any way of m has a gate of w.
func (m *message) mayMeet(w *way) bool {
	return slices.ContainsFunc(w.throttles, m.mayPass) ||
		w.circuit != "" && slices.ContainsFunc(m.ways(), func(o way) bool { return o.circuit == w.circuit })
}
