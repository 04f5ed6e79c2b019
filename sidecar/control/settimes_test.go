package control

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// A restart keeps the set times of limits, since it sets nothing.
func TestWhenLimitsWereSet(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		require.Nil(t, setThrottle(r, "early", 1, 0))
		require.Empty(t, r.stored(stateChanged), "nothing is shared")
		require.Zero(t, r.c.ThrottleSetAt("early"))

		r.share = func(*throttle.Gates) {}
		r.cfg.Throttles = []config.ThrottleTable{{Key: "vendor:*", Concurrency: 5}}
		r.restart(false, time.Hour)
		set := now()
		require.Equal(t, set, r.c.ThrottleSetAt("vendor:x"))
		r.restart(true, time.Hour)
		require.Equal(t, set, r.c.ThrottleSetAt("vendor:x"), "the file is as it was")
		require.Zero(t, r.c.ThrottleSetAt("early"), "it was set before anything was shared")
		set = now()
		require.Nil(t, setThrottle(r, "vendor:x", 3, 0))
		require.Equal(t, set, r.c.ThrottleSetAt("vendor:x"))
		r.pass(time.Hour)
		r.kv.fail(nil)
		require.Nil(t, setThrottle(r, "vendor:x", 1, 60_000))
		require.Len(t, r.kv.writes, 1, "limits and when they were set are kept together")
		require.Equal(t, now(), r.c.ThrottleSetAt("vendor:x"))
		r.pass(time.Hour)
		ended := now() - int64(59*time.Minute)
		require.Equal(t, ended, r.c.ThrottleSetAt("vendor:x"), "the end of an override")
		r.restart(false, 0)
		require.Equal(t, ended, r.c.ThrottleSetAt("vendor:x"))
		_, err := r.c.ThrottleClear(verb(api.VerbThrottleClear), api.GateKeyRequest{Key: "vendor:x"})
		require.Nil(t, err)
		require.Equal(t, now(), r.c.ThrottleSetAt("vendor:x"), "the prefix counts again, from now on")
		require.Equal(t, throttle.Limits{Concurrency: 5}, r.limits("vendor:x"))
	})
}

func setThrottle(r *rig, key string, concurrency, forMs int64) *wire.Error {
	_, err := r.c.ThrottleSet(verb(api.VerbThrottleSet), api.ThrottleSetRequest{Key: key, ForMs: forMs, ThrottleLimits: api.ThrottleLimits{Concurrency: &concurrency}})
	return err
}

// A restart keeps the set times of circuit limits, including defaults.
func TestWhenCircuitLimitsWereSet(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.share = func(*throttle.Gates) {}
		setAt := func(key string) int64 { return r.c.circuitsSetAt(&r.cfg.CircuitDefaults)(key) }
		r.restart(false, time.Hour)
		require.Zero(t, setAt("x"), "the defaults of fila were never set")
		require.Empty(t, r.stored(stateChanged))

		was := r.cfg.CircuitDefaults
		r.cfg.CircuitDefaults.Threshold = 7
		r.restart(true, time.Hour)
		defaults := now()
		require.Equal(t, defaults, setAt("x"))
		r.restart(true, time.Hour)
		require.Equal(t, defaults, setAt("x"), "the file is as it was")

		r.cfg.Circuits = []config.CircuitTable{
			{Key: "whole", CircuitLimits: config.CircuitLimits{Threshold: 1, CooldownMs: 2, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 4}},
			{Key: "part", CircuitLimits: config.CircuitLimits{Threshold: 1}},
		}
		r.restart(false, time.Hour)
		tables := now()
		r.restart(false, time.Hour)
		require.Equal(t, []int64{defaults, tables, tables}, []int64{setAt("x"), setAt("whole"), setAt("part")})

		r.cfg.CircuitDefaults = was
		r.restart(false, time.Hour)
		back := now()
		require.Equal(t, []int64{back, tables, back}, []int64{setAt("x"), setAt("whole"), setAt("part")})
		r.restart(true, time.Hour)
		require.Equal(t, back, setAt("x"), "they are fila's again, and that was a change")
	})
}
