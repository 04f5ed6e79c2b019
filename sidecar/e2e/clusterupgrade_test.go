//go:build unix

package e2e

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRollingUpgrade replaces the nodes of a cluster by another binary one after the other while
// messages are sent, after a part of them goes back. -fila.old is the binary to begin with.
func TestRollingUpgrade(t *testing.T) {
	if *flagOld == "" {
		t.Skip("-fila.old names no binary")
	}
	t.Parallel()
	n := newNemesis(startLossRigWith(t, *flagOld), nil)
	stop := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() { n.send(stop) })
	swap := func(node int, bin string) {
		n.busy(time.Second)
		p := n.filas[node]
		require.Zero(t, p.Stop(t))
		p.bin = bin
		require.NoError(t, p.start())
		n.settle()
	}
	swap(0, binary)
	swap(1, binary)
	swap(0, *flagOld) // the third node has never written what an older one cannot read
	swap(1, *flagOld)
	for i := range n.filas {
		swap(i, binary)
	}
	n.recover()
	n.busy(time.Second)
	n.filas[1].kill()
	require.NoError(t, n.filas[1].start())
	n.recover()
	close(stop)
	sending.Wait()
	n.drain()
	t.Logf("%d messages sent, %d acked, %d unsure", n.sent, len(n.acked), len(n.unsure))
	require.Positive(t, len(n.acked))
}
