package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCrash kills fila with SIGKILL at random moments under load and proves the
// first three invariants over the whole history, see history.
func TestCrash(t *testing.T) {
	t.Parallel()
	seed := *flagSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-fila.seed=%d -fila.kills=%d", seed, *flagKills)
	rng := rand.New(rand.NewPCG(seed, 0))

	opts := options{dir: t.TempDir()}
	p, err := newProc(opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.kill()
		p.checkLog(t)
	})
	// The load connects before there is a server, as real services do.
	url := fmt.Sprintf("nats://127.0.0.1:%d", p.port)
	l := newLoad(t, url, seed, "orders", "mails.eu", "reports")
	begin := func() {
		l.h.started(time.Now().UnixNano())
		require.NoError(t, p.start())
	}
	ready := func(ph *phase, c *client, k *churn) {
		require.NoError(t, p.waitReady(), p.log)
		eventually(t, c.nc.IsConnected)
		k.check(c)
		close(ph.ready)
	}
	kill := func() *phase {
		p.Kill9(t)
		l.phase.Load().cancel()
		return l.newPhase()
	}
	stop := func() *phase {
		require.Zero(t, p.Stop(t))
		l.phase.Load().cancel()
		return l.newPhase()
	}
	begin()
	require.NoError(t, p.waitReady(), p.log)
	c := p.client(t)
	l.setup(c)
	close(l.phase.Load().ready)
	l.h.redriven = "reports"
	l.start()
	changes := l.startChurn()
	for round := range *flagKills {
		awaitMoment(l, p, rng)
		end := kill
		if round%5 == 4 { // an orderly end must not lose anything either
			end = stop
		}
		ph := end()
		begin()
		if rng.IntN(4) == 0 { // once more while it recovers
			pause(l.ctx, time.Duration(rng.IntN(60_000))*time.Microsecond)
			ph = kill()
			begin()
		}
		ready(ph, c, changes)
		require.Empty(t, l.h.check(false).problems, "after kill %d", round+1)
	}
	awaitMoment(l, p, rng)
	l.drain(c)
	r := l.h.check(true)
	t.Log(r)
	require.Empty(t, r.problems)
	require.Positive(t, r.acked)
	require.Positive(t, r.staleRefused)

	// What was finished stays finished.
	ph := kill()
	begin()
	ready(ph, c, changes)
	l.drain(c)
	require.Empty(t, l.h.check(true).problems)
	ph.cancel()
	require.Zero(t, p.Stop(t))
}

// awaitMoment waits for a random number of confirmations or a random time.
func awaitMoment(l *load, p *proc, rng *rand.Rand) {
	l.t.Helper()
	if rng.IntN(3) == 0 {
		pause(l.ctx, time.Duration(rng.IntN(800_000))*time.Microsecond)
		return
	}
	_, before := l.h.counts()
	want := before + 20 + rng.IntN(3000)
	ok := poll(func() bool {
		_, events := l.h.counts()
		return events >= want || p.hasExited() || l.t.Failed()
	})
	require.True(l.t, ok, "the load must make progress: %s", l.state(p))
}

// state says how the load and the queues are.
func (l *load) state(p *proc) string {
	open, events := l.h.counts()
	text := fmt.Sprintf("%d open, %d confirmations, problems %v", open, events, l.h.soFar())
	c := p.client(l.t)
	for _, queue := range l.queues {
		text += "\n" + c.dump(queue)
	}
	return text
}

// TestNATSRestartUnderLoad is the same with a NATS server that comes and goes
// while fila stays.
func TestNATSRestartUnderLoad(t *testing.T) {
	t.Parallel()
	seed := *flagSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-fila.seed=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	n := startNATS(t, nil)
	start := time.Now().UnixNano()
	p := startFila(t, options{natsURL: n.URL})
	c := dial(t, n.URL)
	l := newLoad(t, n.URL, seed, "orders", "mails")
	l.h.started(start)
	l.setup(c)
	close(l.phase.Load().ready)
	l.start()
	for range *flagKills {
		awaitMoment(l, p, rng)
		n.stop()
		l.phase.Load().cancel()
		ph := l.newPhase()
		eventually(t, func() bool { return p.readyz() == http.StatusServiceUnavailable })
		n.start(t)
		eventually(t, func() bool { return p.readyz() == http.StatusOK })
		close(ph.ready)
		require.Empty(t, l.h.check(false).problems)
	}
	awaitMoment(l, p, rng)
	eventually(t, func() bool { return c.nc.IsConnected() })
	l.drain(c)
	r := l.h.check(true)
	t.Log(r)
	require.Empty(t, r.problems)
	require.Positive(t, r.acked)
	l.phase.Load().cancel()
	require.Zero(t, p.Stop(t))
}
