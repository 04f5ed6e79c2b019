package natsio

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/e2e/natstest"
	"github.com/filaq/fila/wire"
)

// pieces is a connection that returns its bytes in pieces of random sizes.
type pieces struct {
	net.Conn
	rest []byte
	rng  *rand.Rand
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	largest := 1 << p.rng.IntN(17)
	n := copy(b[:min(len(b), 1+p.rng.IntN(largest))], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// filtered returns the output of a filter for stream, read in pieces of random sizes.
func filtered(t testing.TB, stream []byte, limits wire.HeaderLimits, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	f := newFrameFilter(&pieces{rest: stream, rng: rng}, limits)
	f.begun.Store(true)
	var got []byte
	for {
		b := make([]byte, 1+rng.IntN(1<<rng.IntN(17)))
		n, err := f.Read(b)
		got = append(got, b[:n]...)
		if errors.Is(err, io.EOF) {
			return got
		}
		require.NoError(t, err)
		require.NotZero(t, n)
	}
}

// frame returns a message as a server sends it; headers 0: without a header block.
func frame(args string, headers, value, payload int) string {
	body := strings.Repeat("HMSG a 1 9 9\r\n", payload/14+1)[:payload]
	if headers == 0 {
		return fmt.Sprintf("MSG %s %d\r\n%s\r\n", args, payload, body)
	}
	block := "NATS/1.0\r\n" + strings.Repeat("K: "+strings.Repeat("v", value)+"\r\n", headers) + "\r\n"
	return fmt.Sprintf("HMSG %s %d %d\r\n%s%s\r\n", args, len(block), len(block)+payload, block, body)
}

func cut(args, why string) string {
	block := "NATS/1.0\r\nFila-Headers-Refused: " + why + "\r\n\r\n"
	return fmt.Sprintf("HMSG %s %d %d\r\n%s\r\n", args, len(block), len(block), block)
}

func TestFramesPassOrAreCut(t *testing.T) {
	limits := wire.HeaderLimits{Bytes: 2000, Count: 20}
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var stream, want strings.Builder
		both := func(s string) { stream.WriteString(s); want.WriteString(s) }
		both("INFO {}\r\n")
		for range rng.IntN(30) {
			args := []string{"fila.enqueue.q 7", "fila.enqueue.q 7 _INBOX.a.1"}[rng.IntN(2)]
			payload := rng.IntN(1 << rng.IntN(18))
			switch rng.IntN(6) {
			case 0:
				both("PING\r\n")
			case 1:
				both(frame(args, 0, 0, payload))
			case 2:
				both(frame(args, 1+rng.IntN(20), rng.IntN(90), payload))
			case 3:
				n := 21 + rng.IntN(200)
				stream.WriteString(frame(args, n, 0, payload))
				want.WriteString(cut(args, fmt.Sprintf("headers %d", n)))
			case 4:
				n := 1 + rng.IntN(100)
				stream.WriteString(frame(args, n, 2000, payload))
				want.WriteString(cut(args, fmt.Sprintf("bytes %d", 12+n*2005)))
			case 5:
				both("-ERR 'HMSG a 1 9 9'\r\n")
			}
			if stream.Len() > 1<<20 {
				break
			}
		}
		if got := filtered(t, []byte(stream.String()), limits, seed); string(got) != want.String() {
			require.Equal(t, want.String(), string(got), "seed %d", seed)
		}
	}
}

func TestTheLimitsThemselvesPass(t *testing.T) {
	exact := frame("a 1", 4, 10, 5)
	size := 12 + 4*15
	require.Equal(t, exact, string(filtered(t, []byte(exact), wire.HeaderLimits{Bytes: size, Count: 4}, 1)))
	require.Equal(t, cut("a 1", fmt.Sprintf("bytes %d", size)), string(filtered(t, []byte(exact), wire.HeaderLimits{Bytes: size - 1, Count: 4}, 1)))
	require.Equal(t, cut("a 1", "headers 4"), string(filtered(t, []byte(exact), wire.HeaderLimits{Bytes: size, Count: 3}, 1)))
}

// TestWhatIsNoFramePasses unchanged, for nats.go to report.
func TestWhatIsNoFramePasses(t *testing.T) {
	for _, stream := range []string{
		"MSG a 1 x\r\n", "HMSG a 1 5\r\n", "HMSG a 1 9 5\r\nNATS/1.0\r\n", "MSG a 1 99999999999\r\nHMSG a 1 5 5\r\n",
		"HMSG\r\n", "\r\n\r\n", strings.Repeat("x", maxControlLine+5) + "\n", "MSG a 1 -5\r\n",
	} {
		got := filtered(t, []byte(stream), wire.HeaderLimits{Bytes: 1, Count: 1}, 3)
		if strings.HasSuffix(stream, "\n") {
			require.Equal(t, stream, string(got))
		}
	}
}

// TestNothingButInfoCountsBeforeTLS: an attacker who can inject bytes before TLS must not inject
// messages.
func TestNothingButInfoCountsBeforeTLS(t *testing.T) {
	f := newFrameFilter(&pieces{rest: []byte("INFO {}\r\nPONG\r\nMSG a 1 0\r\n\r\n"), rng: rand.New(rand.NewPCG(1, 1))}, wire.HeaderLimits{Bytes: 1000, Count: 10})
	b, info := make([]byte, 100), ""
	for !strings.HasSuffix(info, "\n") {
		n, err := f.Read(b)
		require.NoError(t, err)
		info += string(b[:n])
	}
	require.Equal(t, "INFO {}\r\n", info)

	certFile, keyFile := writeCertificate(t, t.TempDir())
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(t, err)
	for _, injected := range []string{"PONG\r\nMSG fila.admin.queue-delete.orders 1 0\r\n\r\n", "PON", "HMSG a 1 99999 99999\r\n"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		over := make(chan struct{})
		go func() {
			defer close(over)
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, `INFO {"server_id":"x","version":"2.12.0","proto":1,"headers":true,"tls_required":true,"max_payload":1048576}`+"\r\n"+injected)
			_, _ = io.Copy(io.Discard, tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{pair}}))
		}()
		nc, err := nats.Connect("tls://"+l.Addr().String(), filteredDial(wire.HeaderLimits{Bytes: 1000, Count: 10}), nats.RootCAs(certFile))
		require.ErrorContains(t, err, "more than INFO before TLS", injected)
		require.Nil(t, nc)
		require.NoError(t, l.Close())
		<-over
	}
}

func FuzzFrameFilter(f *testing.F) {
	f.Add([]byte("INFO {}\r\n"+frame("a 1", 3, 5, 7)+frame("a 1 r", 40, 0, 3)+"PING\r\n"), uint64(1))
	f.Add([]byte("HMSG a 1 5 5\r\nNATS/"), uint64(2))
	f.Add([]byte("MSG a 1 3\r\nabc\r\nMSG"), uint64(3))
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		limits := wire.HeaderLimits{Bytes: 64, Count: 4}
		got := filtered(t, stream, limits, seed)
		require.Equal(t, string(filtered(t, stream, limits, seed+1)), string(got))
		// The output passes unchanged.
		require.True(t, bytes.HasPrefix(got, filtered(t, got, limits, seed)) || bytes.Contains(got, []byte(headerRefused)))
	})
}

// hostile returns a message with many or large headers.
func hostile(subject string, count, size int) *nats.Msg {
	h := nats.Header{}
	for i := range count {
		h.Set(fmt.Sprintf("H%d", i), strings.Repeat("v", size))
	}
	return &nats.Msg{Subject: subject, Header: h, Data: []byte("{}")}
}

func TestHeadersBeyondTheLimitsAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		q := r.create("orders")
		deliveries := r.listen("fila.deliver.w.orders")
		events := r.listen("fila.event.refused.orders")
		r.must("fila.consume.orders", `{"consumer":"w","max_in_flight":3}`, nil)
		r.must("fila.enqueue.orders", "hello", nil)
		ack := r.next(deliveries).Reply
		for _, subject := range []string{
			"fila.enqueue.orders", ack, strings.Replace(ack, ".ack.", ".nack.", 1), "fila.admin.queue-inspect.orders",
			"fila.consume.orders", "fila.fetch.orders", "fila.consumer.w.orders",
		} {
			werr := r.ask(hostile(subject, 129, 0), nil)
			require.Equal(t, wire.TooManyHeaders(129, 128), werr, subject)
			werr = r.ask(hostile(subject, 2, 9000), nil)
			require.NotNil(t, werr, subject)
			require.Equal(t, wire.CodeHeadersTooLarge, werr.ErrCode, subject)
			require.Regexp(t, `^headers of 180\d\d bytes: allowed are 16384 \(nats.max_header_bytes\)$`, werr.Description)
		}
		require.EqualValues(t, 1, q.Depth(), "neither the enqueue nor the ack counts")
		require.Nil(t, r.ask(hostile("fila.enqueue.orders", 128, 0), nil))

		require.NoError(t, r.client.PublishMsg(hostile("fila.enqueue.orders", 1000, 0)))
		require.Contains(t, string(r.next(events).Data), `"err_code":45400`)
		require.Nil(t, r.request(ack, "+ACK", nil), "the lease has stayed as it was")
	})
}

func TestHeadersAreBoundedOverTCPAndTLS(t *testing.T) {
	checkLeaks(t)
	certFile, keyFile := writeCertificate(t, t.TempDir())
	for scheme, files := range map[string]config.TLSConfig{"nats": {}, "tls": {CA: certFile, Cert: certFile, Key: keyFile}} {
		t.Run(scheme, func(t *testing.T) {
			own, err := serverTLS(&files)
			require.NoError(t, err)
			srv := natstest.Start(t, func(o *server.Options) { o.TLSVerify, o.TLSConfig = own != nil, own })
			cfg := externalConfig(scheme + "://" + srv.Addr().String())
			cfg.TLS = files
			nc := connect(t, cfg, quietly(), nil, nil)
			sub, err := nc.SubscribeSync("a")
			require.NoError(t, err)
			big := hostile("a", 5, 10)
			big.Data = make([]byte, 1<<19)
			for _, m := range []*nats.Msg{hostile("a", 60_000, 0), big} {
				m.Reply = "b"
				require.NoError(t, nc.PublishMsg(m))
			}
			m, err := sub.NextMsg(patienceForTests)
			require.NoError(t, err)
			require.Equal(t, "b", m.Reply)
			require.Len(t, m.Header, 1)
			require.Regexp(t, `^bytes \d+$`, m.Header.Get(headerRefused))
			require.Empty(t, m.Data)
			m, err = sub.NextMsg(patienceForTests)
			require.NoError(t, err)
			require.Equal(t, big.Header, m.Header)
			require.Len(t, m.Data, 1<<19)
		})
	}
}
