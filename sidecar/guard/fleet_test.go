package guard

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/circuit"
	"github.com/filaq/fila/sidecar/fleet"
	"github.com/filaq/fila/sidecar/fleet/fleettest"
	fleetlimit "github.com/filaq/fila/sidecar/limit"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire/api"
)

// share makes a fleet share the limits of a rig.
func (r *rig) share(b *fleettest.Bucket) (stop func()) {
	r.t.Helper()
	log, now := slog.New(slog.DiscardHandler), func() int64 { return time.Now().UnixNano() }
	f := fleet.New(fleet.Options{Log: log, Bucket: b.Of(), Now: now, Instance: "i", Degraded: func(error) {}})
	l := fleetlimit.New(fleetlimit.Options{
		Log: log, Now: now, Fleet: f, Notify: func([]*throttle.Wait) {}, Conflict: func(fleetlimit.Conflict) {},
		Kin: func(string) bool { return false }, Shares: func(string) bool { return true }, SetAt: func(string) int64 { return 1 },
	})
	l.Attach(r.gates)
	r.opt.Fleet, r.opt.SharesLimits = l, func(string) bool { return true }
	require.NoError(r.t, f.Start(r.t.Context()))
	return f.Stop
}

// A caller that returns after whole seconds gets what there is, although leases have ended by
// then, and a refusal has the state of the limit in the fleet.
func TestCallsUnderSharedLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		limits  throttle.Limits
		refused api.GuardLimit
		retry   int64 // at least
	}{
		"window": {
			throttle.Limits{Limit: 10, Window: int64(time.Hour)},
			api.GuardLimit{Key: "v", Gate: "window", Limit: 10, WindowMs: 3_600_000},
			3_500_000,
		},
		"rate": {
			throttle.Limits{Rate: rate(t, "0.0001"), Burst: 10 * throttle.One},
			api.GuardLimit{Key: "v", Gate: "rate", Limit: 10},
			9_000_000,
		},
		"both": {
			throttle.Limits{Rate: rate(t, "1000"), Burst: 10 * throttle.One, Limit: 10, Window: int64(time.Hour)},
			api.GuardLimit{Key: "v", Gate: "window", Limit: 10, WindowMs: 3_600_000},
			3_500_000,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fleettest.New()
				rigs := []*rig{newRig(t), newRig(t)}
				for _, r := range rigs {
					defer r.share(b)()
					r.limit("v", tc.limits)
				}
				allowed := 0
				for range 30 {
					for _, r := range rigs {
						if a := r.ask("v"); a.Allowed {
							allowed++
							r.done("v", a.Permit, api.GuardOK)
						}
						time.Sleep(time.Second)
					}
				}
				require.Equal(t, 10, allowed)
				for _, r := range rigs {
					a := r.ask("v")
					require.False(t, a.Allowed)
					require.Greater(t, a.RetryAfterMs, tc.retry)
					require.Positive(t, a.Limit.ResetS)
					st := r.SharedState("v", "me")
					require.False(t, st.Answer.Allowed)
					require.Zero(t, st.Limits[len(st.Limits)-1].Remaining)
					a.Limit.ResetS, a.Limit.ResetEpoch = 0, 0
					require.Equal(t, &tc.refused, a.Limit)
				}
			})
		})
	}
}

// The state of a key is the same at every fila, including leases of one of them.
func TestStateOfAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fleettest.New()
		rigs := []*rig{newRig(t), newRig(t)}
		for _, r := range rigs {
			defer r.share(b)()
			r.limit("v", throttle.Limits{
				Rate: rate(t, "0.0001"), Burst: 1000 * throttle.One, Limit: 1000, Window: int64(time.Hour), Concurrency: 100,
			})
		}
		for _, r := range rigs { // both have come before anything counts
			allowed := false
			for tries := 0; !allowed && tries < 5; tries++ { // what it borrows may be under way
				allowed = r.ask("v").Allowed
				time.Sleep(time.Second)
			}
			require.True(t, allowed)
		}
		time.Sleep(5 * time.Second)
		require.True(t, rigs[0].ask("v").Allowed)
		synctest.Wait()
		st := rigs[0].SharedState("v", "me")
		require.Len(t, st.Limits, 3)
		require.Less(t, st.Limits[0].Remaining, int64(997), "the rest of a lease is leased")
		require.Equal(t, st.Limits, rigs[1].SharedState("v", "me").Limits)
	})
}

// The actual cost of a call counts in the bucket of the fleet, and below zero the bucket refuses at
// all filas.
func TestCorrectedCostsOfAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fleettest.New()
		rigs := []*rig{newRig(t), newRig(t)}
		for _, r := range rigs {
			defer r.share(b)()
			r.limit("v", throttle.Limits{Rate: rate(t, "0.0001"), Burst: 100 * throttle.One})
		}
		call := func(r *rig, estimate, actual float64) {
			var a []api.GuardAnswer
			for tries := 0; tries < 5 && (a == nil || !a[0].Allowed); tries++ { // a lease may be under way
				time.Sleep(time.Second)
				a, _ = r.Check("me", api.GuardAsk{Key: "v", Cost: estimate, TTLMs: 60_000})
			}
			require.True(t, a[0].Allowed)
			time.Sleep(time.Second)
			_, err := r.Done(&api.GuardDoneRequest{Key: "v", Permit: a[0].Permit, Caller: "me", Outcome: api.GuardOK, Attempt: 1, Cost: &actual})
			require.Nil(t, err)
			time.Sleep(10 * time.Second) // what is left of leases is returned
		}
		remain := func(want int64) {
			for _, r := range rigs {
				require.Equal(t, want, r.SharedState("v", "me").Limits[0].Remaining)
			}
		}
		call(rigs[0], 1, 1)
		call(rigs[1], 1, 1) // both have joined
		remain(98)
		call(rigs[0], 1, 61)
		remain(37)
		call(rigs[1], 30, 2)
		remain(35)
		call(rigs[1], 1, 90)
		remain(0)
		for _, r := range rigs {
			require.Greater(t, r.ask("v").RetryAfterMs, int64(500_000), "the bucket is below zero")
		}
	})
}

// openRecords is a fleet whose records have every circuit open. The circuits have not learned
// that yet.
type openRecords struct {
	circuit.Fleet
	value []byte
}

func (f openRecords) Register(string, fleet.Kind) {}

func (f openRecords) Find(string, string) (fleet.Entry, bool) {
	return fleet.Entry{Value: f.value, Rev: 1}, true
}

// The state of a key refuses a call as a check would, even if no check has touched its circuit.
func TestStateOfAnOpenSharedCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fleettest.New()
		f := fleet.New(fleet.Options{
			Log: slog.New(slog.DiscardHandler), Bucket: b.Of(), Instance: "a",
			Now: func() int64 { return time.Now().UnixNano() }, Degraded: func(error) {},
		})
		a := newSharedRig(t, f)
		a.circuit(circuit.Settings{Breaker: breaker.Config{Threshold: 1, Cooldown: time.Minute}})
		require.NoError(t, f.Start(t.Context()))
		defer f.Stop()
		a.done("v", a.allowed("v"), api.GuardError)
		synctest.Wait()
		var value []byte
		for key, e := range b.Entries() {
			if strings.HasPrefix(key, "c.") {
				value = e.Value
			}
		}
		require.NotNil(t, value)

		other := newSharedRig(t, openRecords{f, value})
		for _, st := range []api.GuardStatus{other.State("v", "me"), other.SharedState("v", "me")} {
			require.False(t, st.Answer.Allowed)
			require.Equal(t, "circuit", st.Answer.Gate)
			require.Equal(t, "open", st.Circuit.State)
			require.Equal(t, int64(60_000), st.Answer.RetryAfterMs)
		}
		require.Equal(t, "circuit", other.ask("v").Gate)
	})
}
