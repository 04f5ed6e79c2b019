package web

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire/api"
)

// TestOverviewIsWellWithoutFindings only: no banner says so beside a finding, a silent node, or
// a node that is not ready.
func TestOverviewIsWellWithoutFindings(t *testing.T) {
	const well = "All is well."
	r := newRig(t, nil)
	overview := func(reply api.Attention) string {
		t.Helper()
		r.reply(api.VerbAttention, reply)
		return r.get("/").Body.String()
	}
	require.Contains(t, overview(api.Attention{}), well)
	for _, severity := range api.Severities {
		body := overview(api.Attention{Severity: severity, Total: 1, Findings: []api.Finding{{Severity: severity, Title: "Dead letters", Queue: "orders"}}})
		require.NotContains(t, body, well, severity)
	}
	require.NotContains(t, overview(api.Attention{Unanswered: []string{"b"}}), well)
	r.Here = func() Node { return Node{State: "no NATS"} }
	body := overview(api.Attention{})
	require.NotContains(t, body, well)
	require.Contains(t, body, "This node is not ready: no NATS")
}

// TestFindingsOnPages: the overview and the page of the queue show all of a finding, and its action.
func TestFindingsOnPages(t *testing.T) {
	r := newRig(t, nil)
	r.reply(api.VerbAttention, api.Attention{Severity: "warning", Total: 3, Truncated: 2, Findings: []api.Finding{{
		Condition: "hook-failing", Severity: "warning", Since: "2026-01-02T12:00:00Z", Queue: "orders", Hook: "on_enqueue", Gate: "throttle:a b", Title: "A hook fails or is bypassed",
		Whom: "All messages of the queue.", Why: "on_enqueue fails: no tenant.", Action: api.FindingAction{Text: "Mend the script.", Command: "fila hook reset orders", Page: "/queues/orders/hooks?a=b"},
	}}})
	r.reply(api.VerbQueueInspect, api.QueueInfo{QueueSummary: api.QueueSummary{Name: "orders"}})
	r.reply(api.VerbExplain, api.ExplainQueue{Queue: "orders", Reason: "Messages are being delivered."})
	for _, page := range []string{"/", "/queues/orders"} {
		body := r.get(page).Body.String()
		_, body, _ = strings.Cut(body, `class="attention"`)
		for _, text := range []string{
			`<span class="badge warn">warning</span>`, "A hook fails or is bypassed", `href="/queues/orders"`, "on_enqueue", `href="/gates/throttle?key=a&#43;b"`, `datetime="2026-01-02T12:00:00Z"`,
			"All messages of the queue. on_enqueue fails: no tenant.", `href="/queues/orders/hooks?a=b"`, "Mend the script.", "<code>fila hook reset orders</code>", "2 more findings",
		} {
			require.Contains(t, body, text, page)
		}
	}
}

// TestRatesOfTerminatedMessages: a terminated message is no failed attempt, and has a rate of its own.
func TestRatesOfTerminatedMessages(t *testing.T) {
	var before counted
	after := counted{at: time.Unix(10, 0), QueueDetail: api.QueueDetail{Failed: 10, Terminated: 110, DeadLettered: 120}}
	p := before.until(&after)
	require.Zero(t, p, "nothing is known before the first count")
	before.at = time.Unix(5, 0)
	p = before.until(&after)
	require.Equal(t, []float32{2, 22, 24}, []float32{p.Failed, p.Terminated, p.Dead})
	r := newRig(t, nil)
	body := r.get("/queues/orders").Body.String()
	require.Contains(t, body, ">Terminated</dt>")
	require.Contains(t, body, ">Dead-lettered</dt>")
	h := &r.history
	h.mu.rings["orders"].rate = point{Dead: 24}
	require.Contains(t, r.get("/queues").Body.String(), "+24/s", "dead letters a second")
	require.Equal(t, 10, strings.Count(r.get("/queues").Body.String(), `<th scope="col"`), "columns")
}

// TestFindingsOnAllTabs of a queue: what is wrong with it is in the head of each, with its cause,
// since when, and what to do.
func TestFindingsOnAllTabs(t *testing.T) {
	r := newRig(t, nil)
	finding := api.Finding{
		Condition: "circuit-open", Severity: api.SeverityWarning, Gate: "circuit:stripe", Since: "2026-01-02T12:00:00Z", Title: "A circuit is open",
		Whom: "3 messages are blocked.", Why: "It is open.", Action: api.FindingAction{Text: "Mend the destination.", Command: "fila circuit close stripe", Page: "/gates/circuit?key=stripe"},
	}
	r.reply(api.VerbAttention, api.Attention{Severity: api.SeverityWarning, Total: 1, Findings: []api.Finding{finding}})
	for i := range pages {
		p := &pages[i]
		if p.group != ofQueue {
			continue
		}
		body := r.get(strings.ReplaceAll(p.path, "{queue}", "orders")).Body.String()
		for _, text := range []string{"A circuit is open", "circuit:stripe", "2026-01-02T12:00:00Z", "3 messages are blocked.", "It is open.", "Mend the destination.", "fila circuit close stripe"} {
			require.Contains(t, body, text, p.path)
		}
		require.Equal(t, 1, strings.Count(body, `id="attention"`), p.path)
	}
	asked := r.of(api.VerbAttention)
	require.Contains(t, asked[len(asked)-1].body, `"queue":"orders"`)
}
