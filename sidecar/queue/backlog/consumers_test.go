package backlog

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestConsumersModel: deliveries go round among consumers with credit; no consumer
// exceeds its credit, and none with credit is passed over.
func TestConsumersModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		set := newConsumers(0)
		all := make(map[string]*Consumer)
		var order []*Consumer // consumers with credit, the next to be served first
		update := func(c *Consumer) {
			set.Update(c)
			at := -1
			for i, o := range order {
				if o == c {
					at = i
				}
			}
			switch {
			case c.Credit() > 0 && at < 0:
				order = append(order, c)
			case c.Credit() == 0 && at >= 0:
				order = append(order[:at:at], order[at+1:]...)
			}
		}
		name := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		rt.Repeat(map[string]func(*rapid.T){
			"register": func(rt *rapid.T) {
				n := name.Draw(rt, "name")
				c := set.Named(n)
				if old := all[n]; old != nil && old.InFlight > 0 {
					require.Same(rt, old, c, "a consumer that returns finds its deliveries counted")
				}
				all[n] = c
				c.Gone, c.Limit = false, rapid.IntRange(1, 3).Draw(rt, "limit")
				update(c)
			},
			"leave": func(rt *rapid.T) {
				if c := all[name.Draw(rt, "name")]; c != nil {
					c.Gone = true
					update(c)
				}
			},
			"deliver": func(rt *rapid.T) {
				c := set.Next()
				if len(order) == 0 {
					require.Nil(rt, c)
					return
				}
				require.Same(rt, order[0], c, "the next in the ring")
				require.Positive(rt, c.Credit())
				order = append(order[1:len(order):len(order)], c)
				c.InFlight++
				update(c)
			},
			"finish": func(rt *rapid.T) {
				if c := all[name.Draw(rt, "name")]; c != nil && c.InFlight > 0 {
					c.InFlight--
					update(c)
				}
			},
			"": func(rt *rapid.T) {
				at := set.ring
				for i, c := range order {
					require.Same(rt, c, at, "position %d of %d", i, len(order))
					at = at.next
				}
				require.Same(rt, set.ring, at)
				registered := 0
				for n, c := range all {
					kept := !c.Gone || c.InFlight > 0
					require.Equal(rt, kept, set.ByName[n] == c, "%s, gone %v, in flight %d", n, c.Gone, c.InFlight)
					if !c.Gone {
						registered++
					}
				}
				require.Equal(rt, registered, set.Registered())
			},
		})
	})
}

// TestFetchSpendsItsCreditOnce: an ack does not bring a fetch's credit back.
func TestFetchSpendsItsCreditOnce(t *testing.T) {
	c := &Consumer{Fetch: true, Limit: 2}
	require.Equal(t, 2, c.Credit())
	c.Limit, c.InFlight = 1, 1
	require.Equal(t, 1, c.Credit())
	c.InFlight = 0
	require.Equal(t, 1, c.Credit())
	c.Gone = true
	require.Zero(t, c.Credit())
}
