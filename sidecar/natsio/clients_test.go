package natsio

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
)

// startBounded starts an embedded server and returns it with a channel of the clients that it
// disconnects.
func startBounded(t *testing.T, change func(*config.EmbeddedConfig)) (*Embedded, <-chan CutClient) {
	t.Helper()
	cfg := config.Default().NATS.Embedded
	cfg.Port, cfg.MaxPayload, cfg.MaxPending = -1, 1<<20, 2<<20
	change(&cfg)
	e, err := StartEmbedded(cfg, quietly())
	require.NoError(t, err)
	t.Cleanup(func() {
		e.Shutdown()
		e.WaitForShutdown()
	})
	cut := make(chan CutClient, 100)
	e.OnCut(func(c CutClient) { cut <- c })
	return e, cut
}

// deaf connects a client that subscribes to "flood" and reads nothing.
func deaf(t *testing.T, e *Embedded, name string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", e.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "CONNECT {\"name\":%q,\"verbose\":false}\r\nSUB flood 1\r\nPING\r\n", name)
	require.NoError(t, err)
	return conn
}

func next(t *testing.T, cut <-chan CutClient) CutClient {
	t.Helper()
	select {
	case c := <-cut:
		return c
	case <-time.After(patienceForTests):
		require.Fail(t, "nobody is cut off")
		panic("unreachable")
	}
}

func TestClientsThatDoNotReadAreCutOff(t *testing.T) {
	checkLeaks(t)
	for reason, change := range map[string]func(*config.EmbeddedConfig){
		CutPending:  func(c *config.EmbeddedConfig) { c.WriteDeadlineMs = 600_000 },
		CutDeadline: func(c *config.EmbeddedConfig) { c.WriteDeadlineMs, c.MaxPending = 100, 1<<30 },
	} {
		t.Run(reason, func(t *testing.T) {
			e, cut := startBounded(t, change)
			own := connectTo(t, e)
			before := e.NumSubscriptions()
			conn := deaf(t, e, "deaf")
			require.Eventually(t, func() bool { return e.NumSubscriptions() > before }, patienceForTests, time.Millisecond)
			payload := make([]byte, 1<<20)
			var got CutClient
			for got.Reason == "" {
				require.NoError(t, own.Publish("flood", payload))
				require.NoError(t, own.Flush())
				select {
				case got = <-cut:
				default:
				}
			}
			require.Equal(t, CutClient{Reason: reason, Client: "deaf", Address: conn.LocalAddr().String()}, got)
			require.True(t, own.IsConnected())
			require.EqualValues(t, 1, e.NumSlowConsumersClients())
		})
	}
}

func connectTo(t *testing.T, e *Embedded) *nats.Conn {
	t.Helper()
	cfg := config.Default().NATS
	nc, err := Connect(cfg, e, quietly(), nil, nil)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func TestConnectionsOfAUserAreBounded(t *testing.T) {
	checkLeaks(t)
	e, cut := startBounded(t, func(c *config.EmbeddedConfig) { c.MaxConnectionsPerUser = 3 })
	own := []*nats.Conn{connectTo(t, e), connectTo(t, e), connectTo(t, e), connectTo(t, e)}
	var all []*nats.Conn
	for i := range 5 {
		nc, err := nats.Connect(e.ClientURL(), nats.Name(fmt.Sprint("client-", i)), nats.NoReconnect())
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		all = append(all, nc)
	}
	names := []string{next(t, cut).Client, next(t, cut).Client}
	require.ElementsMatch(t, []string{"client-3", "client-4"}, names, "the newest")
	for i, nc := range all {
		require.Eventually(t, func() bool { return nc.IsClosed() == (i >= 3) }, patienceForTests, time.Millisecond)
	}
	for _, nc := range own {
		require.True(t, nc.IsConnected(), "fila itself does not count")
	}
	require.Empty(t, cut)
}

// TestOwnConnectionTakesABurst that is larger than max_pending while fila does not read.
func TestOwnConnectionTakesABurst(t *testing.T) {
	checkLeaks(t)
	e, cut := startBounded(t, func(c *config.EmbeddedConfig) { c.MaxPending, c.WriteDeadlineMs = 4<<20, 5000 })
	own, err := e.InProcessConn()
	require.NoError(t, err)
	defer own.Close()
	before := e.NumSubscriptions()
	_, err = io.WriteString(own, "CONNECT {\"verbose\":false}\r\nSUB burst 1\r\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return e.NumSubscriptions() > before }, patienceForTests, time.Millisecond)
	client, err := nats.Connect(e.ClientURL())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	const messages, size = 50_000, 1024
	for range messages {
		require.NoError(t, client.Publish("burst", make([]byte, size)))
	}
	require.NoError(t, client.Flush())
	_, err = io.CopyN(io.Discard, own, messages*size)
	require.NoError(t, err)
	require.Empty(t, cut)
	require.Zero(t, e.NumSlowConsumersClients())
}

func TestReadAhead(t *testing.T) {
	checkLeaks(t)
	near, far := net.Pipe()
	r := newReadAhead(near, 1<<20)
	want := make([]byte, 1<<20)
	for i := range want {
		want[i] = byte(rand.Uint32())
	}
	_, err := far.Write(want) // while nobody reads
	require.NoError(t, err)
	wrote := make(chan error, 1)
	go func() {
		_, err := far.Write(make([]byte, 256<<10))
		wrote <- err
	}()
	got := make([]byte, len(want))
	_, err = io.ReadFull(r, got)
	require.NoError(t, err)
	require.Equal(t, want, got)
	_, err = io.ReadFull(r, got[:256<<10])
	require.NoError(t, err)
	require.NoError(t, <-wrote)
	require.NoError(t, far.Close())
	_, err = r.Read(got)
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, r.Close())
}

func TestReadAheadWaitsWhenItIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		r := newReadAhead(near, 100)
		wrote := 0
		go func() {
			for {
				if _, err := far.Write(make([]byte, 60)); err != nil {
					return
				}
				wrote++
			}
		}()
		synctest.Wait()
		require.Equal(t, 3, wrote, "two are there, and one is with the goroutine that reads")
		_, err := r.Read(make([]byte, 1))
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 5, wrote)
		require.NoError(t, r.Close(), "also when it is full")
		_, err = io.ReadAll(r)
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

func TestDeadlinesOfReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		r := newReadAhead(near, 100)
		b := make([]byte, 10)
		start := time.Now()
		require.NoError(t, r.SetDeadline(start.Add(time.Second)))
		_, err := r.Read(b)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		_, err = r.Write(b)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, r.SetDeadline(time.Time{}))
		go func() {
			time.Sleep(time.Hour)
			_, _ = far.Write([]byte("late"))
			time.Sleep(time.Hour)
			_ = r.Close()
		}()
		n, err := r.Read(b)
		require.NoError(t, err)
		require.Equal(t, "late", string(b[:n]))
		_, err = r.Read(b)
		require.ErrorIs(t, err, net.ErrClosed)
		require.Equal(t, 2*time.Hour+time.Second, time.Since(start))
	})
}
