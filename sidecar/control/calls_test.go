package control

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// keepCalls has calls kept, and waits for the disk.
func (r *rig) keepCalls(keys []string, until int64) *wire.Error {
	if onDisk := r.c.KeepCalls(keys, until); onDisk != nil {
		return onDisk()
	}
	return nil
}

// Whoever needs what is on its way to the disk waits for it, and nobody else does.
func TestCallsWaitForTheirOwnKeys(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		until := now() + int64(30*time.Second)
		require.Nil(t, r.keepCalls([]string{"kept"}, until))
		disk := make(chan struct{})
		r.kv.slow = disk
		r.kv.writes = nil
		waits := []func() *wire.Error{r.c.KeepCalls([]string{"stripe"}, until), r.c.KeepCalls([]string{"kept", "stripe"}, until), r.c.KeepCalls([]string{"stripe", "acme"}, until)}
		over := make(chan *wire.Error, len(waits))
		for _, wait := range waits {
			require.NotNil(t, wait)
			go func() { over <- wait() }()
		}
		require.Len(t, r.kv.writes, 2, "nothing is written twice")
		require.Nil(t, r.c.KeepCalls([]string{"kept"}, until))
		r.pass(time.Second)
		require.Empty(t, over)
		close(disk)
		for range waits {
			require.Nil(t, <-over)
		}
		require.Nil(t, r.c.KeepCalls([]string{"kept", "stripe", "acme"}, until))
		require.Len(t, r.stored(stateCalls), 3)

		// Once more for later, while a stop forgets all of them.
		r.kv.slow = nil
		require.NotNil(t, r.c.KeepCalls([]string{"new", "acme"}, until+int64(time.Hour)))
		r.c.ForgetCalls()
		r.pass(0)
		require.Empty(t, r.stored(stateCalls))
	})
}

// Calls are written once a minute and key, and what is over goes.
func TestCallsAreKeptAhead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.kv.writes = nil
		for range 100 {
			require.Nil(t, r.keepCalls([]string{"stripe", "acme"}, now()+int64(30*time.Second)))
			r.pass(time.Second)
		}
		require.Len(t, r.kv.writes, 2)
		require.Len(t, r.stored(stateCalls), 2)
		r.pass(time.Hour)
		require.Nil(t, r.keepCalls([]string{"other", "acme"}, now()+1))
		require.Len(t, r.stored(stateCalls), 2, "stripe is over")
		require.Contains(t, r.stored(stateCalls), stateCalls+"acme")
		r.c.ForgetCalls()
		require.Empty(t, r.stored(stateCalls))
		r.restart(true, 0)
		require.Empty(t, r.pauses())
	})
}

// What cannot be written does not count as kept.
func TestCallsNeedTheDisk(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.kv.failed = errors.New("no disk")
		require.ErrorIs(t, r.keepCalls([]string{"stripe"}, now()+1), wire.OutcomeUnknown())
		r.kv.failed = nil
		require.Nil(t, r.keepCalls([]string{"stripe"}, now()+1))
		require.Contains(t, r.stored(stateCalls), stateCalls+"stripe")
	})
}

// After a crash the keys of calls are paused until the last call is over, over further
// crashes too, unless they are paused for longer or somebody knows better.
func TestCallsOverACrash(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const ttl = 30 * time.Second
		begin := now()
		keys := []string{"stripe", "adyen", "held", "a/b", "over"}
		require.Nil(t, r.keepCalls(keys, begin+int64(ttl)))
		r.pause(`{"kind":"throttle","name":"held"}`)
		r.pause(`{"kind":"throttle","name":"over","for_ms":2000}`) // ends while nobody is there
		until := wire.Timestamp(begin + int64(ttl) + callsStep)
		for range 2 {
			r.restart(true, 10*time.Second)
			require.Empty(t, r.stored(stateCalls))
			require.Len(t, r.stored(statePause), 5)
			all := r.pauses()
			require.Len(t, all, 5)
			for _, p := range all {
				if p.Name == "held" {
					require.Equal(t, "operator", p.By)
					require.Empty(t, p.Until)
				} else {
					require.Equal(t, "calls", p.By)
					require.Equal(t, until, p.Until)
				}
				require.Zero(t, r.admits(p.Name))
			}
		}
		r.resume(`{"kind":"throttle","name":"adyen"}`)
		require.Positive(t, r.admits("adyen"))
		r.pass(time.Duration(begin + int64(ttl) + callsStep - 1 - now()))
		require.Zero(t, r.admits("stripe"))
		r.pass(1)
		require.Positive(t, r.admits("stripe"))
		require.Len(t, r.pauses(), 1)
	})
}
