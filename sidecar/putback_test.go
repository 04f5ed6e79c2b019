package sidecar

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// TestTakenBackKeepsItsPlace: the server's answers come one by one and in the
// order of the deliveries, and the next consumer gets the messages in it, too.
func TestTakenBackKeepsItsPlace(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "nobody", 4, 0)
	var want []store.ID
	for _, key := range []string{"a", "b", "a", "b", "a", "a"} {
		want = append(want, r.enqueue(key, nil))
	}
	r.commit()
	for _, d := range r.deliveries() {
		r.ack(d, wire.Ack{Kind: wire.AckNoResponders}, "")
	}
	r.consume(r.q, "w", 10, 0)
	var a, b []store.ID
	for _, d := range r.deliveries() {
		require.EqualValues(t, 1, d.attempt)
		if d.key == "a" {
			a = append(a, d.id)
		} else {
			b = append(b, d.id)
		}
	}
	require.Equal(t, []store.ID{want[0], want[2], want[4], want[5]}, a)
	require.Equal(t, []store.ID{want[1], want[3]}, b)
	checkLoop(t, r.loop(r.q), 0, 0)
}
