package sidecar

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// TestConfigKeysAreLimits sets limits by configuration keys: they count at once,
// for the backlog too, and pairs that are not complete have no effect.
func TestConfigKeysAreLimits(t *testing.T) {
	r := newGateRig(t)
	put := func(key, value string) { must[wire.ConfigSetReply](r, r.s.configSet, key, `{"value":"`+value+`"}`) }
	put("throttle:a:b:burst", "2.5")
	require.Zero(t, r.limits("a:b"), "a burst without a rate")
	put("throttle:a:b:rate", "1/3")
	put("throttle:a:b:limit", "7")
	put("throttle:a:b:concurrency", "9")
	want := throttle.Limits{Rate: throttle.Rate{Cost: 1000, Per: 3e9}, Burst: 2500, Concurrency: 9}
	require.Equal(t, want, r.limits("a:b"), "a limit without its window")
	put("throttle:a:b:window_ms", "60000")
	want.Limit, want.Window = 7, int64(time.Minute)
	require.Equal(t, want, r.limits("a:b"))

	put("throttle:tenant:*:rate", "5")
	put("throttle:tenant:x*:rate", "6")
	require.Equal(t, ratePerSecond(5), r.limits("tenant:a").Rate)
	require.Equal(t, ratePerSecond(6), r.limits("tenant:xa").Rate)
	put("throttle:tenant:xa:burst", "3")
	require.Equal(t, ratePerSecond(6), r.limits("tenant:xa").Rate, "what limits nothing does not hide the prefix")
	must[wire.ConfigEntry](r, r.s.configDelete, "throttle:tenant:x*:rate", "")
	require.Equal(t, ratePerSecond(5), r.limits("tenant:xa").Rate)
	must[wire.ConfigEntry](r, r.s.configDelete, "throttle:a:b:rate", "")
	want.Rate, want.Burst = throttle.Rate{}, 0
	require.Equal(t, want, r.limits("a:b"))

	for key, value := range map[string]string{
		"throttle:a:rate": "1e3", "throttle:a:burst": "1.0005", "throttle:a:concurrency": "0", "throttle::rate": "1",
		"throttle:a:limit": "1000000001", "throttle:a:window_ms": "31536000001", "throttle:a:speed": "1",
	} {
		_, err := do[any](r, r.s.configSet, key, `{"value":"`+value+`"}`)
		require.ErrorIs(t, err, &wire.Error{ErrCode: wire.CodeBadConfigValue}, key)
	}
	require.Zero(t, r.limits("a"))
}

// TestLimitsOverARestart finds limits, prefixes and the levels of buckets and
// windows again after a stop in order.
func TestLimitsOverARestart(t *testing.T) {
	r := newGateRig(t)
	r.create("orders")
	r.set("bucket", `{"rate":"1","burst":5}`)
	r.set("window", `{"limit":3,"window_ms":60000}`)
	r.set("w*", `{"rate":100}`)
	require.Equal(t, 5, r.admits("bucket"))
	require.Equal(t, 3, r.admits("window"))
	before := r.limits("window")
	r.restart(false, 2*time.Second)
	require.Equal(t, before, r.limits("window"))
	require.Equal(t, ratePerSecond(100), r.limits("where").Rate)
	require.Equal(t, 2, r.admits("bucket"), "what two seconds have brought")
	require.Equal(t, 0, r.admits("window"))
	require.Empty(t, r.stored(stateGates), "the next stop may be a crash")
	r.restart(false, time.Minute)
	require.Equal(t, 3, r.admits("window"))
}

// TestGatesAfterACrash begins with what can have been used: everything.
func TestGatesAfterACrash(t *testing.T) {
	r := newGateRig(t)
	require.False(t, r.s.throttles.start.Crashed, "a new store is no crash")
	r.restart(true, 0)
	require.False(t, r.s.throttles.start.Crashed, "nothing has gone through the gates of an empty store")
	r.create("orders")
	r.set("bucket", `{"rate":"1","burst":5}`)
	r.set("window", `{"limit":3,"window_ms":86400000}`)
	log, text := newTestLog()
	r.log = log
	r.restart(true, time.Hour)
	require.Contains(t, text.String(), "not stopped in order")
	require.Equal(t, 0, r.admits("bucket"))
	require.Zero(t, r.show("bucket").Tokens)
	r.pass(2 * time.Second)
	require.Equal(t, 2, r.admits("bucket"))
	r.pass(24*time.Hour - 3*time.Second)
	require.Equal(t, 0, r.admits("window"), "the window holds over the crash, however long it is")
	r.pass(time.Second)
	require.Equal(t, 3, r.admits("window"))

	r.restart(false, 0)
	require.False(t, r.s.throttles.start.Crashed)
	r.s.stopThrottles()
	require.NoError(t, r.s.core.commit(batchWithout(gatePart(0))))
	r.restart(true, 0)
	require.True(t, r.s.throttles.start.Crashed, "a part of the state is missing")
	require.Empty(t, r.stored(stateGates))
}

// TestDeclareThrottles overwrites the keys that the file names, and no others.
func TestDeclareThrottles(t *testing.T) {
	r := newGateRig(t)
	r.set("a", `{"rate":"10.0","concurrency":3}`)
	r.set("b", `{"rate":7}`)
	r.set("a", `{"rate":1,"for_ms":60000}`)
	lines, err := r.s.declareThrottles([]ThrottleTable{
		{Key: "a", Rate: "10", Burst: 2.5}, {Key: "c:*", Limit: 5, WindowMs: 1000}, {Key: "a key", Concurrency: 4},
	})
	require.NoError(t, err)
	require.Equal(t, []string{
		"throttle a key: concurrency none -> 4",
		"throttle a: burst none -> 2.5",
		"throttle a: concurrency 3 -> none",
		"throttle c:*: limit none -> 5",
		"throttle c:*: window_ms none -> 1000",
	}, lines, "10 for 10.0 is no change")
	require.Equal(t, ratePerSecond(1), r.limits("a").Rate, "an override stays")
	require.Equal(t, ratePerSecond(7), r.limits("b").Rate)
	require.Equal(t, throttle.Limits{Limit: 5, Window: int64(time.Second)}, r.limits("c:x"))
	trail := r.trail()
	require.Equal(t, "file throttle:c:*:window_ms: none -> 1000", trail[len(trail)-1])

	lines, err = r.s.declareThrottles([]ThrottleTable{{Key: "a", Rate: "10", Burst: 2.5}})
	require.NoError(t, err)
	require.Empty(t, lines, "removing a table deletes nothing")
	require.EqualValues(t, 4, r.limits("a key").Concurrency)
	require.Len(t, r.trail(), len(trail))

	before := r.stored("")
	for _, bad := range []ThrottleTable{{Key: "z", Rate: "x"}, {Key: "z", Rate: "1", Burst: 1.0005}, {Key: "z", Limit: -1}} {
		_, err := r.s.declareThrottles([]ThrottleTable{{Key: "y", Rate: "1"}, bad})
		require.ErrorIs(t, err, &wire.Error{ErrCode: wire.CodeBadThrottle})
		require.ErrorContains(t, err, "throttle[z]: ")
	}
	require.Equal(t, before, r.stored(""))
	lines, err = r.s.declareThrottles(nil)
	require.NoError(t, err)
	require.Empty(t, lines)
}

// TestDeclaredThrottlesWarn says when a change will be undone.
func TestDeclaredThrottlesWarn(t *testing.T) {
	log, text := newTestLog()
	r := newGateRig(t)
	r.s.core.log = log
	_, err := r.s.declareThrottles([]ThrottleTable{{Key: "a", Rate: "10"}})
	require.NoError(t, err)
	r.set("b", `{"rate":1}`)
	r.set("a", `{"rate":1,"for_ms":1000}`)
	require.NotContains(t, text.String(), "the file wins")
	for i, change := range []func(){
		func() { r.set("a", `{"rate":1}`) },
		func() { must[wire.ConfigSetReply](r, r.s.configSet, "throttle:a:rate", `{"value":"2"}`) },
		func() { must[wire.ConfigEntry](r, r.s.configDelete, "throttle:a:rate", "") },
		func() { must[wire.ThrottleInfo](r, r.s.throttleClear, "a", "") },
	} {
		change()
		require.Equal(t, i+1, countText(text.String(), "the file wins"))
	}
}

// TestChangesToldInAnotherOrder end in the newest state.
func TestChangesToldInAnotherOrder(t *testing.T) {
	r := newGateRig(t)
	var changes []change
	for _, rate := range []string{"1", "2", "3"} {
		for _, key := range []string{"throttle:k:rate", "throttle:p*:rate"} {
			made, err := r.s.core.config.edit(func() (map[string]*string, *wire.Error) {
				return map[string]*string{key: &rate}, nil
			}, r.s.saveAs(wire.VerbConfigSet))
			require.Nil(t, err)
			changes = append(changes, made...)
		}
	}
	for i := range changes {
		r.s.configChanged(changes[len(changes)-1-i])
	}
	require.Equal(t, ratePerSecond(3), r.limits("k").Rate)
	require.Equal(t, ratePerSecond(3), r.limits("pk").Rate)
}

// TestChangesAtOnce lets changes of all kinds run into each other: what is in
// force in the end is what is stored.
func TestChangesAtOnce(t *testing.T) {
	r := newGateRig(t)
	var all sync.WaitGroup
	for i := 1; i <= 8; i++ {
		all.Go(func() {
			for n := range 50 {
				rate := strconv.Itoa(i*1000 + n)
				switch key := []string{"k", "k*"}[n%2]; n % 5 {
				case 0:
					must[wire.ConfigSetReply](r, r.s.configSet, "throttle:"+key+":rate", `{"value":"`+rate+`"}`)
				case 1:
					r.set(key, `{"rate":"`+rate+`","for_ms":`+strconv.Itoa(1000+i)+`}`)
				case 2:
					_, err := r.s.declareThrottles([]ThrottleTable{{Key: key, Rate: wire.Rate(rate)}})
					require.NoError(t, err)
				case 3:
					_, _ = do[any](r, r.s.throttleClear, key, "")
				default:
					r.set(key, `{"rate":"`+rate+`"}`)
				}
			}
		})
	}
	all.Wait()
	check := func() {
		t.Helper()
		for _, key := range []string{"k", "kx"} {
			want, _ := r.s.limitsOf(key)
			require.Equal(t, want, r.limits(key), key)
		}
	}
	check()
	before := r.show("k")
	r.restart(false, 0)
	check()
	require.Equal(t, before.Rate, r.show("k").Rate)
	r.pass(2 * time.Second)
	check()
	require.Empty(t, r.s.throttles.mu.overrides)
}

// TestOldValuesHaveNoEffect reads what an earlier version let in.
func TestOldValuesHaveNoEffect(t *testing.T) {
	log, text := newTestLog()
	r := newGateRig(t)
	r.log = log
	b := batchWithout("")
	for key, value := range map[string]string{"throttle:k:rate": "1e3", "throttle:k:concurrency": "2", "throttle:k": "x", "\x00pause/x": "", "\x00override/k": "?", "\x00pause/key/orders/k": "?", "\x00log/x": "{}"} {
		b.PutConfig = append(b.PutConfig, entry(key, value))
	}
	require.NoError(t, r.s.core.commit(b))
	r.restart(false, 0)
	require.Equal(t, throttle.Limits{Concurrency: 2}, r.limits("k"))
	require.Equal(t, 2, countText(text.String(), "has no effect"))
	require.Equal(t, 1, countText(text.String(), "a stored override cannot be read"))
	require.Equal(t, 1, countText(text.String(), "a stored pause cannot be read"))
	require.Equal(t, 1, countText(text.String(), "an entry of the audit log cannot be read"))
	list := must[wire.ConfigList](r, r.s.configList, "", "")
	require.Equal(t, 3, list.Total, "fila's own entries are not shown")
	for _, e := range list.Entries {
		require.NotContains(t, e.Key, statePrefix)
	}
	_, ok := r.s.core.config.Get("\x00override/k")
	require.False(t, ok)
}

// TestManyGatesOverAStop saves more than one entry of the store takes.
func TestManyGatesOverAStop(t *testing.T) {
	r := newGateRig(t)
	r.create("orders")
	r.set("k*", `{"limit":200,"window_ms":600000}`)
	for i := range 300 {
		for range 200 {
			set, err := r.s.core.gates.Set([]string{fmt.Sprint("k", i)}, r.now.Load())
			require.NoError(t, err)
			_, _, ok := set.Acquire(r.now.Add(1), throttle.One, nil)
			require.True(t, ok)
		}
	}
	r.s.stopThrottles()
	saved := r.stored(stateGates)
	require.Greater(t, len(saved), 5)
	for key, value := range saved {
		require.Less(t, len(value), 1<<20, key)
	}
	r.restart(true, time.Second) // it is all there already
	require.False(t, r.s.throttles.start.Crashed)
	for i := range 300 {
		require.Equal(t, 0, r.admits(fmt.Sprint("k", i)))
	}
	require.Empty(t, r.stored(stateGates))
}
