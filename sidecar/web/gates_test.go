package web

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// TestThrottleChanges: the page of a key shows who changed the limits in force, also if a
// prefix has them, and sets them back.
func TestThrottleChanges(t *testing.T) {
	r := newRig(t, nil)
	rate := wire.Rate("2")
	r.reply(api.VerbThrottleShow, api.ThrottleInfo{
		Key: "tenant:acme", Source: "prefix tenant:*, operator", State: "rate", ThrottleLimits: api.ThrottleLimits{Rate: &rate},
	})
	text := func(s string) *string { return &s }
	r.reply(api.VerbConfigLog, api.ConfigLog{Entries: []api.ConfigLogEntry{
		{Time: "2026-01-02T12:00:00Z", Key: "throttle:tenant:*:rate", Old: text("20"), New: text("2"), By: "throttle-set", Client: "maria@ops"},
		{Time: "2026-01-02T12:00:00Z", Key: "throttle:tenant:*:window_ms", Old: text("60000"), By: "throttle-set", Client: "maria@ops"},
		{Time: "2026-01-02T11:00:00Z", Key: "throttle:tenant:*:rate", New: text("20"), By: "file"},
		{Time: "2026-01-02T10:00:00Z", Key: "throttle:tenant:*:x:rate", Old: text("7"), New: text("8"), By: "throttle-set"},
	}})
	page := r.get("/gates/throttle?key=tenant:acme").Body.String()
	require.JSONEq(t, `{"prefix":"throttle:tenant:*:","limit":20}`, r.of(api.VerbConfigLog)[0].body)
	require.Contains(t, page, "Changes of tenant:*")
	require.Contains(t, page, "maria@ops")
	require.Contains(t, page, `set by an operator for <a href="/gates/throttle?key=tenant%3A%2A">tenant:*</a>`)
	require.Contains(t, page, `<input type="hidden" name="rate" value="20"><input type="hidden" name="window" value="60000ms"><button aria-label="Set tenant:* back to rate 20 window 60000ms`)
	require.NotContains(t, page, `value="7"`, "a change of another key")

	rec := r.post("/do/throttle-set", "key", "tenant:*", "keep", "1", "rate", "20", "window", "60000ms", "back", "/gates")
	require.Equal(t, http.StatusSeeOther, rec.Code)
	require.JSONEq(t, `{"rate":"20","window_ms":60000}`, r.of(api.VerbThrottleSet)[0].body)
}

// TestCircuitShowsAnError of a message that waits, and the throttles that could limit its rate.
func TestCircuitShowsAnError(t *testing.T) {
	r := newRig(t, nil)
	r.reply(api.VerbCircuitShow, api.CircuitInfo{Key: "smsgate", State: "open", Waiting: 1, WaitingQueues: []api.WaitingQueue{{Queue: "sms", Messages: 7, Flows: 2}}})
	const id = "01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80"
	r.reply(api.VerbPeek, api.PeekReply{Messages: []api.PeekedMessage{{ID: id}}})
	r.reply(api.VerbMessageShow, api.MessageInfo{
		Queue: "sms", Gates: []api.GateState{{Gate: "circuit:smsgate"}, {Gate: "throttle:vendor:smsgate"}},
		PeekedMessage: api.PeekedMessage{ID: id, Key: "acme", History: []api.AttemptInfo{
			{At: "2026-01-02T12:00:00Z", Error: "first"}, {At: "2026-01-02T12:01:00Z", Error: "<too> many", ErrorCode: "429"}, {At: "2026-01-02T12:02:00Z", Outcome: "redriven"},
		}},
	})
	page := r.get("/gates/circuit?key=smsgate").Body.String()
	require.Contains(t, r.of(api.VerbPeek)[0].body, `"filter":{"attempts_min":1,"gate":"circuit:smsgate"}`)
	require.Contains(t, page, "[429] &lt;too&gt; many")
	require.Contains(t, page, `<a href="/gates/throttle?key=vendor%3Asmsgate">vendor:smsgate</a>, limits: none.`)

	r.reply(api.VerbMessageShow, wire.MessageNotFound("sms", id))
	page = r.get("/gates/circuit?key=smsgate").Body.String()
	require.NotContains(t, page, "Last error", "the message has gone")
	require.Contains(t, page, "7")
}
