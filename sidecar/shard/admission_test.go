package shard

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// TestMemoryOfKeysUnderARate: a fairness key that has used some of enqueue_rate_per_key takes
// 150 bytes until its rate is whole again.
func TestMemoryOfKeysUnderARate(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const keys = 50_000
	q := &Queue{name: "orders", shard: &Shard{Options: &Options{}}}
	s := &wire.QueueSettings{EnqueueRate: "1000000", EnqueueRatePerKey: "1/3600", EnqueueBurstPerKey: 2}
	before := heap()
	var a rates
	for i := range keys {
		require.Nil(t, a.admit(q, s, fmt.Sprintf("tenant:%09d", i), 1, nil))
	}
	perKey := (heap() - before) / keys
	require.LessOrEqual(t, perKey, int64(150))
	for i := range keys {
		key := fmt.Sprintf("tenant:%09d", i)
		require.Nil(t, a.admit(q, s, key, 1, nil))
		require.NotNil(t, a.admit(q, s, key, 1, nil), "it has used its burst")
	}
}
