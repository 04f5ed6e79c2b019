package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// hostile is a name that is markup where it is not escaped.
const hostile = `"'><img src=x onerror=alert(1)></script><script>alert(2)</script>`

// full has verbs answer with something of everything, all of it named by hostile.
func (r *rig) full() {
	at := wire.Timestamp(time.Unix(1_000_000_000, 0).UnixNano())
	rate, concurrency := wire.Rate("5"), int64(7)
	shard := 3
	summary := wire.QueueSummary{
		Name: hostile, Pending: 9_007_199_254_740_993, InFlight: 4, Consumers: 1, OldestAgeMs: 61_000, DLQ: hostile, Shard: &shard, Owner: hostile,
		Detail: &wire.QueueDetail{Waits: make([]int64, len(wire.WaitBounds)+1), NoisyFlows: 1, QuietPending: 3, QuietOldestAgeMs: 5000},
	}
	gate := wire.GateState{Kind: "rate", Gate: "throttle:" + hostile, Limits: hostile, SetBy: hostile, InUse: hostile, OpensAt: at}
	throttle := wire.ThrottleInfo{
		Key: hostile, ThrottleLimits: wire.ThrottleLimits{Rate: &rate, Concurrency: &concurrency}, Source: "config", State: "rate", OpensAt: at,
		OverrideUntil: at, PausedUntil: at, Waiting: 2, WaitingMessages: 9, Shared: &wire.ThrottleShared{Users: map[string]int64{hostile: 2}, By: hostile},
	}
	circuit := wire.CircuitInfo{Key: hostile, State: "open", OpenUntil: at, Cause: hostile, OpenedByClient: hostile, Shared: true, OpenedBy: hostile, By: hostile, ChangedAt: at}
	pauses := wire.PauseList{Total: 2, Pauses: []wire.PauseInfo{
		{Kind: "key", Queue: "orders", Name: hostile, Since: at, By: hostile}, {Kind: "queue", Name: hostile, Since: at, Until: at, By: "operator"},
	}}
	r.reply(wire.VerbQueueList, wire.QueueList{Total: 1, Queues: []wire.QueueSummary{summary}, Missing: []int{1, 2}})
	r.reply(wire.VerbQueueInspect, wire.QueueInfo{
		QueueSummary: summary, Settings: wire.QueueSettings{FairnessHeader: hostile, OnEnqueue: hostile}, Flows: 1, Counters: map[string]int64{"acked": 3},
		ConsumerList: []wire.ConsumerInfo{{Name: hostile, MaxInFlight: 8, ExpiresAt: at}}, TopFlows: []wire.FlowInfo{{Key: hostile, Weight: 1, Share: 1, BusyShare: 0.5}},
		Hooks: []wire.HookInfo{{Hook: "on_enqueue", State: "open", LastError: hostile}},
	})
	r.reply(wire.VerbNoisy, wire.NoisyReply{
		Queue: hostile, Noisy: []wire.NoisyFlow{{Key: hostile, BusyShare: 0.9}}, Waiting: []wire.WaitingFlow{{Key: hostile, Pending: 1, WaitMs: 5000}},
	})
	r.reply(wire.VerbExplain, wire.ExplainQueue{Reason: hostile, BlockedBy: []wire.BlockedCount{{GateState: gate, Messages: 3, Flows: 1}}})
	r.reply(wire.VerbThrottleList, wire.ThrottleList{Total: 1, Throttles: []wire.ThrottleInfo{throttle}, Next: hostile})
	r.reply(wire.VerbThrottleShow, throttle)
	r.reply(wire.VerbCircuitList, wire.CircuitList{Total: 1, Circuits: []wire.CircuitInfo{circuit}, Next: hostile})
	r.reply(wire.VerbCircuitShow, circuit)
	r.reply(wire.VerbPauseList, pauses)
	r.reply("guard "+wire.GuardState, wire.GuardStatus{Key: hostile, Limits: []wire.GuardLimit{{Gate: hostile}}})
	r.reply(wire.VerbClusterStatus, wire.ClusterStatus{
		Name: hostile, Node: hostile, Nodes: []wire.ClusterNode{{Node: hostile, Version: hostile, Since: at}},
		Shards: []wire.ClusterShard{{Owner: hostile, MovingTo: hostile, Standbys: []wire.ClusterStandby{{Node: hostile, State: hostile, Lag: 3, Error: hostile}}}},
	})
	r.events.hear([]byte(`{"type":"x","time":"` + at + `","queue":"q","key":"<script>","data":{"a":"<script>"}}`))
}

// The pages that this test knows how to ask for; others have tests of their own.
var known = map[string]string{
	"/": "/", "/queues/{queue}": "/queues/" + url.PathEscape("orders"), "/gates": "/gates?prefix=" + url.QueryEscape(hostile), "/gates/throttle": "/gates/throttle?key=x",
	"/gates/circuit": "/gates/circuit?key=x", "/cluster": "/cluster", "/events": "/events?find=",
}

// Whatever a name is, it is text, in a page, in what of it changes, and as a part of an
// address.
func TestPagesOfHostileNames(t *testing.T) {
	r := newRig(t, nil)
	require.NoError(t, r.events.listen(r.Web))
	r.full()
	for i := range pages {
		p := &pages[i]
		target, ok := known[p.path]
		if !ok {
			continue
		}
		rec := r.get(target)
		require.Equal(t, http.StatusOK, rec.Code, "%s: %s", target, rec.Body)
		req := request(http.MethodGet, "/live"+target, nil)
		req.SetPathValue("queue", "orders")
		frame := string(r.frame(&ask{web: r.Web, who: who{Role: Operator, Name: "web"}, r: req}, p))
		for _, body := range []string{rec.Body.String(), frame} {
			require.NotContains(t, body, "<img", target)
			require.NotContains(t, body, "<script>", target)
			require.NotContains(t, body, "ZgotmplZ", target)
			require.True(t, strings.Contains(body, "&lt;script&gt;") || strings.Contains(body, "%3cscript%3e"), target)
		}
	}
}

func TestLimitsOfAForm(t *testing.T) {
	rate, window := wire.Rate("10"), int64(60_000)
	r := newRig(t, nil)
	r.reply(wire.VerbThrottleShow, wire.ThrottleInfo{Key: "stripe", Source: "config", ThrottleLimits: wire.ThrottleLimits{Rate: &rate, WindowMs: &window}})
	set := func(pairs ...string) string {
		t.Helper()
		rec := r.post("/do/throttle-set", append(pairs, "key", "stripe")...)
		require.Equal(t, http.StatusSeeOther, rec.Code, rec.Body)
		all := r.of(wire.VerbThrottleSet)
		return all[len(all)-1].tail + " " + all[len(all)-1].body
	}
	require.Equal(t, `stripe {"rate":"2","concurrency":5,"unset":["window_ms"],"for_ms":600000}`, set("rate", "2", "concurrency", "5", "for", "10m"))
	require.Equal(t, `stripe {"concurrency":5}`, set("concurrency", "5", "keep", "yes"))
	require.Equal(t, `stripe {"limit":100,"window_ms":1000,"unset":["rate"]}`, set("limit", "100", "window", "1s"))
	for _, field := range []string{"concurrency", "burst", "window", "for"} {
		require.Equal(t, http.StatusBadRequest, r.post("/do/throttle-set", "key", "stripe", field, "many").Code, field)
	}
}

func TestEventsAreBounded(t *testing.T) {
	r := newRig(t, nil)
	require.Equal(t, http.StatusOK, r.get("/events").Code)
	for range maxEvents + 1 {
		r.events.hear([]byte(`{"type":"paused"}`))
	}
	require.LessOrEqual(t, len(r.events.mu.heard), maxEvents)
	require.Equal(t, maxEvents/10, r.events.mu.missed)
	require.Contains(t, r.get("/events?paused=yes").Body.String(), "as it stood")
	require.NotContains(t, r.get("/events?paused=yes").Body.String(), "hx-sse:connect")
	r.events.hear([]byte("no JSON"))
	r.events.rest(false)
	require.NotNil(t, r.events.mu.stop, "somebody has just looked")
	r.events.mu.asked = r.events.mu.asked.Add(-eventsIdle)
	r.events.rest(false)
	require.Nil(t, r.events.mu.stop)
}
