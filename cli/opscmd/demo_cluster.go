package opscmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/filaq/fila/bench"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
)

const (
	clusterDuration   = 15_000 // ms of load without --duration
	clusterRate       = 100    // messages a second of each queue
	clusterVisibility = 2 * time.Second
	clusterAnswer     = time.Second // an unconfirmed message is sent again after this time
)

// clusterQueues are the queues of the demo. Their names fall into one shard each, in this
// order.
var clusterQueues = []string{"mails", "jobs", "orders"}

// clusterDemo runs the demo of a cluster: it kills one of three nodes under load.
func clusterDemo(ctx context.Context, s *demoStage, length time.Duration) error {
	s.write(`Three nodes form a cluster, each with a NATS server inside.
Three queues get %d messages a second each; then the owner
of one of them is killed.

`, clusterRate)
	d := newClusterPlay(s)
	d.say("nodes %s start", strings.Join(clusterNodes, ", "))
	urls, err := d.startNodes(ctx)
	if err != nil {
		return err
	}
	if err := s.connect(&d.demoServer, strings.Join(urls, ","), demoClient, client.WithTimeout(clusterAnswer)); err != nil {
		return err
	}
	if err := d.play(ctx, length); err != nil {
		return err
	}
	report := d.report()
	report.Result = report.words()
	return s.result(report, report.Result)
}

// clusterPlay is the load of the demo and its effects.
type clusterPlay struct {
	*demoStage
	demoServer // any node, and then another one
	nodes      map[string]*bench.Server

	mu struct {
		sync.Mutex
		queues []*clusterQueue
		victim string    // the killed node
		killed time.Time // zero before the kill
	}
}

// clusterQueue is a queue of the demo.
type clusterQueue struct {
	Queue       string `json:"queue"`
	Shard       int    `json:"shard"`
	OwnerBefore string `json:"owner_before"` // before the kill
	LogBefore   string `json:"log_leader_before"`
	Owner       string `json:"owner"` // empty without an owner
	Epoch       uint64 `json:"epoch"`
	Sent        int    `json:"sent"`
	Confirmed   int    `json:"confirmed"`
	Delivered   int    `json:"delivered"` // unique messages
	Again       int    `json:"delivered_again"`
	SilentMs    int64  `json:"silent_ms"` // longest time without a confirmation after the kill

	confirmed map[int]bool
	delivered map[int]bool
	last      time.Time // time of the latest confirmation
	back      bool      // a message sent after the kill was confirmed
}

// clusterReport is what fila demo --cluster --json prints.
type clusterReport struct {
	Killed    string         `json:"killed"` // node
	Queues    []clusterQueue `json:"queues"`
	Moments   []demoMoment   `json:"moments"`
	Confirmed int            `json:"confirmed"`
	Delivered int            `json:"delivered"` // of confirmed messages
	Lost      int            `json:"lost"`      // confirmed and not delivered
	Result    string         `json:"result"`    // summary in words
}

func newClusterPlay(s *demoStage) *clusterPlay {
	d := &clusterPlay{demoStage: s}
	for shard, queue := range clusterQueues {
		d.mu.queues = append(d.mu.queues, &clusterQueue{Queue: queue, Shard: shard, confirmed: map[int]bool{}, delivered: map[int]bool{}})
	}
	s.table = func() []string { return d.report().lines(s.paint) }
	return d
}

// play runs the demo step by step; each step waits for the previous one.
func (d *clusterPlay) play(ctx context.Context, length time.Duration) error {
	d.until(ctx, "the queues", func() bool {
		return d.readOwners(ctx) == nil && d.all(func(q *clusterQueue) bool { return q.Owner != "" }) && d.declared(ctx)
	})
	var sending sync.WaitGroup
	defer sending.Wait()
	sendCtx, enough := context.WithCancel(ctx)
	defer enough()
	sent := time.Now()
	for i, queue := range clusterQueues {
		if _, err := d.consume(ctx, d.c, queue, func(_ context.Context, m *client.Message) error { return d.got(i, m) }, client.ConsumerName("worker")); err != nil {
			return cmp.Or(d.failed(nil), err)
		}
		sending.Go(func() { d.sendTo(sendCtx, ctx, i) })
	}
	d.say("the cluster is there and gets messages")
	d.until(ctx, "the shards to be spread", func() bool { return d.spread(ctx) })
	d.say("%s", d.owners())
	d.pass(ctx, sent, length/3)
	if err := d.kill(ctx); err != nil {
		return err
	}
	d.until(ctx, "new owners and confirmations", func() bool {
		return d.readOwners(ctx) == nil && d.all(func(q *clusterQueue) bool { return q.back && q.Owner != "" && q.Owner != d.mu.victim })
	})
	d.say("%s", d.owners())
	d.pass(ctx, time.Now(), length/10)
	d.pass(ctx, sent, length)
	enough()
	sending.Wait()
	d.say("nothing more is sent")
	d.until(ctx, "the last confirmations", func() bool {
		return d.all(func(q *clusterQueue) bool { return q.Confirmed == q.Sent })
	})
	// Lost messages would not arrive later, but late ones do.
	d.await(ctx, demoPatience, func() bool { return d.all(func(q *clusterQueue) bool { return q.Delivered == q.Sent }) })
	d.say("%s", d.report().count())
	if err := d.failed(nil); err != nil {
		return err
	}
	d.draw(true)
	return nil
}

// readOwners requests the owners of all shards.
func (d *clusterPlay) readOwners(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clusterAnswer)
	defer cancel()
	st, err := d.c.ClusterStatus(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range st.Shards {
		q := d.mu.queues[s.Shard]
		if s.Epoch >= q.Epoch {
			q.Owner, q.Epoch = s.Owner, s.Epoch
		}
	}
	return nil
}

// declared reports whether the queues of the configuration exist.
func (d *clusterPlay) declared(ctx context.Context) bool {
	for _, queue := range clusterQueues {
		ctx, cancel := context.WithTimeout(ctx, clusterAnswer)
		_, err := d.c.QueueInspect(ctx, queue, 1)
		cancel()
		if err != nil {
			return false
		}
	}
	return true
}

// all reports whether a condition holds for all queues.
func (d *clusterPlay) all(holds func(q *clusterQueue) bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !slices.ContainsFunc(d.mu.queues, func(q *clusterQueue) bool { return !holds(q) })
}

// spread moves each shard to its own node, and reports whether all are there. The cluster would
// do so itself, with more time between the moves.
func (d *clusterPlay) spread(ctx context.Context) bool {
	if d.readOwners(ctx) != nil {
		return false
	}
	d.mu.Lock()
	var away []int
	for i, q := range d.mu.queues {
		if q.Owner != clusterNodes[i] {
			away = append(away, i)
		}
	}
	d.mu.Unlock()
	for _, i := range away {
		ctx, cancel := context.WithTimeout(ctx, clusterAnswer)
		_, _ = d.c.ClusterMove(ctx, i, clusterNodes[i]) // until repeats a failed request
		cancel()
	}
	return len(away) == 0
}

// owners returns the owner of each shard.
func (d *clusterPlay) owners() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var texts []string
	for _, q := range d.mu.queues {
		texts = append(texts, fmt.Sprintf("%s owns %s", q.Owner, q.Queue))
	}
	return strings.Join(texts, ", ")
}

// kill kills the owner of the first queue.
func (d *clusterPlay) kill(ctx context.Context) error {
	if err := d.failed(nil); err != nil {
		return err
	}
	js, err := jetstream.New(d.nc)
	if err != nil {
		return err
	}
	leaders := make([]string, len(clusterQueues))
	for i := range leaders {
		stream, err := js.Stream(ctx, fmt.Sprintf("FILA_demo_LOG_%d", i))
		if err != nil {
			return fmt.Errorf("the log of shard %d: %w", i, err)
		}
		if c := stream.CachedInfo().Cluster; c != nil {
			leaders[i] = c.Leader
		}
	}
	d.mu.Lock()
	victim := d.mu.queues[0].Owner
	for i, q := range d.mu.queues {
		q.OwnerBefore, q.LogBefore = q.Owner, leaders[i]
	}
	d.mu.victim, d.mu.killed = victim, time.Now()
	d.mu.Unlock()
	d.nodes[victim].Kill()
	d.say("SIGKILL to %s, with its NATS server", victim)
	return nil
}

func (d *clusterPlay) victim() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.victim
}

// got records a delivery.
func (d *clusterPlay) got(i int, m *client.Message) error {
	var n int
	if _, err := fmt.Sscan(string(m.Data), &n); err != nil {
		return d.failed(fmt.Errorf("a message of %s that nobody sent: %q", clusterQueues[i], m.Data))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.mu.queues[i]
	if q.delivered[n] {
		q.Again++
		return nil
	}
	q.delivered[n] = true
	q.Delivered++
	return nil
}

// sendTo publishes until enough is over. It retries each message until its confirmation or the
// end of ctx.
func (d *clusterPlay) sendTo(enough, ctx context.Context, i int) {
	d.send(enough, clusterRate, func(n int) error {
		f, err := d.c.PublishAsync(ctx, clusterQueues[i], fmt.Append(nil, n),
			client.DedupeID(fmt.Sprint(clusterQueues[i], "-", n)), client.RetryFor(demoPatience))
		if err != nil {
			return err
		}
		d.mu.Lock()
		d.mu.queues[i].Sent++
		d.mu.Unlock()
		go d.confirmed(ctx, i, n, time.Now(), f)
		return nil
	})
}

// confirmed waits for the confirmation of a message and records it.
func (d *clusterPlay) confirmed(ctx context.Context, i, n int, sent time.Time, f *client.PublishFuture) {
	if _, err := f.Wait(ctx); err != nil {
		if ctx.Err() == nil {
			_ = d.failed(err)
		}
		return
	}
	now, text := time.Now(), ""
	d.mu.Lock()
	q := d.mu.queues[i]
	if killed := d.mu.killed; !killed.IsZero() {
		silent := now.Sub(q.last)
		q.SilentMs = max(q.SilentMs, silent.Milliseconds())
		q.back = q.back || sent.After(killed)
		if silent >= time.Second {
			text = fmt.Sprintf("%s: confirmed again, after %.1f s", q.Queue, silent.Seconds())
		}
	}
	q.last = now
	q.confirmed[n] = true
	q.Confirmed++
	d.mu.Unlock()
	if text != "" {
		d.say("%s", text)
	}
}

// report returns the present state.
func (d *clusterPlay) report() clusterReport {
	moments := d.moments()
	d.mu.Lock()
	defer d.mu.Unlock()
	r := clusterReport{Killed: d.mu.victim, Moments: moments}
	for _, q := range d.mu.queues {
		r.Queues = append(r.Queues, *q)
		for n := range q.confirmed {
			r.Confirmed++
			if q.delivered[n] {
				r.Delivered++
			}
		}
	}
	r.Lost = r.Confirmed - r.Delivered
	return r
}

func (r clusterReport) lines(paint terminal.Style) []string {
	lines := []string{"", paint.Dim(fmt.Sprintf("%-7s %5s %5s %7s %9s %9s %7s", "QUEUE", "OWNER", "EPOCH", "SENT", "CONFIRMED", "DELIVERED", "SILENT"))}
	for _, q := range r.Queues {
		silent := "-"
		if r.Killed != "" && q.back {
			silent = fmt.Sprintf("%.1f s", float64(q.SilentMs)/1000)
		}
		owner := fmt.Sprintf("%5s", terminal.OrDash(q.Owner))
		if q.Owner == r.Killed {
			owner = paint.Red(owner)
		}
		lines = append(lines, fmt.Sprintf("%-7s %s %5d %7d %9d %9d %7s", q.Queue, owner, q.Epoch, q.Sent, q.Confirmed, q.Delivered, silent))
	}
	return append(lines, "")
}

// count updates the counts of messages.
func (r clusterReport) count() string {
	return fmt.Sprintf("%d confirmed, %d delivered, %d lost", r.Confirmed, r.Delivered, r.Lost)
}

// words returns a summary computed from the figures alone.
func (r clusterReport) words() string {
	text := fmt.Sprintf("Node %s was killed, and its NATS server with it.", r.Killed)
	again := 0
	for _, q := range r.Queues {
		again += q.Again
		owned, led := q.OwnerBefore == r.Killed, q.LogBefore == r.Killed
		silent := fmt.Sprintf("%.1f s", float64(q.SilentMs)/1000)
		switch {
		case owned && led:
			text += fmt.Sprintf(" It owned %s and led its log: nothing was confirmed for %s, until NATS had elected another leader and %s had taken over.", q.Queue, silent, q.Owner)
		case owned:
			text += fmt.Sprintf(" It owned %s: nothing was confirmed for %s, until %s had taken over.", q.Queue, silent, q.Owner)
		case led:
			text += fmt.Sprintf(" It led the log of %s, whose owner lived: nothing was confirmed for %s, until NATS had elected another leader.", q.Queue, silent)
		default:
			text += fmt.Sprintf(" %s had neither there: its longest time without a confirmation was %s.", q.Queue, silent)
		}
	}
	return text + fmt.Sprintf(" In the end %d messages had been confirmed and %d of them delivered (%d more than once, as it may be): %d lost.", r.Confirmed, r.Delivered, again, r.Lost)
}
