package shard

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/wire"
)

// grouped returns the groups of the dead letters of q that have some as lines, and how many
// are gone of all groups, and came back.
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
	vacant, g := 0, &q.DLQ().groups
	for _, n := range g.number {
		if g.known[n].count == 0 {
			vacant++
		}
	}
	require.Equal(r.t, vacant, g.vacant)
	return lines, left, back
}

// groupLines is grouped without the rest.
func (r *rig) groupLines(q *Queue) []string {
	lines, _, _ := r.grouped(q)
	return lines
}

// TestDeadLettersAreGrouped by their errors, and what comes and goes is seen whenever
// somebody asks.
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
		require.Equal(t, []int64{2, 2}, []int64{left, back}, "whatever they died of")
		all, err := q.DLQ().Groups(100)
		require.Nil(t, err)
		require.Equal(t, before.Groups[0].Group, all.Groups[2].Group, "it is known without messages")
		require.EqualValues(t, 2, all.Groups[2].CameBack)

		_, _, _, err = q.DLQ().Purge(0, 0)
		require.Nil(t, err)
		lines, left, back = r.grouped(q)
		require.Empty(t, lines)
		require.Equal(t, []int64{8, 2}, []int64{left, back})
		g := &q.DLQ().groups
		require.Len(t, g.keys.free, len(g.keys.names)-1)
		bury("d", "1", "again")
		require.Equal(t, []string{"1 [1] again d:1"}, r.groupLines(q))
	})
}

// TestGroupsAreBounded: dead letters with ever other errors and keys are counted, but not
// told apart.
func TestGroupsAreBounded(t *testing.T) {
	g := new(groups)
	g.forget()
	name := func(i int) string { return fmt.Sprintf("%c%c%c", 'a'+i%26, 'a'+i/26%26, 'a'+i/676) }
	for i := range maxGroupKeys + 5 {
		n := g.groupOf(groupName{"orders", "", name(i)})
		k := g.keys.of(fmt.Sprint(i))
		require.Equal(t, i >= maxGroups, n == 0)
		require.Equal(t, i >= maxGroupKeys, k == 0)
		l := letter{seq: uint64(i), id: uint64(i), group: n, key: k}
		g.enter(l)
		g.letters = append(g.letters, l)
	}
	require.EqualValues(t, maxGroupKeys+5-maxGroups, g.known[0].count)
	for _, l := range g.letters {
		g.leave(l)
	}
	require.Len(t, g.number, maxGroups)
	require.NotZero(t, g.groupOf(groupName{"orders", "", "another"}), "those without letters make room")
	require.Len(t, g.number, 1)
	require.Len(t, g.gone, maxGroupKeys+5-maxGroups, "of no group")
	require.Empty(t, g.keys.number)
	require.Empty(t, g.known[0].keys)
}

// TestGroupsThatComeAtOnce are told apart as far as there is room, each with its own
// messages: what has been read first does not make room for the rest.
func TestGroupsThatComeAtOnce(t *testing.T) {
	const beyond = 100
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) { s.MaxDeliveries = new(int64(1)) })
		r.consume(q, "w", maxGroups+beyond)
		for i := range maxGroups + beyond {
			require.Nil(t, r.enqueue(fmt.Sprint(i), "", nil))
		}
		synctest.Wait()
		for i, m := range r.conn.take("w") {
			r.ack(m, wire.Ack{Kind: wire.AckNack, ErrorCode: fmt.Sprint(i)}, "")
		}
		time.Sleep(time.Second)
		all, err := q.DLQ().Groups(maxGroups)
		require.Nil(t, err)
		require.EqualValues(t, beyond, all.Other)
		require.Len(t, all.Groups, maxGroups)
		require.Zero(t, q.DLQ().groups.vacant)
		for _, g := range all.Groups[:20] {
			require.EqualValues(t, 1, g.Messages)
			require.Len(t, r.found(q.DLQ(), `{"ids":["`+g.Sample+`"],"error_group":"`+g.Group+`"}`, 1000), 1, "the sample is one of them")
		}
	})
}
