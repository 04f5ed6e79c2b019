package storecmd

import (
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
)

// BenchmarkStorePort exports and imports messages of 1 KB.
func BenchmarkStorePort(b *testing.B) {
	const n = 20_000
	dir := b.TempDir()
	s, err := store.Open(filepath.Join(dir, "fila.db"), store.Options{NoSync: true})
	require.NoError(b, err)
	batch := &store.Batch{PutQueues: []store.QueueRecord{{ID: 1, Name: "q", Settings: []byte("{}")}, {ID: 2, Name: "q.dlq", Settings: []byte("{}")}}}
	payload := []byte(strings.Repeat("0123456789abcde ", 64))
	for seq := range uint64(n) {
		batch.Add = append(batch.Add, store.Message{
			Ref: store.Ref{Queue: 1, Seq: seq}, EnqueuedAt: 1e18, Weight: 1000, Cost: 1000, Key: "tenant", Payload: payload,
		})
	}
	done := make(chan error, 1)
	batch.Done = func(err error) { done <- err }
	s.Submit(batch)
	require.NoError(b, <-done)
	require.NoError(b, s.Close())
	lines := exportOf(b, dir, false)
	b.Run("export", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			e := &exporter{}
			require.NoError(b, e.run(filepath.Join(dir, "fila.db"), "", io.Discard))
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/message")
	})
	b.Run("import", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			i++
			require.NoError(b, importTo(b, filepath.Join(dir, strconv.Itoa(i)), lines))
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/message")
	})
}
