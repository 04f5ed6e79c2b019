package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// gateLoad is a load on throttled queues while fila is killed and restarted. It records every
// lease and every confirmation.
type gateLoad struct {
	t      *testing.T
	c      *client
	queues []string
	ctx    context.Context // ends the load
	work   sync.WaitGroup

	mu struct {
		sync.Mutex
		rng       *rand.Rand
		starts    []int64 // of the processes
		kills     []int64 // just before each kill
		flights   map[string][]*crashFlight
		confirmed map[string]string // message ids and their queues
		seen      map[string]bool
		waiting   map[string]int // confirmed and not delivered yet, by queue; an estimate over crashes
	}
}

type crashFlight struct {
	flight
	kept bool // an extension was confirmed: the lease is on disk
}

const (
	crashVisibility = 900 * time.Millisecond
	crashBacklog    = 15 // backlog of a queue at which producers pause
)

func newGateLoad(t *testing.T, ctx context.Context, rng *rand.Rand, queues ...string) *gateLoad {
	l := &gateLoad{t: t, queues: queues, ctx: ctx}
	l.mu.rng = rng
	l.mu.flights = map[string][]*crashFlight{}
	l.mu.confirmed = map[string]string{}
	l.mu.seen = map[string]bool{}
	l.mu.waiting = map[string]int{}
	return l
}

func (l *gateLoad) roll(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.rng.IntN(n)
}

// produce enqueues messages one by one while few are waiting.
func (l *gateLoad) produce() {
	for i := 0; pause(l.ctx, time.Duration(l.roll(6))*time.Millisecond); i++ {
		queue := l.queues[i%len(l.queues)]
		l.mu.Lock()
		full := l.mu.waiting[queue] >= crashBacklog
		l.mu.Unlock()
		if full {
			continue
		}
		msg := message(queue, "", "tenant", fmt.Sprint("t", l.roll(4)), "gate", queue)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		reply, err := l.c.nc.RequestMsgWithContext(ctx, msg)
		cancel()
		if err != nil || reply.Header.Get("Nats-Service-Error-Code") != "" || reply.Header.Get("Status") != "" {
			continue // it may be stored or not
		}
		var out enqueued
		if decode(l.t, reply.Data, &out) {
			l.mu.Lock()
			l.mu.confirmed[out.ID] = queue
			l.mu.waiting[queue]++
			l.mu.Unlock()
		}
	}
}

// consume works on a queue until the test ends, over all processes: fila keeps the
// registration, and the connection the subscription.
func (l *gateLoad) consume(queue string) *consumer {
	k := l.c.consume(queue, 12)
	l.work.Go(func() {
		for {
			select {
			case <-l.ctx.Done():
				return
			case d := <-k.ch:
				l.work.Go(func() { l.handle(queue, d) })
			}
		}
	})
	return k
}

func (l *gateLoad) handle(queue string, d delivery) {
	f := &crashFlight{flight: flightOf(l.t, d, crashVisibility)}
	l.mu.Lock()
	l.mu.flights[queue] = append(l.mu.flights[queue], f)
	if !l.mu.seen[f.id] {
		l.mu.seen[f.id] = true
		l.mu.waiting[queue]--
	}
	for _, at := range l.mu.starts {
		if at <= f.start {
			f.process++
		}
	}
	l.mu.Unlock()
	switch roll := l.roll(100); {
	case roll < 6:
		return // never answered
	case roll < 25: // a long one, which may outlive the process
		pause(l.ctx, 15*time.Millisecond)
		sent := time.Now().UnixNano()
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		reply, err := l.c.nc.RequestWithContext(ctx, d.Reply, []byte("+WPI"))
		cancel()
		if err == nil && len(reply.Header) == 0 {
			l.mu.Lock()
			f.kept, f.end = true, sent+int64(crashVisibility)
			l.mu.Unlock()
		}
		pause(l.ctx, time.Duration(l.roll(600))*time.Millisecond)
	default:
		pause(l.ctx, time.Duration(l.roll(15))*time.Millisecond)
	}
	l.mu.Lock()
	f.end = min(f.end, time.Now().UnixNano())
	l.mu.Unlock()
	_ = d.Respond(nil)
}

// leases returns the flights of a queue in order. A lease that was not known to be on disk when
// its process was killed may be lost (docs/store.md), so its slot was free again: such a lease
// ends with its process.
func (l *gateLoad) leases(queue string) []flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []flight
	for _, f := range l.mu.flights[queue] {
		g := f.flight
		if !f.kept && g.process <= len(l.mu.kills) {
			g.end = min(g.end, l.mu.kills[g.process-1])
		}
		out = append(out, g)
	}
	sortFlights(out)
	return out
}

// lost returns the confirmed messages that were never delivered.
func (l *gateLoad) lost() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, queue := range l.mu.confirmed {
		if !l.mu.seen[id] {
			ids = append(ids, queue+" "+id)
		}
	}
	return ids
}

// TestCrashWithGates kills fila again and again under throttled load: no limit is exceeded,
// also not over crashes, and no slot and no message is lost.
func TestCrashWithGates(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	_, rng := choices(t)
	const (
		rate, burst = 20, 4
		limit       = 5
		window      = 250 * time.Millisecond
		places      = 3
	)
	p := newFila(t, options{})
	ctx, cancel := context.WithCancel(t.Context())
	l := newGateLoad(t, ctx, rng, "rate", "window", "places")
	begin := func() {
		l.mu.Lock()
		l.mu.starts = append(l.mu.starts, time.Now().UnixNano())
		l.mu.Unlock()
		p.Start(t)
	}
	begin()
	l.c = dial(t, p.URL, nats.ReconnectBufSize(-1))
	admin := p.client(t)
	for _, queue := range l.queues {
		admin.createQueue(queue, byHeaders(m{"visibility_timeout_ms": crashVisibility.Milliseconds(), "max_deliveries": 0}))
	}
	admin.limits("rate", m{"rate": rate, "burst": burst})
	admin.limits("window", m{"limit": limit, "window_ms": window.Milliseconds()})
	admin.limits("places", m{"concurrency": places})
	stop := func() { cancel(); l.work.Wait() }
	t.Cleanup(stop)
	for _, queue := range l.queues {
		l.consume(queue)
	}
	l.work.Go(l.produce)
	l.work.Go(l.produce)
	delivered := func() int { l.mu.Lock(); defer l.mu.Unlock(); return len(l.mu.seen) }
	for range *flagKills {
		want := delivered() + 5 + l.roll(60)
		eventually(t, func() bool { return delivered() >= want })
		l.mu.Lock()
		l.mu.kills = append(l.mu.kills, time.Now().UnixNano())
		l.mu.Unlock()
		p.Kill9(t)
		begin()
		eventually(t, func() bool { return l.c.nc.IsConnected() && admin.nc.IsConnected() })
	}
	want := delivered() + 40
	eventually(t, func() bool { return delivered() >= want })
	l.mu.Lock()
	confirmed := len(l.mu.confirmed)
	l.mu.Unlock()
	// Producers pause at a backlog, so they have to end before the queues are empty.
	for _, queue := range l.queues {
		admin.call("fila.admin.queue-update."+queue, m{"max_depth": 1}, nil)
	}
	for _, queue := range l.queues {
		eventually(t, func() bool { return admin.depth(queue) <= 1 }, "%s: %s", queue, admin.dump(queue))
	}
	eventually(t, func() bool { return len(l.lost()) == 0 }, "lost: %v", l.lost())
	stop()
	// Messages that the last consumers did not answer return when their leases end.
	for _, queue := range l.queues {
		k := admin.consume(queue, 5)
		for admin.depth(queue) > 0 {
			select {
			case d := <-k.ch:
				require.NoError(t, d.Respond(nil))
			case <-time.After(10 * time.Millisecond):
			}
		}
		require.Zero(t, admin.throttle(queue).InFlight, queue)
	}
	t.Logf("%d confirmed, %d + %d + %d leases", confirmed, len(l.leases("rate")), len(l.leases("window")), len(l.leases("places")))
	require.NoError(t, checkRate(l.leases("rate"), rate, burst))
	require.NoError(t, checkWindow(l.leases("window"), limit, window-time.Millisecond))
	require.NoError(t, checkConcurrency(l.leases("places"), places))
	require.Zero(t, p.Stop(t))
}
