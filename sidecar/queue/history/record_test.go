package history_test

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Only records of the same attempt in the same role are joined.
func TestJoin(t *testing.T) {
	one := history.AttemptRecord{Outcome: wire.AttemptNoResponders, Number: 2, At: 5, Consumer: "w", Waited: 3, Blocked: []history.BlockedInterval{{Kind: "rate", Place: "throttle:", Key: "k", For: 2}}}
	later := history.AttemptRecord{Outcome: wire.AttemptNoResponders, Number: 2, At: 9, Consumer: "v"}
	join := func(a, b history.AttemptRecord) *history.AttemptRecord {
		joined := history.Join(a.Append(nil), b.Append(nil))
		if joined == nil {
			return nil
		}
		p, err := history.Read(joined)
		require.NoError(t, err)
		return &p
	}
	both := one
	both.Times, both.Last, both.Consumer = 2, 9, "v"
	require.Equal(t, &both, join(one, later))
	four := both
	four.Times, four.Last = 4, 9
	require.Equal(t, &four, join(both, both))
	many := both
	many.Times = math.MaxUint32
	require.Equal(t, &many, join(many, later))
	for _, change := range []func(*history.AttemptRecord){
		func(p *history.AttemptRecord) { p.Number = 3 },
		func(p *history.AttemptRecord) { p.Dead = true },
		func(p *history.AttemptRecord) { p.Outcome = wire.AttemptExpired },
	} {
		other := later
		change(&other)
		require.Nil(t, join(one, other))
		require.Nil(t, join(other, one))
	}
	broken := one.Append(nil)
	require.Nil(t, history.Join(broken[:len(broken)-1], one.Append(nil)))
	require.Nil(t, history.Join(nil, one.Append(nil)))
}

func longest() history.AttemptRecord {
	long := strings.Repeat("é", 600)
	p := history.AttemptRecord{
		Outcome: long, Number: math.MaxUint32, Dead: true, At: math.MinInt64, Took: math.MaxInt64, Consumer: long, Error: long, Code: long,
		DecidedBy: long, Rule: long, Reason: long, Delay: math.MaxInt64, Waited: math.MaxInt64,
		Times: math.MaxUint32, Last: math.MinInt64,
	}
	for range 9 {
		p.Blocked = append(p.Blocked, history.BlockedInterval{Kind: long, Place: "throttle:", Key: long, For: math.MaxInt64})
	}
	return p
}

// A store takes any record, however long its texts are.
func TestRecordIsBounded(t *testing.T) {
	p := longest()
	b := p.Append(nil)
	require.LessOrEqual(t, len(b), store.MaxAttemptBytes)
	got, err := history.Read(b)
	require.NoError(t, err)
	require.Len(t, got.Blocked, 4)
	require.Len(t, got.Error, wire.MaxErrorText)
	require.Equal(t, b, got.Append(nil))
}

// Records are on disk, and in the logs of clusters whose nodes have different versions:
// new programs read old records, and old programs read new ones.
func TestRecordFormatIsStable(t *testing.T) {
	for text, want := range map[string]history.AttemptRecord{
		"010008726564726976656e008080a0f6f4acdbe01b00000000000000000000": {Outcome: wire.AttemptRedriven, At: 1e18},
		"02000d6e6f5f726573706f6e64657273058080a0f6f4acdbe01b0001770000000000000000038080c0ece9d9b6c137": {
			Outcome: wire.AttemptNoResponders, Number: 5, At: 1e18, Consumer: "w", Times: 3, Last: 2e18,
		},
		"0100056d6f766564008080a0f6f4acdbe01b000000000000000000020466726f6d0671756575653a0a6f72646572732e646c710002746f0671756575653a0762792d68616e6400": {
			Outcome: wire.AttemptMoved, At: 1e18, From: "orders.dlq", To: "by-hand",
		},
	} {
		record, err := hex.DecodeString(text)
		require.NoError(t, err)
		got, err := history.Read(record)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, text, hex.EncodeToString(want.Append(nil)), want.Outcome)
	}
	moved := history.AttemptRecord{Outcome: wire.AttemptMoved, From: strings.Repeat("q", wire.MaxQueueName) + wire.DLQSuffix, To: strings.Repeat("r", wire.MaxQueueName)}
	got, err := history.Read(moved.Append(nil))
	require.NoError(t, err)
	require.Equal(t, moved, got, "the longest names of queues fit")
	require.False(t, history.IsRedrive(moved.Append(nil)))
}

func FuzzRecord(f *testing.F) {
	long := longest()
	f.Add((&history.AttemptRecord{Outcome: wire.AttemptMoved, At: 1e18, From: "orders.dlq", To: "by-hand"}).Append(nil))
	f.Add(long.Append(nil))
	f.Add((&history.AttemptRecord{Outcome: wire.AttemptRedriven, At: 1e18}).Append(nil))
	f.Add((&history.AttemptRecord{Outcome: wire.AttemptNoResponders, At: 1e18, Times: 3, Last: 2e18}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := history.Read(b)
		if err != nil {
			return
		}
		again, err := history.Read(p.Append(nil))
		require.NoError(t, err)
		require.Equal(t, again.Append(nil), p.Append(nil))
	})
}
