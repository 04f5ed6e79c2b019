package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
)

// pileCauses are the errors of the dead letters of a pile, with a number in each.
var pileCauses = [...]string{
	"dial tcp 10.0.%d.17:5432: connection refused after 1500ms",
	"no such customer cust-%d: the account was closed",
	"cannot open /var/lib/orders/%d.json: permission denied",
}

// pileTenants is the number of values of the header tenant in a pile.
const pileTenants = 100

// pile creates the queues, fills each, or its DLQ if the name is of one, with n messages of a
// payload size, and restarts fila. One of a hundred messages is real; the others are copies
// written to the file, since a million real ones would take minutes.
func (p *proc) pile(t testing.TB, n, bytes int, queues ...string) {
	t.Helper()
	c := p.client(t)
	for _, name := range queues {
		queue, dead := sourceOf(name)
		c.createQueue(queue, m{"max_deliveries": 1, "retry_initial_ms": 0, "max_depth": 0, "fairness_header": "tenant"})
		var msgs []*nats.Msg
		for i := range pileTenants {
			msgs = append(msgs, &nats.Msg{
				Subject: "fila.enqueue." + queue, Data: make([]byte, bytes),
				Header: nats.Header{"tenant": {fmt.Sprint("tenant-", i)}, "Kind": {"order"}},
			})
		}
		c.enqueueAll(msgs)
		if dead {
			k := c.consume(queue, pileTenants)
			for range msgs {
				require.NoError(t, k.next().Respond([]byte("+TERM")))
			}
			c.waitDepth(name, pileTenants)
			k.leave()
		}
	}
	c.nc.Close()
	require.Zero(t, p.Stop(t))
	for _, name := range queues {
		p.copies(t, name, n-pileTenants)
	}
	p.Restart(t)
}

// sourceOf returns the queue of a DLQ, if name is of one.
func sourceOf(name string) (queue string, dead bool) {
	const suffix = ".dlq"
	if len(name) > len(suffix) && name[len(name)-len(suffix):] == suffix {
		return name[:len(name)-len(suffix)], true
	}
	return name, false
}

// copies adds n copies of the messages of a queue to the file of a fila that has ended.
func (p *proc) copies(t testing.TB, queue string, n int) {
	t.Helper()
	type sample struct {
		store.Message
		past [][]byte
	}
	var samples []sample
	last := uint64(0)
	id := p.look(t, queue, func(msg *store.Message, past [][]byte) {
		s := sample{Message: *msg}
		s.Headers, s.Payload = append([]byte{}, msg.Headers...), append([]byte{}, msg.Payload...)
		if s.ThrottleKeys = nil; msg.Dead != nil {
			d := *msg.Dead
			s.Dead = &d
		}
		for _, r := range past {
			s.past = append(s.past, append([]byte{}, r...))
		}
		samples, last = append(samples, s), max(last, msg.Seq)
	})
	db, err := store.Open(p.file(), store.Options{})
	require.NoError(t, err)
	begin := time.Now().Add(-time.Hour).UnixNano()
	const atOnce = 10_000
	for i := 0; i < n; {
		b := &store.Batch{Queue: id}
		for ; i < n && len(b.Add) < atOnce; i++ {
			s := &samples[i%len(samples)]
			msg := s.Message
			msg.Seq, msg.EnqueuedAt = last+1+uint64(i), begin+int64(i)
			msg.ID = store.ID{7: byte(id)} // fila gives no id with this prefix
			for j := range 8 {
				msg.ID[8+j] = byte(uint64(i) >> (56 - 8*j))
			}
			if msg.Dead != nil {
				d := *msg.Dead
				d.Error, d.At = fmt.Sprintf(pileCauses[i%len(pileCauses)], i), d.At+int64(i)
				msg.Dead = &d
			}
			b.Add = append(b.Add, msg)
			for _, r := range s.past {
				b.History = append(b.History, store.Attempt{Ref: msg.Ref, Record: r})
			}
		}
		done := make(chan error, 1)
		b.Done = func(err error) { done <- err }
		db.Submit(b)
		require.NoError(t, <-done)
	}
	require.NoError(t, db.Close())
}

// look visits the messages of a queue in the file of a fila that has ended, and returns the
// queue's id.
func (p *proc) look(t testing.TB, queue string, fn func(msg *store.Message, past [][]byte)) (id store.QueueID) {
	t.Helper()
	f, err := store.OpenFile(p.file(), store.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	snap, err := f.Snapshot()
	require.NoError(t, err)
	for _, q := range snap.Queues {
		if q.Name == queue {
			id = q.ID
		}
	}
	require.NotZero(t, id, "no queue %s", queue)
	require.NoError(t, f.Messages(nil, func(msg *store.Message, _ *store.State, past [][]byte) error {
		if msg.Queue == id {
			fn(msg, past)
		}
		return nil
	}))
	return id
}
