package control

import (
	"math"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Objects of each kind can be paused, with and without an end, across restarts.
func TestPausesOfAllKinds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.create("orders")
		since, minute := in(0), now()+int64(time.Minute)
		require.Equal(t, api.PauseInfo{Kind: "queue", Name: "orders", Since: since, By: "operator"},
			r.pause(`{"kind":"queue","name":"orders"}`))
		require.Equal(t, in(time.Minute), r.pause(`{"kind":"key","queue":"orders","name":"a/b","for_ms":60000}`).Until)
		until := in(time.Hour)
		require.Equal(t, until, r.pause(`{"kind":"throttle","name":"stripe","until":"`+until+`"}`).Until)
		r.pause(`{"kind":"circuit","name":"paypal"}`)
		check := func() {
			t.Helper()
			require.Equal(t, map[string]int64{"orders": math.MaxInt64, "orders/a/b": minute}, r.queues.told())
			require.Equal(t, 0, r.admits("stripe"))
			require.Equal(t, "open", r.circuit("paypal").State)
			all := r.pauses()
			require.Len(t, all, 4)
			for i, want := range []string{"circuit paypal", "key a/b", "queue orders", "throttle stripe"} {
				require.Equal(t, want, all[i].Kind+" "+all[i].Name)
				require.Equal(t, since, all[i].Since)
			}
		}
		check()
		queueUntil, keys := r.c.Pauses("orders")
		require.EqualValues(t, math.MaxInt64, queueUntil)
		require.Equal(t, map[string]int64{"a/b": minute}, keys)
		queueUntil, keys = r.c.Pauses("other")
		require.Zero(t, queueUntil)
		require.Empty(t, keys)

		for _, crash := range []bool{false, true} {
			r.restart(crash, time.Second)
			r.queues.tellAll(r.c)
			check()
		}

		r.pass(time.Minute)
		require.Equal(t, map[string]int64{"orders": math.MaxInt64}, r.queues.told())
		require.Len(t, r.pauses(), 3)
		r.restart(true, time.Hour)
		r.queues.tellAll(r.c)
		require.Positive(t, r.admits("stripe"), "its end has passed while nobody was there")
		require.Len(t, r.pauses(), 2)
		require.Len(t, r.stored(statePause), 2)

		for _, body := range []string{`{"kind":"queue","name":"orders"}`, `{"kind":"circuit","name":"paypal"}`} {
			require.Equal(t, since, r.resume(body).Since)
			_, err := r.tryResume(body)
			refused(t, wire.CodePauseNotFound, err)
		}
		for _, body := range []string{`{"kind":"queue","name":"gone"}`, `{"kind":"key","queue":"gone","name":"a"}`} {
			_, err := r.tryResume(body)
			refused(t, wire.CodeQueueNotFound, err)
		}
		require.Empty(t, r.queues.told())
		_, known := r.circuits.Info("paypal")
		require.False(t, known, "it is closed, and nobody uses it")
		require.Empty(t, r.pauses())
		require.Empty(t, r.stored(statePause))
		require.Equal(t, []string{
			"pause pause:queue:orders: none -> until resumed",
			"pause pause:key:orders:a/b: none -> until " + wire.Timestamp(minute),
			"pause pause:throttle:stripe: none -> until " + until,
			"pause pause:circuit:paypal: none -> until resumed",
			"pause-ended pause:key:orders:a/b: until " + wire.Timestamp(minute) + " -> none",
			"pause-ended pause:throttle:stripe: until " + until + " -> none",
			"resume pause:queue:orders: until resumed -> none",
			"resume pause:circuit:paypal: until resumed -> none",
		}, r.trail())
	})
}

func TestPauseRefusals(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.create("orders")
		for body, code := range map[string]int{ // what package wire lets through
			`{"kind":"queue","name":"none"}`:                               wire.CodeQueueNotFound,
			`{"kind":"key","queue":"none","name":"x"}`:                     wire.CodeQueueNotFound,
			`{"kind":"throttle","name":"x*"}`:                              wire.CodeBadField,
			`{"kind":"circuit","name":"x","until":"2000-01-01T00:00:00Z"}`: wire.CodeBadField,
			`{"kind":"circuit","name":"x","until":"2001-02-01T00:00:00Z"}`: wire.CodeBadField,
		} {
			_, err := r.tryPause(body)
			refused(t, code, err, body)
		}
		require.Empty(t, r.pauses())
		require.Empty(t, r.trail())
	})
}

// A pause applies at once, and its reply comes when it is on disk.
func TestPausesAndTheDisk(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.create("orders")
		r.kv.fail(errDisk)
		_, err := r.tryPause(`{"kind":"queue","name":"orders"}`)
		refused(t, wire.CodeOutcomeUnknown, err)
		require.Len(t, r.queues.told(), 1)
		_, err = r.tryResume(`{"kind":"queue","name":"orders"}`)
		refused(t, wire.CodeOutcomeUnknown, err)
		require.Empty(t, r.queues.told())
		r.kv.fail(nil)
	})
}

// A second pause changes the end of the first one.
func TestPauseAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.create("orders")
		begin := now()
		first := r.pause(`{"kind":"queue","name":"orders","for_ms":1000}`)
		r.pass(time.Second / 2)
		second := r.pause(`{"kind":"queue","name":"orders","for_ms":1000}`)
		require.Equal(t, first.Since, second.Since)
		r.pass(time.Second / 2)
		require.Equal(t, begin+int64(1500*time.Millisecond), r.queues.told()["orders"])
		r.pass(time.Second / 2)
		require.Empty(t, r.queues.told())
		events := r.events.take()
		require.Len(t, events, 3)
		for i, want := range []string{wire.EventPaused, wire.EventPaused, wire.EventResumed} {
			e := events[i]
			require.Equal(t, want, e.Type)
			require.Equal(t, "orders", e.Queue)
			require.Equal(t, "queue", e.Data["kind"])
			require.Equal(t, []any{"operator", "operator", "time"}[i], e.Data["by"])
			require.Equal(t, []any{in(-time.Second / 2), in(0), nil}[i], e.Data["until"])
		}
	})
}

// After concurrent pauses and resumes each object has the newest state.
func TestPausesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.create("orders")
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for n := range 50 {
					key := strconv.Itoa(n % 2)
					switch (i + n) % 4 {
					case 0:
						_, _ = r.tryResume(`{"kind":"key","queue":"orders","name":"` + key + `"}`)
					case 1:
						r.c.HoldKey("orders", key, now()+int64(i+1)*1e9)
					case 2:
						r.pause(`{"kind":"key","queue":"orders","name":"` + key + `"}`)
					default:
						r.pause(`{"kind":"key","queue":"orders","name":"` + key + `","for_ms":` + strconv.Itoa(1000*(i+1)) + `}`)
					}
				}
			})
		}
		all.Wait()
		check := func() {
			t.Helper()
			want := map[string]int64{}
			_, keys := r.c.Pauses("orders")
			for key, until := range keys {
				want["orders/"+key] = until
			}
			require.Equal(t, want, r.queues.told())
			require.Len(t, r.stored(statePause), len(want))
		}
		check()
		r.pass(time.Minute)
		check()
	})
}

// max_failures pauses a key, and never shortens the pause of an operator.
func TestHoldKey(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.create("orders")
		minute := now() + int64(time.Minute)
		r.c.HoldKey("orders", "k", minute)
		require.Equal(t, map[string]int64{"orders/k": minute}, r.queues.told())
		require.Equal(t, api.PauseInfo{
			Kind: "key", Queue: "orders", Name: "k", Since: in(0), Until: in(time.Minute), By: "max_failures",
		}, r.pauses()[0])
		e := r.events.take()[0]
		require.Equal(t, wire.EventHeld, e.Type)
		require.Equal(t, "k", e.Key)
		require.Equal(t, "orders", e.Queue)
		require.Equal(t, map[string]any{"kind": "key", "by": "max_failures", "until": in(time.Minute)}, e.Data)

		r.pause(`{"kind":"key","queue":"orders","name":"op"}`)
		r.c.HoldKey("orders", "op", minute)
		require.Equal(t, "operator", r.pauses()[1].By)
		r.c.HoldKey("orders", "k", math.MaxInt64)
		require.Empty(t, r.pauses()[0].Until)
		r.pass(time.Hour)
		require.Len(t, r.pauses(), 2, "until it is resumed")
		require.Equal(t, "max_failures pause:key:orders:k: until "+wire.Timestamp(minute)+" -> until resumed", r.trail()[2])
		r.resume(`{"kind":"key","queue":"orders","name":"k"}`)
		require.Equal(t, map[string]int64{"orders/op": math.MaxInt64}, r.queues.told())
	})
}

// Pauses of deleted queues are removed.
func TestForgetPauses(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.create("orders")
		for _, body := range []string{
			`{"kind":"queue","name":"orders"}`, `{"kind":"key","queue":"orders","name":"k"}`,
			`{"kind":"throttle","name":"orders"}`, `{"kind":"circuit","name":"orders"}`,
		} {
			r.pause(body)
		}
		r.c.ForgetPauses("ann", "orders", "orders.dlq")
		require.Len(t, r.pauses(), 2)
		require.Equal(t, "queue-delete pause:queue:orders: until resumed -> none", r.trail()[5])
		log, err := r.c.ConfigLog(api.KeyListRequest{Prefix: "pause:queue:orders", Limit: 1})
		require.Nil(t, err)
		require.Equal(t, "ann", log.Entries[0].Client)

		r.pause(`{"kind":"queue","name":"orders"}`)
		r.commit(&store.Batch{DeleteQueues: []store.QueueID{1}})
		r.restart(true, 0)
		require.Len(t, r.pauses(), 2, "a queue of the same name would be paused")
		require.Len(t, r.stored(statePause), 2)
		require.Equal(t, "pause-ended pause:queue:orders: until resumed -> none", r.trail()[7])
	})
}
