package opscmd

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// The demo of an incident: a new release of the workers fails to send invoices.
const (
	invoicesQueue    = "invoices"
	incidentMessages = 40_000
	incidentRelease  = "release" // key of the runtime configuration that names the release of the workers
	incidentBad      = 2         // release with the bug: the ones before and after it do not have it
	incidentLook     = 100 * time.Millisecond
)

// badReleaseHappens makes the dead letters. From then on it prints which release is deployed.
func badReleaseHappens(ctx context.Context, l *incidentLoad) error {
	deployer := &demoServer{}
	if err := l.connect(deployer, l.server.url, "deploy-bot"); err != nil {
		return err
	}
	i := newBadRelease(l.demoStage, l.server.c, deployer.c)
	const before = incidentMessages / 20
	if err := i.prepare(ctx, before); err != nil {
		return err
	}
	l.pass(ctx, time.Now(), l.step)
	if err := i.happen(ctx, before, incidentMessages); err != nil {
		return err
	}
	following, enough := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		i.follow(following, func(release int64) { l.write("release %d of the workers is deployed\n", release) })
	}()
	l.atEnd(func() error {
		enough()
		<-ended
		return nil
	})
	return nil
}

// badRelease is the workers that send invoices.
type badRelease struct {
	*demoStage
	c, deployer *client.Client
	release     atomic.Int64
	enqueued    int64
	happened    atomic.Bool // from now on only redriven messages arrive
}

func newBadRelease(s *demoStage, c, deployer *client.Client) *badRelease {
	return &badRelease{demoStage: s, c: c, deployer: deployer}
}

// deploy sets the release of the workers.
func (i *badRelease) deploy(ctx context.Context, release int64) error {
	if _, err := i.deployer.ConfigSet(ctx, incidentRelease, strconv.FormatInt(release, 10), nil); err != nil {
		return err
	}
	i.release.Store(release)
	return nil
}

// prepare starts the workers with the release before the bad one, and returns when they have worked on
// the first count invoices. Those that no release can send are dead letters then.
func (i *badRelease) prepare(ctx context.Context, count int) error {
	settings := client.QueueSettings{FairnessHeader: "tenant", MaxDeliveries: new(int64(2)), RetryInitialMs: new(int64(100))}
	if _, err := i.c.QueueCreate(ctx, invoicesQueue, settings); err != nil {
		return err
	}
	if err := i.deploy(ctx, incidentBad-1); err != nil {
		return err
	}
	for n := range demoWorkers {
		if _, err := i.consume(ctx, i.c, invoicesQueue, i.work, client.ConsumerName(fmt.Sprintf("worker-%d", n+1)), client.MaxInFlight(256)); err != nil {
			return err
		}
	}
	return i.send(ctx, count, func(int) bool { return true })
}

// happen deploys the bad release, and returns when count invoices are dead letters: those that were
// before its time, and one for each customer of the others.
func (i *badRelease) happen(ctx context.Context, before, count int) error {
	if err := i.deploy(ctx, incidentBad); err != nil {
		return err
	}
	what := fmt.Sprintf("release %d of the workers", incidentBad)
	if _, err := i.deployer.Annotate(ctx, api.AnnotateRequest{Text: what, Queue: invoicesQueue}); err != nil {
		return err
	}
	err := i.send(ctx, count, func(n int) bool { return n >= before || !hopeless(n) })
	i.happened.Store(true)
	return err
}

// send enqueues the wanted ones of the first count invoices, and returns when all that were enqueued
// are sent or dead letters.
func (i *badRelease) send(ctx context.Context, count int, wanted func(n int) bool) error {
	var confirmations []*client.PublishFuture
	for n := range count {
		if !wanted(n) {
			continue
		}
		tenant, currency := incidentInvoice(n)
		future, err := i.c.PublishAsync(ctx, invoicesQueue, fmt.Appendf(nil, `{"invoice":%d,"cents":%d}`, n, 100+n%9000),
			client.Header("tenant", tenant), client.Header("currency", currency), client.RetryFor(time.Minute))
		if err != nil {
			return err
		}
		confirmations = append(confirmations, future)
	}
	for _, future := range confirmations {
		if _, err := future.Wait(ctx); err != nil {
			return err
		}
	}
	i.enqueued += int64(len(confirmations))
	for {
		q, err := i.c.QueueInspect(ctx, invoicesQueue, 0)
		if err != nil {
			return err
		}
		dead, err := i.c.QueueInspect(ctx, invoicesQueue+wire.DLQSuffix, 0)
		if err != nil || q.Counters["acked"]+dead.Pending >= i.enqueued {
			return err
		}
		time.Sleep(incidentLook)
	}
}

// hopeless reports whether no release can send an invoice.
func hopeless(n int) bool {
	tenant, currency := incidentInvoice(n)
	return tenant == "initech" || currency != "EUR"
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
func (i *badRelease) fixed(ctx context.Context) bool {
	if i.release.Load() != incidentBad || !i.happened.Load() {
		return i.release.Load() != incidentBad
	}
	release, ok := i.deployed(ctx)
	return ok && release != incidentBad
}

// deployed returns the deployed release.
func (i *badRelease) deployed(ctx context.Context) (release int64, ok bool) {
	entry, err := i.c.ConfigGet(ctx, incidentRelease)
	release, bad := strconv.ParseInt(entry.Value, 10, 64)
	return release, err == nil && bad == nil // the value may be deleted or not a number
}

// work sends an invoice, or returns the error.
func (i *badRelease) work(ctx context.Context, m *client.Message) error {
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

// follow updates the release of the workers until ctx ends.
func (i *badRelease) follow(ctx context.Context, deployed func(release int64)) {
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
