//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
)

const (
	troubleNodes  = 3
	troubleShards = 4
	troubleKept   = 50 // messages of each queue without a consumer
)

// troubledCluster is a cluster of three filas on three NATS servers, all processes, with a link
// between each fila and each server. It has a load on queues of all shards and checks the whole
// history.
type troubledCluster struct {
	t     *testing.T
	rng   *rand.Rand // for the test's goroutine only
	nats  *natsCluster
	links [troubleNodes][troubleNodes]*link // by fila and server
	procs [troubleNodes]*proc
	c     *client
	l     *load

	shards map[string]int // by queue of the load
	probes map[string]*probe
	regs   *registers
	silent map[string][]time.Duration // longest times without a confirmation, by kind
}

// probe is a producer that no backlog stops: the time between two of its confirmations is the
// time in which its queue confirms nothing.
type probe struct {
	mu   sync.Mutex
	last time.Time
	gaps []gap
}

// gap is a time without confirmations.
type gap struct {
	end    time.Time
	length time.Duration
}

// clusterState is the part of cluster-status that the tests use.
type clusterState struct {
	Nodes []struct {
		Node       string `json:"node"`
		HeardMsAgo int64  `json:"heard_ms_ago"`
		Draining   bool   `json:"draining"`
		Leaving    bool   `json:"leaving"`
	} `json:"nodes"`
	Shards []shardState `json:"shards"`
}

// shardState is a shard in cluster-status.
type shardState struct {
	Owner    string `json:"owner"`
	Epoch    uint64 `json:"epoch"`
	Fenced   bool   `json:"fenced"`
	MovingTo string `json:"moving_to"`
	Standbys []struct {
		Node     string `json:"node"`
		State    string `json:"state"`
		Lag      uint64 `json:"lag"`
		BehindMs int64  `json:"behind_ms"`
		Error    string `json:"error"`
	} `json:"standbys"`
}

// clusterNodes starts nodes of a cluster on a NATS server, with further TOML for [cluster].
func clusterNodes(t testing.TB, url, settings string, names ...string) map[string]*proc {
	t.Helper()
	procs := make(map[string]*proc)
	for _, name := range names {
		procs[name] = startFila(t, options{natsURL: url, drainMs: 5000, tail: fmt.Sprintf("[cluster]\nenabled = true\nname = \"test\"\nnode = %q\n%s\n", name, settings)})
	}
	return procs
}

// clusterStatus returns a node's view of the cluster; ok is false if no node answers.
func (c *client) clusterStatus() (st clusterState, ok bool) {
	c.t.Helper()
	r, err := c.nc.Request("fila.admin.cluster-status", nil, 2*time.Second)
	ok = err == nil && r.Header.Get("Nats-Service-Error") == "" && json.Unmarshal(r.Data, &st) == nil
	return st, ok
}

// nodeName returns the name of fila i.
func nodeName(i int) string { return fmt.Sprint("node", i) }

// nodeNumber returns the fila with a name.
func nodeNumber(name string) int { return int(name[len(name)-1] - '0') }

// startTroubledCluster starts the cluster and the load, with further TOML for [cluster].
func startTroubledCluster(t *testing.T, settings string) *troubledCluster {
	t.Helper()
	seed, rng := choices(t)
	c := &troubledCluster{
		t: t, rng: rng, nats: startCluster(t, troubleNodes),
		shards: map[string]int{}, probes: map[string]*probe{}, silent: map[string][]time.Duration{},
	}
	for i := range c.procs {
		var urls []string
		for s, server := range c.nats.servers {
			c.links[i][s] = newLink(t, server.addr)
			urls = append(urls, "nats://"+c.links[i][s].Addr)
		}
		c.procs[i] = newFila(t, options{
			natsURL: strings.Join(urls, ","), drainMs: 5000,
			tail: fmt.Sprintf("[cluster]\nenabled = true\nname = \"chaos\"\nnode = %q\nshards = %d\n%s\n", nodeName(i), troubleShards, settings),
		})
		require.NoError(t, c.procs[i].start())
	}
	for _, p := range c.procs {
		require.NoError(t, p.waitReady(), p.log)
	}
	// The clients leave a frozen server within seconds.
	leave := []nats.Option{nats.PingInterval(time.Second), nats.Timeout(2 * time.Second)}
	c.c = dial(t, c.nats.URL(), leave...)
	c.l = newLoad(t, c.nats.URL(), seed, leave, "orders", "mails", "jobs", "calls", "reports")
	c.l.limit, c.l.open, c.l.full = 3*time.Second, 300, true
	c.l.h.started(time.Now().UnixNano())
	c.settle("at the start")
	c.l.setup(c.c)
	for _, queue := range c.l.queues {
		c.shards[queue] = c.shardOf(queue)
		kept := "kept." + queue
		c.c.createQueue(kept, nil)
		for n := range troubleKept {
			c.c.enqueue(kept, fmt.Sprint(queue, n), "Nats-Msg-Id", fmt.Sprint(n))
		}
	}
	t.Logf("queues are in shards %v", c.shards)
	close(c.l.phase.Load().ready)
	c.l.start()
	for _, queue := range c.l.queues {
		p := &probe{last: time.Now()}
		c.probes[queue] = p
		c.l.work.Add(1)
		go c.l.probe(queue, p)
	}
	c.regs = startRegisters(c.l)
	return c
}

// shardOf returns the shard of a queue, from the tokens of its deliveries.
func (c *troubledCluster) shardOf(queue string) int {
	c.t.Helper()
	c.c.enqueue(queue, "where")
	k := c.c.consume(queue, 1)
	d := k.next()
	c.c.accepted(d, "")
	k.leave()
	k.unsubscribe()
	shard, err := strconv.Atoi(strings.Split(d.Reply, ".")[2])
	require.NoError(c.t, err, d.Reply)
	return shard
}

// probe publishes one message after the other, and repeats each until a reply confirms it.
func (l *load) probe(queue string, p *probe) {
	defer l.work.Done()
	rng, nc, inbox := l.random(), l.conns[3], nats.NewInbox()
	replies := make(chan *nats.Msg, 4096)
	sub, err := nc.ChanSubscribe(inbox+".*", replies)
	if err != nil {
		l.t.Errorf("subscribe: %v", err)
		return
	}
	defer func() { _ = sub.Unsubscribe() }()
	for i := 0; !l.draining.Load(); i++ {
		key := fmt.Sprint("probe-", queue, "-", i)
		msg := l.newMessage(rng, queue, key)
		msg.Header.Set("Nats-Msg-Id", key)
		msg.Reply = inbox + "." + key
		times := 1
		if i%4 == 0 {
			times = 2 // as after a lost answer
		}
		for times > 0 {
			_ = nc.PublishMsg(msg)
			switch answered, ok := l.answered(replies, msg.Reply); {
			case !ok:
				return
			case answered:
				p.confirmed()
				times--
			}
		}
		if !pause(l.ctx, 25*time.Millisecond) {
			return
		}
	}
}

// answered waits up to 250 ms for a confirmation; ok is false at the end of the load.
func (l *load) answered(replies <-chan *nats.Msg, subject string) (answered, ok bool) {
	late := time.NewTimer(250 * time.Millisecond)
	defer late.Stop()
	for {
		select {
		case reply := <-replies:
			if l.confirm(reply.Subject[strings.LastIndex(reply.Subject, ".")+1:], reply) && reply.Subject == subject {
				return true, true
			}
			if reply.Subject == subject { // refused, or no responder
				return false, pause(l.ctx, 5*time.Millisecond)
			}
		case <-late.C:
			return false, true
		case <-l.ctx.Done():
			return false, false
		}
	}
}

func (p *probe) confirmed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if length := now.Sub(p.last); length > 100*time.Millisecond {
		p.gaps = append(p.gaps, gap{now, length})
	}
	p.last = now
}

// longest returns the longest gap that ended after since.
func (p *probe) longest(since time.Time) (most time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.gaps {
		if g.end.After(since) {
			most = max(most, g.length)
		}
	}
	return most
}

// since reports whether there was a confirmation after at.
func (p *probe) since(at time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last.After(at)
}

func (c *troubledCluster) status() (st clusterState, ok bool) { return c.c.clusterStatus() }

// well returns what is not in order yet, or "".
func (c *troubledCluster) well() string {
	if !c.nats.healthy() {
		return "the NATS servers are not healthy"
	}
	st, ok := c.status()
	if !ok {
		return "no node tells of the cluster"
	}
	for _, n := range st.Nodes {
		if n.HeardMsAgo > 3000 || n.Leaving || n.Draining {
			return n.Node + " is not there"
		}
	}
	if len(st.Nodes) != troubleNodes || len(st.Shards) != troubleShards {
		return fmt.Sprintf("there are %d nodes and %d shards", len(st.Nodes), len(st.Shards))
	}
	for i, s := range st.Shards {
		if s.Owner == "" || s.Fenced || s.MovingTo != "" || len(s.Standbys) != troubleNodes-1 {
			return fmt.Sprintf("shard %d is not served or not standing by: %+v", i, s)
		}
		for _, by := range s.Standbys {
			if by.Error != "" || by.State != "following" || by.BehindMs > 2000 {
				return fmt.Sprintf("shard %d: %+v", i, by)
			}
		}
	}
	return ""
}

// settle waits until every shard has an owner and two standbys that keep up, and every
// queue confirms.
func (c *troubledCluster) settle(when string) {
	c.t.Helper()
	var why string
	if !pollFor(2*patience, func() bool { why = c.well(); return why == "" }) {
		st, _ := c.status()
		require.Fail(c.t, when+": "+why, "%+v", st)
	}
	now := time.Now()
	for queue, p := range c.probes {
		if !poll(func() bool { return p.since(now) }) {
			require.Fail(c.t, when+": "+queue+" confirms nothing", c.c.dump(queue))
		}
	}
}

// pollFor is poll with its own timeout.
func pollFor(most time.Duration, cond func() bool) bool {
	for end := time.Now().Add(most); time.Now().Before(end); {
		if poll(func() bool { return cond() || time.Now().After(end) }) && time.Now().Before(end) {
			return true
		}
	}
	return false
}

// owner returns the fila that owns a shard.
func (c *troubledCluster) owner(shard int) int {
	c.t.Helper()
	owner := -1
	eventually(c.t, func() bool {
		st, ok := c.status()
		if ok && st.Shards[shard].Owner != "" {
			owner = nodeNumber(st.Shards[shard].Owner)
		}
		return owner >= 0
	}, "the shard has no owner")
	return owner
}

// victim returns the owner of a random shard with queues, and all queues that it owns.
func (c *troubledCluster) victim() (fila int, queues []string) {
	c.t.Helper()
	all := c.l.queues
	fila = c.owner(c.shards[all[c.rng.IntN(len(all))]])
	return fila, c.queuesOf(fila)
}

// queuesOf returns the queues that a fila owns.
func (c *troubledCluster) queuesOf(fila int) (queues []string) {
	c.t.Helper()
	st, ok := c.status()
	require.True(c.t, ok, "no node tells of the cluster")
	for _, queue := range c.l.queues {
		if st.Shards[c.shards[queue]].Owner == nodeName(fila) {
			queues = append(queues, queue)
		}
	}
	return queues
}

// queuesIn returns the queues of a shard.
func (c *troubledCluster) queuesIn(shard int) (queues []string) {
	for queue, s := range c.shards {
		if s == shard {
			queues = append(queues, queue)
		}
	}
	return queues
}

// busy lets the load run for a while.
func (c *troubledCluster) busy(d time.Duration) { pause(c.t.Context(), d) }

// during applies bad to the links of a fila for a random time between least and most.
func (c *troubledCluster) during(fila int, least, most time.Duration, bad func(*link)) {
	for _, l := range c.links[fila] {
		bad(l)
	}
	c.busy(least + c.upTo(most-least))
	for _, l := range c.links[fila] {
		l.Heal()
	}
}

// upTo returns a random duration below most.
func (c *troubledCluster) upTo(most time.Duration) time.Duration {
	return time.Duration(c.rng.Int64N(int64(most)))
}

// stream returns the name of a shard's log.
func stream(shard int) string { return fmt.Sprint("FILA_chaos_LOG_", shard) }

// round runs one kind of trouble, waits until the cluster is in order again, and checks the
// history so far. do returns the affected queues.
func (c *troubledCluster) round(n int, kind string, do func() (queues []string)) {
	t := c.t
	t.Helper()
	c.busy(500*time.Millisecond + c.upTo(time.Second))
	began := time.Now()
	c.l.h.troubledSince(began.UnixNano())
	queues := do()
	name := fmt.Sprintf("round %d: %s", n, kind)
	c.settle(name)
	c.l.h.started(time.Now().UnixNano())
	var longest time.Duration
	for _, queue := range queues {
		longest = max(longest, c.probes[queue].longest(began))
	}
	if len(queues) > 0 {
		c.silent[kind] = append(c.silent[kind], longest)
	}
	t.Logf("%s, %.1f s, nothing confirmed for %d ms", name, time.Since(began).Seconds(), longest.Milliseconds())
	require.Empty(t, c.l.h.check(false).problems, name)
	c.regs.check(name)
	c.checkFiles(name)
}

// checkFiles fails if a node has found one of its files corrupt. Nodes repair that themselves,
// but it should not happen.
func (c *troubledCluster) checkFiles(when string) {
	c.t.Helper()
	for i, p := range c.procs {
		for _, line := range p.log.lines() {
			require.NotContains(c.t, line, "put aside", "%s: node %d", when, i)
		}
	}
}

// finish ends the load, checks the whole history, and compares the files.
func (c *troubledCluster) finish() {
	t := c.t
	t.Helper()
	c.l.drain(c.c)
	r := c.l.h.check(true)
	t.Log(r)
	require.Empty(t, r.problems)
	require.Positive(t, r.acked)
	for _, kind := range slices.Sorted(maps.Keys(c.silent)) {
		all := c.silent[kind]
		slices.Sort(all)
		t.Logf("nothing confirmed, %s: %d times, median %d ms, at most %d ms", kind, len(all), all[len(all)/2].Milliseconds(), all[len(all)-1].Milliseconds())
	}
	for _, queue := range c.l.queues {
		c.c.waitDepth("kept."+queue, troubleKept) // messages without a consumer
	}
	c.l.stop()
	c.sameEverywhere()
}

// sameEverywhere stops all nodes and compares their contents.
func (c *troubledCluster) sameEverywhere() {
	t := c.t
	t.Helper()
	c.probes = nil
	c.settle("at the end")
	for _, p := range c.procs {
		require.Zero(t, p.Stop(t), p.log)
	}
	c.checkFiles("at the end")
	messages, after := 0, time.Now().Add(30*time.Second).UnixNano() // other dedupe ids may expire while the files are read
	for shard := range troubleShards {
		var first *replicaContent
		for i, p := range c.procs {
			have := readReplica(t, filepath.Join(p.Dir, "shards", fmt.Sprint(shard, ".db")), after)
			if first == nil {
				first = have
				messages += len(have.Messages)
				continue
			}
			require.Equal(t, first, have, "shard %d at node 0 and at node %d", shard, i)
		}
	}
	require.GreaterOrEqual(t, messages, troubleKept*len(c.l.queues))
}

// replicaContent is the content of a shard's file.
type replicaContent struct {
	Queues   []store.QueueRecord
	Messages map[store.Ref]string
	Dedupes  map[string]store.ID
}

// readReplica reads a closed file; of its dedupe ids only the ones that expire after a time.
func readReplica(t *testing.T, path string, after int64) *replicaContent {
	t.Helper()
	f, err := store.OpenFile(path, store.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	snap, err := f.Snapshot()
	require.NoError(t, err)
	have := &replicaContent{Queues: snap.Queues, Messages: map[store.Ref]string{}, Dedupes: map[string]store.ID{}}
	require.NoError(t, f.Messages(nil, func(m *store.Message, st *store.State, _ [][]byte) error {
		attempts := uint32(0)
		if st != nil {
			attempts = st.Attempts
		}
		have.Messages[m.Ref] = fmt.Sprintf("%x %s %q %q %d", m.ID, m.Key, m.Headers, m.Payload, attempts)
		return nil
	}))
	require.NoError(t, f.Dedupes(nil, func(d store.Dedupe) error {
		if d.Until > after {
			have.Dedupes[fmt.Sprint(d.Queue, "/", d.DedupeID)] = d.ID
		}
		return nil
	}))
	return have
}

// killOwner kills the owner of some shards, and restarts it after other nodes have taken over.
func (c *troubledCluster) killOwner() []string {
	i, queues := c.victim()
	c.procs[i].Kill9(c.t)
	c.takenOver(queues)
	c.busy(c.upTo(time.Second))
	c.procs[i].Start(c.t)
	return queues
}

// takenOver waits until queues confirm again.
func (c *troubledCluster) takenOver(queues []string) {
	c.t.Helper()
	now := time.Now()
	for _, queue := range queues {
		if !poll(func() bool { return c.probes[queue].since(now) }) {
			st, _ := c.status()
			require.Fail(c.t, queue+" is not taken over", "%+v", st)
		}
	}
}

// freezeOwner freezes the owner of some shards for a while.
func (c *troubledCluster) freezeOwner() []string {
	i, queues := c.victim()
	c.procs[i].Freeze(c.t)
	c.busy(time.Second + c.upTo(8*time.Second))
	c.procs[i].Thaw(c.t)
	return queues
}

// stopOwner stops the owner of some shards gracefully, and restarts it.
func (c *troubledCluster) stopOwner() []string {
	i, queues := c.victim()
	require.Zero(c.t, c.procs[i].Stop(c.t), c.procs[i].log)
	c.takenOver(queues)
	c.procs[i].Start(c.t)
	return queues
}

// moveShard moves a shard to another node.
func (c *troubledCluster) moveShard() []string {
	shard := c.anyShard()
	to := nodeName((c.owner(shard) + 1 + c.rng.IntN(troubleNodes-1)) % troubleNodes)
	c.c.call("fila.admin.cluster-move", m{"shard": shard, "node": to}, nil)
	eventually(c.t, func() bool {
		st, ok := c.status()
		return ok && st.Shards[shard].Owner == to
	}, "the shard is not moved")
	return c.queuesIn(shard)
}

// drainNode drains a node, and then cancels the drain.
func (c *troubledCluster) drainNode() []string {
	i, queues := c.victim()
	c.c.call("fila.admin.cluster-drain", m{"node": nodeName(i)}, nil)
	eventually(c.t, func() bool {
		st, ok := c.status()
		return ok && !slices.ContainsFunc(st.Shards, func(s shardState) bool { return s.Owner == nodeName(i) || s.Owner == "" })
	}, "the node is not drained")
	c.c.call("fila.admin.cluster-drain", m{"node": nodeName(i), "cancel": true}, nil)
	return queues
}

// fillLog publishes more than a log can hold and acks nothing, so that the node makes snapshots
// and truncates the log.
func (c *troubledCluster) fillLog() []string {
	queue := "flood." + c.l.queues[c.rng.IntN(len(c.l.queues))]
	c.c.createQueue(queue, nil)
	big := strings.Repeat("flood ", 75_000)
	refused := 0
	for range 180 {
		reply, err := c.c.nc.RequestMsg(message(queue, big), 5*time.Second)
		if err != nil {
			continue
		}
		switch e := errorOf(c.t, reply); {
		case e == nil:
		case e.Code == 429:
			refused++
		default:
			require.Equal(c.t, 503, e.Code, e)
		}
	}
	c.c.call("fila.admin.queue-delete."+queue, m{"force": true}, nil)
	c.t.Logf("%s: %d of 180 were refused", queue, refused)
	return nil
}

// anyShard returns a random shard with queues.
func (c *troubledCluster) anyShard() int { return c.shards[c.l.queues[c.rng.IntN(len(c.l.queues))]] }

// troubleKind is a kind of trouble. do returns the affected queues.
type troubleKind struct {
	name string
	do   func() (queues []string)
}

// TestClusterOutlivesTrouble: a cluster under load loses no confirmed message and delivers no
// acked one again while its filas and NATS servers are killed and frozen, its links are cut,
// slow and half-open, and its shards move.
func TestClusterOutlivesTrouble(t *testing.T) {
	t.Parallel()
	c := startTroubledCluster(t, "log_bytes = 67108864")
	kinds := []troubleKind{
		{"an owner is killed", c.killOwner},
		{"a shard is moved", c.moveShard},
		{"the server that leads a log is killed", func() []string {
			shard := c.anyShard()
			i := c.nats.Leader(stream(shard))
			c.nats.Kill(i)
			c.takenOver(c.queuesIn(shard))
			c.nats.Restart(i)
			return c.queuesIn(shard)
		}},
		{"an owner is frozen", c.freezeOwner},
		{"an owner is cut off", func() []string {
			i, queues := c.victim()
			c.during(i, time.Second, 8*time.Second, (*link).Cut)
			return queues
		}},
		{"an owner is stopped", c.stopOwner},
		{"the server that leads a log is frozen", func() []string {
			shard := c.anyShard()
			i := c.nats.Leader(stream(shard))
			c.nats.Freeze(i)
			c.takenOver(c.queuesIn(shard))
			c.nats.Thaw(i)
			return c.queuesIn(shard)
		}},
		{"an owner's links are half-open", func() []string {
			ways := [][]direction{{toServer}, {toClient}, {toServer, toClient}}[c.rng.IntN(3)]
			i, queues := c.victim()
			c.during(i, time.Second, 15*time.Second, func(l *link) { l.Stall(ways...) })
			return queues
		}},
		{"an owner is killed and comes back at once", func() []string {
			i, queues := c.victim()
			c.procs[i].Kill9(c.t)
			c.procs[i].Start(c.t)
			return queues
		}},
		{"a node is drained", c.drainNode},
		{"two servers are killed", func() []string {
			shard := c.anyShard()
			i := c.nats.Leader(stream(shard))
			other := (i + 1 + c.rng.IntN(troubleNodes-1)) % troubleNodes
			c.nats.Kill(i)
			c.nats.Kill(other)
			c.busy(c.upTo(6 * time.Second))
			c.nats.Restart(other)
			c.busy(c.upTo(time.Second))
			c.nats.Restart(i)
			return c.queuesIn(shard)
		}},
		{"an owner's links are slow", func() []string {
			i, queues := c.victim()
			c.during(i, time.Second, 5*time.Second, func(l *link) { l.Delay(100 * time.Millisecond) })
			return queues
		}},
		{"an owner is frozen for a moment, again and again", func() []string {
			i, queues := c.victim()
			for range 4 {
				c.procs[i].Freeze(c.t)
				c.busy(1500*time.Millisecond + c.upTo(1500*time.Millisecond))
				c.procs[i].Thaw(c.t)
				c.busy(c.upTo(500 * time.Millisecond))
			}
			return queues
		}},
		{"two owners are killed", func() []string {
			i, queues := c.victim()
			other := (i + 1) % troubleNodes
			queues = append(queues, c.queuesOf(other)...)
			c.procs[i].Kill9(c.t)
			c.procs[other].Kill9(c.t)
			c.takenOver(queues)
			c.procs[i].Start(c.t)
			c.procs[other].Start(c.t)
			return queues
		}},
		{"the cluster's leader and an owner are killed", func() []string {
			i, queues := c.victim()
			s := c.nats.MetaLeader()
			c.nats.Kill(s)
			c.procs[i].Kill9(c.t)
			c.takenOver(queues)
			c.nats.Restart(s)
			c.procs[i].Start(c.t)
			return queues
		}},
		{"a log is filled", c.fillLog},
		{"a node has lost its disk", func() []string {
			i, queues := c.victim()
			c.procs[i].Kill9(c.t)
			require.NoError(c.t, os.RemoveAll(c.procs[i].Dir))
			c.takenOver(queues)
			c.procs[i].Start(c.t)
			return queues
		}},
		{"all filas are killed", func() []string {
			for _, p := range c.procs {
				p.Kill9(c.t)
			}
			for _, p := range c.procs {
				require.NoError(c.t, p.start())
			}
			for _, p := range c.procs {
				require.NoError(c.t, p.waitReady(), p.log)
			}
			return c.l.queues
		}},
	}
	if *flagKind != "" {
		kinds = slices.DeleteFunc(kinds, func(k troubleKind) bool { return !strings.Contains(k.name, *flagKind) })
		require.NotEmpty(t, kinds, "-fila.trouble")
	}
	for n := range *flagKills {
		kind := kinds[n%len(kinds)]
		c.round(n, kind.name, kind.do)
	}
	c.finish()
}
