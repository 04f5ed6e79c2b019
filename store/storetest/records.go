package storetest

import (
	"errors"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
)

func testRefusedAlone(e *env) {
	e.queue(1)
	errs := make(chan error, 3)
	done := func(err error) { errs <- err }
	e.s.Submit(&store.Batch{Add: []store.Message{message(1, 1)}, Done: done})
	e.s.Submit(&store.Batch{Add: []store.Message{message(1, 2), message(1, 1)}, PutConfig: []store.Entry{{Key: "x"}}, Done: done})
	e.s.Submit(&store.Batch{Add: []store.Message{message(1, 3)}, Done: done})
	require.NoError(e, <-errs)
	require.ErrorIs(e, <-errs, store.ErrDuplicate)
	require.NoError(e, <-errs)
	c := e.content()
	require.Len(e, c.Messages, 2)
	require.Empty(e, c.Config)
	e.must(store.Batch{Add: []store.Message{message(1, 2)}})
}

func testRefusals(e *env) {
	e.queue(1)
	e.must(store.Batch{Add: []store.Message{message(1, 1)}})
	long := strings.Repeat("x", store.MaxHeaderBytes)
	huge := make([]byte, store.MaxMessageBytes+1)
	q := func(id store.QueueID, name string) []store.QueueRecord {
		return []store.QueueRecord{{ID: id, Name: name}}
	}
	for name, c := range map[string]struct {
		batch store.Batch
		want  error
	}{
		"add twice":            {store.Batch{Add: []store.Message{message(1, 2), message(1, 2)}}, store.ErrDuplicate},
		"no queue":             {store.Batch{Add: []store.Message{message(2, 1)}}, store.ErrNoQueue},
		"new queue fails, too": {store.Batch{PutQueues: q(2, "b"), Add: []store.Message{message(2, 1), message(3, 1)}}, store.ErrNoQueue},
		"big payload":          {store.Batch{Add: []store.Message{{Ref: ref(1, 2), Payload: huge}}}, store.ErrTooBig},
		"long key":             {store.Batch{Add: []store.Message{{Ref: ref(1, 2), Class: store.Class{Key: long}}}}, store.ErrTooBig},
		"long error":           {store.Batch{State: []store.State{{Ref: ref(1, 1), LastError: long}}}, store.ErrTooBig},
		"long move": {store.Batch{Move: []store.Move{{From: ref(1, 1), To: store.Message{
			Ref:   ref(1, 2),
			Class: store.Class{Key: long},
		}}}}, store.ErrTooBig},
		"queue 0":            {store.Batch{PutQueues: q(0, "b")}, store.ErrInvalid},
		"queue without name": {store.Batch{PutQueues: q(2, "")}, store.ErrInvalid},
		"consumer, no queue": {store.Batch{PutConsumers: []store.ConsumerRecord{{Queue: 2, Name: "c"}}}, store.ErrNoQueue},
		"consumer, no name":  {store.Batch{PutConsumers: []store.ConsumerRecord{{Queue: 1}}}, store.ErrInvalid},
		"dedupe, no queue":   {store.Batch{Dedupe: []store.Dedupe{{Queue: 2, DedupeID: "d"}}}, store.ErrNoQueue},
		"dedupe, no id":      {store.Batch{Dedupe: []store.Dedupe{{Queue: 1}}}, store.ErrInvalid},
		"dedupe, long id":    {store.Batch{Dedupe: []store.Dedupe{{Queue: 1, DedupeID: long}}}, store.ErrTooBig},
		"config, no key":     {store.Batch{PutConfig: []store.Entry{{Value: "v"}}}, store.ErrInvalid},
		"config, long value": {store.Batch{PutConfig: []store.Entry{{Key: "k", Value: long + "x"}}}, store.ErrTooBig},
	} {
		b := c.batch
		b.Finish = append(b.Finish, ref(1, 1))
		require.ErrorIs(e, e.do(b), c.want, name)
	}
	c := e.content()
	require.Len(e, c.Messages, 1)
	require.Len(e, c.Queues, 1)
	require.Equal(e, store.QueueID(2), c.NextQueue)
}

func testQueues(e *env) {
	a := store.QueueRecord{ID: 1, Name: "a", Settings: []byte(`{"x":1}`)}
	b := store.QueueRecord{ID: 2, Name: "b"}
	e.must(store.Batch{PutQueues: []store.QueueRecord{b, a}})
	c := e.content()
	require.Equal(e, []store.QueueRecord{a, b}, c.Queues)
	require.Equal(e, store.QueueID(3), c.NextQueue)
	a.Settings = []byte("other")
	far := store.QueueRecord{ID: 40, Name: "far"}
	e.must(store.Batch{PutQueues: []store.QueueRecord{a, far}})
	c = e.content()
	require.Equal(e, []store.QueueRecord{a, b, far}, c.Queues)
	require.Equal(e, store.QueueID(41), c.NextQueue)
	require.ErrorIs(e, e.do(store.Batch{PutQueues: []store.QueueRecord{{ID: 39, Name: "late"}}}), store.ErrInvalid)
}

func testDeleteQueue(e *env) {
	e.queue(2)
	until := time.Now().Add(time.Hour).UnixNano()
	for seq := uint64(1); seq <= 20; seq++ {
		e.must(store.Batch{
			Add:          []store.Message{message(1, seq), message(2, seq)},
			State:        []store.State{{Ref: ref(1, seq), Attempts: 1}, {Ref: ref(2, seq), Attempts: 1}},
			Dedupe:       []store.Dedupe{{Queue: 1, DedupeID: "d", Until: until}, {Queue: 2, DedupeID: "d", Until: until}},
			PutConsumers: []store.ConsumerRecord{{Queue: 1, Name: "c"}, {Queue: 2, Name: "c"}},
		})
	}
	// Messages of the same batch are deleted with the queue.
	e.must(store.Batch{Add: []store.Message{message(1, 30)}, DeleteQueues: []store.QueueID{1, 9}})
	require.ErrorIs(e, e.s.Read([]store.Ref{ref(1, 1)}, nil), store.ErrNotFound)
	require.ErrorIs(e, e.do(store.Batch{Add: []store.Message{message(1, 31)}}), store.ErrNoQueue)
	require.ErrorIs(e, e.do(store.Batch{PutQueues: []store.QueueRecord{{ID: 1, Name: "a"}}}), store.ErrInvalid)
	c := e.content()
	require.Len(e, c.Queues, 1)
	require.Len(e, c.Messages, 20)
	require.Equal(e, ref(2, 1), c.Messages[0].Ref)
	require.Len(e, c.Consumers, 1)
	require.Len(e, c.Dedupes, 1)
	require.Equal(e, int64(20), e.s.Stats().States)
	require.ErrorIs(e, e.do(store.Batch{PutQueues: []store.QueueRecord{{ID: 1, Name: "a"}}}), store.ErrInvalid)
}

func testConsumers(e *env) {
	e.queue(2)
	c1 := store.ConsumerRecord{Queue: 1, Name: "c1", MaxInFlight: 64, ExpiresAt: 1 << 60, Reg: 7}
	c2 := store.ConsumerRecord{Queue: 2, Name: "c1", MaxInFlight: 1}
	c3 := store.ConsumerRecord{Queue: 1, Name: "c0"}
	e.must(store.Batch{PutConsumers: []store.ConsumerRecord{c1, c2, c3}})
	require.Equal(e, []store.ConsumerRecord{c3, c1, c2}, e.content().Consumers)
	c1.MaxInFlight = 65
	e.must(store.Batch{
		PutConsumers:    []store.ConsumerRecord{c1, {Queue: 1, Name: "gone"}},
		DeleteConsumers: []store.ConsumerRecord{{Queue: 1, Name: "c0"}, {Queue: 1, Name: "gone"}, {Queue: 7, Name: "x"}},
	})
	require.Equal(e, []store.ConsumerRecord{c1, c2}, e.content().Consumers)
}

func testConfig(e *env) {
	e.must(store.Batch{PutConfig: []store.Entry{{Key: "b", Value: "2"}, {Key: "a", Value: ""}, {Key: "b", Value: "3"}}})
	require.Equal(e, []store.Entry{{Key: "a"}, {Key: "b", Value: "3"}}, e.content().Config)
	e.must(store.Batch{PutConfig: []store.Entry{{Key: "c", Value: "x"}}, DeleteConfig: []string{"a", "c", "none", ""}})
	require.Equal(e, []store.Entry{{Key: "b", Value: "3"}}, e.content().Config)
}

func testDedupe(e *env) {
	e.queue(2)
	now := time.Now()
	d := func(q store.QueueID, id string, in time.Duration) store.Dedupe {
		return store.Dedupe{Queue: q, DedupeID: id, ID: store.ID{1: byte(q)}, Until: now.Add(in).UnixNano()}
	}
	e.must(store.Batch{Dedupe: []store.Dedupe{d(1, "a", time.Hour), d(2, "a", 2*time.Hour), d(1, "old", -time.Second), d(1, "zero", 0)}})
	e.must(store.Batch{Dedupe: []store.Dedupe{d(1, "b", time.Minute), d(1, "far", 1000*time.Hour)}})
	require.Equal(e, map[string]store.Dedupe{
		"1/a": d(1, "a", time.Hour), "2/a": d(2, "a", 2*time.Hour), "1/b": d(1, "b", time.Minute), "1/far": d(1, "far", 1000*time.Hour),
	}, e.content().Dedupes)
	// A dedupe id outlives its message and may come again with a later time.
	e.must(store.Batch{Add: []store.Message{message(1, 1)}, Dedupe: []store.Dedupe{d(1, "m", time.Hour)}})
	e.must(store.Batch{Finish: []store.Ref{ref(1, 1)}})
	require.Contains(e, e.content().Dedupes, "1/m")
}

func testVisitorErrors(e *env) {
	e.queue(1)
	e.must(store.Batch{
		Add:    []store.Message{message(1, 1), message(1, 2)},
		Dedupe: []store.Dedupe{{Queue: 1, DedupeID: "d", Until: time.Now().Add(time.Hour).UnixNano()}},
	})
	e.reopen()
	stop := errors.New("stop")
	n := 0
	_, err := e.s.Recover(store.Visitor{Message: func(*store.Message, int, *store.State) error { n++; return stop }})
	require.ErrorIs(e, err, stop)
	require.Equal(e, 1, n)
	_, err = e.s.Recover(store.Visitor{Dedupe: func(store.Dedupe) error { return stop }})
	require.ErrorIs(e, err, stop)
	var done, total int64
	rs, err := e.s.Recover(store.Visitor{Progress: func(d, t int64) { done, total = d, t }})
	require.NoError(e, err)
	require.Equal(e, [2]int64{2, 2}, [2]int64{done, total})
	require.Equal(e, int64(2), rs.Messages)
	require.Equal(e, int64(1), rs.Dedupes)
	require.Equal(e, e.s.Stats().LiveBytes, rs.Bytes)
}
