package replog

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
)

// fakeStream is a stream in memory. Each node has its own end.
type fakeStream struct {
	mu       sync.Mutex
	first    uint64
	records  [][]byte
	created  time.Time
	most     int64
	more     chan struct{} // closed when there are more records
	headless bool          // the stream has no leader
	hidden   uint64        // newest records that the leader does not know
}

func newFakeStream() *fakeStream {
	return &fakeStream{first: 1, created: time.Now(), more: make(chan struct{})}
}

// force appends a record without a check of the expected sequence.
func (f *fakeStream) force(record []byte) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.append(record)
}

// append adds a record. mu is held.
func (f *fakeStream) append(record []byte) uint64 {
	f.records = append(f.records, bytes.Clone(record))
	close(f.more)
	f.more = make(chan struct{})
	return f.last()
}

// tail is the sequence of the last record.
func (f *fakeStream) tail() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last()
}

// last is tail with mu held.
func (f *fakeStream) last() uint64 { return f.first + uint64(len(f.records)) - 1 }

func (f *fakeStream) bytes() (n int64) {
	for _, r := range f.records {
		n += int64(len(r) + perMessage)
	}
	return n
}

// heads are the heads of all records.
func (f *fakeStream) heads(t *testing.T) (all []head) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.records {
		h, _, err := decode(r)
		require.NoError(t, err)
		all = append(all, h)
	}
	return all
}

// commits counts the records of commits.
func (f *fakeStream) commits(t *testing.T) (n int) {
	for _, h := range f.heads(t) {
		if h.kind == kindCommit {
			n++
		}
	}
	return n
}

// fate is the fate of a record in flight.
type fate int

const (
	arrives fate = iota
	lost         // it does not come to the stream
	mute         // it does, and the answer is lost
	refused
	nobody // the stream has no leader
)

// end is the connection of a node to the stream.
type end struct {
	f *fakeStream

	mu    sync.Mutex
	cut   chan struct{}     // not nil: nothing gets through until it is closed
	blind bool              // nobody says how the stream stands
	other map[uint64][]byte // records that its replica of the stream has otherwise than the leader
	fates []fate            // of the next commits; beats and others arrive
	begin []fate            // of the next epoch records
	asked []string          // requests, but for those how the stream stands
}

func (e *end) disconnect() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cut = make(chan struct{})
}

func (e *end) connect() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.cut)
	e.cut = nil
}

func (e *end) next(fates ...fate) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fates = fates
}

// pass waits until ctx ends while the end is cut: messages sent meanwhile are lost.
func (e *end) pass(ctx context.Context) error {
	e.mu.Lock()
	cut := e.cut
	e.mu.Unlock()
	if cut == nil {
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	<-ctx.Done()
	return ctx.Err()
}

// clientTimeout is how long the client library waits for an answer without a deadline.
const clientTimeout = 5 * time.Second

// ask records a request.
func (e *end) ask(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, what)
}

func (e *end) append(ctx context.Context, record []byte, behind uint64) (uint64, error) {
	e.ask("append")
	if err := e.pass(ctx); err != nil {
		return 0, err
	}
	fate := arrives
	h, _, _ := decode(record)
	e.mu.Lock()
	switch {
	case h.kind == kindCommit && len(e.fates) > 0:
		fate, e.fates = e.fates[0], e.fates[1:]
	case h.kind == kindEpoch && len(e.begin) > 0:
		fate, e.begin = e.begin[0], e.begin[1:]
	}
	e.mu.Unlock()
	if fate == lost {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	seq, err := e.f.offer(record, behind, fate)
	if fate == mute && err == nil {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return seq, err
}

// offer appends a record behind a sequence, if that is the last.
func (f *fakeStream) offer(record []byte, behind uint64, fate fate) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.headless || fate == nobody:
		return 0, errNobody
	case f.last() != behind || f.hidden > 0:
		return 0, errMoved
	case fate == refused:
		return 0, errRefused
	case f.most > 0 && f.bytes()+int64(len(record)+perMessage) > f.most:
		return 0, errors.Join(errRefused, ErrFull)
	}
	return f.append(record), nil
}

func (e *end) state(ctx context.Context) (state, error) {
	if err := e.pass(ctx); err != nil {
		return state{}, err
	}
	e.mu.Lock()
	blind := e.blind
	e.mu.Unlock()
	if blind {
		<-ctx.Done()
		return state{}, ctx.Err()
	}
	e.f.mu.Lock()
	defer e.f.mu.Unlock()
	if e.f.headless {
		return state{}, context.DeadlineExceeded
	}
	return state{first: e.f.first, last: e.f.last() - e.f.hidden, bytes: e.f.bytes(), most: e.f.most, created: e.f.created}, nil
}

func (e *end) get(ctx context.Context, seq uint64) ([]byte, error) {
	e.ask("get")
	if err := e.pass(ctx); err != nil {
		return nil, err
	}
	e.f.mu.Lock()
	defer e.f.mu.Unlock()
	if e.f.headless {
		return nil, context.DeadlineExceeded
	}
	if seq < e.f.first || seq > e.f.last()-e.f.hidden {
		return nil, jetstream.ErrMsgNotFound
	}
	return e.f.records[seq-e.f.first], nil
}

func (e *end) getNear(ctx context.Context, seq uint64) ([]byte, error) { return e.get(ctx, seq) }

func (e *end) follow(ctx context.Context, from uint64, fn func(entry)) (func(), <-chan error, error) {
	e.ask("follow")
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for seq := from; ctx.Err() == nil; {
			e.f.mu.Lock()
			seq = max(seq, e.f.first)
			more, last := e.f.more, e.f.last()-e.f.hidden
			var record []byte
			if seq <= last {
				record = e.f.records[seq-e.f.first]
			}
			e.f.mu.Unlock()
			e.mu.Lock()
			if other := e.other[seq]; record != nil && other != nil {
				record = other
			}
			if e.cut != nil {
				record, more = nil, e.cut
			}
			e.mu.Unlock()
			if record != nil {
				fn(entry{seq: seq, record: record, behind: last - seq, at: time.Now()})
				seq++
				continue
			}
			select {
			case <-more:
			case <-ctx.Done():
			}
		}
	})
	return func() { cancel(); done.Wait() }, make(chan error), nil
}

func (e *end) purge(_ context.Context, below uint64) error {
	e.f.mu.Lock()
	defer e.f.mu.Unlock()
	for e.f.first < below && len(e.f.records) > 0 {
		e.f.first++
		e.f.records = e.f.records[1:]
	}
	return nil
}

// node is a replica on a fake stream.
type node struct {
	*Replica
	e *end
}

// newNode opens the replica of a node in a directory. Records are short.
func newNode(t *testing.T, f *fakeStream, dir, name string) *node {
	t.Helper()
	n, err := tryNode(f, dir, name)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

func tryNode(f *fakeStream, dir, name string) (*node, error) {
	return tryNodeOf(f, dir, name, "boot")
}

// tryNodeOf opens the replica of a node whose machine has a boot.
func tryNodeOf(f *fakeStream, dir, name, boot string) (*node, error) {
	n := nodeOf(f, dir, name, boot)
	return n, n.start(context.Background())
}

// nodeOf returns such a replica that is not open.
func nodeOf(f *fakeStream, dir, name, boot string) *node {
	o := Options{
		Cluster: "test", Incarnation: "inc", Shard: 3, Node: name, Path: filepath.Join(dir, name+".db"),
		Store: store.Options{NoSync: true}, recordBytes: 1 << 10, boot: boot,
	}
	o.defaults()
	e := &end{f: f}
	return &node{Replica: newReplica(o, e), e: e}
}

// content is everything that a replica has applied.
func (n *node) content(t *testing.T) *storetest.Content {
	t.Helper()
	caughtUp(t, n.Replica)
	return storetest.Dump(t, n.bolt)
}

func contentOf(t *testing.T, s store.Store) *storetest.Content {
	t.Helper()
	return storetest.Dump(t, s)
}

// put writes a key of the configuration, long if it is to take several records.
func put(s store.Store, key, value string) error {
	return storetest.Do(s, &store.Batch{PutConfig: []store.Entry{{Key: key, Value: value}}})
}

func keys(c *storetest.Content) (all []string) {
	for _, e := range c.Config {
		all = append(all, e.Key)
	}
	return all
}
