package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// pair is two shards, each of which can die and come back, and the link between them. The
// simulator of package job has far more histories of such shards. Queue orders is in shard 0, queue first in shard 1.
type pair struct {
	*rig
	disks  [2]string
	stores [2]*heldStore

	mu struct {
		sync.Mutex
		link func(ctx context.Context, shard int, body []byte) ([]byte, error)
		sent [][]byte
	}
}

// pairOf runs fn on a pair with a good link.
func pairOf(t *testing.T, fn func(p *pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pair{rig: openRig(t, newDisk())}
		require.NoError(t, p.store.Close())
		p.disks = [2]string{p.disk + " 0", p.disk + " 1"}
		p.Placement = newPlaces(2)
		p.mu.link = p.good
		p.Send = func(ctx context.Context, shard int, body []byte) ([]byte, error) {
			p.mu.Lock()
			link := p.mu.link
			p.mu.sent = append(p.mu.sent, body)
			p.mu.Unlock()
			return link(ctx, shard, body)
		}
		for i := range p.stores {
			p.open(i)
		}
		p.shard, p.store = p.Shard(0), p.stores[0]
		p.Start()
		require.NoError(t, p.Serve())
		t.Cleanup(p.close)
		for _, name := range []string{"orders", "first"} {
			p.another(name, func(s *wire.QueueSettings) { s.FairnessHeader = "tenant" })
		}
		require.Equal(t, 1, p.Queue("first").Shard())
		fn(p)
		synctest.Wait()
		p.Drain()
		p.close()
	})
}

func (p *pair) close() {
	for _, st := range p.stores {
		st.release()
	}
	p.End()
	for _, st := range p.stores {
		require.NoError(p.t, st.Close())
	}
}

// good is a link without loss.
func (p *pair) good(_ context.Context, _ int, body []byte) ([]byte, error) {
	answer, werr := p.Receive(body)
	if werr != nil {
		return nil, werr
	}
	return answer, nil
}

func (p *pair) linked(by func(ctx context.Context, shard int, body []byte) ([]byte, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.link = by
}

var errNobody = errors.New("nobody is there")

func nobody(context.Context, int, []byte) ([]byte, error) { return nil, errNobody }

// open adds a shard, recovered from its disk.
func (p *pair) open(number int) {
	p.t.Helper()
	model, err := storetest.OpenModel(p.disks[number], p.Now)
	require.NoError(p.t, err)
	st := &heldStore{Store: model, failed: make(chan struct{})}
	p.stores[number] = st
	sh := p.New(number, st)
	snap, err := st.Snapshot()
	require.NoError(p.t, err)
	require.NoError(p.t, sh.Recover(snap))
	require.NoError(p.t, p.Add(sh))
}

// takeOver kills a shard and recovers it from its disk.
func (p *pair) takeOver(number int) {
	p.t.Helper()
	p.stores[number].refuse(func(*store.Batch) error { return store.ErrFenced })
	p.Abandon(number)
	require.NoError(p.t, p.stores[number].Close())
	p.open(number)
}

// put enqueues messages whose bodies are a prefix and a number.
func (p *pair) put(name, prefix string, n int) {
	p.t.Helper()
	for i := range n {
		h := byTenant(i)
		h.Set("n", fmt.Sprint(i))
		require.Nil(p.t, p.Queue(name).Accept(&nats.Msg{Subject: "fila.enqueue." + name, Data: fmt.Append(nil, prefix, i), Header: h}))
	}
	synctest.Wait()
}

// purge removes all waiting messages.
func (p *pair) purge(q *Queue) int64 {
	p.t.Helper()
	n, next, _, werr := q.Purge(0, 0)
	require.Nil(p.t, werr)
	require.Zero(p.t, next)
	return n
}

// kept returns the bodies of the messages on a disk.
func (p *pair) kept(number int) (bodies []string) {
	p.t.Helper()
	st := p.stores[number]
	var refs []store.Ref
	_, err := st.Recover(store.Visitor{Message: func(m *store.Message, _ int, _ *store.State) error {
		refs = append(refs, m.Ref)
		return nil
	}})
	require.NoError(p.t, err)
	require.NoError(p.t, st.Read(refs, func(_ int, _, payload []byte) { bodies = append(bodies, string(payload)) }))
	return bodies
}

func moveAll(from, to string) api.JobCreateRequest {
	return api.JobCreateRequest{Queue: from, Op: api.JobMove, To: to, Filter: everything()}
}

// TestAMoveToAnotherShard keeps what a move within a shard keeps: ids, times, headers,
// histories, TTLs and delays. The target decides about keys.
func TestAMoveToAnotherShard(t *testing.T) {
	pairOf(t, func(p *pair) {
		from, to := p.Queue("orders"), p.Queue("first")
		require.Nil(t, p.enqueue("delayed", "", nats.Header{wire.HeaderDelay: {"1h"}, "tenant": {"a"}, "x": {"y"}}))
		require.Nil(t, p.enqueue("mortal", "", nats.Header{wire.HeaderTTL: {"2h"}}))
		p.consume(from, "w", 1)
		first := p.one("w")
		p.ack(first, wire.Ack{Kind: wire.AckNack, Error: "no"}, "")
		p.ack(p.one("w"), wire.Ack{Kind: wire.AckNack, Error: "again"}, "")
		last := p.one("w")
		require.True(t, from.Tell(queue.Leave{Consumer: "w"}))
		time.Sleep(time.Minute) // its lease ends
		p.put("orders", "plain ", 2)
		past := p.past(from, last.Header.Get(wire.HeaderID))
		require.Len(t, past, 3)
		time.Sleep(time.Minute)

		done := p.run(moveAll("orders", "first"))
		require.EqualValues(t, []int64{4, 4, 0}, []int64{done.Matched, done.Done, done.UnderWay})
		require.Empty(t, done.Left)
		require.Zero(t, *done.NewSince)
		require.EqualValues(t, []int64{0, 4}, []int64{from.Depth(), to.Depth()})
		require.Zero(t, from.Bytes())
		require.Empty(t, p.kept(0))
		moved := p.past(to, last.Header.Get(wire.HeaderID))
		require.Len(t, moved, 4)
		require.Equal(t, past, moved[:3])
		record, err := history.Read([]byte(moved[3]))
		require.NoError(t, err)
		require.Equal(t, []string{wire.AttemptMoved, "orders", "first"}, []string{record.Outcome, record.From, record.To})
		bytes := to.Bytes()

		p.takeOver(1)
		to = p.Queue("first")
		require.Equal(t, bytes, to.Bytes())
		p.consume(to, "w", 10)
		got := p.conn.take("w")
		require.Len(t, got, 3)
		require.Equal(t, "mortal", string(got[0].Data), "the oldest first")
		require.Equal(t, first.Header.Get(wire.HeaderID), got[0].Header.Get(wire.HeaderID))
		require.Equal(t, first.Header.Get(wire.HeaderEnqueuedAt), got[0].Header.Get(wire.HeaderEnqueuedAt))
		require.Equal(t, "1", got[0].Header.Get(wire.HeaderAttempt), "as after a move within the shard")
		require.Equal(t, "b", got[2].Header.Get(wire.HeaderKey))
		require.True(t, to.Tell(queue.Leave{Consumer: "w"}))
		time.Sleep(59 * time.Minute)
		p.consume(to, "x", 10)
		var bodies []string
		for _, m := range p.conn.take("x") {
			bodies = append(bodies, string(m.Data))
		}
		require.Contains(t, bodies, "delayed")
		require.True(t, to.Tell(queue.Leave{Consumer: "x"}))
		time.Sleep(2 * time.Hour)
		require.EqualValues(t, 1, to.DLQ().Depth(), "its TTL has ended")
	})
}

// TestAnAttemptBeforeTheParking is part of the history that goes with the message, also if
// the transfer was full before.
func TestAnAttemptBeforeTheParking(t *testing.T) {
	const full, requestOverhead, entryOverhead = 4 << 10, 1 << 10, 256
	for name, body := range map[string]int{"with room": 1, "full": full - entryOverhead - 340 - 70} {
		t.Run(name, func(t *testing.T) {
			pairOf(t, func(p *pair) {
				from, to := p.Queue("orders"), p.Queue("first")
				require.Nil(t, p.enqueue(strings.Repeat("x", body), "id", nil))
				id := p.id("id")
				attempt := func(why string) {
					p.consume(from, "w", 1)
					p.ack(p.one("w"), wire.Ack{Kind: wire.AckNack, Error: why, Delay: time.Hour, HasDelay: true}, "")
					require.True(t, from.Tell(queue.Leave{Consumer: "w"}))
				}
				for _, why := range []string{"first", "second"} {
					attempt(why)
					time.Sleep(2 * time.Hour)
				}
				read, goOn := make(chan bool), make(chan bool)
				p.stores[0].meanwhile = func() {
					read <- true
					<-goOn
				}
				p.conn.max = full + requestOverhead
				job := p.begin(moveAll("orders", "first"))
				<-read
				attempt(strings.Repeat("e", 200))
				p.stores[0].meanwhile = nil
				goOn <- true
				require.EqualValues(t, 1, p.over(job.ID).Done)
				past := p.past(to, id)
				require.Contains(t, past[0], "first")
				require.Contains(t, past[len(past)-2], "eee")
				require.Contains(t, past[len(past)-1], wire.AttemptMoved)
				if name == "with room" {
					require.Len(t, past, 4)
				} else {
					require.Len(t, past, 3, "of the records between them as many as fit")
				}
			})
		})
	}
}

// past returns the history of a message.
func (p *pair) past(q *Queue, id string) (records []string) {
	p.t.Helper()
	parsed, ok := wire.ParseID(id)
	require.True(p.t, ok)
	var refs []store.Ref
	_, err := p.stores[q.Shard()].Recover(store.Visitor{Message: func(m *store.Message, _ int, _ *store.State) error {
		if m.ID == parsed {
			refs = append(refs, m.Ref)
		}
		return nil
	}})
	require.NoError(p.t, err)
	require.Len(p.t, refs, 1)
	require.Equal(p.t, q.id, refs[0].Queue)
	require.NoError(p.t, q.shard.store.History(refs, func(_ int, all [][]byte) {
		for _, r := range all {
			records = append(records, string(r))
		}
	}))
	return records
}

// TestDeadLettersMoveToAnotherShard: their histories have the move, and their group counts
// no redrive.
func TestDeadLettersMoveToAnotherShard(t *testing.T) {
	pairOf(t, func(p *pair) {
		q := p.Queue("orders")
		p.bury(q, 5, byTenant)
		require.EqualValues(t, 5, p.run(moveAll("orders.dlq", "first")).Done)
		require.Zero(t, q.DLQ().Depth())
		groups, werr := q.DLQ().Groups(10)
		require.Nil(t, werr)
		require.Empty(t, groups.Groups)
		p.consume(p.Queue("first"), "w", 10)
		all := p.conn.take("w")
		require.Len(t, all, 5)
		past := p.past(p.Queue("first"), all[0].Header.Get(wire.HeaderID))
		require.Len(t, past, 2)
		info, err := history.Read([]byte(past[1]))
		require.NoError(t, err)
		require.Equal(t, []string{wire.AttemptMoved, "orders.dlq", "first"}, []string{info.Outcome, info.From, info.To})
	})
}

// TestMessagesStayParked while nobody answers for their transfer: they are not delivered and
// not purged, also after a restart, and the job pauses and says why. A canceled job takes
// back the messages that the target does not have.
func TestMessagesStayParked(t *testing.T) {
	for name, tc := range map[string]struct {
		link func(p *pair) func(context.Context, int, []byte) ([]byte, error)
		why  string
		took bool
	}{
		"nobody": {func(*pair) func(context.Context, int, []byte) ([]byte, error) { return nobody }, "nobody answers for it", false},
		"an older node": {func(*pair) func(context.Context, int, []byte) ([]byte, error) {
			return func(context.Context, int, []byte) ([]byte, error) { return nil, wire.BadSubject(TransferVerb) }
		}, "older version", false},
		"a forged answer": {func(p *pair) func(context.Context, int, []byte) ([]byte, error) {
			return func(_ context.Context, _ int, body []byte) ([]byte, error) {
				answer, werr := p.Receive(body)
				if werr != nil {
					return nil, werr
				}
				return []byte(strings.Replace(string(answer), `"said":"t`, `"said":"k`, 1)), nil
			}
		}, "cannot be believed", true},
		"a lost answer": {func(p *pair) func(context.Context, int, []byte) ([]byte, error) {
			return func(_ context.Context, _ int, body []byte) ([]byte, error) {
				_, _ = p.Receive(body)
				return nil, errNobody
			}
		}, "nobody answers for it", true},
	} {
		t.Run(name, func(t *testing.T) {
			pairOf(t, func(p *pair) {
				p.put("orders", "x", 10)
				require.Nil(t, p.enqueue("later", "", nats.Header{wire.HeaderDelay: {"1h"}}))
				p.linked(tc.link(p))
				info := p.over(p.begin(moveAll("orders", "first")).ID)
				require.Equal(t, api.JobPaused, info.State)
				require.Contains(t, info.Why, tc.why)
				require.EqualValues(t, []int64{0, 0, 11}, []int64{info.Matched, info.Done, info.UnderWay})
				held := func() {
					t.Helper()
					q := p.Queue("orders")
					p.consume(q, "w", 100)
					p.none("w")
					require.True(t, q.Tell(queue.Leave{Consumer: "w"}))
					n := p.purge(q)
					require.Zero(t, n)
					require.EqualValues(t, 11, q.Depth())
				}
				held()
				time.Sleep(2 * time.Hour) // the delay is over
				held()
				p.takeOver(0)
				held()
				shown, werr := p.Job(info.ID)
				require.Nil(t, werr)
				require.Equal(t, asJSON(info), asJSON(shown))

				_, werr = p.CancelJob(info.ID)
				require.Equal(t, wire.CodeNoOwner, werr.ErrCode)
				held()
				p.takeOver(1)
				p.linked(p.good)
				canceled, werr := p.CancelJob(info.ID)
				require.Nil(t, werr)
				require.Equal(t, api.JobCanceled, canceled.State)
				require.Zero(t, canceled.UnderWay)
				if tc.took {
					require.EqualValues(t, 11, canceled.Done)
					require.EqualValues(t, []int64{0, 11}, []int64{p.Queue("orders").Depth(), p.Queue("first").Depth()})
					return
				}
				require.Zero(t, canceled.Done)
				require.Zero(t, p.Queue("first").Depth())
				p.takeOver(0) // what has come back is so on disk
				require.Len(t, p.rig.bodies(p.Queue("orders")), 11)
				// The transfer itself comes late, and is not accepted.
				p.mu.Lock()
				sent := slices.Clone(p.mu.sent)
				p.mu.Unlock()
				for _, body := range sent {
					_, _ = p.Receive(body)
				}
				require.Zero(t, p.Queue("first").Depth())
			})
		})
	}
}
