package web

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// The band has each state for as long as circuit-show says, and the failures of each minute.
func TestBand(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	at := func(ago time.Duration) string { return wire.Timestamp(now.Add(-ago).UnixNano()) }
	h := &api.CircuitHistory{
		Since: at(30 * time.Minute),
		Changes: []api.CircuitChange{
			{At: at(15 * time.Minute), Old: "closed", New: "open", Cause: "failures"},
			{At: at(18 * time.Minute), Old: "open", New: "half-open", Cause: "time"}, // the clock has jumped back
			{At: at(3 * time.Minute), Old: "half-open", New: "closed", Cause: "success"},
		},
		Failures: []api.CircuitFailures{{Minute: at(20 * time.Minute), Failures: 1}, {Minute: at(15 * time.Minute), Failures: 40}},
	}
	p := bandOf(h, "closed", now)
	minutes := func(n int64) int64 { return n * 60_000 }
	require.Equal(t, []bandState{
		{X: "0.00%", W: "50.00%", State: "closed", Since: at(30 * time.Minute), Ms: minutes(15)},
		{X: "50.00%", W: "0.30%", State: "open", Since: at(15 * time.Minute), Cause: "failures"},
		{X: "50.00%", W: "40.00%", State: "half-open", Since: at(18 * time.Minute), Cause: "time", Ms: minutes(12)},
		{X: "90.00%", W: "10.00%", State: "closed", Since: at(3 * time.Minute), Cause: "success", Ms: minutes(3)},
	}, p.States)
	require.EqualValues(t, []int64{41, 40}, []int64{p.Sum, p.Most})
	require.Equal(t, []bandFailures{
		{CircuitFailures: h.Failures[0], X: "33.33%", W: "3.33%", Y: 38, H: 2},
		{CircuitFailures: h.Failures[1], X: "50.00%", W: "3.33%", Y: 0, H: 40},
	}, p.Failures)

	h.Changes, h.Failures = nil, nil
	p = bandOf(h, "open", now)
	require.Equal(t, []bandState{{X: "0.00%", W: "100.00%", State: "open", Since: h.Since, Ms: minutes(30)}}, p.States)
	require.Equal(t, 30, p.Minutes, "the part of the hour that is known")
	h.Since = at(3 * time.Hour)
	require.Equal(t, 60, bandOf(h, "open", now).Minutes)
	require.Empty(t, bandOf(nil, "open", now).States)
	require.Empty(t, bandOf(&api.CircuitHistory{Since: "yesterday"}, "open", now).States)
}

// The page of a circuit shows the failure that opened it and the hour before.
func TestPageOfAFailedCircuit(t *testing.T) {
	r := newRig(t, nil)
	r.reply("guard "+api.GuardState, api.GuardStatus{})
	now := time.Now()
	at := func(ago time.Duration) string { return wire.Timestamp(now.Add(-ago).UnixNano()) }
	gate := api.CircuitInfo{
		Key: "stripe", State: "open", LastFailure: &api.CircuitFailure{At: at(time.Minute), ID: someID, Attempt: 3, ErrorCode: "503", Error: "<b>over & out"},
		History: &api.CircuitHistory{
			Since:    at(time.Hour),
			Changes:  []api.CircuitChange{{At: at(time.Minute), Old: "closed", New: "open", Cause: "failures"}},
			Failures: []api.CircuitFailures{{Minute: at(2 * time.Minute), Failures: 1234}},
		},
	}
	r.reply(api.VerbCircuitShow, gate)
	body := r.get("/gates/circuit?key=stripe").Body.String()
	for _, want := range []string{
		`<a href="/messages/` + someID + `">`, "&lt;b&gt;over &amp; out", "503", `<rect class="failures"`, `<rect class="open"`, "1,234 failures, at most 1,234 in a minute", "<td>failures</td>",
	} {
		require.Contains(t, body, want)
	}
	gate.LastFailure, gate.History = &api.CircuitFailure{At: at(time.Minute)}, nil
	r.reply(api.VerbCircuitShow, gate)
	body = r.get("/gates/circuit?key=stripe").Body.String()
	require.Contains(t, body, "by a caller without a name")
	require.False(t, strings.Contains(body, "band-picture"), "nothing is known")
}
