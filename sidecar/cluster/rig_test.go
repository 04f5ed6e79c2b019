package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/schemas/schematest"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/replog"
	"github.com/filaq/fila/wire"
)

// rig is a cluster of nodes over one NATS server, with a log per shard that only follows the rules
// of epochs. It runs in a synctest bubble.
type rig struct {
	t      *testing.T
	srv    *server.Server
	logs   []*logOf
	memory memory
	nodes  map[string]*peer
	mu     sync.Mutex
	events []wire.Event
	both   []string // violations: two nodes served at once
}

// logOf is the log of one shard.
type logOf struct {
	mu    sync.Mutex
	seq   uint64
	epoch uint64
	owner string
	ended bool
	to    string
	at    time.Time
	tell  []chan struct{} // Ended of the replicas
	left  time.Time       // last resignation
	begun time.Time       // start of the epoch
	full  bool            // it takes no records
	tries int             // epoch records refused since
}

// peer is a node and its Shards.
type peer struct {
	*Cluster
	r      *rig
	name   string
	mu     sync.Mutex
	cut    bool // from the logs
	lag    uint64
	broken error         // result of Own
	linger time.Duration // time to close a store
	runs   map[int]*fakeStore
	fenced map[int]bool
	calls  []string
}

func bubble(t *testing.T, shards int, fn func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true})
		require.NoError(t, err)
		srv.Start()
		require.True(t, srv.ReadyForConnections(10*time.Second))
		r := &rig{t: t, srv: srv, nodes: map[string]*peer{}}
		for range shards {
			r.logs = append(r.logs, &logOf{at: time.Now()})
		}
		defer func() {
			for _, p := range r.nodes {
				p.kill()
			}
			srv.Shutdown()
			srv.WaitForShutdown()
		}()
		fn(t, r)
		require.Empty(t, r.both)
	})
}

// start starts a node.
func (r *rig) start(name string) *peer {
	r.t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(r.srv), nats.Name(name))
	require.NoError(r.t, err)
	p := &peer{r: r, name: name, runs: map[int]*fakeStore{}, fenced: map[int]bool{}}
	var replicas []Replica
	for i := range r.logs {
		f := &fakeReplica{p: p, log: r.logs[i], shard: i, began: time.Now(), ended: make(chan struct{}, 1)}
		f.log.mu.Lock()
		f.log.tell = append(f.log.tell, f.ended)
		f.log.mu.Unlock()
		replicas = append(replicas, f)
	}
	p.Cluster, err = New(Options{
		Log: slog.New(slog.DiscardHandler), Conn: nc, Name: "prod", Node: name, Version: "v1", Shards: len(r.logs),
		Serve: site{p}, Replicas: replicas, Event: r.event, Memory: &r.memory,
		Detail: func(int) Detail { return Detail{LogBytes: 42, SnapshotAt: time.Unix(1000, 0)} },
	})
	require.NoError(r.t, err)
	require.NoError(r.t, p.Start(r.t.Context()))
	r.nodes[name] = p
	return p
}

func (r *rig) event(typ, tail string, e wire.Event) {
	schematest.Event(r.t, typ, e)
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Type, e.Key = typ, tail
	r.events = append(r.events, e)
}

// told removes and returns the events of a type.
func (r *rig) told(typ string) (all []wire.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Type == typ {
			all = append(all, e)
		}
	}
	return all
}

// kill kills a node: its connection is gone and it makes no steps.
func (p *peer) kill() {
	if p.r.nodes[p.name] != p {
		return
	}
	delete(p.r.nodes, p.name)
	p.Conn.Close()
	p.cancel()
	close(p.stop)
	<-p.ended
	p.actions.Wait()
	p.mu.Lock()
	runs := p.runs
	p.runs = nil
	p.mu.Unlock()
	for _, st := range runs {
		_ = st.Close() // it waits for the heartbeat, which checks the cut
	}
}

// leave stops a node as SIGTERM does.
func (p *peer) leave(within time.Duration) {
	delete(p.r.nodes, p.name)
	ctx, cancel := context.WithTimeout(p.r.t.Context(), within)
	defer cancel()
	p.Shutdown(ctx)
	p.Conn.Close()
}

func (p *peer) note(format string, args ...any) {
	p.calls = append(p.calls, fmt.Sprintf(format, args...))
}

// site is what a node serves.
type site struct{ *peer }

func (p site) Own(shard int, st Store) error {
	time.Sleep(50 * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note("own %d", shard)
	if p.broken != nil {
		return p.broken
	}
	p.runs[shard], p.fenced[shard] = st.(*fakeStore), false
	return nil
}

func (p site) Fence(shard int, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note("fence %d %v", shard, on)
	p.fenced[shard] = on
}

func (p site) Drain(ctx context.Context, shard int) error {
	p.mu.Lock()
	p.note("drain %d", shard)
	p.mu.Unlock()
	select {
	case <-time.After(50 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p site) Lose(shard int, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note("lose %d %v", shard, why)
	delete(p.runs, shard)
}

// serves reports whether the node delivers messages of a shard.
func (p *peer) serves(shard int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.runs[shard]
	return st != nil && !p.fenced[shard] && st.Owns(p.FenceAfter())
}

func (p *peer) set(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn()
}

// owner returns the node that serves a shard, or "".
func (r *rig) owner(shard int) (owner string) {
	for name, p := range r.nodes {
		if p.serves(shard) {
			if owner != "" {
				r.both = append(r.both, fmt.Sprintf("%d: %s and %s", shard, owner, name))
			}
			owner = name
		}
	}
	return owner
}

// pass lets time pass and checks that no two nodes serve one shard.
func (r *rig) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		for i := range r.logs {
			r.owner(i)
		}
	}
}

// until waits for a condition and returns how long it took.
func (r *rig) until(atMost time.Duration, what string, is func() bool) time.Duration {
	r.t.Helper()
	begin := time.Now()
	for !is() {
		require.Less(r.t, time.Since(begin), atMost, what)
		r.pass(10 * time.Millisecond)
	}
	return time.Since(begin)
}

// served reports whether every shard has an owner.
func (r *rig) served() bool {
	for i := range r.logs {
		if r.owner(i) == "" {
			return false
		}
	}
	return true
}

func (r *rig) load() map[string]int {
	load := map[string]int{}
	for i := range r.logs {
		load[r.owner(i)]++
	}
	return load
}

// memory is the Memory of the nodes.
type memory struct {
	mu   sync.Mutex
	kept map[string][]byte
}

func (m *memory) Keep(_ context.Context, key string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept == nil {
		m.kept = make(map[string][]byte)
	}
	m.kept[key] = value
	return nil
}

func (m *memory) Kept(prefix string) map[string][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(m.kept)
	maps.DeleteFunc(all, func(key string, _ []byte) bool { return !strings.HasPrefix(key, prefix) })
	return all
}

// fakeReplica is a replica of a logOf. All records are commits.
type fakeReplica struct {
	Replica // nil: what the fake does not have
	p       *peer
	log     *logOf
	shard   int
	began   time.Time
	last    Seen        // before the cut
	has     replog.Mark // what its file has
	format  atomic.Int32
	ended   chan struct{}
}

func (f *fakeReplica) SetFormat(format int) { f.format.Store(int32(format)) }

// reopen gives a replica the file that another one had.
func (f *fakeReplica) reopen(file *fakeReplica) {
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	f.has = file.has
}

// forget makes a log forget its newest records.
func (l *logOf) forget(records uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq -= records
}

// Repair implements Replica: the log gets a new epoch, and all of the file.
func (f *fakeReplica) Repair(_ context.Context, newest replog.Mark, decide func(replog.Verdict) error) (replog.Mark, error) {
	if !errors.Is(f.Seen().Err, replog.ErrShorter) {
		return replog.Mark{}, replog.ErrNotLost
	}
	f.log.mu.Lock()
	v := replog.Verdict{Copy: f.has, Seq: f.log.seq + 1}
	f.log.mu.Unlock()
	if !v.Covers(newest) {
		v.Copy = newest
	}
	if err := decide(v); err != nil {
		return replog.Mark{}, err
	}
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	f.log.epoch, f.log.seq, f.log.owner, f.log.at = v.Copy.Epoch+1, f.log.seq+1, f.p.name, time.Now()
	return f.has, nil
}

func (f *fakeReplica) Ended() <-chan struct{} { return f.ended }

func (f *fakeReplica) away() bool {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	return f.p.cut
}

func (f *fakeReplica) Seen() Seen {
	if f.away() {
		return f.last
	}
	f.p.mu.Lock()
	lag := f.p.lag
	f.p.mu.Unlock()
	l := f.log
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.at
	if at.Before(f.began) {
		at = f.began
	}
	seen := Seen{Epoch: l.epoch, Owner: l.owner, Ended: l.ended, To: l.to, Seq: l.seq - min(lag, l.seq), At: at, Lag: lag}
	seen.N, seen.Data = seen.Seq, replog.Mark{Epoch: l.epoch, N: seen.Seq, Seq: seen.Seq}
	if v, ok := VerdictOf(&f.p.r.memory, f.shard); ok && v.Covers(f.has) && l.epoch > v.Copy.Epoch {
		f.has = replog.Mark{} // its file is made again
	}
	if f.has.Epoch <= l.epoch && f.has.N > l.seq {
		seen.Err, seen.Data, seen.End = replog.ErrShorter, f.has, l.seq
		return seen
	}
	f.has = seen.Data
	if f.p.Cluster != nil && f.last.Seq != seen.Seq {
		f.last = seen
	}
	return seen
}

var errLost = errors.New("lost")

func (f *fakeReplica) Promote(ctx context.Context, seen Seen) (Store, error) {
	if f.away() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	l := f.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full {
		l.tries++
		return nil, fmt.Errorf("%w: maximum bytes exceeded", replog.ErrFull)
	}
	if l.seq != seen.Seq {
		return nil, errLost
	}
	l.seq++
	l.epoch, l.owner, l.ended, l.to, l.at = l.epoch+1, f.p.name, false, "", time.Now()
	l.begun = l.at
	f.has = replog.Mark{Epoch: l.epoch, N: l.seq, Seq: l.seq}
	st := &fakeStore{f: f, epoch: l.epoch, acked: time.Now(), failed: make(chan struct{}), stop: make(chan struct{}), over: make(chan struct{})}
	go st.beat()
	return st, nil
}

// fakeStore sends a heartbeat every 500 ms.
type fakeStore struct {
	f      *fakeReplica
	epoch  uint64
	mu     sync.Mutex
	acked  time.Time
	err    error
	failed chan struct{}
	stop   chan struct{}
	over   chan struct{}
}

func (s *fakeStore) Epoch() uint64           { return s.epoch }
func (s *fakeStore) Failed() <-chan struct{} { return s.failed }
func (s *fakeStore) SnapshotBehind(uint64)   {}

func (s *fakeStore) Owns(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.acked) <= d
}

func (s *fakeStore) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *fakeStore) beat() {
	defer close(s.over)
	for {
		select {
		case <-s.stop:
			return
		case <-time.After(500 * time.Millisecond):
		}
		if err := s.write(nil); errors.Is(err, store.ErrFenced) || errors.Is(err, replog.ErrShorter) {
			s.fail(err)
			return
		}
	}
}

func (s *fakeStore) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		close(s.failed)
	}
}

func (s *fakeStore) write(more func(*logOf)) error {
	if s.f.away() {
		return errors.New("no answer")
	}
	l := s.f.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full {
		return errors.New("maximum bytes exceeded")
	}
	if l.epoch != s.epoch {
		return fmt.Errorf("epoch %d: %w", l.epoch, store.ErrFenced)
	}
	if l.seq < s.f.has.Seq {
		return replog.ErrShorter
	}
	l.seq++
	l.at = time.Now()
	s.f.has = replog.Mark{Epoch: l.epoch, N: l.seq, Seq: l.seq}
	if more != nil {
		more(l)
	}
	s.mu.Lock()
	s.acked = time.Now()
	s.mu.Unlock()
	return nil
}

func (s *fakeStore) Resign(_ context.Context, to string) error {
	return s.write(func(l *logOf) {
		l.ended, l.to, l.left = true, to, time.Now()
		for _, ended := range l.tell {
			select {
			case ended <- struct{}{}:
			default:
			}
		}
	})
}

func (s *fakeStore) Close() error {
	close(s.stop)
	<-s.over
	time.Sleep(s.f.p.linger)
	return nil
}
