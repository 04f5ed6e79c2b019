package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
)

// Opener opens the store in dir and creates it if there is none.
type Opener func(t testing.TB, dir string) store.Store

// Run checks the contract of store.Store. Each part gets a new directory.
func Run(t *testing.T, open Opener) {
	parts := []struct {
		name string
		fn   func(*env)
	}{
		{"Empty", testEmpty},
		{"RoundTrip", testRoundTrip},
		{"RecoveryOrder", testRecoveryOrder},
		{"Read", testRead},
		{"Dead", testDead},
		{"History", testHistory},
		{"HistoryIsBounded", testHistoryIsBounded},
		{"HistoryMoves", testHistoryMoves},
		{"Finish", testFinish},
		{"State", testState},
		{"OrderWithinBatch", testOrderWithinBatch},
		{"Move", testMove},
		{"MoveRefused", testMoveRefused},
		{"RefusedAlone", testRefusedAlone},
		{"Refusals", testRefusals},
		{"Queues", testQueues},
		{"DeleteQueue", testDeleteQueue},
		{"Consumers", testConsumers},
		{"Config", testConfig},
		{"Dedupe", testDedupe},
		{"VisitorErrors", testVisitorErrors},
		{"DoneOrder", testDoneOrder},
		{"Close", testClose},
		{"ConcurrentReaders", testConcurrentReaders},
		{"Stats", testStats},
	}
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			e := &env{T: t, open: open, dir: t.TempDir()}
			e.s = open(t, e.dir)
			t.Cleanup(func() { require.NoError(t, e.s.Close()) })
			p.fn(e)
		})
	}
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

// queue makes queues 1 to n.
func (e *env) queue(n int) {
	e.Helper()
	var b store.Batch
	for i := range n {
		b.PutQueues = append(b.PutQueues, store.QueueRecord{ID: store.QueueID(i + 1), Name: string(rune('a' + i))})
	}
	e.must(b)
}

// content reopens the store and returns everything in it.
func (e *env) content() *Content {
	e.Helper()
	e.reopen()
	c, err := Dump(e.s)
	require.NoError(e, err)
	return c.Normalise()
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
	return store.Message{
		Ref: ref(q, seq), ID: store.ID{byte(q), byte(seq), 15: byte(seq >> 8)},
		EnqueuedAt: int64(1e18 + seq), NotBefore: 5, Delayed: seq%2 == 0, ExpiresAt: -6,
		Class:    store.Class{Weight: 1000, Cost: 2500, Key: "tenant", ThrottleKeys: []string{"a", "", "ccc"}, CircuitKey: "stripe"},
		Attempts: 7,
		Headers:  []byte("headers"), Payload: Payload(q, seq),
	}
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
