package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// orderedFlight is a delivery of a queue with strict order.
type orderedFlight struct {
	flight
	n int // sequence number within its key
}

// runOrdered runs several consumers on keys with strict order; every fourth message fails once
// or twice. It returns the flights of each key in order.
func runOrdered(t *testing.T, c *client, queue string, keys, n int, nack string) map[string][]orderedFlight {
	var mu sync.Mutex
	byKey := map[string][]orderedFlight{}
	rng := rand.New(rand.NewPCG(5, 6))
	fails := map[string]int{}
	var msgs []*nats.Msg
	for i := range n {
		for key := range keys {
			name := fmt.Sprint("k", key)
			msgs = append(msgs, message(queue, strconv.Itoa(i), "tenant", name))
			if rng.IntN(4) == 0 {
				fails[name+"/"+strconv.Itoa(i)] = 1 + rng.IntN(2)
			}
		}
	}
	done := 0
	w := c.newCrew(defaultVisibility)
	w.join(queue, 3, 4, func() { pause(context.Background(), time.Millisecond) }, func(d delivery) string {
		attempt := d.attempt(t)
		f := orderedFlight{flight: flightOf(t, d, defaultVisibility)}
		f.n, _ = strconv.Atoi(string(d.Data))
		mu.Lock()
		defer mu.Unlock()
		f.end = time.Now().UnixNano() // before the answer is sent
		byKey[d.key()] = append(byKey[d.key()], f)
		if attempt <= fails[d.key()+"/"+string(d.Data)] {
			return nack
		}
		done++
		return ""
	})
	c.enqueueAll(msgs)
	eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return done >= keys*n }, "%s", c.dump(queue))
	w.end()
	c.waitDepth(queue, 0)
	mu.Lock()
	defer mu.Unlock()
	for key, fs := range byKey {
		slices.SortFunc(fs, func(a, b orderedFlight) int { return int(min(max(a.start-b.start, -1), 1)) })
		for i := 1; i < len(fs); i++ {
			require.GreaterOrEqual(t, fs[i].start, fs[i-1].end, "key %s: two in flight: %d and %d", key, fs[i-1].n, fs[i].n)
		}
	}
	require.Len(t, byKey, keys)
	return byKey
}

// TestStrictOrder: several consumers and retries, which keep their place.
func TestStrictOrder(t *testing.T) {
	p := shared(t)
	for name, nack := range map[string]string{"at once": "-NAK", "delayed": "-NAK 20ms"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := p.client(t)
			queue := c.newQueue(m{"fairness_header": "tenant", "ordering": "key"})
			for key, fs := range runOrdered(t, c, queue, 4, 25, nack) {
				want, attempt := 0, 1
				for _, f := range fs {
					if f.n == want+1 {
						want, attempt = f.n, 1
					}
					require.Equal(t, want, f.n, "key %s", key)
					require.Equal(t, attempt, f.attempt, "key %s, message %d", key, f.n)
					attempt++
				}
				require.Equal(t, 24, want)
			}
		})
	}
}
