package shard

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/deadletter"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// grouped returns the nonempty groups of the dead letters of q as lines, and how many messages of
// all groups were redriven (left) and came back.
func (r *rig) grouped(q *Queue) (lines []string, left, back int64) {
	r.t.Helper()
	all, err := q.DLQ().Groups(100)
	require.Nil(r.t, err)
	require.Equal(r.t, q.DLQ().Depth(), all.Messages)
	require.Equal(r.t, len(all.Groups), all.Total)
	sum := all.Other
	for _, g := range all.Groups {
		keys := ""
		for _, k := range g.Keys {
			keys += fmt.Sprintf(" %s:%d", k.Key, k.Messages)
		}
		left, back = left+g.Left, back+g.CameBack
		if g.Messages == 0 {
			require.Empty(r.t, g.First+g.Last+g.Sample)
			continue
		}
		lines = append(lines, fmt.Sprintf("%d [%s] %s%s", g.Messages, g.ErrorCode, g.Error, keys))
		sum += g.Messages
		require.Equal(r.t, "orders", g.SourceQueue)
		require.Len(r.t, r.found(q.DLQ(), `{"error_group":"`+g.Group+`"}`, 1000), int(g.Messages), "the filter means the same")
		require.Len(r.t, r.found(q.DLQ(), `{"ids":["`+g.Sample+`"],"error_group":"`+g.Group+`"}`, 1000), 1, "the sample is one of them")
	}
	require.Equal(r.t, all.Messages, sum)
	return lines, left, back
}

// groupLines returns the first result of grouped.
func (r *rig) groupLines(q *Queue) []string {
	lines, _, _ := r.grouped(q)
	return lines
}

// TestDeadLettersAreGrouped by their errors; each listing includes all changes.
func TestDeadLettersAreGrouped(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) { s.MaxDeliveries = new(int64(1)); s.FairnessHeader = "tenant" })
		require.Empty(t, r.groupLines(q))
		n := 0
		bury := func(tenant, code, text string) {
			t.Helper()
			n++
			r.consume(q, "w", 1)
			require.Nil(t, r.enqueue(fmt.Sprint(n), "", nat("tenant", tenant)))
			r.ack(r.one("w"), wire.Ack{Kind: wire.AckNack, Error: text, ErrorCode: code}, "")
			require.True(t, q.Tell(queue.Leave{Consumer: "w"}))
			time.Sleep(time.Second)
		}
		bury("a", "", "order 17 is gone")
		bury("b", "", "order 4711 is gone")
		bury("b", "402", "order 4711 is gone")
		bury("b", "", "")
		require.ElementsMatch(t, []string{"2 [] order # is gone a:1 b:1", "1 [] max_deliveries b:1", "1 [402] order # is gone b:1"}, r.groupLines(q))
		rates := api.DeadRates{Other: make([]int64, 60)}
		q.DeadRates(&rates, r.Now())
		require.EqualValues(t, 4, rates.Messages, "the same by minute")
		var groups []string
		for _, g := range rates.Groups {
			groups = append(groups, fmt.Sprintf("%d [%s] %s", g.Messages, g.ErrorCode, g.Error))
		}
		require.ElementsMatch(t, []string{"2 [] order # is gone", "1 [] max_deliveries", "1 [402] order # is gone"}, groups)
		before, err := q.DLQ().Groups(1)
		require.Nil(t, err)
		require.Equal(t, 3, before.Total)
		require.Len(t, before.Groups, 1)

		bury("c", "402", "order 1 is gone")
		bury("c", "402", "order 2 is gone")
		require.Equal(t, []string{"3 [402] order # is gone c:2 b:1", "2 [] order # is gone a:1 b:1", "1 [] max_deliveries b:1"}, r.groupLines(q))
		after, err := q.DLQ().Groups(100)
		require.Nil(t, err)
		require.Equal(t, before.Groups[0], after.Groups[1], "nothing of it has changed")
		require.Less(t, after.Groups[1].First, after.Groups[1].Last)

		require.Nil(t, r.redrive(q, 2, 2))
		require.Equal(t, []string{"3 [402] order # is gone c:2 b:1", "1 [] max_deliveries b:1"}, r.groupLines(q))
		r.consume(q, "w", 10)
		synctest.Wait()
		for _, m := range r.conn.take("w") {
			r.ack(m, wire.Ack{Kind: wire.AckNack, Error: "order 5 is gone", ErrorCode: "402"}, "")
		}
		time.Sleep(time.Second)
		lines, left, back := r.grouped(q)
		require.Equal(t, []string{"5 [402] order # is gone b:2 c:2 a:1", "1 [] max_deliveries b:1"}, lines)
		require.Equal(t, []int64{2, 2}, []int64{left, back})
		all, err := q.DLQ().Groups(100)
		require.Nil(t, err)
		require.EqualValues(t, 2, all.Groups[2].CameBack, "of the group that they were redriven from")
		require.Equal(t, before.Groups[0].Group, all.Groups[2].Group, "the group is listed without messages")
		require.Equal(t, before.Groups[0].Error, all.Groups[2].Error)
		require.EqualValues(t, 2, all.Groups[2].Left)

		_, _, _, err = q.DLQ().Purge(0, 0)
		require.Nil(t, err)
		lines, left, back = r.grouped(q)
		require.Empty(t, lines)
		require.Equal(t, []int64{2, 0}, []int64{left, back}, "what is removed has not been redriven")
		bury("d", "1", "again")
		require.Equal(t, []string{"1 [1] again d:1"}, r.groupLines(q))
	})
}

// TestRedrivesAreKept with what they do, and histories say what came back, so both survive
// restarts.
func TestRedrivesAreKept(t *testing.T) {
	bubble(t, func(r *rig) {
		r.create(func(s *wire.QueueSettings) { s.MaxDeliveries = new(int64(1)) })
		_, werr := r.Create(wire.DefaultQueueSettings("by-hand"))
		require.Nil(t, werr)
		die := func(r *rig, text string, n int) {
			t.Helper()
			r.consume(r.Queue("orders"), "w", 100)
			dead := r.conn.take("w")
			require.Len(t, dead, n)
			for _, m := range dead {
				r.ack(m, wire.Ack{Kind: wire.AckNack, Error: text}, "")
			}
			require.True(t, r.Queue("orders").Tell(queue.Leave{Consumer: "w"}))
			time.Sleep(time.Second)
		}
		for i := range 10 {
			require.Nil(t, r.enqueue(fmt.Sprint(i), "", nil))
		}
		die(r, "boom 17", 10)
		told := func(r *rig) (lines []string) {
			t.Helper()
			all, werr := r.Queue("orders").DLQ().Groups(100)
			require.Nil(t, werr)
			for _, g := range all.Groups {
				lines = append(lines, fmt.Sprintf("%s: %d there, %d left, %d came back", g.Error, g.Messages, g.Left, g.CameBack))
			}
			return lines
		}
		job := func(r *rig, op string, limit int64) {
			t.Helper()
			req := api.JobCreateRequest{Queue: "orders.dlq", Op: op, Filter: &api.Filter{All: true}, Limit: limit, Order: api.OrderArrival}
			if op == api.JobMove {
				req.To = "by-hand"
			}
			j, werr := r.Queue("orders").DLQ().CreateJob(req)
			require.Nil(t, werr)
			time.Sleep(time.Second)
			j, werr = r.Job(j.ID)
			require.Nil(t, werr)
			require.Equal(t, []any{api.JobDone, limit}, []any{j.State, j.Done})
		}
		job(r, api.JobRedrive, 3) // before anybody has asked for groups
		want := []string{"boom #: 7 there, 3 left, 0 came back"}
		require.Equal(t, want, told(r))
		next := r.restart()
		require.Equal(t, want, told(next))
		die(next, "bang", 3)
		want = []string{"boom #: 7 there, 3 left, 3 came back", "bang: 3 there, 0 left, 0 came back"}
		require.Equal(t, want, told(next))
		next = next.restart()
		require.Equal(t, want, told(next))
		job(next, api.JobRedrive, 4)
		job(next, api.JobMove, 2)
		job(next, api.JobDelete, 1)
		want = []string{"boom #: 3 there, 4 left, 0 came back", "bang: 0 there, 3 left, 0 came back"}
		require.Equal(t, want, told(next), "what is moved or deleted does not count")
		next = next.restart()
		require.Equal(t, want, told(next))

		time.Sleep(deadletter.KeptFor)
		require.Equal(t, []string{"boom #: 3 there, 0 left, 0 came back"}, told(next), "that was long ago")
		require.Len(t, next.keptOf("\x00redriven/"), 2)
		job(next, api.JobRedrive, 1)
		require.Equal(t, []string{"boom #: 2 there, 1 left, 0 came back"}, told(next))
		require.Len(t, next.keptOf("\x00redriven/"), 1)

		_, werr = next.Queue("orders").Delete("", true)
		require.Nil(t, werr)
		require.Empty(t, next.keptOf("\x00redriven/"))
		next.create(nil)
		require.Empty(t, told(next), "another queue of that name")
		next.end()
	})
}

// TestRedrivenMessagesCountOnce, however often they come back; and the times of a job say which messages
// it has redriven.
func TestRedrivenMessagesCountOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) { s.MaxDeliveries = new(int64(1)) })
		for i := range 3 {
			require.Nil(t, r.enqueue(fmt.Sprint(i), "", nil))
		}
		die := func() {
			r.consume(q, "w", 100)
			for _, m := range r.conn.take("w") {
				r.ack(m, wire.Ack{Kind: wire.AckNack, Error: "boom"}, "")
			}
			require.True(t, q.Tell(queue.Leave{Consumer: "w"}))
			time.Sleep(time.Second)
		}
		redrive := func(limit int64) (since, until int64) {
			since = r.Now()
			_, werr := q.DLQ().CreateJob(api.JobCreateRequest{Queue: "orders.dlq", Op: api.JobRedrive, Filter: &api.Filter{All: true}, Limit: limit, Order: api.OrderArrival})
			require.Nil(t, werr)
			time.Sleep(time.Second)
			return since, r.Now() - 1
		}
		counts := func() []int64 {
			all, werr := q.DLQ().Groups(10)
			require.Nil(t, werr)
			require.Len(t, all.Groups, 1)
			return []int64{all.Groups[0].Messages, all.Groups[0].Left, all.Groups[0].CameBack}
		}
		back := func(since, until int64) int64 {
			n, werr := q.DLQ().CameBack(since, until)
			require.Nil(t, werr)
			return n
		}
		die()
		since, until := redrive(2)
		require.Equal(t, []int64{1, 2, 0}, counts())
		die()
		require.Equal(t, []int64{3, 2, 2}, counts())
		require.EqualValues(t, 2, back(since, until))
		require.Zero(t, back(until+1, r.Now()))
		redrive(3)
		require.Equal(t, []int64{0, 3, 0}, counts(), "two of them a second time")
		require.Zero(t, back(since, until), "nobody knows yet")
	})
}

// keptOf returns the keys with a prefix in the store.
func (r *rig) keptOf(prefix string) (keys []string) {
	r.t.Helper()
	snap, err := r.store.Snapshot()
	require.NoError(r.t, err)
	for _, e := range snap.Config {
		if strings.HasPrefix(e.Key, prefix) {
			keys = append(keys, e.Key)
		}
	}
	return keys
}
