package e2e

import (
	"bytes"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// link forwards connections to a TCP address and fails as networks do: it cuts connections,
// delays them, or keeps them open and forwards nothing, in one direction or both.
type link struct {
	Addr string // where to connect to

	target string
	ended  sync.WaitGroup
	mu     struct {
		sync.Mutex
		changed *sync.Cond
		open    []net.Conn
		closed  bool // closed for good
		cut     bool
		stalled [2]bool // by direction
		delay   time.Duration
	}
}

// direction is a direction of a link.
type direction int

const (
	toServer direction = iota
	toClient
)

// newLink returns a link to an address. It closes at the end of the test.
func newLink(t testing.TB, target string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &link{Addr: listener.Addr().String(), target: target}
	l.mu.changed = sync.NewCond(&l.mu)
	l.ended.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			l.ended.Go(func() { l.connect(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		l.change(func() { l.mu.closed = true })
		l.drop()
		l.ended.Wait()
	})
	return l
}

// change changes the state of the link and wakes its connections.
func (l *link) change(what func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	what()
	l.mu.changed.Broadcast()
}

// Cut ends all connections, and every new one at once, until Heal.
func (l *link) Cut() {
	l.change(func() { l.mu.cut = true })
	l.drop()
}

// drop ends the present connections; new ones are possible.
func (l *link) drop() {
	l.change(func() {
		for _, c := range l.mu.open {
			_ = c.Close()
		}
		l.mu.open = nil
	})
}

// Stall keeps connections open, also new ones, but forwards nothing in these directions until
// Heal, which then delivers everything.
func (l *link) Stall(ways ...direction) {
	l.change(func() {
		for _, way := range ways {
			l.mu.stalled[way] = true
		}
	})
}

// Delay delays each direction by d.
func (l *link) Delay(d time.Duration) { l.change(func() { l.mu.delay = d }) }

// Heal makes the link good again.
func (l *link) Heal() { l.change(func() { l.mu.cut, l.mu.stalled, l.mu.delay = false, [2]bool{}, 0 }) }

// connect forwards one connection.
func (l *link) connect(client net.Conn) {
	server, err := net.Dial("tcp", l.target)
	if err != nil {
		_ = client.Close()
		return
	}
	both := []net.Conn{client, server}
	end := func() {
		l.change(func() {
			l.mu.open = slices.DeleteFunc(l.mu.open, func(c net.Conn) bool { return c == client || c == server })
		})
		_, _ = client.Close(), server.Close()
	}
	l.mu.Lock()
	refuse := l.mu.cut || l.mu.closed
	if !refuse {
		l.mu.open = append(l.mu.open, both...)
	}
	l.mu.Unlock()
	if refuse {
		end()
		return
	}
	var ways sync.WaitGroup
	for way, from := range both {
		ways.Go(func() {
			defer end()
			l.carry(direction(way), from, both[1-way])
		})
	}
	ways.Wait()
}

// late is data with the time when it may arrive.
type late struct {
	data []byte
	at   time.Time
}

// carry forwards one direction of a connection until either end closes.
func (l *link) carry(way direction, from, to net.Conn) {
	under := make(chan late, 64)
	var reading sync.WaitGroup
	defer reading.Wait()
	done := make(chan struct{})
	defer close(done)
	reading.Go(func() {
		defer close(under)
		for {
			buf := make([]byte, 32<<10)
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			l.mu.Lock()
			at := time.Now().Add(l.mu.delay)
			l.mu.Unlock()
			select {
			case under <- late{buf[:n], at}:
			case <-done:
				return
			}
		}
	})
	for b := range under {
		if wait := time.Until(b.at); wait > 0 {
			<-time.After(wait)
		}
		if !l.pass(way, to) {
			break
		}
		if _, err := to.Write(b.data); err != nil {
			break
		}
	}
	_, _ = from.Close(), to.Close()
}

// pass waits until a direction is not stalled, and reports whether the connection is still
// open.
func (l *link) pass(way direction, c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.mu.stalled[way] && slices.Contains(l.mu.open, c) {
		l.mu.changed.Wait()
	}
	return slices.Contains(l.mu.open, c)
}

// TestLink tests link itself.
func TestLink(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	l := newLink(t, listener.Addr().String())
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		return c
	}
	echo := func(c net.Conn, text string) error {
		if _, err := io.WriteString(c, text); err != nil {
			return err
		}
		got := make([]byte, len(text))
		_, err := io.ReadFull(c, got)
		if err == nil && !bytes.Equal(got, []byte(text)) {
			t.Errorf("%q has become %q", text, got)
		}
		return err
	}
	c := dial()
	require.NoError(t, echo(c, "plain"))

	l.Delay(30 * time.Millisecond)
	begin := time.Now()
	require.NoError(t, echo(c, "late"))
	require.GreaterOrEqual(t, time.Since(begin), 60*time.Millisecond)

	for _, ways := range [][]direction{{toServer}, {toClient}, {toServer, toClient}} {
		l.Stall(ways...)
		come := make(chan error, 1)
		go func() { come <- echo(c, "half-open") }()
		select {
		case err := <-come:
			t.Fatalf("it has come through a link that is stalled: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		l.Heal()
		require.NoError(t, <-come, "what was sent meanwhile comes")
	}

	l.Stall(toServer, toClient)
	other := dial() // connected, as far as it can tell
	l.Cut()
	require.Error(t, echo(c, "cut"))
	require.Error(t, echo(other, "cut"))
	require.Error(t, echo(dial(), "new"))
	l.Heal()
	require.NoError(t, echo(dial(), "well"))
}
