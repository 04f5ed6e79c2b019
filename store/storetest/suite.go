package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
)

// Opener opens the store in dir and creates it if there is none.
type Opener func(t testing.TB, dir string) store.Store

// Run checks the contract of store.Store: by scripts, whose result is compared with a
// [Model], and by tests of what a script cannot show. Each part gets a new directory.
func Run(t *testing.T, open Opener) {
	parts := map[string]func(*env){
		"Empty": testEmpty, "VisitorErrors": testVisitorErrors, "DoneOrder": testDoneOrder,
		"Close": testClose, "ConcurrentReaders": testConcurrentReaders,
	}
	for name, steps := range scripts() {
		parts[name] = func(e *env) { e.play(steps) }
	}
	for name, fn := range parts {
		t.Run(name, func(t *testing.T) {
			e := &env{T: t, open: open, dir: t.TempDir()}
			e.s = open(t, e.dir)
			t.Cleanup(func() { require.NoError(t, e.s.Close()) })
			fn(e)
		})
	}
}

// play submits the batches of a script to the store and to a model, and compares both
// after each of them: what they answer, and what is there after a restart.
func (e *env) play(steps []step) {
	m := NewModel(func() int64 { return time.Now().UnixNano() })
	refs := []store.Ref{ref(9, 9), ref(1, 99)} // of no message
	commits := e.s.Stats().Commits
	for i, st := range steps {
		for _, a := range st.Add {
			refs = append(refs, a.Ref, a.Ref)
		}
		for _, mv := range st.Move {
			refs = append([]store.Ref{mv.To.Ref}, refs...)
		}
		require.ErrorIs(e, e.do(st.Batch), st.want, "step %d", i)
		require.ErrorIs(e, m.Apply(&st.Batch), st.want, "step %d", i)
		e.compareReads(m, refs)
		if st.want == nil {
			require.Equal(e, Dump(e, m), e.content(), "step %d", i)
			e.compareReads(m, refs)
		}
	}
	require.Equal(e, Dump(e, m), e.content())
	require.Greater(e, e.s.Stats().Commits, commits)
}

// compareReads compares what a store and the model say about messages, and their figures.
func (e *env) compareReads(m *Model, refs []store.Ref) {
	e.Helper()
	require.NoError(e, errors.Join(e.s.Read(nil, nil), e.s.Dead(nil, nil), e.s.History(nil, nil)))
	answers := func(s store.Store) (got []string) {
		say := func(what string, err error) {
			got = append(got, fmt.Sprint(what, errors.Is(err, store.ErrNotFound), store.Fatal(err)))
		}
		say("read", s.Read(refs, func(i int, headers, payload []byte) {
			got = append(got, fmt.Sprintf("%v %q %q", refs[i], headers, payload))
		}))
		say("dead", s.Dead(refs, func(i int, d *store.Dead) { got = append(got, fmt.Sprintf("%v %+v", refs[i], d)) }))
		say("history", s.History(refs, func(i int, records [][]byte) { got = append(got, fmt.Sprintf("%v %q", refs[i], records)) }))
		st := s.Stats()
		return append(got, fmt.Sprint(st.Messages, st.LiveBytes, st.States, st.Histories))
	}
	require.Equal(e, answers(m), answers(e.s))
	st := e.s.Stats()
	require.GreaterOrEqual(e, st.StoredMessages, st.Messages)
}

// env is one store under test.
type env struct {
	*testing.T
	open Opener
	dir  string
	s    store.Store
}

// reopen closes the store and opens it again.
func (e *env) reopen() {
	e.Helper()
	require.NoError(e, e.s.Close())
	e.s = e.open(e, e.dir)
}

// do submits a batch and waits for its outcome.
func (e *env) do(b store.Batch) error {
	return Do(e.s, &b)
}

// Do submits a batch and waits for its outcome. It sets Done.
func Do(s store.Store, b *store.Batch) error {
	done := make(chan error, 1)
	b.Done = func(err error) { done <- err }
	s.Submit(b)
	return <-done
}

func (e *env) must(b store.Batch) {
	e.Helper()
	require.NoError(e, e.do(b))
}

// content reopens the store and returns everything in it.
func (e *env) content() *Content {
	e.Helper()
	e.reopen()
	return Dump(e, e.s)
}

// refs returns the live messages after a reopen.
func (e *env) refs() []store.Ref {
	e.Helper()
	var out []store.Ref
	for _, m := range e.content().Messages {
		out = append(out, m.Ref)
	}
	return out
}

func ref(q store.QueueID, seq uint64) store.Ref { return store.Ref{Queue: q, Seq: seq} }

// message is one with every field set.
func message(q store.QueueID, seq uint64) store.Message {
	m := store.Message{
		Ref: ref(q, seq), ID: store.ID{byte(q), byte(seq), 15: byte(seq >> 8)},
		EnqueuedAt: int64(1e18 + seq), NotBefore: 5, Delayed: seq%2 == 0, ExpiresAt: -6,
		Class:    store.Class{Weight: 1000, Cost: 2500, Key: "tenant", ThrottleKeys: []string{"a", "", "ccc"}, CircuitKey: "stripe"},
		Attempts: 7,
		Headers:  []byte("headers"), Payload: Payload(q, seq),
	}
	if seq%3 == 1 {
		m.Routes = []store.Route{{Name: "one", Weight: 3000, ThrottleKeys: []string{"one:tpm"}, CircuitKey: "one"}, {Name: "two"}}
	}
	return m
}

// Payload returns a payload that no other message has.
func Payload(q store.QueueID, seq uint64) []byte {
	b := make([]byte, 20+(seq*31+uint64(q)*7)%100)
	x := seq*2654435761 + uint64(q)
	for i := range b {
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 56)
	}
	return b
}
