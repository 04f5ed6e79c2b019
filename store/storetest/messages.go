package storetest

import (
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
)

func testEmpty(e *env) {
	snap, err := e.s.Snapshot()
	require.NoError(e, err)
	require.Len(e, snap.Secret, 32)
	require.NotEqual(e, make([]byte, 32), snap.Secret)
	require.Equal(e, store.QueueID(1), snap.NextQueueID)
	require.Empty(e, snap.Queues)
	rs, err := e.s.Recover(store.Visitor{})
	require.NoError(e, err)
	require.Zero(e, rs.Messages)
	e.must(store.Batch{})
	e.reopen()
	again, err := e.s.Snapshot()
	require.NoError(e, err)
	require.Equal(e, snap.Secret, again.Secret)
	require.Equal(e, snap.CreatedAt, again.CreatedAt)
	require.NoError(e, e.s.Err())
	select {
	case <-e.s.Failed():
		require.Fail(e, "failed")
	default:
	}
}

func testRoundTrip(e *env) {
	e.queue(2)
	dead := message(2, 1)
	dead.Dead = &store.Dead{Reason: "max_deliveries", Error: "boom", ErrorCode: "E1", SourceQueue: "a", At: 77, Attempts: 20}
	bare := store.Message{Ref: ref(1, 9)}
	state := store.State{
		Ref: ref(1, 1), Attempts: 3, ReadyAt: 99, LastError: "timeout",
		Lease: store.Lease{ID: 1 << 60, Consumer: "c1", Deadline: 1234},
	}
	e.must(store.Batch{Add: []store.Message{message(1, 1), bare, dead}, State: []store.State{state}})
	c := e.content()
	require.Equal(e, []Stored{{Message: message(1, 1), State: &state}, {Message: bare}, {Message: dead}}, c.Messages)
}

func testRecoveryOrder(e *env) {
	e.queue(3)
	for _, r := range []store.Ref{ref(3, 1), ref(1, 2), ref(2, 1<<20), ref(1, 700), ref(2, 5), ref(1, 3)} {
		e.must(store.Batch{Add: []store.Message{message(r.Queue, r.Seq)}})
	}
	require.Equal(e, []store.Ref{ref(1, 2), ref(1, 3), ref(1, 700), ref(2, 5), ref(2, 1<<20), ref(3, 1)}, e.refs())
}

func testRead(e *env) {
	e.queue(2)
	var b store.Batch
	for seq := uint64(1); seq <= 50; seq++ {
		b.Add = append(b.Add, message(1, seq), message(2, seq))
	}
	e.must(b)
	for range 2 {
		require.NoError(e, e.s.Read(nil, nil))
		refs := []store.Ref{ref(2, 50), ref(1, 1), ref(1, 1), ref(2, 7)}
		var got []int
		require.NoError(e, e.s.Read(refs, func(i int, headers, payload []byte) {
			require.Equal(e, "headers", string(headers))
			require.Equal(e, Payload(refs[i].Queue, refs[i].Seq), payload)
			got = append(got, i)
		}))
		require.Equal(e, []int{0, 1, 2, 3}, got)

		refs = []store.Ref{ref(1, 99), ref(1, 2), ref(9, 1), ref(2, 2), ref(1, 0)}
		got = nil
		err := e.s.Read(refs, func(i int, _, payload []byte) {
			require.Equal(e, Payload(refs[i].Queue, refs[i].Seq), payload)
			got = append(got, i)
		})
		require.ErrorIs(e, err, store.ErrNotFound)
		require.Equal(e, []int{1, 3}, got)
		e.reopen()
	}
}

func testDead(e *env) {
	e.queue(2)
	one, two := message(2, 1), message(2, 2)
	one.Dead = &store.Dead{Reason: "max_deliveries", Error: "boom", ErrorCode: "E1", SourceQueue: "a", At: 77, Attempts: 20}
	two.Dead = &store.Dead{}
	e.must(store.Batch{Add: []store.Message{one, two, message(1, 1)}})
	e.must(store.Batch{Add: []store.Message{message(1, 2)}, Move: []store.Move{{From: ref(1, 1), To: store.Message{Ref: ref(2, 3), Dead: one.Dead}}}})
	for range 2 {
		require.NoError(e, e.s.Dead(nil, nil))
		refs := []store.Ref{ref(2, 3), ref(1, 2), ref(1, 1), ref(2, 1), ref(9, 9), ref(2, 2)}
		got := make(map[int]*store.Dead)
		require.ErrorIs(e, e.s.Dead(refs, func(i int, d *store.Dead) { got[i] = d }), store.ErrNotFound)
		require.Equal(e, map[int]*store.Dead{0: one.Dead, 1: nil, 3: one.Dead, 5: {}}, got)
		e.reopen()
	}
}

func testFinish(e *env) {
	e.queue(1)
	e.must(store.Batch{Add: []store.Message{message(1, 1), message(1, 2), message(1, 3)}})
	e.must(store.Batch{Finish: []store.Ref{ref(1, 2), ref(1, 2), ref(1, 77), ref(5, 1)}})
	require.ErrorIs(e, e.s.Read([]store.Ref{ref(1, 2)}, func(int, []byte, []byte) {}), store.ErrNotFound)
	e.must(store.Batch{Finish: []store.Ref{ref(1, 2)}})
	require.Equal(e, []store.Ref{ref(1, 1), ref(1, 3)}, e.refs())
	e.must(store.Batch{Finish: []store.Ref{ref(1, 1), ref(1, 2), ref(1, 3)}})
	require.Empty(e, e.refs())
	// A number may not come twice while its message lives; what lives is all
	// that the store knows.
	e.must(store.Batch{Add: []store.Message{message(1, 4)}})
	require.Equal(e, []store.Ref{ref(1, 4)}, e.refs())
}

func testState(e *env) {
	e.queue(1)
	e.must(store.Batch{Add: []store.Message{message(1, 1), message(1, 2), message(1, 3)}})
	st := func(seq uint64, attempts uint32) store.State {
		return store.State{Ref: ref(1, seq), Attempts: attempts, Lease: store.Lease{ID: 5, Consumer: "c"}}
	}
	e.must(store.Batch{State: []store.State{st(1, 1), st(2, 1), st(9, 1), st(1, 2)}})
	e.must(store.Batch{State: []store.State{st(2, 5)}})
	c := e.content()
	require.Equal(e, uint32(2), c.Messages[0].State.Attempts)
	require.Equal(e, st(2, 5), *c.Messages[1].State)
	require.Nil(e, c.Messages[2].State)

	e.must(store.Batch{State: []store.State{st(3, 8)}, Finish: []store.Ref{ref(1, 2)}})
	e.must(store.Batch{State: []store.State{st(2, 9)}})
	c = e.content()
	require.Len(e, c.Messages, 2)
	require.Equal(e, st(3, 8), *c.Messages[1].State)
	require.Equal(e, int64(2), e.s.Stats().States)
}

func testOrderWithinBatch(e *env) {
	e.queue(1)
	e.must(store.Batch{
		Add:    []store.Message{message(1, 1), message(1, 2)},
		State:  []store.State{{Ref: ref(1, 1), Attempts: 1}, {Ref: ref(1, 2), Attempts: 2}},
		Finish: []store.Ref{ref(1, 1)},
	})
	c := e.content()
	require.Len(e, c.Messages, 1)
	require.Equal(e, uint32(2), c.Messages[0].State.Attempts)
	require.Equal(e, int64(1), e.s.Stats().States)
	// A queue and its first message may come together.
	e.must(store.Batch{PutQueues: []store.QueueRecord{{ID: 2, Name: "new"}}, Add: []store.Message{message(2, 1)}})
	require.Equal(e, []store.Ref{ref(1, 2), ref(2, 1)}, e.refs())
}

func testMove(e *env) {
	e.queue(2)
	e.must(store.Batch{
		Add:   []store.Message{message(1, 1), message(1, 2)},
		State: []store.State{{Ref: ref(1, 1), Attempts: 4}},
	})
	to := store.Message{Ref: ref(2, 1), ID: store.ID{1, 1}, Key: "k", Dead: &store.Dead{Reason: "on_failure"}, Payload: []byte("ignored")}
	e.must(store.Batch{
		Move:  []store.Move{{From: ref(1, 1), To: to}},
		State: []store.State{{Ref: ref(2, 1), Attempts: 9}},
	})
	check := func() {
		var payload []byte
		require.NoError(e, e.s.Read([]store.Ref{ref(2, 1)}, func(_ int, h, p []byte) {
			require.Equal(e, "headers", string(h))
			payload = slices.Clone(p)
		}))
		require.Equal(e, Payload(1, 1), payload)
		require.ErrorIs(e, e.s.Read([]store.Ref{ref(1, 1)}, nil), store.ErrNotFound)
	}
	check()
	c := e.content()
	check()
	require.Len(e, c.Messages, 2)
	require.Equal(e, "on_failure", c.Messages[1].Dead.Reason)
	require.Equal(e, uint32(9), c.Messages[1].State.Attempts)
	require.Equal(e, int64(1), e.s.Stats().States)

	// Added, moved and moved on in one batch.
	e.must(store.Batch{
		Add:  []store.Message{message(1, 3)},
		Move: []store.Move{{From: ref(1, 3), To: message(2, 2)}, {From: ref(2, 2), To: message(1, 4)}},
	})
	c = e.content()
	require.Equal(e, []store.Ref{ref(1, 2), ref(1, 4), ref(2, 1)}, e.refs())
	require.Equal(e, Payload(1, 3), c.Messages[1].Payload)
}

func testMoveRefused(e *env) {
	e.queue(2)
	e.must(store.Batch{Add: []store.Message{message(1, 1), message(1, 2), message(2, 1)}})
	move := func(from, to store.Ref) store.Move { return store.Move{From: from, To: message(to.Queue, to.Seq)} }
	for name, c := range map[string]struct {
		moves []store.Move
		want  error
	}{
		"unknown source":      {[]store.Move{move(ref(1, 1), ref(2, 2)), move(ref(1, 9), ref(2, 3))}, store.ErrNotFound},
		"source twice":        {[]store.Move{move(ref(1, 1), ref(2, 2)), move(ref(1, 1), ref(2, 3))}, store.ErrNotFound},
		"target taken":        {[]store.Move{move(ref(1, 1), ref(2, 1))}, store.ErrDuplicate},
		"target twice":        {[]store.Move{move(ref(1, 1), ref(2, 2)), move(ref(1, 2), ref(2, 2))}, store.ErrDuplicate},
		"onto itself":         {[]store.Move{move(ref(1, 1), ref(1, 1))}, store.ErrDuplicate},
		"target has no queue": {[]store.Move{move(ref(1, 1), ref(7, 1))}, store.ErrNoQueue},
		"source has no queue": {[]store.Move{move(ref(7, 1), ref(2, 2))}, store.ErrNotFound},
	} {
		err := e.do(store.Batch{Add: []store.Message{message(1, 50)}, Move: c.moves, Finish: []store.Ref{ref(1, 2)}})
		require.ErrorIs(e, err, c.want, name)
	}
	require.Equal(e, []store.Ref{ref(1, 1), ref(1, 2), ref(2, 1)}, e.refs())
}
