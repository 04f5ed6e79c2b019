package opscmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
)

const (
	clusterDuration   = 15_000 // ms of load without --duration
	clusterRate       = 100    // messages a second of each queue
	clusterVisibility = 2 * time.Second
	clusterAnswer     = time.Second // an unconfirmed message is sent again after this time
)

// clusterPatience bounds each wait for the cluster. A loaded machine that runs the tests may
// need more.
var clusterPatience = time.Minute

// clusterQueues are the queues of the demo. Their names fall into one shard each, in this
// order.
var clusterQueues = []string{"mails", "jobs", "orders"}

// clusterDemo runs the demo of a cluster: it kills one of three nodes under load.
func clusterDemo(ctx context.Context, env *command.Env, cmd *cobra.Command, dir string, duration time.Duration) error {
	show := newDemoScreen(env, cmd.OutOrStdout())
	show.write(fmt.Sprintf(`Three nodes form a cluster, each with a NATS server inside.
Three queues get %d messages a second each; then the owner
of one of them is killed.

`, clusterRate))
	d := newClusterPlay(show)
	d.say("nodes %s start", strings.Join(clusterNodes, ", "))
	nodes, urls, err := startNodes(ctx, dir, clusterQueues)
	if err != nil {
		return stopped(ctx, err)
	}
	d.nodes = nodes
	defer killNodes(nodes)
	if err := d.connect(urls); err != nil {
		return err
	}
	defer d.nc.Close()
	if err := d.play(ctx, duration); err != nil {
		return stopped(ctx, err)
	}
	report := d.report()
	report.Result = report.words()
	return show.result(report, report.Result)
}

// clusterPlay is the load of the demo and its effects.
type clusterPlay struct {
	show   *demoScreen
	nodes  []*demoNode
	nc     *nats.Conn
	js     jetstream.JetStream
	c      *client.Client
	begin  time.Time
	sent   time.Time // start of the load
	victim string    // the node to kill

	mu struct {
		sync.Mutex
		queues  []*clusterQueue
		moments []demoMoment
		killed  time.Time // zero before the kill
		err     error
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

func newClusterPlay(show *demoScreen) *clusterPlay {
	d := &clusterPlay{show: show, begin: time.Now()}
	for shard, queue := range clusterQueues {
		d.mu.queues = append(d.mu.queues, &clusterQueue{Queue: queue, Shard: shard, confirmed: map[int]bool{}, delivered: map[int]bool{}})
	}
	return d
}

// connect connects to any node, and reconnects to another one.
func (d *clusterPlay) connect(urls []string) (err error) {
	d.nc, err = nats.Connect(strings.Join(urls, ","), nats.Name("fila demo"), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // unconfirmed messages are sent again
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	if d.js, err = jetstream.New(d.nc); err == nil {
		d.c, err = client.New(d.nc, client.WithTimeout(clusterAnswer))
	}
	if err != nil {
		d.nc.Close()
	}
	return err
}

// play runs the demo step by step; each step waits for the previous one.
func (d *clusterPlay) play(ctx context.Context, length time.Duration) (err error) {
	if err := d.until(ctx, "the queues", func() bool {
		return d.readOwners(ctx) == nil && d.all(func(q *clusterQueue) bool { return q.Owner != "" }) && d.declared(ctx)
	}); err != nil {
		return err
	}
	stop, err := d.consume(ctx)
	defer stop()
	if err != nil {
		return err
	}
	d.sent = time.Now()
	sendCtx, enough := context.WithCancel(ctx)
	var sending sync.WaitGroup
	defer sending.Wait()
	defer enough()
	for i := range clusterQueues {
		sending.Go(func() { d.send(sendCtx, ctx, i) })
	}
	d.say("the cluster is there and gets messages")
	if err := d.until(ctx, "the shards to be spread", func() bool { return d.spread(ctx) }); err != nil {
		return err
	}
	d.say("%s", d.owners())
	if err := d.until(ctx, "", func() bool { return time.Since(d.sent) >= length/3 }); err != nil {
		return err
	}
	if err := d.kill(ctx); err != nil {
		return err
	}
	if err := d.until(ctx, "new owners and confirmations", func() bool {
		return d.readOwners(ctx) == nil && d.all(func(q *clusterQueue) bool { return q.back && q.Owner != "" && q.Owner != d.victim })
	}); err != nil {
		return err
	}
	d.say("%s", d.owners())
	settled := time.Now()
	if err := d.until(ctx, "", func() bool { return time.Since(d.sent) >= length && time.Since(settled) >= length/10 }); err != nil {
		return err
	}
	enough()
	sending.Wait()
	d.say("nothing more is sent")
	if err := d.until(ctx, "the last confirmations", func() bool {
		return d.all(func(q *clusterQueue) bool { return q.Confirmed == q.Sent })
	}); err != nil {
		return err
	}
	// Lost messages would not arrive later, but late ones do.
	if err := d.await(ctx, func() bool { return d.all(func(q *clusterQueue) bool { return q.Delivered == q.Sent }) }, clusterPatience); err != nil && !errors.Is(err, errLate) {
		return err
	}
	d.say("%s", d.report().count())
	d.show.draw(d.lines(), true)
	return nil
}

var errLate = errors.New("it did not come")

// until waits for a condition; a condition with a name must hold within a time limit.
func (d *clusterPlay) until(ctx context.Context, name string, holds func() bool) error {
	patience := clusterPatience
	if name == "" {
		patience = 2 * time.Hour // longer than any demo
	}
	err := d.await(ctx, holds, patience)
	if errors.Is(err, errLate) {
		return fmt.Errorf("the demo waited %s for %s: this machine is too busy for it", clusterPatience, name)
	}
	return err
}

// await waits for a condition and shows progress meanwhile.
func (d *clusterPlay) await(ctx context.Context, holds func() bool, patience time.Duration) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return errLate
		case <-ticker.C:
			d.show.draw(d.lines(), false)
		}
		if err := errors.Join(d.failed(nil), fell(d.nodes)); err != nil {
			return err
		}
	}
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
	leaders := make([]string, len(clusterQueues))
	for i := range leaders {
		stream, err := d.js.Stream(ctx, fmt.Sprintf("FILA_demo_LOG_%d", i))
		if err != nil {
			return fmt.Errorf("the log of shard %d: %w", i, err)
		}
		if c := stream.CachedInfo().Cluster; c != nil {
			leaders[i] = c.Leader
		}
	}
	d.mu.Lock()
	d.victim = d.mu.queues[0].Owner
	for i, q := range d.mu.queues {
		q.OwnerBefore, q.LogBefore = q.Owner, leaders[i]
	}
	d.mu.killed = time.Now()
	d.mu.Unlock()
	for _, n := range d.nodes {
		if n.name == d.victim {
			n.kill()
		}
	}
	d.say("SIGKILL to %s, with its NATS server", d.victim)
	return nil
}

// consume consumes all queues; stop ends that, also after an error.
func (d *clusterPlay) consume(ctx context.Context) (stop func(), err error) {
	var all []*client.Consumer
	stop = func() {
		ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), clusterAnswer)
		defer cancel()
		var stopping sync.WaitGroup
		for _, c := range all {
			stopping.Go(func() { _ = c.Stop(ended) }) // the cluster stops as well
		}
		stopping.Wait()
	}
	for i, queue := range clusterQueues {
		c, err := d.c.Consume(ctx, queue, func(_ context.Context, m *client.Message) error { return d.got(i, m) }, client.ConsumerName("worker"))
		if err != nil {
			return stop, err
		}
		all = append(all, c)
	}
	return stop, nil
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

// send publishes all messages that are due at each tick, until enough is over. It retries each
// message until its confirmation or the end of ctx.
func (d *clusterPlay) send(enough, ctx context.Context, i int) {
	begin := time.Now()
	for n := 0; ; n++ {
		timer := time.NewTimer(time.Until(begin.Add(time.Duration(n) * time.Second / clusterRate)))
		select {
		case <-timer.C:
		case <-enough.Done():
			timer.Stop()
			return
		}
		if enough.Err() != nil {
			return
		}
		f, err := d.c.PublishAsync(ctx, clusterQueues[i], fmt.Append(nil, n),
			client.DedupeID(fmt.Sprint(clusterQueues[i], "-", n)), client.RetryFor(clusterPatience))
		if err != nil {
			if ctx.Err() == nil {
				_ = d.failed(err)
			}
			return
		}
		d.mu.Lock()
		d.mu.queues[i].Sent++
		d.mu.Unlock()
		go d.confirmed(ctx, i, n, time.Now(), f)
	}
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

// say prints an event of the demo.
func (d *clusterPlay) say(format string, args ...any) {
	d.mu.Lock()
	at := demoMoment{time.Since(d.begin).Seconds(), fmt.Sprintf(format, args...)}
	d.mu.moments = append(d.mu.moments, at)
	d.mu.Unlock()
	d.show.line(fmt.Sprintf("%5.1f s  %s", at.Seconds, at.Text), d.lines)
}

// failed keeps the first error and returns it.
func (d *clusterPlay) failed(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.err == nil {
		d.mu.err = err
	}
	return d.mu.err
}

// report returns the present state.
func (d *clusterPlay) report() clusterReport {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := clusterReport{Killed: d.victim, Moments: slices.Clone(d.mu.moments)}
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

// lines returns the table, which always has the same number of lines.
func (d *clusterPlay) lines() []string { return d.report().lines(d.show.paint) }

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
