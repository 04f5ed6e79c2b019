package natsio

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// patienceForTests only turns a hang into a failure.
const patienceForTests = 30 * time.Second

func waitFor(t *testing.T, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patienceForTests):
		require.Fail(t, "waited in vain for "+what)
	}
}

func signalTo(ch chan struct{}) func() { return func() { ch <- struct{}{} } }

func externalConfig(url string) config.NATSConfig {
	cfg := config.Default().NATS
	cfg.URL = url
	return cfg
}

// quietly returns a log that is not read.
func quietly() *slog.Logger { return slog.New(slog.DiscardHandler) }

// connect connects to an external server until the test ends.
func connect(t *testing.T, cfg config.NATSConfig, log *slog.Logger, onDisconnect, onReconnect func()) *nats.Conn {
	t.Helper()
	nc, err := Connect(cfg, nil, log, onDisconnect, onReconnect)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// samePort returns the options of a server that replaces srv.
func samePort(t *testing.T, srv interface{ ClientURL() string }) config.EmbeddedConfig {
	t.Helper()
	u, err := url.Parse(srv.ClientURL())
	require.NoError(t, err)
	cfg := anyPort()
	cfg.Port, err = strconv.Atoi(u.Port())
	require.NoError(t, err)
	return cfg
}

func TestConnectInProcess(t *testing.T) {
	checkLeaks(t)
	cfg := config.Default().NATS
	cfg.Embedded = anyPort()
	srv := startTestServer(t, cfg.Embedded)
	never := func() { t.Error("a callback was called") }
	nc, err := Connect(cfg, srv, quietly(), never, never)
	require.NoError(t, err)
	require.True(t, nc.IsConnected())
	conns, err := srv.Connz(&server.ConnzOptions{})
	require.NoError(t, err)
	require.Len(t, conns.Conns, 1)
	require.Equal(t, "fila", conns.Conns[0].Name)
	nc.Close()
}

func TestConnectReconnects(t *testing.T) {
	checkLeaks(t)
	first := startTestServer(t, anyPort())
	down, up := make(chan struct{}, 8), make(chan struct{}, 8)
	nc := connect(t, externalConfig(first.ClientURL()), quietly(), signalTo(down), signalTo(up))
	require.Empty(t, up, "the first connection was not waited for")
	got := make(chan struct{}, 8)
	_, err := nc.Subscribe("a", func(*nats.Msg) { got <- struct{}{} })
	require.NoError(t, err)

	stopTestServer(first)
	waitFor(t, down, "the disconnect")
	require.ErrorIs(t, nc.Publish("a", []byte("stale")), nats.ErrReconnectBufExceeded,
		"nothing is buffered while there is no connection")

	startTestServer(t, samePort(t, first))
	waitFor(t, up, "the reconnect")
	require.NoError(t, nc.Publish("a", []byte("fresh")))
	waitFor(t, got, "a message over the restored subscription")
	require.NoError(t, nc.Flush())
	require.Empty(t, got)
}

// TestReconnectBringsSubscriptions: the server has them when onReconnect is called.
func TestReconnectBringsSubscriptions(t *testing.T) {
	checkLeaks(t)
	const many = 20_000
	srv := startTestServer(t, anyPort())
	var nc *nats.Conn
	up := make(chan int, 8)
	nc, err := Connect(externalConfig(srv.ClientURL()), nil, quietly(), nil, func() {
		n := -1
		id, _ := nc.GetClientID() // never 0
		if conns, err := srv.Connz(&server.ConnzOptions{CID: id}); err == nil && len(conns.Conns) == 1 {
			n = int(conns.Conns[0].NumSubs)
		}
		up <- n
	})
	require.NoError(t, err)
	defer nc.Close()
	ch := make(chan *nats.Msg)
	for i := range many {
		_, err := nc.ChanSubscribe(strconv.Itoa(i), ch)
		require.NoError(t, err)
	}
	require.NoError(t, nc.Flush())
	require.NoError(t, nc.ForceReconnect())
	require.Equal(t, many, <-up)
}

// TestReconnectThatDoesNotLast: onReconnect is not called for a server that goes away before it
// has processed the subscriptions.
func TestReconnectThatDoesNotLast(t *testing.T) {
	checkLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan struct{})
	end := make(chan struct{})
	go func() { // a server that ends the first connection on demand, and the second one at its second PING
		defer close(served)
		for pings := range 2 {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("INFO {\"max_payload\":1048576,\"headers\":true}\r\n"))
			lines := bufio.NewScanner(conn)
			for n := 0; lines.Scan(); {
				if lines.Text() != "PING" {
					continue
				}
				if n++; n > pings && pings > 0 {
					_ = l.Close()
					break
				}
				_, _ = conn.Write([]byte("PONG\r\n"))
				if pings == 0 {
					<-end
					break
				}
			}
			_ = conn.Close()
		}
	}()
	down, up := make(chan struct{}, 8), make(chan struct{}, 8)
	connect(t, externalConfig("nats://"+l.Addr().String()), quietly(), signalTo(down), signalTo(up))
	close(end)
	waitFor(t, down, "the first disconnect")
	waitFor(t, down, "the second disconnect")
	require.Empty(t, up)
	waitFor(t, served, "the server")
}

func TestConnectWaitsForNATS(t *testing.T) {
	checkLeaks(t)
	cfg := anyPort()
	cfg.Port = natstest.FreePort()

	log, text := newTestLog()
	up := make(chan struct{}, 8)
	nc := connect(t, externalConfig(fmt.Sprintf("nats://ann:secret@127.0.0.1:%d", cfg.Port)), log, nil, signalTo(up))
	require.False(t, nc.IsConnected())
	require.ErrorIs(t, nc.Publish("a", nil), nats.ErrReconnectBufExceeded)
	require.Contains(t, text.String(), "NATS does not answer; retrying")
	sub, err := nc.SubscribeSync("a")
	require.NoError(t, err)

	startTestServer(t, cfg)
	waitFor(t, up, "the first connection")
	require.NoError(t, nc.Publish("a", nil))
	_, err = sub.NextMsg(patienceForTests)
	require.NoError(t, err, "a subscription made while waiting")
	require.NotContains(t, text.String(), "secret")
}

// TestConnectRefused: waiting does not make a wrong password right.
func TestConnectRefused(t *testing.T) {
	checkLeaks(t)
	cfg := anyPort()
	cfg.Token = "right"
	srv := startTestServer(t, cfg)
	external := externalConfig(srv.ClientURL())
	external.Token = "wrong"
	_, err := Connect(external, nil, quietly(), nil, nil)
	require.ErrorIs(t, err, nats.ErrAuthorization)
	require.ErrorContains(t, err, srv.ClientURL())
	require.NotContains(t, err.Error(), "wrong")

	external.Token = "right"
	connect(t, external, quietly(), nil, nil)
}

// TestConnectOutlivesRefusals: a server that refuses the login for a while, as during a change of
// its users, does not end the connection.
func TestConnectOutlivesRefusals(t *testing.T) {
	checkLeaks(t)
	cfg := anyPort()
	cfg.Token = "right"
	srv := startTestServer(t, cfg)
	external := externalConfig(srv.ClientURL())
	external.Token = "right"
	log, text := newTestLog()
	up := make(chan struct{}, 8)
	nc := connect(t, external, log, nil, signalTo(up))

	stopTestServer(srv)
	other := samePort(t, srv)
	other.Token = "other"
	refusing := startTestServer(t, other)
	require.Eventually(t, func() bool { return nc.Stats().Reconnects >= 4 }, patienceForTests, 10*time.Millisecond,
		"more refusals than nats.go puts up with by default")
	stopTestServer(refusing)
	other.Token = "right"
	startTestServer(t, other)
	waitFor(t, up, "the reconnect")
	require.Contains(t, text.String(), "authorization violation")
}

func TestConnectLogins(t *testing.T) {
	checkLeaks(t)
	dir := t.TempDir()
	user, err := nkeys.CreateUser()
	require.NoError(t, err)
	seed, err := user.Seed()
	require.NoError(t, err)
	pub, err := user.PublicKey()
	require.NoError(t, err)
	seedFile := filepath.Join(dir, "user.nk")
	require.NoError(t, os.WriteFile(seedFile, seed, 0o600))

	srv := natstest.Start(t, func(o *server.Options) {
		o.Nkeys = []*server.NkeyUser{{Nkey: pub}}
		o.Users = []*server.User{{Username: "ann", Password: "secret", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{"fila.event.>", "_INBOX.>", "forbidden"}},
		}}}
	})

	for name, login := range map[string]func(*config.NATSConfig){
		"nkey":            func(c *config.NATSConfig) { c.NKey = seedFile },
		"user":            func(c *config.NATSConfig) { c.User, c.Password = "ann", "secret" },
		"user in the URL": func(c *config.NATSConfig) { c.URL = "nats://ann:secret@" + srv.Addr().String() },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := externalConfig(srv.ClientURL())
			login(&cfg)
			log, text := newTestLog()
			nc := connect(t, cfg, log, nil, nil)
			require.NotContains(t, text.String(), "secret")
			if name != "user" {
				return
			}
			for subject, line := range map[string]string{
				"fila.event.x": `level=ERROR msg="NATS permissions deny fila's user a subject that it needs"`,
				"_INBOX.x":     `level=ERROR msg="NATS permissions deny fila's user a subject that it needs"`,
				"forbidden":    `level=WARN msg="NATS permissions deny a reply to the reply subject of a client"`,
			} {
				require.NoError(t, nc.Publish(subject, nil))
				require.NoError(t, nc.Flush())
				require.Eventually(t, func() bool {
					for got := range strings.Lines(text.String()) {
						if strings.Contains(got, line) && strings.Contains(got, `Publish to \"`+subject) {
							return true
						}
					}
					return false
				}, patienceForTests, time.Millisecond, subject)
			}
		})
	}
}

func TestConnectBadFiles(t *testing.T) {
	checkLeaks(t)
	junk := filepath.Join(t.TempDir(), "junk")
	require.NoError(t, os.WriteFile(junk, []byte("junk"), 0o600))
	missing := junk + ".missing"
	for name, tc := range map[string]struct {
		set  func(*config.NATSConfig)
		want string
	}{
		"creds": {func(c *config.NATSConfig) { c.Creds = missing }, "nats.creds = "},
		"nkey":  {func(c *config.NATSConfig) { c.NKey = junk }, "nats.nkey = "},
		"ca":    {func(c *config.NATSConfig) { c.TLS.CA = missing }, "nats.tls.ca = "},
		"cert":  {func(c *config.NATSConfig) { c.TLS.Cert, c.TLS.Key = junk, junk }, "nats.tls.cert = "},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := externalConfig("nats://127.0.0.1:1") // no server is there
			tc.set(&cfg)
			_, err := Connect(cfg, nil, quietly(), nil, nil)
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, junk)
		})
	}
}

func TestConnectTLS(t *testing.T) {
	checkLeaks(t)
	dir := t.TempDir()
	certFile, keyFile := writeCertificate(t, dir)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(pair.Leaf)
	srv := natstest.Start(t, func(o *server.Options) {
		o.TLSVerify = true
		o.TLSConfig = &tls.Config{
			Certificates: []tls.Certificate{pair}, ClientCAs: pool,
			ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
		}
	})

	cfg := externalConfig("tls://" + srv.Addr().String())
	_, err = Connect(cfg, nil, quietly(), nil, nil)
	require.ErrorContains(t, err, "certificate", "an authority that nobody knows")

	cfg.TLS = config.TLSConfig{CA: certFile, Cert: certFile, Key: keyFile}
	nc := connect(t, cfg, quietly(), nil, nil)
	require.NoError(t, nc.Flush())
	conns, err := srv.Connz(nil)
	require.NoError(t, err)
	require.Len(t, conns.Conns, 1)
	require.Equal(t, "1.3", conns.Conns[0].TLSVersion)
}

// writeCertificate writes a self-signed certificate for clients and servers.
func writeCertificate(t *testing.T, dir string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	write := func(name, kind string, bytes []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600))
		return path
	}
	return write("cert.pem", "CERTIFICATE", cert), write("key.pem", "PRIVATE KEY", private)
}

func TestReconnectDelay(t *testing.T) {
	last := time.Duration(0)
	for round := 1; round < 100; round++ {
		lowest := min(natsReconnectFirst<<min(round-1, 10), natsReconnectMax)
		require.GreaterOrEqual(t, lowest, last)
		got := reconnectDelay(round)
		require.GreaterOrEqual(t, got, lowest, "round %d", round)
		require.Less(t, got, lowest+natsReconnectMax/4, "round %d", round)
		last = lowest
	}
	require.Equal(t, natsReconnectMax, last)
}

func TestReportLimiter(t *testing.T) {
	var r reportLimiter
	at := time.Unix(1_000, 0)
	require.True(t, r.allow(at, "refused"))
	require.False(t, r.allow(at.Add(natsReportEvery-1), "refused"))
	require.True(t, r.allow(at.Add(time.Second), "timeout"), "another reason")
	require.False(t, r.allow(at.Add(natsReportEvery), "timeout"))
	require.True(t, r.allow(at.Add(natsReportEvery+time.Second), "timeout"))
	r.reset()
	require.True(t, r.allow(at.Add(natsReportEvery+time.Second), "timeout"), "a new outage")
}

func TestRedactURLs(t *testing.T) {
	require.Equal(t, "nats://ann:xxxxx@a:4222,tls://b:4222,nats://c",
		redactURLs("nats://ann:secret@a:4222, tls://b:4222,c"))
	require.NotContains(t, redactURLs("nats://ann:sec%ret@a"), "sec%ret")
}
