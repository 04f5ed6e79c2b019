package storetest

import (
	"fmt"
	"slices"
	"strings"

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
		Lease: store.Lease{ID: 1 << 60, Consumer: "c1", Deadline: 1234, DeliveredAt: 999, Held: "held"},
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

func attempt(r store.Ref, record string) store.Attempt {
	return store.Attempt{Ref: r, Record: []byte(record)}
}

// histories reads the histories of messages that are there, before and after a reopen.
func (e *env) histories(refs ...store.Ref) (all [][]string) {
	e.Helper()
	for i := range 2 {
		got := make([][]string, len(refs))
		require.NoError(e, e.s.History(refs, func(i int, records [][]byte) {
			got[i] = []string{}
			for _, r := range records {
				got[i] = append(got[i], string(r))
			}
		}))
		if i == 0 {
			e.reopen()
			all = got
		}
		require.Equal(e, all, got)
	}
	return all
}

func testHistory(e *env) {
	e.queue(2)
	e.must(store.Batch{
		Add:     []store.Message{message(1, 1), message(1, 2), message(2, 1)},
		History: []store.Attempt{attempt(ref(1, 1), "one"), attempt(ref(1, 9), "of nobody"), attempt(ref(2, 1), "other"), attempt(ref(1, 1), "two")},
	})
	require.Equal(e, [][]string{{"one", "two"}, {}, {"other"}, {"one", "two"}}, e.histories(ref(1, 1), ref(1, 2), ref(2, 1), ref(1, 1)))
	e.must(store.Batch{History: []store.Attempt{attempt(ref(1, 1), "three"), attempt(ref(1, 2), "first")}})
	require.Equal(e, [][]string{{"one", "two", "three"}, {"first"}}, e.histories(ref(1, 1), ref(1, 2)))
	require.Equal(e, int64(3), e.s.Stats().Histories)

	var got []int
	err := e.s.History([]store.Ref{ref(1, 7), ref(2, 1), ref(9, 1)}, func(i int, _ [][]byte) { got = append(got, i) })
	require.ErrorIs(e, err, store.ErrNotFound)
	require.Equal(e, []int{1}, got)

	// It ends with its message: who gets the number has no past.
	e.must(store.Batch{Finish: []store.Ref{ref(1, 1), ref(1, 2)}, History: []store.Attempt{attempt(ref(1, 1), "late")}})
	e.must(store.Batch{Add: []store.Message{message(1, 1), message(1, 2)}, History: []store.Attempt{attempt(ref(1, 2), "anew")}})
	require.Equal(e, [][]string{{}, {"anew"}}, e.histories(ref(1, 1), ref(1, 2)))
	e.must(store.Batch{DeleteQueues: []store.QueueID{1}})
	require.Equal(e, int64(1), e.s.Stats().Histories)

	require.ErrorIs(e, e.do(store.Batch{History: []store.Attempt{attempt(ref(2, 1), "")}}), store.ErrInvalid)
	long := strings.Repeat("x", store.MaxAttemptBytes+1)
	require.ErrorIs(e, e.do(store.Batch{History: []store.Attempt{attempt(ref(2, 1), long)}}), store.ErrTooBig)
	e.must(store.Batch{History: []store.Attempt{attempt(ref(2, 1), long[1:])}})
	require.Equal(e, [][]string{{"other", long[1:]}}, e.histories(ref(2, 1)))
}

// The first record stays, and of the others the newest.
func testHistoryIsBounded(e *env) {
	e.queue(1)
	e.must(store.Batch{Add: []store.Message{message(1, 1), message(1, 2)}})
	for i := range 40 {
		e.must(store.Batch{History: []store.Attempt{attempt(ref(1, 1), fmt.Sprint(i))}})
	}
	want := []string{"0"}
	for i := 40 - store.MaxHistory + 1; i < 40; i++ {
		want = append(want, fmt.Sprint(i))
	}
	require.Equal(e, [][]string{want}, e.histories(ref(1, 1)))

	var all store.Batch
	for i := range 10 {
		all.History = append(all.History, attempt(ref(1, 2), strings.Repeat(fmt.Sprint(i), store.MaxAttemptBytes)))
	}
	e.must(all)
	got := e.histories(ref(1, 2))[0]
	first := make([]byte, 0, 4)
	for _, r := range got {
		first = append(first, r[0])
	}
	require.Equal(e, "089", string(first)) // with their lengths four are too long
	e.must(store.Batch{History: []store.Attempt{attempt(ref(1, 2), "small")}})
	require.Len(e, e.histories(ref(1, 2))[0], 4)
}

func testHistoryMoves(e *env) {
	e.queue(2)
	e.must(store.Batch{Add: []store.Message{message(1, 1), message(1, 2)}, History: []store.Attempt{attempt(ref(1, 1), "one")}})
	e.must(store.Batch{
		Move:    []store.Move{{From: ref(1, 1), To: message(2, 1)}, {From: ref(1, 2), To: message(2, 2)}},
		History: []store.Attempt{attempt(ref(2, 1), "two"), attempt(ref(1, 1), "of nobody"), attempt(ref(2, 2), "first")},
	})
	require.Equal(e, [][]string{{"one", "two"}, {"first"}}, e.histories(ref(2, 1), ref(2, 2)))
	require.Equal(e, int64(2), e.s.Stats().Histories)
	// There and back, and a number that is free again, in one batch each.
	e.must(store.Batch{
		Add:     []store.Message{message(1, 3)},
		Move:    []store.Move{{From: ref(2, 1), To: message(1, 4)}, {From: ref(1, 4), To: message(2, 3)}, {From: ref(2, 2), To: message(1, 1)}},
		History: []store.Attempt{attempt(ref(2, 3), "three")},
	})
	require.Equal(e, [][]string{{"one", "two", "three"}, {"first"}, {}}, e.histories(ref(2, 3), ref(1, 1), ref(1, 3)))
	e.must(store.Batch{Move: []store.Move{{From: ref(2, 3), To: message(1, 5)}}, Finish: []store.Ref{ref(1, 5)}})
	e.must(store.Batch{Add: []store.Message{message(1, 5), message(2, 3)}})
	require.Equal(e, [][]string{{}, {}}, e.histories(ref(1, 5), ref(2, 3)))
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
	to := store.Message{Ref: ref(2, 1), ID: store.ID{1, 1}, Class: store.Class{Key: "k"}, Dead: &store.Dead{Reason: "on_failure"}, Payload: []byte("ignored")}
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
