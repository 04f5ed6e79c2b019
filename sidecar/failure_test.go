package sidecar

import (
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// TestAStoreThatFailsEndsTheNode: requests that wait for the disk get an unknown outcome, nothing more
// is confirmed, and Run returns the cause and the remedy. Later requests may get no answer.
func TestAStoreThatFailsEndsTheNode(t *testing.T) {
	x := startSite(t, t.TempDir(), func(c *config.Config) { c.NATS.Embedded.Port = anyPort })
	x.must("fila.admin.queue-create.orders", ``, nil)
	x.enqueue("kept", nil)
	ch, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
	m := next(t, ch)
	_, err := x.s.readiness()
	require.NoError(t, err)
	// The file is truncated, so the next read of the mapping fails.
	require.NoError(t, os.Truncate(x.s.cfg.StorePath(), 2*4096))
	answers, err := x.nc.SubscribeSync(nats.NewInbox())
	require.NoError(t, err)
	require.NoError(t, x.nc.PublishRequest("fila.enqueue.orders", answers.Subject, []byte("lost")))
	require.NoError(t, x.nc.PublishRequest(m.Reply, answers.Subject, nil))
	refused := func(m *nats.Msg) {
		werr := wire.ParseError(m.Header, m.Data)
		require.NotNil(t, werr, "%s", m.Data)
		require.Contains(t, []int{wire.CodeOutcomeUnknown, wire.CodeStoreFailed, wire.CodeDraining}, werr.ErrCode)
	}
	select {
	case <-x.ended:
	case <-time.After(time.Minute):
		require.FailNow(t, "it goes on without a store")
	}
	// The write of the first lease may have failed before they arrived.
	for answer, err := answers.NextMsg(0); err == nil; answer, err = answers.NextMsg(0) {
		refused(answer)
	}
	require.ErrorIs(t, x.err, store.ErrFailed)
	require.ErrorContains(t, x.err, "the store failed, nothing more is confirmed or delivered: ")
	require.ErrorContains(t, x.err, x.s.cfg.StorePath())
	require.ErrorContains(t, x.err, "(look at the disk and the kernel's log, then start fila again; docs/operations.md says more)")
}

// TestNearlyFullDisk with a limit that no disk satisfies: the node is degraded, and stored messages go
// on.
func TestNearlyFullDisk(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		if _, known := store.SpaceOf(dir); !known {
			t.Skip("the free space is not known here")
		}
		x := startSite(t, dir, nil)
		x.must("fila.admin.queue-create.orders", ``, nil)
		x.enqueue("kept", nil)
		x.end()

		x = startSite(t, dir, func(c *config.Config) { c.Store.MinFreeBytes = 1 << 50 })
		werr := x.request("fila.enqueue.orders", "new", nil, nil)
		require.NotNil(t, werr)
		require.Equal(t, wire.CodeDiskLow, werr.ErrCode)
		state, err := x.s.readiness()
		require.NoError(t, err)
		require.Regexp(t, `^degraded: the disk is nearly full \(\d+ bytes are free, store.min_free_bytes is 1125899906842624\)`, state)
		require.Contains(t, scraped(x), "\nfila_disk_low 1\n")
		ch, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
		require.Nil(t, x.ack(next(t, ch), "+ACK"))
		x.end()
	})
}
