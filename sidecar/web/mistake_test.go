package web

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// TestARefusedFormIsShownAgain: its page has the values that were sent, and the reason beside the
// field.
func TestARefusedFormIsShownAgain(t *testing.T) {
	r := newRig(t, nil)
	r.reply(api.VerbThrottleShow, api.ThrottleInfo{Key: "stripe", Source: "operator", State: "open"})
	rec := r.post("/do/throttle-set", "key", "stripe", "rate", "12", "concurrency", "<many>", "back", "/gates/throttle?key=stripe")
	require.Equal(t, http.StatusBadRequest, rec.Code)
	body := rec.Body.String()
	require.Contains(t, body, `value="12"`)
	require.Contains(t, body, `value="&lt;many&gt;" placeholder="no limit" aria-invalid="true" aria-describedby="concurrency-error"`)
	require.Contains(t, body, `id="concurrency-error">&#34;&lt;many&gt;&#34; is not a whole number`)
	require.Contains(t, body, `hx-sse:connect="/live/gates/throttle?key=stripe"`, "the page goes on as it was")
	require.Empty(t, r.of(api.VerbThrottleSet))

	// A refusal of the verb has no field.
	r.reply(api.VerbThrottleSet, wire.BadThrottle("burst needs rate"))
	rec = r.post("/do/throttle-set", "key", "stripe", "burst", "3", "back", "/gates/throttle?key=stripe")
	require.Equal(t, http.StatusBadRequest, rec.Code)
	require.Contains(t, rec.Body.String(), "Nothing was changed: ")
	require.Contains(t, rec.Body.String(), "burst needs rate")
	require.Contains(t, rec.Body.String(), `value="3"`)

	// The page of the form is gone, or not one of ours.
	r.reply(api.VerbThrottleShow, wire.BadThrottle("it is gone"))
	for _, back := range []string{"/gates/throttle?key=stripe", "/nowhere", "https://evil.example/", "", "/do/throttle-set"} {
		rec = r.post("/do/throttle-set", "key", "stripe", "concurrency", "many", "back", back)
		require.Equal(t, http.StatusBadRequest, rec.Code, back)
		require.NotContains(t, rec.Body.String(), "evil", back)
	}

	// Two forms of the same action on a page.
	rec = r.post("/do/pause", "kind", "key", "queue", "orders", "name", "acme", "for", "soon", "back", "/queues/orders/tenants")
	body = rec.Body.String()
	require.Contains(t, body, `id="key-for" name="for" value="soon"`)
	require.Contains(t, body, `id="pause-for" name="for" value=""`)
	require.Contains(t, body, `id="key-pause" class="menu panel refused"`, "the menu is open without script")
	require.Contains(t, body, `id="pause" class="menu panel"`)
}

// TestFilterFields: a filter as its conditions.
func TestFilterFields(t *testing.T) {
	require.Empty(t, filterFields(nil))
	require.Empty(t, filterFields(&api.Filter{All: true}))
	require.Equal(t, []field{{"message", "a"}}, filterFields(&api.Filter{IDs: []string{"a"}}))
	require.Equal(t, []field{{"key", "acme"}, {"header", "a=1"}, {"header", "b=2"}, {"selected", "2 messages"}, {"attempts", "3 or more"}, {"error code", "500"}},
		filterFields(&api.Filter{Keys: []string{"acme"}, Header: map[string]string{"b": "2", "a": "1"}, IDs: []string{"a", "b"}, AttemptsMin: 3, ErrorCode: "500"}))
}

// TestNothingSelected: the form of the messages is shown again.
func TestNothingSelected(t *testing.T) {
	r := newRig(t, nil)
	rec := r.get("/jobs/new?queue=orders&op=cancel&which=ticked&key=acme")
	require.Equal(t, http.StatusBadRequest, rec.Code)
	require.Contains(t, rec.Body.String(), "no message is selected")
	require.Contains(t, rec.Body.String(), `name="key" value="acme"`)
}

// TestChangesByField: the audit log shows what differs.
func TestChangesByField(t *testing.T) {
	text := func(s string) *string { return &s }
	for name, tc := range map[string]struct {
		before, after *string
		want          []fieldChange
	}{
		"new":       {nil, text("5"), []fieldChange{{New: "5", HasNew: true}}},
		"removed":   {text("5"), nil, []fieldChange{{Old: "5", HadOld: true}}},
		"a value":   {text("5"), text("6"), []fieldChange{{Old: "5", HadOld: true, New: "6", HasNew: true}}},
		"one field": {text(`{"rate":"5","burst":2}`), text(`{"rate":"7","burst":2}`), []fieldChange{{Name: "rate", Old: "5", HadOld: true, New: "7", HasNew: true}}},
		"fields": {text(`{"a":[1],"b":null}`), text(`{"b":"x","c":{"d":1}}`), []fieldChange{
			{Name: "a", Old: "[1]", HadOld: true}, {Name: "b", Old: "", HadOld: true, New: "x", HasNew: true}, {Name: "c", New: `{"d":1}`, HasNew: true},
		}},
		"a new object":   {nil, text(`{"a":"x"}`), []fieldChange{{Name: "a", New: "x", HasNew: true}}},
		"no JSON before": {text("{"), text(`{"a":1}`), []fieldChange{{Old: "{", HadOld: true, New: `{"a":1}`, HasNew: true}}},
		"a reason":       {nil, text(`{"a":1,"reason":"why","z":0}`), []fieldChange{{Name: "reason", New: "why", HasNew: true}, {Name: "a", New: "1", HasNew: true}}},
		"nothing":        {text(`{"a":1}`), text(`{"a":1}`), nil},
		"neither":        {nil, nil, nil},
	} {
		require.Equal(t, tc.want, changesOf(tc.before, tc.after), name)
	}
}

// TestFirstSteps: an empty fila shows three commands, and what has taken effect.
func TestFirstSteps(t *testing.T) {
	queue := func(pending, acked, flying int64) []api.QueueSummary {
		return []api.QueueSummary{
			{Name: "mails", Pending: pending, InFlight: flying, Detail: &api.QueueDetail{Enqueued: pending + acked + flying, Acked: acked}}, {Name: "mails.dlq"},
		}
	}
	require.Equal(t, &firstSteps{Queue: "orders"}, firstStepsOf(nil))
	require.Equal(t, &firstSteps{"mails", true, false, false}, firstStepsOf(queue(0, 0, 0)))
	require.Equal(t, &firstSteps{"mails", true, true, false}, firstStepsOf(queue(1, 0, 0)))
	require.Equal(t, &firstSteps{"mails", true, true, true}, firstStepsOf(queue(0, 0, 1)))
	require.Nil(t, firstStepsOf(queue(5, 1, 0)), "the fila is in use")
	require.Nil(t, firstStepsOf(queue(40_000, 0, 0)))
	require.Nil(t, firstStepsOf([]api.QueueSummary{{Name: "mails"}, {Name: "mails.dlq", Pending: 40_000}}))
	require.Nil(t, firstStepsOf([]api.QueueSummary{{Name: "a"}, {Name: "b"}}))
}

// TestTimesAsPeopleSayThem, as fila.js prints them too.
func TestTimesAsPeopleSayThem(t *testing.T) {
	for text, ms := range map[string]int64{
		"now": 900, "1 s ago": 1999, "59 s ago": 59_000, "2 min ago": 120_000, "59 min ago": 3_599_000, "1 h ago": 3_600_000, "1 h 5 min ago": 3_900_000,
		"3 days ago": 3*86_400_000 + 5, "in 5 s": -5100, "in 1 h 30 min": -5_400_000,
	} {
		require.Equal(t, text, relative(time.Duration(ms)*time.Millisecond), ms)
	}
	require.Equal(t, "no time", ago("no time"))
	require.Equal(t, "…00000001", shortID(someID))
	require.Equal(t, "job-1", shortID("job-1"))
}

// TestSettingsHaveUnits: settings are shown as people read them.
func TestSettingsHaveUnits(t *testing.T) {
	for from, want := range map[field]setting{
		{"dedupe_window_ms", "120000"}:     {field: field{"dedupe_window", "2 min"}, Raw: "120000 ms"},
		{"max_pending_per_key", "1000000"}: {field: field{"max_pending_per_key", "1,000,000"}, Raw: ""},
		{"throttle_headers", `["A","B"]`}:  {field: field{"throttle_headers", "A, B"}, Raw: ""},
		{"fairness_header", "tenant_ms"}:   {field: field{"fairness_header", "tenant_ms"}, Raw: ""},
		{"retry_jitter", "0.5"}:            {field: field{"retry_jitter", "0.5"}, Raw: ""},
	} {
		require.Equal(t, want, settingFrom(from, api.Source{}))
	}
}
