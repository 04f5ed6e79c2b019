package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnEnqueueDecidesTheKey(t *testing.T) {
	c := shared(t).client(t)
	queue := unique(t)
	c.createQueue(queue, m{"on_enqueue": `
		function on_enqueue(msg)
			if msg.queue ~= "` + queue + `" then return { fairness_key = "wrong queue" } end
			return { fairness_key = msg.headers["tenant"] .. "/" .. msg.payload_size }
		end`})
	c.enqueue(queue, "12345", "tenant", "acme")
	require.Equal(t, "acme/5", c.consume(queue, 1).next().key())
}

// TestFailingHooksDoNotStopMessages: they go on with the safe defaults.
func TestFailingHooksDoNotStopMessages(t *testing.T) {
	p := shared(t)
	for name, hook := range map[string]string{
		"error":         `function on_enqueue(msg) error("no") end`,
		"nil":           `function on_enqueue(msg) end`,
		"wrong type":    `function on_enqueue(msg) return 5 end`,
		"wrong fields":  `function on_enqueue(msg) return { fairness_key = {}, weight = "x", throttle_keys = 1 } end`,
		"call of nil":   `function on_enqueue(msg) return nothing() end`,
		"weight zero":   `function on_enqueue(msg) return { weight = 0 } end`,
		"key too long":  `function on_enqueue(msg) return { fairness_key = string.rep("k", 300) } end`,
		"infinite cost": `function on_enqueue(msg) return { cost = 1/0, weight = 0/0 } end`,
	} {
		t.Run(name, func(t *testing.T) {
			c := p.client(t)
			queue := c.newQueue(m{"on_enqueue": hook})
			k := c.consume(queue, 1)
			for i := range 5 {
				sent := c.enqueue(queue, fmt.Sprint(i))
				d := k.next()
				require.Equal(t, sent.ID, d.id())
				if name == "key too long" {
					require.LessOrEqual(t, len(d.key()), 256)
				} else {
					require.Equal(t, "default", d.key())
				}
				c.accepted(d, "")
			}
		})
	}
	for name, hook := range map[string]string{
		"on_failure error":        `function on_failure(msg) error("no") end`,
		"on_failure nil":          `function on_failure(msg) end`,
		"on_failure other action": `function on_failure(msg) return { action = "explode" } end`,
		"on_failure bad delay":    `function on_failure(msg) return { action = "retry", delay_ms = "x" } end`,
	} {
		t.Run(name, func(t *testing.T) {
			c := p.client(t)
			queue := c.newQueue(m{"on_failure": hook})
			c.enqueue(queue, "a")
			k := c.consume(queue, 1)
			c.accepted(k.next(), "-NAK")
			d := k.next()
			require.Equal(t, 2, d.attempt(t), "retry at once")
			c.accepted(d, "")
			require.Zero(t, c.depth(queue+".dlq"))
		})
	}
}

// TestConfigIsSeenByLuaAtOnce: the enqueue after the reply sees the value.
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

// TestHooksCanBeChanged: an update acts on the next message.
func TestHooksCanBeChanged(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"on_enqueue": `function on_enqueue(msg) return { fairness_key = "old" } end`})
	k := c.consume(queue, 1)
	c.enqueue(queue, "x")
	d := k.next()
	require.Equal(t, "old", d.key())
	c.accepted(d, "")
	c.call("fila.admin.queue-update."+queue, m{"on_enqueue": `function on_enqueue(msg) return { fairness_key = "new" } end`}, nil)
	c.enqueue(queue, "x")
	d = k.next()
	require.Equal(t, "new", d.key())
	c.accepted(d, "")
	e := c.refused(400, "fila.admin.queue-update."+queue, m{"on_enqueue": "function on_enqueue(msg) return"})
	require.NotEmpty(t, e.Description)
	c.enqueue(queue, "x")
	require.Equal(t, "new", k.next().key(), "a refused update changes nothing")
}

func TestScriptsAreCheckedWhenAQueueIsCreated(t *testing.T) {
	c := shared(t).client(t)
	for name, tt := range map[string]struct {
		settings m
		says     string
	}{
		"syntax":             {m{"on_enqueue": "\n\nfunction on_enqueue(msg) retur x end"}, "3"},
		"no function":        {m{"on_enqueue": "x = 1"}, "on_enqueue"},
		"the other function": {m{"on_failure": "function on_enqueue(msg) end"}, "on_failure"},
		"error at load":      {m{"on_enqueue": `error("at load")`}, ""},
		"not a function":     {m{"on_failure": "on_failure = 5"}, "on_failure"},
	} {
		queue := unique(t)
		e := c.refused(400, "fila.admin.queue-create."+queue, tt.settings)
		require.Contains(t, e.Description, tt.says, "%s", name)
		c.refused(404, "fila.admin.queue-inspect."+queue, nil)
	}
}
