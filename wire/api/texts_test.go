package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func TestSetByText(t *testing.T) {
	for source, want := range map[string]string{
		"file": "set by the configuration file", "operator": "set by an operator", "override": "overridden by an operator",
		"override until 2030-01-02T15:04:05Z": "overridden by an operator until 2030-01-02T15:04:05Z",
		"none":                                "not set", "default": "the default", "fila b": "set by fila b",
		"prefix a, b*, file": "set by the configuration file for a, b*",
		"hook":               "set by on_enqueue", "header": "set by a header", "message": "set by its messages",
	} {
		require.Equal(t, want, api.SetByText(source), source)
	}
}

// TestSourceText names the client if it is known.
func TestSourceText(t *testing.T) {
	for want, source := range map[string]api.Source{
		"set by maria@ops": {By: "operator", Client: "maria@ops"}, "overridden by file": {By: "override", Client: "file"},
		"set by an operator": {By: "operator"}, "the default": {By: "default"}, "set by the configuration file": {By: "file", At: "2026-01-02T12:00:00Z"},
	} {
		require.Equal(t, want, source.Text())
	}
}

func TestStateText(t *testing.T) {
	for want, c := range map[string]api.CircuitInfo{
		"closed":                              {State: "closed"},
		"closed, 1 failure in a row":          {State: "closed", ConsecutiveFailures: 1},
		"open after 7 failures in a row":      {State: "open", Cause: api.CauseFailures, ConsecutiveFailures: 7},
		"half-open after 7 failures in a row": {State: "half-open", Cause: api.CauseFailures, ConsecutiveFailures: 7},
		"open by hand":                        {State: "open", Cause: api.CauseByHand, ConsecutiveFailures: 7},
		"open, since the destination asked for a pause (429 or Retry-After)": {State: "open", Cause: api.CauseRetryAfter, ConsecutiveFailures: 1},
		"open after more than max_failures":                                  {State: "open", Cause: api.CauseMaxFailures},
		"open":                                                               {State: "open", Cause: api.CauseFailures},
	} {
		require.Equal(t, want, c.StateText())
	}
}

func TestHistoryText(t *testing.T) {
	for _, tc := range []struct {
		a         api.AttemptInfo
		end, then string
	}{
		{api.AttemptInfo{Outcome: wire.AttemptNack, Attempt: 1, At: "t", TookMs: 120, DecidedBy: wire.DecidedByRule, Rule: "broke", DelayMs: 5000}, "nacked after 120ms", "retried after 5s (rule broke)"},
		{api.AttemptInfo{Outcome: wire.AttemptExpired, Attempt: 2, DecidedBy: wire.DecidedByLimit, Rule: "late", Reason: wire.ReasonMaxDeliveries}, "lease expired", "dead-lettered: max_deliveries (rule late)"},
		{api.AttemptInfo{Outcome: wire.AttemptTerm, Attempt: 1, At: "t", TookMs: 1, DecidedBy: wire.DecidedByConsumer, Reason: wire.ReasonTerm}, "terminated after 1ms", "dead-lettered: term (consumer)"},
		{api.AttemptInfo{Outcome: wire.AttemptNack, Attempt: 1, DecidedBy: wire.DecidedByDefault}, "nacked", "retried at once (default)"},
		{api.AttemptInfo{Outcome: wire.AttemptNoResponders, Attempt: 1, At: "t"}, "no subscriber", ""},
		{api.AttemptInfo{Outcome: wire.AttemptNoResponders, Attempt: 1, At: "t", Times: 3}, "no subscriber, 3 times", ""},
		{api.AttemptInfo{Outcome: wire.AttemptRedriven, At: "t"}, "redriven", ""},
		{api.AttemptInfo{Outcome: wire.AttemptMoved, At: "t", From: "a", To: "b"}, "moved from a to b", ""},
	} {
		require.Equal(t, tc.end, tc.a.EndText(wire.FormatMs))
		require.Equal(t, tc.then, tc.a.ThenText(wire.FormatMs))
	}
}

func TestReasonTexts(t *testing.T) {
	require.Equal(t, "in flight", api.SkippedText(api.LeftInFlight))
	require.Equal(t, "refused by the target queue", api.SkippedText(api.LeftRefused))
	require.Equal(t, "of a newer fila", api.SkippedText("of_a_newer_fila"))
	require.Equal(t, "the turn of its key", api.WaitsForText(api.WaitsForTurn))
	require.Equal(t, "a consumer with credit", api.WaitsForText(api.WaitsForCredit))
}
