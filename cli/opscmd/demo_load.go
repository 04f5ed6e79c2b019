package opscmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
)

// The demo of fair shares: a provider with a rate limit, and tenants that together want about
// twice as much.
const (
	demoRate    = 200 // calls a second that the provider accepts
	demoQuiet   = 4   // messages a second of a quiet tenant
	demoNoisy   = 100 * demoQuiet
	demoWorkers = 3
	demoEach    = 4 // concurrent messages of a worker
)

// demoTenants are the tenants, in the order of the table, with their messages per second.
var demoTenants = []struct {
	name string
	rate int
}{{"noisy", demoNoisy}, {"quiet-1", demoQuiet}, {"quiet-2", demoQuiet}, {"quiet-3", demoQuiet}}

// demoHook is the on_enqueue hook of a queue of the demo.
func demoHook(fairnessKey string) string {
	return `function on_enqueue(msg)
  return { fairness_key = ` + fairnessKey + `, throttle_keys = { "provider" } }
end`
}

// demoRun is one half of the demo.
type demoRun struct {
	queue string // also its name in the output
	title string
	hook  string
}

var demoRuns = []demoRun{
	{"fifo", "One line for all (every message has the same fairness key)", demoHook(`"all"`)},
	{"fair", "Fair between tenants (fairness_key = msg.headers.tenant)", demoHook(`msg.headers["tenant"]`)},
}

// fairDemo runs the demo of fair shares.
func fairDemo(ctx context.Context, s *demoStage, length time.Duration) error {
	server, err := s.start(ctx, demoConfig(s.dir))
	if err != nil {
		return err
	}
	s.write(`A noisy tenant sends %d messages a second, three quiet ones %d each.
%d workers call a provider that takes %d calls a second.
Look inside meanwhile: fila top -s %s

`, demoNoisy, demoQuiet, demoWorkers, demoRate, server.url)
	limit := client.ThrottleChange{Key: "provider", Rate: fmt.Sprint(demoRate), Burst: demoRate / 20}
	if _, err := server.c.ThrottleSet(ctx, limit); err != nil {
		return err
	}
	report := demoReport{Provider: demoRate}
	for _, run := range demoRuns {
		load := newDemoLoad(s, server.c, run)
		if err := load.run(ctx, length/time.Duration(len(demoRuns))); err != nil {
			return err
		}
		report.Runs = append(report.Runs, load.result())
	}
	report.Result = report.words()
	return s.result(report, report.Result)
}

// demoLoad is the tenants, workers and provider of a run.
type demoLoad struct {
	*demoStage
	c     *client.Client
	spec  demoRun
	begin time.Time

	mu struct {
		sync.Mutex
		elapsed time.Duration // set at the end
		tenants map[string]*demoTenant
		calls   int
		refused int // by the provider
		tokens  float64
		last    time.Time // time at which tokens was computed
	}
}

type demoTenant struct {
	sent  int
	waits []time.Duration // of handled messages
}

func newDemoLoad(s *demoStage, c *client.Client, spec demoRun) *demoLoad {
	l := &demoLoad{demoStage: s, c: c, spec: spec}
	l.mu.tenants = map[string]*demoTenant{}
	for _, t := range demoTenants {
		l.mu.tenants[t.name] = &demoTenant{}
	}
	s.table = func() []string { return l.result().lines(s.paint) }
	return l
}

// run creates the queue, sends and handles messages until the time is over or ctx ends, and
// deletes the queue with its remaining messages.
func (l *demoLoad) run(ctx context.Context, length time.Duration) error {
	if _, err := l.c.QueueCreate(ctx, l.spec.queue, client.QueueSettings{OnEnqueue: l.spec.hook}); err != nil {
		return err
	}
	started := len(l.ends)
	err := l.handle(ctx, length)
	if err = cmp.Or(err, l.end(started)); err == nil {
		_, err = l.c.QueueDelete(ctx, l.spec.queue, true)
	}
	return err
}

func (l *demoLoad) handle(ctx context.Context, length time.Duration) error {
	for i := range demoWorkers {
		if _, err := l.consume(ctx, l.c, l.spec.queue, l.work, client.ConsumerName(fmt.Sprintf("worker-%d", i+1)),
			client.MaxInFlight(demoEach), client.Concurrency(demoEach)); err != nil {
			return err
		}
	}
	l.begin = time.Now()
	sending, enough := context.WithCancel(ctx)
	var tenants sync.WaitGroup
	for _, t := range demoTenants {
		tenants.Go(func() { l.sendAs(sending, t.name, t.rate) })
	}
	l.pass(ctx, l.begin, length)
	enough()
	l.mu.Lock()
	l.mu.elapsed = time.Since(l.begin)
	l.mu.Unlock()
	tenants.Wait()
	l.draw(true)
	return l.failed(nil)
}

func (l *demoLoad) sendAs(ctx context.Context, tenant string, rate int) {
	l.send(ctx, rate, func(int) error {
		_, err := l.c.PublishAsync(ctx, l.spec.queue, []byte(tenant), client.Header("tenant", tenant))
		l.mu.Lock()
		defer l.mu.Unlock()
		if err == nil {
			l.mu.tenants[tenant].sent++
		}
		return err
	})
}

var errProviderBusy = errors.New("the provider is busy")

// work calls the provider for a message.
func (l *demoLoad) work(ctx context.Context, m *client.Message) error {
	if !l.call(m) {
		return errProviderBusy // fila retries it
	}
	select {
	case <-time.After(demoCall):
	case <-ctx.Done():
	}
	return nil
}

// call is the provider: it accepts demoRate calls a second and short bursts, since evenly sent
// calls may arrive unevenly.
func (l *demoLoad) call(m *client.Message) bool {
	const burst = demoRate / 4
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.last.IsZero() {
		l.mu.tokens = burst
	} else {
		l.mu.tokens = min(burst, l.mu.tokens+now.Sub(l.mu.last).Seconds()*demoRate)
	}
	l.mu.last = now
	if l.mu.elapsed != 0 {
		return true // after the end calls do not count
	}
	if l.mu.tokens < 1 {
		l.mu.refused++
		return false
	}
	l.mu.tokens--
	l.mu.calls++
	if t := l.mu.tenants[string(m.Data)]; t != nil {
		t.waits = append(t.waits, max(now.Sub(m.EnqueuedAt), 0))
	}
	return true
}

// result returns the present state.
func (l *demoLoad) result() demoResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	elapsed := l.mu.elapsed
	if elapsed == 0 {
		elapsed = time.Since(l.begin)
	}
	r := demoResult{
		Name: l.spec.queue, title: l.spec.title, Seconds: elapsed.Seconds(), Calls: l.mu.calls, Refused: l.mu.refused,
		Tenants: []demoFigures{},
	}
	for _, t := range demoTenants {
		tenant := l.mu.tenants[t.name]
		waits := slices.Clone(tenant.waits)
		slices.Sort(waits)
		f := demoFigures{
			Tenant: t.name, Sent: tenant.sent, Done: len(waits), Waiting: max(tenant.sent-len(waits), 0),
			WaitP50Ms: quantile(waits, 0.5), WaitP99Ms: quantile(waits, 0.99),
		}
		if l.mu.calls > 0 {
			f.Share = float64(f.Done) / float64(l.mu.calls)
		}
		r.Tenants = append(r.Tenants, f)
	}
	return r
}

// quantile returns the q-quantile of sorted values in milliseconds, 0 without values.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := int(q*float64(len(sorted)) + 0.999999)
	d := sorted[min(max(i-1, 0), len(sorted)-1)]
	return float64(d.Round(100*time.Microsecond)) / float64(time.Millisecond)
}

// demoReport is what fila demo --json prints.
type demoReport struct {
	Provider int          `json:"provider_rate"` // calls a second that it accepts
	Runs     []demoResult `json:"runs"`
	Result   string       `json:"result"` // summary in words
}

// demoResult is one run.
type demoResult struct {
	Name    string        `json:"name"` // fifo or fair
	Seconds float64       `json:"seconds"`
	Calls   int           `json:"calls"`   // accepted by the provider
	Refused int           `json:"refused"` // refused by the provider
	Tenants []demoFigures `json:"tenants"`
	title   string
}

// demoFigures are the figures of a tenant in a run. Waits are from the enqueue to the call, for
// handled messages.
type demoFigures struct {
	Tenant    string  `json:"tenant"`
	Sent      int     `json:"sent"`
	Done      int     `json:"done"`
	Waiting   int     `json:"waiting"`
	Share     float64 `json:"share"` // of handled messages, 0 to 1
	WaitP50Ms float64 `json:"wait_p50_ms"`
	WaitP99Ms float64 `json:"wait_p99_ms"`
}

// lines returns the table of a run, which always has the same number of lines.
func (r demoResult) lines(paint terminal.Style) []string {
	lines := []string{
		paint.Bold(r.title),
		paint.Dim(fmt.Sprintf("%-10s %7s %7s %8s %7s %11s %11s", "TENANT", "SENT", "DONE", "WAITING", "SHARE", "WAIT P50", "WAIT P99")),
	}
	for _, t := range r.Tenants {
		lines = append(lines, fmt.Sprintf("%-10s %7d %7d %8d %6.1f%% %11s %11s",
			t.Tenant, t.Sent, t.Done, t.Waiting, 100*t.Share, waitText(t.WaitP50Ms, t.Done), waitText(t.WaitP99Ms, t.Done)))
	}
	rate := float64(r.Calls) / max(r.Seconds, 1e-3)
	return append(lines, paint.Dim(fmt.Sprintf("%.1f s, %.0f calls a second of the %d that the provider takes, %d refused by it", r.Seconds, rate, demoRate, r.Refused)), "")
}

func waitText(ms float64, done int) string {
	if done == 0 {
		return "-"
	}
	d := time.Duration(ms * float64(time.Millisecond))
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", ms)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// quiet returns the median wait and the longest wait of the quiet tenants, and the handled
// share of their messages.
func (r demoResult) quiet() (p50, p99 float64, done, sent int) {
	var middles []float64
	for _, t := range r.Tenants[1:] {
		done, sent = done+t.Done, sent+t.Sent
		if t.Done > 0 {
			middles, p99 = append(middles, t.WaitP50Ms), max(p99, t.WaitP99Ms)
		}
	}
	if len(middles) > 0 {
		slices.Sort(middles)
		p50 = middles[len(middles)/2]
	}
	return p50, p99, done, sent
}

// words returns a summary computed from the figures alone.
func (r demoReport) words() string {
	fifo, fair := r.Runs[0], r.Runs[1]
	p50, p99, done, sent := fifo.quiet()
	fairP50, fairP99, fairDone, fairSent := fair.quiet()
	text := fmt.Sprintf("In one line, half of the quiet tenants' messages waited %s or more behind the noisy tenant's backlog (p99 %s), and %d of %d were handled.",
		waitText(p50, done), waitText(p99, done), done, sent)
	text += fmt.Sprintf(" With a fair share for each tenant they waited %s (p99 %s), and %d of %d were handled", waitText(fairP50, fairDone), waitText(fairP99, fairDone), fairDone, fairSent)
	if fairP50 > 0 && p50 >= 2*fairP50 {
		text += fmt.Sprintf(": %.0f times faster", p50/fairP50)
	}
	return text + fmt.Sprintf(". The provider took %.0f and %.0f calls a second, of %d that it allows: the noisy tenant still gets all that the others leave, %.0f%%, and waits in a line of its own. The difference is one line of Lua, fairness_key = msg.headers[\"tenant\"].",
		float64(fifo.Calls)/max(fifo.Seconds, 1e-3), float64(fair.Calls)/max(fair.Seconds, 1e-3), r.Provider, 100*fair.Tenants[0].Share)
}
