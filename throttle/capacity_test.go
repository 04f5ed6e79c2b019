package throttle

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCapacity(t *testing.T) {
	rate := Limits{Rate: PerSecond(2 * One), Burst: 5 * One}
	for name, tc := range map[string]struct {
		limits      Limits
		use         int   // messages that are in flight since start
		pause       int64 // until when the gate is paused
		from, until int64
		want        Capacity
	}{
		"no limits":                     {Limits{}, 3, 0, start, start + sec, Capacity{Messages: Unlimited, Cost: Unlimited}},
		"a rate":                        {rate, 0, 0, start, start + 10*sec, Capacity{Messages: Unlimited, Cost: 25 * One, Burst: 5 * One}},
		"no time":                       {rate, 2, 0, start, start, Capacity{Messages: Unlimited, Cost: 3 * One, Burst: 5 * One}},
		"it fills before":               {rate, 4, 0, start + sec, start + sec, Capacity{Messages: Unlimited, Cost: 3 * One, Burst: 5 * One}},
		"it is full before":             {rate, 4, 0, start + 9*sec, start + 10*sec, Capacity{Messages: Unlimited, Cost: 7 * One, Burst: 5 * One}},
		"a pause within":                {rate, 0, start + 4*sec, start, start + 10*sec, Capacity{Messages: Unlimited, Cost: 17 * One, Burst: 5 * One}},
		"a pause beyond":                {rate, 0, start + 11*sec, start, start + 10*sec, Capacity{}},
		"times of a clock that is late": {rate, 2, 0, start - 9*sec, start - sec, Capacity{Messages: Unlimited, Cost: 3 * One, Burst: 5 * One}},
		"concurrency":                   {Limits{Concurrency: 5}, 2, 0, start, start + 99*sec, Capacity{Messages: 3, Cost: Unlimited}},
		"as many in flight as may be":   {Limits{Concurrency: 2}, 2, 0, start, start + 99*sec, Capacity{Messages: 0, Cost: Unlimited}},
		"a window":                      {Limits{Limit: 3, Window: 10 * sec}, 0, 0, start, start + 25*sec, Capacity{Messages: 9, Cost: Unlimited}},
		"a full window":                 {Limits{Limit: 3, Window: 10 * sec}, 3, 0, start, start + 10*sec - 1, Capacity{Messages: 0, Cost: Unlimited}},
		"a full window that empties":    {Limits{Limit: 3, Window: 10 * sec}, 3, 0, start, start + 10*sec, Capacity{Messages: 3, Cost: Unlimited}},
		"a window, and time at its end": {Limits{Limit: 3, Window: 10 * sec}, 2, 0, start, start + 10*sec - 1, Capacity{Messages: 1, Cost: Unlimited}},
		"a window under a rate":         {Limits{Limit: 100, Window: 10 * sec, Rate: PerSecond(One)}, 0, 0, start, start + 5*sec, Capacity{Messages: 6, Cost: 6 * One, Burst: One}},
		"the least of two":              {Limits{Limit: 3, Window: 10 * sec, Concurrency: 2}, 0, 0, start, start + 25*sec, Capacity{Messages: 2, Cost: Unlimited}},
		"a hundred years of a rate":     {Limits{Rate: PerSecond(1_000_000_000 * One)}, 0, 0, start, Never, Capacity{Messages: Unlimited, Cost: Unlimited, Burst: 1_000_000_000 * One}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGates()
			limit(t, g, "k", tc.limits, start)
			s := set(t, g, "k")
			for range tc.use {
				require.True(t, goes(s, start, One, nil))
			}
			if tc.pause != 0 {
				g.Pause("k", tc.pause, start, nil)
			}
			k := s.Gates()[0]
			before := k.Info(start)
			require.Equal(t, tc.want, k.Capacity(start, tc.from, tc.until))
			require.Equal(t, before, k.Info(start), "it changes nothing")
			require.Equal(t, tc.want, k.Capacity(start, tc.from, tc.until))
		})
	}
}

// A gate with one limit admits exactly what its capacity says to messages of cost 1 that come as soon as
// it admits them, and with several limits not more.
func TestCapacityIsWhatItAdmits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Limits
		which := rapid.IntRange(1, 7).Draw(t, "limits")
		if which&1 != 0 {
			l.Rate, l.Burst = PerSecond(rapid.Int64Range(1, 3*One).Draw(t, "rate")), rapid.Int64Range(1, 5).Draw(t, "burst")*One
		}
		if which&2 != 0 {
			l.Limit, l.Window = rapid.Int64Range(1, 4).Draw(t, "limit"), rapid.Int64Range(1, 8).Draw(t, "window")*sec
		}
		if which&4 != 0 {
			l.Concurrency = rapid.Int64Range(1, 6).Draw(t, "concurrency")
		}
		g := newGates()
		_, err := g.SetLimits("k", l, start, nil)
		require.NoError(t, err)
		s, err := g.Set([]string{"k"}, start)
		require.NoError(t, err)
		now := start
		for range rapid.IntRange(0, 6).Draw(t, "before") {
			now += rapid.Int64Range(0, 2*sec).Draw(t, "pause")
			if grant, _, ok := s.Acquire(now, One, nil); ok && rapid.Bool().Draw(t, "ends") {
				s.Release(&grant, now, nil)
			}
		}
		until := now + rapid.Int64Range(0, 12*sec).Draw(t, "span")
		c := s.Gates()[0].Capacity(now, now, until)
		admitted := int64(0)
		for at := now; at <= until; {
			_, block, ok := s.Acquire(at, One, nil)
			if !ok {
				at = block.At
				continue
			}
			admitted++
		}
		most := c.Messages
		if c.Cost != Unlimited {
			most = min(most, max(c.Cost/One, 0))
		}
		if which&(which-1) == 0 {
			require.Equal(t, most, admitted)
		}
		require.LessOrEqual(t, admitted, most)
	})
}
