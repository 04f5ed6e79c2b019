package replog

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A verification reads the whole log, tells copies with its history from others, and finds what
// was changed in it.
func TestVerify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a, b := newNode(t, f, t.TempDir(), "a"), newNode(t, f, t.TempDir(), "b")
		s := promote(t, a.Replica)
		for i := range 20 {
			require.NoError(t, put(s, fmt.Sprint(i), "v"))
		}
		early := a.Seen().Data
		require.NoError(t, s.Close())
		s = promote(t, b.Replica)
		require.NoError(t, put(s, "last", noise(5000))) // several records
		f.force(encode(head{kind: kindBeat, epoch: 1, n: 99, chained: true}, nil))
		late := b.Seen().Data
		other, plain := late, late
		other.Chain++
		plain.Chain = 0
		caughtUp(t, a.Replica)
		verify := func(rate int) Report {
			rep, err := a.Verify(t.Context(), []Mark{early, late, other, plain, {Seq: 0}}, rate)
			require.NoError(t, err)
			return rep
		}
		rep := verify(0)
		require.NoError(t, rep.Problem)
		require.Equal(t, []Proof{Equal, Equal, Different, Unproven, Cut}, rep.Copies)
		require.Equal(t, f.tail(), rep.Last)

		begin := time.Now()
		rep = verify(readCost) // one small record a second
		require.InDelta(t, float64(rep.Last-rep.First+1), time.Since(begin).Seconds(), 1)

		f.mu.Lock()
		whole := slices.Clone(f.records)
		f.mu.Unlock()
		for name, harm := range map[string]func(){
			"a flipped bit":                         func() { f.records[9] = append([]byte{}, whole[9]...); f.records[9][20] ^= 1 },
			"another record":                        func() { f.records[9] = encode(head{kind: kindBeat, epoch: 1, n: 10, chained: true, before: 5}, nil) },
			"a missing record":                      func() { f.records = slices.Delete(slices.Clone(whole), 9, 10) },
			"a record twice, with the next missing": func() { f.records[10] = whole[9] },
		} {
			f.mu.Lock()
			harm()
			f.mu.Unlock()
			require.Error(t, verify(0).Problem, name)
			f.mu.Lock()
			f.records = slices.Clone(whole)
			f.mu.Unlock()
		}
		require.NoError(t, s.Close())
	})
}

// A log that is cut while it is read is read on from its new beginning.
func TestVerifyALogThatIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a := newNode(t, f, t.TempDir(), "a")
		s := promote(t, a.Replica)
		var copies []Mark
		for i := range 20 {
			require.NoError(t, put(s, fmt.Sprint(i), "v"))
			copies = append(copies, a.Seen().Data)
		}
		time.AfterFunc(100*time.Millisecond, func() { _ = a.e.purge(t.Context(), 11) }) // while the first record is read
		rep, err := a.Verify(t.Context(), []Mark{copies[0], copies[5], copies[18]}, 50)
		require.NoError(t, err)
		require.NoError(t, rep.Problem)
		require.Equal(t, uint64(11), rep.First)
		require.Equal(t, []Proof{Cut, Cut, Equal}, rep.Copies)
		require.NoError(t, s.Close())
	})
}
