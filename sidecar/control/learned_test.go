package control

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/adapt"
	"github.com/filaq/fila/wire"
)

// overload reports an overload of a message that a key has just admitted.
func (r *rig) overload(key string) {
	r.t.Helper()
	r.pass(time.Second)
	set, err := r.c.Gates().Set([]string{key}, now())
	require.NoError(r.t, err)
	set.Overloaded(throttle.Overload{Delivered: now(), Cause: "429 of message m"}, now())
	r.c.Gates().Close(set, now())
	synctest.Wait()
}

// The table, throttle-set and the runtime configuration set how a limit learns.
func TestLearningIsSet(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		want := adapt.Settings{Min: 4000, Backoff: 500, GrowPerS: 6000, Start: 10_000, Expired: true}
		r.cfg.Throttles = []config.ThrottleTable{{Key: "file", Concurrency: 60, Adapt: config.AdaptTable{Signal: "overload", Min: 4, Backoff: 0.5, GrowPerS: 6, Start: 10, Expired: true}}}
		require.NoError(t, r.c.Start(r.cfg))
		info := r.set("verb", `{"concurrency":60,"adapt":{"signal":"overload","min":4,"backoff":0.5,"grow_per_s":6,"start":10,"expired":true}}`)
		require.Equal(t, "overload,min=4,backoff=0.5,grow_per_s=6,start=10,expired", info.Adapt.Text())
		r.put("throttle:key:adapt", "overload,expired,min=4,backoff=0.5,grow_per_s=6,start=10")
		require.Zero(t, r.limits("key"), "without a ceiling")
		r.put("throttle:key:concurrency", "60")
		for _, key := range []string{"file", "verb", "key"} {
			require.Equal(t, want, r.limits(key).Adapt, key)
		}
		for body, part := range map[string]string{
			`{"adapt":{"signal":"overload"}}`:                                   "adapt has no effect without a ceiling",
			`{"concurrency":5,"adapt":{"signal":"latency"}}`:                    `signal is "latency": allowed is overload`,
			`{"concurrency":5,"adapt":{"signal":"overload","backoff":1}}`:       "backoff is 1: allowed is 0.1 to 0.95",
			`{"concurrency":5,"level":2}`:                                       "level has no effect on limits that do not learn",
			`{"concurrency":5,"level":0,"adapt":{"signal":"overload","min":0}}`: `min is "0": allowed is`,
		} {
			_, err := r.trySet("bad", body)
			refused(t, wire.CodeBadThrottle, err, body)
			require.Contains(t, err.Description, part)
		}
		r.set("verb", `{"unset":["adapt"]}`)
		require.Zero(t, r.limits("verb").Adapt)
	})
}

// A cut is published, shown with its cause, and outlives a crash; the level at a clean stop.
func TestCutsAreAnnouncedAndKept(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set("k", `{"concurrency":40,"adapt":{"signal":"overload","backoff":0.5}}`)
		r.events.take()
		r.overload("k")
		events := r.events.take()
		require.Len(t, events, 1)
		e := events[0]
		require.Equal(t, wire.EventThrottleCut, e.Type)
		delete(e.Data, "tail")
		require.Equal(t, "k", e.Key)
		require.Equal(t, map[string]any{"of": "concurrency", "old": 40.0, "new": 20.0, "cause": "429 of message m", "at": in(0), "cuts": uint64(1)}, e.Data)
		l := r.show("k").Learned
		require.Equal(t, "20 at once of 40, cut from 40 at "+in(0)+" by 429 of message m, next step at 21", l.Text())

		r.restart(true, time.Second)
		require.InDelta(t, 20, r.show("k").Learned.Level, 0)
		r.overload("k")
		require.InDelta(t, 10, r.show("k").Learned.Level, 0)
		r.restart(false, 30*time.Minute)
		require.InDelta(t, 10, r.show("k").Learned.Level, 0)
		r.restart(false, 2*time.Hour)
		require.InDelta(t, 40, r.show("k").Learned.Level, 0)
		require.Empty(t, r.stored(stateLevel))
	})
}

// A level that is fixed by an override ends with it or by a release, and is audited.
func TestALevelIsFixedAndReleased(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set("k", `{"concurrency":40,"adapt":{"signal":"overload"}}`)
		fix := func(body string) { r.set("k", body); require.True(t, r.show("k").Learned.Fixed) }
		fix(`{"level":12,"for_ms":60000}`)
		require.Equal(t, "12 at once of 40, fixed by hand", r.show("k").Learned.Text())
		r.overload("k")
		require.InDelta(t, 12, r.show("k").Learned.Level, 0)
		r.pass(time.Minute)
		require.False(t, r.show("k").Learned.Fixed)
		require.InDelta(t, 12, r.show("k").Learned.Level, 0, "it learns on from there")

		fix(`{"level":5,"for_ms":60000}`)
		r.set("k", `{"unset":["level"]}`)
		require.False(t, r.show("k").Learned.Fixed)
		require.Empty(t, r.show("k").OverrideUntil)
		require.Contains(t, r.trail()[0]+r.trail()[len(r.trail())-1], "throttle:k:override")

		fix(`{"level":5,"rate":"3","for_ms":60000}`)
		r.set("k", `{"unset":["level"]}`)
		require.False(t, r.show("k").Learned.Fixed)
		require.NotEmpty(t, r.show("k").OverrideUntil, "the rest of the override stays")

		fix(`{"level":7}`)
		r.set("k", `{"unset":["level"]}`)
		require.False(t, r.show("k").Learned.Fixed)
	})
}
