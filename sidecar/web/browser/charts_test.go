package browser

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire/api"
)

// detail returns a queue as queue-list has it.
func (f *fila) detail(queue string) api.QueueSummary {
	f.t.Helper()
	list, err := client.Call(f.t.Context(), f.c, api.VerbQueueList, "", api.QueueListRequest{ListRequest: api.ListRequest{Limit: 100}, Detail: true})
	require.NoError(f.t, err)
	for _, q := range list.Queues {
		if q.Name == queue {
			return q
		}
	}
	require.Fail(f.t, "no such queue", queue)
	return api.QueueSummary{}
}

// points returns the data of a chart: times, and the values of each line by its name.
func (b *tab) points(id string) (at []float64, lines map[string][]float64) {
	b.t.Helper()
	var data struct {
		Names []string
		Rows  [][]float64
	}
	require.NoError(b.t, json.Unmarshal([]byte(eval[string](b, `document.getElementById(`+quote(id)+`).value`)), &data))
	lines = make(map[string][]float64)
	for i, name := range data.Names {
		lines[name] = data.Rows[i+1]
	}
	return data.Rows[0], lines
}

// column returns the texts of a column of a table.
func (b *tab) column(rows string, n int) []string {
	b.t.Helper()
	return eval[[]string](b, `[...document.querySelectorAll(`+quote(rows)+`)].map(r => r.cells[`+strconv.Itoa(n)+`].textContent.trim())`)
}

// sum adds numbers as pages write them.
func sum(t *testing.T, texts []string) (n int64) {
	t.Helper()
	for _, text := range texts {
		v, err := strconv.ParseInt(strings.ReplaceAll(text, ",", ""), 10, 64)
		require.NoError(t, err)
		n += v
	}
	return n
}

// TestChartsOfAQueue: rates, depth and heatmap have what queue-list counts.
func TestChartsOfAQueue(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.queue("orders")
	f.publish("orders", "later", tenant("acme"), client.Delay(time.Hour)) // a queue with messages has a history
	b.visit("/queues/orders", "Messages per second")
	before := f.detail("orders").Detail

	for range 20 {
		f.publish("orders", "ack", tenant("acme"))
	}
	time.Sleep(1500 * time.Millisecond) // also the last of them waits for more than a second
	f.consume("orders", "worker", func(_ context.Context, m *client.Message) error {
		switch string(m.Data) {
		case "nack":
			return m.Nack(client.NackOptions{Delay: time.Hour})
		case "term":
			return m.Term("no such order", "")
		}
		return nil
	})
	for range 5 {
		f.publish("orders", "ack", tenant("acme"))
		f.publish("orders", "nack", tenant("acme"))
		f.publish("orders", "nack", tenant("acme"))
		f.publish("orders", "term", tenant("acme"))
	}
	f.inspected("orders", func(q api.QueueInfo) bool { return q.Delayed == 11 && q.Pending+q.InFlight == 0 })
	b.until(`[...document.querySelectorAll('.heat-rows tbody tr')].reduce((n, r) => n + Number(r.cells[1].textContent), 0) >= 40`)

	is := f.detail("orders")
	after := is.Detail
	var long int64
	for i, n := range after.Waits {
		if n -= before.Waits[i]; i > 0 && api.WaitBounds[i-1] >= 1 {
			long += n
		}
	}
	require.EqualValues(t, 40, after.Delivered-before.Delivered)
	require.Equal(t, after.Delivered-before.Delivered, sum(t, b.column(".heat-rows tbody tr", 1)), "deliveries of the heatmap")
	require.GreaterOrEqual(t, long, int64(20))
	require.Equal(t, long, sum(t, b.column(".heat-rows tbody tr", 4)), "waits above a second")
	shaded := eval[int](b, `[...document.querySelectorAll('.heat-picture path')].reduce((n, p) => n + p.getAttribute('d').split('M').length - 1, 0)`)
	require.GreaterOrEqual(t, shaded, 2, "short waits and long ones have cells")

	// A point is about ten seconds long, and all rates of a point have the same length.
	_, rates := b.points("rates-points")
	for name, n := range map[string]int64{
		"enqueued": after.Enqueued - before.Enqueued, "acked": after.Acked - before.Acked, "failed": after.Failed - before.Failed,
		"terminated": after.Terminated - before.Terminated, "dead-lettered": after.DeadLettered - before.DeadLettered,
	} {
		all := 0.0
		for _, rate := range rates[name] {
			all += 10 * rate
		}
		require.Positive(t, n, name)
		require.InEpsilon(t, float64(n), all, 0.25, name)
	}
	require.InEpsilonSlice(t, rates["terminated"], rates["dead-lettered"], 1e-6)

	at, depth := b.points("depth-points")
	require.NotEmpty(t, at)
	for name, n := range map[string]int64{"ready": is.Ready, "blocked": is.Blocked, "delayed": is.Delayed, "in flight": is.InFlight} {
		require.Len(t, depth[name], len(at))
		require.EqualValues(t, n, depth[name][len(at)-1], name)
	}
	b.sound("queue-charts")
}

// TestLifeOfAMessage: the picture has the history that message-show says, to scale.
func TestLifeOfAMessage(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.queue("orders", func(s *client.QueueSettings) { s.MaxDeliveries = new(int64(2)) })
	id := f.publish("orders", "x", tenant("acme"))
	f.inspected("orders", func(q api.QueueInfo) bool { return q.OldestAgeMs > 500 })
	f.consume("orders", "worker", func(_ context.Context, m *client.Message) error {
		return m.Nack(client.NackOptions{Error: "connection refused", Delay: 2 * time.Second})
	})
	f.depth("orders.dlq", 1)
	m, err := f.c.MessageShow(t.Context(), "orders.dlq", id, 0)
	require.NoError(t, err)
	require.Len(t, m.History, 2)
	b.visit("/messages/"+id, "Life")

	from, err := time.Parse(time.RFC3339Nano, m.EnqueuedAt)
	require.NoError(t, err)
	dead, err := time.Parse(time.RFC3339Nano, m.Dead.At)
	require.NoError(t, err)
	percent := func(d time.Duration) float64 { return 100 * d.Seconds() / dead.Sub(from).Seconds() }
	parts := func(kind, attribute string) (list []float64) {
		t.Helper()
		for _, text := range eval[[]string](b, `[...document.querySelectorAll('.life-picture rect.`+kind+`')].map(r => r.getAttribute('`+attribute+`'))`) {
			v, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
			require.NoError(t, err)
			list = append(list, v)
		}
		return list
	}
	var begin []float64
	for i := range m.History {
		at, err := time.Parse(time.RFC3339Nano, m.History[i].At)
		require.NoError(t, err)
		begin = append(begin, percent(at.Sub(from)))
	}
	require.InDeltaSlice(t, begin, parts("failed", "x"), 0.6, "where attempts begin")
	require.EqualValues(t, 2000, m.History[0].DelayMs)
	require.InDelta(t, percent(2*time.Second), parts("backoff", "width")[0], 0.1)
	require.InDelta(t, percent(time.Duration(m.History[0].WaitedMs)*time.Millisecond), parts("wait", "width")[0], 0.1)
	require.Len(t, parts("dead", "x"), 1)
}

// TestDeadLettersPerMinute: the pictures have what dead-rates says, for a queue and for all.
func TestDeadLettersPerMinute(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	for _, name := range []string{"orders", "mails"} {
		f.queue(name, noRetries)
		f.consume(name, "worker", nackByHeader, client.MaxInFlight(50))
		f.kill(name, 6, "acme", "503", "dial tcp 10.0.0.7:5432: i/o timeout")
		f.kill(name, 3, "globex", "402", "card declined")
	}
	for i := range 8 { // more groups than colours
		f.kill("orders", 1, "acme", "E"+strconv.Itoa(i), "x")
	}
	f.depth("orders.dlq", 17)
	f.depth("mails.dlq", 9)
	for _, page := range []struct{ path, queue string }{{"/dead", ""}, {"/queues/orders/dead", "orders"}} {
		b.visit(page.path, "Dead letters per minute")
		if page.queue != "" { // its table has all groups; the ones in the picture have colours
			b.shows("section[aria-labelledby=dead-rates]", "of groups without a colour")
			require.Equal(t, 7, eval[int](b, `document.querySelectorAll('table.groups .swatch').length`))
			require.Equal(t, 8, eval[int](b, `document.querySelectorAll('.stack-picture polygon').length`))
			continue
		}
		want, err := f.c.DeadRates(t.Context(), api.DeadRatesRequest{Queue: page.queue, Minutes: 10, Limit: 7})
		require.NoError(t, err)
		var errs, sums []string
		others := want.Messages
		for _, g := range want.Groups {
			errs, sums = append(errs, g.ErrorCode+" "+g.Error), append(sums, strconv.FormatInt(g.Messages, 10))
			others -= g.Messages
		}
		errs, sums = append(errs, "others"), append(sums, strconv.FormatInt(others, 10))
		require.Equal(t, errs, b.column("table.dead-rates tbody tr", 0), page.path)
		require.Equal(t, sums, b.column("table.dead-rates tbody tr", 2), page.path)
		require.Equal(t, len(errs), eval[int](b, `document.querySelectorAll('.stack-picture polygon').length`))
	}
	b.follow("60 min")
	b.at("/queues/orders/dead?minutes=60")
	b.sound("dead-rates")
	b.visit("/dead")
	b.sound("dead-rates-all")
	b.follow("402 card declined")
	b.shows("main", "Messages that match")
}
