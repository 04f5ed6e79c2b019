package opscmd

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
)

// The demo of an incident: a new release of the workers fails to send invoices.
const (
	incidentQueue    = "invoices"
	incidentMessages = 40_000
	incidentRelease  = "release" // key of the runtime configuration that names the release of the workers
	incidentBad      = 2         // release with the bug; later releases are fixed
	incidentLook     = 100 * time.Millisecond
)

// incidentReady is what fila demo --incident --json prints when the incident has happened.
type incidentReady struct {
	NATS        string `json:"nats"`
	Pages       string `json:"pages"`
	Queue       string `json:"queue"`
	DeadLetters int64  `json:"dead_letters"`
}

// incidentDemo creates the incident and leaves its handling to the user, until an interrupt.
func incidentDemo(ctx context.Context, s *demoStage, _ time.Duration) error {
	cfg := demoConfig(s.dir)
	cfg.HTTP.Addr = "127.0.0.1:0"
	server, err := s.start(ctx, cfg)
	if err != nil {
		return err
	}
	s.write("%s invoices are to be sent, and release %d of the workers was deployed a moment ago ...\n\n",
		terminal.Grouped(incidentMessages), incidentBad)
	i := newIncident(s, server.c)
	if err := i.happen(ctx, incidentMessages); err != nil {
		return err
	}
	ready := incidentReady{NATS: server.url, Pages: "http://" + server.http, Queue: incidentQueue, DeadLetters: incidentMessages}
	if err := ready.show(s); err != nil {
		return err
	}
	i.follow(ctx, func(release int64) { s.write("release %d of the workers is deployed\n", release) })
	return nil
}

// show prints the next steps and the addresses.
func (r incidentReady) show(s *demoStage) error {
	if s.env.JSON {
		return terminal.PrintJSON(s.out, r)
	}
	_, err := fmt.Fprintf(s.out, `%s of them are dead letters of the queue %s. Sort them out: in a browser at

  %s

or in another terminal:

  export NATS_URL=%s
  fila dead groups %s

The workers go on. This deploys a fixed release:

  fila config set %s %d

An interrupt ends it, and nothing is left behind.
`, terminal.Grouped(r.DeadLetters), r.Queue, r.Pages, r.NATS, r.Queue, incidentRelease, incidentBad+1)
	return err
}

// incident is the workers of the demo.
type incident struct {
	*demoStage
	c        *client.Client
	release  atomic.Int64
	happened atomic.Bool // from now on only redriven messages arrive
}

func newIncident(s *demoStage, c *client.Client) *incident {
	i := &incident{demoStage: s, c: c}
	i.release.Store(incidentBad)
	return i
}

// happen enqueues count invoices and returns when all of them are dead letters.
func (i *incident) happen(ctx context.Context, count int) error {
	settings := client.DefaultQueueSettings(incidentQueue)
	deliveries := int64(2)
	settings.FairnessHeader, settings.MaxDeliveries, settings.RetryInitialMs = "tenant", &deliveries, 100
	if _, err := i.c.QueueCreate(ctx, settings); err != nil {
		return err
	}
	if _, err := i.c.ConfigSet(ctx, incidentRelease, strconv.Itoa(incidentBad), nil); err != nil {
		return err
	}
	for n := range demoWorkers {
		if err := i.consume(ctx, i.c, incidentQueue, i.work, client.ConsumerName(fmt.Sprintf("worker-%d", n+1)), client.MaxInFlight(256)); err != nil {
			return err
		}
	}
	sent := make([]*client.PublishFuture, count)
	for n := range sent {
		tenant, currency := incidentInvoice(n)
		future, err := i.c.PublishAsync(ctx, incidentQueue, fmt.Appendf(nil, `{"invoice":%d,"cents":%d}`, n, 100+n%9000),
			client.Header("tenant", tenant), client.Header("currency", currency), client.RetryFor(time.Minute))
		if err != nil {
			return err
		}
		sent[n] = future
	}
	for _, future := range sent {
		if _, err := future.Wait(ctx); err != nil {
			return err
		}
	}
	err := i.died(ctx, int64(count))
	i.happened.Store(true)
	return err
}

// incidentInvoice returns the customer and currency of invoice n: initech has closed its
// mailbox, and one invoice in a thousand has an unknown currency.
func incidentInvoice(n int) (tenant, currency string) {
	currency = "EUR"
	if n%1000 == 7 {
		currency = "EURO"
	}
	return [...]string{"initech", "acme", "acme", "acme", "globex"}[n%5], currency
}

// fixed reports whether the workers have a release with the template. It reads the deployed
// release where it matters, so that messages redriven right after a deployment meet the new
// release.
func (i *incident) fixed(ctx context.Context) bool {
	if i.release.Load() > incidentBad || !i.happened.Load() {
		return i.release.Load() > incidentBad
	}
	release, ok := i.deployed(ctx)
	return ok && release > incidentBad
}

// deployed returns the deployed release.
func (i *incident) deployed(ctx context.Context) (release int64, ok bool) {
	entry, err := i.c.ConfigGet(ctx, incidentRelease)
	release, bad := strconv.ParseInt(entry.Value, 10, 64)
	return release, err == nil && bad == nil // the value may be deleted or not a number
}

// work sends an invoice, or returns the error.
func (i *incident) work(ctx context.Context, m *client.Message) error {
	switch currency := m.Header.Get("currency"); {
	case m.Key == "initech":
		return m.Nack(client.NackOptions{Code: "550", Error: "mailbox billing@initech.example is unavailable"})
	case currency != "EUR":
		return m.Nack(client.NackOptions{Code: "422", Error: fmt.Sprintf("currency %q is not known", currency)})
	case !i.fixed(ctx):
		return m.Nack(client.NackOptions{Code: "500", Error: fmt.Sprintf(`template invoice.html:17: no field "vat" in invoice %s`, m.ID)})
	}
	return m.Ack()
}

// died waits until there are count dead letters.
func (i *incident) died(ctx context.Context, count int64) error {
	for {
		info, err := i.c.QueueInspect(ctx, incidentQueue+wire.DLQSuffix, 0)
		if err != nil || info.Pending >= count {
			return err
		}
		time.Sleep(incidentLook)
	}
}

// follow updates the release of the workers until ctx ends.
func (i *incident) follow(ctx context.Context, deployed func(release int64)) {
	for {
		select {
		case <-time.After(incidentLook):
		case <-ctx.Done():
			return
		}
		release, ok := i.deployed(ctx)
		if !ok || release == i.release.Load() {
			continue
		}
		i.release.Store(release)
		deployed(release)
	}
}
