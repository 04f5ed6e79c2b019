package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
)

// machine applies one random history to a store and to the model.
type machine struct {
	t     *testing.T
	opts  store.Options
	dir   string
	dirs  int
	clock int64
	back  bool // the clock is set back at times; without dedupe ids, which end when they are looked at
	real  *store.Bolt
	model *storetest.Model
	disk  string // of the model

	queues  []store.QueueID
	nextQ   store.QueueID
	nextSeq map[store.QueueID]uint64
	refs    []store.Ref // every message there ever was
	dedupes int
	records int
}

func (m *machine) newDir() string {
	m.dirs++
	dir := filepath.Join(m.dir, fmt.Sprint(m.dirs))
	require.NoError(m.t, os.MkdirAll(dir, 0o700))
	return dir
}

func TestHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{
			t: t, dir: t.TempDir(), clock: 1e18, nextQ: 1, nextSeq: map[store.QueueID]uint64{},
			opts: store.Options{NoSync: true}.Small(),
		}
		if rapid.Bool().Draw(rt, "noCache") {
			m.opts.ReadCacheBytes = -1
		}
		m.back = rapid.Bool().Draw(rt, "back")
		m.opts.Now = func() int64 { return m.clock }
		m.disk = m.newDir()
		if rapid.Bool().Draw(rt, "join") {
			m.opts.Join = func(last, next []byte) []byte {
				if last[0]%4 == next[0]%4 { // they are joined until they are too long
					return append(bytes.Clone(last), next...)
				}
				return nil
			}
		}
		if rapid.Bool().Draw(rt, "keep") {
			m.opts.Keep = func(record []byte) bool { return record[0]%8 == 0 }
		}
		m.real = open(t, m.disk, m.opts)
		m.openModel(rt)
		m.commit(rt)
		defer func() {
			require.NoError(t, m.model.Close())
			require.NoError(t, m.real.Close())
		}()
		rt.Repeat(map[string]func(*rapid.T){
			"submit":  m.submit,
			"submit2": m.submit,
			"finish":  m.finishMany,
			"read":    m.read,
			"reopen":  m.reopen,
			"crash":   m.crash,
			"compact": m.compact,
			"backup":  m.backup,
			"clock":   func(rt *rapid.T) { m.clock += rapid.Int64Range(0, 100).Draw(rt, "step") * 1e9 },
		})
		m.reopen(rt)
	})
}

var sentinels = []error{
	store.ErrNotFound, store.ErrDuplicate, store.ErrNoQueue, store.ErrTooBig, store.ErrInvalid, store.ErrClosed, store.ErrFailed,
}

func class(err error) error {
	for _, s := range sentinels {
		if errors.Is(err, s) {
			return s
		}
	}
	return err
}

// commit makes both stores write the time.
func (m *machine) commit(rt *rapid.T) {
	m.both(rt, []store.Batch{{PutConfig: []store.Entry{{Key: "time", Value: fmt.Sprint(m.clock)}}}})
}

// down is the time between the end of one store and the start of the next one. The model stops
// and starts as well.
func (m *machine) down(rt *rapid.T) {
	require.NoError(rt, m.model.Close())
	if m.back {
		m.clock += rapid.Int64Range(-300, 300).Draw(rt, "down") * 1e9
	}
	m.openModel(rt)
}

func (m *machine) openModel(rt *rapid.T) {
	var err error
	m.model, err = storetest.OpenModel(m.disk, m.opts.Now)
	require.NoError(rt, err)
	m.model.Join, m.model.Keep = m.opts.Join, m.opts.Keep
}

// end is the end of a delay or a lease, or none.
func (m *machine) end(rt *rapid.T, name string) int64 {
	if rapid.Bool().Draw(rt, name) {
		return 0
	}
	return m.clock + rapid.Int64Range(-10e9, 1000e9).Draw(rt, name+" at")
}

// submit submits a few batches to both stores at once and compares the outcomes.
func (m *machine) submit(rt *rapid.T) {
	var batches []store.Batch
	for range rapid.IntRange(1, 4).Draw(rt, "batches") {
		batches = append(batches, m.batch(rt))
	}
	m.both(rt, batches)
}

func (m *machine) both(rt *rapid.T, batches []store.Batch) {
	results := make([]chan error, 2)
	for i, s := range []store.Store{m.model, m.real} {
		results[i] = make(chan error, len(batches))
		for _, b := range batches {
			b.Done = func(err error) { results[i] <- class(err) }
			s.Submit(&b)
		}
	}
	for i := range batches {
		require.Equal(rt, <-results[0], <-results[1], "batch %d", i)
	}
}

func (m *machine) batch(rt *rapid.T) store.Batch {
	var b store.Batch
	if len(m.queues) < 3 && (len(m.queues) == 0 || rapid.IntRange(0, 4).Draw(rt, "new queue") == 0) {
		b.PutQueues = append(b.PutQueues, store.QueueRecord{ID: m.nextQ, Name: fmt.Sprint("q", m.nextQ)})
		m.queues = append(m.queues, m.nextQ)
		m.nextQ++
	}
	for range rapid.IntRange(0, 12).Draw(rt, "adds") {
		b.Add = append(b.Add, m.message(rt))
	}
	for range rapid.IntRange(0, 2).Draw(rt, "moves") {
		if len(m.refs) > 0 && rapid.Bool().Draw(rt, "move") {
			b.Move = append(b.Move, store.Move{From: m.anyRef(rt), To: m.message(rt)})
		}
	}
	if len(m.refs) > 0 {
		for range rapid.IntRange(0, 6).Draw(rt, "finishes") {
			b.Finish = append(b.Finish, m.anyRef(rt))
		}
		for range rapid.IntRange(0, 4).Draw(rt, "attempts ended") {
			n := rapid.SampledFrom([]int{1, 20, 600, store.MaxAttemptBytes}).Draw(rt, "record")
			m.records++
			b.History = append(b.History, store.Attempt{Ref: m.anyRef(rt), Record: bytes.Repeat([]byte{byte(m.records)}, n)})
		}
		for range rapid.IntRange(0, 4).Draw(rt, "states") {
			b.State = append(b.State, store.State{
				Ref: m.anyRef(rt), Attempts: rapid.Uint32().Draw(rt, "attempts"),
				LastError: rapid.StringN(0, 8, 20).Draw(rt, "error"),
				ReadyAt:   m.end(rt, "ready"), Lease: store.Lease{Deadline: m.end(rt, "lease"), DeliveredAt: rapid.Int64Range(0, 1).Draw(rt, "began")},
			})
		}
	}
	for range rapid.IntRange(0, 2).Draw(rt, "dedupes") {
		if m.back {
			break
		}
		m.dedupes++
		b.Dedupe = append(b.Dedupe, store.Dedupe{
			Queue: m.anyQueue(rt), DedupeID: fmt.Sprint("d", m.dedupes),
			Until: m.clock + rapid.Int64Range(-1e9, 120e9).Draw(rt, "until"),
		})
	}
	switch rapid.IntRange(0, 30).Draw(rt, "rare") {
	case 0:
		i := rapid.IntRange(0, len(m.queues)-1).Draw(rt, "victim")
		b.DeleteQueues = []store.QueueID{m.queues[i]}
		m.queues = append(m.queues[:i:i], m.queues[i+1:]...)
	case 1:
		b.PutConfig = []store.Entry{{Key: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key"), Value: "v"}}
	case 2:
		b.DeleteConfig = []string{"a"}
	case 3:
		b.PutConsumers = []store.ConsumerRecord{{Queue: m.anyQueue(rt), Name: "c", Reg: rapid.Uint64().Draw(rt, "reg")}}
	case 4:
		b.DeleteConsumers = []store.ConsumerRecord{{Queue: m.anyQueue(rt), Name: "c"}}
	case 5:
		if len(m.refs) > 0 { // refused if that message lives
			b.Add = append(b.Add, store.Message{Ref: m.anyRef(rt)})
		}
	}
	return b
}

func (m *machine) anyQueue(rt *rapid.T) store.QueueID {
	if len(m.queues) == 0 {
		return 1
	}
	return rapid.SampledFrom(m.queues).Draw(rt, "queue")
}

// anyRef prefers recent messages, which are more likely to live.
func (m *machine) anyRef(rt *rapid.T) store.Ref {
	i := rapid.IntRange(0, min(len(m.refs), 150)-1).Draw(rt, "ref")
	return m.refs[len(m.refs)-1-i]
}

func (m *machine) message(rt *rapid.T) store.Message {
	q := m.anyQueue(rt)
	m.nextSeq[q]++
	seq := m.nextSeq[q]
	m.refs = append(m.refs, store.Ref{Queue: q, Seq: seq})
	a := store.Message{
		Ref:        store.Ref{Queue: q, Seq: seq},
		Class:      store.Class{Key: rapid.SampledFrom([]string{"", "x", "tenant"}).Draw(rt, "key"), Weight: 1000, Cost: 1},
		EnqueuedAt: m.clock, Payload: storetest.Payload(q, seq),
		NotBefore: m.end(rt, "not before"), Delayed: rapid.Bool().Draw(rt, "delayed"),
	}
	if rapid.IntRange(0, 9).Draw(rt, "large") == 0 {
		a.Payload = bytes.Repeat(a.Payload, 100)
	}
	return a
}

// finishMany leaves segments with few live messages behind.
func (m *machine) finishMany(rt *rapid.T) {
	var b store.Batch
	every := rapid.IntRange(1, 6).Draw(rt, "every")
	for i, ref := range m.refs {
		if every == 1 || i%every != 0 {
			b.Finish = append(b.Finish, ref)
		}
	}
	m.both(rt, []store.Batch{b})
}

func (m *machine) read(rt *rapid.T) {
	if len(m.refs) == 0 {
		return
	}
	var refs []store.Ref
	for range rapid.IntRange(1, 10).Draw(rt, "n") {
		refs = append(refs, m.anyRef(rt))
	}
	var got [2][]string
	var errs [2]error
	for i, s := range []store.Store{m.model, m.real} {
		got[i] = make([]string, len(refs))
		errs[i] = class(s.Read(refs, func(j int, h, p []byte) { got[i][j] = fmt.Sprintf("%q %q", h, p) }))
	}
	require.Equal(rt, errs[0], errs[1])
	require.Equal(rt, got[0], got[1])
	for i, s := range []store.Store{m.model, m.real} {
		clear(got[i])
		errs[i] = class(s.History(refs, func(j int, records [][]byte) { got[i][j] = fmt.Sprintf("%q", records) }))
	}
	require.Equal(rt, errs[0], errs[1])
	require.Equal(rt, got[0], got[1])
}

// reopen closes the store in the normal way.
func (m *machine) reopen(rt *rapid.T) {
	before := m.real.Stats()
	require.NoError(rt, m.real.Close())
	m.down(rt)
	m.real = open(m.t, filepath.Dir(m.real.Path()), m.opts)
	m.compare(rt)
	after := m.real.Stats()
	require.Equal(rt, before.StoredMessages, after.StoredMessages)
	require.Equal(rt, before.StoredBytes, after.StoredBytes)
	require.Equal(rt, before.Segments, after.Segments)
	require.Equal(rt, before.Commits, after.Commits)
}

// crash continues with a copy of the file that was made while it was in use.
func (m *machine) crash(rt *rapid.T) {
	dir := m.newDir()
	m.commit(rt) // what has passed since the last commit is not known after a crash
	m.real.Freeze(func() { copyFile(rt, m.real.Path(), filepath.Join(dir, "fila.db")) })
	require.NoError(rt, m.real.Close())
	m.down(rt)
	m.real = open(m.t, dir, m.opts)
	m.compare(rt)
}

func (m *machine) compare(rt *rapid.T) {
	require.Equal(rt, storetest.Dump(rt, m.model), storetest.Dump(rt, m.real))
	st := m.real.Stats()
	require.Equal(rt, m.model.Stats().LiveBytes, st.LiveBytes)
	require.Equal(rt, m.model.Stats().States, st.States)
	require.Equal(rt, m.model.Stats().Histories, st.Histories)
}

func copyFile(t require.TestingT, from, to string) {
	b, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, b, 0o600))
}
