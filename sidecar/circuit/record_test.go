package circuit

import (
	"errors"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire/api"
)

func TestCircuitsSurviveARestart(t *testing.T) {
	type step = func(r *rig, c *Circuit)
	fail := func(r *rig, c *Circuit) { r.fail(c, 10) }
	now := func(r *rig) int64 { return r.now.Load() }
	for name, tc := range map[string]struct {
		before step
		down   time.Duration
		n      int64
		in     time.Duration // -1: until woken
		state  string
		cause  string
	}{
		"closed":              {func(r *rig, c *Circuit) { r.fail(c, 9) }, 0, all, 0, "closed", ""},
		"open":                {fail, time.Minute, 0, 4 * time.Minute, "open", "failures"},
		"open, time over":     {fail, time.Hour, 3, 0, "half-open", "failures"},
		"the clock went back": {fail, -time.Hour, 0, 5 * time.Minute, "open", "failures"},
		"half-open": {func(r *rig, c *Circuit) {
			r.fail(c, 10)
			r.pass(5 * time.Minute)
			r.allow(c)
		}, 0, 3, 0, "half-open", "failures"},
		"half-open, the clock went back": {func(r *rig, c *Circuit) {
			c.open(now(r), now(r)+3600*second, breaker.HalfOpen, "")
			c.release(now(r))
		}, -time.Minute, 3, 0, "half-open", "by hand"},
		"closed again": {func(r *rig, c *Circuit) {
			r.fail(c, 10)
			r.pass(5 * time.Minute)
			r.succeed(c)
		}, 0, all, 0, "closed", ""},
		"by hand, for good": {func(r *rig, c *Circuit) {
			c.open(now(r), math.MaxInt64, breaker.HalfOpen, "")
		}, 1000 * time.Hour, 0, -1, "open", "by hand"},
		"by hand, for a time": {func(r *rig, c *Circuit) {
			c.open(now(r), now(r)+60*second, breaker.HalfOpen, "")
		}, time.Minute, 3, 0, "half-open", "by hand"},
		"paused": {func(r *rig, _ *Circuit) {
			r.reg.Pause("stripe", 0, now(r)+60*second, "")
		}, time.Minute, all, 0, "closed", ""},
		"retry after": {func(r *rig, c *Circuit) {
			r.retryAfter(c, now(r)+60*second)
		}, 59 * time.Second, 0, time.Second, "open", "retry_after"},
		"retry after, time over": {func(r *rig, c *Circuit) {
			r.retryAfter(c, now(r)+60*second)
		}, time.Minute, all, 0, "closed", ""},
		"retry after made it longer": {func(r *rig, c *Circuit) {
			r.fail(c, 10)
			r.retryAfter(c, now(r)+600*second)
		}, time.Minute, 0, 9 * time.Minute, "open", "failures"},
		"a longer cooldown": {func(r *rig, c *Circuit) {
			r.fail(c, 10)
			s := standard
			s.Breaker.Cooldown = time.Hour
			r.reg.Configure(s, nil, nil)
		}, time.Minute, 0, 59 * time.Minute, "open", "failures"},
		"held": {func(r *rig, c *Circuit) {
			s := standard
			s.MaxFailures = 4
			r.reg.Configure(s, nil, nil)
			r.fail(c, 5)
		}, time.Hour, 0, -1, "open", "max_failures"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			tc.before(r, r.use("stripe"))
			r.disk.commitAll()
			r.pass(tc.down)
			r.restart()
			r.disk.auto = true
			c := r.use("stripe")
			i := c.info(r.now.Load())
			require.Equal(t, tc.state, i.State)
			require.Equal(t, tc.cause, i.Cause)
			r.admits(c, tc.n, tc.in)
			if tc.n != 0 {
				r.succeed(c)
				r.admits(c, all, 0)
				r.reg.giveBack(c)
				require.Empty(t, r.disk.stored())
				require.Empty(t, r.reg.mu.byKey, "nothing is left of it")
			}
		})
	}
}

func TestRestoreLeavesWhatItCannotRead(t *testing.T) {
	r := newRig(t)
	r.reg.Restore([]store.Entry{
		{Key: "circuit:stripe:threshold", Value: "5"},
		{Key: "\x00circuitous", Value: "x"},
		{Key: recordPrefix + "broken", Value: "{"},
		{Key: recordPrefix + "", Value: `{"open_until":9223372036854775807}`},
	})
	require.Len(t, r.reg.mu.byKey, 1)
	require.Zero(t, r.disk.mu.writes)
	r.admits(r.use(""), 0, -1)
	r.admits(r.use("broken"), all, 0)
}

func TestCircuitWritesAreCoalesced(t *testing.T) {
	r := newRig(t)
	c := r.use("stripe")
	now := r.now.Load()
	c.open(now, now+second, breaker.HalfOpen, "")
	for i := range int64(1000) {
		c.open(now, now+i*second, breaker.HalfOpen, "")
		c.close(now, true)
		r.retryAfter(c, now+(5000-i)*second)
	}
	require.Len(t, r.disk.mu.waiting, 1, "a write is under way")
	require.Equal(t, 1, r.disk.commit())
	require.Contains(t, r.disk.stored()[0].Value, itoa(now+second))
	require.Equal(t, 1, r.disk.commit(), "and one with the latest state")
	require.Contains(t, r.disk.stored()[0].Value, itoa(now+4001*second))
	require.Zero(t, r.disk.commit())

	r.retryAfter(c, now+9000*second)
	c.close(now, true)
	r.disk.commitAll()
	require.Empty(t, r.disk.stored())
	writes := r.disk.mu.writes
	r.fail(c, 9)
	r.succeed(c)
	c.close(now, true)
	require.Zero(t, r.disk.commit(), "nothing that matters after a restart")
	require.Equal(t, writes, r.disk.mu.writes)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func TestCircuitSync(t *testing.T) {
	r := newRig(t)
	c := r.use("stripe")
	require.NoError(t, <-c.saved(), "there is nothing to write")
	c.open(r.now.Load(), math.MaxInt64, breaker.HalfOpen, "")
	first := c.saved()
	c.close(r.now.Load(), true)
	second := c.saved()
	require.Empty(t, first)
	r.disk.commit()
	require.Empty(t, first, "the write under way may be of before")
	require.Empty(t, second)
	r.disk.commit()
	require.NoError(t, <-first)
	require.NoError(t, <-second)
	require.Empty(t, r.disk.stored())

	c.open(r.now.Load(), math.MaxInt64, breaker.HalfOpen, "")
	stopped := make(chan struct{})
	go func() { r.reg.Stop(); close(stopped) }()
	for open := true; open; {
		select {
		case <-stopped:
			open = false
		default:
			r.disk.commit()
		}
	}
	require.Len(t, r.disk.stored(), 1)

	r.disk.mu.err = errors.New("disk on fire")
	r.disk.auto = true
	c.close(r.now.Load(), true)
	require.ErrorIs(t, <-c.saved(), r.disk.mu.err)
}

func TestForgettingCircuits(t *testing.T) {
	r := newRig(t)
	r.disk.auto = true
	live := func() int { return len(r.reg.mu.byKey) }
	use := func(key string, do func(c *Circuit)) {
		c := r.use(key)
		do(c)
		r.reg.giveBack(c)
	}
	use("fine", func(c *Circuit) { r.succeed(c) })
	require.Zero(t, live())

	r.failed("failed", 9)
	r.failed("failed", 1)
	require.Equal(t, "closed -> open: failures", r.news(), "few messages can open it too")
	require.Len(t, r.disk.stored(), 1)
	r.pass(5 * time.Minute)
	use("failed", r.succeed)
	require.Zero(t, live())
	require.Empty(t, r.disk.stored())

	use("asked", func(c *Circuit) { r.retryAfter(c, r.now.Load()+second) })
	require.Equal(t, 1, live())
	r.pass(time.Second)
	use("another", func(*Circuit) {})
	require.Zero(t, live(), "its time is over")
	require.Empty(t, r.disk.stored())

	limits := standard
	limits.MaxFailures = 3
	r.reg.Configure(limits, nil, nil)
	use("window", func(c *Circuit) { r.fail(c, 1); r.succeed(c) })
	require.Equal(t, 1, live(), "the failure still counts")
	r.pass(time.Minute)
	use("another", func(*Circuit) {})
	require.Zero(t, live())

	r.reg.Configure(limits, map[string]Settings{"set": limits}, nil)
	use("set", func(*Circuit) {})
	require.Equal(t, 1, live())
	r.reg.Configure(limits, nil, nil)
	use("another", func(*Circuit) {})
	require.Zero(t, live(), "not configured any more")

	a, b := r.use("twice"), r.use("twice")
	require.Same(t, a, b)
	r.reg.giveBack(a)
	require.Equal(t, 1, live())
	r.reg.giveBack(b)
	require.Zero(t, live())
	c := r.use("twice")
	require.NotSame(t, a, c)
	r.reg.revisit(a)
	require.Same(t, c, r.use("twice"), "the one before has no say in it")
}

func TestUnusedCircuitsAreBounded(t *testing.T) {
	r := newRig(t)
	r.disk.auto = true
	r.reg.maxIdle = 10
	used := r.use("used")
	r.fail(used, 1)
	for i := range int64(100) {
		r.failed("failed "+itoa(i), 1)
		r.failed("open "+itoa(i), 10)
	}
	require.LessOrEqual(t, len(r.reg.mu.byKey), 100+10+1+2, "what is shut must stay")
	require.Len(t, r.disk.stored(), 100)
	r.news()
	r.pass(5 * time.Minute)
	for i := range int64(100) {
		r.failed("failed "+itoa(i), 1)
	}
	require.LessOrEqual(t, len(r.reg.mu.byKey), 10+1+2)
	require.Contains(t, r.news(), "open -> closed: unused")
	require.LessOrEqual(t, len(r.disk.stored()), 10)
	require.Equal(t, 1, used.info(r.now.Load()).ConsecutiveFailures)
}

// A circuit beyond the limit is refused, and failures that count are not forgotten to make room.
func TestFullOfCircuits(t *testing.T) {
	r := newRig(t)
	r.disk.auto = true
	r.reg.maxIdle = 0
	limits := standard
	limits.MaxFailures, limits.FailureWindow = 5, time.Minute
	r.reg.Configure(limits, nil, nil)
	require.False(t, r.reg.Full("a", 1))
	for _, key := range []string{"a", "b"} {
		r.failed(key, 1)
	}
	require.True(t, r.reg.Full("c", 2))
	require.False(t, r.reg.Full("a", 2), "it is there already")
	require.False(t, r.reg.Full("c", 3))
	r.pass(2 * time.Minute) // the failures count no more
	for _, key := range []string{"a", "b"} {
		r.reg.giveBack(r.use(key))
	}
	require.False(t, r.reg.Full("c", 1))
}

// TestListingCircuits pages through all circuits, the circuits of a prefix, and all that are not
// closed.
func TestListingCircuits(t *testing.T) {
	r := newRig(t)
	limits := standard
	limits.Breaker.Threshold = 7
	r.reg.Configure(standard, map[string]Settings{"b": limits, "pay:x": limits}, nil)
	for _, key := range []string{"c", "pay:y", "a", "b"} {
		r.use(key)
	}
	r.fail(r.use("b"), 7)
	for _, key := range []string{"pay:z", "d"} {
		r.fail(r.use(key), standard.Breaker.Threshold)
	}
	list := func(req api.KeyListRequest, notClosed bool) (keys []string, total int, next string) {
		infos, total, next := r.reg.List(api.CircuitListRequest{KeyListRequest: req, NotClosed: notClosed})
		require.NotNil(t, infos)
		for _, i := range infos {
			keys = append(keys, i.Key+" "+i.State)
		}
		return keys, total, next
	}
	for _, tc := range []struct {
		req       api.KeyListRequest
		notClosed bool
		total     int
		keys      []string
	}{
		{api.KeyListRequest{Limit: 100}, false, 7, []string{"a closed", "b open", "c closed", "d open", "pay:x closed", "pay:y closed", "pay:z open"}},
		{api.KeyListRequest{Offset: 1, Limit: 2}, false, 7, []string{"b open", "c closed"}},
		{api.KeyListRequest{Prefix: "pay:", Offset: 1, Limit: 1}, false, 3, []string{"pay:y closed"}},
		{api.KeyListRequest{Prefix: "z", Limit: 2}, false, 0, nil},
		{api.KeyListRequest{Prefix: "pay:", Limit: 2}, true, 1, []string{"pay:z open"}},
		{api.KeyListRequest{Prefix: "c", Limit: 2}, true, 0, nil},
	} {
		keys, total, _ := list(tc.req, tc.notClosed)
		require.Equal(t, tc.keys, keys, "%+v", tc)
		require.Equal(t, tc.total, total, "%+v", tc)
	}
	keys, total, next := list(api.KeyListRequest{Limit: 2}, true)
	require.Equal(t, []string{"b open", "d open"}, keys)
	require.Equal(t, 3, total)
	keys, _, next = list(api.KeyListRequest{Limit: 2, After: next}, true)
	require.Equal(t, []string{"pay:z open"}, keys)
	require.Empty(t, next)
}
