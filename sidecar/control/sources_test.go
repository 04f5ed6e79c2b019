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

// TestSourcesOfLimits: each limit of a throttle or circuit says whether the file, an operator, an
// override or a default has set it, who that was and when, also over a restart.
func TestSourcesOfLimits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Throttles = []config.ThrottleTable{{Key: "stripe", Rate: "10", Burst: 20}}
		r.cfg.Circuits = []config.CircuitTable{{Key: "bank", CircuitLimits: config.CircuitLimits{Threshold: 3}}}
		r.restart(false, 0)
		file := api.Source{By: "file", At: in(0)}
		require.Equal(t, api.Sources{"rate": file, "burst": file}, r.show("stripe").Sources)

		r.pass(time.Minute)
		maria := Actor{By: api.VerbThrottleSet.Name, Sender: api.Sender{Client: "maria@ops"}}
		_, err := r.c.ThrottleSet(maria, api.ThrottleSetRequest{Key: "stripe", ThrottleLimits: api.ThrottleLimits{Rate: new(wire.Rate("5")), Concurrency: new(int64(2))}})
		require.Nil(t, err)
		byMaria := api.Source{By: "operator", Client: "maria@ops", At: in(0)}
		require.Equal(t, api.Sources{"rate": byMaria, "burst": file, "concurrency": byMaria}, r.show("stripe").Sources)

		r.pass(time.Minute)
		_, err = r.c.ThrottleSet(Actor{By: api.VerbThrottleSet.Name, Sender: api.Sender{Client: "otto"}}, api.ThrottleSetRequest{
			Key: "stripe", ThrottleLimits: api.ThrottleLimits{Rate: new(wire.Rate("1"))}, Unset: []string{"burst"}, ForMs: 60_000,
		})
		require.Nil(t, err)
		require.Equal(t, api.Sources{"rate": {By: "override", Client: "otto", At: in(0)}, "concurrency": byMaria}, r.show("stripe").Sources)
		r.pass(2 * time.Minute)
		require.Equal(t, api.Sources{"rate": byMaria, "burst": file, "concurrency": byMaria}, r.show("stripe").Sources)

		_, err = r.c.ThrottleSet(maria, api.ThrottleSetRequest{Key: "tenant:*", ThrottleLimits: api.ThrottleLimits{Concurrency: new(int64(7))}})
		require.Nil(t, err)
		byPrefix := api.Sources{"concurrency": {By: "operator", Client: "maria@ops", At: in(0)}}
		require.Equal(t, byPrefix, r.show("tenant:acme").Sources)
		require.Equal(t, byPrefix, r.show("tenant:*").Sources)

		none := api.Source{By: "default"}
		_, err = r.c.ConfigSet(Actor{By: api.VerbConfigSet.Name, Sender: api.Sender{Client: "otto"}}, "circuit:bank:cooldown_ms", api.ConfigSetRequest{Value: "1000"})
		require.Nil(t, err)
		byOtto := api.Source{By: "operator", Client: "otto", At: in(0)}
		want := api.Sources{
			"threshold": file, "cooldown_ms": byOtto, "half_open_max_calls": none, "half_open_successes": none,
			"max_failures": none, "failure_window_ms": none, "failure_hold_ms": none,
		}
		require.Equal(t, want, r.circuit("bank").Sources)

		// The file wins at the start. A value that it leaves as it was has no newer entry.
		r.restart(false, 0)
		want["cooldown_ms"] = none
		require.Equal(t, want, r.circuit("bank").Sources)
		require.Equal(t, api.Sources{"rate": {By: "file", At: in(0)}, "burst": file}, r.show("stripe").Sources)
		require.Equal(t, byPrefix, r.show("tenant:acme").Sources)
	})
}

// TestLimitsChange: throttle-show has the latest change of the limits in force, with the values of
// this change alone, and its undoing; none of an override, or of the file.
func TestLimitsChange(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Throttles = []config.ThrottleTable{{Key: "tenant:*", Rate: "20", Burst: 20}}
		r.restart(false, 0)
		require.Nil(t, r.show("tenant:acme").Change, "the file has set them")
		maria := Actor{By: api.VerbThrottleSet.Name, Sender: api.Sender{Client: "maria@ops"}}
		limits := func(rate wire.Rate, burst float64) api.ThrottleLimits {
			return api.ThrottleLimits{Rate: &rate, Burst: &burst}
		}
		set := func(req api.ThrottleSetRequest) {
			t.Helper()
			r.pass(time.Minute)
			_, err := r.c.ThrottleSet(maria, req)
			require.Nil(t, err)
		}
		set(api.ThrottleSetRequest{Key: "tenant:*", ThrottleLimits: limits("2", 2)})
		want := &api.LimitsChange{Key: "tenant:*", At: in(0), By: "throttle-set", Client: "maria@ops", Old: limits("20", 20), New: limits("2", 2)}
		require.Equal(t, want, r.show("tenant:acme").Change)
		require.Equal(t, want, r.show("tenant:*").Change)
		require.True(t, want.Lowers())
		require.Equal(t, "maria@ops lowered the limits of tenant:* from 20/s, burst 20 to 2/s, burst 2", want.Text())

		set(api.ThrottleSetRequest{Key: "tenant:*", ThrottleLimits: api.ThrottleLimits{Concurrency: new(int64(3))}})
		added := r.show("tenant:*").Change
		require.Equal(t, api.ThrottleLimits{}, added.Old)
		require.Equal(t, []string{"concurrency"}, added.Back().Unset)
		back := added.Back()
		back.Key = "tenant:*"
		set(back)
		require.False(t, r.show("tenant:*").Change.Lowers())

		set(api.ThrottleSetRequest{Key: "tenant:*", Unset: []string{"rate", "burst"}})
		back = r.show("tenant:*").Change.Back()
		back.Key = "tenant:*"
		set(api.ThrottleSetRequest{Key: "tenant:*", ThrottleLimits: limits("3", 3)})
		_, err := r.c.ThrottleSet(maria, back)
		refused(t, wire.CodeThrottleMismatch, err)
		set(api.ThrottleSetRequest{Key: "tenant:*", Unset: []string{"rate", "burst"}})
		set(back)
		undone := r.show("tenant:*").Change
		require.Equal(t, limits("2", 2), r.show("tenant:*").ThrottleLimits)

		set(api.ThrottleSetRequest{Key: "tenant:*", ThrottleLimits: limits("1", 1), ForMs: 60_000})
		require.Nil(t, r.show("tenant:acme").Change, "an override is in force")
		r.pass(2 * time.Minute)
		require.Equal(t, undone, r.show("tenant:acme").Change)
		set(api.ThrottleSetRequest{Key: "tenant:acme", ThrottleLimits: limits("7", 7)})
		require.Equal(t, "tenant:acme", r.show("tenant:acme").Change.Key)
		require.Equal(t, undone, r.show("tenant:globex").Change)

		r.c.opt.Sharing = func(key string) *Sharing {
			if key != "tenant:globex" {
				return nil
			}
			return &Sharing{ThrottleShared: api.ThrottleShared{By: "b"}, InForce: throttle.Limits{Rate: perSecond(9)}}
		}
		require.Nil(t, r.show("tenant:globex").Change, "the limits of another fila are in force")
		inForce, by := r.c.LimitsOf("tenant:globex")
		require.Equal(t, [2]string{"9/s", "fila b"}, [2]string{inForce.Text(), by})
		require.NotNil(t, r.show("tenant:acme").Change)
	})
}

// TestSourcesOfQueues: settings of a queue by the file, by the entries of the audit log since the queue
// was made, and by default.
func TestSourcesOfQueues(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		audit := func(verb api.AnyVerb, client, queue, value string) string {
			r.pass(time.Second)
			r.c.Audit(Actor{By: verb.String(), Sender: api.Sender{Client: client}}, "queue:"+queue, value)
			return in(0)
		}
		filed := wire.DefaultQueueSettings("filed")
		filed.FairnessHeader, filed.MaxDepth = "tenant", 5
		r.cfg.Queues = []wire.QueueSettings{filed}
		r.restart(false, 0)
		now := filed
		require.Equal(t, api.Source{By: "file"}, r.c.QueueSources(now)["max_depth"])
		now.MaxDepth = 9
		at := audit(api.VerbQueueUpdate, "maria", "filed", `{"max_depth":9}`)
		sources := r.c.QueueSources(now)
		require.Equal(t, api.Source{By: "operator", Client: "maria", At: at}, sources["max_depth"])
		require.Equal(t, api.Source{By: "file"}, sources["fairness_header"])
		require.Equal(t, api.Source{By: "default"}, sources["visibility_timeout_ms"])
		require.NotContains(t, sources, "weight_header", "it is empty, as by default")
		require.NotContains(t, sources, "name")

		audit(api.VerbQueueUpdate, "nobody", "orders", `{"max_bytes":77}`)
		audit(api.VerbQueueDelete, "nobody", "orders", `{"deleted":0}`)
		made := audit(api.VerbQueueCreate, "maria", "orders", `{"quantum":1,"fairness_header":"tenant","max_bytes":100}`)
		audit(api.VerbQueueUpdate, "otto", "orders-2", `{"max_bytes":3}`)
		changed := audit(api.VerbQueueUpdate, "otto", "orders", `{"max_bytes":0,"quantum":2}`)
		hook := audit(api.VerbHookSet, "eva", "orders", `{"hook":"on_failure","bytes":10}`)
		audit(api.VerbQueuePurge, "nobody", "orders", `{"quantum":5}`)
		audit(api.VerbQueueUpdate, "nobody", "orders", `{"quantum":5,"on_enqu... (4000 bytes)`)
		now = wire.DefaultQueueSettings("orders")
		now.FairnessHeader, now.Quantum, now.OnFailure, now.RetryPolicy = "tenant", 2, "script", "slow"
		sources = r.c.QueueSources(now)
		require.Equal(t, api.Source{By: "operator", Client: "maria", At: made}, sources["fairness_header"])
		require.Equal(t, api.Source{By: "operator", Client: "otto", At: changed}, sources["quantum"])
		require.Equal(t, api.Source{By: "operator", Client: "otto", At: changed}, sources["max_bytes"], "it was set back")
		require.Equal(t, api.Source{By: "operator", Client: "eva", At: hook}, sources["on_failure"])
		require.Equal(t, api.Source{By: "operator"}, sources["retry_policy"], "older than the log")
	})
}

// TestAuditSince returns entries in order, newest first, also if the clock of another node was behind.
func TestAuditSince(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.put("old", "1")
		r.pass(10 * time.Minute)
		since := time.Now()
		r.put("a", "1")
		r.pass(time.Second)
		r.put("b", "1")
		a := &r.c.audit
		a.mu.Lock()
		a.mu.entries[len(a.mu.entries)-1].Time = wire.Timestamp(since.Add(-30 * time.Second).UnixNano())
		a.mu.Unlock()
		r.put("c", "1")
		var keys []string
		for _, e := range r.c.AuditSince(since) {
			keys = append(keys, e.Key)
		}
		require.Equal(t, []string{"c", "a"}, keys)
	})
}
