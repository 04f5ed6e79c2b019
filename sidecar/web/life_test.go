package web

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// The line of a message's life is to scale, and each part has its text.
func TestLife(t *testing.T) {
	from := time.Unix(1_700_000_000, 0)
	at := func(s int) string { return wire.Timestamp(from.Add(time.Duration(s) * time.Second).UnixNano()) }
	history := []api.AttemptInfo{
		{Attempt: 1, At: at(20), WaitedMs: 20_000, Held: []api.HeldInfo{{Kind: "rate", Gate: "throttle:v", Ms: 5000}}, TookMs: 10_000, Outcome: wire.AttemptNack, DelayMs: 30_000, Route: "openai"},
		{Attempt: 2, At: at(70), WaitedMs: 10_000, TookMs: 1, Outcome: wire.AttemptExpired},
	}
	l := lifeOf(at(0), at(100), history, from.Add(time.Hour))
	require.Equal(t, "dead", l.End)
	require.Equal(t, wire.Span(100*time.Second), l.Whole)
	var got []string
	for _, p := range l.Parts {
		got = append(got, p.Kind+" "+p.X+" "+p.W)
		require.NotEmpty(t, p.Text)
	}
	require.Equal(t, []string{
		"wait 0.00% 20.00%", "blocked 0.00% 5.00%", "failed 20.00% 10.00%", "backoff 30.00% 30.00%",
		"wait 60.00% 10.00%", "failed 70.00% 0.50%", "dead 99.50% 0.50%",
	}, got)

	require.Equal(t, "attempt 1 by route openai: nacked after 10 s", l.Parts[2].Text)
	require.Equal(t, "attempt 2: lease expired after 1 ms", l.Parts[5].Text)

	require.Empty(t, lifeOf(at(0), "", nil, from).Parts, "no attempt yet")
	require.Empty(t, lifeOf("", "", history, from).Parts)
	alive := lifeOf(at(0), "", history, from.Add(200*time.Second))
	require.Equal(t, "now", alive.End)
	// A clock that was set back does not draw anything outside.
	for _, p := range lifeOf(at(90), at(10), history, from).Parts {
		for _, text := range []string{p.X, p.W} {
			v, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
			require.NoError(t, err)
			require.GreaterOrEqual(t, v, 0.0)
			require.LessOrEqual(t, v, 100.0)
		}
	}
}

// A running job has a mean rate, and an end if its total is known.
func TestJobPace(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	d := &jobData{JobInfo: api.JobInfo{State: api.JobRunning, Matched: 300, StartedAt: wire.Timestamp(now.Add(-time.Minute).UnixNano())}}
	d.pace(now)
	require.InDelta(t, 5, d.PerSecond, 1e-9)
	require.Empty(t, d.EndsAt, "its total is not known")
	d.Limit = 400
	d.pace(now)
	require.Equal(t, wire.Timestamp(now.Add(20*time.Second).UnixNano()), d.EndsAt)
	d.State, d.EndsAt, d.PerSecond = api.JobPaused, "", 0
	d.pace(now)
	require.Zero(t, d.PerSecond)
	require.Empty(t, d.EndsAt)
}
