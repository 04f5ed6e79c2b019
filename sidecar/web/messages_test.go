package web

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

const someID = "0195e5a0-0000-7000-8000-000000000001"

// someMessage is a message that waits.
func someMessage(payload string) api.MessageInfo {
	m := api.MessageInfo{Queue: "orders", Reason: "It is delayed until 2030-01-02T15:04:05Z."}
	m.ID, m.Key, m.State = someID, "acme", api.StateDelayed
	m.SetContent(map[string][]string{"Plan": {"gold"}, "Tenant": {"acme"}, "Twice": {"a", "b"}}, []byte(payload), api.MaxPeekPayload)
	return m
}

// The page of a message links its trace if the configuration says where traces are and the trace
// was recorded, and only if the header is a trace.
func TestTheTraceOfAMessage(t *testing.T) {
	const id = "0af7651916cd43dd8448eb211c80319c"
	at := `<a href="https://traces.example.com/explore?q=%7B%22id%22:%22` + id + `%22%7D&amp;x=1" target="_blank" rel="noopener noreferrer">` + id + `</a>`
	for name, tc := range map[string]struct {
		header, value string
		url           string
		shows         string // "": no trace
	}{
		"a link":      {"TraceParent", "00-" + id + "-b7ad6b7169203331-01", "https://traces.example.com/explore?q=%7B%22id%22:%22{trace_id}%22%7D&x=1", at},
		"nowhere":     {"traceparent", "00-" + id + "-b7ad6b7169203331-01", "", id},
		"not sampled": {"traceparent", "00-" + id + "-b7ad6b7169203331-00", "https://traces.example.com/{trace_id}", id},
		"no id":       {"traceparent", "00-" + strings.Repeat("/", 32) + "-b7ad6b7169203331-01", "https://traces.example.com/{trace_id}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(cfg *config.HTTPConfig) { cfg.TraceURL = tc.url })
			m := someMessage("x")
			m.SetContent(map[string][]string{tc.header: {tc.value}}, nil, api.MaxPeekPayload)
			r.reply(api.VerbMessageShow, m)
			body := r.get("/messages/" + someID).Body.String()
			if tc.shows == "" {
				require.NotContains(t, body, "<dt>Trace</dt>")
				require.NotContains(t, body, "traces.example.com")
			} else {
				require.Contains(t, body, `<dt>Trace</dt><dd class="mono">`+tc.shows+"</dd>")
			}
		})
	}
}

// A payload is seen by operators alone, when they ask.
func TestPayloadsAreHidden(t *testing.T) {
	r := newRig(t, func(cfg *config.HTTPConfig) { cfg.ViewerToken = tokenFile(t, "viewer-viewer-viewer") })
	r.reply(api.VerbMessageShow, someMessage("secret <b>payload</b>"))
	req := request(http.MethodGet, "/messages/"+someID+"?payload=show", nil)
	req.Header.Set("Authorization", "Bearer viewer-viewer-viewer")
	rec := r.serve(req)
	require.Equal(t, http.StatusOK, rec.Code, rec.Body)
	require.NotContains(t, rec.Body.String(), "secret")
	require.Contains(t, rec.Body.String(), "gold")
	for _, path := range []string{"/messages/" + someID + "/edit", "/jobs/new?queue=orders&op=cancel&which=all"} {
		req = request(http.MethodGet, path, nil)
		req.Header.Set("Authorization", "Bearer viewer-viewer-viewer")
		require.Equal(t, http.StatusForbidden, r.serve(req).Code, path)
	}

	r = newRig(t, nil)
	r.reply(api.VerbMessageShow, someMessage("secret <b>payload</b>"))
	require.NotContains(t, r.get("/messages/"+someID).Body.String(), "secret")
	body := r.get("/messages/" + someID + "?payload=show").Body.String()
	require.Contains(t, body, "secret &lt;b&gt;payload&lt;/b&gt;")
	require.Contains(t, body, `It is delayed until <time class="at" datetime="2030-01-02T15:04:05Z" title="2030-01-02T15:04:05Z">`)
}

// Characters that turn the direction of a text are seen, wherever it is shown, and stay
// where a form sends it back; there the page says that they are there.
func TestTurnersAreSeen(t *testing.T) {
	r := newRig(t, nil)
	const payload = "a\u061cb\u200ec\u200fd\u202ae\u202bf\u202cg\u202dh\u202ei\u2066j\u2067k\u2068l\u2069m \u2014 \u05d0"
	m := someMessage(payload)
	m.Key, m.Reason = "\u202egnp.exe", "It says \u2067."
	m.PeekedMessage.Headers["Plan"] = []string{"\u2066gold"}
	r.reply(api.VerbMessageShow, m)
	body := r.get("/messages/" + someID + "?payload=show").Body.String()
	for _, seen := range []string{
		"a⟨U+061C⟩b⟨U+200E⟩c⟨U+200F⟩d⟨U+202A⟩e⟨U+202B⟩f⟨U+202C⟩g⟨U+202D⟩h⟨U+202E⟩i⟨U+2066⟩j⟨U+2067⟩k⟨U+2068⟩l⟨U+2069⟩m \u2014 \u05d0",
		"⟨U+202E⟩gnp.exe", "It says ⟨U+2067⟩.", "⟨U+2066⟩gold",
	} {
		require.Contains(t, body, seen)
	}
	require.False(t, turns([]byte(ofForms.ReplaceAllString(body, ""))), body)
	const warns = "change the direction of text"
	body = r.get("/messages/" + someID + "/edit").Body.String()
	require.Contains(t, body, payload)
	require.Contains(t, body, "Plan: \u2066gold")
	require.Contains(t, body, warns)
	r.reply(api.VerbMessageShow, someMessage("\u2014 \u05d0"))
	require.NotContains(t, r.get("/messages/"+someID+"/edit").Body.String(), warns)
}

// Deliveries that nobody received are one entry, with their number.
func TestATimelineSaysHowOften(t *testing.T) {
	r := newRig(t, nil)
	m := someMessage("x")
	m.History = []api.AttemptInfo{
		{Outcome: wire.AttemptNoResponders, Attempt: 1, At: "2030-01-02T15:04:05Z", Consumer: "w", Route: "openai"},
		{Outcome: wire.AttemptMoved, At: "2030-01-02T15:04:30Z", From: "orders.dlq", To: "by-hand"},
		{Outcome: wire.AttemptNoResponders, Attempt: 2, At: "2030-01-02T15:05:05Z", Consumer: "w", Times: 3, LastAt: "2030-01-02T15:06:05Z"},
	}
	r.reply(api.VerbMessageShow, m)
	body := r.get("/messages/" + someID).Body.String()
	require.Contains(t, body, "Attempt 1 by route openai: no subscriber</strong>")
	require.Contains(t, body, "<strong>moved from orders.dlq to by-hand</strong>")
	require.Contains(t, body, "Attempt 2: no subscriber, 3 times</strong>")
	require.Contains(t, body, `, the last <time datetime="2030-01-02T15:06:05Z" title="2030-01-02T15:06:05Z">`)
}

// The routes of a message are a table: the gates of each, which one blocks it, and by which the
// message went last.
func TestRoutesOfAMessage(t *testing.T) {
	r := newRig(t, nil)
	m := someMessage("x")
	r.reply(api.VerbMessageShow, m)
	require.NotContains(t, r.get("/messages/"+someID).Body.String(), `id="routes"`, "it has no choice")
	m.Routes = []api.RouteState{
		{Name: "openai", Gates: []string{"throttle:openai:tpm", "circuit:openai"}, BlockedBy: &api.GateState{Kind: "circuit", Gate: "circuit:openai", InUse: "open <since> noon"}},
		{Name: "anthropic", Gates: []string{"circuit:anthropic"}, Admits: true},
		{Name: "spare", Gates: []string{}, Admits: true},
	}
	m.Route = "anthropic"
	m.History = []api.AttemptInfo{
		{Outcome: wire.AttemptNack, Attempt: 1, Route: "spare"},
		{Outcome: wire.AttemptNack, Attempt: 2, Route: "openai"},
		{Outcome: wire.AttemptExpired, Attempt: 3, Route: "openai"},
	}
	r.reply(api.VerbMessageShow, m)
	rows := strings.SplitAfter(r.get("/messages/"+someID).Body.String(), "</tr>")
	row := func(name string) string {
		i := slices.IndexFunc(rows, func(row string) bool { return strings.Contains(row, `<th scope="row" class="mono">`+name+"</th>") })
		require.NotEqual(t, -1, i, name)
		return rows[i]
	}
	require.Contains(t, strings.Join(rows, ""), "goes by the first that admits it")
	require.Contains(t, row("openai"), ">blocks</span>")
	require.Contains(t, row("openai"), "(circuit; open &lt;since&gt; noon)")
	require.Contains(t, row("openai"), `<a href="/gates/throttle?key=openai%3Atpm">throttle:openai:tpm</a>, <a href="/gates/circuit?key=openai">`)
	require.Contains(t, row("openai"), "3: lease expired")
	require.Contains(t, row("anthropic"), ">admits</span>")
	require.Contains(t, row("anthropic"), "in flight")
	require.Contains(t, row("spare"), "1: nacked")
	require.NotContains(t, row("spare"), "/gates/")
	require.NotContains(t, strings.Join(rows, ""), ">Weight<")
	m.Routes[0].Weight, m.Routes[1].Weight, m.Routes[2].Weight = 3, 1, 1
	r.reply(api.VerbMessageShow, m)
	require.Contains(t, r.get("/messages/"+someID).Body.String(), `class="mono">openai</th><td class="n">3</td>`)
}

// A form that nobody has touched changes nothing, whatever a browser does to its lines.
func TestEditsAreWhatDiffers(t *testing.T) {
	for name, tc := range map[string]struct {
		payload string
		binary  bool
		form    []string
		want    string // of the job; "": nothing was changed
		refused string
	}{
		"nothing":          {"one\ntwo", false, []string{"headers", "Plan: gold\r\nTenant: acme\r\n", "payload", "one\r\ntwo"}, "", ""},
		"header":           {"x", false, []string{"headers", "Plan: silver\r\nTenant: acme", "payload", "x"}, `"set_headers":{"Plan":"silver"}`, ""},
		"new header":       {"x", false, []string{"headers", "Plan: gold\nTenant: acme\nTo: a: b", "payload", "x"}, `"set_headers":{"To":"a: b"}`, ""},
		"no header":        {"x", false, []string{"headers", "Tenant: acme", "payload", "x"}, `"remove_headers":["Plan"]`, ""},
		"payload":          {"one\ntwo", false, []string{"headers", "Plan: gold\nTenant: acme", "payload", "one\r\nthree"}, `"payload":"` + base64.StdEncoding.EncodeToString([]byte("one\nthree")) + `"`, ""},
		"payload of CR LF": {"one\r\ntwo", false, []string{"headers", "Plan: gold\nTenant: acme", "payload", "one\r\nthree"}, `"payload":"` + base64.StdEncoding.EncodeToString([]byte("one\r\nthree")) + `"`, ""},
		"bytes":            {"\xff\x00", true, []string{"headers", "Plan: gold\nTenant: acme", "payload", "/w\r\nE="}, `"payload":"/wE="`, ""},
		"same bytes":       {"\xff\x00", true, []string{"headers", "Plan: gold\nTenant: acme", "payload", "/wA="}, "", ""},
		"no base64":        {"\xff\x00", true, []string{"headers", "Plan: gold\nTenant: acme", "payload", "no!"}, "", "not base64"},
		"no payload":       {"x", false, []string{"headers", "Tenant: acme"}, `"remove_headers":["Plan"]`, ""},
		"no line":          {"x", false, []string{"headers", "Plan"}, "", "not a header"},
		"twice":            {"x", false, []string{"headers", "Plan: a\nPlan: b"}, "", "occurs twice"},
		"reason":           {"x", false, []string{"headers", "Tenant: acme", "reason", "why"}, `"reason":"why"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.reply(api.VerbMessageShow, someMessage(tc.payload))
			r.reply(api.VerbJobCreate, api.JobInfo{ID: "job-1"})
			rec := r.post("/do/edit-message", append([]string{"queue", "orders", "id", someID}, tc.form...)...)
			made := r.of(api.VerbJobCreate)
			if tc.want == "" {
				require.Empty(t, made)
				require.Equal(t, http.StatusBadRequest, rec.Code)
				if tc.refused == "" {
					tc.refused = "nothing was changed"
				}
				require.Contains(t, rec.Body.String(), tc.refused)
				return
			}
			require.Equal(t, http.StatusSeeOther, rec.Code, rec.Body)
			require.Equal(t, "/jobs/job-1", rec.Header().Get("Location"))
			require.Len(t, made, 1)
			require.Contains(t, made[0].body, tc.want)
			require.Contains(t, made[0].body, `"filter":{"ids":["`+someID+`"]}`)
			require.NotContains(t, made[0].body, "Twice")
		})
	}
}

// A form about messages becomes a filter that the protocol knows; a form that selects no messages
// does nothing.
func TestFormsAreFilters(t *testing.T) {
	_, f, err := readFilter(url.Values{})
	require.NoError(t, err)
	require.Equal(t, api.Filter{All: true}, f)
	form, f, err := readFilter(url.Values{"key": {" acme "}, "header": {"plan=a=b"}, "attempts_min": {"3"}, "dead_reason": {"expired"}, "state": {""}})
	require.NoError(t, err)
	require.Equal(t, api.Filter{Keys: []string{"acme"}, Header: map[string]string{"plan": "a=b"}, AttemptsMin: 3, Reason: "expired"}, f)
	require.Equal(t, []field{{"key", "acme"}, {"header", "plan=a=b"}, {"attempts_min", "3"}, {"dead_reason", "expired"}}, form.Fields)
	for _, bad := range []url.Values{{"header": {"plan"}}, {"attempts_min": {"0"}}, {"attempts_min": {"-1"}}} {
		_, _, err := readFilter(bad)
		require.Error(t, err)
	}

	r := newRig(t, nil)
	r.reply(api.VerbJobCreate, api.JobInfo{ID: "job-1"})
	for _, form := range [][]string{
		{"queue", "orders", "op", "cancel"},
		{"queue", "orders", "op", "cancel", "which", "ticked"},
		{"queue", "orders", "op", "cancel", "which", "all", "rate", "fast"},
		{"queue", "orders", "op", "cancel", "which", "all", "header", "x"},
	} {
		require.Equal(t, http.StatusBadRequest, r.post("/do/start-job", form...).Code, form)
	}
	require.Empty(t, r.of(api.VerbJobCreate))
	r.post("/do/start-job", "queue", "orders", "op", "cancel", "which", "all", "key", "acme", "rate", "5", "unless_changed", "yes", "count", "7", "to", "elsewhere", "reason", "why")
	r.post("/do/start-job", "queue", "orders", "op", "cancel", "which", "ticked", "key", "acme", "id", someID)
	var req api.JobCreateRequest
	made := r.of(api.VerbJobCreate)
	require.NoError(t, json.Unmarshal([]byte(made[0].body), &req))
	seven := int64(7)
	require.Equal(t, api.JobCreateRequest{Queue: "orders", Op: "cancel", Filter: req.Filter, Rate: 5, IfCount: &seven, Reason: "why"}, req)
	require.Equal(t, []string{"acme"}, req.Filter.Keys)
	require.Contains(t, made[1].body, `"filter":{"ids":["`+someID+`"]}`, "those that are ticked, and no filter beside them")
}

// A dry run is a page, which nobody makes anything by looking at.
func TestLookingMakesNoJob(t *testing.T) {
	r := newRig(t, nil)
	r.reply(api.VerbJobCreate, api.JobInfo{Matched: 12345, Eligible: 12000, Left: map[string]int64{api.LeftInFlight: 345}})
	body := r.get("/jobs/new?queue=orders.dlq&op=redrive&which=all&error_code=503").Body.String()
	require.Contains(t, body, "12,000 of 12,345 matching messages")
	require.Contains(t, body, "345 in flight")
	for _, made := range r.of(api.VerbJobCreate) {
		require.Contains(t, made.body, `"dry_run":true`)
	}
	require.Equal(t, http.StatusBadRequest, r.get("/jobs/new?queue=orders.dlq&op=cancel&which=all").Code)
	require.NotContains(t, r.get("/jobs/new?queue=orders&op=move&which=all").Body.String(), "of 12,345")
}

// A refusal of a filter is said beside the filter, and others are pages of their own.
func TestMistakesInAFilter(t *testing.T) {
	r := newRig(t, nil)
	r.reply(api.VerbPeek, wire.BadField("state", "x", "allowed are some"))
	rec := r.get("/queues/orders/messages?state=x")
	require.Equal(t, http.StatusOK, rec.Code)
	require.Contains(t, rec.Body.String(), "allowed are some")
	r.reply(api.VerbPeek, wire.QueueNotFound("orders"))
	require.Equal(t, http.StatusNotFound, r.get("/queues/orders/messages").Code)
}

func TestPiecesOfASentence(t *testing.T) {
	require.Equal(t, []piece{{Text: "No time."}}, pieces("No time."))
	require.Equal(t, []piece{{Text: "At "}, {Time: "2030-01-02T15:04:05.123Z"}, {Text: " or "}, {Time: "2031-01-02T15:04:05Z"}, {Text: "."}},
		pieces("At 2030-01-02T15:04:05.123Z or 2031-01-02T15:04:05Z."))
}

// A hook that is tried touches no queue, and never hangs a page.
func TestATriedHookTouchesNothing(t *testing.T) {
	r := newRig(t, nil)
	form := func(script string) []string {
		return []string{"queue", "orders", "hook", "on_enqueue", "attempts", "1", "size", "10", "headers", "Tenant: acme\r\n", "script", script}
	}
	body := r.post("/do/try-hook", form("function on_enqueue(msg)\r\n return {fairness_key = msg.headers['Tenant'], weight = 'x'} end")...).Body.String()
	require.Contains(t, body, "acme")
	require.Contains(t, body, "Defaulted fields")
	body = r.post("/do/try-hook", "queue", "orders", "hook", "on_failure", "attempts", "1", "size", "0", "route", "openai", "script", "function on_failure(msg) return {delay_ms = #msg.route} end").Body.String()
	require.Contains(t, body, "6ms")
	require.Contains(t, body, `value="openai"`, "the form keeps it")
	require.Contains(t, r.post("/do/try-hook", form("function on_enqueue(msg) while true do end end")...).Body.String(), "fails on the sample")
	require.Contains(t, r.post("/do/try-hook", form("function f(")...).Body.String(), "The script is refused")
	require.Equal(t, http.StatusBadRequest, r.post("/do/try-hook", form(strings.Repeat(" ", maxScript+1))...).Code)
	require.Equal(t, http.StatusBadRequest, r.post("/do/try-hook", "hook", "on_fire").Code)
	for _, a := range r.asked {
		require.Equal(t, api.VerbQueueList.Name, a.verb)
	}
}

// TestHookIsSaved: a script that does not load stays in the form with its line, one that loads
// is saved with a reason, and the version before it can be rolled back to.
func TestHookIsSaved(t *testing.T) {
	r := newRig(t, nil)
	r.reply(api.VerbQueueInspect, api.QueueInfo{Settings: wire.DefaultQueueSettings("orders")})
	r.reply(api.VerbHookShow, api.HookReply{
		Queue: "orders", Hook: "on_enqueue", HookVersion: api.HookVersion{Script: "function on_enqueue(msg) end", Client: "alice", At: "2026-01-02T03:04:05Z", Reason: "fair"},
		Before: &api.HookVersion{Script: "-- the one before"},
	})
	r.reply(api.VerbPeek, api.PeekReply{})
	page := r.get("/queues/orders/hooks").Body.String()
	for _, text := range []string{"Set by alice", "fair", "-- the one before", "Roll back", "Save the script"} {
		require.Contains(t, page, text)
	}
	broken := r.post("/do/save-hook", "queue", "orders", "hook", "on_enqueue", "script", "function f(\n\n", "reason", "why", "back", "/queues/orders/hooks")
	require.Equal(t, http.StatusBadRequest, broken.Code)
	require.Contains(t, broken.Body.String(), "function f(\n")
	require.Contains(t, broken.Body.String(), "orders.on_enqueue:")
	require.Contains(t, broken.Body.String(), `value="why"`)
	saved := r.post("/do/save-hook", "queue", "orders", "hook", "on_enqueue", "script", "function on_enqueue(msg) return {} end", "reason", "why", "back", "/queues/orders/hooks")
	require.Equal(t, http.StatusSeeOther, saved.Code)
	require.Contains(t, r.post("/do/rollback-hook", "queue", "orders", "hook", "on_enqueue").Body.String(), "back to its previous version?")
}

// TestMessageThatIsGone: its page says so, and leads to its queue and the dead letters.
func TestMessageThatIsGone(t *testing.T) {
	r := newRig(t, nil)
	r.reply(api.VerbMessageShow, wire.MessageNotFound("orders", someID))
	rec := r.get("/messages/" + someID + "?queue=orders.dlq")
	require.Equal(t, http.StatusNotFound, rec.Code)
	for _, text := range []string{"not here any more", `<a href="/queues/orders">Queue orders</a>`, `<a href="/queues/orders/dead">Dead letters of orders</a>`} {
		require.Contains(t, rec.Body.String(), text)
	}
	body := r.get("/messages/" + someID).Body.String()
	require.Contains(t, body, "not here any more")
	require.Contains(t, body, `<a href="/queues">Queues</a>`)
	r.reply(api.VerbMessageShow, wire.QueueNotFound("orders"))
	require.NotContains(t, r.get("/messages/"+someID+"?queue=orders").Body.String(), "any more")
}
