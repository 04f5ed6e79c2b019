package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/queuetest"
	"github.com/filaq/fila/store"
)

// A delivery that nobody received comes back behind another one of its subqueue that
// is blocked by now: its flow can send nothing, so there is nothing to refund.
func TestTakenBackBehindWhatIsBlocked(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 100, 0)
	want := []store.ID{r.Gated("a"), r.Gated("a")}
	ds := r.Deliveries()
	require.Len(t, ds, 2)
	pauseKey(r, "a", queue.Forever)
	for _, d := range ds {
		r.Ack(d, nobody, "")
		r.Consume(queue.Main, "w", 100, 0)
		require.Empty(t, r.Deliveries())
		check(r)
	}
	pauseKey(r, "a", 0)
	require.Equal(t, want, queuetest.IDs(r.Deliveries()))
	check(r)
}
