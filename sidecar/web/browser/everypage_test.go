package browser

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire/api"
)

// names are the names and texts of one set of objects.
type names struct {
	queue, consumer, schedule, job     string // only a-z, digits, - and _
	noisy, quiet, gate, circuit, value string
	failure, payload                   string
}

var (
	plain = names{
		queue: "orders", consumer: "worker-1", schedule: "nightly", job: "INC-7: the vendor is back",
		noisy: "acme", quiet: "globex", gate: "vendor:stripe", circuit: "bank", value: "good morning",
		failure: "dial tcp 10.0.0.7:5432: i/o timeout", payload: `{"order": 4711}`,
	}
	nasty = names{
		queue: "q" + strings.Repeat("-very-long-name", 8), consumer: "c" + strings.Repeat("-long", 12), schedule: "s" + strings.Repeat("-long", 12),
		job: hostile[3], noisy: hostile[1] + strings.Repeat("W", 120), quiet: hostile[8] + "\u202egnp.exe", gate: hostile[2] + strings.Repeat("M", 150),
		circuit: hostile[0] + "é漢字", value: hostile[6] + strings.Repeat("v", 900), failure: hostile[9] + strings.Repeat("x", 900), payload: hostile[10],
	}
)

// shown is a page with texts that it must show.
type shown struct {
	name, path string
	texts      []string
}

// world creates one object of every kind and returns all pages, each with content.
func (f *fila) world(n names) []shown {
	t, ctx := f.t, f.t.Context()
	t.Helper()
	f.load("busy")
	f.queue(n.queue)
	f.queue("dead", noRetries)
	f.queue("hooked", func(s *client.QueueSettings) {
		s.FairnessHeader, s.ThrottleHeaders, s.CircuitHeader = "", nil, ""
		s.OnEnqueue = hook
		s.OnFailure = "function on_failure(msg)\n  error(" + fmt.Sprintf("%q", "it broke: <i>"+n.consumer) + ")\nend\n"
		s.LuaCircuitBreakerThreshold, s.LuaCircuitBreakerCooldownMs = 1, 3_600_000
	})
	must := func(err error) {
		t.Helper()
		require.NoError(t, err)
	}
	_, err := f.c.ThrottleSet(ctx, client.ThrottleChange{Key: n.gate, For: time.Hour, Concurrency: 3})
	must(err)
	_, err = f.c.Pause(ctx, api.PauseRequest{Kind: "throttle", Name: n.gate})
	must(err)
	_, err = f.c.CircuitOpen(ctx, n.circuit, 3_600_000)
	must(err)
	_, err = f.c.Pause(ctx, api.PauseRequest{Kind: "key", Queue: n.queue, Name: "umbrella", ForMs: 3_600_000})
	must(err)
	_, err = f.c.ConfigSet(ctx, "greeting", n.value, nil)
	must(err)
	_, err = f.c.ScheduleAdd(ctx, "hooked", api.ScheduleAddRequest{Name: n.schedule, Schedule: "@every 1h", Payload: []byte(n.payload)})
	must(err)

	// One tenant uses the whole credit of the consumers, another waits, and a third is paused.
	over := make(chan struct{})
	f.consume(n.queue, n.consumer, func(context.Context, *client.Message) error {
		<-over
		return nil
	}, client.MaxInFlight(40), client.Concurrency(40))
	t.Cleanup(func() { close(over) })
	for range 60 {
		f.publish(n.queue, n.payload, tenant(n.noisy))
	}
	f.inspected(n.queue, func(q api.QueueInfo) bool { return q.InFlight == 40 })
	for range 5 {
		f.publish(n.queue, n.payload, tenant(n.quiet))
		f.publish(n.queue, n.payload, tenant("umbrella"))
	}
	held := f.publish(n.queue, n.payload, tenant(n.quiet), client.Header("Gate", n.gate), client.Header("Circuit", n.circuit))
	later := f.publish(n.queue, n.payload, tenant(n.quiet), client.Delay(time.Hour))

	f.publish("hooked", n.payload, tenant(n.quiet))
	f.consume("hooked", n.consumer, func(_ context.Context, m *client.Message) error {
		return m.Nack(client.NackOptions{Error: n.failure, Code: "503", Delay: time.Hour})
	})
	f.consume("dead", n.consumer, nackByHeader, client.MaxInFlight(50))
	f.kill("dead", 20, n.noisy, "503", n.failure)
	f.kill("dead", 3, n.quiet, "402", "card declined")
	dead := f.publish("dead", n.payload, tenant(n.quiet), client.Header("Evil", n.value), client.Header("Die-Of", n.failure), client.Header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
	f.depth("dead.dlq", 24)
	job, err := f.c.JobCreate(ctx, api.JobCreateRequest{Queue: "dead.dlq", Op: "delete", Filter: &api.Filter{ErrorCode: "503"}, Rate: 1, Reason: n.job})
	must(err)
	_, err = f.c.JobPause(ctx, job.ID) // otherwise its messages are gone on a slow machine
	must(err)
	f.inspected("hooked", func(q api.QueueInfo) bool {
		for _, h := range q.Hooks {
			if h.State == "open" {
				return true
			}
		}
		return false
	})

	q, key := url.PathEscape(n.queue), url.QueryEscape(n.quiet)
	return []shown{
		{"overview", "/", []string{n.queue, n.circuit, n.gate, n.noisy}},
		{"queues", "/queues", []string{n.queue, "busy"}},
		{"find", "/find?text=" + key, []string{n.queue}},
		{"queue", "/queues/" + q, []string{n.circuit, n.consumer}},
		{"queue-hooked", "/queues/hooked", []string{"on_failure", "it broke"}},
		{"queue-tenants", "/queues/" + q + "/tenants", []string{n.noisy, "umbrella"}},
		{"queue-jobs", "/queues/dead/jobs", []string{n.job}},
		{"queue-schedules", "/queues/hooked/schedules", []string{n.schedule}},
		{"queue-hooks", "/queues/hooked/hooks", []string{"function on_enqueue(msg)"}},
		{"queue-settings", "/queues/" + q + "/settings", []string{"fairness_header"}},
		{"queue-dlq", "/queues/dead.dlq", []string{"This is the dead letter queue of"}},
		{"messages", "/queues/" + q + "/messages?state=delayed", []string{short(later)}},
		{"message-held", "/messages/" + held, []string{n.gate, n.circuit, "blocks it"}},
		{"message-delayed", "/messages/" + later, []string{"is delayed until"}},
		{"message-dead", "/messages/" + dead + "?payload=show", []string{"0af7651916cd43dd8448eb211c80319c"}},
		{"message-edit", "/messages/" + dead + "/edit", nil},
		{"dead", "/dead", []string{"dead"}},
		{"dead-letters", "/queues/dead/dead", []string{"dead letters in 3 groups", "card declined"}},
		{"job-new", "/jobs/new?queue=dead.dlq&which=all&op=redrive&error_code=402", []string{"3 of 3 matching messages"}},
		{"jobs", "/jobs", []string{n.job}},
		{"job", "/jobs/" + job.ID, []string{n.job}},
		{"schedules", "/schedules", []string{n.schedule}},
		{"gates", "/gates", []string{n.gate, n.circuit}},
		{"gate-throttle", "/gates/throttle?key=" + url.QueryEscape(n.gate), []string{"override"}},
		{"gate-circuit", "/gates/circuit?key=" + url.QueryEscape(n.circuit), nil},
		{"activity", "/activity", []string{"paused"}},
		{"audit", "/activity/audit", []string{"config-set"}},
		{"settings", "/settings", []string{n.value[:12]}},
		{"settings-hooks", "/settings/hooks", []string{"it broke"}},
		{"styleguide", "/styleguide", []string{"Badge", "Dialog"}},
	}
}

func withStyleGuide(cfg *config.Config) { cfg.HTTP.StyleGuide = true }

// TestEveryPage checks each page with content: axe in both looks, the keyboard, and charts with
// history.
func TestEveryPage(t *testing.T) {
	t.Parallel()
	f, b := run(t, withStyleGuide)
	b.visit("/activity") // shows events from now on
	for _, p := range f.world(plain) {
		b.visit(p.path, p.texts...)
		b.sound(p.name)
		b.reachable()
	}
	b.visit("/queues/busy")
	b.until("document.querySelector('.chart canvas')") // needs two points
	b.sound("queue-busy")
	b.visit("/", "busy")
	b.sound("overview-busy")
	for _, old := range [][2]string{
		{"/configuration?prefix=greet", "/settings?prefix=greet"},
		{"/events", "/activity"},
		{"/hooks", "/settings/hooks"},
		{"/hooks/hooked", "/queues/hooked/hooks"},
		{"/dead/dead?error_code=402", "/queues/dead/dead?error_code=402"},
	} {
		b.visit(old[0])
		b.at(old[1])
	}
	b.expect(404)
	b.visit("/nowhere-else", "This page does not exist")
	b.sound("nowhere")
}

// TestEveryPageWithoutScript: each page has its content, and its menus open.
func TestEveryPageWithoutScript(t *testing.T) {
	t.Parallel()
	f, b := run(t, withStyleGuide)
	b.visit("/activity")
	pages := f.world(plain)
	b.scripts(false)
	for _, p := range pages {
		for _, text := range p.texts { // the page does not update itself
			require.True(t, wait(b.ctx, func() bool {
				b.visit(p.path)
				return strings.Contains(b.text("main"), text)
			}), "%s: %s", p.path, text)
		}
		if len(p.texts) == 0 {
			b.visit(p.path)
		}
		b.fits("noscript-"+p.name, narrow, "light")
		b.fits("noscript-"+p.name+"-dark", wide, "dark")
		for i := range eval[int](b, "document.querySelectorAll('[popovertarget]').length") {
			menu := fmt.Sprintf("document.querySelectorAll('[popovertarget]')[%d]", i)
			eval[bool](b, menu+".click() || true")
			b.until(menu + ".popoverTargetElement.matches(':popover-open')")
			require.LessOrEqual(t, eval[int](b, "document.documentElement.scrollWidth - innerWidth"), 0, p.path)
			eval[bool](b, menu+".click() || true")
		}
	}
}

// TestEveryPageOfNastyNames: long names and names with markup are text, and widen no page.
func TestEveryPageOfNastyNames(t *testing.T) {
	t.Parallel()
	f, b := run(t, withStyleGuide)
	b.visit("/activity")
	for _, p := range f.world(nasty) {
		b.visit(p.path) // TestHostile checks the texts
		b.unhurt()
		b.fits("nasty-"+p.name, narrow, "light")
		b.fits("nasty-"+p.name+"-dark", wide, "dark")
	}
}

// TestEveryPageOfNothing: an empty page says what to do.
func TestEveryPageOfNothing(t *testing.T) {
	t.Parallel()
	_, b := run(t, func(cfg *config.Config) { cfg.Throttles = nil })
	for _, p := range []shown{
		{"overview", "/", []string{"Your first message", "fila queue create orders"}},
		{"queues", "/queues", []string{"There is no queue yet."}},
		{"find", "/find", []string{"message id"}},
		{"dead", "/dead", []string{"No queue has dead letters."}},
		{"jobs", "/jobs", []string{"There are no jobs."}},
		{"schedules", "/schedules", []string{"There are no schedules."}},
		{"gates", "/gates", []string{"There are no throttles.", "There are no circuits.", "Nothing is paused."}},
		{"settings", "/settings", []string{"There are no keys."}},
		{"settings-hooks", "/settings/hooks", []string{"No queue has hooks"}},
		{"activity", "/activity", []string{"No event since this page was first opened."}},
		{"audit", "/activity/audit", []string{"There are no changes."}},
	} {
		b.visit(p.path, p.texts...)
		b.fits("nothing-"+p.name, narrow, "dark")
		b.usable("nothing-"+p.name, "")
		b.fits("nothing-"+p.name+"-light", wide, "light")
	}
}

// TestLogin: the token logs in, many wrong ones block further wrong ones from the address for a
// minute, and logging out works.
func TestLogin(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("a-token-to-work-with"), 0o600))
	f, b := run(t, func(cfg *config.Config) { cfg.HTTP.OperatorToken = file })
	f.queue("orders")
	b.visit("/queues/orders")
	b.at("/login")
	b.fill("token", "a-token-to-work-with")
	b.submit("#token")
	b.at("/queues/orders")
	b.menu("pause")
	b.sends("#pause-for", "Paused: queue orders.")
	b.visit("/activity/audit", "operator on the pages")
	b.click("header form button")
	b.at("/login")
	b.visit("/")
	b.at("/login")
	b.sound("login")
	b.reachable()

	// After many wrong tokens another wrong one must wait, and the right one still works. The
	// count restarts with each minute of the clock, so try again if one has just begun.
	b.expect(401, 429)
	for {
		b.until(`(async () => {
			for (let i = 0; i < 40; i++) {
				const r = await fetch('/login', {method: 'POST', body: new URLSearchParams({token: 'wrong'})})
				if (r.status == 429) return true
			}
		})()`)
		b.fill("token", "wrong")
		b.submit("#token")
		if strings.Contains(b.text(".mistake"), "like too many before it") {
			break
		}
	}
	b.fill("token", "a-token-to-work-with")
	b.submit("#token")
	b.at("/")
}
