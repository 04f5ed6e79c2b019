package queuetest

import (
	"fmt"
	"slices"
	"strings"

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
