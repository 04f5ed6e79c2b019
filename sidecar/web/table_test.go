package web

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// hostile is a name that is markup where it is not escaped, and turns its direction where
// that is not shown.
const hostile = `"'><img src=x onerror=alert(1)></script><script>alert(2)</script>` + "\u202egnp.exe"

// full has verbs answer with something of everything, all of it named by hostile.
func (r *rig) full() {
	at := wire.Timestamp(time.Unix(1_000_000_000, 0).UnixNano())
	rate, concurrency := wire.Rate("5"), int64(7)
	shard := 3
	summary := api.QueueSummary{
		Name: hostile, Pending: 9_007_199_254_740_993, InFlight: 4, Consumers: 1, OldestAgeMs: 61_000, DLQ: hostile, Shard: &shard, Owner: hostile,
		Detail: &api.QueueDetail{Waits: make([]int64, len(api.WaitBounds)+1), NoisyFlows: 1, QuietReady: 3, QuietOldestAgeMs: 5000},
	}
	gate := api.GateState{Kind: "rate", Gate: "throttle:" + hostile, Limits: hostile, SetBy: hostile, InUse: hostile, AdmitsAt: at}
	throttle := api.ThrottleInfo{
		Key: hostile, ThrottleLimits: api.ThrottleLimits{Rate: &rate, Concurrency: &concurrency}, Source: "operator", State: "rate", AdmitsAt: at,
		OverrideUntil: at, PausedUntil: at, Waiting: 2, WaitingMessages: 9, WaitingQueues: []api.WaitingQueue{{Queue: hostile, Messages: 9, Flows: 2}},
		Shared: &api.ThrottleShared{Users: map[string]int64{hostile: 2}, By: hostile},
	}
	circuit := api.CircuitInfo{
		Key: hostile, State: "open", OpenUntil: at, Cause: hostile, OpenedByClient: hostile, Shared: true, OpenedBy: hostile, By: hostile, ChangedAt: at,
		LastFailure: &api.CircuitFailure{At: at, ID: hostile, ErrorCode: hostile, Error: hostile},
		History:     &api.CircuitHistory{Since: at, Changes: []api.CircuitChange{{At: at, Old: hostile, New: hostile, Cause: hostile}}, Failures: []api.CircuitFailures{{Minute: hostile, Failures: 1}}},
	}
	pauses := api.PauseList{Total: 2, Pauses: []api.PauseInfo{
		{Kind: "key", Queue: "orders", Name: hostile, Since: at, By: hostile}, {Kind: "queue", Name: hostile, Since: at, Until: at, By: "operator"},
	}}
	r.reply(api.VerbQueueList, api.QueueList{Total: 1, Queues: []api.QueueSummary{summary}, Missing: []int{1, 2}})
	r.reply(api.VerbQueueInspect, api.QueueInfo{
		QueueSummary: summary, Settings: wire.QueueSettings{FairnessHeader: hostile, OnEnqueue: hostile}, Flows: 1, Counters: map[string]int64{"acked": 3},
		ConsumerList: []api.ConsumerInfo{{Name: hostile, MaxInFlight: 8, ExpiresAt: at}}, TopFlows: []api.FlowInfo{{Key: hostile, Weight: 1, Share: 1, BusyShare: 0.5}},
		Hooks: []api.HookInfo{{Hook: "on_enqueue", State: "open", LastError: hostile}},
	})
	r.reply(api.VerbNoisy, api.NoisyReply{
		Queue: hostile, Noisy: []api.NoisyFlow{{Key: hostile, BusyShare: 0.9}}, Waiting: []api.WaitingFlow{{Key: hostile, Ready: 1, WaitMs: 5000}},
	})
	r.reply(api.VerbAttention, api.Attention{Severity: "critical", Total: 2, Truncated: 1, Unanswered: []string{hostile}, Findings: []api.Finding{{
		Condition: hostile, Severity: "critical", Since: at, Queue: hostile, Key: hostile, Gate: "circuit:" + hostile, Hook: hostile, Schedule: hostile, Shard: &shard, Node: hostile,
		Title: hostile, Whom: hostile, Why: hostile, Action: api.FindingAction{Text: hostile, Command: hostile, Page: "/queues/" + hostile},
	}}})
	r.reply(api.VerbExplain, api.ExplainQueue{Reason: hostile, BlockedBy: []api.BlockedCount{{GateState: gate, Messages: 3, Flows: 1}}})
	r.reply(api.VerbThrottleList, api.ThrottleList{Total: 1, Throttles: []api.ThrottleInfo{throttle}, Next: hostile})
	r.reply(api.VerbThrottleShow, throttle)
	r.reply(api.VerbCircuitList, api.CircuitList{Total: 1, Circuits: []api.CircuitInfo{circuit}, Next: hostile})
	r.reply(api.VerbCircuitShow, circuit)
	r.reply(api.VerbPauseList, pauses)
	r.reply("guard "+api.GuardState, api.GuardStatus{Key: hostile, Limits: []api.GuardLimit{{Gate: hostile}}})
	r.reply(api.VerbClusterStatus, api.ClusterStatus{
		Name: hostile, Node: hostile, Nodes: []api.ClusterNode{{Node: hostile, Version: hostile, Since: at}},
		Shards: []api.ClusterShard{{
			Lost: &api.ClusterLoss{Node: hostile, Reachable: hostile, Records: 20},
		}, {
			Lost: &api.ClusterLoss{Owner: hostile, Copies: []string{hostile}},
		}, {Owner: hostile, MovingTo: hostile, Standbys: []api.ClusterStandby{{Node: hostile, State: hostile, Lag: 3, Error: hostile}}}},
	})
	r.events.hear([]byte(`{"type":"x","time":"` + at + `","queue":"q","key":"<script>","data":{"a":"<script>"}}`))
}

// The pages that this test knows how to ask for; others have tests of their own.
var known = map[string]string{
	"/": "/", "/queues/{queue}": "/queues/" + url.PathEscape("orders"), "/gates": "/gates?prefix=" + url.QueryEscape(hostile), "/gates/throttle": "/gates/throttle?key=x",
	"/gates/circuit": "/gates/circuit?key=x", "/cluster": "/cluster", "/queues": "/queues", "/queues/{queue}/tenants": "/queues/orders/tenants", "/activity": "/activity?find=",
}

// ofForms is what a form sends back as it is.
var ofForms = regexp.MustCompile(` value="[^"]*"`)

// Whatever a name is, it is text, in a page, in what of it changes, and as a part of an
// address.
func TestPagesOfHostileNames(t *testing.T) {
	r := newRig(t, nil)
	r.Clustered = true
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
		frame := string(r.frame(&ask{web: r.Web, principal: principal{Role: Operator, Name: "web"}, r: req}, p))
		for _, body := range []string{rec.Body.String(), frame} {
			require.NotContains(t, body, "<img", target)
			require.NotContains(t, body, "<script>", target)
			require.NotContains(t, body, "ZgotmplZ", target)
			require.NotContains(t, ofForms.ReplaceAllString(body, ""), "\u202e", target)
			require.True(t, strings.Contains(body, "&lt;script&gt;") || strings.Contains(body, "%3cscript%3e"), target)
		}
	}
}

// The page of a gate names the queues that wait, and says when these are not all.
func TestWhoWaitsAtAGate(t *testing.T) {
	r := newRig(t, nil)
	r.reply("guard "+api.GuardState, api.GuardStatus{})
	gate := api.CircuitInfo{Key: "stripe", Waiting: 1, WaitingMessages: 9, WaitingQueues: []api.WaitingQueue{{Queue: "orders", Messages: 9, Flows: 2}}}
	page := func() string {
		r.reply(api.VerbCircuitShow, gate)
		return r.get("/gates/circuit?key=stripe").Body.String()
	}
	require.Contains(t, page(), `<a href="/queues/orders/messages?gate=circuit%3Astripe">`)
	require.NotContains(t, page(), "with the most waiting messages")
	gate.Waiting = 2
	require.Contains(t, page(), "1 of 2 queues: the ones with the most waiting messages.")
	gate.Waiting, gate.WaitingQueues = 0, nil
	require.Contains(t, page(), "No message waits here.")
}

// Numbers that may be missing are numbers, not addresses.
func TestNumbersThatMayBeMissing(t *testing.T) {
	n := int64(1_234_567)
	require.Equal(t, "1,234,567", grouped(&n))
	require.Equal(t, "-1,234", grouped(-1234))
	require.Equal(t, "1 message", howMany(1, "message"))
	require.Equal(t, "0 queues", howMany(0, "queue"))
}

func TestEventsThatAreRefused(t *testing.T) {
	r := newRig(t, nil)
	require.NotContains(t, r.get("/activity").Body.String(), "are not available")
	r.refuse(errors.New("nats: permissions violation"))
	body := r.get("/activity").Body.String()
	require.Contains(t, body, "<code>fila.event.&gt;</code>")
	require.Contains(t, body, "nats: permissions violation")
	r.events.mu.since = r.events.mu.since.Add(-eventsAgain)
	require.Contains(t, r.get("/activity").Body.String(), "are not available", "it is tried again, and may be refused again")
	r.events.mu.since = r.events.mu.since.Add(-refusalTime)
	require.NotContains(t, r.get("/activity").Body.String(), "are not available")
}

// A sample that has waited for a shard that nobody serves is not followed by a long rest.
func TestPagesGoOnDuringATakeover(t *testing.T) {
	r := newRig(t, nil)
	r.history.sample(r.Web)
	require.Equal(t, restFactor*time.Second, r.history.rest(time.Second))
	r.reply(api.VerbQueueList, api.QueueList{Missing: []int{2}})
	r.history.sample(r.Web)
	require.Zero(t, r.history.rest(2*time.Second))
}

func TestLimitsOfAForm(t *testing.T) {
	rate, window := wire.Rate("10"), int64(60_000)
	r := newRig(t, nil)
	r.reply(api.VerbThrottleShow, api.ThrottleInfo{Key: "stripe", Source: "operator", ThrottleLimits: api.ThrottleLimits{Rate: &rate, WindowMs: &window}})
	set := func(pairs ...string) string {
		t.Helper()
		rec := r.post("/do/throttle-set", append(pairs, "key", "stripe")...)
		require.Equal(t, http.StatusSeeOther, rec.Code, rec.Body)
		all := r.of(api.VerbThrottleSet)
		return all[len(all)-1].tail + " " + all[len(all)-1].body
	}
	require.Equal(t, `stripe {"rate":"2","concurrency":5,"unset":["window_ms"],"for_ms":600000}`, set("rate", "2", "concurrency", "5", "window", "", "for", "10m"))
	require.Equal(t, `stripe {"concurrency":5}`, set("concurrency", "5", "keep", "yes"))
	require.Equal(t, `stripe {"limit":100,"window_ms":1000,"unset":["rate"]}`, set("rate", "", "limit", "100", "window", "1s"))
	require.Equal(t, `stripe {"concurrency":5}`, set("concurrency", "5"), "what the form has no field for stays")
	spent := []string{"period", "month", "zone", "", "warn_at", "0.8,0.95", "on_empty", "refuse"}
	require.Equal(t, `stripe {"budget":2.5,"period":"month","warn_at":[0.8,0.95],"on_empty":"refuse"}`, set(append(spent, "budget", "2.5")...))
	budget, month, zone := 7.0, "month", "Asia/Tokyo"
	r.reply(api.VerbThrottleShow, api.ThrottleInfo{Key: "stripe", Source: "operator", ThrottleLimits: api.ThrottleLimits{Budget: &budget, Period: &month, Zone: &zone}})
	body := r.get("/gates/throttle?key=stripe").Body.String()
	for _, part := range []string{`name="budget" value="7"`, `<option selected>month</option>`, `name="zone" value="Asia/Tokyo"`} {
		require.Contains(t, body, part)
	}
	require.Equal(t, `stripe {"unset":["budget","period","zone"]}`, set(append(spent, "budget", "")...), "nothing of it is left")
	require.Equal(t, http.StatusBadRequest, r.post("/do/throttle-set", "key", "stripe", "budget", "2", "period", "day", "warn_at", "x").Code)
	r.reply(api.VerbThrottleShow, api.ThrottleInfo{Key: "stripe", Source: "operator", Owner: "<billing>"})
	page := r.get("/gates/throttle?key=stripe").Body.String()
	require.Contains(t, page, "<dt>Owner</dt><dd>&lt;billing&gt;</dd>")
	r.reply(api.VerbThrottleSet, wire.Owned("throttle:stripe", "<billing>", "rate 10 -> 2"))
	asks := r.post("/do/throttle-set", "key", "stripe", "rate", "2")
	require.Equal(t, http.StatusOK, asks.Code)
	for _, part := range []string{`belongs to &#34;&lt;billing&gt;&#34; (rate 10 -&gt; 2)`, "Change it all the same?", `name="force" value="yes"`, `name="rate" value="2"`} {
		require.Contains(t, asks.Body.String(), part)
	}
	r.reply(api.VerbThrottleSet, api.ThrottleInfo{Warnings: []string{"throttle:stripe belongs to billing: rate 10 -> 2"}})
	set("rate", "2", "force", "yes", "confirm", "yes")
	all := r.of(api.VerbThrottleSet)
	require.True(t, all[len(all)-1].force)
	require.False(t, all[len(all)-2].force)
	r.reply(api.VerbThrottleSet, wire.Owned("throttle:stripe", "billing", "rate 10 -> 2"))
	require.Equal(t, http.StatusConflict, r.post("/do/throttle-set", "key", "stripe", "rate", "2", "force", "yes").Code, "it does not ask twice")
	for _, field := range []string{"concurrency", "burst", "window", "for"} {
		require.Equal(t, http.StatusBadRequest, r.post("/do/throttle-set", "key", "stripe", field, "many").Code, field)
	}
}

func TestEventsAreBounded(t *testing.T) {
	r := newRig(t, nil)
	require.Equal(t, http.StatusOK, r.get("/activity").Code)
	for range maxEvents + 1 {
		r.events.hear([]byte(`{"type":"paused"}`))
	}
	require.LessOrEqual(t, len(r.events.mu.heard), maxEvents)
	require.Equal(t, maxEvents/10, r.events.mu.missed)
	require.Contains(t, r.get("/activity?paused=yes").Body.String(), "up to the pause")
	require.NotContains(t, r.get("/activity?paused=yes").Body.String(), "hx-sse:connect")
	r.events.hear([]byte("no JSON"))
	r.events.rest(false)
	require.NotNil(t, r.events.mu.stop, "a viewer was just there")
	r.events.mu.asked = r.events.mu.asked.Add(-eventsIdle)
	r.events.rest(false)
	require.Nil(t, r.events.mu.stop)
}
