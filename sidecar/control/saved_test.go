package control

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// keptStates is a stored state with one part.
func keptStates(part string) []store.Entry {
	return []store.Entry{{Key: stateGates, Value: `{"at":1000,"parts":1}`}, {Key: gatePart(0), Value: part}}
}

// savedStates are the states in savedPart and oldPart.
func savedStates() []throttle.State {
	debt, zero := int64(-2500), int64(0)
	return []throttle.State{
		{Key: "a\xff", At: 1000, Tokens: &debt},
		{Key: "tenant:1", At: 990, Tokens: &zero, Entries: []throttle.Entry{{Age: 5e9, Count: 1}, {Age: 2e9, Count: 300}, {Age: 0, Count: 2}}},
	}
}

const (
	// savedPart is version 1 of a part, which every later fila reads.
	savedPart = "01" + // version
		"02" + "61ff" + "00" + "01" + "8727" + "00" + // key, at, tokens, no entries
		"08" + "74656e616e743a31" + "13" + "01" + "00" + // key, ten ns earlier, no tokens
		"03" + "80c8afa025" + "01" + "fff782ad16" + "ac02" + "ffcfacf30e" + "02" // three entries
	// oldPart is a part of an older version.
	oldPart = `[{"key":"a\\xff","at":1000,"tokens":-2500},` +
		`{"key":"tenant:1","at":990,"tokens":0,"entries":[{"age":5000000000,"count":1},{"age":2000000000,"count":300},{"age":0,"count":2}]}]`
)

// States of older versions are readable, and the format is unchanged.
func TestSavedGatesOfAllVersions(t *testing.T) {
	golden, err := hex.DecodeString(savedPart)
	require.NoError(t, err)
	for name, part := range map[string]string{"version 1": string(golden), "JSON": oldPart} {
		saved, err := readGates(keptStates(part))
		require.NoError(t, err, name)
		require.True(t, saved.found)
		require.Equal(t, savedStates(), saved.states, name)
	}
	kv := &keptKV{}
	require.NoError(t, saveGates(kv, savedStates(), 1000))
	require.Equal(t, savedPart, hex.EncodeToString([]byte(kv.all[0].Value)))
	require.Equal(t, `{"at":1000,"parts":1}`, kv.all[1].Value)
}

// A part that is cut or of an unknown version is an error: the usage is unknown, as after a
// crash.
func TestSavedGatesThatAreDamaged(t *testing.T) {
	golden, err := hex.DecodeString(savedPart)
	require.NoError(t, err)
	whole := string(golden)
	first := 1 + 2 + 2 + 3 + 1 // the bytes of the version and the first state
	for cut := range whole {
		_, err := readGates(keptStates(whole[:cut]))
		if cut == 1 || cut == first {
			require.NoError(t, err, "whole states are a part")
		} else {
			require.Error(t, err, cut)
		}
	}
	for name, part := range map[string]string{
		"version 2":      "\x02" + whole[1:],
		"a huge key":     "\x01" + strings.Repeat("\xff", 9) + "\x01a",
		"a huge number":  "\x01\x01a\x00\x01" + strings.Repeat("\xff", 12),
		"entries of air": "\x01\x01a\x00\x00" + strings.Repeat("\xff", 9) + "\x01",
	} {
		_, err := readGates(keptStates(part))
		require.Error(t, err, name)
	}
}

// keptKV keeps what is put, in order.
type keptKV struct{ all []store.Entry }

func (kv *keptKV) Write(b Batch) <-chan error {
	kv.all = append(kv.all, b.Put...)
	done := make(chan error, 1)
	done <- nil
	return done
}

// The gates of 50,000 keys are the same after a stop and a start, except for fractions of a
// thousandth of a token.
func TestGatesOfManyKeysAreTheSameAfterARestart(t *testing.T) {
	const keys = 50_000
	limits := throttle.Limits{Rate: throttle.PerSecond(10), Burst: 50 * throttle.One, Limit: 20, Window: throttle.MaxWindow}
	gates := func() *throttle.Gates {
		g := throttle.New(throttle.Start{}, 0)
		_, err := g.SetPrefix("tenant:", limits, 0, nil)
		require.NoError(t, err)
		return g
	}
	r := rand.New(rand.NewPCG(7, 8))
	old := gates()
	now := int64(0)
	for i := range keys {
		for range 1 + r.IntN(4) {
			now += r.Int64N(1e6)
			set, err := old.Set([]string{fmt.Sprintf("tenant:%09d", i)}, now)
			require.NoError(t, err)
			ticket, _, ok := set.Acquire(now, 1+r.Int64N(5*throttle.One), nil)
			require.True(t, ok)
			set.Release(&ticket, now, nil)
			old.Close(set, now)
		}
	}
	states := old.Snapshot(now)
	require.Len(t, states, keys)
	kv := &keptKV{}
	require.NoError(t, saveGates(kv, states, now))
	saved, err := readGates(kv.all)
	require.NoError(t, err)
	again := gates()
	again.Restore(saved.states, now)
	require.EqualValues(t, keys, again.Count())
	require.Equal(t, states, again.Snapshot(now))
	require.Equal(t, old.Page("", "", 0, math.MaxInt), again.Page("", "", 0, math.MaxInt))
	for i := range keys {
		key := fmt.Sprintf("tenant:%09d", i)
		before, _, _ := old.Look(key, now)
		after, _, _ := again.Look(key, now)
		before.At, after.At = 0, 0 // of a bucket with less than a cost of 1 in it: later by less than a thousandth
		before.BucketFull, after.BucketFull = 0, 0
		before.Admitted = 0 // counts begin anew
		require.Equal(t, before, after)
	}
}
