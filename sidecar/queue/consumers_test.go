package queue

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestConsumersModel: deliveries go round among those with credit, nobody
// gets more than their credit, and nobody with credit is passed over.
func TestConsumersModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		set := newConsumers(0)
		all := make(map[string]*consumer)
		var order []*consumer // who has credit, the next to be served first
		settle := func(c *consumer) {
			set.update(c)
			at := -1
			for i, o := range order {
				if o == c {
					at = i
				}
			}
			switch {
			case c.credit() > 0 && at < 0:
				order = append(order, c)
			case c.credit() <= 0 && at >= 0:
				order = append(order[:at:at], order[at+1:]...)
			}
		}
		name := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		rt.Repeat(map[string]func(*rapid.T){
			"register": func(rt *rapid.T) {
				n := name.Draw(rt, "name")
				c := set.named(n)
				if old := all[n]; old != nil && old.inFlight > 0 {
					require.Same(rt, old, c, "who returns finds its deliveries counted")
				}
				all[n] = c
				c.gone, c.limit = false, rapid.IntRange(1, 3).Draw(rt, "limit")
				settle(c)
			},
			"leave": func(rt *rapid.T) {
				if c := all[name.Draw(rt, "name")]; c != nil {
					c.gone = true
					settle(c)
				}
			},
			"deliver": func(rt *rapid.T) {
				c := set.next()
				if len(order) == 0 {
					require.Nil(rt, c)
					return
				}
				require.Same(rt, order[0], c, "whose turn it is")
				require.Positive(rt, c.credit())
				order = append(order[1:len(order):len(order)], c)
				c.inFlight++
				settle(c)
			},
			"finish": func(rt *rapid.T) {
				if c := all[name.Draw(rt, "name")]; c != nil && c.inFlight > 0 {
					c.inFlight--
					settle(c)
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
					kept := !c.gone || c.inFlight > 0
					require.Equal(rt, kept, set.byName[n] == c, "%s, gone %v, in flight %d", n, c.gone, c.inFlight)
					if !c.gone {
						registered++
					}
				}
				require.Equal(rt, registered, set.registered())
			},
		})
	})
}

// TestFetchSpendsItsCreditOnce: an ack does not bring a fetch's credit back.
func TestFetchSpendsItsCreditOnce(t *testing.T) {
	c := &consumer{fetch: true, limit: 2}
	require.Equal(t, 2, c.credit())
	c.limit, c.inFlight = 1, 1
	require.Equal(t, 1, c.credit())
	c.inFlight = 0
	require.Equal(t, 1, c.credit())
	c.gone = true
	require.Zero(t, c.credit())
}

func TestRoundRobinIsEven(t *testing.T) {
	set := newConsumers(0)
	for i := range 3 {
		c := set.named(fmt.Sprint("w", i))
		c.gone, c.limit = false, 1000
		set.update(c)
	}
	for range 300 {
		c := set.next()
		c.inFlight++
		set.update(c)
	}
	for name, c := range set.byName {
		require.Equal(t, 100, c.inFlight, name)
	}
}
