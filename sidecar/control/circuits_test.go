package control

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/circuit"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// fail makes deliveries to a circuit fail.
func (r *rig) fail(key string, n int) {
	r.t.Helper()
	c := r.circuits.Use(key, now())
	for range n {
		pass, _ := c.Allow(now())
		require.NotZero(r.t, pass)
		c.Done(pass, now(), breaker.Failure)
	}
	c.Announce()
	r.circuits.Drop(c, now(), nil)
}

func (r *rig) open1(tail, body string) api.CircuitInfo {
	r.t.Helper()
	req, err := api.VerbCircuitOpen.Parse(tail, []byte(body))
	require.Nil(r.t, err)
	info, err := r.c.CircuitOpen(verb(api.VerbCircuitOpen), req)
	require.Nil(r.t, err)
	return info
}

func TestCircuitVerbs(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		done := func(info api.CircuitInfo, err *wire.Error) api.CircuitInfo {
			t.Helper()
			require.Nil(t, err)
			return info
		}
		key := func(key string) api.GateKeyRequest { return api.GateKeyRequest{Key: key} }
		minute := in(time.Minute)

		i := r.open1("stripe", "")
		require.Equal(t, api.CircuitInfo{
			Key: "stripe", State: "open", OpenUntil: "closed", Cause: "by hand",
			Threshold: 10, CooldownMs: 300_000, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 1, Source: "default", FailureWindowMs: 60_000,
		}, i)
		shown := r.circuit("stripe")
		require.Equal(t, []api.CircuitChange{{At: in(0), Old: "closed", New: "open", Cause: "by hand"}}, shown.History.Changes)
		require.Equal(t, api.Source{By: "default"}, shown.Sources["threshold"])
		shown.History, shown.Sources = nil, nil
		require.Equal(t, i, shown)
		require.Len(t, r.stored("\x00circuit/"), 1)
		i = r.open1("_", `{"key":"stripe","for_ms":60000}`)
		require.Equal(t, minute, i.OpenUntil)
		r.pass(time.Minute)
		require.Equal(t, "half-open", r.circuit("stripe").State)
		require.Equal(t, "closed", done(r.c.CircuitClose(verb(api.VerbCircuitClose), key("stripe"))).State)
		require.Empty(t, r.stored("\x00circuit/"))

		r.fail("a b", 10)
		i = r.circuit("a b")
		require.Equal(t, "open failures", i.State+" "+i.Cause)
		i = done(r.c.CircuitClose(verb(api.VerbCircuitClose), key("a b")))
		require.EqualValues(t, 1, i.Openings.Count)
		i.Openings = nil
		require.Equal(t, api.CircuitInfo{
			Key: "a b", State: "closed",
			Threshold: 10, CooldownMs: 300_000, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 1, Source: "default", FailureWindowMs: 60_000,
		}, i)
		c := r.circuits.Use("a b", now())
		c.RetryAfter(now(), now()+int64(time.Minute))
		require.Equal(t, "open", r.circuit("a b").State)
		require.Equal(t, "closed", done(r.c.CircuitReset(verb(api.VerbCircuitReset), key("a b"))).State)
		r.circuits.Drop(c, now(), nil)

		r.put("circuit:set:threshold", "7")
		for _, do := range []func(Actor, api.GateKeyRequest) (api.CircuitInfo, *wire.Error){r.c.CircuitClose, r.c.CircuitReset} {
			require.Equal(t, 7, done(do(Actor{}, key("set"))).Threshold, "it need not be in use")
			_, err := do(Actor{}, key("nobody"))
			refused(t, wire.CodeCircuitNotFound, err)
		}
		list := r.c.CircuitList(api.CircuitListRequest{KeyListRequest: api.KeyListRequest{Prefix: "s", Limit: 1}})
		require.Equal(t, "set", list.Circuits[0].Key)
		require.Equal(t, `{"total":0,"circuits":[]}`, toJSON(t, r.c.CircuitList(api.CircuitListRequest{KeyListRequest: api.KeyListRequest{Prefix: "x", Limit: 10}})))
	})
}

// The reply to an operator's change comes when it is on disk.
func TestCircuitVerbsAndTheDisk(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.open1("before", "")
		require.NoError(t, r.st.Close())
		_, err := r.c.CircuitOpen(verb(api.VerbCircuitOpen), api.CircuitOpenRequest{Key: "x"})
		refused(t, wire.CodeDraining, err)
		_, err = r.c.CircuitClose(verb(api.VerbCircuitClose), api.GateKeyRequest{Key: "before"})
		refused(t, wire.CodeDraining, err)
	})
	refused(t, wire.CodeOutcomeUnknown, outcome(errors.Join(nil, errDisk)))
}

func TestClosingAPausedCircuitEndsThePause(t *testing.T) {
	for verb, end := range map[string]func(*Control, Actor, api.GateKeyRequest) (api.CircuitInfo, *wire.Error){
		"circuit-close": (*Control).CircuitClose,
		"circuit-reset": (*Control).CircuitReset,
	} {
		t.Run(verb, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.create("orders")
				r.pause(`{"kind":"circuit","name":"stripe"}`)
				info, err := end(r.c, Actor{By: verb}, api.GateKeyRequest{Key: "stripe"})
				require.Nil(t, err)
				require.Equal(t, "closed", info.State)
				require.Empty(t, r.pauses())
				require.Equal(t, verb+" pause:circuit:stripe: until resumed -> none", r.trail()[1])
				r.restart(true, 0)
				_, ok := r.circuits.Info("stripe")
				require.False(t, ok, "nor does a restart bring it back")
			})
		})
	}
}

// A pause is restored even if its circuit was not written in time.
func TestPausedCircuitAfterACrash(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.create("orders")
		r.pause(`{"kind":"circuit","name":"stripe","for_ms":60000}`)
		b := StoreKV(r.st.Submit)
		require.NoError(t, <-b.Write(Batch{Delete: []string{"\x00circuit/stripe"}}))
		r.restart(true, time.Second)
		require.Equal(t, "open", r.circuit("stripe").State)
		r.pass(time.Minute)
		require.Equal(t, "closed", r.circuit("stripe").State)
		require.Empty(t, r.pauses())
	})
}

// The runtime configuration wins over [circuit_defaults], limit by limit.
func TestCircuitLimits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		std := circuit.Settings{
			Breaker:       breaker.Config{Threshold: 10, Cooldown: 5 * time.Minute, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 1},
			FailureWindow: time.Minute,
		}
		defaults := config.Default().CircuitDefaults
		require.Equal(t, std, circuitSettings(&defaults))
		require.Equal(t, circuit.Settings{
			Breaker:     breaker.Config{Threshold: 1, Cooldown: 2 * time.Millisecond, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 4},
			MaxFailures: 5, FailureWindow: 6 * time.Millisecond, FailureHold: 7 * time.Millisecond,
		}, circuitSettings(&config.CircuitLimits{
			Threshold: 1, CooldownMs: 2, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 4, MaxFailures: 5, FailureWindowMs: 6, FailureHoldMs: 7,
		}))

		r.cfg.CircuitDefaults.Threshold, r.cfg.CircuitDefaults.MaxFailures = 20, 2
		r.cfg.Circuits = []config.CircuitTable{{Key: "stripe", CircuitLimits: config.CircuitLimits{CooldownMs: 1000, HalfOpenMaxCalls: 2}}}
		r.restart(false, 0)
		r.put("circuit:stripe:half_open_successes", "2")
		r.put("circuit:a:b:threshold", "8")
		r.put("circuit:free:max_failures", "0")
		i := r.circuit("stripe")
		require.Equal(t, []int64{20, 1000, 2, 2}, []int64{int64(i.Threshold), i.CooldownMs, int64(i.HalfOpenMaxCalls), int64(i.HalfOpenSuccesses)})
		require.Equal(t, 8, r.circuit("a:b").Threshold)
		r.fail("other", 2)
		require.Equal(t, "closed", r.circuit("other").State)
		r.fail("other", 1)
		require.Equal(t, "max_failures", r.circuit("other").Cause, "of the defaults")
		r.fail("free", 19)
		require.Equal(t, "closed", r.circuit("free").State, "0 is any number")
		r.delete("circuit:a:b:threshold")
		_, ok := r.circuits.Info("a:b")
		require.False(t, ok)
	})
}
