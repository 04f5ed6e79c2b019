package meta

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/store"
)

// beginningOf returns a beginning with n queues and entries.
func beginningOf(n int) Beginning {
	b := Beginning{By: "fila cluster import", Secret: []byte(strings.Repeat("s", 32)), Queues: map[string]Place{}, LastID: store.QueueID(2*n + 4)}
	for i := range n {
		name := fmt.Sprint("q", i)
		b.Queues[name] = Place{IDs: [2]store.QueueID{store.QueueID(2*i + 1), store.QueueID(2*i + 2)}, Shard: ShardOf(name, 8)}
		b.Entries = append(b.Entries, store.Entry{Key: fmt.Sprintf("\x00log/%020d", i), Value: "entry"})
	}
	return b
}

// A cluster made of other data cannot be joined before it is complete; then it has their secret
// and ids. An interrupted one is made again.
func TestBegin(t *testing.T) {
	srv := alone(t)
	nc := connect(t, srv)
	_, err := Look(patiently(t), options(nc))
	require.ErrorIs(t, err, ErrNone)
	require.ErrorIs(t, err, ErrUnusable)

	first, err := Begin(patiently(t), options(nc), beginningOf(3)) // from another store
	require.NoError(t, err)
	require.NoError(t, <-first.Write(control.Batch{Put: []store.Entry{{Key: "left over", Value: "v"}}}))
	incarnation := first.Incarnation()
	first.Close()
	_, err = Open(patiently(t), options(nc))
	require.ErrorIs(t, err, ErrUnusable)
	require.ErrorContains(t, err, "`fila cluster import` is under way or was interrupted")
	other := beginningOf(1)
	other.By = "fila cluster rebuild"
	_, err = Begin(patiently(t), options(nc), other)
	require.ErrorContains(t, err, "`fila cluster import` was interrupted")

	b := beginningOf(250)
	delete(b.Queues, "q0")
	m, err := Begin(patiently(t), options(nc), b)
	require.NoError(t, err)
	require.Equal(t, incarnation, m.Incarnation())
	require.NoError(t, m.Finish(patiently(t)))
	m.Close()
	_, err = Begin(patiently(t), options(nc), b)
	require.ErrorContains(t, err, "it is there already")

	node := join(t, srv)
	require.Equal(t, b.Secret, node.Secret())
	require.Equal(t, incarnation, node.Incarnation())
	require.Equal(t, b.Queues, node.Queues())
	require.Equal(t, b.Entries, node.Entries())
	for s := range 8 {
		require.True(t, node.HasLog(s), "a missing log counts as lost")
	}
	place, err := node.Place(patiently(t), "new")
	require.NoError(t, err)
	require.Equal(t, [2]store.QueueID{b.LastID + 1, b.LastID + 2}, place.IDs)
	last, err := node.LastID()
	require.NoError(t, err)
	require.Equal(t, b.LastID+2, last)
}

// A new incarnation keeps everything else, and the nodes of the old one stop.
func TestRenew(t *testing.T) {
	srv := alone(t)
	node := join(t, srv)
	before, err := node.Place(patiently(t), "q")
	require.NoError(t, err)

	nc := connect(t, srv)
	m, err := Look(patiently(t), options(nc))
	require.NoError(t, err)
	require.NoError(t, m.Renew(patiently(t), "fila cluster rebuild"))
	<-node.Failed()
	m.Close()
	_, err = Open(patiently(t), options(nc))
	require.ErrorContains(t, err, "`fila cluster rebuild` is under way")

	again, err := Look(patiently(t), options(nc))
	require.NoError(t, err)
	t.Cleanup(again.Close)
	require.Equal(t, "fila cluster rebuild", again.Making())
	require.Equal(t, node.Incarnation(), again.Before())
	require.ErrorContains(t, again.Renew(patiently(t), "another"), "was interrupted")
	require.NoError(t, again.Renew(patiently(t), "fila cluster rebuild"), "it goes on")
	require.Equal(t, node.Incarnation(), again.Before())
	require.NoError(t, again.Finish(patiently(t)))

	later := join(t, srv)
	require.NotEqual(t, node.Incarnation(), later.Incarnation())
	require.Equal(t, again.Incarnation(), later.Incarnation())
	require.Equal(t, node.Secret(), later.Secret())
	after, ok := later.Where("q")
	require.True(t, ok)
	require.Equal(t, before, after)
}
