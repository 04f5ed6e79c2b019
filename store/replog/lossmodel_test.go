package replog

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/store"
)

// A model of a log that loses acked records: three replicas on one stream that forgets, comes back
// as it was before, or is behind for a while; nodes die, are cut off and lose their files; an
// operator repairs the log or accepts the loss. The rules of sidecar/cluster are here in a few
// lines: nobody is promoted who lacks the newest commit that any node has had. In the model nodes
// learn that at once, and nobody forgets it.
//
// The model checks that
//
//   - Two commits that nodes have had have different places in the history, or are the same.
//   - The content of each file is what the records up to its position make.
//   - Each owner has what was confirmed and not given up, and a repair gives up nothing that a
//     node which can be asked has.
//   - When the faults are over, a repair or an accepted loss leads to an owner whom all follow.
type lossModel struct {
	*rapid.T
	f        *fakeStream
	objects  *objects
	nodes    []*lossNode
	saved    [][]byte          // an earlier state of the stream
	savedAt  uint64            // its first sequence
	lost     map[uint64][]byte // what the stream has lost last
	verdict  atomic.Pointer[Verdict]
	known    Mark                       // the newest commit that a node has had
	states   map[uint64]map[string]bool // the content that a history makes, by its chain
	commits  map[place]uint64           // the chains of commits that a node has had
	must     map[string]bool            // confirmed and not given up
	wrote    map[string]place           // the record of each key
	sent     int
	promoted int
	repaired int
	accepted int
}

// lossNode is a node, or its disk.
type lossNode struct {
	*node  // nil: it does not run
	m      *lossModel
	name   string
	dir    string
	boot   int
	blank  bool               // its file is lost, and not made again
	store  *Store             // nil: it is not the owner
	busy   bool               // an operation runs
	cancel context.CancelFunc // of the operation
	done   chan func()        // its outcome
	over   *Seen              // what a running campaign is based on
}

func TestLossModel(t *testing.T) {
	var promoted, repaired, accepted int
	rapid.Check(t, func(rt *rapid.T) {
		rapid.SyncTest(rt, func(rt *rapid.T) {
			m := newLossModel(rt)
			rt.Repeat(m.actions())
			m.settle()
			promoted, repaired, accepted = promoted+m.promoted, repaired+m.repaired, accepted+m.accepted
		})
	})
	t.Logf("%d promotions, %d repairs, %d accepted losses", promoted, repaired, accepted)
}

func newLossModel(t *rapid.T) *lossModel {
	m := &lossModel{
		T: t, f: newFakeStream(), objects: &objects{all: map[string]object{}},
		states: map[uint64]map[string]bool{0: {}}, commits: map[place]uint64{}, must: map[string]bool{}, wrote: map[string]place{},
	}
	root, err := os.MkdirTemp("", "loss")
	require.NoError(t, err)
	for _, name := range []string{"a", "b", "c"} {
		n := &lossNode{m: m, name: name, dir: filepath.Join(root, name), done: make(chan func(), 1)}
		require.NoError(t, os.Mkdir(n.dir, 0o700))
		m.nodes = append(m.nodes, n)
		n.start()
	}
	t.Cleanup(func() {
		for _, n := range m.nodes {
			n.kill()
		}
		_ = os.RemoveAll(root)
	})
	return m
}

// actions are what can happen, each in a moment.
func (m *lossModel) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"": func(*rapid.T) { m.check() },
		"put": m.at(func(n *lossNode) bool { return n.owns() }, func(n *lossNode) {
			n.put(rapid.SampledFrom([]int{1, 1, 1, 2000}).Draw(m.T, "bytes"))
		}),
		"beat": m.at((*lossNode).owns, func(n *lossNode) {
			s := n.store
			n.do(func(context.Context) func() {
				if err := s.w.writeControl(kindBeat, nil); err != nil {
					s.failBeat(err)
				}
				return nil
			})
		}),
		"resign": m.at((*lossNode).owns, func(n *lossNode) {
			s := n.store
			n.do(func(ctx context.Context) func() { _ = s.Resign(ctx, ""); return nil })
		}),
		"promote":       m.at((*lossNode).mayCampaign, (*lossNode).promote),
		"snapshot":      m.at((*lossNode).idle, (*lossNode).snapshot),
		"cut off":       m.at(func(n *lossNode) bool { return n.node != nil && !n.cut() }, func(n *lossNode) { n.e.disconnect() }),
		"connect":       m.at(func(n *lossNode) bool { return n.node != nil && n.cut() }, func(n *lossNode) { n.e.connect() }),
		"kill":          m.at(func(n *lossNode) bool { return n.node != nil }, (*lossNode).kill),
		"stop":          m.at((*lossNode).idle, (*lossNode).stop),
		"start":         m.at(func(n *lossNode) bool { return n.node == nil }, (*lossNode).start),
		"power failure": m.at((*lossNode).mayLose, func(n *lossNode) { n.boot++; n.blank = true }),
		"lose disk":     m.at((*lossNode).mayLose, (*lossNode).loseDisk),
		"fates": m.at(func(n *lossNode) bool { return n.node != nil }, func(n *lossNode) {
			fates := rapid.SliceOfN(rapid.SampledFrom([]fate{lost, mute, refused, nobody}), 1, 2).Draw(m.T, "fates")
			n.e.mu.Lock()
			defer n.e.mu.Unlock()
			if rapid.Bool().Draw(m.T, "of epochs") {
				n.e.begin = fates
			} else {
				n.e.fates = fates
			}
		}),
		"wait":    func(*rapid.T) { time.Sleep(rapid.SampledFrom([]time.Duration{100e6, 1e9, 7e9}).Draw(m.T, "wait")) },
		"forget":  func(*rapid.T) { m.forget() },
		"save":    func(*rapid.T) { m.savedAt, m.saved = m.f.all() },
		"go back": func(*rapid.T) { m.outage(func() { m.f.become(m.savedAt, m.saved) }) },
		"other records": m.at(func(n *lossNode) bool { return n.node != nil && len(m.lost) > 0 }, func(n *lossNode) {
			n.e.mu.Lock()
			defer n.e.mu.Unlock()
			n.e.other = m.lost // its server keeps them in the place of later ones
		}),
		"lag":    func(*rapid.T) { m.f.hide(rapid.IntRange(0, 5).Draw(m.T, "records")) },
		"repair": func(*rapid.T) { m.skipIf(!m.repair()) },
		"accept": func(*rapid.T) { m.skipIf(!m.accept()) },
	}
}

func (m *lossModel) skipIf(cannot bool) {
	if cannot {
		m.Skip()
	}
}

// at returns an action of a node that can do it.
func (m *lossModel) at(can func(*lossNode) bool, do func(*lossNode)) func(*rapid.T) {
	return func(*rapid.T) {
		able := slices.DeleteFunc(slices.Clone(m.nodes), func(n *lossNode) bool { return !can(n) })
		m.skipIf(len(able) == 0)
		n := able[0]
		if len(able) > 1 {
			n = able[rapid.IntRange(0, len(able)-1).Draw(m.T, "node")]
		}
		do(n)
	}
}

func (n *lossNode) idle() bool { return n.node != nil && !n.busy }

// owns reports whether a node is an owner that writes nothing now. A second write would wait for
// a mutex, for which the clock of the bubble does not move.
func (n *lossNode) owns() bool {
	if !n.idle() || n.store == nil || n.store.Err() != nil || !n.store.w.mu.TryLock() {
		return false
	}
	n.store.w.mu.Unlock()
	return true
}

func (n *lossNode) cut() bool {
	n.e.mu.Lock()
	defer n.e.mu.Unlock()
	return n.e.cut != nil
}

// do runs an operation, which may wait for the stream, and then its outcome.
func (n *lossNode) do(op func(context.Context) func()) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	n.busy, n.cancel = true, cancel
	go func() { n.done <- op(ctx) }()
}

// reap takes the outcome of an operation that has ended.
func (n *lossNode) reap() {
	if !n.busy {
		return
	}
	select {
	case outcome := <-n.done:
		n.cancel()
		n.busy = false
		if outcome != nil {
			outcome()
		}
	default:
	}
}

func (n *lossNode) start() {
	made := nodeOf(n.m.f, n.dir, n.name, fmt.Sprint("boot", n.boot))
	made.o.Snapshots, made.o.Beat = n.m.objects, 1000*time.Hour // beats are actions
	made.o.Verdict = func() (Verdict, bool) {
		if v := n.m.verdict.Load(); v != nil {
			return *v, true
		}
		return Verdict{}, false
	}
	if made.start(context.Background()) == nil { // else it tries again later
		n.node = made
	}
}

func (n *lossNode) stop() {
	r := n.node
	n.node, n.store = nil, nil
	require.NoError(n.m, r.Close())
}

// kill ends a node. Its file stays as it is at this moment.
func (n *lossNode) kill() {
	if n.node == nil {
		return
	}
	file, err := os.ReadFile(n.o.Path)
	note, noteErr := os.ReadFile(noteOf(n.o.Path))
	if !n.cut() {
		n.e.disconnect()
	}
	if n.busy {
		n.cancel()
	}
	_ = n.Close()
	if n.busy {
		<-n.done
	}
	n.busy, n.over = false, nil
	for path, content := range map[string][]byte{n.o.Path: file, noteOf(n.o.Path): note} {
		require.NoError(n.m, remove(path))
		if path == n.o.Path && err == nil || path != n.o.Path && noteErr == nil {
			require.NoError(n.m, os.WriteFile(path, content, 0o600))
		}
	}
	n.node, n.store = nil, nil
}

// mayLose reports whether a node may lose its file: one at a time.
func (n *lossNode) mayLose() bool {
	return n.node == nil && !slices.ContainsFunc(n.m.nodes, func(o *lossNode) bool { return o != n && o.blank })
}

func (n *lossNode) loseDisk() {
	n.blank = true
	require.NoError(n.m, os.RemoveAll(n.dir))
	require.NoError(n.m, os.Mkdir(n.dir, 0o700))
}

func (n *lossNode) put(size int) {
	s, key := n.store, fmt.Sprint("k", n.m.sent)
	n.m.sent++
	n.do(func(context.Context) func() {
		err := put(s, key, string(bytes.Repeat([]byte(key), size)))
		return func() {
			if err == nil {
				n.m.must[key] = true
			}
		}
	})
}

// mayCampaign reports whether the log lacks nothing that a node is known to have had.
func (n *lossNode) mayCampaign() bool {
	return n.idle() && n.store == nil && n.Seen().Err == nil && !n.m.lacks(n.Seen())
}

// lacks is the rule of sidecar/cluster.
func (m *lossModel) lacks(seen Seen) bool {
	if (place{m.known.Epoch, m.known.N}).compare(place{seen.Epoch, seen.N}) <= 0 {
		return false
	}
	v := m.verdict.Load()
	return v == nil || !v.GivenUp || !v.Covers(m.known)
}

func (n *lossNode) promote() {
	seen := n.Seen()
	n.over = &seen
	n.do(func(ctx context.Context) func() {
		s, err := n.Promote(ctx, seen)
		return func() {
			if n.over = nil; err != nil {
				return
			}
			n.store = s
			n.m.promoted++
			n.m.learn()
			has := contentIn(n.m, s.Bolt)
			require.Equal(n.m, n.m.states[s.w.chain], has, "the owner has what the log has")
			for key := range n.m.must {
				if n.m.wrote[key].epoch < s.Epoch() { // else there is a later owner already
					require.Contains(n.m, has, key, "%s owns epoch %d", n.name, s.Epoch())
				}
			}
		}
	})
}

func (n *lossNode) snapshot() {
	r, s := n.node, n.store
	n.do(func(ctx context.Context) func() {
		if s != nil {
			s.advance()
		}
		_, _ = r.Snapshot(ctx)
		return nil
	})
}

func contentIn(t require.TestingT, s *store.Bolt) map[string]bool {
	snap, err := s.Snapshot()
	require.NoError(t, err)
	return keysOf(snap)
}

func keysOf(snap store.Snapshot) map[string]bool {
	has := make(map[string]bool)
	for _, e := range snap.Config {
		has[e.Key] = true
	}
	return has
}

// forget lets the stream lose its newest records, or all.
func (m *lossModel) forget() {
	_, records := m.f.all()
	m.skipIf(len(records) == 0)
	switch n := len(records); rapid.IntRange(0, 9).Draw(m.T, "how much") {
	case 0:
		m.outage(func() { m.f.become(1, nil) })
	default:
		lost := rapid.IntRange(1, min(n, 8)).Draw(m.T, "records")
		m.outage(func() {
			first, records := m.f.all() // some came meanwhile
			m.f.become(first, records[:len(records)-min(lost, len(records))])
		})
	}
}

// outage changes the stream while it has no leader: the servers restart. An owner who has not
// noticed that it was replaced dies before: a log that comes back to its epoch would be its log.
func (m *lossModel) outage(change func()) {
	last := m.learn()
	for _, n := range m.nodes {
		if n.store != nil && (n.store.Epoch() < last.epoch || !n.knowsEnd()) {
			n.kill()
		}
	}
	m.f.leaderless(true)
	time.Sleep(4 * time.Second) // the shortest election
	m.learn()
	first, before := m.f.all()
	change()
	m.lost = make(map[uint64][]byte)
	for i, record := range before {
		if seq := first + uint64(i); seq > m.f.tail() {
			m.lost[seq] = record
		}
	}
	m.f.leaderless(false)
}

// learn reads the log: what its histories make, and whether every record can be read.
func (m *lossModel) learn() (last mark) {
	var parts []byte
	first, records := m.f.all()
	for i, record := range records {
		h, body, err := decode(record)
		require.NoError(m, err)
		if i == 0 && first > 1 {
			last = mark{epoch: h.epoch, n: h.n - 1, chain: h.before}
			if h.kind == kindEpoch {
				last.epoch--
			}
		}
		next, v := last.next(h)
		if v == stale {
			continue
		}
		require.True(m, v == opens || v == counts, "record %d of the log stops readers: %+v after %+v", first+uint64(i), h, last)
		require.True(m, last.follows(h), "record %d of the log continues another history: %+v after %+v", first+uint64(i), h, last)
		next.chain = chainOf(h, record)
		base := m.states[last.chain]
		if h.kind == kindEpoch {
			parts = nil
			b, err := decodeBeginning(body, true)
			require.NoError(m, err)
			if b.snapshot != "" {
				base = m.states[h.before]
			}
		}
		require.NotNil(m, base, "record %d continues a history that was never written: %+v", first+uint64(i), h)
		if h.kind == kindCommit {
			parts = append(parts, body...)
		}
		if m.states[next.chain] == nil {
			m.states[next.chain] = base
			if h.kind == kindCommit && !h.more {
				m.states[next.chain] = withKeys(m, base, h, parts)
				for key := range m.states[next.chain] {
					if !base[key] {
						m.wrote[key] = next.place()
					}
				}
			}
		}
		if !h.more {
			parts = nil
		}
		last = next
	}
	return last
}

// withKeys returns a content with what a commit writes.
func withKeys(t require.TestingT, base map[string]bool, h head, body []byte) map[string]bool {
	var err error
	if h.packed {
		body, err = unpack(body)
		require.NoError(t, err)
	}
	batches, err := decodeBatches(body)
	require.NoError(t, err)
	all := maps.Clone(base)
	for _, b := range batches {
		for _, e := range b.PutConfig {
			all[e.Key] = true
		}
	}
	return all
}

// check takes outcomes, lets what is known become known, and checks the files.
func (m *lossModel) check() {
	synctest.Wait()
	m.learn()
	for _, n := range m.nodes {
		if n.over != nil && m.lacks(*n.over) {
			n.cancel()
			synctest.Wait()
		}
		n.reap()
		if n.owns() || n.node != nil && n.store == nil {
			m.know(n.Seen().Data)
		}
		if n.idle() && n.store != nil && n.store.Err() != nil {
			s := n.store
			n.do(func(context.Context) func() {
				_ = s.Close()
				return func() { n.store = nil }
			})
			synctest.Wait()
			n.reap()
		}
		if n.idle() {
			n.blank = n.blank && n.Seen().Data != m.known
			n.checkFile()
		}
	}
}

// know notes the newest commit of a node.
func (m *lossModel) know(data Mark) {
	at := place{data.Epoch, data.N}
	if chain, ok := m.commits[at]; ok {
		require.Equal(m, chain, data.Chain, "two histories have commit %d of epoch %d", data.N, data.Epoch)
	}
	m.commits[at] = data.Chain
	if at.compare(place{m.known.Epoch, m.known.N}) > 0 {
		m.known = data
	}
}

// checkFile checks that a file has what the records up to its position make.
func (n *lossNode) checkFile() {
	n.mu.Lock()
	file := n.mu.file
	n.mu.Unlock()
	if file == nil || file.Err() != nil {
		return
	}
	raw, err := file.Position()
	require.NoError(n.m, err)
	p, err := decodePosition(raw)
	require.NoError(n.m, err)
	want := n.m.states[p.at.chain]
	require.NotNil(n.m, want, "the file of %s ends with a record that was never written: %+v", n.name, p)
	require.Equal(n.m, want, contentIn(n.m, file), "the file of %s, %+v", n.name, p)
}

// quietFor is how long nothing must have come before a copy counts as complete.
const quietFor = 3 * time.Second

// lossSeen is what an operator sees of a loss, see sidecar/cluster.
type lossSeen struct {
	lost    bool
	owner   *lossNode
	best    *lossNode // with the newest commit of those that can be asked
	copied  Mark      // that commit
	beyond  Mark      // the newest commit of the nodes whose copies have more than the log
	repairs bool      // a node that can be asked has more than the log
	gone    bool      // no node that can be asked has the newest commit
}

// writes reports whether the next heartbeat of an owner would be acked. If not, it is fenced.
func (n *lossNode) writes() bool {
	return !n.cut() && n.owns() && n.store.w.last == n.m.f.tail() && n.knowsEnd()
}

// knowsEnd reports whether the log has the last record that an owner knows.
func (n *lossNode) knowsEnd() bool {
	w, f := n.store.w, n.m.f
	f.mu.Lock()
	defer f.mu.Unlock()
	return w.last >= f.first && w.last <= f.last() && sumOf(f.records[w.last-f.first]) == w.tail
}

func (m *lossModel) look() (l lossSeen) {
	var logged []Mark // the newest commits of nodes that follow the log, and lack one
	for _, n := range m.nodes {
		if n.node == nil {
			continue
		}
		seen := n.Seen()
		more := n.store == nil && lacks(seen.Err)
		if newer := seen.Data.Compare(l.copied); !seen.Torn && seen.Data != (Mark{}) && (newer > 0 || newer == 0 && more) {
			l.best, l.copied = n, seen.Data
		}
		switch {
		case n.store != nil:
			if n.writes() {
				l.owner = n
			}
		case more:
			l.lost = true
			l.repairs = l.repairs || !seen.Torn && seen.Data != (Mark{})
			if seen.Data.Compare(l.beyond) > 0 {
				l.beyond = seen.Data
			}
		case seen.Err == nil && seen.Lag == 0 && time.Since(seen.At) >= quietFor && m.lacks(seen):
			l.lost = true
			logged = append(logged, seen.Data)
		}
	}
	for _, newest := range logged {
		l.repairs = l.repairs || l.copied.Compare(newest) > 0
	}
	l.gone = l.owner == nil && m.known.Compare(l.copied) > 0
	return l
}

// repair lets the log go on from the most advanced copy, if an operator may do that now.
func (m *lossModel) repair() bool {
	l := m.look()
	if !l.repairs || l.owner != nil || l.best.busy || !lacks(l.best.Seen().Err) {
		return false
	}
	by, known := l.best, m.known
	by.do(func(ctx context.Context) func() {
		var has map[string]bool // nil: nothing was decided
		_, err := by.Repair(ctx, known, func(v Verdict) error {
			m.verdict.Store(&v)
			snap, err := by.bolt.Snapshot()
			has = keysOf(snap)
			return err
		})
		return func() {
			if has != nil {
				m.giveUp(has, place{epoch: math.MaxUint64}, l)
			}
			if err == nil {
				m.repaired++
			}
		}
	})
	return true
}

// giveUp gives up what was confirmed and is not in what the log goes on with. An accepted loss also
// gives up what the log loses later, up to the same record.
func (m *lossModel) giveUp(has map[string]bool, upTo place, l lossSeen) {
	accepted := upTo.epoch != math.MaxUint64
	for key := range m.must {
		if m.wrote[key].compare(upTo) <= 0 && (accepted || !has[key]) {
			require.True(m, l.gone || has[key], "%s is given up, though nothing looks lost to the operator", key)
			delete(m.must, key)
		}
	}
}

// accept gives up what no node has that can be asked, if an operator may do that now.
func (m *lossModel) accept() bool {
	l := m.look()
	if !l.lost || l.owner == nil && (l.repairs || !l.gone) {
		return false
	}
	v := Verdict{Copy: m.known, GivenUp: true}
	if l.owner != nil {
		v.Copy = l.beyond
	}
	m.giveUp(m.states[m.learn().chain], place{v.Copy.Epoch, v.Copy.N}, l)
	m.verdict.Store(&v)
	m.accepted++
	return true
}

// settle ends all faults and lets an operator do what is needed until all nodes follow an owner.
func (m *lossModel) settle() {
	m.f.hide(0)
	for range 12 {
		for _, n := range m.nodes {
			if n.node == nil {
				n.start()
			}
			if n.node != nil && n.cut() {
				n.e.connect()
			}
			if n.node != nil {
				n.e.mu.Lock()
				n.e.fates, n.e.begin, n.e.other = nil, nil, nil // they read from another server
				n.e.mu.Unlock()
			}
		}
		time.Sleep(12 * time.Second)
		m.check()
		if m.agree() {
			return
		}
		if !m.repair() {
			m.accept()
		}
		owned := false
		for _, n := range m.nodes {
			if owned = owned || n.store != nil; n.owns() {
				n.put(1)
			}
		}
		for _, n := range m.nodes {
			if n.mayCampaign() && !owned {
				n.promote()
				break
			}
		}
		time.Sleep(time.Second)
		m.check()
		for _, n := range m.nodes {
			if n.owns() {
				n.snapshot()
			}
		}
	}
	var how string
	for _, n := range m.nodes {
		if how += n.name + ": "; n.node != nil {
			how += fmt.Sprintf("owner %v, %+v; ", n.store != nil, n.Seen())
		}
	}
	require.Fail(m, "the nodes do not agree", "%s %+v", how, m.look())
}

// agree reports whether there is an owner and all nodes have what it has.
func (m *lossModel) agree() bool {
	owner := m.look().owner
	if owner == nil || !owner.owns() {
		return false
	}
	for _, n := range m.nodes {
		if !n.idle() || n != owner && (n.store != nil || n.Seen().Err != nil || n.Seen().Lag > 0 || n.Seen().Seq != m.f.tail()) {
			return false
		}
	}
	want := contentIn(m, owner.store.Bolt)
	for _, n := range m.nodes {
		if !maps.Equal(want, contentIn(m, n.mu.file)) {
			return false
		}
	}
	for key := range m.must {
		require.Contains(m, want, key)
	}
	return true
}

// become makes the stream what it was at another time.
func (f *fakeStream) become(first uint64, records [][]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.first, f.records, f.hidden = max(first, 1), slices.Clone(records), 0
	close(f.more)
	f.more = make(chan struct{})
}

// hide makes the leader of the stream lag: it does not know the newest records.
func (f *fakeStream) hide(records int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hidden = uint64(min(records, len(f.records)))
	close(f.more)
	f.more = make(chan struct{})
}

// leaderless takes the leader of the stream away, or lets one be elected.
func (f *fakeStream) leaderless(yes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.headless = yes
}

// all returns the records, and the sequence of the first.
func (f *fakeStream) all() (first uint64, records [][]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first, slices.Clone(f.records)
}

// objects is an object store in memory.
type objects struct {
	jetstream.ObjectStore // nil: what a replica does not use

	mu  sync.Mutex
	all map[string]object
}

type object struct {
	jetstream.ObjectInfo
	io.Reader
	content []byte
}

func (o object) Info() (*jetstream.ObjectInfo, error) { return &o.ObjectInfo, nil }
func (o object) Error() error                         { return nil }
func (o object) Close() error                         { return nil }

func (o *objects) Get(_ context.Context, name string, _ ...jetstream.GetObjectOpt) (jetstream.ObjectResult, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found, ok := o.all[name]
	if !ok {
		return nil, jetstream.ErrObjectNotFound
	}
	found.Reader = bytes.NewReader(found.content)
	return found, nil
}

func (o *objects) Put(_ context.Context, meta jetstream.ObjectMeta, r io.Reader) (*jetstream.ObjectInfo, error) {
	content, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	made := object{content: content}
	made.ObjectMeta, made.Size, made.ModTime = meta, uint64(len(content)), time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all[meta.Name] = made
	return made.Info()
}

func (o *objects) List(context.Context, ...jetstream.ListObjectsOpt) (all []*jetstream.ObjectInfo, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, found := range o.all {
		all = append(all, &found.ObjectInfo)
	}
	return all, nil
}

func (o *objects) Delete(_ context.Context, name string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, name)
	return nil
}
