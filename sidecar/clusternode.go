package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/filaq/fila/sidecar/cluster"
	"github.com/filaq/fila/sidecar/cluster/meta"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/natsio"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/replog"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// clusterNode is the storage of a cluster node, which has a replica of every shard and owns some.
type clusterNode struct {
	s    *Server
	node string

	conn     *nats.Conn // for logs and shared data
	js       jetstream.JetStream
	meta     *meta.Meta
	peers    *natsio.Peers
	replicas []*replog.Replica
	cluster  *cluster.Cluster                // nil: not joined
	joined   atomic.Pointer[cluster.Cluster] // the same, for readers during the start

	mu struct {
		sync.Mutex
		stores   map[int]*replog.Store // owned shards
		caughtUp map[int]bool          // shards whose log this node has followed to its end
	}
	ends   chan error    // a reason why this node cannot go on
	closed chan struct{} // closed by close

	declaring sync.Mutex // held by declare
	left      bool
}

func newClusterNode(s *Server) (*clusterNode, error) {
	node, err := s.cfg.Cluster.NodeName()
	if err != nil {
		return nil, err
	}
	m := &clusterNode{s: s, node: node, ends: make(chan error, 1), closed: make(chan struct{})}
	m.mu.stores, m.mu.caughtUp = make(map[int]*replog.Store), make(map[int]bool)
	return m, nil
}

// histories is the first format of records with histories.
const histories = 2

// settleTime is how long a handover waits for leases of a shard.
const settleTime = time.Second

func (m *clusterNode) file(shard int) string {
	return filepath.Join(m.dir(), strconv.Itoa(shard)+".db")
}

func (m *clusterNode) dir() string { return filepath.Join(m.s.cfg.DataDir, "shards") }

func (m *clusterNode) open() error {
	if err := os.MkdirAll(m.dir(), 0o750); err != nil {
		return fmt.Errorf("data_dir: %w", err)
	}
	return m.s.listen() // files are opened later, with their logs
}

// kept waits for JetStream and joins the cluster or makes it.
func (m *clusterNode) kept(ctx context.Context) (snap store.Snapshot, err error) {
	s, c := m.s, &m.s.cfg.Cluster
	if m.conn, err = natsio.ConnectFleet(s.cfg.NATS, s.endpoints.embedded, s.log); err != nil {
		return snap, err
	}
	if err := natsio.WaitConnected(ctx, m.conn); err != nil {
		return snap, err
	}
	m.meta, err = meta.Open(ctx, meta.Options{
		Log: s.log, Conn: m.conn, Cluster: c.Name, Shards: int(c.Shards), Replicas: int(c.Replicas), AllowR1: c.AllowR1, AllowNATS: c.AllowNATS,
	})
	if err != nil {
		return snap, err
	}
	return store.Snapshot{Config: m.meta.Entries(), Secret: m.meta.Secret()}, nil
}

// completeOptions makes the parts use the shared data of the cluster.
func (m *clusterNode) completeOptions(f *partOptions) {
	f.circuits.Submit = forget // circuits are stored in the bucket of shared gates
	f.circuits.Node = m.node
	f.control.Shared, f.control.Node = m.meta, m.node
	f.presence.Cluster = natsio.Membership{Cluster: m.s.cfg.Cluster.Name, Incarnation: m.meta.Incarnation(), Node: m.node}
	f.shards.Placement = placement{m.meta}
	f.front.Exact = true
	m.peers = natsio.NewPeers(natsio.PeersOptions{Log: m.s.limited, Conn: m.conn, Cluster: m.s.cfg.Cluster.Name})
	f.shards.Send = m.send
	f.admin.Peers, f.admin.Cluster, f.admin.Node = m.peers, clusterVerbs{m}, m.node
}

// send sends a request to the owner of a shard.
func (m *clusterNode) send(ctx context.Context, number int, body []byte) ([]byte, error) {
	if shards := m.s.parts.shards; shards.Shard(number) != nil {
		answer, refused := shards.Receive(body)
		if refused != nil {
			return nil, refused
		}
		return answer, nil
	}
	answer, _, err := m.peers.Ask(ctx, api.Sender{}, number, shard.TransferVerb, "", body)
	return answer, err
}

// forget completes a batch without storing it.
func forget(b *store.Batch) {
	if b.Done != nil {
		go b.Done(nil)
	}
}

// recover opens the replicas, which follow their logs from then on.
func (m *clusterNode) recover(ctx context.Context, _ store.Snapshot) error {
	js, err := jetstream.New(m.conn)
	if err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	m.js = js
	m.meta.Watch(m.s.parts.control.Changed)
	s, c := m.s, &m.s.cfg.Cluster
	wrote := s.metrics.SetCluster(m.gauges)
	snapshots, err := m.snapshots(ctx, js)
	if err != nil {
		return err
	}
	for number := range m.meta.Shards() {
		r, err := m.follow(ctx, replog.Options{
			JS: js, Log: s.log, Cluster: c.Name, Incarnation: m.meta.Incarnation(), Shard: number, Node: m.node,
			Path: m.file(number), Store: s.storeOptions(),
			Create: !m.meta.HasLog(number), Replicas: int(c.Replicas), MaxBytes: c.LogBytes,
			Snapshots: snapshots, OnAppend: wrote,
			Verdict: func() (replog.Verdict, bool) { return cluster.VerdictOf(m.meta, number) },
		})
		if err != nil {
			return fmt.Errorf("shard %d of cluster %s: %w", number, c.Name, s.lockedElsewhere(err))
		}
		m.replicas = append(m.replicas, r)
		if err := m.meta.SetLog(ctx, number); err != nil {
			return err
		}
	}
	return nil
}

// snapshots opens the object store of snapshots.
func (m *clusterNode) snapshots(ctx context.Context, js jetstream.JetStream) (jetstream.ObjectStore, error) {
	c := &m.s.cfg.Cluster
	return patiently(ctx, m.s.log, "snapshots", func() (jetstream.ObjectStore, error) {
		return replog.OpenSnapshots(ctx, js, c.Name, m.meta.Incarnation(), int(c.Replicas))
	})
}

// follow opens a replica.
func (m *clusterNode) follow(ctx context.Context, o replog.Options) (*replog.Replica, error) {
	return patiently(ctx, m.s.log, "shard "+strconv.Itoa(o.Shard), func() (*replog.Replica, error) { return replog.Open(ctx, o) })
}

// patiently retries until JetStream is ready: it may have no leader, or not all servers yet.
func patiently[T any](ctx context.Context, log *slog.Logger, what string, open func() (T, error)) (T, error) {
	for reported := false; ; {
		opened, err := open()
		if err == nil || !replog.Busy(err) {
			return opened, err
		}
		if !reported {
			reported = true
			log.Info("waiting for JetStream", "for", what, "error", err)
		}
		select {
		case <-time.After(logRetry):
		case <-ctx.Done():
			return opened, err
		}
	}
}

// logRetry is the wait between these attempts.
const logRetry = 250 * time.Millisecond

// join joins the cluster, so that this node takes over shards.
func (m *clusterNode) join(ctx context.Context) (err error) {
	s, c := m.s, &m.s.cfg.Cluster
	replicas := make([]cluster.Replica, len(m.replicas))
	for i, r := range m.replicas {
		replicas[i] = cluster.Replog(r)
	}
	m.cluster, err = cluster.New(cluster.Options{
		Log: s.log, Conn: m.conn, Name: c.Name, Node: m.node, Version: s.version, Shards: len(replicas),
		Failover: time.Duration(c.FailoverMs) * time.Millisecond, Serve: m, Replicas: replicas,
		Event: natsio.Events(s.endpoints.nc, s.subjects, s.now, s.limited), Detail: m.detail, Memory: m.meta,
		Evidence: m.evidence(),
	})
	if err != nil {
		return err
	}
	if err := m.peers.Join(m.node, s.parts.admin.Here); err != nil {
		return err
	}
	if err := m.cluster.Start(ctx); err != nil {
		m.cluster = nil // there is nothing to leave
		return err
	}
	m.joined.Store(m.cluster)
	go m.watch()
	return nil
}

// evidence returns what this node looks at of the NATS servers.
func (m *clusterNode) evidence() cluster.Evidence {
	c := &m.s.cfg.Cluster
	e := cluster.Evidence{Monitoring: c.Monitoring}
	e.Require.Allowed = c.AllowNATS
	e.Require.Version, e.Require.Sync = slices.Contains(c.Require, config.RequireVersion), slices.Contains(c.Require, config.RequireSync)
	if m.s.endpoints.embedded != nil {
		inside := m.s.cfg.EmbeddedServer()
		e.Embedded = cluster.SyncText(inside.SyncsAlways(), natsSync)
	}
	e.Servers = func(ctx context.Context) (names []string, err error) {
		for number := range m.replicas {
			some, err := replog.Servers(ctx, m.js, c.Name, number)
			if err != nil {
				return nil, err
			}
			names = append(names, some...)
		}
		return names, nil
	}
	return e
}

// natsSync is the default interval of nats-server.
const natsSync = 2 * time.Minute

// lost fails the store of a shard whose queues have failed. The next owner, possibly this node,
// starts from what is stored.
func (m *clusterNode) lost(failed *shard.Shard) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if st := m.mu.stores[failed.Number()]; st != nil && m.s.parts.shards.Shard(failed.Number()) == failed {
		st.Fail(failed.Err())
	}
	return nil
}

// watch reports what ends this node.
func (m *clusterNode) watch() {
	select {
	case err := <-m.cluster.Conflict():
		m.ends <- err
	case <-m.meta.Failed():
		m.ends <- m.meta.Err()
	case <-m.closed:
	}
}

func (m *clusterNode) over() <-chan error { return m.ends }

// health checks whether this node serves the shards that it owns and can take over the others.
func (m *clusterNode) health() (string, error) {
	shards := m.s.parts.shards
	serving := shards.Numbers()
	var owned []string
	for number, r := range m.replicas {
		seen := r.Seen()
		switch {
		case slices.Contains(serving, number):
			owned = append(owned, strconv.Itoa(number))
		case shards.Shard(number) != nil:
			return "", fmt.Errorf("shard %d: its log does not ack what this node, its owner, writes: it neither delivers nor answers", number)
		case seen.Err != nil:
			return "", fmt.Errorf("shard %d: this node cannot follow its log: %w", number, seen.Err)
		case m.logLost(number):
			return "", fmt.Errorf("shard %d: its log lacks confirmed messages, and no node serves it until it is repaired", number)
		case !m.hasCaughtUp(number, seen.Lag):
			return "", fmt.Errorf("shard %d: this node's copy is still %d records behind its log", number, seen.Lag)
		}
	}
	all := len(m.replicas)
	state := fmt.Sprintf("ready: owner of shards %s of %d, standby of the others", strings.Join(owned, ", "), all)
	switch len(owned) {
	case 0:
		state = fmt.Sprintf("ready: standby of all %d shards", all)
	case all:
		state = fmt.Sprintf("ready: owner of all %d shards", all)
	}
	if c := m.joined.Load(); c != nil {
		if lacking := c.Degraded(); len(lacking) > 0 {
			state += "\ndegraded: " + strings.Join(lacking, "; ") // a node serves without a proof
		}
	}
	return state, nil
}

// logLost reports whether the log of a shard lacks confirmed messages.
func (m *clusterNode) logLost(number int) bool {
	c := m.joined.Load()
	return c != nil && c.LogLost(number)
}

// near is how many records behind a copy counts as caught up; under load there always are some.
const near = 1024

// hasCaughtUp reports whether a copy has caught up since the start. Later it may fall behind, which
// the status shows.
func (m *clusterNode) hasCaughtUp(number int, lag uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.caughtUp[number] = m.mu.caughtUp[number] || lag < near
	return m.mu.caughtUp[number]
}

// gauges returns metrics of the cluster, none before the node has joined.
func (m *clusterNode) gauges() (all telemetry.Cluster) {
	c := m.joined.Load()
	if c == nil {
		return all
	}
	all.ServersOK, all.ServersDegraded = c.CountServers()
	n := c.Counts()
	all.Takeovers, all.Planned, all.Fenced, all.Handovers, all.HandoverTime = n.Takeovers, n.Planned, n.Fenced, n.Handovers, n.HandoverTime
	for _, s := range c.Local() {
		shard := telemetry.ClusterShard{
			Shard: s.Shard, Owner: s.Owns, Lost: s.Lost, Epoch: s.Epoch, Last: s.Seq, Lag: s.Lag, Behind: time.Duration(s.BehindMs) * time.Millisecond, LogBytes: s.LogBytes,
		}
		if s.SnapshotMs > 0 {
			shard.Snapshot = time.Since(time.UnixMilli(s.SnapshotMs))
		}
		all.Shards = append(all.Shards, shard)
	}
	return all
}

// detail returns what the status shows of a log.
func (m *clusterNode) detail(number int) cluster.Detail {
	st, _ := m.replicas[number].LogState()
	return cluster.Detail{LogBytes: st.Bytes, SnapshotAt: st.SnapshotAt}
}

func (m *clusterNode) bytes() (sum int64) {
	for number := range m.replicas {
		if st, err := os.Stat(m.file(number)); err == nil {
			sum += st.Size()
		}
	}
	return sum
}

// leave hands all shards over.
func (m *clusterNode) leave(ctx context.Context) {
	if m.cluster != nil && !m.left {
		m.left = true
		m.cluster.Shutdown(ctx)
	}
}

func (m *clusterNode) close() error {
	close(m.closed)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	m.leave(ended)
	var errs []error
	for _, r := range m.replicas {
		errs = append(errs, r.Close())
	}
	if m.meta != nil {
		m.meta.Close()
	}
	if m.conn != nil {
		natsio.Disconnect(m.conn, m.s.log)
	}
	return errors.Join(errs...)
}

// Own implements [cluster.Shards].
func (m *clusterNode) Own(number int, st cluster.Store) error {
	owned := st.(*replog.Store) // as Promote returned it
	shards := m.s.parts.shards
	snap, err := owned.Snapshot()
	if err != nil {
		return discard(owned, err)
	}
	sh := shards.New(number, owned)
	fence := m.cluster.FenceAfter()
	sh.Owns = func() bool { return owned.Owns(fence) }
	sh.Full, sh.Plain = owned.Full, func() bool { return owned.Format() < histories }
	if err := sh.Recover(snap); err != nil {
		return discard(owned, err)
	}
	m.mu.Lock()
	m.mu.stores[number] = owned
	m.mu.Unlock()
	if err := shards.Add(sh); err != nil {
		m.Lose(number, err)
		return err
	}
	if err := m.peers.Own(number, m.s.parts.admin.Here); err != nil {
		m.Lose(number, err)
		return err
	}
	go m.declare()
	return nil
}

// discard makes a corrupt store be rebuilt from snapshot and log.
func discard(st *replog.Store, err error) error {
	if errors.Is(err, store.ErrCorrupt) {
		st.Discard(err)
	}
	return err
}

// disown forgets the store of a shard.
func (m *clusterNode) disown(number int) {
	m.peers.Leave(number)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.stores, number)
}

// declare creates missing queues of the configuration in the shards of this node. Existing queues
// keep their settings, since a takeover is no start.
func (m *clusterNode) declare() {
	m.declaring.Lock()
	defer m.declaring.Unlock()
	if err := m.s.parts.control.DeclareMissing(m.s.killed); err != nil {
		m.s.log.Warn("queues of the configuration file cannot be created", "error", err)
	}
}

// Fence implements [cluster.Shards].
func (m *clusterNode) Fence(number int, on bool) {
	if sh := m.s.parts.shards.Shard(number); sh != nil {
		sh.Fence(on)
	}
}

// Drain implements [cluster.Shards].
func (m *clusterNode) Drain(ctx context.Context, number int) error {
	defer m.disown(number)
	return m.s.parts.shards.Remove(ctx, number, settleTime)
}

// Lose implements [cluster.Shards].
func (m *clusterNode) Lose(number int, _ error) {
	m.disown(number)
	m.s.parts.shards.Abandon(number)
}

// clusterVerbs carries out verbs about the cluster. They are not called before join.
type clusterVerbs struct{ m *clusterNode }

func (v clusterVerbs) Status() api.ClusterStatus { return v.m.cluster.Status() }

func (v clusterVerbs) Drain(ctx context.Context, r api.ClusterDrainRequest) (api.ClusterDrainReply, *wire.Error) {
	return v.m.cluster.Drain(ctx, r)
}

func (v clusterVerbs) Move(ctx context.Context, r api.ClusterMoveRequest) (api.ClusterMoveReply, *wire.Error) {
	return v.m.cluster.Move(ctx, r)
}

func (v clusterVerbs) Verify(ctx context.Context, r api.ClusterVerifyRequest) (api.ClusterVerifyReply, *wire.Error) {
	return v.m.cluster.Verify(ctx, r)
}

func (v clusterVerbs) Repair(ctx context.Context, r api.ClusterLossRequest) (api.ClusterLoss, *wire.Error) {
	return v.m.cluster.Repair(ctx, r)
}

func (v clusterVerbs) Accept(ctx context.Context, r api.ClusterLossRequest) (api.ClusterLoss, *wire.Error) {
	return v.m.cluster.Accept(ctx, r)
}

func (v clusterVerbs) LogLost(shard int) bool { return v.m.logLost(shard) }

// placement is the shard.Placement of a cluster.
type placement struct{ meta *meta.Meta }

func (p placement) Where(name string) (int, bool) {
	place, ok := p.meta.Where(name)
	return place.Shard, ok
}

func (p placement) Place(ctx context.Context, name string) ([queue.Roles]store.QueueID, int, error) {
	place, err := p.meta.Place(ctx, name)
	return place.IDs, place.Shard, err
}

func (p placement) Shards() int { return p.meta.Shards() }

func (p placement) Drop(ctx context.Context, name string, ids [queue.Roles]store.QueueID) error {
	return p.meta.Drop(ctx, name, ids)
}
