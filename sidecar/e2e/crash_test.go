package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/natstest"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storefile"
)

// TestCrash kills fila with SIGKILL at random moments under load and checks the first three
// invariants over the whole history, see history.
func TestCrash(t *testing.T) {
	t.Parallel()
	seed, rng := choices(t)
	p := newFila(t, options{})
	// The load connects before there is a server, as real services do.
	url := fmt.Sprintf("nats://127.0.0.1:%d", p.port)
	l := newLoad(t, url, seed, nil, "orders", "mails.eu", "reports")
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
	var seen kills
	kill := func() *phase {
		p.Kill9(t)
		seen.note(t, p, "orders", "mails.eu") // dead letters of the third queue are redriven
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
		if round%5 == 4 { // a graceful end must not lose anything either
			end = stop
		}
		ph := end()
		begin()
		if rng.IntN(4) == 0 { // again during recovery
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

	// Acked messages stay acked.
	ph := kill()
	begin()
	ready(ph, c, changes)
	l.drain(c)
	require.Empty(t, l.h.check(true).problems)
	ph.cancel()
	require.Zero(t, p.Stop(t))
	t.Log(&seen)
	if *flagKills >= 200 {
		require.Positive(t, seen.starting, "no kill came before fila was ready")
		require.Positive(t, seen.compacting, "no kill came while commits compacted")
		require.Positive(t, seen.confirmed, "no kill came after a commit was noted")
	}
}

// kills counts the states in which processes were killed.
type kills struct {
	all        int
	starting   int // not ready yet
	compacted  int // messages were where compaction had put them
	compacting int // and the last commit with messages was a compaction
	confirmed  int // the newest confirmed commit was noted
}

func (k *kills) String() string {
	return fmt.Sprintf("%d kills: %d before fila was ready, %d on a file that compaction had worked on, %d of them right after a commit that compacted; %d with a note of the newest confirmed commit",
		k.all, k.starting, k.compacted, k.compacting, k.confirmed)
}

// note examines the file after a kill. Messages of a queue are in the order of their commits,
// unless compaction has moved an old one.
func (k *kills) note(t testing.TB, p *proc, queues ...string) {
	t.Helper()
	k.all++
	if !p.parseReady() {
		k.starting++
	}
	f, err := store.OpenFile(p.file(), store.Options{})
	if errors.Is(err, store.ErrNotStore) || errors.Is(err, fs.ErrNotExist) {
		return // killed while creating the file
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	require.Nil(t, f.Lost())
	if _, err := storefile.Path(p.file()).ReadConfirmed(); err == nil {
		k.confirmed++
	}
	snap, err := f.Snapshot()
	require.NoError(t, err)
	newest := map[store.QueueID]int64{}
	for _, q := range snap.Queues {
		if slices.Contains(queues, q.Name) {
			newest[q.ID] = 0
		}
	}
	carried, last := 0, false
	require.NoError(t, f.Messages(nil, func(m *store.Message, _ *store.State, _ [][]byte) error {
		at, ok := newest[m.Queue]
		if !ok {
			return nil
		}
		if last = m.EnqueuedAt < at; last {
			carried++
		}
		newest[m.Queue] = max(at, m.EnqueuedAt)
		return nil
	}))
	if carried > 0 {
		k.compacted++
	}
	if last {
		k.compacting++
	}
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
	if !ok {
		require.Fail(l.t, "the load must make progress", l.state(p))
	}
}

// state describes the load and the queues.
func (l *load) state(p *proc) string {
	open, events := l.h.counts()
	text := fmt.Sprintf("%d open, %d confirmations, problems %v", open, events, l.h.soFar())
	c := p.client(l.t)
	for _, queue := range l.queues {
		text += "\n" + c.dump(queue)
	}
	return text
}

// choices returns the seed of a test and a random source from it, and logs how to repeat it.
func choices(t testing.TB) (uint64, *rand.Rand) {
	seed := *flagSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-fila.seed=%d -fila.kills=%d", seed, *flagKills)
	return seed, rand.New(rand.NewPCG(seed, 0))
}

// loadOn starts a fila with an external NATS server, and a load on both.
func loadOn(t *testing.T, n *natstest.Server, seed uint64) (*proc, *client, *load) {
	t.Helper()
	start := time.Now().UnixNano()
	p := startFila(t, options{natsURL: n.URL})
	c := dial(t, n.URL)
	l := newLoad(t, n.URL, seed, nil, "orders", "mails")
	l.h.started(start)
	l.setup(c)
	close(l.phase.Load().ready)
	l.start()
	return p, c, l
}

// finish ends the load and checks its whole history.
func (l *load) finish(p *proc, c *client) {
	t := c.t
	t.Helper()
	eventually(t, c.nc.IsConnected)
	l.drain(c)
	r := l.h.check(true)
	t.Log(r)
	require.Empty(t, r.problems)
	require.Positive(t, r.acked)
	l.phase.Load().cancel()
	require.Zero(t, p.Stop(t))
}

// TestNATSRestartUnderLoad: the NATS server restarts while fila keeps running.
func TestNATSRestartUnderLoad(t *testing.T) {
	t.Parallel()
	seed, rng := choices(t)
	n := natstest.Start(t)
	p, c, l := loadOn(t, n, seed)
	for range *flagKills {
		awaitMoment(l, p, rng)
		n.Stop()
		l.phase.Load().cancel()
		ph := l.newPhase()
		eventually(t, func() bool { return p.readyz() == http.StatusServiceUnavailable })
		n.Again()
		eventually(t, func() bool { return p.readyz() == http.StatusOK })
		close(ph.ready)
		require.Empty(t, l.h.check(false).problems)
	}
	awaitMoment(l, p, rng)
	l.finish(p, c)
}

// TestDisconnectsUnderLoad: the NATS server disconnects fila and its clients at random. It also
// disconnects slow consumers, which register and never read; their messages go to others when
// their leases end.
func TestDisconnectsUnderLoad(t *testing.T) {
	t.Parallel()
	seed, rng := choices(t)
	n := natstest.Start(t, func(o *server.Options) { o.MaxPending = 8 << 20 }) // more than the load has open
	p, c, l := loadOn(t, n, seed)
	for round := range *flagKills {
		slow := n.NumSlowConsumers()
		deaf := registerDeaf(t, c, n, l.queues[round%len(l.queues)], fmt.Sprint("deaf", round))
		awaitMoment(l, p, rng)
		eventually(t, func() bool { return n.NumSlowConsumers() > slow }, "the server must cut off %s", deaf.LocalAddr())
		cut := disconnect(t, n, func(name string) bool {
			if name == "fila" {
				return round%2 == 0
			}
			return rng.IntN(3) == 0
		})
		// A request on a lost connection would wait forever.
		l.phase.Load().cancel()
		ph := l.newPhase()
		eventually(t, func() bool { return gone(t, n, cut) && p.readyz() == http.StatusOK && c.nc.IsConnected() })
		close(ph.ready)
		require.Empty(t, l.h.check(false).problems, "after round %d", round)
		_ = deaf.Close()
	}
	awaitMoment(l, p, rng)
	l.finish(p, c)
	t.Logf("the server has cut off %d slow consumers", n.NumSlowConsumers())
}

// registerDeaf registers a consumer that never reads its connection. It also subscribes to
// everything many times, so that the server soon has more data than the connection takes.
func registerDeaf(t testing.TB, c *client, n *natstest.Server, queue, name string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", n.Addr().String())
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
	text := fmt.Sprintf("CONNECT {\"verbose\":false,\"name\":%q}\r\nSUB fila.deliver.%s.%s 1\r\n", name, name, queue)
	for sid := range 60 {
		text += fmt.Sprintf("SUB > %d\r\n", sid+2)
	}
	_, err = conn.Write([]byte(text))
	require.NoError(t, err)
	eventually(t, func() bool {
		subs, err := n.Subsz(&server.SubszOptions{Subscriptions: true, Test: "fila.deliver." + name + "." + queue})
		return err == nil && subs.Total >= 1
	})
	body := encode(t, m{"consumer": name, "max_in_flight": 100})
	eventually(t, func() bool { // fila's subscriptions may not be restored yet
		reply, err := c.nc.Request("fila.consume."+queue, body, patience)
		return err == nil && errorOf(t, reply) == nil
	})
	return conn
}

// disconnect disconnects the clients whose names match which, and returns the ids of their
// connections.
func disconnect(t testing.TB, n *natstest.Server, which func(name string) bool) (cut []uint64) {
	t.Helper()
	conns, err := n.Connz(&server.ConnzOptions{})
	require.NoError(t, err)
	for _, conn := range conns.Conns {
		if which(conn.Name) && n.DisconnectClientByID(conn.Cid) == nil {
			cut = append(cut, conn.Cid)
		}
	}
	return cut
}

// gone reports whether all of these connections are closed and fila has a new one.
func gone(t testing.TB, n *natstest.Server, cut []uint64) bool {
	t.Helper()
	conns, err := n.Connz(&server.ConnzOptions{})
	require.NoError(t, err)
	fila := false
	for _, conn := range conns.Conns {
		if slices.Contains(cut, conn.Cid) {
			return false
		}
		fila = fila || conn.Name == "fila"
	}
	return fila
}
