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

// The model seldom draws what it takes to see that the latest of several times counts.
func TestCooldownIsNotShorterThanRetryAfter(t *testing.T) {
	m := opened(t, 0, Config{})
	m.RetryAfter(sec, 5*sec)
	m.RetryAfter(sec, 4*sec)
	m.SetConfig(Config{Cooldown: time.Second})
	require.Equal(t, 5*sec, m.OpenUntil())
	m.SetConfig(Config{Cooldown: 7 * time.Second})
	require.Equal(t, 7*sec, m.OpenUntil())
}

// An opening without an end stays one, whatever asks for a time, whatever the clock does,
// and after a restart.
func TestOpenUntilClosedByHand(t *testing.T) {
	m := NewMachine(Config{})
	m.Open(1000*sec, math.MaxInt64, HalfOpen)
	m.RetryAfter(1001*sec, 1020*sec)
	n, at := m.Admits(7 * sec)
	require.Equal(t, []int64{0, math.MaxInt64}, []int64{n, at})
	r := NewMachine(Config{})
	r.Restore(5*sec, m.Save())
	require.EqualValues(t, math.MaxInt64, r.OpenUntil())
	require.Equal(t, Change{Open, HalfOpen, 0, 8 * sec}, m.Release(8*sec))
}

func TestRestoreOfNonsense(t *testing.T) {
	r := NewMachine(Config{})
	r.Restore(5, Saved{State: 77, Failures: -4, OpenUntil: math.MinInt64, After: 9})
	n, _ := r.Admits(5)
	require.EqualValues(t, 1, n)
	require.Zero(t, r.Info(5).ConsecutiveFailures)
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
			"freeze": func(*rapid.T) { real = Thaw(m.cfg, real.Freeze()) },
			"": func(t *rapid.T) {
				require.Equal(t, m.state, real.State())
				require.Equal(t, m.info(now), real.Info(now))
				require.Equal(t, m.until(), real.OpenUntil())
				copied, at := real, *m // Admits notes that the clock was set back
				n, when := copied.Admits(now)
				at.rebase(now)
				wantN, wantAt := at.admits(now)
				require.Equal(t, []int64{wantN, wantAt}, []int64{n, when})
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
