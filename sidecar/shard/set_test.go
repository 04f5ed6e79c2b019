package shard

import (
	"context"
	"errors"
	"hash/fnv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
	"github.com/filaq/fila/wire"
)

// places are those of queues among a number of shards.
type places struct {
	shards int

	mu struct {
		sync.Mutex
		next store.QueueID
		ids  map[string][queue.Sides]store.QueueID
		err  error // of Place and Drop
	}
}

func newPlaces(shards int) *places {
	p := &places{shards: shards}
	p.mu.next, p.mu.ids = 1, make(map[string][queue.Sides]store.QueueID)
	return p
}

func (p *places) number(name string) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() % uint32(p.shards))
}

func (p *places) Where(name string) (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.mu.ids[name]
	return p.number(name), ok
}

func (p *places) Place(_ context.Context, name string) ([queue.Sides]store.QueueID, int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.err != nil {
		return [queue.Sides]store.QueueID{}, 0, p.mu.err
	}
	ids, ok := p.mu.ids[name]
	if !ok {
		ids = [queue.Sides]store.QueueID{p.mu.next, p.mu.next + 1}
		p.mu.ids[name] = ids
		p.mu.next += 2
	}
	return ids, p.number(name), nil
}

func (p *places) Drop(_ context.Context, name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.err == nil {
		delete(p.mu.ids, name)
	}
	return p.mu.err
}

// fail has Place and Drop fail; nil: no more.
func (p *places) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.err = err
}

// twoShards is a rig whose set has the shards 0, its only one, and 1. The queue orders
// is in the first, the queue first in the second.
func twoShards(t *testing.T, fn func(r *rig, second *Shard, held *heldStore, at *places)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := openRig(t, newDisk())
		at := newPlaces(2)
		r.Placement = at
		require.Zero(t, at.number("orders"))
		require.Equal(t, 1, at.number("first"))
		r.start()
		require.NoError(t, r.Serve())
		model, err := storetest.OpenModel(newDisk(), r.Now)
		require.NoError(t, err)
		held := &heldStore{Store: model, failed: make(chan struct{})}
		t.Cleanup(func() { // of a test that fails
			held.release()
			_ = held.Close()
		})
		second := r.New(1, held)
		snap, err := held.Snapshot()
		require.NoError(t, err)
		require.NoError(t, second.Recover(snap))
		require.NoError(t, r.Add(second))
		for _, name := range []string{"orders", "first"} {
			_, werr := r.Create(wire.DefaultQueueSettings(name))
			require.Nil(t, werr)
		}
		fn(r, second, held, at)
		held.release()
		r.end()
		require.NoError(t, held.Close())
	})
}

// TestQueuesOfSeveralShards are found in all of them, each in the store of its own, and
// the reply subjects of their deliveries name it.
func TestQueuesOfSeveralShards(t *testing.T) {
	twoShards(t, func(r *rig, second *Shard, held *heldStore, _ *places) {
		require.Same(t, second, r.Shard(1))
		require.Nil(t, r.Shard(2))
		for name, want := range map[string]struct {
			from  store.Store
			reply string
		}{"orders": {r.store, "fila.ack.0."}, "first": {held, "fila.ack.1."}} {
			q := r.Queue(name)
			require.Same(t, want.from, q.Store())
			snap, err := q.Store().Snapshot()
			require.NoError(t, err)
			require.Len(t, snap.Queues, 2)
			require.Equal(t, name, snap.Queues[0].Name)
			r.consume(q, "w-"+name, 1)
			require.Nil(t, q.Accept(message(name, "")))
			m := r.one("w-" + name)
			require.Contains(t, m.Reply, want.reply)
			r.ack(m, done, "acked")
			require.Nil(t, wire.ParseError(r.one("acked").Header, nil))
		}
		page, total, next := r.QueuePage("first", 0, 2)
		require.Equal(t, []string{"first.dlq", "orders"}, []string{page[0].Name(), page[1].Name()})
		require.Equal(t, 4, total)
		require.Equal(t, "orders", next)
	})
}

// TestOneOfTwoShardsFails: the other goes on.
func TestOneOfTwoShardsFails(t *testing.T) {
	twoShards(t, func(r *rig, second *Shard, held *heldStore, _ *places) {
		for _, name := range []string{"orders", "first"} {
			r.consume(r.Queue(name), "w-"+name, 10)
		}
		held.fail(errors.New("disk on fire"))
		synctest.Wait()
		require.Same(t, second, <-r.Failed())
		require.ErrorContains(t, r.Err(), "disk on fire")
		require.Equal(t, wire.CodeStoreFailed, r.Queue("first").Accept(message("first", "")).ErrCode)
		require.NoError(t, r.shard.Err())
		require.Nil(t, r.enqueue("x", "", nil))
		r.one("w-orders")
	})
}

// TestAFencedShardIsSilent: it delivers nothing and answers nobody, refusals included,
// until it owns its queues again.
func TestAFencedShardIsSilent(t *testing.T) {
	twoShards(t, func(r *rig, second *Shard, held *heldStore, _ *places) {
		q := r.Queue("first")
		r.consume(q, "w", 1)
		require.Nil(t, q.Accept(message("first", "")))
		leased := r.one("w")
		held.hold()
		require.Nil(t, q.Accept(message("first", "enqueued")))
		second.Fence(true)
		r.news(wire.EventConsumerJoined)

		r.ack(leased, done, "acked")
		held.release()
		require.True(t, q.Tell(queue.Register{Consumer: "w2", Subject: "w2", MaxInFlight: 1, Reply: "registered"}))
		require.True(t, q.Tell(queue.Fetch{Inbox: "fetched", Batch: 1, Expires: 1}))
		q.Refuse("refused", wire.TokenRefused())
		q.Refuse("", wire.TokenRefused())
		for _, subject := range []string{"enqueued", "acked", "registered", "fetched", "refused", "w", "w2"} {
			r.none(subject)
		}
		require.Empty(t, r.news(wire.EventRefused))
		require.Empty(t, r.news(wire.EventConsumerJoined))
		r.Queue("orders").Refuse("other", wire.TokenRefused())
		require.Equal(t, wire.CodeTokenRefused, r.refused("other").ErrCode)

		second.Fence(false)
		require.NotEmpty(t, r.one("w").Reply)
		q.Refuse("refused", wire.TokenRefused())
		require.Equal(t, wire.CodeTokenRefused, r.refused("refused").ErrCode)
	})
}

// TestDeliveriesUnderWayToAFencedShard come back, and go out when it serves again.
func TestDeliveriesUnderWayToAFencedShard(t *testing.T) {
	twoShards(t, func(r *rig, second *Shard, _ *heldStore, _ *places) {
		q := r.Queue("first")
		r.consume(q, "w", 1)
		second.fenced.Store(true) // the machine has not heard of it
		require.Nil(t, q.Accept(message("first", "")))
		second.Fence(true)
		r.none("w")
		second.Fence(false)
		m := r.one("w")
		require.Equal(t, "1", m.Header.Get(wire.HeaderAttempt))
	})
}

// TestAStoreThatIsFencedIsSoForGood.
func TestAStoreThatIsFencedIsSoForGood(t *testing.T) {
	twoShards(t, func(r *rig, second *Shard, held *heldStore, _ *places) {
		held.fail(store.ErrFenced)
		synctest.Wait()
		second.Fence(false)
		r.Queue("first").Refuse("refused", wire.TokenRefused())
		r.none("refused")
	})
}

// TestQueuesArePlaced: their ids are those that they have been given. Where they are
// spent, by a queue with a higher one that came first or by one of that name that is no
// more, a queue gets others.
func TestQueuesArePlaced(t *testing.T) {
	twoShards(t, func(r *rig, _ *Shard, _ *heldStore, at *places) {
		early, number, err := at.Place(t.Context(), "early") // another node was asked first
		require.NoError(t, err)
		require.Zero(t, number)
		_, werr := r.Create(wire.DefaultQueueSettings("mail"))
		require.Nil(t, werr)
		require.Zero(t, at.number("mail"))
		require.Greater(t, r.Queue("mail").ID(), early[0])
		_, werr = r.Create(wire.DefaultQueueSettings("early"))
		require.Nil(t, werr)
		require.Greater(t, r.Queue("early").ID(), r.Queue("mail").ID())
		require.Equal(t, at.mu.ids["early"][0], r.Queue("early").ID())

		q := r.Queue("mail")
		at.fail(errors.New("no quorum"))
		_, werr = q.Delete(false)
		require.Nil(t, werr)
		_, werr = r.Create(wire.DefaultQueueSettings("mail"))
		require.Equal(t, wire.CodeNoOwner, werr.ErrCode)
		require.Contains(t, r.log.String(), "no quorum")
		at.fail(nil)
		_, werr = r.Create(wire.DefaultQueueSettings("mail"))
		require.Nil(t, werr)
		require.Greater(t, r.Queue("mail").ID(), q.ID())

		_, werr = r.Queue("mail").Delete(false)
		require.Nil(t, werr)
		_, placed := at.Where("mail")
		require.False(t, placed)
	})
}

// message is one that a producer sends to a queue.
func message(name, reply string) *nats.Msg {
	return &nats.Msg{Subject: "fila.enqueue." + name, Reply: reply, Data: []byte("x"), Header: nats.Header{}}
}
