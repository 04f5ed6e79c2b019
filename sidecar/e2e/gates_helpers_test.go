package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

const defaultVisibility = 30 * time.Second

// flight is a delivery in the view of its gates. A step reads the clock once and may be
// suspended before it asks a gate, whose clock other queues advance meanwhile. So the gate has
// admitted the delivery between its start and its arrival: on a slow machine a limit cannot
// look exceeded.
type flight struct {
	key, id string
	attempt int
	cost    float64
	start   int64 // Fila-Deadline minus the visibility timeout
	seen    int64 // at the consumer
	end     int64 // fila cannot have known of its end before: when the answer was sent, or the deadline
	process int   // fila process that gave the lease
}

// flightOf returns the flight of a delivery with cost 1 and no answer.
func flightOf(t testing.TB, d delivery, visibility time.Duration) flight {
	t.Helper()
	deadline := d.timeHeader(t, "Fila-Deadline").UnixNano()
	return flight{
		key: d.key(), id: d.id(), attempt: d.attempt(t), cost: 1,
		start: deadline - int64(visibility), seen: d.at.UnixNano(), end: deadline,
	}
}

func sortFlights(fs []flight) {
	slices.SortStableFunc(fs, func(a, b flight) int { return cmp.Compare(a.start, b.start) })
}

// checkRate fails if an interval has more cost than a token bucket admits: max(burst, largest
// cost) + rate * t. The flights must be in order.
func checkRate(fs []flight, rate, burst float64) error {
	if len(fs) == 0 {
		return nil
	}
	bound, first := burst, fs[0].start
	for _, f := range fs {
		bound = max(bound, f.cost)
	}
	least, sum := math.Inf(1), 0.0
	flown := func(until int64) float64 { return rate * float64(until-first) / 1e9 }
	for i, f := range fs {
		least = min(least, sum-flown(f.start))
		sum += f.cost
		if over := sum - flown(f.seen) - least - bound; over > 1e-6 {
			return fmt.Errorf("flight %d of %d: %.3f more than max(burst, cost) %g + %g/s", i+1, len(fs), over, bound, rate)
		}
	}
	return nil
}

// checkWindow fails if a window has more than limit flights. The flights must be in order.
func checkWindow(fs []flight, limit int, window time.Duration) error {
	for i := limit; i < len(fs); i++ {
		if d := time.Duration(fs[i].seen - fs[i-limit].start); d < window {
			return fmt.Errorf("flight %d comes %v after the one %d before it: allowed are %d in %v", i+1, d, limit, limit, window)
		}
	}
	return nil
}

// checkConcurrency fails if more than limit flights overlap.
func checkConcurrency(fs []flight, limit int) error {
	var open []flight
	fs = slices.SortedFunc(slices.Values(fs), func(a, b flight) int { return cmp.Compare(a.seen, b.seen) })
	for i, f := range fs {
		open = slices.DeleteFunc(open, func(o flight) bool { return o.end <= f.seen })
		if open = append(open, f); len(open) > limit {
			return fmt.Errorf("flight %d of %d: %d at once, allowed are %d", i+1, len(fs), len(open), limit)
		}
	}
	return nil
}

func TestCheckersOfGatesFindWhatIsTooMuch(t *testing.T) {
	t.Parallel()
	at := func(ms ...int64) (fs []flight) {
		for _, m := range ms {
			fs = append(fs, flight{cost: 1, start: m * 1e6, seen: m * 1e6, end: (m + 100) * 1e6})
		}
		return fs
	}
	require.NoError(t, checkRate(at(0, 0, 100, 200), 10, 2))
	require.Error(t, checkRate(at(0, 0, 99), 10, 2))
	late := at(0, 0, 99)
	late[2].seen++
	require.Error(t, checkRate(late, 10, 2))
	late[2].seen = 100 * 1e6
	require.NoError(t, checkRate(late, 10, 2), "the gate may have been asked later")
	require.Error(t, checkRate(at(0, 500, 500, 500, 500), 2, 3), "a full bucket holds no more than its burst")
	require.NoError(t, checkRate([]flight{{cost: 5}, {cost: 1, start: 1e9, seen: 1e9}}, 1, 2))
	require.Error(t, checkRate([]flight{{cost: 5}, {cost: 1, start: 9e8, seen: 9e8}}, 1, 2), "the bucket is negative first")
	require.NoError(t, checkWindow(at(0, 0, 500, 500, 1000), 4, time.Second))
	require.Error(t, checkWindow(at(0, 0, 500, 500, 999), 4, time.Second))
	require.NoError(t, checkConcurrency(at(0, 50, 100, 150), 2))
	require.Error(t, checkConcurrency(at(0, 50, 99), 2))
}

// limits sets limits of a throttle key.
func (c *client) limits(key string, limits m) {
	c.t.Helper()
	c.call("fila.admin.throttle-set."+key, limits, nil)
}

// throttleInfo is the part of throttle-show that the tests use.
type throttleInfo struct {
	Key      string  `json:"key"`
	Rate     string  `json:"rate"`
	State    string  `json:"state"`
	Tokens   float64 `json:"tokens"`
	InWindow int64   `json:"in_window"`
	InFlight int64   `json:"in_flight"`
}

func (c *client) throttle(key string) throttleInfo {
	c.t.Helper()
	var info throttleInfo
	c.call("fila.admin.throttle-show."+key, nil, &info)
	require.Equal(c.t, key, info.Key)
	return info
}

// circuitInfo is the part of circuit-show that outlives a restart.
type circuitInfo struct {
	Key                 string `json:"key"`
	State               string `json:"state"`
	ConsecutiveFailures int    `json:"consecutive_failures"`
	OpenUntil           string `json:"open_until"`
	Cause               string `json:"cause"`
}

func (c *client) circuit(key string) circuitInfo {
	c.t.Helper()
	var info circuitInfo
	c.call("fila.admin.circuit-show."+key, nil, &info)
	require.Equal(c.t, key, info.Key)
	return info
}

// gated returns n messages of a fairness key, with payloads from 0 and a throttle key, or none
// if gate is empty.
func gated(queue, tenant, gate string, n int) []*nats.Msg {
	msgs := make([]*nats.Msg, n)
	for i := range msgs {
		msgs[i] = message(queue, strconv.Itoa(i), "tenant", tenant)
		if gate != "" {
			msgs[i].Header.Set("gate", gate)
		}
	}
	return msgs
}

// byHeaders are settings of a queue with all headers.
func byHeaders(more m) m {
	settings := m{
		"fairness_header": "tenant", "weight_header": "weight",
		"throttle_headers": []string{"gate", "gate2"}, "circuit_header": "dest",
	}
	maps.Copy(settings, more)
	return settings
}

// parked waits until n messages of a queue are blocked, and none is ready.
func (c *client) parked(queue string, n int64) {
	c.t.Helper()
	eventually(c.t, func() bool { info := c.inspect(queue); return info.Parked == n && info.Pending == n },
		"%d messages of %s must be parked", n, queue)
}

// backlog returns n messages.
func backlog(queue string, n int) []*nats.Msg { return gated(queue, "x", "", n) }
