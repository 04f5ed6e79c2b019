package natsio

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/filaq/fila/sidecar/config"
)

// checkLeaks fails the test if its goroutines outlive its other clean-ups. It is called first, so
// that it runs last. Goroutines that already run do not count.
func checkLeaks(t *testing.T) {
	t.Helper()
	others := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, others) })
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

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func newTestLog() (*slog.Logger, *logText) {
	text := &logText{}
	return slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{Level: slog.LevelDebug})), text
}

func anyPort() config.EmbeddedConfig {
	cfg := config.Default().NATS.Embedded
	cfg.Port = -1
	return cfg
}

func startTestServer(t *testing.T, cfg config.EmbeddedConfig) *Embedded {
	t.Helper()
	srv, err := StartEmbedded(cfg, quietly())
	require.NoError(t, err)
	t.Cleanup(func() { stopTestServer(srv) })
	return srv
}

func stopTestServer(srv interface {
	Shutdown()
	WaitForShutdown()
},
) {
	srv.Shutdown()
	srv.WaitForShutdown()
}

func TestEmbeddedServer(t *testing.T) {
	checkLeaks(t)
	cfg := anyPort()
	cfg.MaxPayload = 32 << 10
	srv := startTestServer(t, cfg)

	nc, err := nats.Connect(srv.ClientURL())
	require.NoError(t, err)
	defer nc.Close()
	require.EqualValues(t, 32<<10, nc.MaxPayload())
	require.False(t, srv.JetStreamEnabled())

	sub, err := nc.SubscribeSync("a")
	require.NoError(t, err)
	require.NoError(t, nc.Publish("a", []byte("hello")))
	msg, err := sub.NextMsg(patienceForTests)
	require.NoError(t, err)
	require.Equal(t, "hello", string(msg.Data))
}

func TestEmbeddedServerTakenPort(t *testing.T) {
	checkLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	cfg := anyPort()
	cfg.Port = l.Addr().(*net.TCPAddr).Port

	log, text := newTestLog()
	_, err = StartEmbedded(cfg, log)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.EqualError(t, err, "the embedded NATS server cannot listen on 127.0.0.1:"+strconv.Itoa(cfg.Port)+
		": another process has this port; set nats.embedded.port (-1 takes any free port), or nats.url to use a NATS server that runs already")
	require.NotContains(t, text.String(), "level=ERROR", "an error is returned or logged, not both")
}

func TestEmbeddedServerForeignAddress(t *testing.T) {
	checkLeaks(t)
	cfg := anyPort()
	cfg.Host = "192.0.2.1" // TEST-NET-1, an address of no machine
	_, err := StartEmbedded(cfg, quietly())
	require.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
	require.ErrorContains(t, err, "192.0.2.1:0: cannot assign requested address;")
}

func TestEmbeddedServerLogin(t *testing.T) {
	for name, tc := range map[string]struct {
		set   func(*config.EmbeddedConfig)
		login nats.Option
	}{
		"user":  {func(c *config.EmbeddedConfig) { c.User, c.Password = "ann", "secret" }, nats.UserInfo("ann", "secret")},
		"token": {func(c *config.EmbeddedConfig) { c.Token = "secret" }, nats.Token("secret")},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			cfg := config.Default().NATS
			cfg.Embedded = anyPort()
			tc.set(&cfg.Embedded)
			srv := startTestServer(t, cfg.Embedded)

			_, err := nats.Connect(srv.ClientURL())
			require.ErrorIs(t, err, nats.ErrAuthorization)
			nc, err := nats.Connect(srv.ClientURL(), tc.login)
			require.NoError(t, err)
			nc.Close()

			own, err := Connect(cfg, srv, quietly(), nil, nil)
			require.NoError(t, err, "fila's own connection logs in, too")
			own.Close()
		})
	}
}

func TestEmbeddedServerTLS(t *testing.T) {
	for name, tc := range map[string]struct {
		clientCA bool
		allowed  []string
	}{
		"of the server":        {false, []string{"with the CA", "with CA and certificate"}},
		"of clients, likewise": {true, []string{"with CA and certificate"}},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			certFile, keyFile := writeCertificate(t, t.TempDir())
			cfg := config.Default().NATS
			cfg.Embedded = anyPort()
			cfg.Embedded.TLS = config.TLSConfig{Cert: certFile, Key: keyFile}
			if tc.clientCA {
				cfg.Embedded.TLS.CA = certFile
			}
			srv := startTestServer(t, cfg.Embedded)
			require.True(t, strings.HasPrefix(srv.ClientURL(), "tls://"), srv.ClientURL())
			otherCert, otherKey := writeCertificate(t, t.TempDir())
			for client, login := range map[string][]nats.Option{
				"with nothing":               nil,
				"with another CA":            {nats.RootCAs(otherCert)},
				"with the CA":                {nats.RootCAs(certFile)},
				"with another's certificate": {nats.RootCAs(otherCert), nats.ClientCert(otherCert, otherKey)},
				"with CA and certificate":    {nats.RootCAs(certFile), nats.ClientCert(certFile, keyFile)},
			} {
				nc, err := nats.Connect("nats://"+srv.Addr().String(), login...)
				require.Equal(t, slices.Contains(tc.allowed, client), err == nil, "%s: %v", client, err)
				if err == nil {
					nc.Close()
				}
			}
			own, err := Connect(cfg, srv, quietly(), nil, nil)
			require.NoError(t, err, "fila itself does not need the network")
			own.Close()
		})
	}
}

func TestEmbeddedServerBadFiles(t *testing.T) {
	checkLeaks(t)
	certFile, keyFile := writeCertificate(t, t.TempDir())
	junk := filepath.Join(t.TempDir(), "junk")
	require.NoError(t, os.WriteFile(junk, []byte("junk"), 0o600))
	for want, tls := range map[string]config.TLSConfig{
		"nats.embedded.tls.cert = ": {Cert: junk, Key: keyFile},
		"nats.embedded.tls.ca = \"" + junk + "\": allowed is a PEM file with":      {Cert: certFile, Key: keyFile, CA: junk},
		"missing\": allowed is a file that can be read: no such file or directory": {Cert: certFile, Key: keyFile, CA: junk + ".missing"},
	} {
		cfg := anyPort()
		cfg.TLS = tls
		_, err := StartEmbedded(cfg, quietly())
		require.ErrorContains(t, err, want)
	}
	cfg := anyPort()
	cfg.JetStream, cfg.JetStreamDir = true, junk
	_, err := StartEmbedded(cfg, quietly())
	require.ErrorContains(t, err, "nats.embedded.jetstream, in "+junk+": ")
}

// TestEmbeddedJetStream: a stream survives a restart, also for a user of a users file.
func TestEmbeddedJetStream(t *testing.T) {
	checkLeaks(t)
	cfg := anyPort()
	cfg.JetStream, cfg.JetStreamDir = true, t.TempDir()
	cfg.UsersFile = writeUsers(t, "authorization {user: ann, password: secret}")
	start := func() (*Embedded, nats.JetStreamContext) {
		srv, err := StartEmbedded(cfg, quietly())
		require.NoError(t, err)
		nc, err := nats.Connect(srv.ClientURL(), nats.UserInfo("ann", "secret"))
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		js, err := nc.JetStream()
		require.NoError(t, err)
		return srv, js
	}
	srv, js := start()
	_, err := js.AddStream(&nats.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	require.NoError(t, err)
	_, err = js.Publish("s.x", []byte("kept"))
	require.NoError(t, err)
	stopTestServer(srv)
	require.DirExists(t, filepath.Join(cfg.JetStreamDir, "jetstream"))

	srv, js = start()
	defer stopTestServer(srv)
	m, err := js.GetMsg("S", 1)
	require.NoError(t, err)
	require.Equal(t, "kept", string(m.Data))
}

func TestEmbeddedServerLog(t *testing.T) {
	log, text := newTestLog()
	bridge := &natsLog{log: log}
	bridge.Errorf("127.0.0.1:4321 - cid:%d - %q - authentication error", 5, "v1:go")
	bridge.Noticef("notice %d", 1)
	bridge.Warnf("warning %d", 2)
	bridge.Errorf("error %d", 3)
	bridge.Debugf("debug")
	bridge.Tracef("trace")
	bridge.Fatalf("first %d", 4)
	bridge.Fatalf("second")
	require.Equal(t, "first 4", bridge.fatal())
	got := text.String()
	require.Contains(t, got, `level=DEBUG msg="log line of the embedded NATS server" text="notice 1"`)
	require.Contains(t, got, `level=WARN msg="log line of the embedded NATS server" text="warning 2"`)
	require.Contains(t, got, `level=ERROR msg="log line of the embedded NATS server" text="error 3"`)
	require.Contains(t, got, `level=WARN msg="log line of the embedded NATS server about a client" text="127.0.0.1:4321 - cid:5 - \"v1:go\" - authentication error"`)
	require.NotContains(t, got, "debug")
	require.NotContains(t, got, "trace")
}
