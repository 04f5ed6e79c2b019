package control

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Limits that are set by configuration keys apply at once, to the backlog too. Incomplete
// pairs have no effect.
func TestConfigKeysAreLimits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.put("throttle:a:b:burst", "2.5")
		require.Zero(t, r.limits("a:b"), "a burst without a rate")
		r.put("throttle:a:b:rate", "1/3")
		r.put("throttle:a:b:limit", "7")
		r.put("throttle:a:b:concurrency", "9")
		want := throttle.Limits{Rate: throttle.Rate{Cost: 1000, Per: 3e9}, Burst: 2500, Concurrency: 9}
		require.Equal(t, want, r.limits("a:b"), "a limit without its window")
		r.put("throttle:a:b:window_ms", "60000")
		want.Limit, want.Window = 7, int64(time.Minute)
		require.Equal(t, want, r.limits("a:b"))

		r.put("throttle:tenant:*:rate", "5")
		r.put("throttle:tenant:x*:rate", "6")
		require.Equal(t, perSecond(5), r.limits("tenant:a").Rate)
		require.Equal(t, perSecond(6), r.limits("tenant:xa").Rate)
		r.put("throttle:tenant:xa:burst", "3")
		require.Equal(t, perSecond(6), r.limits("tenant:xa").Rate, "what limits nothing does not hide the prefix")
		r.delete("throttle:tenant:x*:rate")
		require.Equal(t, perSecond(5), r.limits("tenant:xa").Rate)
		r.delete("throttle:a:b:rate")
		want.Rate, want.Burst = throttle.Rate{}, 0
		require.Equal(t, want, r.limits("a:b"))

		_, err := r.c.ConfigSet(verb(api.VerbConfigSet), "throttle:a:rate", api.ConfigSetRequest{Value: "1e3"}) // see TestMeaningsOfKeys
		refused(t, wire.CodeBadConfigValue, err)
		require.Zero(t, r.limits("a"))
	})
}

// A change of limits notifies the queue that has the turn at the gate.
func TestChangedLimitsWake(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set("k", `{"concurrency":1}`)
		require.Equal(t, 1, r.admits("k"))
		gate, ok := r.c.Gates().Find("k")
		require.True(t, ok)
		w := throttle.NewWait(gate, r.queues)
		require.EqualValues(t, throttle.Never, w.Join(now(), throttle.One))
		for n, change := range []func(){
			func() { r.set("k", `{"concurrency":2}`) },
			func() { r.set("k", `{"concurrency":5,"for_ms":1000}`) },
			func() { r.pass(time.Second) },
			func() { r.pause(`{"kind":"throttle","name":"k"}`); r.resume(`{"kind":"throttle","name":"k"}`) },
			func() { r.clear("k") },
		} {
			change()
			require.Len(t, r.queues.woken, n+1)
			w.Turn(now()) // it looks
		}
		w.Leave(nil)
	})
}

// An orderly stop keeps limits, prefixes and the levels of buckets and windows.
func TestLimitsOverARestart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.create("orders")
		r.set("bucket", `{"rate":"1","burst":5}`)
		r.set("window", `{"limit":3,"window_ms":60000}`)
		r.set("w*", `{"rate":100}`)
		require.Equal(t, 5, r.admits("bucket"))
		require.Equal(t, 3, r.admits("window"))
		before := r.limits("window")
		r.restart(false, 2*time.Second)
		require.Equal(t, before, r.limits("window"))
		require.Equal(t, perSecond(100), r.limits("where").Rate)
		require.Equal(t, 2, r.admits("bucket"), "what two seconds have brought")
		require.Equal(t, 0, r.admits("window"))
		require.Empty(t, r.stored(stateGates), "the next stop may be a crash")
		r.restart(false, time.Minute)
		require.Equal(t, 3, r.admits("window"))
	})
}

// After a crash everything counts as used.
func TestGatesAfterACrash(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		require.False(t, r.c.throttles.start.Crashed, "a new store is no crash")
		r.restart(true, 0)
		require.False(t, r.c.throttles.start.Crashed, "nothing has gone through the gates of an empty store")
		r.create("orders")
		r.set("bucket", `{"rate":"1","burst":5}`)
		r.set("window", `{"limit":3,"window_ms":86400000}`)
		r.restart(true, time.Hour)
		require.Equal(t, 1, r.log.count("not stopped cleanly"))
		require.Equal(t, 0, r.admits("bucket"))
		require.Zero(t, r.show("bucket").Tokens)
		r.pass(2 * time.Second)
		require.Equal(t, 2, r.admits("bucket"))
		r.pass(24*time.Hour - 3*time.Second)
		require.Equal(t, 0, r.admits("window"), "the window holds over the crash, however long it is")
		r.pass(time.Second)
		require.Equal(t, 3, r.admits("window"))

		r.restart(false, 0)
		require.False(t, r.c.throttles.start.Crashed)
		r.c.Stop()
		r.commit(&store.Batch{DeleteConfig: []string{gatePart(0)}})
		r.restart(true, 0)
		require.True(t, r.c.throttles.start.Crashed, "a part of the state is missing")
		require.Equal(t, 1, r.log.count("the state of the gates is lost"))
		require.Empty(t, r.stored(stateGates))

		r.kv.fail(errDisk)
		r.c.Stop()
		require.Equal(t, 1, r.log.count("the state of the gates cannot be saved"))
	})
}

// The file overwrites only the keys that it names. Changing one of them logs a warning.
func TestDeclaredThrottlesWarn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Throttles = []config.ThrottleTable{{Key: "a", Rate: "10"}}
		r.restart(false, 0)
		r.set("b", `{"rate":1}`)
		r.set("a", `{"rate":1,"for_ms":1000}`)
		require.Zero(t, r.log.count("the file wins"))
		for i, change := range []func(){
			func() { r.set("a", `{"rate":1}`) },
			func() { r.put("throttle:a:rate", "2") },
			func() { r.delete("throttle:a:rate") },
			func() { r.clear("a") },
		} {
			change()
			require.Equal(t, i+1, r.log.count("the file wins"))
		}
	})
}

// Changes that arrive out of order end in the newest state.
func TestChangesToldInAnotherOrder(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var changes []change
		for _, value := range []string{"1", "2", "3"} {
			for _, key := range []string{"throttle:k:rate", "throttle:p*:rate", "circuit:c:threshold", "weight:orders:k"} {
				made, err := r.c.values.edit(func() (map[string]*string, *wire.Error) {
					return map[string]*string{key: &value}, nil
				}, r.c.writeAs(verb(api.VerbConfigSet)))
				require.Nil(t, err)
				changes = append(changes, made...)
			}
		}
		for i := range changes {
			r.c.act(changes[len(changes)-1-i : len(changes)-i])
		}
		require.Equal(t, perSecond(3), r.limits("k").Rate)
		require.Equal(t, perSecond(3), r.limits("pk").Rate)
		require.Equal(t, 3, r.circuit("c").Threshold)
		require.Equal(t, map[string]int64{"weight orders/k": 3000}, r.queues.told())
	})
}

// After concurrent changes of all kinds the stored state is in force.
func TestChangesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var all sync.WaitGroup
		for i := 1; i <= 8; i++ {
			all.Go(func() {
				for n := range 50 {
					rate := strconv.Itoa(i*1000 + n)
					switch key := []string{"k", "k*"}[n%2]; n % 5 {
					case 0:
						r.put("throttle:"+key+":rate", rate)
					case 1:
						r.set(key, `{"rate":"`+rate+`","for_ms":`+strconv.Itoa(1000+i)+`}`)
					case 2:
						cfg := config.Default()
						cfg.Throttles = []config.ThrottleTable{{Key: key, Rate: wire.Rate(rate)}}
						p, err := r.c.plan(cfg)
						require.NoError(t, err)
						r.c.applying.Lock()
						_, werr := r.c.apply(t.Context(), p)
						r.c.applying.Unlock()
						require.Nil(t, werr)
					case 3:
						_, _ = r.tryClear(key)
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
				want, _ := r.c.LimitsOf(key)
				require.Equal(t, want, WireLimits(complete(r.limits(key))), key)
			}
		}
		check()
		before := r.show("k")
		r.restart(false, 0)
		check()
		require.Equal(t, before.Rate, r.show("k").Rate)
		r.pass(2 * time.Second)
		check()
		require.Empty(t, r.c.throttles.mu.overrides)
	})
}

// Values that an older version accepted have no effect.
func TestOldValuesHaveNoEffect(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		b := &store.Batch{}
		for key, value := range map[string]string{
			"throttle:k:rate": "1e3", "throttle:k:concurrency": "2", "throttle:k": "x", "circuit:c:threshold": "many",
			"circuit:c:cooldown_ms": "1000", "circuit:odd:failure_hold_ms": "-1", "circuit::threshold": "1",
			"\x00pause/x": "", "\x00override/k": "?", "\x00pause/key/orders/k": "?", "\x00log/x": "{}",
		} {
			b.PutConfig = append(b.PutConfig, store.Entry{Key: key, Value: value})
		}
		r.commit(b)
		r.restart(false, 0)
		require.Equal(t, throttle.Limits{Concurrency: 2}, r.limits("k"))
		require.Equal(t, 10, r.circuit("c").Threshold)
		require.EqualValues(t, 1000, r.circuit("c").CooldownMs)
		_, ok := r.circuits.Info("odd")
		require.False(t, ok)
		require.Equal(t, 5, r.log.count("has no effect"))
		require.Equal(t, 1, r.log.count("a stored override cannot be read"))
		require.Equal(t, 1, r.log.count("a stored pause cannot be read"))
		require.Equal(t, 1, r.log.count("an entry of the audit log cannot be read"))
		list := r.c.ConfigList(api.KeyListRequest{Limit: 100})
		require.Equal(t, 7, list.Total, "fila's own entries are not shown")
		for _, e := range list.Entries {
			require.False(t, isState(e.Key))
		}
		_, ok = r.c.Get("\x00override/k")
		require.False(t, ok)
	})
}

// The state of the gates may be larger than one entry of the store.
func TestManyGatesOverAStop(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.create("orders")
		r.set("k*", `{"limit":200,"window_ms":600000}`)
		at := now()
		for i := range 600 {
			for range 200 {
				set, err := r.c.Gates().Set([]string{fmt.Sprint("k", i)}, at)
				require.NoError(t, err)
				at += 1000
				_, _, ok := set.Acquire(at, throttle.One, nil)
				require.True(t, ok)
			}
		}
		r.c.Stop()
		saved := r.stored(stateGates)
		require.Greater(t, len(saved), 2, "the mark, and parts")
		for key, value := range saved {
			require.Less(t, len(value), 1<<20, key)
		}
		r.restart(true, time.Second) // it is all there already
		require.False(t, r.c.throttles.start.Crashed)
		for i := range 600 {
			require.Equal(t, 0, r.admits(fmt.Sprint("k", i)))
		}
		require.Empty(t, r.stored(stateGates))
	})
}

// Keys in the JSON of older versions need not be UTF-8.
func TestGatesOfKeysThatNobodyCouldNameOverAStop(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.create("orders")
		r.set("k*", `{"limit":1,"window_ms":600000}`)
		keys := []string{"k\xff", "k\xfe", `k\xff`, "k\n"}
		for _, key := range keys {
			require.Equal(t, 1, r.admits(key), "%q", key)
		}
		r.restart(false, time.Second)
		require.False(t, r.c.throttles.start.Crashed)
		for _, key := range keys {
			require.Equal(t, 0, r.admits(key), "%q", key)
		}
	})
}

// Many parts take several writes, with the mark of a clean stop last.
func TestGatesAreSavedInSeveralWrites(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var states []throttle.State
		for i := range gatePartsPerWrite + 1 {
			gates := throttle.New(throttle.Start{}, 0)
			key := fmt.Sprintf("%03d%0*d", i, gatePartBytes, 0)
			_, err := gates.SetLimits(key, throttle.Limits{Limit: 1, Window: 1e9}, 0, nil)
			require.NoError(t, err)
			set, err := gates.Set([]string{key}, 0)
			require.NoError(t, err)
			_, _, ok := set.Acquire(0, throttle.One, nil)
			require.True(t, ok)
			states = append(states, gates.Snapshot(0)...)
		}
		r.kv.fail(nil)
		require.NoError(t, saveGates(r.kv, states, 7))
		require.Len(t, r.kv.writes, 2)
		require.Len(t, r.kv.writes[0].Put, gatePartsPerWrite)
		require.Equal(t, store.Entry{Key: stateGates, Value: `{"at":7,"parts":65}`}, r.kv.writes[1].Put[1])
		var kept []store.Entry
		for _, ch := range r.kv.writes {
			kept = append(kept, ch.Put...)
		}
		saved, err := readGates(kept)
		require.NoError(t, err)
		require.Equal(t, states, saved.states)
		r.kv.fail(errDisk)
		require.ErrorIs(t, saveGates(r.kv, states, 7), errDisk)
		require.Len(t, r.kv.writes, 1, "what is not whole is not marked as such")
		r.kv.fail(nil)
	})
}
