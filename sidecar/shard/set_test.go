package shard

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/policy"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// places is a Placement over a number of shards.
type places struct {
	shards int

	mu struct {
		sync.Mutex
		next store.QueueID
		ids  map[string][queue.Roles]store.QueueID
		err  error // of Place and Drop
	}
}

func newPlaces(shards int) *places {
	p := &places{shards: shards}
	p.mu.next, p.mu.ids = 1, make(map[string][queue.Roles]store.QueueID)
	return p
}

func (p *places) number(name string) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() % uint32(p.shards))
}

func (p *places) Shards() int { return p.shards }

func (p *places) Where(name string) (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.mu.ids[name]
	return p.number(name), ok
}

func (p *places) Place(_ context.Context, name string) ([queue.Roles]store.QueueID, int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.err != nil {
		return [queue.Roles]store.QueueID{}, 0, p.mu.err
	}
	ids, ok := p.mu.ids[name]
	if !ok {
		ids = [queue.Roles]store.QueueID{p.mu.next, p.mu.next + 1}
		p.mu.ids[name] = ids
		p.mu.next += 2
	}
	return ids, p.number(name), nil
}

func (p *places) Drop(_ context.Context, name string, ids [queue.Roles]store.QueueID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.err == nil && p.mu.ids[name] == ids {
		delete(p.mu.ids, name)
	}
	return p.mu.err
}

// fail makes Place and Drop return an error, until it is nil.
func (p *places) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.err = err
}

// twoShards runs fn on a pair. held is the store of its second shard.
func twoShards(t *testing.T, fn func(r *rig, second *Shard, held *heldStore, at *places)) {
	t.Helper()
	pairOf(t, func(p *pair) { fn(p.rig, p.Shard(1), p.stores[1], p.Placement.(*places)) })
}

// TestQueuesOfSeveralShards: the set finds them all, each has its own store, and the reply
// subjects of their deliveries name the shard.
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

// TestOneOfTwoShardsFails: the other one goes on.
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

// TestAFencedShardIsSilent: it delivers and answers nothing, refusals included, until it owns
// its queues again.
func TestAFencedShardIsSilent(t *testing.T) {
	twoShards(t, func(r *rig, second *Shard, held *heldStore, _ *places) {
		q := r.Queue("first")
		r.consume(q, "w", 1)
		require.Nil(t, q.Accept(message("first", "")))
		leased := r.one("w")
		held.hold()
		require.Nil(t, q.Accept(message("first", "enqueued")))
		list, total, _ := r.QueuePage("", 0, 10)
		require.Len(t, list, 4)
		require.Equal(t, 4, total)
		second.Fence(true)
		r.news(wire.EventConsumerJoined)
		list, total, next := r.QueuePage("", 0, 1)
		require.Equal(t, []*Queue{r.Queue("orders")}, list)
		require.Equal(t, 2, total, "its new owner lists its queues")
		list, _, next = r.QueuePage(next, 0, 1)
		require.Equal(t, []*Queue{r.Queue("orders.dlq")}, list)
		require.Empty(t, next)

		r.ack(leased, done, "acked")
		held.release()
		require.True(t, q.Tell(queue.Register{Consumer: "w2", Subject: "w2", MaxInFlight: 1, Confirm: queue.Confirmation{Subject: "registered"}}))
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

// TestDeliveriesUnderWayToAFencedShard return to the machine and go out when it serves again.
func TestDeliveriesUnderWayToAFencedShard(t *testing.T) {
	twoShards(t, func(r *rig, second *Shard, _ *heldStore, _ *places) {
		q := r.Queue("first")
		r.consume(q, "w", 1)
		second.fenced.Store(true) // the machine does not know yet
		require.Nil(t, q.Accept(message("first", "")))
		second.Fence(true)
		r.none("w")
		second.Fence(false)
		m := r.one("w")
		require.Equal(t, "1", m.Header.Get(wire.HeaderAttempt))
	})
}

// TestAShardThatMayNotOwnItsQueues is silent at once and goes on by itself.
func TestAShardThatMayNotOwnItsQueues(t *testing.T) {
	twoShards(t, func(r *rig, second *Shard, _ *heldStore, _ *places) {
		var lost atomic.Bool
		second.Owns = func() bool { return !lost.Load() }
		q := r.Queue("first")
		r.consume(q, "w", 1)
		idle := second.newQueue([queue.Roles]store.QueueID{98, 99}, policy.WithoutHooks(wire.DefaultQueueSettings("idle")))
		r.queues.update(func(m map[string]*Queue) { m["idle"] = idle }) // it is not started: its mail stays
		second.Fence(false)
		lost.Store(true)
		require.Nil(t, q.Accept(message("first", "")))
		q.Refuse("refused", wire.TokenRefused())
		time.Sleep(time.Second)
		r.none("w")
		r.none("refused")
		told := idle.run.mail.take(nil)
		require.Len(t, told, 2)
		require.Equal(t, queue.Dispatch{On: true}, told[0].Change)
		require.Equal(t, queue.Dispatch{}, told[1].Change)
		r.queues.update(func(m map[string]*Queue) { delete(m, "idle") })
		_, werr := r.Find("first")
		require.Equal(t, wire.CodeNoOwner, werr.ErrCode)
		require.Equal(t, []int{0}, r.Numbers())

		lost.Store(false)
		time.Sleep(recheckInterval)
		m := r.one("w")
		require.Equal(t, "1", m.Header.Get(wire.HeaderAttempt))
		q.Refuse("refused", wire.TokenRefused())
		require.Equal(t, wire.CodeTokenRefused, r.refused("refused").ErrCode)
	})
}

func TestAFencedStoreStaysFenced(t *testing.T) {
	twoShards(t, func(r *rig, second *Shard, held *heldStore, _ *places) {
		held.fail(store.ErrFenced)
		synctest.Wait()
		second.Fence(false)
		r.Queue("first").Refuse("refused", wire.TokenRefused())
		r.none("refused")
	})
}

// TestQueuesArePlaced: a queue gets the ids of its Placement, and others if those are used up
// by a later queue that came first or by a deleted queue of that name.
func TestQueuesArePlaced(t *testing.T) {
	twoShards(t, func(r *rig, _ *Shard, _ *heldStore, at *places) {
		early, number, err := at.Place(r.t.Context(), "early") // the first request went to another node
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
		_, werr = q.Delete("", false)
		require.Nil(t, werr)
		_, werr = r.Create(wire.DefaultQueueSettings("mail"))
		require.Equal(t, wire.CodeNoOwner, werr.ErrCode)
		require.Contains(t, r.log.String(), "no quorum")
		at.fail(nil)
		_, werr = r.Create(wire.DefaultQueueSettings("mail"))
		require.Nil(t, werr)
		require.Greater(t, r.Queue("mail").ID(), q.ID())

		_, werr = r.Queue("mail").Delete("", false)
		require.Nil(t, werr)
		_, placed := at.Where("mail")
		require.False(t, placed)

		_, werr = r.Create(wire.DefaultQueueSettings("mail"))
		require.Nil(t, werr)
		require.NoError(t, at.Drop(r.t.Context(), "mail", at.mu.ids["mail"]))
		again, _, err := at.Place(r.t.Context(), "mail") // by another owner, while this one was frozen
		require.NoError(t, err)
		_, werr = r.Queue("mail").Delete("", false)
		require.Nil(t, werr)
		require.Equal(t, again, at.mu.ids["mail"])
	})
}

// TestAShardIsHandedOver: it settles leases while it accepts messages, then writes
// everything, leases included, and the next owner of the store has it all.
func TestAShardIsHandedOver(t *testing.T) {
	pairOf(t, func(r *pair) {
		q := r.Queue("first")
		r.consume(q, "w", 2)
		for range 2 {
			require.Nil(t, q.Accept(message("first", "")))
		}
		synctest.Wait()
		leased := r.conn.take("w")
		require.Len(t, leased, 2)
		removed := make(chan error)
		go func() { removed <- r.Remove(r.t.Context(), 1, 10*time.Second) }()
		synctest.Wait()
		require.Nil(t, q.Accept(message("first", "third")))
		time.Sleep(time.Second)
		r.id("third")
		r.none("w")
		_, werr := r.Create(wire.DefaultQueueSettings("second"))
		require.Equal(t, wire.CodeNoOwner, werr.ErrCode, "it would be in this shard")
		_, werr = q.Delete("", true)
		require.Equal(t, wire.CodeNoOwner, werr.ErrCode)
		r.ack(leased[0], done, "")
		require.Empty(t, removed)
		time.Sleep(10 * time.Second)
		require.NoError(t, <-removed)

		require.Nil(t, r.Queue("first"))
		require.Nil(t, r.Queue("first.dlq"))
		require.Nil(t, r.Shard(1))
		require.Equal(t, []string{"orders", "orders.dlq"}, r.front.attached)
		require.Equal(t, wire.CodeNoOwner, q.Accept(message("first", "")).ErrCode)
		require.Zero(t, r.uncommitted.Load())
		require.Empty(t, r.Failed())
		require.NoError(t, r.Remove(r.t.Context(), 1, 0), "it is not here")
		require.Nil(t, r.enqueue("the other shard goes on", "producer", nil))
		time.Sleep(time.Second)
		r.id("producer")

		require.NoError(t, r.stores[1].Close())
		r.open(1)
		q = r.Queue("first")
		require.EqualValues(t, 2, q.Depth())
		r.ack(leased[1], done, "acked")
		require.Nil(t, wire.ParseError(r.one("acked").Header, nil))
		require.NoError(t, r.Remove(r.t.Context(), 1, 0))
	})
}

// TestARemovalEndsWithItsContext, whatever the store does.
func TestARemovalEndsWithItsContext(t *testing.T) {
	twoShards(t, func(r *rig, _ *Shard, held *heldStore, _ *places) {
		held.hold()
		require.Nil(t, r.Queue("first").Accept(message("first", "producer")))
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.Remove(ctx, 1, time.Minute), context.DeadlineExceeded)
		require.Nil(t, r.Queue("first"))
		r.none("producer")
		held.release()
		r.id("producer")
	})
}

// TestAShardIsAbandoned: it writes and answers nothing any more, whatever its store does.
func TestAShardIsAbandoned(t *testing.T) {
	twoShards(t, func(r *rig, second *Shard, held *heldStore, _ *places) {
		q := r.Queue("first")
		r.consume(q, "w", 1)
		require.True(t, q.Tell(queue.Fetch{Inbox: "fetched", Batch: 10, Expires: math.MaxInt64}))
		require.Nil(t, q.Accept(message("first", "")))
		r.one("w")
		held.hold()
		submitted := held.submitted()
		require.Nil(t, q.Accept(message("first", "producer")))
		r.one("fetched")
		made := make(chan *wire.Error)
		go func() { // it holds the admin lock
			_, werr := second.create(wire.DefaultQueueSettings("third"))
			made <- werr
		}()
		synctest.Wait()
		begun := held.waiting()
		r.Abandon(1)
		require.NotNil(t, <-made)
		require.Equal(t, begun, held.waiting())
		require.Equal(t, submitted, held.submitted())
		require.Nil(t, r.Queue("first"))
		second.Fence(false)
		require.NotNil(t, q.Accept(message("first", "refused")))
		q.Refuse("refused", wire.TokenRefused())
		held.fail(store.ErrFenced)
		held.refuse(func(*store.Batch) error { return store.ErrFenced })
		held.release()
		for _, subject := range []string{"producer", "fetched", "refused", "w"} {
			r.none(subject)
		}
		require.Zero(t, r.uncommitted.Load())
		r.Abandon(1) // it is gone
	})
}

// TestAPurgeEndsWithItsShard, although its store never answers.
func TestAPurgeEndsWithItsShard(t *testing.T) {
	twoShards(t, func(r *rig, _ *Shard, held *heldStore, _ *places) {
		q := r.Queue("first")
		require.Nil(t, q.Accept(message("first", "")))
		time.Sleep(time.Second) // it is on disk
		held.hold()
		purged := make(chan *wire.Error)
		go func() {
			_, _, _, werr := q.Purge(0, 0)
			purged <- werr
		}()
		synctest.Wait()
		r.Abandon(1)
		require.Equal(t, wire.OutcomeUnknown(), <-purged)
	})
}

// halfStore answers the first of two purges, and gives its shard up with the second, which it
// never answers.
type halfStore struct {
	store.Store
	shard  atomic.Pointer[Shard]
	purges int
}

func (s *halfStore) Submit(b *store.Batch) {
	if s.shard.Load() == nil || len(b.Finish) == 0 {
		s.Store.Submit(b)
		return
	}
	if s.purges++; s.purges == 1 {
		b.Done(nil)
		return
	}
	s.shard.Load().releaseWaiters()
}

// TestAPurgeCountsWhatIsOnDisk when its shard ends between two commits.
func TestAPurgeCountsWhatIsOnDisk(t *testing.T) {
	for range 10 { // either is seen first: the outcome of the first commit, or the end of the shard
		synctest.Test(t, func(t *testing.T) {
			r := openRig(t, newDisk())
			half := &halfStore{Store: r.store.Store}
			r.store.Store = half
			r.start()
			require.NoError(t, r.Serve())
			q := r.create(nil)
			for i := range purgeChunk + 10 {
				require.Nil(t, r.enqueue(fmt.Sprint(i), "", nil))
			}
			time.Sleep(time.Second)
			half.shard.Store(r.shard)
			removed, _, _, werr := q.Purge(0, 0)
			require.Equal(t, wire.OutcomeUnknown(), werr)
			require.Contains(t, []int64{0, purgeChunk}, removed, "the second commit has no part in it")
			r.Abandon(0)
		})
	}
}

// message returns a message that a producer sends to a queue.
func message(name, reply string) *nats.Msg {
	return &nats.Msg{Subject: "fila.enqueue." + name, Reply: reply, Data: []byte("x"), Header: nats.Header{}}
}

// TestRemoveDoesNotWaitForAQueueThatCannotBeMade because its store is stuck.
func TestRemoveDoesNotWaitForAQueueThatCannotBeMade(t *testing.T) {
	twoShards(t, func(r *rig, _ *Shard, held *heldStore, at *places) {
		held.hold()
		name := "second"
		for at.number(name) != 1 {
			name += "x"
		}
		made := make(chan *wire.Error, 1)
		go func() {
			_, werr := r.Create(wire.DefaultQueueSettings(name))
			made <- werr
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		require.ErrorIs(t, r.Remove(ctx, 1, time.Second), context.Canceled)
		require.Equal(t, wire.CodeOutcomeUnknown, (<-made).ErrCode)
		require.Nil(t, r.Shard(1))
	})
}
