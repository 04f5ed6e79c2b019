package history_test

import (
	"encoding/hex"
	"math"
	"slices"
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

func longest(routed bool) history.AttemptRecord {
	long := strings.Repeat("é", 600)
	p := history.AttemptRecord{
		Outcome: long, Number: math.MaxUint32, Dead: true, At: math.MinInt64, Took: math.MaxInt64, Consumer: long, Error: long, Code: long,
		DecidedBy: long, Rule: long, Reason: long, Delay: math.MaxInt64, Waited: math.MaxInt64,
		Times: math.MaxUint32, Last: math.MinInt64,
	}
	if routed {
		p.Route = long
	}
	for range 9 {
		p.Blocked = append(p.Blocked, history.BlockedInterval{Kind: long, Place: "throttle:", Key: long, For: math.MaxInt64})
	}
	return p
}

// A store takes any record, however long its texts are.
func TestRecordIsBounded(t *testing.T) {
	for _, routed := range []bool{false, true} {
		p := longest(routed)
		b := p.Append(nil)
		require.LessOrEqual(t, len(b), store.MaxAttemptBytes)
		got, err := history.Read(b)
		require.NoError(t, err)
		intervals := 4
		if routed {
			intervals = 3
		}
		require.Len(t, got.Blocked, intervals)
		require.Equal(t, routed, got.Route != "")
		require.Len(t, got.Error, wire.MaxErrorText)
		require.Equal(t, b, got.Append(nil))
	}
}

// A program that does not know routes reads the one of a record as an interval, and writes it
// as it was when it joins records.
func TestARouteIsAnIntervalForOldPrograms(t *testing.T) {
	now := history.AttemptRecord{Outcome: wire.AttemptNoResponders, Number: 1, At: 5, Consumer: "w", Route: "openai", Waited: 3, Blocked: []history.BlockedInterval{{Kind: "rate", Place: "throttle:", Key: "k", For: 2}}}
	old := now
	old.Route, old.Blocked = "", append(slices.Clone(now.Blocked), history.BlockedInterval{Kind: "route", Place: "route:", Key: "openai"})
	require.Equal(t, old.Append(nil), now.Append(nil))
	got, err := history.Read(now.Append(nil))
	require.NoError(t, err)
	require.Equal(t, now, got)

	other := now
	other.Route, other.At = "anthropic", 9
	joined := old
	joined.Times, joined.Last = 2, 9
	require.Equal(t, joined.Append(nil), history.Join(now.Append(nil), other.Append(nil)), "the route of the first")
	unblocked := history.AttemptRecord{Outcome: wire.AttemptNack, Number: 1, Route: "openai"}
	got, err = history.Read(unblocked.Append(nil))
	require.NoError(t, err)
	require.Equal(t, unblocked, got)
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
		"0100046e61636b018080a0f6f4acdbe01b000177000000000000000105726f75746506726f7574653a066f70656e616900": {Outcome: wire.AttemptNack, Number: 1, At: 1e18, Consumer: "w", Route: "openai"},
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
	long, routed := longest(false), longest(true)
	f.Add((&history.AttemptRecord{Outcome: wire.AttemptMoved, At: 1e18, From: "orders.dlq", To: "by-hand"}).Append(nil))
	f.Add(long.Append(nil))
	f.Add(routed.Append(nil))
	f.Add((&history.AttemptRecord{Outcome: wire.AttemptTerm, Number: 1, Route: "openai"}).Append(nil))
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
