package shard

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// batchOf is an enqueue of messages, each a body and its headers by name and value.
func batchOf(atomic bool, messages ...[]string) *nats.Msg {
	m := &nats.Msg{Subject: "fila.enqueue.orders", Reply: "producer", Header: nats.Header{wire.HeaderBatch: {strconv.Itoa(len(messages))}}}
	if atomic {
		m.Header[wire.HeaderBatchAtomic] = []string{"true"}
	}
	for _, one := range messages {
		h := nats.Header{}
		for i := 1; i < len(one); i += 2 {
			h[one[i]] = []string{one[i+1]}
		}
		m.Data = wire.AppendBatch(m.Data, h, []byte(one[0]))
	}
	return m
}

// batched returns the reply to a batch, and the ids in it.
func (r *rig) batched() (reply wire.BatchReply, ids []string) {
	r.t.Helper()
	require.NoError(r.t, json.Unmarshal(r.one("producer").Data, &reply))
	raw, err := base64.RawURLEncoding.DecodeString(reply.IDs)
	require.NoError(r.t, err)
	for ; len(raw) > 0; raw = raw[16:] {
		ids = append(ids, uuid.UUID(raw[:16]).String())
	}
	return reply, ids
}

// refusedIn returns the error numbers of refused messages by their index.
func refusedIn(reply wire.BatchReply) map[int]int {
	all := make(map[int]int)
	for _, no := range reply.Refused {
		all[no.Index] = no.ErrCode
	}
	return all
}

func TestBatch(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.consume(q, "w", 10)
		require.Nil(t, q.Accept(batchOf(false,
			[]string{"a", "X", "1", wire.HeaderMsgID, "one"},
			[]string{"b", wire.HeaderDelay, "soon"},
			[]string{"c", wire.HeaderMsgID, "one"},
			[]string{"d", wire.HeaderBatch, "1"},
			[]string{"e"},
		)))
		synctest.Wait()
		for i, m := range r.conn.take("w") {
			require.Equal(t, []string{"a", "e"}[i], string(m.Data))
			require.Equal(t, [][]string{{"1"}, nil}[i], m.Header["X"])
			r.ack(m, wire.Ack{Kind: wire.AckDone}, "")
		}
		reply, ids := r.batched()
		require.Equal(t, "orders", reply.Queue)
		require.Equal(t, []int{2}, reply.Duplicates)
		require.Equal(t, ids[0], ids[2])
		require.Equal(t, uuid.UUID{}.String(), ids[1])
		require.NotEqual(t, ids[0], ids[4])
		require.Equal(t, map[int]int{1: wire.CodeBadDelay, 3: wire.CodeBadBatch}, refusedIn(reply))
		require.Nil(t, reply.Room)
		r.none("producer")
	})
}

func TestBatchOfAnOrderedQueue(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) {
			s.Ordering, s.FairnessHeader, s.MaxPendingPerKey = wire.OrderingKey, "K", 1
		})
		require.Nil(t, q.Accept(batchOf(false,
			[]string{"a1", "K", "a"}, []string{"a2", "K", "a"}, []string{"b1", "K", "b"}, []string{"a3", "K", "a"},
			[]string{"?", wire.HeaderTTL, "soon"}, []string{"c1", "K", "c"},
		)))
		reply, _ := r.batched()
		require.Equal(t, map[int]int{
			1: wire.CodeKeyPending, 3: wire.CodePredecessorRefused, 4: wire.CodeBadTTL, 5: wire.CodePredecessorRefused,
		}, refusedIn(reply))
		require.Contains(t, reply.Refused[1].Description, "message 1 of the batch, of the same fairness key, was refused")
		require.Positive(t, reply.Refused[1].RetryAfterMs)
		require.Empty(t, reply.Refused[3].Description, "given once")
		require.EqualValues(t, 2, q.Depth())
	})
}

// In an ordered queue, a message that is refused behind another one, perhaps of its key, is not
// retried before it.
func TestRetriesOfAnOrderedBatch(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) {
			s.Ordering, s.FairnessHeader, s.EnqueueRatePerKey, s.MaxDepth = wire.OrderingKey, "K", "1/5", 3
		})
		require.Nil(t, q.Accept(batchOf(false,
			[]string{"a1", "K", "a"}, []string{"a2", "K", "a"}, []string{"?", wire.HeaderTTL, "soon"}, []string{"a3", "K", "a"},
		)))
		reply, _ := r.batched()
		require.Equal(t, map[int]int{1: wire.CodeEnqueueRate, 2: wire.CodeBadTTL, 3: wire.CodePredecessorRefused}, refusedIn(reply))
		require.Greater(t, reply.Refused[0].RetryAfterMs, fullRetryAfter.Milliseconds())
		require.Equal(t, reply.Refused[0].RetryAfterMs, reply.Refused[2].RetryAfterMs, "with the message of its key")

		require.Nil(t, q.Accept(batchOf(false,
			[]string{"a4", "K", "a"}, []string{"b1", "K", "b"}, []string{"c1", "K", "c"}, []string{"a5", "K", "a"},
		)))
		reply, _ = r.batched()
		require.Equal(t, map[int]int{0: wire.CodeEnqueueRate, 3: wire.CodeBacklogMessages}, refusedIn(reply))
		require.Equal(t, reply.Refused[0].RetryAfterMs, reply.Refused[1].RetryAfterMs)
	})
}

func TestAtomicBatch(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) {
			s.FairnessHeader, s.MaxPendingPerKey, s.MaxDepth, s.EnqueueRate, s.EnqueueBurst = "K", 2, 4, "1", 4
		})
		refused := q.Accept(batchOf(true, []string{"a1", "K", "a", wire.HeaderMsgID, "x"}, []string{"a2", "K", "a"}, []string{"a3", "K", "a"}))
		require.Equal(t, wire.CodeKeyPending, refused.ErrCode)
		require.Contains(t, refused.Description, "message 2 of the batch, which is atomic: ")
		require.Zero(t, q.Depth())
		require.Zero(t, q.Bytes())
		require.Zero(t, r.uncommitted.Load())

		// A refused batch gives back the dedupe id, the counts of keys and the rate that it had taken.
		require.Nil(t, q.Accept(batchOf(true,
			[]string{"a1", "K", "a", wire.HeaderMsgID, "x"}, []string{"a2", "K", "a"}, []string{"b1", "K", "b"},
			[]string{"a1", "K", "a", wire.HeaderMsgID, "x"},
		)))
		reply, ids := r.batched()
		require.Empty(t, reply.Refused)
		require.Equal(t, []int{3}, reply.Duplicates)
		require.Equal(t, ids[0], ids[3])
		require.EqualValues(t, 3, q.Depth())
		require.EqualValues(t, 1, *reply.Room)
		require.Equal(t, wire.CodeBacklogMessages, q.Accept(batchOf(true, []string{"c", "K", "c"}, []string{"d", "K", "d"})).ErrCode)
		require.Nil(t, q.Accept(batchOf(true, []string{"e", "K", "e"})))
		r.batched()
	})
}

// TestAtomicBatchIsOneCommit also beside other messages and above the size at which commits are
// divided.
func TestAtomicBatchIsOneCommit(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		large := strings.Repeat("x", 300_000)
		var commits []int
		r.store.refuse(func(b *store.Batch) error {
			commits = append(commits, len(b.Add))
			return nil
		})
		require.Nil(t, r.enqueue("before", "", nil))
		require.Nil(t, q.Accept(batchOf(true, []string{large}, []string{large}, []string{large}, []string{large}, []string{large})))
		require.Nil(t, r.enqueue("after", "", nil))
		reply, _ := r.batched()
		require.Empty(t, reply.Refused)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []int{1, 5, 1}, commits)
	})
}

func TestBatchWhoseCommitFails(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.store.refuse(func(*store.Batch) error { return store.ErrCorrupt })
		require.Nil(t, q.Accept(batchOf(true, []string{"a"}, []string{"b"})))
		reply, ids := r.batched()
		require.Equal(t, map[int]int{0: wire.CodeOutcomeUnknown, 1: wire.CodeOutcomeUnknown}, refusedIn(reply))
		require.Equal(t, []string{uuid.UUID{}.String(), uuid.UUID{}.String()}, ids)
	})
}

func TestBatchOfAQueueThatEnds(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		q.run.end()
		for _, atomic := range []bool{false, true} {
			require.Equal(t, wire.CodeDraining, q.Accept(batchOf(atomic, []string{"a"})).ErrCode)
			require.Zero(t, q.Depth())
		}
	})
}

func TestBatchWithoutReply(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		m := batchOf(false, []string{"a"}, []string{"b", wire.HeaderDelay, "soon"})
		m.Reply = ""
		require.Nil(t, q.Accept(m))
		require.Len(t, r.news(wire.EventRefused), 1)
		require.EqualValues(t, 1, q.Depth())
	})
}

// batches returns the first bytes of the deliveries to a subject since the last call, by batch.
func (r *rig) batches(subject string) (all []string) {
	r.t.Helper()
	synctest.Wait()
	for _, m := range r.conn.take(subject) {
		n, err := strconv.Atoi(m.Header.Get(wire.HeaderBatch))
		require.NoError(r.t, err)
		deliveries, werr := wire.ParseDelivered(m.Data, n)
		require.Nil(r.t, werr)
		text := ""
		for _, d := range deliveries {
			text += string(d.Data[:1])
		}
		all = append(all, text)
	}
	return all
}

func (r *rig) consumeBatches(q *Queue, name string, credit int, form queue.DeliveryForm) {
	r.t.Helper()
	require.True(r.t, q.Tell(queue.Register{Consumer: name, Subject: name, MaxInFlight: credit, Form: form}))
	synctest.Wait()
}

func TestBatchWaits(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.consumeBatches(q, "w", 100, queue.DeliveryForm{Batch: 3, BatchWaitMs: 50})
		require.Nil(t, r.enqueue("a", "", nil))
		time.Sleep(20 * time.Millisecond)
		require.Nil(t, r.enqueue("b", "", nil))
		require.Empty(t, r.batches("w"))
		time.Sleep(31 * time.Millisecond)
		require.Equal(t, []string{"ab"}, r.batches("w"))

		for _, body := range []string{"c", "d", "e", "f"} {
			require.Nil(t, r.enqueue(body, "", nil))
		}
		require.Equal(t, []string{"cde"}, r.batches("w"), "it is full")
		time.Sleep(51 * time.Millisecond)
		require.Equal(t, []string{"f"}, r.batches("w"))

		require.Nil(t, r.enqueue("g", "", nil))
		synctest.Wait()
		q.run.end()
		require.Equal(t, []string{"g"}, r.batches("w"), "nothing waits for a machine that has ended")
	})
}

func TestBatchBytes(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		for _, body := range []string{"a", "b", "c", "d"} {
			require.Nil(t, r.enqueue(strings.Repeat(body, 1900), "", nil))
		}
		require.Nil(t, r.enqueue(strings.Repeat("e", 9000), "", nil))
		r.consumeBatches(q, "w", 100, queue.DeliveryForm{Batch: 100, BatchBytes: 4096})
		require.Equal(t, []string{"ab", "cd", "e"}, r.batches("w"), "a larger message goes alone")
	})
}

func TestBatchesOfTwoConsumers(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.consumeBatches(q, "one", 3, queue.DeliveryForm{Batch: 2})
		r.consumeBatches(q, "two", 3, queue.DeliveryForm{Batch: 9, MinHeaders: true})
		all := make([][]string, 0, 6)
		for _, body := range []string{"a", "b", "c", "d", "e", "f"} {
			all = append(all, []string{body})
		}
		require.Nil(t, q.Accept(batchOf(false, all...)))
		require.Equal(t, []string{"ac", "e"}, r.batches("one"))
		require.Equal(t, []string{"bdf"}, r.batches("two"))
	})
}

// A batch that cannot be published leaves no message leased.
func TestBatchThatCannotBePublished(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		failed := false
		r.conn.refuse(func(m *nats.Msg) error {
			if m.Subject != "w" || failed {
				return nil
			}
			failed = true
			return nats.ErrConnectionReconnecting
		})
		r.consumeBatches(q, "w", 10, queue.DeliveryForm{Batch: 10})
		require.Nil(t, q.Accept(batchOf(false, []string{"a"}, []string{"b"})))
		require.Equal(t, []string{"ab"}, r.batches("w"))
		require.True(t, failed)
	})
}
