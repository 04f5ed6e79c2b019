package circuit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
)

// Only configured circuits are named, and among the allowed keys the few that failed or changed state
// last.
func TestStatesAreBounded(t *testing.T) {
	r := newRig(t)
	r.reg.Configure(Settings{Breaker: breaker.Config{Threshold: 2, Cooldown: time.Minute, HalfOpenMaxCalls: 1}}, map[string]Settings{"own": {}, "idle": {}}, nil)
	vendor := func(key string) bool { return strings.HasPrefix(key, "vendor:") }
	for i := range 200 {
		r.pass(time.Second)
		r.fail(r.use(fmt.Sprintf("vendor:%03d", i)), 1)
		r.fail(r.use(fmt.Sprintf("tenant:%03d", i)), 1)
		r.use(fmt.Sprintf("vendor:quiet-%d", i))
	}
	r.pass(time.Second)
	r.fail(r.use("vendor:003"), 1) // opens it
	r.fail(r.use("own"), 2)
	states := r.reg.States(100, vendor)
	require.Len(t, states, 102)
	opened := transitions{breaker.Closed: {breaker.Open: 1}}
	require.Equal(t, []KeyState{
		{Key: "idle", State: breaker.Closed},
		{Key: "own", State: breaker.Closed},
		{Key: "vendor:003", State: breaker.Open, transitions: opened},
		{Key: "vendor:199", State: breaker.Closed},
	}, states[:4])
	var told []string
	states[2].EachTransition(func(from, to breaker.State, n int64) { told = append(told, fmt.Sprint(from, " ", to, " ", n)) })
	require.Equal(t, []string{"closed open 1"}, told)
	require.Equal(t, "vendor:101", states[101].Key)
	require.Len(t, r.reg.States(0, vendor), 2)
	r.pass(2 * time.Minute)
	require.Equal(t, KeyState{Key: "vendor:003", State: breaker.HalfOpen, transitions: opened}, r.reg.States(100, vendor)[2], "its time is over, as circuit list says")
	all := make(map[string]int64)
	r.reg.EachTransition(func(from, to breaker.State, n int64) { all[from.String()+" "+to.String()] = n })
	require.Equal(t, map[string]int64{
		"closed open": 1, "open closed": 0, "open half-open": 0, "half-open open": 0, "half-open closed": 0, "closed half-open": 0,
	}, all)
}

// Circuits that must not be named are counted, with the longest time that one has not been closed.
// Failed probes and restarts do not reset it; unused circuits are forgotten eventually.
func TestUnwell(t *testing.T) {
	r := newRig(t)
	limits := Settings{Breaker: breaker.Config{Threshold: 1, Cooldown: time.Minute, HalfOpenMaxCalls: 1, HalfOpenSuccesses: 1}}
	r.reg.Configure(limits, nil, nil)
	require.Zero(t, r.reg.Unwell())
	a, b := r.use("vendor:a"), r.use("vendor:b")
	r.fail(a, 1)
	r.pass(30 * time.Second)
	r.fail(b, 1)
	require.Equal(t, Unwell{Open: 2, Longest: 30 * time.Second}, r.reg.Unwell())
	r.pass(40 * time.Second)
	require.Equal(t, Unwell{Open: 1, HalfOpen: 1, Longest: 70 * time.Second}, r.reg.Unwell(), "its time is over")
	r.fail(a, 1) // a probe
	require.Equal(t, Unwell{Open: 2, Longest: 70 * time.Second}, r.reg.Unwell())

	r.disk.commitAll()
	r.restart()
	r.reg.Configure(limits, nil, nil)
	require.Equal(t, Unwell{Open: 2, Longest: 70 * time.Second}, r.reg.Unwell())
	a, b = r.use("vendor:a"), r.use("vendor:b")
	r.pass(2 * time.Minute)
	require.Equal(t, Unwell{HalfOpen: 2, Longest: 190 * time.Second}, r.reg.Unwell())
	r.done(a, r.allow(a), breaker.Success)
	require.Equal(t, Unwell{HalfOpen: 1, Longest: 160 * time.Second}, r.reg.Unwell())
	r.reg.giveBack(b)
	require.Zero(t, r.reg.Unwell(), "nothing has happened to it since the start")
	b = r.use("vendor:b")
	r.fail(b, 1)
	r.reg.giveBack(b)
	r.pass(forgottenAfter)
	require.Equal(t, 1, r.reg.Unwell().HalfOpen)
	r.pass(time.Second)
	require.Zero(t, r.reg.Unwell())
}
