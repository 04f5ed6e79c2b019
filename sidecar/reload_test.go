package sidecar

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// fileSite is a site with a configuration file.
type fileSite struct {
	*testSite
	path, head string
}

// startWithFile starts a site with a file of rules and queues.
func startWithFile(t *testing.T, text string) *fileSite {
	t.Helper()
	dir := t.TempDir()
	x := &fileSite{path: filepath.Join(dir, "config.toml")}
	x.head = fmt.Sprintf("data_dir = %q\nhttp.addr = \"\"\nnats.embedded.port = %d\n", filepath.Join(dir, "data"), anyPort)
	require.NoError(t, os.WriteFile(x.path, []byte(x.head+text), 0o600))
	x.start(t)
	return x
}

// start starts a process with the current file.
func (x *fileSite) start(t *testing.T) {
	t.Helper()
	loaded, err := config.Load(config.Sources{File: x.path})
	require.NoError(t, err)
	x.testSite = startSite(t, loaded.DataDir, func(c *config.Config) { *c = loaded.Config })
}

// rewrite replaces everything after the head of the file.
func (x *fileSite) rewrite(text string) {
	x.t.Helper()
	require.NoError(x.t, os.WriteFile(x.path, []byte(x.head+text), 0o600))
}

const (
	rulesBefore = `
[[throttle]]
key = "tenant:*"
rate = 10
[[circuit]]
key = "stripe"
threshold = 3
[[retry_policy]]
name = "slow"
initial_delay_ms = 100
[[queue]]
name = "orders"
retry_policy = "slow"
`
	rulesAfter = `
[[throttle]]
key = "tenant:*"
rate = 20
[[circuit]]
key = "stripe"
threshold = 5
[[retry_policy]]
name = "slow"
retry = false
[[queue]]
name = "orders"
retry_policy = "slow"
visibility_timeout_ms = 60000
[[queue]]
name = "mail"
`
)

// TestReload of a real file: all of it is in force when Reload returns.
func TestReload(t *testing.T) {
	x := startWithFile(t, rulesBefore)
	defer x.end()
	events, err := x.nc.SubscribeSync("fila.event.rules-reloaded.>")
	require.NoError(t, err)
	x.flush()
	deliveries, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
	dead, _ := x.consumer("w", "orders.dlq", `{"consumer":"w"}`)
	fail := func() *nats.Msg {
		t.Helper()
		id := x.enqueue("x", nil)
		m := next(t, deliveries)
		require.Equal(t, id, m.Header.Get(wire.HeaderID))
		require.Nil(t, x.ack(m, "-NAK"))
		return m
	}
	require.NoError(t, x.s.Reload())
	require.Empty(t, changesOf(t, events), "the same file")
	id := fail().Header.Get(wire.HeaderID)
	again := next(t, deliveries)
	require.Equal(t, id, again.Header.Get(wire.HeaderID), "it is retried")
	require.Nil(t, x.ack(again, ""))

	x.rewrite(rulesAfter)
	require.NoError(t, x.s.Reload())
	require.Equal(t, []any{
		"retry_policy slow: retry unset -> false, initial_delay_ms 100 -> 1000",
		"throttle tenant:*: rate 10 -> 20",
		"circuit stripe: threshold 3 -> 5",
		"queue orders: visibility_timeout_ms 30000 -> 60000",
		"queue mail: added",
	}, changesOf(t, events))
	var throttle api.ThrottleInfo
	x.must("fila.admin.throttle-show.tenant:a", "", &throttle)
	require.Equal(t, wire.Rate("20"), *throttle.Rate)
	var circuit api.CircuitInfo
	x.must("fila.admin.circuit-show.stripe", "", &circuit)
	require.Equal(t, 5, circuit.Threshold)
	id = fail().Header.Get(wire.HeaderID)
	m := next(t, dead)
	require.Equal(t, id, m.Header.Get(wire.HeaderID))
	require.Equal(t, wire.ReasonRetryPolicy, m.Header.Get(wire.HeaderDeadReason))
	require.Nil(t, x.ack(m, "+TERM"))
	id = x.enqueue("x", nil)
	m = next(t, deliveries)
	require.Equal(t, id, m.Header.Get(wire.HeaderID))
	deadline, err := time.Parse(time.RFC3339Nano, m.Header.Get(wire.HeaderDeadline))
	require.NoError(t, err)
	require.Greater(t, time.Until(deadline), 31*time.Second)
	require.Nil(t, x.ack(m, ""))
	x.must("fila.enqueue.mail", "x", nil)

	var reply api.ReloadReply
	x.must("fila.admin.reload", "", &reply)
	require.Equal(t, api.ReloadReply{Changes: []string{}}, reply, "the same file again")
	require.Equal(t, 400, x.request("fila.admin.reload", `{"force":true}`, nil, nil).Code)
}

// next waits for a message or an event.
func next[T any](t *testing.T, ch <-chan T) (m T) {
	t.Helper()
	select {
	case m = <-ch:
	case <-time.After(time.Minute):
		require.FailNow(t, "nothing has come")
	}
	return m
}

// changesOf returns the changes in the next event.
func changesOf(t *testing.T, events *nats.Subscription) []any {
	t.Helper()
	m, err := events.NextMsg(time.Minute)
	require.NoError(t, err)
	var e wire.Event
	require.NoError(t, json.Unmarshal(m.Data, &e))
	return e.Data["changes"].([]any)
}

// TestReloadIsRefused with one line, and nothing has changed.
func TestReloadIsRefused(t *testing.T) {
	x := startWithFile(t, rulesBefore)
	defer x.end()
	now := func() (config api.ConfigList, queues api.QueueList) {
		x.must("fila.admin.config-list", "", &config)
		x.must("fila.admin.queue-list", "", &queues)
		return config, queues
	}
	config, queues := now()
	x.rewrite(rulesAfter + "on_enqueue = \"return 1\"")
	err := x.s.Reload()
	require.ErrorContains(t, err, "queue mail, on_enqueue: ")
	require.NotContains(t, err.Error(), "\n")
	var werr *wire.Error
	require.ErrorAs(t, err, &werr)
	require.Equal(t, wire.CodeReloadFailed, werr.ErrCode)
	x.rewrite(rulesAfter)
	x.s.setOffline(true)
	_, err = x.s.readiness()
	require.EqualError(t, err, "not connected to NATS")
	require.ErrorContains(t, x.s.Reload(), "queue mail cannot be created while NATS is not connected")
	x.s.setOffline(false)
	c, q := now()
	require.Equal(t, config, c)
	require.Equal(t, queues, q)
}

// TestReloadOfNothing: without a file, and before the start or after the end.
func TestReloadOfNothing(t *testing.T) {
	s, err := New(config.Default(), slog.New(slog.DiscardHandler), "")
	require.NoError(t, err)
	require.EqualError(t, s.Reload(), "fila is still starting")

	x := startSite(t, t.TempDir(), nil)
	require.ErrorContains(t, x.s.Reload(), "fila was started without a configuration file")
	x.end()
	require.EqualError(t, x.s.Reload(), "fila is stopping")
}
