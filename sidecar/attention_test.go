package sidecar

import (
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/attention"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/web"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// attentionCase makes a condition hold on a whole server, and ends it.
type attentionCase struct {
	condition string
	change    func(*config.Config)
	hold      func(x *attentionSite)
	want      api.Finding // fields that are not empty are compared
	end       func(x *attentionSite)
}

// attentionSite is a site with one queue, orders.
type attentionSite struct {
	*testSite
	got <-chan *nats.Msg // deliveries of consumer w
}

// consume registers consumer w.
func (x *attentionSite) consume(inFlight int) {
	x.t.Helper()
	if x.got == nil {
		x.got, _ = x.consumer("w", "orders", fmt.Sprintf(`{"consumer":"w","max_in_flight":%d}`, inFlight))
		return
	}
	x.must("fila.consume.orders", fmt.Sprintf(`{"consumer":"w","max_in_flight":%d}`, inFlight), nil)
}

// many enqueues n messages with the same headers.
func (x *attentionSite) many(n int, headers nats.Header) {
	x.t.Helper()
	for range n {
		x.enqueue("m", headers)
	}
}

// answer waits for n deliveries and answers each.
func (x *attentionSite) answer(n int, payload string) {
	x.t.Helper()
	for range n {
		require.Nil(x.t, x.ack(next(x.t.(*testing.T), x.got), payload))
	}
}

// beat keeps consumer w registered for a time, a minute at a time.
func (x *attentionSite) beat(d time.Duration, inFlight int) {
	x.t.Helper()
	for ; d > 0; d -= 20 * time.Second {
		x.consume(inFlight)
		time.Sleep(min(d, 20*time.Second))
	}
}

// create makes the queue orders with settings.
func (x *attentionSite) create(settings string) {
	x.t.Helper()
	x.must("fila.admin.queue-create.orders", settings, nil)
}

// findings returns what is wrong now.
func (x *attentionSite) findings() api.Attention {
	x.t.Helper()
	time.Sleep(time.Second) // a sample is fresh for a second
	var reply api.Attention
	x.must("fila.admin.attention", "", &reply)
	return reply
}

// overview returns the HTML of the overview.
func (x *attentionSite) overview() string {
	x.t.Helper()
	pages, err := web.New(web.Options{
		Log: slog.New(slog.DiscardHandler), HTTP: config.HTTPConfig{Addr: "127.0.0.1:8222"}, Serving: x.s.serving, Do: x.s.do, Here: x.s.here,
		Queues: func(req api.QueueListRequest) (api.QueueList, *wire.Error) { return x.s.parts.admin.Queues(req) },
	})
	require.NoError(x.t, err)
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8222/", nil)
	req.RemoteAddr = "127.0.0.1:1234"
	pages.ServeHTTP(rec, req)
	require.Equal(x.t, http.StatusOK, rec.Code)
	return html.UnescapeString(rec.Body.String())
}

const failingHook = `{"on_enqueue":"function on_enqueue(msg) error('no tenant') end"}`

var attentionCases = []attentionCase{
	{
		condition: "no-consumers",
		hold: func(x *attentionSite) {
			x.create("")
			x.many(3, nil)
		},
		want: api.Finding{Severity: "critical", Queue: "orders", Messages: 3, Tenants: 1, Whom: "3 messages of 1 tenant wait.", Action: api.FindingAction{Command: "fila queue inspect orders"}},
		end:  func(x *attentionSite) { x.consume(10) },
	},
	{
		condition: "disk-low",
		change:    func(c *config.Config) { c.Store.MinFreeBytes = 1 << 50 },
		hold:      func(*attentionSite) {},
		want:      api.Finding{Severity: "critical"},
	},
	{
		condition: "hook-failing",
		hold: func(x *attentionSite) {
			x.create(failingHook)
			x.consume(10)
			x.many(1, nil)
			x.answer(1, "+ACK")
		},
		want: api.Finding{Severity: "warning", Queue: "orders", Hook: "on_enqueue", Action: api.FindingAction{Command: "fila hook show orders", Page: "/queues/orders/hooks"}},
		end: func(x *attentionSite) {
			x.must("fila.admin.queue-update.orders", `{"on_enqueue":"function on_enqueue(msg) return {} end"}`, nil)
			time.Sleep(3 * time.Minute)
		},
	},
	{
		condition: "dead-letters-rise",
		hold: func(x *attentionSite) {
			x.create("")
			x.consume(50)
			x.many(11, nil)
			x.answer(11, "+TERM")
		},
		want: api.Finding{Severity: "warning", Queue: "orders", Messages: 11, Whom: "11 messages became dead letters in the last 15 minutes.", Action: api.FindingAction{Command: "fila dead groups orders", Page: "/queues/orders/dead"}},
		end:  func(x *attentionSite) { x.must("fila.admin.queue-purge.orders.dlq", "", nil) },
	},
	{
		condition: "dead-letters",
		hold: func(x *attentionSite) {
			x.create("")
			x.consume(50)
			x.many(2, nil)
			x.answer(2, "+TERM")
		},
		want: api.Finding{Severity: "info", Queue: "orders", Messages: 2},
		end:  func(x *attentionSite) { x.must("fila.admin.queue-purge.orders.dlq", "", nil) },
	},
	{
		condition: "circuit-open",
		hold: func(x *attentionSite) {
			x.create(`{"circuit_header":"c"}`)
			x.must("fila.admin.circuit-open.stripe", "", nil)
			x.consume(10)
			x.many(4, nats.Header{"c": {"stripe"}})
		},
		want: api.Finding{Severity: "warning", Gate: "circuit:stripe", Messages: 4, Tenants: 1, Action: api.FindingAction{Command: "fila circuit close stripe", Page: "/gates/circuit?key=stripe"}},
		end:  func(x *attentionSite) { x.must("fila.admin.circuit-close.stripe", "", nil) },
	},
	{
		condition: "safety-limit",
		hold: func(x *attentionSite) {
			x.create(`{"max_failures_per_key":1}`)
			x.consume(10)
			x.many(2, nil)
			x.answer(2, "-NAK")
			x.many(1, nil)
		},
		want: api.Finding{Severity: "warning", Queue: "orders", Action: api.FindingAction{Command: "fila resume key orders default"}},
		end: func(x *attentionSite) {
			x.must("fila.admin.resume", `{"kind":"key","queue":"orders","name":"default"}`, nil)
		},
	},
	{
		condition: "paused",
		hold: func(x *attentionSite) {
			x.create("")
			x.consume(10)
			x.must("fila.admin.pause", `{"kind":"queue","name":"orders"}`, nil)
			x.many(5, nil)
		},
		want: api.Finding{Severity: "info", Queue: "orders", Messages: 5, Tenants: 1, Action: api.FindingAction{Command: "fila resume queue orders"}},
		end:  func(x *attentionSite) { x.must("fila.admin.resume", `{"kind":"queue","name":"orders"}`, nil) },
	},
	{
		condition: "tenant-starved",
		hold: func(x *attentionSite) {
			x.create(`{"starve_after_ms":4000,"fairness_header":"k","weight_header":"w"}`)
			x.consume(1)
			x.many(500, nats.Header{"k": {"big"}, "w": {"1000000"}})
			x.answer(1, "+ACK")
			x.many(1, nats.Header{"k": {"small"}, "w": {"1"}})
			for range 20 {
				x.answer(1, "+ACK")
				time.Sleep(time.Second)
				x.consume(1)
			}
		},
		want: api.Finding{Severity: "warning", Queue: "orders", Tenants: 1, Messages: 1, Action: api.FindingAction{Command: "fila noisy orders"}},
		end: func(x *attentionSite) {
			x.consume(600) // enough for all
			time.Sleep(10 * time.Second)
		},
	},
	{
		condition: "noisy-tenant",
		hold: func(x *attentionSite) {
			x.create(`{"fairness_header":"k"}`)
			x.consume(30)
			x.many(40, nats.Header{"k": {"big"}})
			x.many(2, nats.Header{"k": {"small"}})
			x.beat(2*time.Second, 30)
		},
		want: api.Finding{Severity: "warning", Queue: "orders", Tenants: 1, Messages: 2, Action: api.FindingAction{Page: "/queues/orders/tenants"}},
		end:  func(x *attentionSite) { x.consume(100) },
	},
	{
		condition: "oldest-age",
		hold: func(x *attentionSite) {
			x.create(`{"visibility_timeout_ms":3600000}`)
			x.consume(1)
			x.many(3, nil)
			x.beat(7*time.Minute, 1)
		},
		want: api.Finding{Severity: "warning", Queue: "orders", Messages: 2, Tenants: 1, Action: api.FindingAction{Command: "fila explain queue orders"}},
		end:  func(x *attentionSite) { x.consume(10) },
	},
	{
		condition: "leases-expire",
		hold: func(x *attentionSite) {
			x.create(`{"visibility_timeout_ms":1000,"max_deliveries":100}`)
			x.consume(20)
			x.many(12, nil)
			time.Sleep(5 * time.Second)
		},
		want: api.Finding{Severity: "warning", Queue: "orders"},
		end: func(x *attentionSite) {
			x.must("fila.admin.queue-delete.orders", `{"force":true}`, nil) // a purge leaves what is in flight
			time.Sleep(time.Minute)
		},
	},
	{
		condition: "refused",
		hold: func(x *attentionSite) {
			x.create(`{"max_depth":1}`)
			x.consume(1)
			x.many(1, nil)
			for range 101 {
				require.NotNil(x.t, x.request("fila.enqueue.orders", "m", nil, nil))
			}
		},
		want: api.Finding{Severity: "warning", Queue: "orders", Messages: 101},
		end: func(x *attentionSite) {
			x.answer(1, "+ACK")
			time.Sleep(11 * time.Minute)
		},
	},
	{
		condition: "schedule-late",
		hold: func(x *attentionSite) {
			x.create(`{"max_depth":1}`)
			x.consume(1)
			x.many(1, nil)
			x.must("fila.admin.schedule-add.orders", `{"name":"report","schedule":"@every 1m"}`, nil)
			x.beat(4*time.Minute, 1)
		},
		want: api.Finding{Severity: "warning", Queue: "orders", Schedule: "report", Action: api.FindingAction{Command: "fila schedule show orders report"}},
		end: func(x *attentionSite) {
			x.must("fila.admin.queue-update.orders", `{"max_depth":1000}`, nil)
			x.beat(2*time.Minute, 10)
		},
	},
	{
		condition: "limit-nearly-reached",
		change:    func(c *config.Config) { c.Limits.MaxSchedules = 5 },
		hold: func(x *attentionSite) {
			x.create("")
			for i := range 5 {
				x.must("fila.admin.schedule-add.orders", fmt.Sprintf(`{"name":"s%d","schedule":"@every 10000h"}`, i), nil)
			}
		},
		want: api.Finding{Severity: "warning", Gate: "limits.max_schedules"},
		end: func(x *attentionSite) {
			x.must("fila.admin.schedule-delete.orders", `{"name":"s0"}`, nil)
		},
	},
	{
		condition: "held-by-limit",
		hold: func(x *attentionSite) {
			x.create(`{"throttle_headers":["t"],"visibility_timeout_ms":3600000}`)
			x.must("fila.admin.throttle-set.mail", `{"concurrency":1}`, nil)
			x.consume(10)
			x.many(4, nats.Header{"t": {"mail"}})
			x.beat(2*time.Minute, 10)
		},
		want: api.Finding{Severity: "warning", Queue: "orders", Gate: "throttle:mail", Messages: 3, Tenants: 1, Action: api.FindingAction{Command: "fila throttle set mail --unset concurrency --if-concurrency 1", Page: "/gates/throttle?key=mail"}},
		end:  func(x *attentionSite) { x.must("fila.admin.throttle-set.mail", `{"concurrency":10}`, nil) },
	},
}

// findingOf returns the finding of a condition.
func findingOf(reply api.Attention, condition string) (api.Finding, bool) {
	for _, f := range reply.Findings {
		if f.Condition == condition {
			return f, true
		}
	}
	return api.Finding{}, false
}

// TestEachConditionIsFound on a whole server, and not any more after the action.
func TestEachConditionIsFound(t *testing.T) {
	for _, tc := range attentionCases {
		t.Run(tc.condition, func(t *testing.T) {
			dir := t.TempDir()
			inBubble(t, func(t *testing.T) {
				x := &attentionSite{testSite: startSite(t, dir, tc.change)}
				if tc.change == nil {
					require.Zero(t, x.findings().Total, "nothing is wrong yet")
				}
				tc.hold(x)
				reply := x.findings()
				f, ok := findingOf(reply, tc.condition)
				require.True(t, ok, "%+v", reply)
				require.Equal(t, reply.Findings[0].Severity, reply.Severity)
				w := tc.want
				require.Equal(t, []any{w.Severity, w.Queue, w.Gate, w.Hook, w.Schedule}, []any{f.Severity, f.Queue, f.Gate, f.Hook, f.Schedule})
				if w.Messages > 0 {
					require.Equal(t, []any{w.Messages, w.Tenants}, []any{f.Messages, f.Tenants}, "%+v", f)
				}
				for want, is := range map[string]string{w.Whom: f.Whom, w.Action.Command: f.Action.Command, w.Action.Page: f.Action.Page} {
					if want != "" {
						require.Equal(t, want, is)
					}
				}
				if f.Queue == "orders" || f.Gate != "" && f.Messages > 0 {
					var about api.Attention
					x.must("fila.admin.attention", `{"queue":"orders"}`, &about)
					of, ok := findingOf(about, tc.condition)
					require.True(t, ok, "%+v", about)
					require.Equal(t, []any{f.Messages, f.Since, f.Why, f.Action}, []any{of.Messages, of.Since, of.Why, of.Action})
				}
				body := x.overview()
				require.Contains(t, body, f.Title)
				require.NotContains(t, body, "All is well")
				require.NotEmpty(t, f.Title)
				require.NotEmpty(t, f.Whom)
				require.NotEmpty(t, f.Why)
				require.NotEmpty(t, f.Action.Text)
				_, err := time.Parse(time.RFC3339Nano, f.Since)
				require.NoError(t, err)
				if tc.end != nil {
					tc.end(x)
					_, still := findingOf(x.findings(), tc.condition)
					require.False(t, still, "the action ended it")
					require.NotContains(t, x.overview(), f.Title)
				}
				x.s.Kill()
				x.stop()
				<-x.ended
			})
		})
	}
}

// clusterConditions are tested in package attention, with the status of a cluster.
var clusterConditions = []string{"log-lost", "shard-without-owner", "cluster-degraded", "standby-lags", "shared-degraded"}

// TestEveryConditionHasATest.
func TestEveryConditionHasATest(t *testing.T) {
	tested := clusterConditions
	for _, tc := range attentionCases {
		tested = append(tested, tc.condition)
	}
	var all []string
	for _, c := range attention.Conditions {
		all = append(all, c.Name)
	}
	require.ElementsMatch(t, all, tested)
}
