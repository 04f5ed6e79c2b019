package sidecar

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

func entry(key, value string) store.Entry { return store.Entry{Key: key, Value: value} }

// batchWithout deletes an entry of the configuration.
func batchWithout(key string) *store.Batch {
	if key == "" {
		return &store.Batch{}
	}
	return &store.Batch{DeleteConfig: []string{key}}
}

func countText(text, part string) int { return strings.Count(text, part) }

func (r *gateRig) pause(body string) wire.PauseInfo {
	r.t.Helper()
	return must[wire.PauseInfo](r, r.s.pauseVerb, "", body)
}

func (r *gateRig) pauses() []wire.PauseInfo {
	r.t.Helper()
	list := must[wire.PauseList](r, r.s.pauseList, "", "")
	require.Equal(r.t, list.Total, len(list.Pauses))
	return list.Pauses
}

// TestPausesOfAllKinds holds each kind, by hand and for a time, over restarts.
func TestPausesOfAllKinds(t *testing.T) {
	r := newGateRig(t)
	r.create("orders")
	since := r.in(0)
	require.Equal(t, wire.PauseInfo{Kind: "queue", Name: "orders", Since: since, By: "operator"},
		r.pause(`{"kind":"queue","name":"orders"}`))
	require.Equal(t, r.in(time.Minute), r.pause(`{"kind":"key","queue":"orders","name":"a/b","for_ms":60000}`).Until)
	until := r.in(time.Hour)
	require.Equal(t, until, r.pause(`{"kind":"throttle","name":"stripe","until":"`+until+`"}`).Until)
	r.pause(`{"kind":"circuit","name":"paypal"}`)
	check := func() {
		t.Helper()
		r.told()
		require.EqualValues(t, math.MaxInt64, r.l.pausedTo)
		require.Equal(t, map[string]int64{"a/b": rigStart + int64(time.Minute)}, r.l.pausedKeys)
		require.Equal(t, 0, r.admits("stripe"))
		require.Equal(t, "open", r.s.core.circuits.use("paypal").info(r.now.Load()).State)
		all := r.pauses()
		require.Len(t, all, 4)
		for i, want := range []string{"circuit paypal", "key a/b", "queue orders", "throttle stripe"} {
			require.Equal(t, want, all[i].Kind+" "+all[i].Name)
			require.Equal(t, since, all[i].Since)
		}
	}
	check()
	queueUntil, keys := r.s.pausesOf(r.q)
	require.EqualValues(t, math.MaxInt64, queueUntil)
	require.Equal(t, map[string]int64{"a/b": rigStart + int64(time.Minute)}, keys)
	queueUntil, keys = r.s.pausesOf(&queue{name: "other"})
	require.Zero(t, queueUntil)
	require.Empty(t, keys)

	r.restart(false, time.Second)
	tellPauses(r)
	check()
	r.restart(true, time.Second)
	tellPauses(r)
	check()

	r.pass(time.Minute)
	r.told()
	require.Empty(t, r.l.pausedKeys)
	require.Len(t, r.pauses(), 3)
	r.restart(true, time.Hour)
	require.Positive(t, r.admits("stripe"), "its end has passed while nobody was there")
	require.Len(t, r.pauses(), 2)
	require.Len(t, r.stored(statePause), 2)

	for _, body := range []string{`{"kind":"queue","name":"orders"}`, `{"kind":"circuit","name":"paypal"}`} {
		require.Equal(t, since, must[wire.PauseInfo](r, r.s.resumeVerb, "", body).Since)
		_, err := do[any](r, r.s.resumeVerb, "", body)
		require.ErrorIs(t, err, &wire.Error{ErrCode: wire.CodePauseNotFound})
	}
	r.told()
	require.Zero(t, r.l.pausedTo)
	require.Equal(t, "closed", r.s.core.circuits.use("paypal").info(r.now.Load()).State)
	require.Empty(t, r.pauses())
	require.Empty(t, r.stored(statePause))
	require.Equal(t, []string{
		"pause pause:queue:orders: none -> until resumed",
		"pause pause:key:orders:a/b: none -> until " + timestamp(rigStart+int64(time.Minute)),
		"pause pause:throttle:stripe: none -> until " + until,
		"pause pause:circuit:paypal: none -> until resumed",
		"pause-ended pause:key:orders:a/b: until " + timestamp(rigStart+int64(time.Minute)) + " -> none",
		"pause-ended pause:throttle:stripe: until " + until + " -> none",
		"resume pause:queue:orders: until resumed -> none",
		"resume pause:circuit:paypal: until resumed -> none",
	}, r.trail())
}

// tellPauses is what a start does with the pauses of a queue.
func tellPauses(r *gateRig) {
	until, keys := r.s.pausesOf(r.q)
	r.l.pauseUntil(until)
	for key, until := range keys {
		r.l.pauseKey(key, until)
	}
}

func TestPauseRefusals(t *testing.T) {
	r := newGateRig(t)
	r.create("orders")
	for body, code := range map[string]int{
		``:                               wire.CodeBadField,
		`{"kind":"planet","name":"x"}`:   wire.CodeBadField,
		`{"kind":"queue","name":"none"}`: wire.CodeQueueNotFound,
		`{"kind":"key","queue":"none","name":"x"}`:                                wire.CodeQueueNotFound,
		`{"kind":"key","name":"x"}`:                                               wire.CodeBadField,
		`{"kind":"throttle","name":"x*"}`:                                         wire.CodeBadField,
		`{"kind":"throttle","name":""}`:                                           wire.CodeBadField,
		`{"kind":"circuit","name":"x","queue":"orders"}`:                          wire.CodeBadField,
		`{"kind":"circuit","name":"x","for_ms":-1}`:                               wire.CodeBadField,
		`{"kind":"circuit","name":"x","until":"tomorrow"}`:                        wire.CodeBadField,
		`{"kind":"circuit","name":"x","until":"2026-01-01T00:00:00Z"}`:            wire.CodeBadField,
		`{"kind":"circuit","name":"x","until":"2027-02-01T00:00:00Z"}`:            wire.CodeBadField,
		`{"kind":"circuit","name":"x","until":"2026-02-01T00:00:00Z","for_ms":1}`: wire.CodeBadField,
		`{"kind":"circuit","name":"x","colour":"red"}`:                            wire.CodeUnknownField,
	} {
		_, err := do[any](r, r.s.pauseVerb, "", body)
		require.ErrorIs(t, err, &wire.Error{ErrCode: code}, body)
	}
	require.Empty(t, r.pauses())
	require.Empty(t, r.trail())
	_, err := do[any](r, r.s.resumeVerb, "", `{"kind":"queue","name":"orders","for_ms":5}`)
	require.ErrorIs(t, err, &wire.Error{ErrCode: wire.CodeBadField})
	_, err = do[any](r, r.s.pauseList, "", `{"offset":-1}`)
	require.ErrorIs(t, err, &wire.Error{ErrCode: wire.CodeBadField})
}

// TestPauseAgain gives a pause another end.
func TestPauseAgain(t *testing.T) {
	r := newGateRig(t)
	r.create("orders")
	events := r.events()
	first := r.pause(`{"kind":"queue","name":"orders","for_ms":1000}`)
	r.pass(time.Second / 2)
	second := r.pause(`{"kind":"queue","name":"orders","for_ms":1000}`)
	require.Equal(t, first.Since, second.Since)
	r.pass(time.Second / 2)
	r.told()
	require.Equal(t, rigStart+int64(1500*time.Millisecond), r.l.pausedTo)
	r.pass(time.Second / 2)
	r.told()
	require.Zero(t, r.l.pausedTo)
	for i, want := range []string{wire.EventPaused, wire.EventPaused, wire.EventResumed} {
		e := <-events
		require.Equal(t, want, e.Type)
		require.Equal(t, "orders", e.Queue)
		require.Equal(t, "queue", e.Data["kind"])
		require.Equal(t, []any{"operator", "operator", "time"}[i], e.Data["by"])
	}
}

// TestPausesToldInAnotherOrder gives the loop the newest state, whatever it is told
// when.
func TestPausesToldInAnotherOrder(t *testing.T) {
	r := newGateRig(t)
	r.create("orders")
	r.pause(`{"kind":"queue","name":"orders"}`)
	r.pause(`{"kind":"key","queue":"orders","name":"k"}`)
	must[wire.PauseInfo](r, r.s.resumeVerb, "", `{"kind":"queue","name":"orders"}`)
	r.pause(`{"kind":"key","queue":"orders","name":"k","for_ms":1000}`)
	mail := r.q.mail.take(nil)
	for i := range mail {
		mail[len(mail)-1-i].call(r.l)
	}
	require.Zero(t, r.l.pausedTo)
	require.Equal(t, map[string]int64{"k": rigStart + int64(time.Second)}, r.l.pausedKeys)
}

// TestHoldKey is a pause by max_failures, which never shortens that of an
// operator.
func TestHoldKey(t *testing.T) {
	r := newGateRig(t)
	r.create("orders")
	events := r.events()
	r.s.holdKey(r.q, "k", rigStart+int64(time.Minute))
	r.told()
	require.Equal(t, map[string]int64{"k": rigStart + int64(time.Minute)}, r.l.pausedKeys)
	held := r.pauses()[0]
	require.Equal(t, wire.PauseInfo{
		Kind: "key", Queue: "orders", Name: "k", Since: r.in(0), Until: r.in(time.Minute), By: "max_failures",
	}, held)
	e := <-events
	require.Equal(t, wire.EventHeld, e.Type)
	require.Equal(t, "k", e.Key)
	require.Equal(t, "orders", e.Queue)
	require.Equal(t, map[string]any{"kind": "key", "by": "max_failures", "until": r.in(time.Minute)}, e.Data)

	r.pause(`{"kind":"key","queue":"orders","name":"op"}`)
	r.s.holdKey(r.q, "op", rigStart+int64(time.Minute))
	require.Equal(t, "operator", r.pauses()[1].By)
	r.s.holdKey(r.q, "k", math.MaxInt64)
	require.Empty(t, r.pauses()[0].Until)
	r.pass(time.Hour)
	require.Len(t, r.pauses(), 2, "until it is resumed")
	require.Equal(t, "max_failures pause:key:orders:k: until "+timestamp(rigStart+int64(time.Minute))+" -> until resumed", r.trail()[2])
	must[wire.PauseInfo](r, r.s.resumeVerb, "", `{"kind":"key","queue":"orders","name":"k"}`)
	r.told()
	require.NotContains(t, r.l.pausedKeys, "k")
}

// TestForgetPauses ends pauses with what they held.
func TestForgetPauses(t *testing.T) {
	r := newGateRig(t)
	r.create("orders")
	for _, body := range []string{
		`{"kind":"queue","name":"orders"}`, `{"kind":"key","queue":"orders","name":"k"}`,
		`{"kind":"throttle","name":"orders"}`, `{"kind":"circuit","name":"orders"}`,
	} {
		r.pause(body)
	}
	r.s.forgetPauses("orders", "orders.dlq")
	require.Len(t, r.pauses(), 2)

	r.pause(`{"kind":"queue","name":"orders"}`)
	require.NoError(t, r.s.core.commit(&store.Batch{DeleteQueues: []store.QueueID{1}}))
	r.restart(true, 0)
	require.Len(t, r.pauses(), 2, "a queue of the same name would be paused")
	require.Len(t, r.stored(statePause), 2)
}
