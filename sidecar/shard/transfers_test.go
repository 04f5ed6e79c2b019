package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
)

// pair is two shards, each of which can die and come back, and the link between them. Queue
// orders is in shard 0, queue first in shard 1.
type pair struct {
	*rig
	disks  [2]string
	stores [2]*mortalStore

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
		p.Start()
		require.NoError(t, p.Serve())
		t.Cleanup(func() {
			p.End()
			for i := range p.stores {
				_ = p.stores[i].Close()
			}
		})
		for _, name := range []string{"orders", "first"} {
			p.another(name, func(s *wire.QueueSettings) { s.FairnessHeader = "tenant" })
		}
		require.Equal(t, 1, p.Queue("first").Shard())
		fn(p)
		synctest.Wait()
		p.Drain()
		p.End()
		for i := range p.stores {
			require.NoError(t, p.stores[i].Close())
		}
		require.NoError(t, p.store.Close())
	})
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

// sent returns the last request.
func (p *pair) sent() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.sent[len(p.mu.sent)-1]
}

var errNobody = errors.New("nobody is there")

func nobody(context.Context, int, []byte) ([]byte, error) { return nil, errNobody }

// open adds a shard, recovered from its disk.
func (p *pair) open(number int) {
	p.t.Helper()
	model, err := storetest.OpenModel(p.disks[number], p.Now)
	require.NoError(p.t, err)
	st := &mortalStore{Store: model, failed: make(chan struct{})}
	st.mu.left = -1
	p.stores[number] = st
	sh := p.New(number, st)
	snap, err := st.Snapshot()
	require.NoError(p.t, err)
	require.NoError(p.t, sh.Recover(snap))
	require.NoError(p.t, p.Add(sh))
}

// takeOver kills a shard, unless it is dead, and recovers it from its disk.
func (p *pair) takeOver(number int) {
	p.t.Helper()
	p.stores[number].die(0, false)
	p.Abandon(number)
	require.NoError(p.t, p.stores[number].Close())
	p.open(number)
}

// mortalStore writes a number of batches, and then none.
type mortalStore struct {
	store.Store
	failed    chan struct{}
	meanwhile func() // what happens when histories have just been read; nil: nothing

	mu struct {
		sync.Mutex
		left  int // batches; -1: any number
		lands bool
	}
}

// die makes the store fail after a number of batches. If the next one lands, it is written,
// but reported as failed.
func (s *mortalStore) die(after int, lands bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.left != 0 {
		s.mu.left, s.mu.lands = after, lands
	}
}

func (s *mortalStore) dead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.left == 0 && !s.mu.lands
}

func (s *mortalStore) Submit(b *store.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.left != 0:
		s.mu.left = max(s.mu.left-1, -1)
		s.Store.Submit(b)
		return
	case s.mu.lands:
		s.mu.lands = false
		c := *b
		c.Done = func(error) { b.Done(store.ErrFenced) }
		s.Store.Submit(&c)
	default:
		s.Store.Submit(&store.Batch{Done: func(error) {
			if b.Done != nil {
				b.Done(store.ErrFenced)
			}
		}})
	}
}

func (s *mortalStore) History(refs []store.Ref, fn func(i int, records [][]byte)) error {
	err := s.Store.History(refs, fn)
	if s.meanwhile != nil {
		s.meanwhile()
	}
	return err
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

func moveAll(from, to string) wire.JobCreateRequest {
	return wire.JobCreateRequest{Queue: from, Op: wire.JobMove, To: to, Filter: everything()}
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
				require.Equal(t, wire.JobPaused, info.State)
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
				require.Equal(t, wire.JobCanceled, canceled.State)
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

// TestTheOtherShardIsFull: it takes the messages that it has room for, the others wait at the
// source, and the job pauses and says why.
func TestTheOtherShardIsFull(t *testing.T) {
	pairOf(t, func(p *pair) {
		limit := func(n int64) {
			_, werr := p.Queue("first").Update(func(s wire.QueueSettings) (wire.QueueSettings, *wire.Error) {
				s.MaxDepth = n
				return s, nil
			})
			require.Nil(t, werr)
		}
		limit(4)
		p.put("orders", "x", 10)
		info := p.over(p.begin(moveAll("orders", "first")).ID)
		require.Equal(t, wire.JobPaused, info.State)
		require.Contains(t, info.Why, "max_depth")
		require.EqualValues(t, []int64{4, 4, 0}, []int64{info.Matched, info.Done, info.UnderWay})
		require.EqualValues(t, []int64{6, 4}, []int64{p.Queue("orders").Depth(), p.Queue("first").Depth()})
		require.EqualValues(t, 4, p.purge(p.Queue("first")))
		p.takeOver(0)
		_, werr := p.ResumeJob(info.ID)
		require.Nil(t, werr)
		info = p.over(info.ID)
		require.EqualValues(t, 8, info.Done)
		p.takeOver(1)
		limit(0)
		_, werr = p.ResumeJob(info.ID)
		require.Nil(t, werr)
		info = p.over(info.ID)
		require.Equal(t, wire.JobDone, info.State)
		require.EqualValues(t, []int64{10, 10}, []int64{info.Matched, info.Done})
		require.Equal(t, []string{"x4", "x5", "x6", "x7", "x8", "x9"}, p.rig.bodies(p.Queue("first")))
	})
}

// TestTheOtherQueueIsGone: the job pauses and says so, and messages on their way come back.
func TestTheOtherQueueIsGone(t *testing.T) {
	pairOf(t, func(p *pair) {
		p.put("orders", "x", 3)
		p.linked(nobody)
		info := p.over(p.begin(moveAll("orders", "first")).ID)
		require.EqualValues(t, 3, info.UnderWay)
		_, werr := p.Queue("first").Delete("", false)
		require.Nil(t, werr)
		p.linked(p.good)
		_, werr = p.ResumeJob(info.ID)
		require.Nil(t, werr)
		info = p.over(info.ID)
		require.Equal(t, wire.JobPaused, info.State)
		require.Contains(t, info.Why, "no such queue")
		require.Zero(t, info.UnderWay)
		_, werr = p.ResumeJob(info.ID)
		require.Nil(t, werr)
		info = p.over(info.ID)
		require.Equal(t, wire.JobPaused, info.State)
		require.Len(t, p.rig.bodies(p.Queue("orders")), 3)
	})
}

// TestKeysOfTheOtherShard that are full keep their messages at the source; others go.
func TestKeysOfTheOtherShard(t *testing.T) {
	pairOf(t, func(p *pair) {
		_, werr := p.Queue("first").Update(func(s wire.QueueSettings) (wire.QueueSettings, *wire.Error) {
			s.MaxPendingPerKey = 2
			return s, nil
		})
		require.Nil(t, werr)
		p.put("orders", "x", 8)
		info := p.run(moveAll("orders", "first"))
		require.EqualValues(t, []int64{8, 4}, []int64{info.Matched, info.Done})
		require.Equal(t, map[string]int64{wire.LeftKeyFull: 4}, info.Left)
		require.Equal(t, []string{"x4", "x5", "x6", "x7"}, p.rig.bodies(p.Queue("orders")))
		require.Equal(t, []string{"x0", "x1", "x2", "x3"}, p.rig.bodies(p.Queue("first")))
	})
}

// TestLargeMessagesGoToAnotherShard: transfers are bounded by bytes, and the largest message
// goes without some of its history.
func TestLargeMessagesGoToAnotherShard(t *testing.T) {
	pairOf(t, func(p *pair) {
		most := int(p.conn.max) - wire.HeaderRoom
		sizes := []int{most, 10, most / 2, most / 2, most / 2, 10, most}
		require.Nil(t, p.enqueue(strings.Repeat("x", sizes[0]), "", nil))
		q := p.Queue("orders")
		_, werr := q.Update(func(s wire.QueueSettings) (wire.QueueSettings, *wire.Error) {
			s.MaxDeliveries = new(int64(100))
			return s, nil
		})
		require.Nil(t, werr)
		p.consume(q, "w", 1)
		for i := range 20 {
			p.ack(p.one("w"), wire.Ack{Kind: wire.AckNack, Error: strings.Repeat(fmt.Sprint(i), 500)}, "")
		}
		first := p.one("w")
		p.ack(first, wire.Ack{Kind: wire.AckNack, Error: "the last"}, "")
		require.Len(t, p.one("w").Data, most)
		require.True(t, q.Tell(queue.Leave{Consumer: "w"}))
		time.Sleep(time.Minute)
		id := first.Header.Get(wire.HeaderID)
		before := p.past(q, id)
		for _, n := range sizes[1:] {
			require.Nil(t, p.enqueue(strings.Repeat("x", n), "", nil))
		}
		p.linked(func(ctx context.Context, shard int, body []byte) ([]byte, error) {
			require.LessOrEqual(t, int64(len(body)), p.conn.max)
			return p.good(ctx, shard, body)
		})
		info := p.run(moveAll("orders", "first"))
		require.EqualValues(t, len(sizes), info.Done)
		after := p.past(p.Queue("first"), id)
		require.Contains(t, after[len(after)-1], wire.AttemptMoved)
		after = after[:len(after)-1]
		require.Less(t, len(after), len(before))
		require.Greater(t, len(after), 2)
		require.Equal(t, before[0], after[0], "the first is kept")
		require.Equal(t, before[len(before)-len(after)+1:], after[1:], "and the newest")

		p.conn.max /= 2 // of the server
		p.put("first", "small ", 1)
		info = p.run(moveAll("first", "orders"))
		require.EqualValues(t, 6, info.Done)
		require.Equal(t, map[string]int64{wire.LeftRefused: 2}, info.Left)
	})
}

// TestRequestsAreSigned: a changed or truncated request is refused, and a repeated one is
// accepted once.
func TestRequestsAreSigned(t *testing.T) {
	pairOf(t, func(p *pair) {
		p.put("orders", "x", 3)
		p.run(moveAll("orders", "first"))
		good := p.sent()
		for i := range good { // whatever bit it is
			bad := slices.Clone(good)
			bad[i] ^= 1 << (i % 8)
			_, werr := p.Receive(bad)
			require.NotNil(t, werr)
		}
		for n := range good {
			_, werr := p.Receive(good[:n])
			require.NotNil(t, werr)
		}
		again, werr := p.Receive(good)
		require.Nil(t, werr)
		require.Contains(t, string(again), `"said":"ttt"`)
		require.EqualValues(t, 3, p.Queue("first").Depth())
	})
}

// TestReceiptsAreDeleted when their jobs have ended, but not within seven days.
func TestReceiptsAreDeleted(t *testing.T) {
	pairOf(t, func(p *pair) {
		receipts := func() (n int) {
			synctest.Wait()
			snap, err := p.stores[1].Snapshot()
			require.NoError(t, err)
			for _, e := range snap.Config {
				if strings.HasPrefix(e.Key, "\x00moved/") {
					n++
				}
			}
			return n
		}
		p.put("orders", "x", 1)
		p.run(moveAll("orders", "first"))
		old := p.sent()
		p.put("orders", "x", 3)
		open := moveAll("orders", "first")
		open.Rate = 1
		info := p.begin(open)
		time.Sleep(1500 * time.Millisecond)
		_, werr := p.PauseJob(info.ID)
		require.Nil(t, werr)
		require.Equal(t, 2, receipts())

		time.Sleep(keptFor - time.Hour)
		another := func() {
			t.Helper()
			p.put("orders", "y", 1)
			req := moveAll("orders", "first")
			req.Filter = &wire.Filter{EnqueuedAfter: "1s"}
			p.run(req)
		}
		another()
		require.Equal(t, 3, receipts())
		time.Sleep(2 * time.Hour)
		p.takeOver(1)
		another()
		require.Equal(t, 3, receipts(), "the receipt of the job that has ended is deleted")
		depth := p.Queue("first").Depth()
		_, werr = p.Receive(old)
		require.NotNil(t, werr, "nobody sends it so late but who has recorded it")
		require.Equal(t, depth, p.Queue("first").Depth())
		_, werr = p.ResumeJob(info.ID)
		require.Nil(t, werr)
		require.Equal(t, wire.JobDone, p.over(info.ID).State)
		require.Zero(t, p.Queue("orders").Depth())
	})
}

// TestNoMoveBesideAnOlderNode: it would lose histories.
func TestNoMoveBesideAnOlderNode(t *testing.T) {
	for _, number := range []int{0, 1} {
		pairOf(t, func(p *pair) {
			p.put("orders", "x", 3)
			old := true
			p.Shard(number).Plain = func() bool { return old }
			info := p.over(p.begin(moveAll("orders", "first")).ID)
			require.Equal(t, wire.JobPaused, info.State)
			require.Contains(t, info.Why, "older version")
			require.Zero(t, info.UnderWay)
			require.EqualValues(t, 3, p.Queue("orders").Depth())
			old = false
			_, werr := p.ResumeJob(info.ID)
			require.Nil(t, werr)
			require.EqualValues(t, 3, p.over(info.ID).Done)
		})
	}
}

// TestMessagesAreInOnePlace whatever happens to both shards, with goroutines and real
// retries. The simulator of package job tries many more histories.
func TestMessagesAreInOnePlace(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			pairOf(t, func(p *pair) { p.trouble(rand.New(rand.NewPCG(uint64(seed), 16))) })
		})
	}
}

func (p *pair) trouble(rng *rand.Rand) {
	t := p.t
	var lock sync.Mutex
	chance := func(n int) int {
		lock.Lock()
		defer lock.Unlock()
		return rng.IntN(n)
	}
	const n = 40
	p.conn.max = 16 << 10 // some messages in each transfer
	pad := strings.Repeat("x", 200+chance(2000)) + " "
	p.put("orders", pad+"o", n)
	p.put("first", pad+"f", n)
	var late sync.WaitGroup
	begun := make(chan struct{}) // a job that begins later would move what has come by the other
	p.linked(func(ctx context.Context, shard int, body []byte) ([]byte, error) {
		<-begun
		time.Sleep(time.Duration(chance(20)) * time.Millisecond)
		again := chance(4) == 0
		if again { // a copy of it comes at some other time
			after := time.Duration(chance(5000)) * time.Millisecond
			late.Go(func() { time.Sleep(after); _, _ = p.good(ctx, shard, body) })
		}
		if chance(5) == 0 {
			return nil, errNobody
		}
		answer, err := p.good(ctx, shard, body)
		time.Sleep(time.Duration(chance(20)) * time.Millisecond)
		if chance(5) == 0 {
			return nil, errNobody
		}
		return answer, err
	})
	jobs := map[string]string{}
	canceled := false
	for from, to := range map[string]string{"orders": "first", "first": "orders"} {
		jobs[from] = p.begin(moveAll(from, to)).ID
	}
	close(begun)
	for range 3 + chance(8) {
		number := chance(2)
		p.stores[number].die(1+chance(6), chance(2) == 0)
		time.Sleep(time.Duration(chance(400)) * time.Millisecond)
		if id := jobs[[]string{"orders", "first"}[chance(2)]]; chance(3) == 0 {
			_, _ = p.PauseJob(id)
		} else if chance(8) == 0 {
			_, _ = p.CancelJob(id)
		}
		if p.stores[number].dead() || chance(2) == 0 {
			p.takeOver(number)
		}
	}
	for number := range p.stores {
		p.takeOver(number)
	}
	for _, id := range jobs {
		for {
			info := p.over(id)
			if info.Ended() {
				require.Zero(t, info.UnderWay)
				canceled = canceled || info.State == wire.JobCanceled
				break
			}
			_, werr := p.ResumeJob(id)
			require.Nil(t, werr)
		}
	}
	late.Wait()
	p.linked(p.good)
	check := func() {
		t.Helper()
		var all []string
		for number := range p.stores {
			for _, body := range p.kept(number) {
				all = append(all, strings.TrimPrefix(body, pad))
			}
		}
		slices.Sort(all)
		var want []string
		for i := range n {
			want = append(want, fmt.Sprint("o", i), fmt.Sprint("f", i))
		}
		slices.Sort(want)
		require.Equal(t, want, all)
	}
	check()
	for number := range p.stores {
		p.takeOver(number)
	}
	check()
	for name, own := range map[string]string{"orders": "f", "first": "o"} {
		got := p.rig.bodies(p.Queue(name))
		for i := 0; i < len(got) && !canceled; i++ {
			require.Equal(t, fmt.Sprint(own, i), strings.TrimPrefix(got[i], pad), "each key in its order")
		}
	}
	for number := range p.stores {
		require.Empty(t, p.kept(number), "all of them could be delivered")
	}
}

// TestNoMessageIsDeliveredTwice if the link loses answers while both queues are consumed.
func TestNoMessageIsDeliveredTwice(t *testing.T) {
	pairOf(t, func(p *pair) {
		p.conn.max = 16 << 10
		const n = 200
		p.put("orders", strings.Repeat("x", 500), n)
		calls := 0
		p.linked(func(ctx context.Context, shard int, body []byte) ([]byte, error) {
			time.Sleep(10 * time.Millisecond)
			answer, err := p.good(ctx, shard, body)
			if calls++; calls%3 == 0 {
				return nil, errNobody
			}
			return answer, err
		})
		p.consume(p.Queue("orders"), "here", 1)
		p.consume(p.Queue("first"), "there", 1)
		info := p.begin(moveAll("orders", "first"))
		seen := make(map[string]int)
		from := make(map[string]int)
		for range 10 * n {
			for _, w := range []string{"here", "there"} {
				for _, m := range p.conn.take(w) {
					seen[m.Header.Get(wire.HeaderID)]++
					from[w]++
					p.ack(m, done, "")
				}
			}
			time.Sleep(time.Millisecond)
		}
		require.Equal(t, wire.JobDone, p.over(info.ID).State)
		require.Len(t, seen, n)
		for id, times := range seen {
			require.Equal(t, 1, times, id)
		}
		require.NotZero(t, from["here"])
		require.NotZero(t, from["there"])
	})
}
