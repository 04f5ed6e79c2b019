package browser

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire/api"
)

// TestTenants: the tab shows each tenant with what lanes says of it, the order of the next
// deliveries as a picture and as a table, and sorts without script; also where all messages
// wait at a gate.
func TestTenants(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.queue("orders")
	over := make(chan struct{})
	for i, key := range []string{"acme", "globex", "initech"} {
		for range 30 * (i + 1) {
			f.publish("orders", "x", tenant(key))
		}
	}
	for range 25 {
		f.publish("orders", "x", tenant("acme"), client.Header("Gate", "vendor:stripe"))
	}
	served := 0
	f.consume("orders", "worker", func(context.Context, *client.Message) error {
		if served++; served > 40 {
			<-over
		}
		return nil
	}, client.MaxInFlight(4), client.Concurrency(1))
	t.Cleanup(func() { close(over) }) // before the consumer stops, which waits for its handlers
	f.inspected("orders", func(q api.QueueInfo) bool { return q.InFlight == 4 && q.Counters["acked"] >= 40 })

	b.visit("/queues/orders/tenants", "acme", "globex", "initech", "Lanes", "Deliveries per second")
	reply, err := f.c.Lanes(t.Context(), "orders", api.LanesRequest{Limit: 20, Next: 20})
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
	f.inspected("gated", func(q api.QueueInfo) bool { return q.Parked > 20 && q.Parked == q.Pending })
	require.True(t, wait(b.ctx, func() bool { // for moments the gate admits a message, which is ready then
		b.visit("/queues/gated/tenants", "left", "right", "vendor:stripe")
		return eval[int](b, `document.querySelectorAll('.lanes-picture .mark.gate').length`) == 20
	}))

	// Deliveries over time: the means in the table are the ones of the picture.
	b.visit("/queues/orders/tenants")
	require.True(t, wait(b.ctx, func() bool {
		time.Sleep(500 * time.Millisecond)
		return eval[int](b, `document.querySelectorAll('.stack-means tbody tr').length`) > 0
	}))
}

// TestThrottleOverTime: the charts of a throttle have what the verb says of it, and the marks in them and
// in the list below are the marks of the verb, also on the page of its queue and without script.
func TestThrottleOverTime(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	ctx := t.Context()
	f.queue("orders")
	_, err := f.c.ThrottleSet(ctx, client.ThrottleChange{Key: "vendor:slow", Concurrency: 3})
	require.NoError(t, err)
	for range 10 {
		f.publish("orders", "x", tenant("acme"), client.Header("Gate", "vendor:slow"))
	}
	over := make(chan struct{})
	f.consume("orders", "worker", func(context.Context, *client.Message) error {
		<-over
		return nil
	}, client.MaxInFlight(20), client.Concurrency(20))
	t.Cleanup(func() { close(over) })
	f.inspected("orders", func(q api.QueueInfo) bool { return q.InFlight == 3 && q.Blocked == 7 })
	_, err = f.c.Annotate(ctx, api.AnnotateRequest{Text: "release <3>"})
	require.NoError(t, err)
	_, err = f.c.ThrottleSet(ctx, client.ThrottleChange{Key: "vendor:slow", For: time.Hour, Rate: "5"})
	require.NoError(t, err)
	_, err = f.c.Pause(ctx, api.PauseRequest{Kind: "key", Queue: "orders", Name: "globex"})
	require.NoError(t, err)

	// The verb and the newest point agree once a point has been taken of this state.
	const path = "/gates/throttle?key=vendor:slow"
	b.visit(path, "Marks in the charts", "release <3>", "override rate 5")
	const newest = `(id => JSON.parse(document.getElementById(id).getAttribute('value')).rows.map(r => r.at(-1)).slice(1, 4).join(' '))`
	b.until(`JSON.parse(document.getElementById('depth-points').getAttribute('value')).rows[0].length > 1 && ` + newest + `('depth-points') === '3 7 3'`)
	list, err := f.c.ThrottleList(ctx, "vendor:slow")
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, []int64{3, 7, 3}, []int64{list[0].InFlight, list[0].WaitingMessages, *list[0].Concurrency})
	require.Equal(t, "0 0 5", eval[string](b, newest+`('rates-points')`), "nothing moves, and the override is the limit")
	b.until(`document.querySelectorAll('.chart canvas').length === 2`)

	items := func() []string {
		return eval[[]string](b, `[...document.querySelectorAll('ol.marks li')].map(li => li.value + ' ' + (li.querySelector('.sentence').textContent))`)
	}
	want := func(req api.MarksRequest) (texts []string) {
		t.Helper()
		marks, err := f.c.Marks(ctx, req)
		require.NoError(t, err)
		for i, m := range marks.Marks {
			text := m.Text
			if cut := strings.Index(text, "until 2"); cut >= 0 { // the page has the time in words
				text = text[:cut]
			}
			texts = append(texts, strconv.Itoa(i+1)+" "+text)
		}
		return texts
	}
	same := func(req api.MarksRequest, most int) {
		t.Helper()
		marks, shown := want(req), items()
		require.Len(t, marks, most)
		require.Len(t, shown, most)
		for i := range marks {
			require.True(t, strings.HasPrefix(shown[i], marks[i]), "%s: %s", shown[i], marks[i])
		}
		require.Equal(t, most, eval[int](b, `JSON.parse(document.getElementById('rates-points').getAttribute('value')).marks.length`))
	}
	same(api.MarksRequest{Throttle: "vendor:slow"}, 3)
	b.sound("throttle-over-time")
	b.follow("60 min")
	b.at("/gates/throttle?key=vendor%3Aslow&minutes=60")

	b.visit("/queues/orders", "Marks in the charts", "paused until resumed")
	same(api.MarksRequest{Queue: "orders"}, 4)
	b.scripts(false)
	b.visit(path, "Marks in the charts", "release <3>", "10 min", "60 min")
	require.Len(t, items(), 3)
	b.scripts(true)
}
