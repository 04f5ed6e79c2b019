package breaker

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const sec = int64(time.Second)

// fail is a call that fails.
func fail(t require.TestingT, m *Machine, now int64) Change {
	p, _ := m.Allow(now)
	require.NotZero(t, p)
	c, counted := m.Done(now, p, Failure)
	require.True(t, counted)
	return c
}

// opened returns a Machine that its failures at time now have opened.
func opened(t require.TestingT, now int64, c Config) *Machine {
	m := NewMachine(c)
	for range m.Config().Threshold {
		fail(t, &m, now)
	}
	require.Equal(t, Open, m.State())
	return &m
}

// TestDefaults is a whole round with the limits that an empty Config means.
func TestDefaults(t *testing.T) {
	m := NewMachine(Config{})
	require.Equal(t, Config{DefaultThreshold, DefaultCooldown, DefaultHalfOpenMaxCalls, DefaultHalfOpenSuccesses}, m.Config())
	for range 2 {
		require.False(t, fail(t, &m, sec).Turned())
	}
	require.Equal(t, Change{Closed, Open, 3, 2 * sec}, fail(t, &m, 2*sec))
	require.Equal(t, 12*sec, m.OpenUntil())
	p, _ := m.Allow(12*sec - 1)
	require.Zero(t, p)
	p, c := m.Allow(12 * sec)
	require.Equal(t, Change{Open, HalfOpen, 3, 12 * sec}, c)
	second, _ := m.Allow(12 * sec)
	require.Zero(t, second, "one probe at a time")
	c, _ = m.Done(13*sec, p, Success)
	require.Equal(t, Change{HalfOpen, Closed, 0, 13 * sec}, c)
}

func TestAPassGivenBackTwice(t *testing.T) {
	m := opened(t, 0, Config{Threshold: 1, HalfOpenMaxCalls: 2, HalfOpenSuccesses: 5})
	p, _ := m.Allow(10 * sec)
	m.Done(10*sec, p, Neutral)
	_, counted := m.Done(10*sec, p, Neutral)
	require.False(t, counted)
	n, _ := m.Admits(10 * sec)
	require.EqualValues(t, 2, n, "at most two probes")
}

func TestTheClockJumpsBack(t *testing.T) {
	m := opened(t, 1000*sec, Config{})
	p, _ := m.Allow(5 * sec) // 995 s back
	require.Zero(t, p)
	require.Equal(t, 15*sec, m.OpenUntil(), "a jump costs one cooldown, not 995 s")

	p, _ = opened(t, math.MinInt64, Config{}).Allow(math.MaxInt64)
	require.NotZero(t, p)
	require.EqualValues(t, math.MaxInt64, opened(t, math.MaxInt64, Config{}).OpenUntil())
}

func TestStateNames(t *testing.T) {
	require.Equal(t, []string{"closed", "open", "half-open", "unknown"},
		[]string{Closed.String(), Open.String(), HalfOpen.String(), State(9).String()})
}

func TestRetryAfter(t *testing.T) {
	for name, tc := range map[string]struct {
		make  func() *Machine
		after State // what the end of it brings
		until int64
	}{
		"closed": {func() *Machine { m := NewMachine(Config{}); return &m }, Closed, 5 * sec},
		"open for its failures": {func() *Machine {
			return opened(t, 0, Config{Cooldown: 2 * time.Second})
		}, HalfOpen, 5 * sec},
		"open for longer": {func() *Machine { return opened(t, 0, Config{}) }, HalfOpen, 10 * sec},
		"half-open": {func() *Machine {
			m := opened(t, 0, Config{Cooldown: 1})
			_, c := m.Allow(1)
			require.Equal(t, HalfOpen, c.New)
			return m
		}, HalfOpen, 5 * sec},
		"paused": {func() *Machine {
			m := NewMachine(Config{})
			m.Open(0, 4*sec, Closed)
			return &m
		}, Closed, 5 * sec},
		"opened by hand": {func() *Machine {
			m := NewMachine(Config{})
			m.Open(0, math.MaxInt64, HalfOpen)
			return &m
		}, HalfOpen, math.MaxInt64},
		"asked before for less": {func() *Machine {
			m := NewMachine(Config{})
			m.RetryAfter(0, 3*sec)
			return &m
		}, Closed, 5 * sec},
	} {
		t.Run(name, func(t *testing.T) {
			m := tc.make()
			was := m.State()
			c := m.RetryAfter(sec, 5*sec)
			require.Equal(t, was != Open, c.Turned())
			require.Equal(t, tc.until, m.OpenUntil())
			m.RetryAfter(sec, 4*sec)
			require.Equal(t, tc.until, m.OpenUntil(), "never shorter")
			n, at := m.Admits(tc.until - 1)
			require.Zero(t, n)
			require.Equal(t, tc.until, at)
			p, _ := m.Allow(tc.until - 1)
			require.Zero(t, p)
			if tc.until == math.MaxInt64 {
				return
			}
			require.Equal(t, tc.after, m.Info(tc.until).State)
			p, c = m.Allow(tc.until)
			require.NotZero(t, p)
			require.Equal(t, Change{Open, tc.after, m.failures, tc.until}, c)
		})
	}
}

func TestRetryAfterKeepsTheFailures(t *testing.T) {
	m := NewMachine(Config{Threshold: 2})
	p, _ := m.Allow(0)
	late, _ := m.Allow(0)
	m.Done(0, p, Failure)
	require.False(t, m.RetryAfter(sec, sec).Turned(), "a time that is over")
	m.RetryAfter(0, sec)
	_, counted := m.Done(0, late, Failure)
	require.False(t, counted)
	p, _ = m.Allow(sec)
	c, _ := m.Done(sec, p, Failure)
	require.Equal(t, Change{Closed, Open, 2, sec}, c)
}

func TestCooldownIsNotShorterThanRetryAfter(t *testing.T) {
	m := opened(t, 0, Config{Cooldown: 10 * time.Second})
	m.RetryAfter(sec, 5*sec)
	require.Equal(t, 10*sec, m.OpenUntil())
	m.SetConfig(Config{Cooldown: time.Second})
	require.Equal(t, 5*sec, m.OpenUntil())
	m.SetConfig(Config{Cooldown: 7 * time.Second})
	require.Equal(t, 7*sec, m.OpenUntil())

	m = opened(t, 0, Config{})
	m.Open(0, 3*sec, Closed)
	m.SetConfig(Config{Cooldown: time.Second})
	require.Equal(t, 3*sec, m.OpenUntil(), "a cooldown does not end what was opened by hand")
}

func TestHowOpeningsByHandEnd(t *testing.T) {
	halfOpen := func() *Machine {
		m := opened(t, 0, Config{Cooldown: 1})
		m.Allow(1)
		return m
	}
	closed := func() *Machine { m := NewMachine(Config{}); return &m }
	for name, tc := range map[string]struct {
		make  func() *Machine
		after State
		want  State
	}{
		"a closed one, paused":     {closed, Closed, Closed},
		"a closed one, opened":     {closed, HalfOpen, HalfOpen},
		"an open one, paused":      {func() *Machine { return opened(t, 0, Config{}) }, Closed, HalfOpen},
		"a half-open one, paused":  {halfOpen, Closed, HalfOpen},
		"a half-open one, opened":  {halfOpen, HalfOpen, HalfOpen},
		"one to be closed, opened": {func() *Machine { m := closed(); m.RetryAfter(0, sec); return m }, HalfOpen, HalfOpen},
		"one to be closed, paused": {func() *Machine { m := closed(); m.RetryAfter(0, sec); return m }, Closed, Closed},
	} {
		t.Run(name, func(t *testing.T) {
			for _, byHand := range []bool{false, true} {
				m := tc.make()
				m.Open(sec, 20*sec, tc.after)
				require.Equal(t, 20*sec, m.OpenUntil())
				if byHand {
					require.Equal(t, Change{Open, tc.want, m.failures, 2 * sec}, m.Release(2*sec))
					require.False(t, m.Release(2*sec).Turned())
				} else {
					require.Equal(t, tc.want == Closed, m.Advance(20*sec).Turned())
				}
				n, _ := m.Admits(20 * sec)
				if tc.want == Closed {
					require.EqualValues(t, math.MaxInt64, n)
				} else {
					require.EqualValues(t, 1, n)
				}
			}
		})
	}
}

func TestResetBeginsAnew(t *testing.T) {
	m := opened(t, 0, Config{})
	require.Equal(t, Change{Open, Closed, 0, sec}, m.Reset(sec))
	p, _ := m.Allow(sec)
	c, _ := m.Done(sec, p, Failure)
	require.False(t, c.Turned())
	require.Equal(t, 1, m.Info(sec).ConsecutiveFailures)

	p, _ = m.Allow(sec)
	require.False(t, m.Reset(sec).Turned(), "it is closed")
	require.Zero(t, m.Info(sec).ConsecutiveFailures)
	_, counted := m.Done(sec, p, Failure)
	require.False(t, counted, "of a call that was under way")
	require.Zero(t, m.Info(sec).ConsecutiveFailures)
}

func TestRestore(t *testing.T) {
	restore := func(m *Machine, now int64) Machine {
		n := NewMachine(m.Config())
		n.Restore(now, m.Save())
		return n
	}
	t.Run("open", func(t *testing.T) {
		r := restore(opened(t, sec, Config{}), 5*sec)
		require.Equal(t, Info{State: Open, ConsecutiveFailures: 3, OpenUntil: 11 * sec}, r.Info(5*sec))
		require.False(t, r.Advance(11*sec).Turned())
		r.SetConfig(Config{Cooldown: 3 * time.Second})
		require.Equal(t, 4*sec, r.OpenUntil(), "it still comes from the cooldown")
	})
	t.Run("half-open", func(t *testing.T) {
		m := opened(t, 0, Config{})
		m.Allow(10 * sec)
		r := restore(m, 11*sec)
		require.Equal(t, HalfOpen, r.Info(11*sec).State)
		p, c := r.Allow(11 * sec)
		require.NotZero(t, p)
		require.Equal(t, Change{Open, HalfOpen, 3, 11 * sec}, c)
	})
	t.Run("closed", func(t *testing.T) {
		m := NewMachine(Config{})
		p, _ := m.Allow(0)
		m.Done(0, p, Failure)
		r := restore(&m, 0)
		require.Equal(t, Info{}, r.Info(0))
	})
	t.Run("retry after", func(t *testing.T) {
		m := NewMachine(Config{})
		m.RetryAfter(0, 5*sec)
		r := restore(&m, sec)
		require.Equal(t, 5*sec, r.OpenUntil())
		require.True(t, r.Advance(5*sec).Turned())
	})
	t.Run("the clock was set back", func(t *testing.T) {
		m := opened(t, 1000*sec, Config{})
		m.RetryAfter(1002*sec, 1020*sec)
		r := restore(m, 7*sec)
		require.Equal(t, 25*sec, r.OpenUntil(), "18 s from now")
		r = restore(opened(t, 1000*sec, Config{}), 7*sec)
		require.Equal(t, 17*sec, r.OpenUntil())
		m.Open(1003*sec, math.MaxInt64, HalfOpen)
		r = restore(m, 7*sec)
		require.EqualValues(t, math.MaxInt64, r.OpenUntil())
	})
	t.Run("nonsense", func(t *testing.T) {
		r := NewMachine(Config{})
		r.Restore(5, Saved{State: 77, Failures: -4, OpenUntil: math.MinInt64, After: 9})
		n, _ := r.Admits(5)
		require.EqualValues(t, 1, n)
		require.Zero(t, r.Info(5).ConsecutiveFailures)
	})
}

func TestAdmits(t *testing.T) {
	m := opened(t, 0, Config{HalfOpenMaxCalls: 2, HalfOpenSuccesses: 9})
	check := func(now, n, at int64) {
		t.Helper()
		gotN, gotAt := m.Admits(now)
		require.Equal(t, []int64{n, at}, []int64{gotN, gotAt})
	}
	check(9*sec, 0, 10*sec)
	check(10*sec, 2, 0)
	require.Equal(t, Open, m.State(), "it was only a look")
	p, _ := m.Allow(10 * sec)
	check(10*sec, 1, 0)
	m.Allow(10 * sec)
	check(10*sec, 0, math.MaxInt64)
	m.Done(10*sec, p, Neutral)
	check(10*sec, 1, 0)
	m.Reset(10 * sec)
	check(10*sec, math.MaxInt64, 0)
	m.Open(100*sec, 200*sec, Closed)
	check(50*sec, 0, 150*sec) // the clock has been set back
}

// TestMachineModel drives a Machine and the model through random histories.
func TestMachineModel(t *testing.T) {
	type ticket struct {
		p     Pass
		phase int
	}
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		m, real := &model{cfg: cfg, after: HalfOpen}, NewMachine(cfg)
		now := int64(1_000_000)
		var tickets []ticket
		same := func(was State, c Change) {
			require.Equal(t, was != m.state, c.Turned())
			if c.Turned() {
				require.Equal(t, Change{was, m.state, m.row, now}, c)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"allow": func(t *rapid.T) {
				was := m.state
				p, c := real.Allow(now)
				require.Equal(t, m.allow(now), p != 0)
				same(was, c)
				if p != 0 {
					tickets = append(tickets, ticket{p, m.phase})
				}
			},
			"done": func(t *rapid.T) {
				if len(tickets) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(tickets)-1).Draw(t, "ticket")
				o := Outcome(rapid.IntRange(0, 2).Draw(t, "outcome"))
				tk := tickets[i]
				tickets = append(tickets[:i], tickets[i+1:]...)
				was, fresh := m.state, tk.phase == m.phase
				m.done(now, tk.phase, o)
				c, counted := real.Done(now, tk.p, o)
				require.Equal(t, fresh, counted)
				same(was, c)
			},
			"clock": func(t *rapid.T) {
				now = max(0, now+rapid.Int64Range(-200, 300).Draw(t, "by"))
			},
			"open": func(t *rapid.T) {
				wait := rapid.Int64Range(0, 100).Draw(t, "for")
				after := rapid.SampledFrom([]State{Closed, HalfOpen}).Draw(t, "after")
				was := m.state
				c := real.Open(now, now+wait, after)
				if m.state == HalfOpen || m.state == Open && m.after == HalfOpen {
					after = HalfOpen
				}
				m.byHand(now, wait, after)
				same(was, c)
			},
			"retry after": func(t *rapid.T) {
				wait := rapid.Int64Range(-5, 150).Draw(t, "for")
				was := m.state
				m.retryAfter(now, wait)
				same(was, real.RetryAfter(now, now+wait))
			},
			"release": func(t *rapid.T) {
				was := m.state
				if m.state == Open {
					m.turn(m.after)
				}
				same(was, real.Release(now))
			},
			"reset": func(t *rapid.T) {
				was := m.state
				m.row = 0
				m.turn(Closed)
				same(was, real.Reset(now))
			},
			"settle": func(t *rapid.T) {
				was := m.state
				if m.state == Open && m.after == Closed && now-m.since >= m.wait {
					m.turn(Closed)
				}
				same(was, real.Advance(now))
			},
			"config": func(t *rapid.T) {
				old := m.cfg.Cooldown
				m.cfg = drawConfig(t)
				real.SetConfig(m.cfg)
				if m.state == Open && !m.forced && m.cfg.Cooldown != old {
					m.wait = max(m.openedAt+int64(m.cfg.Cooldown), m.floor) - m.since
				}
			},
			"restart": func(t *rapid.T) {
				saved := real.Save()
				real = NewMachine(m.cfg)
				real.Restore(now, saved)
				tickets = nil
				switch m.state {
				case Closed:
					m.row = 0
					m.turn(Closed)
				case HalfOpen:
					m.byHand(now, 0, HalfOpen)
				case Open:
					m.rebase(now)
				}
			},
			"": func(t *rapid.T) {
				require.Equal(t, m.state, real.State())
				i := real.Info(now)
				require.Equal(t, m.row, i.ConsecutiveFailures)
				if m.state == HalfOpen {
					require.Equal(t, m.underWay, i.Probes)
				}
				copied, at := real, *m
				n, _ := copied.Admits(now)
				switch at.rebase(now); {
				case at.state == Open && now-at.since < at.wait:
					require.Zero(t, n)
				case at.state == Closed || at.state == Open && at.after == Closed:
					require.EqualValues(t, math.MaxInt64, n)
				default:
					require.EqualValues(t, max(at.cfg.HalfOpenMaxCalls-at.underWay, 0), n)
				}
			},
		})
	})
}

func BenchmarkMachine(b *testing.B) {
	m := NewMachine(Config{})
	b.ReportAllocs()
	for b.Loop() {
		p, _ := m.Allow(1)
		m.Done(1, p, Success)
	}
}
