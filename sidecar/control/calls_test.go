package control

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/wire"
)

// inCall begins a call and waits for the disk.
func (r *rig) inCall(ttl time.Duration, keys ...string) (ended func(), err *wire.Error) {
	ended, onDisk := r.c.KeepCall(keys, now()+int64(ttl))
	if onDisk != nil {
		err = onDisk()
	}
	return ended, err
}

func (r *rig) call(ttl time.Duration, keys ...string) (ended func()) {
	r.t.Helper()
	ended, err := r.inCall(ttl, keys...)
	require.Nil(r.t, err)
	return ended
}

// keptUntil returns the time on disk of a key, relative to now; 0: none.
func (r *rig) keptUntil(key string) time.Duration {
	r.t.Helper()
	value, ok := r.stored(stateCalls)[stateCalls+key]
	if !ok {
		return 0
	}
	until, err := strconv.ParseInt(value, 10, 64)
	require.NoError(r.t, err)
	return time.Duration(until - now())
}

// callWrites returns the number of writes about calls.
func (r *rig) callWrites() (n int) {
	r.kv.mu.Lock()
	defer r.kv.mu.Unlock()
	for _, b := range r.kv.writes {
		for _, key := range append(b.Delete, putKeys(b)...) {
			if strings.HasPrefix(key, stateCalls) {
				n++
				break
			}
		}
	}
	return n
}

func putKeys(b Batch) (keys []string) {
	for _, e := range b.Put {
		keys = append(keys, e.Key)
	}
	return keys
}

// Only a call that needs a write under way waits for it.
func TestCallsWaitForTheirOwnKeys(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const ttl = 30 * time.Second
		r.call(ttl, "kept")
		disk := make(chan struct{})
		r.kv.block(disk)
		r.kv.fail(nil)
		var waits []func() *wire.Error
		for _, keys := range [][]string{{"stripe"}, {"kept", "stripe"}, {"stripe", "acme"}} {
			_, wait := r.c.KeepCall(keys, now()+int64(ttl))
			require.NotNil(t, wait)
			waits = append(waits, wait)
		}
		over := make(chan *wire.Error, len(waits))
		for _, wait := range waits {
			go func() { over <- wait() }()
		}
		require.Len(t, r.kv.writes, 2, "nothing is written twice")
		_, wait := r.c.KeepCall([]string{"kept"}, now()+int64(ttl))
		require.Nil(t, wait)
		r.pass(time.Second)
		require.Empty(t, over)
		close(disk)
		for range waits {
			require.Nil(t, <-over)
		}
		_, wait = r.c.KeepCall([]string{"kept", "stripe", "acme"}, now()+int64(ttl))
		require.Nil(t, wait)
		require.Len(t, r.stored(stateCalls), 3)
	})
}

// A busy key is written twice in the lifetime of a permit, but at most once a second and at
// least once a minute.
func TestCommitsOfABusyKey(t *testing.T) {
	for ttl, writes := range map[time.Duration]int{
		100 * time.Millisecond: 60, 4 * time.Second: 30, 30 * time.Second: 4, 10 * time.Minute: 1,
	} {
		t.Run(ttl.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.call(ttl, "stripe", "acme")()
				r.pass(time.Millisecond)
				r.kv.fail(nil)
				for range 60 * 100 {
					over := r.call(ttl, "stripe", "acme")
					r.pass(5 * time.Millisecond)
					over()
					r.pass(5 * time.Millisecond)
					require.LessOrEqual(t, r.keptUntil("stripe"), ttl+time.Duration(callsAhead(int64(ttl))))
				}
				require.InDelta(t, writes, r.callWrites(), 1)
			})
		})
	}
}

// The time on disk of a key is removed soon after its last call, and lowered when only short
// calls are left.
func TestCallsThatAreOverAreNotKept(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const settled = 2*callsDelay + time.Millisecond
		r.kv.fail(nil)
		long, short := r.call(time.Hour, "stripe", "acme"), r.call(4*time.Second, "stripe")
		require.Greater(t, r.keptUntil("stripe"), time.Hour)
		require.Equal(t, r.keptUntil("stripe"), r.keptUntil("acme"))
		r.pass(settled)
		require.Greater(t, r.keptUntil("stripe"), 59*time.Minute, "the long call goes on")
		long()
		for range 5 { // it is busy with short ones
			next := r.call(4*time.Second, "stripe")
			short()
			short = next
			r.pass(500 * time.Millisecond)
		}
		require.Zero(t, r.keptUntil("acme"))
		require.Positive(t, r.keptUntil("stripe"))
		require.LessOrEqual(t, r.keptUntil("stripe"), 8*time.Second)
		short()
		r.pass(settled)
		require.Empty(t, r.stored(stateCalls))
		writes := r.callWrites()
		r.pass(time.Hour)
		require.Equal(t, writes, r.callWrites(), "nothing is looked for while nothing happens")
		r.restart(true, 0)
		require.Empty(t, r.pauses())
	})
}

// A time on its way to the disk is not lowered before the write is done: otherwise the write
// would raise it again.
func TestATimeOnItsWayIsNotLowered(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		over := r.call(30*time.Minute, "stripe")
		r.call(10*time.Second, "stripe")
		disk := make(chan struct{})
		r.kv.block(disk)
		long, wait := r.c.KeepCall([]string{"stripe"}, now()+int64(time.Hour))
		require.NotNil(t, wait)
		over()
		long()
		r.pass(3 * callsDelay)
		r.kv.heal()
		require.Nil(t, wait())
		r.pass(0)
		r.call(30*time.Minute, "stripe")
		require.GreaterOrEqual(t, r.keptUntil("stripe"), 30*time.Minute)
	})
}

// Thousands of keys whose calls are over take bounded commits.
func TestManyCallsThatAreOver(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for i := range 2*callsBatch + 1 {
			r.call(time.Hour, fmt.Sprint("tenant:", i))()
		}
		r.kv.fail(nil)
		r.pass(3 * callsDelay)
		require.Equal(t, 3, r.callWrites())
		require.Empty(t, r.stored(stateCalls))
		require.Empty(t, r.c.calls.mu.keys, "and no memory")
		require.Empty(t, r.c.calls.mu.changed)
	})
}

// An orderly stop stores the keys with calls under way, until the calls end, and no others.
func TestCallsOverAStop(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.call(20*time.Second, "stripe")
		long := r.call(time.Hour, "stripe", "over")
		r.pass(time.Millisecond)
		long()
		r.c.CloseCalls()
		require.Equal(t, 20*time.Second-time.Millisecond, r.keptUntil("stripe"))
		require.Zero(t, r.keptUntil("over"))
		over, err := r.inCall(time.Second, "late")
		require.Equal(t, wire.Draining(), err)
		require.Nil(t, over)
		require.Zero(t, r.keptUntil("late"))
		r.restart(false, 0)
		require.Equal(t, wire.Timestamp(now()+int64(20*time.Second-time.Millisecond)), r.pauses()[0].Until)
		require.Equal(t, "stripe", r.pauses()[0].Name)
	})
}

// A failed write stores nothing.
func TestCallsNeedTheDisk(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.kv.fail(errors.New("no disk"))
		_, err := r.inCall(time.Second, "stripe")
		require.ErrorIs(t, err, wire.OutcomeUnknown())
		r.kv.fail(nil)
		over := r.call(time.Second, "stripe")
		require.Contains(t, r.stored(stateCalls), stateCalls+"stripe")

		r.kv.fail(errors.New("no disk"))
		over()
		r.pass(3 * time.Second)
		require.Contains(t, r.stored(stateCalls), stateCalls+"stripe", "it could not be lowered")
		r.kv.fail(nil)
		r.call(time.Second, "stripe")
		require.Greater(t, r.keptUntil("stripe"), time.Second)
	})
}

// After a crash the keys of calls are paused until the last call is over, across further
// crashes, unless they are paused for longer or an operator resumes them.
func TestCallsOverACrash(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const ttl = 30 * time.Second
		begin := now()
		r.call(ttl, "stripe", "adyen", "held", "a/b", "over")
		r.pause(`{"kind":"throttle","name":"held"}`)
		r.pause(`{"kind":"throttle","name":"over","for_ms":2000}`) // ends while nobody is there
		ends := begin + int64(ttl) + callsAhead(int64(ttl))
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
					require.Equal(t, wire.Timestamp(ends), p.Until)
				}
				require.Zero(t, r.admits(p.Name))
			}
		}
		r.resume(`{"kind":"throttle","name":"adyen"}`)
		require.Positive(t, r.admits("adyen"))
		r.pass(time.Duration(ends - 1 - now()))
		require.Zero(t, r.admits("stripe"))
		r.pass(1)
		require.Positive(t, r.admits("stripe"))
		require.Len(t, r.pauses(), 1)
	})
}

// At any moment, whatever the disk does, a crash pauses each key as long as an allowed call
// may go on, and no longer than the calls of the last seconds need.
func TestWhatIsKeptOfCalls(t *testing.T) {
	disk := t.TempDir()
	tests := 0
	rapid.Check(t, func(rt *rapid.T) {
		tests++
		seed := rapid.Uint64().Draw(rt, "seed")
		var failure string
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, fmt.Sprint(disk, "/", tests))
			r.open()
			failure = (&callsModel{rig: r, rand: rand.New(rand.NewPCG(seed, 1))}).run()
			r.close()
			synctest.Wait()
		})
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}

// callsModel makes random calls, and compares the disk with the expected times.
type callsModel struct {
	*rig
	rand     *rand.Rand
	calls    []*modelCall
	troubled bool // the disk was slow or has failed
}

type modelCall struct {
	keys  []string
	ttl   time.Duration
	until int64
	told  bool
	left  int64 // when it has ended; 0: it goes on
	ended func()
}

func (m *callsModel) run() (failure string) {
	for range 400 {
		switch m.rand.IntN(6) {
		case 0, 1:
			m.begin()
		case 2, 3:
			m.end()
		case 4:
			m.pass([]time.Duration{time.Millisecond, 300 * time.Millisecond, time.Second, 5 * time.Second, time.Minute}[m.rand.IntN(5)])
		default:
			m.disk()
		}
		for _, c := range m.calls { // a permit ends by itself
			if c.told && c.left == 0 && c.until <= now() {
				m.over(c)
			}
		}
		if failure = m.check(); failure != "" {
			return failure
		}
	}
	m.kv.heal()
	return ""
}

func (m *callsModel) begin() {
	c := &modelCall{ttl: []time.Duration{time.Millisecond, time.Second, 4 * time.Second, 30 * time.Second, time.Hour}[m.rand.IntN(5)]}
	for _, key := range []string{"a", "b", "c"} {
		if m.rand.IntN(2) == 0 {
			c.keys = append(c.keys, key)
		}
	}
	c.until = now() + int64(c.ttl)
	var onDisk func() *wire.Error
	c.ended, onDisk = m.c.KeepCall(c.keys, c.until)
	m.calls = append(m.calls, c)
	if onDisk == nil {
		c.told = true
		return
	}
	go func() {
		if err := onDisk(); err == nil && c.left == 0 {
			c.told = true
		} else if c.left == 0 {
			m.over(c)
		}
	}()
	synctest.Wait()
}

func (m *callsModel) end() {
	if len(m.calls) > 0 {
		if c := m.calls[m.rand.IntN(len(m.calls))]; c.left == 0 {
			m.over(c)
		}
	}
}

func (m *callsModel) over(c *modelCall) {
	c.told, c.left = false, now()
	c.ended()
}

// disk makes the disk slow, failing or healthy.
func (m *callsModel) disk() {
	m.kv.heal()
	synctest.Wait()
	switch m.rand.IntN(3) {
	case 0:
		m.kv.fail(errDisk)
		m.troubled = true
	case 1:
		m.kv.mu.Lock()
		m.kv.slow = make(chan struct{})
		m.kv.mu.Unlock()
		m.troubled = true
	}
}

// check compares the disk with the calls.
func (m *callsModel) check() string {
	stored := m.stored(stateCalls)
	for _, c := range m.calls {
		for _, key := range c.keys {
			if until, _ := strconv.ParseInt(stored[stateCalls+key], 10, 64); c.told && until < c.until {
				return fmt.Sprintf("a call under %s goes on until %d, and is kept until %d", key, c.until, until)
			}
		}
	}
	if m.troubled { // what could not be written is not lower either
		return ""
	}
	for state, value := range stored {
		until, _ := strconv.ParseInt(value, 10, 64)
		most := int64(0)
		for _, c := range m.calls {
			for _, key := range c.keys {
				if stateCalls+key == state && (c.left == 0 || now()-c.left <= int64(2*callsDelay)) {
					// The class of a lifetime rounds it up, and a time is not lowered by less
					// than a second.
					most = max(most, c.until+int64(c.ttl)+callsAhead(2*int64(c.ttl))+int64(callsAheadMin))
				}
			}
		}
		if until > most {
			return fmt.Sprintf("%s is kept until %d, and has to be at most until %d", state, until, most)
		}
	}
	return ""
}
