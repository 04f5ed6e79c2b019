package sidecar

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/e2e/natstest"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// patience bounds single waits in real time. No test passes by being fast.
const patience = time.Minute

// testCluster is whole nodes on one NATS server with JetStream, in real time, each behind its own path,
// and a client that does not know nodes.
type testCluster struct {
	*testSite // only its client
	ns        *natstest.Server
	change    func(*config.Config)
	dirs      map[string]string
	nodes     map[string]*testMember
}

// testMember is a node of a testCluster.
type testMember struct {
	*testSite
	name string
	path *path
	gone bool // it was killed or stopped
}

// newTestCluster returns a cluster without nodes. Its configuration can be changed for all of them.
func newTestCluster(t *testing.T, change func(*config.Config)) *testCluster {
	t.Helper()
	c := &testCluster{ns: natstest.Start(t, natstest.JetStream), change: change, dirs: make(map[string]string), nodes: make(map[string]*testMember)}
	nc, err := nats.Connect(c.ns.URL)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	c.testSite = &testSite{t: t, nc: nc}
	return c
}

// startTestCluster starts nodes and waits until all shards have an owner.
func startTestCluster(t *testing.T, change func(*config.Config), names ...string) *testCluster {
	t.Helper()
	c := newTestCluster(t, change)
	for _, name := range names {
		c.start(name)
	}
	c.settled()
	return c
}

// config returns the configuration of a node, with its data directory.
func (c *testCluster) config(name, url string) config.Config {
	if c.dirs[name] == "" {
		c.dirs[name] = c.t.TempDir()
	}
	cfg := config.Default()
	cfg.DataDir, cfg.HTTP.Addr, cfg.NATS.URL, cfg.DrainTimeoutMs = c.dirs[name], "", url, 1000 // leases are kept
	cfg.Cluster = config.ClusterConfig{Enabled: true, Name: "test", Node: name, Shards: 2, FailoverMs: 2500, Replicas: 1, AllowR1: true}
	if c.change != nil {
		c.change(&cfg)
	}
	return cfg
}

// start starts a node and waits until it is ready.
func (c *testCluster) start(name string) *testMember {
	c.t.Helper()
	m := c.begin(name, nil)
	require.NoError(c.t, c.ready(m))
	return m
}

// begin starts a node. Its server can be changed before it runs.
func (c *testCluster) begin(name string, prepare func(*Server)) *testMember {
	c.t.Helper()
	m := &testMember{name: name, path: newPath(c.t, c.ns.Addr().String())}
	cfg := c.config(name, "nats://"+m.path.addr)
	log := &logText{}
	s, err := New(cfg, slog.New(slog.NewTextHandler(log, nil)), "1.0.0")
	require.NoError(c.t, err)
	s.announce = io.Discard
	if prepare != nil {
		prepare(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.testSite = &testSite{t: c.t, dir: cfg.DataDir, s: s, log: log, nc: c.nc, stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(m.ended)
		m.err = s.Run(ctx)
	}()
	c.t.Cleanup(func() {
		m.kill()
		<-m.ended
		if c.t.Failed() {
			c.t.Logf("log of node %s:\n%s", name, log.text())
		}
	})
	return m
}

// ready waits until a node is ready, or returns why it has ended.
func (c *testCluster) ready(m *testMember) error {
	c.t.Helper()
	select {
	case <-m.s.Ready():
	case <-m.ended:
		return m.err
	case <-time.After(patience):
		require.FailNow(c.t, "the node neither starts nor ends")
	}
	c.nodes[m.name] = m
	return nil
}

func (l *logText) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// kill ends a node like kill -9, as others see it: nothing of it is heard, and it learns nothing. Its
// connections are closed, so that its stop does not wait for timeouts.
func (m *testMember) kill() {
	m.gone = true
	m.path.close()
	select {
	case <-m.s.Ready():
		m.s.endpoints.nc.Close()
		if n, ok := m.s.storage.(*clusterNode); ok {
			n.conn.Close()
			m.s.endpoints.shared.Close()
		}
	default: // it has not started
	}
	m.s.Kill()
	m.stop()
}

// leave stops a node in order.
func (m *testMember) leave() {
	m.t.Helper()
	m.gone = true
	m.stop()
	select {
	case <-m.ended:
	case <-time.After(patience):
		require.FailNow(m.t, "the node does not end", m.log.text())
	}
	require.NoError(m.t, m.err)
}

// restart starts a node again on its data.
func (c *testCluster) restart(name string) *testMember {
	c.t.Helper()
	<-c.nodes[name].ended
	return c.start(name)
}

// eventually waits for a condition.
func (c *testCluster) eventually(cond func() bool, what string) {
	c.t.Helper()
	require.Eventually(c.t, cond, patience, 10*time.Millisecond, what)
}

// alive returns a running node.
func (c *testCluster) alive() *testMember {
	c.t.Helper()
	for _, m := range c.nodes {
		if !m.gone {
			return m
		}
	}
	require.FailNow(c.t, "no node lives")
	return nil
}

// status returns the status of a running node.
func (c *testCluster) status() api.ClusterStatus {
	c.t.Helper()
	return c.alive().s.storage.(*clusterNode).cluster.Status()
}

// ownedBy waits until a node serves a shard. A stalled machine can make the node lose the shard and take
// it again, so the owner of one moment proves nothing.
func (c *testCluster) ownedBy(shard int, name string) {
	c.t.Helper()
	c.eventually(func() bool { return c.nodes[name].serves(shard) }, "the node does not serve the shard")
}

// serves reports whether a node has the queues of a shard and considers itself the owner.
func (m *testMember) serves(shard int) bool {
	st := m.s.storage.(*clusterNode).cluster.Status()
	return st.Shards[shard].Owner == m.name && m.s.parts.shards.Shard(shard) != nil
}

// settled waits until all nodes agree on the owner of each shard and follow it closely.
func (c *testCluster) settled() {
	c.t.Helper()
	c.eventually(func() bool {
		alive := 0
		for _, m := range c.nodes {
			if !m.gone {
				alive++
			}
		}
		for _, m := range c.nodes {
			if m.gone {
				continue
			}
			for number, sh := range m.s.storage.(*clusterNode).cluster.Status().Shards {
				owner := c.nodes[sh.Owner]
				if owner == nil || owner.gone || !owner.serves(number) || len(sh.Standbys) != alive-1 {
					return false
				}
				for _, standby := range sh.Standbys {
					if standby.BehindMs > 500 || standby.Seq == 0 || standby.Error != "" {
						return false
					}
				}
			}
		}
		return true
	}, "shards without an owner, or standbys that do not follow")
}

// gather moves all shards to a node.
func (c *testCluster) gather(name string) {
	c.t.Helper()
	c.settled()
	for shard := range c.status().Shards {
		c.eventually(func() bool {
			return c.request("fila.admin.cluster-move", fmt.Sprintf(`{"shard":%d,"node":%q}`, shard, name), nil, nil) == nil
		}, "the move is refused")
		c.ownedBy(shard, name)
	}
	c.settled()
}

// shardOf returns the shard of a queue.
func (c *testCluster) shardOf(queue string) (shard int) {
	c.t.Helper()
	c.eventually(func() bool {
		place, ok := c.alive().s.storage.(*clusterNode).meta.Where(queue)
		shard = place.Shard
		return ok
	}, "a node that never hears of a queue")
	return shard
}

// inEachShard creates a queue in each shard and returns their names by shard.
func (c *testCluster) inEachShard(settings string) []string {
	c.t.Helper()
	names := make([]string, len(c.status().Shards))
	for i := 0; slices.Contains(names, ""); i++ {
		name := fmt.Sprint("q", i)
		c.insist("fila.admin.queue-create."+name, settings, nil, nil)
		if shard := c.shardOf(name); names[shard] == "" {
			names[shard] = name
		} else {
			c.must("fila.admin.queue-delete."+name, "", nil)
		}
	}
	return names
}

// insist repeats a request until it succeeds, as clients do while a shard has no owner.
func (c *testCluster) insist(subject, body string, headers nats.Header, into any) {
	c.t.Helper()
	var last error
	c.eventually(func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		var m *nats.Msg
		if m, last = c.nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: subject, Data: []byte(body), Header: headers}); last != nil {
			return false
		}
		if werr := wire.ParseError(m.Header, m.Data); werr != nil {
			last = werr
			return false
		}
		if into != nil {
			require.NoError(c.t, json.Unmarshal(m.Data, into), subject)
		}
		return true
	}, subject)
}

// js returns JetStream for an operator.
func (c *testCluster) js() jetstream.JetStream {
	c.t.Helper()
	js, err := jetstream.New(c.nc)
	require.NoError(c.t, err)
	return js
}

// path is the way of a node to NATS. Its connection for logs can be stalled separately.
type path struct {
	addr     string
	target   string
	listener net.Listener
	ended    sync.WaitGroup
	mu       struct {
		sync.Mutex
		changed *sync.Cond
		open    []net.Conn
		stalled bool // the connections for logs and shared records
		closed  bool
	}
}

func newPath(t testing.TB, target string) *path {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &path{addr: listener.Addr().String(), target: target, listener: listener}
	p.mu.changed = sync.NewCond(&p.mu)
	p.ended.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.ended.Go(func() { p.carry(conn) })
		}
	})
	t.Cleanup(func() {
		p.close()
		p.ended.Wait()
	})
	return p
}

// close ends the path for good.
func (p *path) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.closed = true
	for _, conn := range p.mu.open {
		_ = conn.Close()
	}
	p.mu.open = nil
	p.mu.changed.Broadcast()
}

// stall holds back everything to and from logs until it ends; consumers stay reachable.
func (p *path) stall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.stalled = on
	p.mu.changed.Broadcast()
}

// carry forwards a connection.
func (p *path) carry(client net.Conn) {
	nats, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.mu.open = append(p.mu.open, client, nats)
	if p.mu.closed {
		_, _ = client.Close(), nats.Close()
	}
	p.mu.Unlock()
	shared := make(chan bool, 1) // whether it is a connection for shared records
	p.ended.Go(func() {
		defer close(shared)
		from := bufio.NewReader(client)
		hello, err := from.ReadBytes('\n')
		if err == nil {
			is := bytes.Contains(hello, []byte(` shared"`))
			shared <- is
			if _, err = nats.Write(hello); err == nil {
				p.copy(nats, from, is)
			}
		}
		_, _ = client.Close(), nats.Close()
	})
	from := bufio.NewReader(nats)
	info, err := from.ReadBytes('\n') // NATS speaks first
	if err == nil {
		if _, err = client.Write(info); err == nil {
			if is, ok := <-shared; ok {
				p.copy(client, from, is)
			}
		}
	}
	_, _ = client.Close(), nats.Close()
}

// copy forwards one direction.
func (p *path) copy(to io.Writer, from io.Reader, shared bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		for shared && p.mu.stalled && !p.mu.closed {
			p.mu.changed.Wait()
		}
		closed := p.mu.closed
		p.mu.Unlock()
		if closed {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// idOf returns the id in the confirmation of a message.
func idOf(confirmation []byte) string {
	var r wire.EnqueueReply
	if err := json.Unmarshal(confirmation, &r); err != nil {
		return err.Error()
	}
	return r.ID
}
