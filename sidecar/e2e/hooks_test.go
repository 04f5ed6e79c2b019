package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConfigIsSeenByLuaAtOnce: the first enqueue after the reply sees the new value.
func TestConfigIsSeenByLuaAtOnce(t *testing.T) {
	c := shared(t).client(t)
	key := unique(t)
	queue := c.newQueue(m{"on_enqueue": `function on_enqueue(msg) return { fairness_key = fila.get("` + key + `") or "unset" } end`})
	k := c.consume(queue, 1)
	see := func(want string) {
		t.Helper()
		c.enqueue(queue, "x")
		d := k.next()
		require.Equal(t, want, d.key())
		c.accepted(d, "")
	}
	see("unset")
	for i := range 20 {
		value := fmt.Sprint("value ", i)
		c.call("fila.admin.config-set."+key, m{"value": value}, nil)
		see(value)
	}
	c.call("fila.admin.config-delete."+key, nil, nil)
	see("unset")
}
