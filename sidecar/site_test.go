package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/schemas/schematest"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// testSite is a whole server with the real store and an embedded NATS server that does not listen, and a
// client in the same process; with an external server, or one with logins, there is no client. It runs
// inside a synctest bubble, where a leaked goroutine fails the test.
type testSite struct {
	t     testing.TB
	dir   string
	s     *Server
	log   *logText
	nc    *nats.Conn // may be nil
	stop  context.CancelFunc
	ended chan struct{} // closed when Run has returned err
	err   error
}

// logText is a log in memory.
type logText struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// count returns how many lines contain a text.
func (l *logText) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

// anyPort is the port of an embedded server that listens.
const anyPort = -1

func startSite(t testing.TB, dir string, change func(*config.Config)) *testSite {
	t.Helper()
	cfg := config.Default()
	cfg.DataDir = dir
	cfg.HTTP.Addr = ""
	if change != nil {
		change(&cfg)
	}
	log := &logText{}
	s, err := New(cfg, slog.New(slog.NewTextHandler(log, nil)), "1.0.0")
	require.NoError(t, err)
	if cfg.NATS.Embedded.Port != anyPort {
		s.cfg.NATS.Embedded.Port = 0 // do not listen
	}
	s.announce = io.Discard
	ctx, cancel := context.WithCancel(context.Background())
	x := &testSite{t: t, dir: dir, s: s, log: log, stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(x.ended)
		x.err = s.Run(ctx)
	}()
	t.Cleanup(func() { // in case the test fails
		s.Kill()
		cancel()
		<-x.ended
		x.nc.Close()
	})
	select {
	case <-s.Ready():
	case <-x.ended:
		require.FailNow(t, "the server did not start", x.err)
	}
	if s.endpoints.embedded != nil && cfg.NATS.Embedded.UsersFile == "" {
		x.nc, err = nats.Connect("", nats.InProcessServer(s.endpoints.embedded))
		require.NoError(t, err)
	}
	return x
}

// failsToStart returns why a server does not start.
func failsToStart(t *testing.T, change func(*config.Config)) error {
	t.Helper()
	cfg := config.Default()
	cfg.DataDir, cfg.HTTP.Addr = t.TempDir(), ""
	change(&cfg)
	s, err := New(cfg, slog.New(slog.DiscardHandler), "1.0.0")
	require.NoError(t, err)
	return s.Run(t.Context())
}

// end stops everything in order and returns how long that took.
func (x *testSite) end() time.Duration {
	x.t.Helper()
	begin := time.Now()
	x.stop()
	<-x.ended
	require.NoError(x.t, x.err)
	took := time.Since(begin)
	x.nc.Close()
	return took
}

// inBubble runs fn in a synctest bubble. nats.go keeps the timers of Subscription.Drain in a pool of the
// process, and a timer of one bubble breaks the next: two garbage collections empty the pool.
func inBubble(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	runtime.GC()
	runtime.GC()
	defer runtime.GC()
	defer runtime.GC()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Second) }) // the library still checks drained subscriptions
		fn(t)
	})
}

// bubble runs fn on a site in a synctest bubble.
func bubble(t *testing.T, fn func(t *testing.T, x *testSite)) {
	t.Helper()
	dir := t.TempDir()
	inBubble(t, func(t *testing.T) {
		x := startSite(t, dir, nil)
		fn(t, x)
		x.end()
	})
}

// request sends a request and decodes the answer, which may be an error.
func (x *testSite) request(subject, body string, headers nats.Header, into any) *wire.Error {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	m, err := x.nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: subject, Data: []byte(body), Header: headers})
	require.NoError(x.t, err, subject)
	schematest.Reply(x.t, subject, m.Header, m.Data)
	if werr := wire.ParseError(m.Header, m.Data); werr != nil {
		return werr
	}
	if into != nil {
		require.NoError(x.t, json.Unmarshal(m.Data, into), subject)
	}
	return nil
}

func (x *testSite) must(subject, body string, into any) {
	x.t.Helper()
	require.Nil(x.t, x.request(subject, body, nil, into), subject)
}

// flush waits until NATS has processed what was published.
func (x *testSite) flush() {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(x.t, x.nc.FlushWithContext(ctx))
}

// enqueue publishes with confirmation and returns the id.
func (x *testSite) enqueue(body string, headers nats.Header) string {
	x.t.Helper()
	var r wire.EnqueueReply
	require.Nil(x.t, x.request("fila.enqueue.orders", body, headers, &r))
	return r.ID
}

// consumer subscribes and registers; deliveries arrive on the returned channel.
func (x *testSite) consumer(name, queue, body string) (<-chan *nats.Msg, *nats.Subscription) {
	x.t.Helper()
	ch := make(chan *nats.Msg, 1000)
	sub, err := x.nc.Subscribe("fila.deliver."+name+"."+queue, func(m *nats.Msg) { ch <- m })
	require.NoError(x.t, err)
	x.must("fila.consume."+queue, body, nil)
	return ch, sub
}

// ack answers a delivery and waits for the confirmation.
func (x *testSite) ack(m *nats.Msg, payload string) *wire.Error {
	x.t.Helper()
	return x.request(m.Reply, payload, nil, nil)
}

// none checks that nothing has arrived.
func (x *testSite) none(ch <-chan *nats.Msg) {
	x.t.Helper()
	synctest.Wait()
	select {
	case m := <-ch:
		require.Fail(x.t, "a delivery too early", "%v", m.Header)
	default:
	}
}

// depth returns how many messages a queue has.
func (x *testSite) depth(queue string) api.QueueSummary {
	x.t.Helper()
	var info api.QueueInfo
	x.must("fila.admin.queue-inspect."+queue, "", &info)
	return info.QueueSummary
}
