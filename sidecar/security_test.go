package sidecar

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
)

// permissionBlock is the nats-server configuration of docs/security.md.
func permissionBlock(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../docs/security.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(page), "```nats\n")
	require.True(t, ok, "docs/security.md has no nats block")
	block, _, ok := strings.Cut(rest, "```")
	require.True(t, ok)
	return block
}

// TestDocumentedPermissions starts a NATS server with the block of
// docs/security.md and lets every role do its work, and nothing else.
func TestDocumentedPermissions(t *testing.T) {
	for _, role := range []string{"FILA", "PRODUCER", "CONSUMER", "OPERATOR"} {
		t.Setenv(role+"_PASSWORD", strings.ToLower(role)+"-secret")
	}
	conf := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(conf, []byte("port: -1\nhost: 127.0.0.1\n"+permissionBlock(t)), 0o600))
	opts, err := server.ProcessConfigFile(conf)
	require.NoError(t, err)
	opts.NoSigs, opts.NoLog = true, true
	ns, err := server.NewServer(opts)
	require.NoError(t, err)
	ns.Start()
	defer ns.WaitForShutdown()
	defer ns.Shutdown()
	require.True(t, ns.ReadyForConnections(10*time.Second))

	x := startSite(t, t.TempDir(), func(c *config.Config) {
		c.NATS.URL, c.NATS.User, c.NATS.Password = ns.ClientURL(), "fila", "fila-secret"
	})
	defer x.end()

	refused := make(chan string, 16)
	connect := func(user string) *nats.Conn {
		nc, err := nats.Connect(ns.ClientURL(), nats.UserInfo(user, user+"-secret"), nats.CustomInboxPrefix("_INBOX."+user),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- user + ": " + err.Error() }))
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		return nc
	}
	producer, consumer, operator := connect("producer"), connect("consumer"), connect("operator")
	request := func(nc *nats.Conn, subject, body string) *nats.Msg {
		m, err := nc.Request(subject, []byte(body), 10*time.Second)
		require.NoError(t, err, subject)
		require.Empty(t, m.Header.Get("Nats-Service-Error"), subject)
		return m
	}

	events, err := operator.SubscribeSync("fila.event.>")
	require.NoError(t, err)
	request(operator, "fila.admin.queue-create.orders", "")
	request(operator, "$SRV.PING.fila", "")
	event, err := events.NextMsg(10 * time.Second)
	require.NoError(t, err)
	require.Equal(t, "fila.event.queue-created.orders", event.Subject)

	deliveries, err := consumer.SubscribeSync("fila.deliver.worker.orders")
	require.NoError(t, err)
	request(consumer, "fila.consume.orders", `{"consumer":"worker"}`)
	request(producer, "fila.enqueue.orders", "hello")
	m, err := deliveries.NextMsg(10 * time.Second)
	require.NoError(t, err)
	request(consumer, m.Reply, "-NAK")
	m, err = deliveries.NextMsg(10 * time.Second)
	require.NoError(t, err)
	require.Empty(t, request(consumer, m.Reply, "+ACK").Data)
	request(consumer, "fila.consume.orders", `{"consumer":"worker","leave":true}`)
	require.Equal(t, "404", request(consumer, "fila.fetch.orders", "").Header.Get("Status"))

	t.Run("no role can do another's work", func(t *testing.T) {
		for nc, subjects := range map[*nats.Conn][]string{
			producer: {"fila.ack.0.x.orders", "fila.admin.queue-delete.orders", "fila.consume.orders", "fila.deliver.worker.orders", "fila.event.x.y", "fila.node.announce"},
			consumer: {"fila.enqueue.orders", "fila.admin.queue-delete.orders", "fila.deliver.worker.orders", "fila.node.ask", "fila.node.answer.x"},
			operator: {"fila.enqueue.orders", "fila.ack.0.x.orders", "fila.fetch.orders", "fila.node.announce", "fila.node.ask"},
		} {
			for _, subject := range subjects {
				require.NoError(t, nc.Publish(subject, nil))
				require.NoError(t, nc.Flush())
				require.Contains(t, <-refused, "Permissions Violation for Publish to \""+subject)
			}
		}
		for _, nc := range []*nats.Conn{producer, consumer, operator} {
			_, err := nc.SubscribeSync("fila.node.>")
			require.NoError(t, err)
			require.NoError(t, nc.Flush())
			require.Contains(t, <-refused, "Permissions Violation for Subscription to \"fila.node.>")
		}
		fila := connect("fila")
		require.NoError(t, fila.Publish("fila.admin.queue-delete.orders", []byte(`{"force":true}`)))
		require.NoError(t, fila.Flush())
		require.Contains(t, strings.ToLower(<-refused), "permissions violation for publish to \"fila.admin.queue-delete.orders")
	})
	t.Run("fila's user is enough for a second fila to be refused", func(t *testing.T) {
		cfg := config.Default()
		cfg.DataDir, cfg.HTTP.Addr = t.TempDir(), ""
		cfg.NATS.URL, cfg.NATS.User, cfg.NATS.Password = ns.ClientURL(), "fila", "fila-secret"
		second, err := New(cfg, slog.New(slog.DiscardHandler), "1.0.0")
		require.NoError(t, err)
		require.ErrorIs(t, second.Run(t.Context()), ErrAnotherFila)
	})
	t.Run("a reply subject cannot make fila an accomplice", func(t *testing.T) {
		require.NoError(t, producer.PublishRequest("fila.enqueue.orders", "fila.admin.queue-delete.orders", []byte(`{"force":true}`)))
		require.NoError(t, producer.Flush())
		event, err := events.NextMsg(10 * time.Second)
		for err == nil && !strings.HasPrefix(event.Subject, "fila.event.refused.") {
			event, err = events.NextMsg(10 * time.Second)
		}
		require.NoError(t, err)
		require.Contains(t, string(event.Data), "reply subject")
		request(operator, "fila.admin.queue-inspect.orders", "")
	})
}
