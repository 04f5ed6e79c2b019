package control

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// throttle-set changes limits all at once or not at all.
func TestThrottleSet(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		info := r.set("stripe", `{"rate":10,"burst":20,"concurrency":5}`)
		require.Equal(t, "operator", info.Source)
		require.Equal(t, wire.Rate("10"), *info.Rate)
		require.EqualValues(t, 20, *info.Burst)
		require.EqualValues(t, 5, *info.Concurrency)
		require.Nil(t, info.Limit)
		require.EqualValues(t, 20, info.Tokens)
		require.Equal(t, "open", info.State)
		require.Equal(t, map[string]string{
			"throttle:stripe:rate": "10", "throttle:stripe:burst": "20", "throttle:stripe:concurrency": "5",
		}, r.stored("throttle:"))
		v, ok := r.c.Get("throttle:stripe:rate")
		require.True(t, ok && v == "10", "hooks see it")

		r.set("stripe", `{"rate":"20","unset":["concurrency","limit"]}`)
		require.Equal(t, throttle.Limits{Rate: perSecond(20), Burst: 20_000}, r.limits("stripe"))
		require.Equal(t, []string{
			"throttle-set throttle:stripe:burst: none -> 20",
			"throttle-set throttle:stripe:concurrency: none -> 5",
			"throttle-set throttle:stripe:rate: none -> 10",
			"throttle-set throttle:stripe:concurrency: 5 -> none",
			"throttle-set throttle:stripe:rate: 10 -> 20",
		}, r.trail())

		// A key that a subject cannot contain is in the body.
		r.set("_", `{"key":"a key","limit":3,"window_ms":1000}`)
		require.EqualValues(t, 3, r.limits("a key").Limit)

		before := r.stored("")
		for _, body := range []string{ // what package wire lets through
			`{"burst":1.0005}`, `{"rate":5,"burst":1.0005,"for_ms":1}`, `{"rate":1,"if":{"burst":1.0005}}`,
		} {
			_, err := r.trySet("stripe", body)
			refused(t, wire.CodeBadThrottle, err, body)
		}
		require.Equal(t, before, r.stored(""), "what is refused changes nothing")
	})
}

// throttle-set refuses limits without effect, and a change that would leave one, for lasting
// limits and overrides.
func TestThrottleSetRefusesLimitsWithoutEffect(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set("whole", `{"rate":1,"limit":3,"window_ms":1000}`)
		r.set("over", `{"concurrency":2}`)
		r.set("over", `{"limit":3,"window_ms":1000,"for_ms":60000}`)
		r.set("tenant:*", `{"rate":5,"limit":3,"window_ms":1000}`)
		before := r.stored("")
		for _, tc := range []struct{ key, body, part string }{
			{"k", `{"limit":3}`, "limit is 3 and has no effect without a window"},
			{"k", `{"limit":3,"rate":1}`, "give window_ms (--window), too"},
			{"k*", `{"limit":3}`, "give window_ms"},
			{"tenant:a", `{"limit":3}`, "give window_ms"}, // a prefix lends nothing
			{"over", `{"limit":4}`, "give window_ms"},     // nor does an override to what lasts
			{"k", `{"window_ms":1000}`, "window_ms is 1000 and has no effect without a limit"},
			{"k", `{"burst":2.5}`, "burst is 2.5 and has no effect without a rate"},
			{"whole", `{"limit":4,"unset":["window_ms"]}`, "unset limit, too"},
			{"whole", `{"unset":["window_ms"]}`, "limit is 3 and has no effect without a window: unset limit, too"},
			{"whole", `{"window_ms":2,"unset":["limit"]}`, "give limit"},
			{"whole", `{"burst":2,"unset":["rate"]}`, "give rate"},
		} {
			for _, body := range []string{tc.body, tc.body[:len(tc.body)-1] + `,"for_ms":1000}`} {
				_, err := r.trySet(tc.key, body)
				refused(t, wire.CodeBadThrottle, err, tc.key, body)
				require.Contains(t, err.Description, tc.part, "%s %s", tc.key, body)
			}
		}
		require.Equal(t, before, r.stored(""), "what is refused changes nothing")

		r.set("whole", `{"limit":4}`)
		r.set("whole", `{"window_ms":2000,"for_ms":1000}`)
		r.set("whole", `{"burst":2}`)
		r.set("whole", `{"unset":["limit"]}`) // takes a limit away, and leaves nothing that seems to be one
		r.set("whole", `{"unset":["window_ms","rate"]}`)
		require.Zero(t, r.limits("whole"))

		// The runtime configuration has one key for each limit.
		r.put("throttle:c:limit", "3")
		r.set("c", `{"concurrency":1}`)
		r.set("c", `{"window_ms":1000}`)
		require.EqualValues(t, 3, r.limits("c").Limit)
	})
}

// Conditions compare values by meaning, including unset ones.
func TestThrottleCompareAndSet(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set("k", `{"rate":"0.5","burst":2,"limit":9,"window_ms":1000}`)
		for _, no := range []string{
			`{"rate":"0.6"}`, `{"rate":""}`, `{"burst":2.5}`, `{"limit":8}`, `{"window_ms":0}`, `{"concurrency":1}`,
			`{"rate":"0.5","limit":8}`,
		} {
			_, err := r.trySet("k", `{"rate":7,"concurrency":7,"if":`+no+`}`)
			refused(t, wire.CodeThrottleMismatch, err, no)
			require.Equal(t, 409, err.Code)
		}
		_, err := r.trySet("k", `{"rate":7,"if":{"rate":"0.6"}}`)
		require.Contains(t, err.Description, "0.5", "it says what is set")
		require.Equal(t, throttle.Rate{Cost: 1000, Per: 2e9}, r.limits("k").Rate)
		r.set("k", `{"rate":7,"if":{"rate":"1/2","burst":2.0,"concurrency":0,"limit":9}}`)
		require.Equal(t, perSecond(7), r.limits("k").Rate)

		// An override compares with the limits in force, a lasting change with the lasting ones.
		r.set("k", `{"rate":8,"for_ms":1000,"if":{"rate":7}}`)
		_, err = r.trySet("k", `{"rate":9,"for_ms":1000,"if":{"rate":7}}`)
		refused(t, wire.CodeThrottleMismatch, err)
		r.set("k", `{"rate":9,"if":{"rate":7}}`)
		require.Equal(t, perSecond(8), r.limits("k").Rate)
		r.pass(time.Second)
		require.Equal(t, perSecond(9), r.limits("k").Rate)
	})
}

// Overrides and pauses apply at once, and their reply comes when they are on disk. Lasting
// changes apply when they are on disk.
func TestOrderOfMemoryAndDisk(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.create("orders")
		r.set("k", `{"rate":10}`)
		for name, tc := range map[string]struct {
			change func() *wire.Error
			before func() bool // it is on disk
			after  func() bool
		}{
			"override": {
				func() *wire.Error { _, err := r.trySet("k", `{"rate":5,"for_ms":60000}`); return err },
				func() bool { return r.limits("k").Rate == perSecond(5) }, func() bool { return r.limits("k").Rate == perSecond(5) },
			},
			"pause": {
				func() *wire.Error { _, err := r.tryPause(`{"kind":"queue","name":"orders"}`); return err },
				func() bool { return len(r.queues.told()) == 1 }, func() bool { return len(r.queues.told()) == 1 },
			},
			"limits": {
				func() *wire.Error { _, err := r.trySet("l", `{"rate":6}`); return err },
				func() bool { return r.limits("l") == throttle.Limits{} }, func() bool { return r.limits("l").Rate == perSecond(6) },
			},
			"value": {
				func() *wire.Error {
					_, err := r.c.ConfigSet(verb(api.VerbConfigSet), "v", api.ConfigSetRequest{Value: "1"})
					return err
				},
				func() bool { _, ok := r.c.Get("v"); return !ok }, func() bool { _, ok := r.c.Get("v"); return ok },
			},
			"reload": {
				func() *wire.Error {
					cfg := config.Default()
					cfg.Throttles = []config.ThrottleTable{{Key: "file", Concurrency: 2}}
					p, err := r.c.plan(cfg)
					require.NoError(t, err)
					_, werr := r.c.apply(t.Context(), p)
					return werr
				},
				func() bool { return r.limits("file") == throttle.Limits{} }, func() bool { return r.limits("file").Concurrency == 2 },
			},
		} {
			r.kv.slow = make(chan struct{})
			answered := false
			var err *wire.Error
			go func() { err = tc.change(); answered = true }()
			synctest.Wait()
			require.False(t, answered, name)
			require.True(t, tc.before(), name)
			close(r.kv.slow)
			synctest.Wait()
			require.True(t, answered, name)
			require.Nil(t, err, name)
			require.True(t, tc.after(), name)
		}
		r.kv.slow = nil
	})
}

// With a failing disk a lasting change does not apply, and an override is not confirmed.
func TestThrottleSetWhenTheDiskFails(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set("k", `{"rate":10}`)
		r.kv.fail(errDisk)
		_, err := r.trySet("k", `{"rate":5}`)
		refused(t, wire.CodeOutcomeUnknown, err)
		_, err = r.tryClear("k")
		refused(t, wire.CodeOutcomeUnknown, err)
		require.Equal(t, perSecond(10), r.limits("k").Rate)
		_, err = r.trySet("k", `{"rate":5,"for_ms":1000}`)
		refused(t, wire.CodeOutcomeUnknown, err)
		require.Equal(t, perSecond(5), r.limits("k").Rate)
		r.kv.fail(store.ErrClosed)
		_, err = r.trySet("k", `{"rate":5}`)
		refused(t, wire.CodeDraining, err)
		r.kv.fail(nil)
	})
}

// An override ends by itself, even after a restart or while no process runs.
func TestOverride(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.create("orders")
		r.set("k", `{"rate":10,"concurrency":3}`)
		info := r.set("k", `{"rate":1,"limit":5,"window_ms":1000,"unset":["concurrency"],"for_ms":60000}`)
		require.Equal(t, "override", info.Source)
		require.Equal(t, in(time.Minute), info.OverrideUntil)
		overridden := throttle.Limits{Rate: perSecond(1), Limit: 5, Window: int64(time.Second)}
		require.Equal(t, overridden, r.limits("k"))
		require.Equal(t, "10", r.stored("throttle:k:rate")["throttle:k:rate"], "what lasts is not touched")
		limits, by := r.c.LimitsOf("k")
		require.Equal(t, WireLimits(overridden), limits)
		require.Equal(t, "override until "+info.OverrideUntil, by)
		require.JSONEq(t, `{"set":{"rate":"1","limit":"5","window_ms":"1000"},"unset":["concurrency"],"until":`+
			toJSON(t, now()+int64(time.Minute))+`}`, r.stored(stateOverride)[stateOverride+"k"])

		r.restart(false, 30*time.Second)
		require.Equal(t, overridden, r.limits("k"))
		require.Equal(t, info.OverrideUntil, r.show("k").OverrideUntil)
		r.pass(30*time.Second - 1)
		require.Equal(t, overridden, r.limits("k"))
		r.pass(1)
		require.Equal(t, throttle.Limits{Rate: perSecond(10), Concurrency: 3}, r.limits("k"))
		require.Empty(t, r.stored(stateOverride))
		require.Equal(t, "operator", r.show("k").Source)
		_, by = r.c.LimitsOf("k")
		require.Equal(t, "operator", by)

		r.set("k", `{"rate":2,"for_ms":60000}`)
		r.restart(true, time.Hour)
		require.Equal(t, perSecond(10), r.limits("k").Rate)
		require.Empty(t, r.stored(stateOverride))
		trail := r.trail()
		require.Equal(t, "override-ended throttle:k:override: rate 2, until "+in(time.Minute-time.Hour)+" -> none", trail[len(trail)-1])
		require.Contains(t, trail, "throttle-set throttle:k:override: none -> rate 1, limit 5, window_ms 1000, without concurrency, until "+info.OverrideUntil)

		var keys []string
		for _, e := range r.events.take() {
			require.Equal(t, wire.EventConfigChanged, e.Type)
			keys = append(keys, e.Key)
		}
		require.Equal(t, []string{
			"throttle:k:concurrency", "throttle:k:rate", "throttle:k:override", "throttle:k:override", "throttle:k:override",
		}, keys)
	})
}

// A second override replaces the first one as a whole.
func TestSecondOverride(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set("k", `{"rate":10}`)
		r.set("k", `{"concurrency":1,"for_ms":1000}`)
		r.set("k", `{"rate":5,"for_ms":5000}`)
		require.Equal(t, throttle.Limits{Rate: perSecond(5)}, r.limits("k"))
		r.pass(time.Second)
		require.Equal(t, throttle.Limits{Rate: perSecond(5)}, r.limits("k"), "the end of the first one does not end the second")
		r.set("k", `{"rate":6,"for_ms":31536000000}`)
		r.pass(4 * time.Second)
		require.Equal(t, perSecond(6), r.limits("k").Rate)
		r.pass(365 * 24 * time.Hour)
		require.Equal(t, perSecond(10), r.limits("k").Rate)
	})
}

// The override of a prefix applies to all of its keys.
func TestOverrideOfAPrefix(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set("t:*", `{"rate":10}`)
		info := r.set("t:*", `{"rate":1,"for_ms":1000}`)
		require.Equal(t, "override", info.Source)
		require.Equal(t, perSecond(1), r.limits("t:a").Rate)
		_, by := r.c.LimitsOf("t:a")
		require.Equal(t, "prefix t:*, override until "+info.OverrideUntil, by)
		require.Equal(t, "prefix t:*, override", r.show("t:a").Source)
		require.Equal(t, wire.Rate("1"), *r.show("t:a").Rate)
		r.set("t:b", `{"concurrency":2,"for_ms":2000}`)
		require.Equal(t, throttle.Limits{Concurrency: 2}, r.limits("t:b"), "the limits of a key hide the limits of the prefix")
		r.pass(time.Second)
		require.Equal(t, perSecond(10), r.limits("t:a").Rate)
		r.pass(time.Second)
		require.Equal(t, perSecond(10), r.limits("t:b").Rate)
		_, by = r.c.LimitsOf("t:b")
		require.Equal(t, "prefix t:*, operator", by)
		r.clear("t:*")
		require.Zero(t, r.limits("t:b"))
		_, by = r.c.LimitsOf("t:b")
		require.Empty(t, by)
	})
}

func TestThrottleClear(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set("k", `{"rate":10,"concurrency":3}`)
		r.set("k", `{"rate":1,"for_ms":60000}`)
		info := r.clear("k")
		require.Equal(t, "none", info.Source)
		require.Zero(t, r.limits("k"))
		require.Empty(t, r.stored("throttle:"))
		require.Empty(t, r.stored(stateOverride))
		r.pass(time.Hour)
		require.Len(t, r.trail(), 6, "the override does not end again")
		require.Equal(t, "throttle-clear throttle:k:override: rate 1, until "+in(time.Minute-time.Hour)+" -> none", r.trail()[5])

		_, err := r.tryClear("k")
		refused(t, wire.CodeThrottleNotFound, err)
		r.set("o", `{"rate":1,"for_ms":60000}`)
		r.clear("o")
		require.Zero(t, r.limits("o"), "an override alone")
	})
}

func TestThrottleShowAndList(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		missing := func(key string) {
			t.Helper()
			_, err := r.c.ThrottleShow(api.GateKeyRequest{Key: key})
			refused(t, wire.CodeThrottleNotFound, err)
		}
		list := func(prefix string, offset, limit int) (keys []string, total int) {
			list := r.c.ThrottleList(api.KeyListRequest{Prefix: prefix, Offset: offset, Limit: limit})
			require.NotNil(t, list.Throttles, "an empty list is [] in JSON")
			for _, i := range list.Throttles {
				keys = append(keys, i.Key+" "+i.Source+" "+i.State)
			}
			return keys, list.Total
		}
		missing("k")
		_, total := list("", 0, 100)
		require.Zero(t, total)

		r.set("a", `{"rate":2}`)
		require.Equal(t, 2, r.admits("a"))
		info := r.show("a")
		require.Equal(t, "rate", info.State)
		require.Equal(t, in(time.Second/2), info.AdmitsAt)
		require.Zero(t, info.Tokens)
		require.EqualValues(t, 2, info.InFlight)
		r.pass(time.Second / 4)
		require.InDelta(t, 0.5, r.show("a").Tokens, 0)

		r.set("b", `{"concurrency":1}`)
		require.Equal(t, 1, r.admits("b"))
		require.Equal(t, "concurrency", r.show("b").State)
		require.Empty(t, r.show("b").OpensAt)
		r.set("c", `{"limit":1,"window_ms":1000}`)
		require.Equal(t, 1, r.admits("c"))
		require.EqualValues(t, 1, r.show("c").InWindow)
		require.Equal(t, "window", r.show("c").State)

		r.set("p:*", `{"rate":"0.5","burst":3}`)
		require.EqualValues(t, 3, r.show("p:new").Tokens, "as a gate would be that is not there yet")
		require.Equal(t, "prefix p:*, operator", r.show("p:new").Source)
		require.Equal(t, wire.Rate("0.5"), *r.show("p:new").Rate)
		missing("x*")
		r.set("o", `{"rate":1,"for_ms":1000}`)
		r.put("throttle:incomplete:burst", "4")
		info = r.show("incomplete")
		require.EqualValues(t, 4, *info.Burst)
		require.Equal(t, "operator", info.Source)
		require.Positive(t, r.admits("used"))
		r.pause(`{"kind":"throttle","name":"paused"}`)
		require.Equal(t, "paused", r.show("paused").State)
		require.Equal(t, "resumed", r.show("paused").PausedUntil)

		all := []string{
			"a operator rate", "b operator concurrency", "c operator window", "incomplete operator open", "o override open",
			"p:* operator open", "paused none paused", "used none open",
		}
		got, total := list("", 0, 100)
		require.Equal(t, all, got)
		require.Equal(t, len(all), total)
		got, total = list("", 2, 3)
		require.Equal(t, all[2:5], got)
		require.Equal(t, len(all), total)
		got, total = list("p", 0, 100)
		require.Equal(t, all[5:7], got)
		require.Equal(t, 2, total)
	})
}
