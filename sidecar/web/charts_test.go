package web

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func isNaN(v float32) bool { return math.IsNaN(float64(v)) }

// The curve of a limit that learns is its level, below the one of its ceiling.
func TestGateHistoryOfALevel(t *testing.T) {
	var r gateRing
	at := time.Unix(1_700_000_000, 0)
	for n, of := range []string{"", api.LearnedConcurrency, api.LearnedRate} {
		limits := api.ThrottleLimits{Rate: new(wire.Rate("50")), Concurrency: new(int64(60))}
		r.add(at.Add(time.Duration(n)*historyStep), &api.ThrottleInfo{ThrottleLimits: limits, Learned: &api.ThrottleLearned{Of: of, Level: 12, Ceiling: 60}})
	}
	points := r.recent(2)
	require.InDelta(t, 12, points[0].Concurrency, 0)
	require.InDelta(t, 60, points[0].Ceiling, 0)
	require.InDelta(t, 12, points[1].Limit, 0)
	require.InDelta(t, 60, points[1].RateCeiling, 0)
}

// TestGateHistory: points have the rates between two samples, and the limits of their time; a gate that
// was made anew counts from 0.
func TestGateHistory(t *testing.T) {
	var h history
	at := time.Unix(1_000_000_000, 0)
	sample := func(after time.Duration, admitted, blocked int64, l api.ThrottleLimits) {
		at = at.Add(after)
		h.keepGates(at, []api.ThrottleInfo{
			{Key: "stripe", ThrottleLimits: l, Admitted: admitted, Blocked: blocked, InFlight: 3, WaitingMessages: 40}, {Key: "tenant:*"},
		})
	}
	limits := api.ThrottleLimits{Rate: new(wire.Rate("1/2")), Limit: new(int64(6)), WindowMs: new(int64(60_000)), Concurrency: new(int64(5))}
	sample(0, 100, 7, limits)
	require.Empty(t, h.gate("stripe", at, 10), "one sample has no rates")
	sample(10*time.Second, 150, 8, limits)
	limits.Limit, limits.Concurrency = nil, nil
	sample(20*time.Second, 150, 8, limits)
	limits.Rate = nil
	sample(10*time.Second, 20, 1, limits)
	points := h.gate("stripe", at, 10)
	require.Len(t, points, 3)
	require.True(t, isNaN(points[0].Ceiling) && isNaN(points[0].RateCeiling), "nothing is learned")
	points[0].Ceiling, points[0].RateCeiling = 0, 0
	require.Equal(t, gatePoint{at: at.Unix() - 30, Admitted: 5, Blocked: 0.1, Limit: 0.1, Waiting: 40, InFlight: 3, Concurrency: 5}, points[0])
	require.EqualValues(t, 0.5, points[1].Limit)
	require.True(t, isNaN(points[1].Concurrency))
	require.Zero(t, points[1].Admitted)
	require.True(t, isNaN(points[2].Limit))
	require.EqualValues(t, 2, points[2].Admitted)
	require.InDelta(t, 0.1, points[2].Blocked, 1e-6)
	require.Nil(t, h.gate("tenant:*", at, 10), "a prefix has no gate")
	admitted, blocked := h.gateRates(at.Add(10*time.Second), &api.ThrottleInfo{Key: "stripe", Admitted: 170, Blocked: 9})
	require.Equal(t, []float32{1, 0.05}, []float32{admitted, blocked}, "since the last sample but one, 20 s")
	admitted, _ = h.gateRates(at, &api.ThrottleInfo{Key: "other", Admitted: 170})
	require.Zero(t, admitted)

	require.Empty(t, h.gate("stripe", at.Add(10*time.Minute), 10))
	require.Len(t, h.gate("stripe", at.Add(10*time.Minute), 60), 3)
	for range 2 * historyPoints {
		sample(historyStep, 0, 0, limits)
	}
	require.Len(t, h.gate("stripe", at, 60), historyPoints)
	require.Len(t, h.gate("stripe", at, 10), historyPoints/6)
	h.keepGates(at.Add(61*time.Minute), []api.ThrottleInfo{{Key: "other"}})
	require.Nil(t, h.gate("stripe", at, 60), "nobody has named it for an hour")
}

// TestGateHistoryIsBounded, whatever number of keys clients invent.
func TestGateHistoryIsBounded(t *testing.T) {
	var h history
	for i := range maxGateHistories + 10 {
		h.keepGates(time.Unix(int64(i), 0), []api.ThrottleInfo{{Key: fmt.Sprint(i)}})
	}
	require.Len(t, h.mu.gates, maxGateHistories)
}

// TestChartData: times are exact, a missing value is a gap, and marks have their numbers.
func TestChartData(t *testing.T) {
	points := []gatePoint{{at: 1_700_000_001, Admitted: 0.1, Limit: float32(math.NaN())}, {at: 1_700_000_011, Admitted: 1e7, Limit: 2}}
	m := marks{Rows: []markRow{{N: 1, ats: []time.Time{time.Unix(1_700_000_005, 9e8)}}}, Minutes: 10}
	require.JSONEq(t, `{"names":["admitted","limit"],"rows":[[1700000001,1700000011],[0.1,10000000],[null,2]],"marks":[[1700000005,1]]}`,
		chartOf(points, m, gateRates[0], gateRates[2]).JSON)
	require.JSONEq(t, `{"names":["admitted"],"rows":[[],[]]}`, chartOf([]gatePoint(nil), marks{}, gateRates[0]).JSON)

	lines := m.Until(time.Unix(1_700_000_305, 9e8), 10)
	require.Equal(t, []markLine{{"1", "50.00%", false, ""}}, lines)
	lines = m.Until(time.Unix(1_700_000_006, 9e8), 10)
	require.True(t, lines[0].AtEnd, "it happened a second ago")
	require.Empty(t, m.Until(time.Unix(1_700_000_004, 0), 10), "it is later")
	require.Empty(t, m.Until(time.Unix(1_700_000_607, 0), 10), "it is too old")
}

// TestMarksOnPages: each page with charts over time lists the marks of its object by their numbers, and
// says how many it leaves out.
func TestMarksOnPages(t *testing.T) {
	r := newRig(t, nil)
	now := time.Now()
	ago := func(d time.Duration) string { return wire.Timestamp(now.Add(-d).UnixNano()) }
	r.reply(api.VerbMarks, api.Marks{Total: 25, Marks: []api.Mark{
		{At: ago(time.Minute), Kind: "annotation", Text: "<release> 3", By: "annotate", Client: "maria@ops"},
		{At: ago(5 * time.Minute), Kind: "limits", Object: "throttle:stripe", Text: "rate from 2 to 10", By: "file"},
	}})
	r.reply(api.VerbQueueList, api.QueueList{Total: 2, Queues: []api.QueueSummary{
		{Name: "orders", DLQ: "orders.dlq", Detail: &api.QueueDetail{}}, {Name: "orders.dlq", Pending: 1, Detail: &api.QueueDetail{}},
	}})
	r.reply(api.VerbThrottleShow, api.ThrottleInfo{Key: "stripe", State: "open", Source: "operator"})
	r.reply(api.VerbCircuitShow, api.CircuitInfo{
		Key: "bank", State: "closed", Threshold: 3, History: &api.CircuitHistory{Since: ago(time.Hour)},
		Sources: api.Sources{"threshold": {By: "operator", Client: "maria@ops", At: ago(time.Hour)}, "cooldown_ms": {By: "file"}, "half_open_max_calls": {By: "default"}},
	})
	r.reply(api.VerbQueueInspect, api.QueueInfo{Settings: wire.DefaultQueueSettings("orders"), Sources: api.Sources{
		"visibility_timeout_ms": {By: "operator", Client: "<eva>", At: ago(time.Hour)}, "quantum": {By: "default"},
	}})
	for page, asked := range map[string]string{
		"/queues/orders":                         `{"queue":"orders","limit":500,"window_ms":3600000}`,
		"/queues/orders/tenants":                 `{"queue":"orders","limit":500,"window_ms":600000}`,
		"/queues/orders/tenants?minutes=60":      `{"queue":"orders","limit":500,"window_ms":3600000}`,
		"/queues/orders/dead?minutes=60":         `{"queue":"orders","limit":500,"window_ms":3600000}`,
		"/dead":                                  `{"limit":500,"window_ms":600000}`,
		"/gates/throttle?key=stripe":             `{"throttle":"stripe","limit":500,"window_ms":600000}`,
		"/gates/throttle?key=stripe&minutes=60":  `{"throttle":"stripe","limit":500,"window_ms":3600000}`,
		"/gates/circuit?key=bank":                `{"circuit":"bank","limit":500,"window_ms":3600000}`,
		"/gates/throttle?key=stripe&minutes=abc": `{"throttle":"stripe","limit":500,"window_ms":600000}`,
	} {
		rec := r.get(page)
		require.Equal(t, http.StatusOK, rec.Code, page)
		all := r.of(api.VerbMarks)
		require.JSONEq(t, asked, all[len(all)-1].body, page)
		text := rec.Body.String()
		require.Contains(t, text, `<li value="1">`, page)
		require.Contains(t, text, "&lt;release&gt; 3", page)
		require.Contains(t, text, `<a href="/gates/throttle?key=stripe">throttle:stripe</a>`, page)
		require.Contains(t, text, "maria@ops", page)
		require.Contains(t, text, "23 older marks are left out.", page)
	}
	circuit := r.get("/gates/circuit?key=bank").Body.String()
	require.Contains(t, circuit, `<title>2: rate from 2 to 10</title>`, "a line in the band")
	require.Contains(t, circuit, `3 failures in a row <span class="soft">set by maria@ops, <time`)
	require.Contains(t, circuit, `<span class="soft">set by the configuration file</span>`)
	settings := r.get("/queues/orders/settings").Body.String()
	require.Contains(t, settings, `<span class="soft">set by &lt;eva&gt;, <time`)
	require.Contains(t, settings, `<span class="soft">the default</span>`)

	flaps := api.Marks{Total: 30}
	for i := range 30 {
		flaps.Marks = append(flaps.Marks, api.Mark{At: ago(time.Duration(i+1) * time.Minute), Kind: "circuit", Object: "circuit:bank", Text: "opened: failures", By: "failures", Count: 2})
	}
	flaps.Marks = slices.Insert(flaps.Marks, 7, api.Mark{At: ago(7*time.Minute + time.Second), Kind: "pause", Object: "circuit:bank", Text: "paused", By: "pause", Client: "eva"})
	flaps.Total++
	r.reply(api.VerbMarks, flaps)
	circuit = r.get("/gates/circuit?key=bank").Body.String()
	require.Contains(t, circuit, "opened: failures, 60 times since")
	require.Contains(t, circuit, "<title>1–2: ", "two marks in one place")
	require.NotContains(t, circuit, `<li value="3">`)
	require.NotContains(t, circuit, "left out")

	r.reply(api.VerbMarks, api.Marks{})
	require.NotContains(t, r.get("/gates/circuit?key=bank").Body.String(), "Marks in the charts")
}

// TestThrottlesAreSampled every ten seconds, page by page, however often queues are.
func TestThrottlesAreSampled(t *testing.T) {
	r := newRig(t, nil)
	r.reply(api.VerbThrottleList, api.ThrottleList{Total: 1, Throttles: []api.ThrottleInfo{{Key: "stripe"}}})
	r.history.sample(r.Web)
	r.history.sample(r.Web)
	require.Len(t, r.of(api.VerbThrottleList), 1)
	require.JSONEq(t, `{"limit":1000}`, r.of(api.VerbThrottleList)[0].body)

	r.history.mu.gatesAt = time.Time{}
	r.reply(api.VerbThrottleList, wire.Internal("no"))
	r.history.sample(r.Web)
	require.NoError(t, r.history.mu.err, "queues are sampled nevertheless")
}
