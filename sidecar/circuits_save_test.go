package sidecar

import (
	"errors"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/store"
)

func TestCircuitsSurviveARestart(t *testing.T) {
	type step = func(r *circuitRig, ci *circuit)
	fail := func(r *circuitRig, ci *circuit) { r.fail(ci, 10) }
	now := func(r *circuitRig) int64 { return r.now.Load() }
	for name, tc := range map[string]struct {
		before step
		down   time.Duration
		n      int64
		in     time.Duration // -1: until told
		state  string
		cause  string
	}{
		"closed":              {func(r *circuitRig, ci *circuit) { r.fail(ci, 9) }, 0, all, 0, "closed", ""},
		"open":                {fail, time.Minute, 0, 4 * time.Minute, "open", "failures"},
		"open, time over":     {fail, time.Hour, 3, 0, "half-open", "failures"},
		"the clock went back": {fail, -time.Hour, 0, 5 * time.Minute, "open", "failures"},
		"half-open": {func(r *circuitRig, ci *circuit) {
			r.fail(ci, 10)
			r.pass(5 * time.Minute)
			r.allow(ci)
		}, 0, 3, 0, "half-open", "failures"},
		"half-open, the clock went back": {func(r *circuitRig, ci *circuit) {
			ci.open(now(r), now(r)+3600*second, breaker.HalfOpen)
			ci.release(now(r))
		}, -time.Minute, 3, 0, "half-open", "by hand"},
		"closed again": {func(r *circuitRig, ci *circuit) {
			r.fail(ci, 10)
			r.pass(5 * time.Minute)
			r.succeed(ci)
		}, 0, all, 0, "closed", ""},
		"by hand, for good": {func(r *circuitRig, ci *circuit) {
			ci.open(now(r), math.MaxInt64, breaker.HalfOpen)
		}, 1000 * time.Hour, 0, -1, "open", "by hand"},
		"by hand, for a time": {func(r *circuitRig, ci *circuit) {
			ci.open(now(r), now(r)+60*second, breaker.HalfOpen)
		}, time.Minute, 3, 0, "half-open", "by hand"},
		"paused": {func(r *circuitRig, _ *circuit) {
			r.cs.pause("stripe", now(r)+60*second)
		}, time.Minute, all, 0, "closed", ""},
		"retry after": {func(r *circuitRig, ci *circuit) {
			ci.retryAfter(now(r), now(r)+60*second)
		}, 59 * time.Second, 0, time.Second, "open", "retry_after"},
		"retry after, time over": {func(r *circuitRig, ci *circuit) {
			ci.retryAfter(now(r), now(r)+60*second)
		}, time.Minute, all, 0, "closed", ""},
		"retry after made it longer": {func(r *circuitRig, ci *circuit) {
			r.fail(ci, 10)
			ci.retryAfter(now(r), now(r)+600*second)
		}, time.Minute, 0, 9 * time.Minute, "open", "failures"},
		"a longer cooldown": {func(r *circuitRig, ci *circuit) {
			r.fail(ci, 10)
			s := r.cs.mu.defaults
			s.breaker.Cooldown = time.Hour
			r.cs.configure(s, nil)
		}, time.Minute, 0, 59 * time.Minute, "open", "failures"},
		"held": {func(r *circuitRig, ci *circuit) {
			s := r.cs.mu.defaults
			s.maxFailures = 4
			r.cs.configure(s, nil)
			r.fail(ci, 5)
		}, time.Hour, 0, -1, "open", "max_failures"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newCircuitRig(t)
			tc.before(r, r.cs.use("stripe"))
			r.disk.commitAll()
			r.pass(tc.down)
			r.restart()
			r.disk.auto = true
			ci := r.cs.use("stripe")
			i := ci.info(r.now.Load())
			require.Equal(t, tc.state, i.State)
			require.Equal(t, tc.cause, i.Cause)
			r.admits(ci, tc.n, tc.in)
			if tc.n != 0 {
				r.succeed(ci)
				r.admits(ci, all, 0)
				r.cs.drop(ci)
				require.Empty(t, r.disk.stored())
				require.Empty(t, r.cs.mu.byKey, "nothing is left of it")
			}
		})
	}
}

func TestRestoreLeavesWhatItCannotRead(t *testing.T) {
	r := newCircuitRig(t)
	r.cs.restore([]store.Entry{
		{Key: "circuit:stripe:threshold", Value: "5"},
		{Key: statePrefix + "circuitous", Value: "x"},
		{Key: circuitState + "broken", Value: "{"},
		{Key: circuitState + "", Value: `{"open_until":9223372036854775807}`},
	}, r.now.Load())
	require.Len(t, r.cs.mu.byKey, 1)
	require.Zero(t, r.disk.mu.writes)
	r.admits(r.cs.use(""), 0, -1)
	r.admits(r.cs.use("broken"), all, 0)
}

func TestCircuitWritesAreCoalesced(t *testing.T) {
	r := newCircuitRig(t)
	ci := r.cs.use("stripe")
	now := r.now.Load()
	ci.open(now, now+second, breaker.HalfOpen)
	for i := range int64(1000) {
		ci.open(now, now+i*second, breaker.HalfOpen)
		ci.close(now, true)
		ci.retryAfter(now, now+(5000-i)*second)
	}
	require.Len(t, r.disk.mu.waiting, 1, "a write is under way")
	require.Equal(t, 1, r.disk.commit())
	require.Contains(t, r.disk.stored()[0].Value, itoa(now+second))
	require.Equal(t, 1, r.disk.commit(), "and one with the latest state")
	require.Contains(t, r.disk.stored()[0].Value, itoa(now+4001*second))
	require.Zero(t, r.disk.commit())

	ci.retryAfter(now, now+9000*second)
	ci.close(now, true)
	r.disk.commitAll()
	require.Empty(t, r.disk.stored())
	writes := r.disk.mu.writes
	r.fail(ci, 9)
	r.succeed(ci)
	ci.close(now, true)
	require.Zero(t, r.disk.commit(), "nothing that matters after a restart")
	require.Equal(t, writes, r.disk.mu.writes)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func TestCircuitSync(t *testing.T) {
	r := newCircuitRig(t)
	ci := r.cs.use("stripe")
	require.NoError(t, ci.sync(), "there is nothing to write")
	ci.open(r.now.Load(), math.MaxInt64, breaker.HalfOpen)
	var order []string
	ci.flush(func(err error) { order = append(order, "first"); require.NoError(t, err) })
	ci.close(r.now.Load(), true)
	ci.flush(func(err error) { order = append(order, "second"); require.NoError(t, err) })
	require.Empty(t, order)
	r.disk.commit()
	require.Empty(t, order, "the write under way may be of before")
	r.disk.commit()
	require.Equal(t, []string{"first", "second"}, order)
	require.Empty(t, r.disk.stored())

	ci.open(r.now.Load(), math.MaxInt64, breaker.HalfOpen)
	stopped := make(chan struct{})
	go func() { r.cs.stop(); close(stopped) }()
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
	ci.close(r.now.Load(), true)
	require.ErrorIs(t, ci.sync(), r.disk.mu.err)
}

func TestForgettingCircuits(t *testing.T) {
	r := newCircuitRig(t)
	r.disk.auto = true
	live := func() int { return len(r.cs.mu.byKey) }
	use := func(key string, do func(ci *circuit)) {
		ci := r.cs.use(key)
		do(ci)
		r.cs.drop(ci)
	}
	use("fine", func(ci *circuit) { r.succeed(ci) })
	require.Zero(t, live())

	use("failed", func(ci *circuit) { r.fail(ci, 9) })
	use("failed", func(ci *circuit) { r.fail(ci, 1) })
	require.Equal(t, "closed -> open: failures", r.news(), "few messages can open it too")
	require.Len(t, r.disk.stored(), 1)
	r.pass(5 * time.Minute)
	use("failed", r.succeed)
	require.Zero(t, live())
	require.Empty(t, r.disk.stored())

	use("asked", func(ci *circuit) { ci.retryAfter(r.now.Load(), r.now.Load()+second) })
	require.Equal(t, 1, live())
	r.pass(time.Second)
	use("another", func(*circuit) {})
	require.Zero(t, live(), "its time is over")
	require.Empty(t, r.disk.stored())

	limits := r.cs.mu.defaults
	limits.maxFailures = 3
	r.cs.configure(limits, nil)
	use("window", func(ci *circuit) { r.fail(ci, 1); r.succeed(ci) })
	require.Equal(t, 1, live(), "the failure still counts")
	r.pass(time.Minute)
	use("another", func(*circuit) {})
	require.Zero(t, live())

	r.cs.configure(limits, map[string]circuitSettings{"set": limits})
	use("set", func(*circuit) {})
	require.Equal(t, 1, live())
	r.cs.configure(limits, nil)
	use("another", func(*circuit) {})
	require.Zero(t, live(), "not configured any more")

	a, b := r.cs.use("twice"), r.cs.use("twice")
	require.Same(t, a, b)
	r.cs.drop(a)
	require.Equal(t, 1, live())
	r.cs.drop(b)
	require.Zero(t, live())
	c := r.cs.use("twice")
	require.NotSame(t, a, c)
	r.cs.settle(a)
	require.Same(t, c, r.cs.use("twice"), "the one before has no say in it")
}

func TestUnusedCircuitsAreBounded(t *testing.T) {
	r := newCircuitRig(t)
	r.disk.auto = true
	r.cs.maxIdle = 10
	used := r.cs.use("used")
	r.fail(used, 1)
	for i := range 100 {
		ci := r.cs.use("failed " + itoa(int64(i)))
		r.fail(ci, 1)
		r.cs.drop(ci)
		ci = r.cs.use("open " + itoa(int64(i)))
		r.fail(ci, 10)
		r.cs.drop(ci)
	}
	require.LessOrEqual(t, len(r.cs.mu.byKey), 100+10+1+2, "what is shut must stay")
	require.Len(t, r.disk.stored(), 100)
	r.news()
	r.pass(5 * time.Minute)
	for i := range 100 {
		ci := r.cs.use("failed " + itoa(int64(i)))
		r.fail(ci, 1)
		r.cs.drop(ci)
	}
	require.LessOrEqual(t, len(r.cs.mu.byKey), 10+1+2)
	require.Contains(t, r.news(), "open -> closed: unused")
	require.LessOrEqual(t, len(r.disk.stored()), 10)
	require.Equal(t, 1, used.info(r.now.Load()).ConsecutiveFailures)
}

func TestListingCircuits(t *testing.T) {
	r := newCircuitRig(t)
	limits := r.cs.mu.defaults
	limits.breaker.Threshold = 7
	r.cs.configure(r.cs.mu.defaults, map[string]circuitSettings{"b": limits, "pay:x": limits})
	for _, key := range []string{"c", "pay:y", "a", "b"} {
		r.cs.use(key)
	}
	r.fail(r.cs.use("b"), 7)
	list := func(prefix string, offset, limit int) (keys []string, total int) {
		infos, total := r.cs.list(prefix, offset, limit, r.now.Load())
		require.NotNil(t, infos)
		for _, i := range infos {
			keys = append(keys, i.Key+" "+i.State)
		}
		return keys, total
	}
	keys, total := list("", 0, 100)
	require.Equal(t, []string{"a closed", "b open", "c closed", "pay:x closed", "pay:y closed"}, keys)
	require.Equal(t, 5, total)
	keys, total = list("", 1, 2)
	require.Equal(t, []string{"b open", "c closed"}, keys)
	require.Equal(t, 5, total)
	keys, total = list("pay:", 1, 2)
	require.Equal(t, []string{"pay:y closed"}, keys)
	require.Equal(t, 2, total)
	keys, total = list("z", 0, 2)
	require.Empty(t, keys)
	require.Zero(t, total)
}
