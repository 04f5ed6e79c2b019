package circuit

import (
	"log/slog"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/fleet"
	"github.com/filaq/fila/sidecar/fleet/record"
)

// recordsOnly is a Fleet with records of circuits open by hand for all keys that begin with "open",
// and no others. It writes nothing.
type recordsOnly struct{ open []byte }

func newRecordsOnly() *recordsOnly {
	var c record.Circuit
	env := record.Env{Now: 1, Live: func(string) bool { return true }}
	c, _ = c.Apply(record.Batch{By: "other/1", Number: 1, Steps: []record.Step{
		{Kind: record.Open, At: 1, Until: math.MaxInt64, After: breaker.HalfOpen, Cause: causeByHand},
	}}, env)
	return &recordsOnly{open: c.Encode()}
}

func (f *recordsOnly) Register(string, fleet.Kind) {}
func (f *recordsOnly) Me() string                  { return "me/1" }
func (f *recordsOnly) Now() int64                  { return second }
func (f *recordsOnly) Offset() int64               { return 0 }
func (f *recordsOnly) Live(string) bool            { return true }
func (f *recordsOnly) Away() error                 { return nil }
func (f *recordsOnly) Touch(string, string)        {}

func (f *recordsOnly) Find(_, key string) (fleet.Entry, bool) {
	if len(key) < 4 || key[:4] != "open" {
		return fleet.Entry{}, false
	}
	return f.entry(), true
}

func (f *recordsOnly) entry() fleet.Entry { return fleet.Entry{Value: f.open, Rev: 1} }

func (f *recordsOnly) registry(t *testing.T) *Registry {
	r := newRig(t)
	r.disk.auto = true
	return New(Options{
		Log: slog.New(slog.DiscardHandler), Now: func() int64 { return second }, Submit: r.disk.Submit, Event: r.event,
		Fleet: f, Shares: func(string) bool { return true },
	})
}

// The record of a circuit counts before Learn has been called for it.
func TestTheRecordOfAFleetCountsAtOnce(t *testing.T) {
	reg := newRecordsOnly().registry(t)
	info, ok := reg.Info("open:a")
	require.True(t, ok)
	require.Equal(t, []any{"open", "by hand", "other"}, []any{info.State, info.Cause, info.OpenedBy})
	_, ok = reg.Info("nobody")
	require.False(t, ok)
	require.Equal(t, int64(1), reg.Count(), "looking at a circuit without a record makes none")
	require.True(t, reg.Held("open:b"))
	_, _, ok = reg.Close("open:c", false)
	require.True(t, ok)
	_, _, ok = reg.Close("nobody", false)
	require.False(t, ok)
}

// A circuit that is created for a record is not forgotten before it has taken in the record, although
// it looks empty until then.
func TestACircuitIsKeptUntilItHasItsRecord(t *testing.T) {
	f := newRecordsOnly()
	reg := f.registry(t)
	c := Records{reg}.meet("open", f.entry(), false)
	for range 10 { // each Drop sweeps idle circuits
		reg.giveBack(reg.use("closed", second))
	}
	require.Same(t, c, reg.find("open"))
	reg.giveBack(c)
	require.Nil(t, reg.find("open"), "it has not taken the record, and nobody uses it")
	Records{reg}.Learn("open", f.entry())
	require.NotNil(t, reg.find("open"))
}
