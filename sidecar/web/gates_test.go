package web

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// TestThrottleChanges: the page of a key shows who changed the limits in force, also if a
// prefix has them, and sets them back.
func TestThrottleChanges(t *testing.T) {
	r := newRig(t, nil)
	rate, before := wire.Rate("2"), wire.Rate("20")
	change := &api.LimitsChange{
		Key: "tenant:*", At: "2026-01-02T12:00:00Z", Client: "maria@ops",
		Old: api.ThrottleLimits{Rate: &before, WindowMs: new(int64(60_000))}, New: api.ThrottleLimits{Rate: &rate, Burst: new(2.)},
	}
	r.reply(api.VerbThrottleShow, api.ThrottleInfo{
		Key: "tenant:acme", Source: "prefix tenant:*, operator", State: "rate", ThrottleLimits: api.ThrottleLimits{Rate: &rate}, Change: change,
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
	r.reply(api.VerbThrottleShow, api.ThrottleInfo{
		Key: "tenant:acme", Source: "prefix tenant:*, operator", State: "rate", ThrottleLimits: api.ThrottleLimits{Rate: &rate}, Change: change,
		Sources: api.Sources{
			"rate":  {By: "operator", Client: "otto", At: "2026-01-02T11:00:00Z"},
			"burst": {By: "operator", Client: "maria@ops", Owner: "billing", At: "2026-01-02T12:00:00Z"},
		},
	})
	page = r.get("/gates/throttle?key=tenant:acme").Body.String()
	require.Contains(t, page, `set by maria@ops for billing for <a href="/gates/throttle?key=tenant%3A%2A">tenant:*</a>`)
	require.Equal(t, 1, strings.Count(page, "/do/throttle-back"), "only the latest change can be undone")
	require.NotContains(t, page, `value="7"`, "a change of another key")

	form := []string{"key", "tenant:*", "at", "2026-01-02T12:00:00Z", "old", "20/s", "new", "2/s", "back", "/gates"}
	asked := r.post("/do/throttle-back", form...).Body.String()
	require.Contains(t, asked, "Set the limits of tenant:* from 2/s back to 20/s? This changes all throttle keys that begin with tenant: and have no limits of their own.")
	require.Empty(t, r.of(api.VerbThrottleSet))
	rec := r.post("/do/throttle-back", append(form, "confirm", "yes")...)
	require.Equal(t, http.StatusSeeOther, rec.Code)
	require.JSONEq(t, `{"rate":"20","window_ms":60000,"unset":["burst"],"if":{"rate":"2","burst":2,"window_ms":0}}`, r.of(api.VerbThrottleSet)[0].body)
	change.At = "2026-01-02T12:01:00Z"
	rec = r.post("/do/throttle-back", append(form, "confirm", "yes")...)
	require.Equal(t, http.StatusBadRequest, rec.Code)
	require.Contains(t, rec.Body.String(), "the limits of tenant:* have been changed again since")
	require.Len(t, r.of(api.VerbThrottleSet), 1)
}

// TestThrottlePrefix: the page of a prefix has its keys with waiting messages, and nothing of one
// bucket.
func TestThrottlePrefix(t *testing.T) {
	r := newRig(t, nil)
	rate := wire.Rate("2")
	r.reply(api.VerbThrottleShow, api.ThrottleInfo{
		Key: "tenant:*", Source: "operator", State: "open", Admits: true, ThrottleLimits: api.ThrottleLimits{Rate: &rate}, Waiting: 1, WaitingMessages: 2040,
		WaitingKeys: []api.WaitingKey{{Key: "tenant:acme", Messages: 2000}, {Key: "tenant:globex", Messages: 40}}, WaitingQueues: []api.WaitingQueue{{Queue: "reports", Messages: 2040, Flows: 2}},
	})
	page := r.get("/gates/throttle?key=tenant:*").Body.String()
	for _, text := range []string{`<a href="/gates/throttle?key=tenant%3Aacme">tenant:acme</a></th><td class="n">2,000`, "2,040", "in 1 queue", "Each key has its own bucket", "reports"} {
		require.Contains(t, page, text)
	}
	for _, text := range []string{"Tokens in the bucket", ">admits<", "chart", "Admitted"} {
		require.NotContains(t, page, text)
	}
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
	require.NotContains(t, page, "The destination limits its rate")
	r.reply(api.VerbCircuitShow, api.CircuitInfo{Key: "smsgate", State: "closed", Openings: &api.CircuitOpenings{Count: 70, Cause: "retry_after"}, LastFailure: &api.CircuitFailure{ID: id, Error: "your plan allows 20 messages per second"}})
	page = r.get("/gates/circuit?key=smsgate").Body.String()
	require.Contains(t, page, "The destination limits its rate", "also in a moment in which nothing waits")
	require.Contains(t, page, `<input type="hidden" name="rate" value="20">`, "a button sets it, since the throttle has no limits")
	r.reply(api.VerbMessageShow, api.MessageInfo{Queue: "sms", Gates: []api.GateState{{Gate: "throttle:vendor:smsgate", Limits: "5 at once"}}, PeekedMessage: api.PeekedMessage{ID: id}})
	require.Contains(t, r.get("/gates/circuit?key=smsgate").Body.String(), `href="/gates/throttle?key=vendor%3Asmsgate&amp;rate=20#rate"`, "the form has its other limits")
	r.reply(api.VerbMessageShow, api.MessageInfo{Queue: "sms", Gates: []api.GateState{{Gate: "throttle:vendor:smsgate", Limits: "20/s, burst 20"}}, PeekedMessage: api.PeekedMessage{ID: id}})
	require.Contains(t, r.get("/gates/circuit?key=smsgate").Body.String(), "has this rate now")
	r.reply(api.VerbCircuitShow, api.CircuitInfo{Key: "smsgate", State: "open", Waiting: 1, WaitingQueues: []api.WaitingQueue{{Queue: "sms", Messages: 7, Flows: 2}}})

	r.reply(api.VerbMessageShow, wire.MessageNotFound("sms", id))
	page = r.get("/gates/circuit?key=smsgate").Body.String()
	require.NotContains(t, page, "Last error", "the message has gone")
	require.Contains(t, page, "7")
}
