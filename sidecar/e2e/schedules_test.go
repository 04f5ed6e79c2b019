package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSchedulesAreKilledOnTheWay: schedules with missed = "all" create the message of each run
// once, however often fila is killed; the queue keeps no dedupe ids.
func TestSchedulesAreKilledOnTheWay(t *testing.T) {
	t.Parallel()
	_, rng := choices(t)
	p := startFila(t, options{})
	c := p.client(t)
	const schedules = 10
	c.createQueue("orders", m{"dedupe_window_ms": 0})
	type schedule struct {
		Name      string `json:"name"`
		CreatedAt string `json:"created_at"`
		Runs      int    `json:"runs"`
		Missed    int    `json:"missed_runs"`
	}
	for i := range schedules {
		c.call("fila.admin.schedule-add.orders", m{"name": fmt.Sprint("s", i), "schedule": "@every 1s", "missed": "all"}, nil)
	}
	for range min(*flagKills, 5) {
		// Near the time of the runs, which is the start of the second.
		now := time.Now()
		time.Sleep(now.Truncate(time.Second).Add(time.Second).Sub(now) + time.Duration(rng.IntN(10))*time.Millisecond)
		c.nc.Close()
		p.Kill9(t)
		p.Restart(t)
		c = p.client(t)
	}
	var list struct {
		Schedules []schedule `json:"schedules"`
	}
	total := 0
	c.call("fila.admin.schedule-list", m{"queue": "orders"}, &list)
	require.Len(t, list.Schedules, schedules)
	made := make(map[string]int)
	created := make(map[string]time.Time)
	for i := range list.Schedules {
		s := &list.Schedules[i]
		c.call("fila.admin.schedule-pause.orders", m{"name": s.Name}, s)
		require.Zero(t, s.Missed)
		at, err := time.Parse(time.RFC3339Nano, s.CreatedAt)
		require.NoError(t, err)
		made[s.Name], created[s.Name] = s.Runs, at.Truncate(time.Second)
		total += s.Runs
	}
	require.GreaterOrEqual(t, total, schedules)
	c.waitDepth("orders", int64(total))
	k := c.consume("orders", 1000)
	seen := make(map[string]bool)
	ids := make(map[string]bool)
	for range total {
		d := k.next()
		name, at := d.Header.Get("Fila-Schedule"), d.Header.Get("Fila-Scheduled-At")
		require.False(t, seen[name+at], "%s ran twice at %s", name, at)
		require.False(t, ids[d.id()])
		seen[name+at], ids[d.id()] = true, true
		require.NoError(t, d.Respond(nil))
	}
	for name, n := range made {
		for i := range n {
			at := created[name].Add(time.Duration(i+1) * time.Second).UTC().Format(time.RFC3339Nano)
			require.True(t, seen[name+at], "%s has not run at %s", name, at)
		}
	}
	c.waitDepth("orders", 0)
}
