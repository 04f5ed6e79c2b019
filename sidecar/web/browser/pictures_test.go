package browser

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/client"
)

// TestTenants: the tab shows each tenant with what lanes says of it, the order of the next
// deliveries as a picture and as a table, and sorts without script; also where all messages
// wait at a gate.
func TestTenants(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.queue("orders")
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	for i, key := range []string{"acme", "globex", "initech"} {
		for range 30 * (i + 1) {
			f.publish("orders", "x", tenant(key))
		}
	}
	for range 25 {
		f.publish("orders", "x", tenant("acme"), client.Header("Gate", "vendor:stripe"))
	}
	served := 0
	f.consume("orders", "worker", func(ctx context.Context, _ *client.Message) error {
		if served++; served > 40 {
			select {
			case <-over:
			case <-ctx.Done():
			}
		}
		return nil
	}, client.MaxInFlight(4), client.Concurrency(1))
	f.inspected("orders", func(q client.QueueInfo) bool { return q.InFlight == 4 && q.Counters["acked"] >= 40 })

	b.visit("/queues/orders/tenants", "acme", "globex", "initech", "Lanes", "Deliveries per second")
	reply, err := f.c.Lanes(t.Context(), "orders", client.LanesRequest{Limit: 20, Next: 20})
	require.NoError(t, err)
	require.Len(t, reply.Next, 20)
	rows := eval[[]string](b, `[...document.querySelectorAll('.next-deliveries tbody tr')].map(r => r.cells[0].textContent + ' ' + r.cells[1].textContent)`)
	marks := eval[[]string](b, `[...document.querySelectorAll('.lanes-picture .mark')].map(m => m.querySelector('title').textContent.replace(/,.*/s, '')).sort((a, b) => parseInt(a) - parseInt(b))`)
	require.Len(t, rows, 20)
	for i, next := range reply.Next {
		require.Equal(t, strconv.Itoa(i+1)+" "+next.Key, rows[i])
		require.Equal(t, strconv.Itoa(i+1)+": "+next.Key, marks[i])
	}
	for _, l := range reply.Lanes {
		require.Equal(t, []string{strconv.FormatInt(l.Ready, 10), strconv.FormatInt(l.Blocked, 10)},
			eval[[]string](b, `(() => { const r = [...document.querySelectorAll('table.tenants tbody tr')].find(r => r.cells[0].textContent.trim().startsWith(`+quote(l.Key)+`)); return [r.cells[5].textContent, r.cells[6].textContent] })()`), l.Key)
	}
	b.sound("tenants-lanes")

	b.scripts(false)
	b.visit("/queues/orders/tenants", "acme")
	b.follow("Weight")
	b.at("/queues/orders/tenants?sort=weight")
	b.follow("60 min")
	b.at("/queues/orders/tenants?minutes=60&sort=weight")
	b.scripts(true)

	// All wait at one gate, and nothing is ready.
	f.queue("gated")
	for range 20 {
		f.publish("gated", "x", tenant("left"), client.Header("Gate", "vendor:stripe"))
		f.publish("gated", "x", tenant("right"), client.Header("Gate", "vendor:stripe"))
	}
	f.consume("gated", "worker", func(context.Context, *client.Message) error { return nil })
	f.inspected("gated", func(q client.QueueInfo) bool { return q.Parked > 20 && q.Parked == q.Pending })
	b.visit("/queues/gated/tenants", "left", "right", "vendor:stripe")
	require.Equal(t, 20, eval[int](b, `document.querySelectorAll('.lanes-picture .mark.gate').length`))

	// Deliveries over time: the means in the table are the ones of the picture.
	b.visit("/queues/orders/tenants")
	require.True(t, wait(b.ctx, func() bool {
		time.Sleep(500 * time.Millisecond)
		return eval[int](b, `document.querySelectorAll('.stack-means tbody tr').length`) > 0
	}))
}
