package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// logged is an entry of the audit log.
type logged struct {
	Seq  uint64  `json:"seq"`
	Time string  `json:"time"`
	Key  string  `json:"key"`
	Old  *string `json:"old"`
	New  *string `json:"new"`
	By   string  `json:"by"`
}

func (c *client) auditLog(prefix string) []logged {
	c.t.Helper()
	var out struct {
		Total   int      `json:"total"`
		Entries []logged `json:"entries"`
	}
	c.call("fila.admin.config-log", m{"prefix": prefix, "limit": 1000}, &out)
	require.Len(c.t, out.Entries, out.Total)
	return out.Entries
}

// TestEveryChangeIsLogged with the old value and the new one, over restarts.
func TestEveryChangeIsLogged(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{tail: "[[throttle]]\nkey = \"filed\"\nrate = 5\n"})
	c := p.client(t)
	start := time.Now().Add(-time.Minute)
	c.set("throttle:x:rate", "1")
	c.set("throttle:x:rate", "2")
	c.limits("x", m{"rate": 3, "burst": 4})
	c.limits("x", m{"rate": 9, "for_ms": 1})
	eventually(t, func() bool { return c.throttle("x").Source == "operator" })
	c.call("fila.admin.throttle-clear.x", nil, nil)
	c.call("fila.admin.pause", m{"kind": "throttle", "name": "x"}, nil)
	c.call("fila.admin.resume", m{"kind": "throttle", "name": "x"}, nil)
	c.set("weight:q:a", "2")
	c.call("fila.admin.config-delete.weight:q:a", nil, nil)
	c.set("throttle:filed:rate", "6")
	want := [][4]string{ // newest first
		{"throttle:filed:rate", "5", "6", "config-set"},
		{"weight:q:a", "2", "", "config-delete"},
		{"weight:q:a", "", "2", "config-set"},
		{"pause:throttle:x", "until resumed", "", "resume"},
		{"pause:throttle:x", "", "until resumed", "pause"},
	}
	check := func(entries []logged, want [][4]string) {
		t.Helper()
		require.GreaterOrEqual(t, len(entries), len(want))
		text := func(s *string) string {
			if s == nil {
				return ""
			}
			return *s
		}
		for i, w := range want {
			e := entries[i]
			require.Equal(t, w, [4]string{e.Key, text(e.Old), text(e.New), e.By})
		}
		for i, e := range entries {
			require.True(t, timeOf(t, e.Time).After(start))
			if i > 0 {
				require.Less(t, e.Seq, entries[i-1].Seq)
			}
		}
	}
	check(c.auditLog(""), want)
	entries := c.auditLog("throttle:x:")
	var seen []string
	for _, e := range entries {
		seen = append(seen, e.By)
	}
	require.Equal(t, []string{
		"throttle-clear", "throttle-clear", "override-ended", "throttle-set", "throttle-set", "throttle-set", "config-set", "config-set",
	}, seen)
	all := c.auditLog("")
	require.Equal(t, "file", all[len(all)-1].By)
	p.Kill9(t)
	p.Restart(t)
	c = p.client(t)
	check(c.auditLog(""), append([][4]string{{"throttle:filed:rate", "6", "5", "file"}}, want...))
	require.Equal(t, all, c.auditLog("")[1:])
	var page struct {
		Total   int      `json:"total"`
		Entries []logged `json:"entries"`
	}
	c.call("fila.admin.config-log", m{"offset": 2, "limit": 2}, &page)
	require.Equal(t, all[1:3], page.Entries)
	require.Equal(t, len(all)+1, page.Total)
}

// TestLimitsSurviveARestart: overrides with their end, and what operators set.
func TestLimitsSurviveARestart(t *testing.T) {
	twice(t, func(t *testing.T, restart func(*testing.T, *proc)) {
		p := startFila(t, options{})
		c := p.client(t)
		c.limits("a", m{"concurrency": 2, "limit": 5, "window_ms": 3_600_000})
		c.limits("b:*", m{"rate": "1/3"})
		over := c.limits("a", m{"concurrency": 1, "for_ms": 3_600_000})
		c.limits("short", m{"rate": 1, "for_ms": 1})
		restart(t, p)
		c = p.client(t)
		info := c.throttle("a")
		require.Equal(t, over.OverrideUntil, info.OverrideUntil)
		require.EqualValues(t, 1, info.Concurrency)
		require.EqualValues(t, 5, info.Limit)
		require.Equal(t, "1/3", c.throttle("b:1").Rate)
		c.refused(404, "fila.admin.throttle-show.short", nil)
	})
}

// TestGatesOverACleanStop are as they were, and after a crash used up.
func TestGatesOverACleanStop(t *testing.T) {
	t.Parallel()
	for name, crash := range map[string]bool{"graceful": false, "kill -9": true} {
		t.Run(name, func(t *testing.T) {
			p := startFila(t, options{})
			c := p.client(t)
			c.createQueue("q", byHeaders(nil))
			c.limits("rate", m{"rate": seldom, "burst": 5})
			c.limits("window", m{"limit": 5, "window_ms": 3_600_000})
			c.limits("places", m{"concurrency": 3})
			c.enqueueAll(gated("q", "a", "rate", 2))
			c.enqueueAll(gated("q", "a", "window", 2))
			k := c.consume("q", 10)
			k.drain(4)
			c.enqueueAll(gated("q", "a", "places", 5))
			for _, d := range k.take(3)[:2] {
				c.accepted(d, "+WPI") // known to be on disk
			}
			k.leave()
			if crash {
				p.Kill9(t)
			} else {
				require.Zero(t, p.Stop(t))
			}
			p.Restart(t)
			c = p.client(t)
			places := c.throttle("places").InFlight
			if crash {
				require.LessOrEqual(t, int64(2), places, "leases that were on disk")
				require.Equal(t, "rate", c.throttle("rate").State)
				require.InDelta(t, 0, c.throttle("rate").Tokens, 0.001)
				require.Equal(t, "window", c.throttle("window").State)
			} else {
				require.EqualValues(t, 3, places)
				require.InDelta(t, 3, c.throttle("rate").Tokens, 0.001)
				require.EqualValues(t, 2, c.throttle("window").InWindow)
			}
			c.enqueueAll(gated("q", "a", "rate", 5))
			c.enqueueAll(gated("q", "a", "window", 5))
			k = c.consume("q", 20)
			if !crash {
				got := map[string]int{}
				for _, d := range k.drain(6) {
					got[d.Header.Get("gate")]++
				}
				require.Equal(t, map[string]int{"rate": 3, "window": 3}, got)
			}
			c.parked("q", map[bool]int64{true: 12, false: 6}[crash])
			for range 3 - places {
				d := k.next() // its lease had not reached the disk
				require.Equal(t, "places", d.Header.Get("gate"))
			}
			k.none()
			require.EqualValues(t, 3, c.throttle("places").InFlight)
		})
	}
}
