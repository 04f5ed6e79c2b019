package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/admin"
	"github.com/filaq/fila/sidecar/circuit"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/sidecar/natsio"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// twoNodes are two nodes on one NATS server, without the code that decides who owns a shard. Shard 0 is
// at the first, shard 1 at the second.
type twoNodes struct {
	*testSite // only its client
	srv       *natsio.Embedded
	at        *places
	stores    [2]store.Store // of the shards
	nodes     [2]*testNode
	signer    *wire.Signer
}

// testNode is a node.
type testNode struct {
	set    *shard.Set
	front  *natsio.Front
	peers  *natsio.Peers
	admin  *admin.Admin
	shared *nats.Conn
	stop   func()

	file  config.Config // configuration for a reload
	wrong error         // error of reading it
}

// listed is the cluster as the two nodes see it, with a silent third node.
type listed struct{ admin.Cluster }

// LogLost implements admin.Cluster: the logs are whole.
func (listed) LogLost(int) bool { return false }

func (listed) Status() api.ClusterStatus {
	return api.ClusterStatus{Nodes: []api.ClusterNode{{Node: "node-0"}, {Node: "node-1"}, {Node: "node-2"}}}
}

// places is a Placement over two shards.
type places struct {
	mu   sync.Mutex
	next store.QueueID
	ids  map[string][queue.Roles]store.QueueID
}

func (p *places) Shards() int { return 2 }

func (p *places) number(name string) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() % 2)
}

func (p *places) Where(name string) (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.ids[name]
	return p.number(name), ok
}

func (p *places) Place(_ context.Context, name string) (ids [queue.Roles]store.QueueID, number int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.ids[name]; !ok {
		p.ids[name] = [queue.Roles]store.QueueID{p.next, p.next + 1}
		p.next += 2
	}
	return p.ids[name], p.number(name), nil
}

func (p *places) Drop(_ context.Context, name string, ids [queue.Roles]store.QueueID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ids[name] == ids {
		delete(p.ids, name)
	}
	return nil
}

// bubbleOfNodes runs fn with two serving nodes and a client.
func bubbleOfNodes(t *testing.T, fn func(t *testing.T, x *twoNodes)) {
	t.Helper()
	disk := t.TempDir() // a unique name
	inBubble(t, func(t *testing.T) {
		x := &twoNodes{at: &places{next: 1, ids: make(map[string][queue.Roles]store.QueueID)}}
		cfg := config.Default().NATS
		cfg.Embedded.Port = 0
		var err error
		x.srv, err = natsio.StartEmbedded(cfg.Embedded, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		nc, err := nats.Connect("", nats.InProcessServer(x.srv))
		require.NoError(t, err)
		x.testSite = &testSite{t: t, nc: nc, dir: disk}
		x.signer, err = wire.NewSigner(make([]byte, 32))
		require.NoError(t, err)
		t.Cleanup(func() {
			for number, m := range x.nodes {
				m.stop()
				_ = x.stores[number].Close()
			}
			nc.Close()
			x.srv.Shutdown()
			x.srv.WaitForShutdown()
			time.Sleep(time.Second) // as in inBubble
		})
		for number := range x.nodes {
			x.nodes[number] = x.start(cfg, fmt.Sprint("node-", number))
		}
		for number := range x.nodes {
			x.own(number, number)
		}
		fn(t, x)
	})
}

// start starts a node without shards.
func (x *twoNodes) start(cfg config.NATSConfig, name string) *testNode {
	x.t.Helper()
	log, now := slog.New(slog.DiscardHandler), shard.NewClock()
	conn, err := natsio.Connect(cfg, x.srv, log, nil, nil)
	require.NoError(x.t, err)
	shared, err := natsio.ConnectFleet(cfg, x.srv, log)
	require.NoError(x.t, err)
	own, err := storetest.OpenModel(x.dir+name, now)
	require.NoError(x.t, err)
	snap, err := own.Snapshot()
	require.NoError(x.t, err)
	subjects, err := wire.NewSubjects("fila")
	require.NoError(x.t, err)
	event := natsio.Events(conn, subjects, now, log)
	circuits := circuit.New(circuit.Options{Log: log, Now: now, Event: event, Submit: own.Submit})
	var queues struct{ *shard.Set }
	ctl := control.New(control.Options{
		Log: log, Now: now, KV: control.StoreKV(own.Submit), Event: event, Queues: &queues, Circuits: circuits, MaxPayload: conn.MaxPayload,
	}, snap)
	m := &testNode{shared: shared}
	m.front = natsio.New(natsio.Options{Log: log, Conn: conn, Subjects: subjects, Signer: x.signer, ReplyPrefixes: cfg.ReplyPrefixes, Headers: natsio.HeaderLimitsOf(&cfg), Exact: true})
	m.set = shard.NewSet(shard.Options{
		Log: log, Now: now, Conn: conn, Front: m.front, Control: ctl, Circuits: circuits, Metrics: telemetry.New(), Subjects: subjects,
		Signer: x.signer, Event: event, MaxUncommittedBytes: 256 << 20, Pacing: queue.DefaultPacing, Placement: x.at,
	})
	queues.Set = m.set
	m.peers = natsio.NewPeers(natsio.PeersOptions{Log: log, Conn: shared, Cluster: "test"})
	m.admin = admin.New(admin.Options{Log: log, Shards: m.set, Control: ctl, Circuits: circuits, Peers: m.peers, DataDir: x.dir, Cluster: listed{}, Node: name})
	require.NoError(x.t, m.peers.Join(name, m.admin.Here))
	require.NoError(x.t, ctl.Save())
	running := config.Default()
	running.Reload = func() (config.Config, error) { return m.file, m.wrong }
	m.file = running
	require.NoError(x.t, ctl.Start(running))
	m.set.Start()
	require.NoError(x.t, m.front.ServeAcks(m.set))
	require.NoError(x.t, m.set.Serve())
	var verbs []natsio.Verb
	for _, v := range m.admin.Verbs() {
		verbs = append(verbs, natsio.Verb{AnyVerb: v, Waits: v.Waits, Do: v.Do})
	}
	require.NoError(x.t, m.front.ServeRequests(m.set, "v1.0.0", verbs))
	m.stop = func() {
		m.set.Drain()
		<-m.front.Detach(m.set.Queues()...)
		m.set.End()
		circuits.Stop()
		ctl.Stop()
		m.front.StopRequests()
		_ = own.Close()
		natsio.Disconnect(conn, log)
		natsio.Disconnect(shared, log)
	}
	return m
}

// own makes a node serve a shard.
func (x *twoNodes) own(node, number int) {
	x.t.Helper()
	m := x.nodes[node]
	st, err := storetest.OpenModel(fmt.Sprint(x.dir, number), m.set.Now)
	require.NoError(x.t, err)
	x.stores[number] = st
	snap, err := st.Snapshot()
	require.NoError(x.t, err)
	sh := m.set.New(number, st)
	require.NoError(x.t, sh.Recover(snap))
	require.NoError(x.t, m.set.Add(sh))
	require.NoError(x.t, m.peers.Own(number, m.admin.Here))
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	defer cancel()
	require.NoError(x.t, m.shared.FlushWithContext(ctx))
}

// leave makes a node hand over a shard.
func (x *twoNodes) leave(node, number int) {
	x.t.Helper()
	m := x.nodes[node]
	m.peers.Leave(number)
	require.NoError(x.t, m.set.Remove(x.t.Context(), number, 0))
	require.NoError(x.t, x.stores[number].Close())
}

// ask makes a node carry out a request.
func (x *twoNodes) ask(node int, verb api.AnyVerb, tail, body string) (string, *wire.Error) {
	x.t.Helper()
	for _, v := range x.nodes[node].admin.Verbs() {
		if v.AnyVerb == verb {
			reply, err := v.Do(api.Sender{Client: "alice"}, tail, []byte(body))
			return string(reply), err
		}
	}
	require.FailNow(x.t, "no such verb", verb)
	return "", nil
}

// says is ask for a request that is not refused.
func (x *twoNodes) says(node int, verb api.AnyVerb, tail, body string) string {
	x.t.Helper()
	reply, err := x.ask(node, verb, tail, body)
	require.Nil(x.t, err, "%s.%s %s at node %d", verb, tail, body, node)
	return reply
}

// both sends a request to both nodes and checks that their replies are equal.
func (x *twoNodes) both(verb api.AnyVerb, tail, body string) string {
	x.t.Helper()
	one, oneErr := x.ask(0, verb, tail, body)
	two, twoErr := x.ask(1, verb, tail, body)
	require.Equal(x.t, oneErr, twoErr, "%s.%s %s", verb, tail, body)
	require.Equal(x.t, one, two, "%s.%s %s", verb, tail, body)
	if oneErr != nil {
		return oneErr.Error()
	}
	return one
}

// TestClientsOfTwoNodes see no difference: each request reaches the owner of its queue, also after a
// shard has moved.
func TestClientsOfTwoNodes(t *testing.T) {
	bubbleOfNodes(t, func(t *testing.T, x *twoNodes) {
		require.Zero(t, x.at.number("orders"))
		require.Equal(t, 1, x.at.number("first"))
		work := make(map[string]<-chan *nats.Msg)
		for _, name := range []string{"orders", "first"} {
			x.must("fila.admin.queue-create."+name, "", nil)
			ch := make(chan *nats.Msg, 100)
			_, err := x.nc.Subscribe("fila.deliver.w."+name, func(m *nats.Msg) { ch <- m })
			require.NoError(t, err)
			x.must("fila.consumer.w."+name, `{"max_in_flight":2}`, nil)
			work[name] = ch
		}
		require.NotNil(t, x.nodes[0].set.Queue("orders"))
		require.NotNil(t, x.nodes[1].set.Queue("first"))
		serves := func(name string) {
			t.Helper()
			x.must("fila.enqueue."+name, "x", nil)
			m := <-work[name]
			require.Contains(t, m.Reply, fmt.Sprintf("fila.ack.%d.", x.at.number(name)))
			// The number of the shard in the subject does not matter: the queue may have moved.
			m.Reply = strings.Replace(m.Reply, fmt.Sprintf(".ack.%d.", x.at.number(name)), ".ack.0.", 1)
			require.Nil(t, x.ack(m, ""))
			x.must("fila.enqueue."+name, "y", nil)
			m = <-work[name]
			require.Nil(t, x.request(strings.Replace(m.Reply, ".ack.", ".nack.", 1), "again", nil, nil))
			m = <-work[name]
			require.Equal(t, "2", m.Header.Get(wire.HeaderAttempt))
			require.Nil(t, x.ack(m, "+TERM"))
			sub, err := x.nc.SubscribeSync("_INBOX.w.1")
			require.NoError(t, err)
			require.NoError(t, x.nc.PublishRequest("fila.consumer.w."+name+".dlq", sub.Subject, []byte(`{"fetch":{"batch":1,"expires_ms":10000}}`)))
			dead, err := sub.NextMsg(time.Minute)
			require.NoError(t, err)
			require.Equal(t, "y", string(dead.Data))
			require.Nil(t, x.ack(dead, ""))
			require.NoError(t, sub.Unsubscribe())
			require.Equal(t, wire.CodeBadField, x.request("fila.fetch."+name, `{"batch":0}`, nil, nil).ErrCode)
			require.Equal(t, wire.CodeTokenRefused, x.request("fila.ack.0.x."+name, "", nil, nil).ErrCode)
			require.Equal(t, wire.CodeNotForDLQ, x.request("fila.enqueue."+name+".dlq", "x", nil, nil).ErrCode)
		}
		serves("orders")
		serves("first")

		x.must("fila.enqueue.first", "kept", nil)
		leased := <-work["first"]
		x.leave(1, 1)
		_, err := x.nc.RequestMsgWithContext(t.Context(), &nats.Msg{Subject: "fila.enqueue.first"})
		require.ErrorIs(t, err, nats.ErrNoResponders)
		_, err = x.nc.RequestMsgWithContext(t.Context(), &nats.Msg{Subject: leased.Reply})
		require.ErrorIs(t, err, nats.ErrNoResponders)
		serves("orders")
		x.own(0, 1)
		require.Nil(t, x.ack(leased, ""))
		serves("first") // with the earlier registration
		serves("orders")
		require.Zero(t, x.depth("first").InFlight)

		x.must("fila.admin.queue-delete.first", "", nil)
		_, err = x.nc.RequestMsgWithContext(t.Context(), &nats.Msg{Subject: leased.Reply})
		require.ErrorIs(t, err, nats.ErrNoResponders)
		_, placed := x.at.Where("first")
		require.False(t, placed)
	})
}

// TestVerbsAtEitherNode have the same replies.
func TestVerbsAtEitherNode(t *testing.T) {
	bubbleOfNodes(t, func(t *testing.T, x *twoNodes) {
		ids := make(map[string]string)
		for _, name := range []string{"orders", "first"} {
			for node := range x.nodes { // the second call finds the queue
				x.says(node, api.VerbQueueCreate, name, `{"throttle_headers":["gate"]}`)
			}
			var r wire.EnqueueReply
			require.Nil(t, x.request("fila.enqueue."+name, "x", nats.Header{"gate": {"shut"}}, &r))
			ids[name] = r.ID
		}
		synctest.Wait()             // a message is counted after its confirmation
		for node := range x.nodes { // settings are shared by other means
			x.says(node, api.VerbPause, "", `{"kind":"throttle","name":"shut"}`)
		}
		for name, id := range ids {
			require.Contains(t, x.both(api.VerbQueueInspect, name, ""), `"pending":1`)
			require.Contains(t, x.both(api.VerbQueueWanted, name, ""), `"wanted":0,"pending":1`)
			require.Contains(t, x.both(api.VerbPeek, name, ""), id)
			require.Contains(t, x.both(api.VerbExplain, "", `{"kind":"queue","queue":"`+name+`"}`), "blocked by a pause of throttle:shut")
			require.Contains(t, x.both(api.VerbExplain, "", `{"kind":"message","id":"`+id+`"}`), `"queue":"`+name+`"`)
			require.Contains(t, x.both(api.VerbMessageShow, "", `{"id":"`+id+`"}`), `"queue":"`+name+`"`)
			require.Contains(t, x.both(api.VerbMessageShow, "", `{"id":"`+id+`","queue":"`+name+`"}`), id)
			require.Contains(t, x.both(api.VerbHookReset, name, `{"hook":"on_enqueue"}`), fmt.Sprint(wire.CodeHookNotFound))
			require.Contains(t, x.both(api.VerbQueueUpdate, name, `{"max_depth":-1}`), fmt.Sprint(wire.CodeBadQueueSettings))
			for node := range x.nodes { // each redrive is its own job
				require.Contains(t, x.says(node, api.VerbRedrive, name, ""), `"redriven":0`)
				require.Contains(t, x.says(node, api.VerbRedrive, name+".dlq", ""), `"redriven":0`)
			}
			require.Contains(t, x.both(api.VerbQueueCreate, name, ""), fmt.Sprint(wire.CodeQueueExists))
		}
		for _, none := range []string{"none", "none.1", "none.2", "none.3"} {
			require.Contains(t, x.both(api.VerbQueueInspect, none, ""), fmt.Sprint(wire.CodeQueueNotFound))
			require.Contains(t, x.both(api.VerbQueueDelete, none, ""), fmt.Sprint(wire.CodeQueueNotFound))
		}
		unknown := `"id":"0198d1a0-0000-7000-8000-000000000000"}`
		require.Contains(t, x.both(api.VerbMessageShow, "", `{`+unknown), fmt.Sprint(wire.CodeMessageNotFound))
		require.Contains(t, x.both(api.VerbExplain, "", `{"kind":"message",`+unknown), `"state":"unknown"`)
		require.Contains(t, x.both(api.VerbMessageShow, "", `{"id":"x"}`), fmt.Sprint(wire.CodeBadField))
		require.Contains(t, x.both(api.VerbQueueInspect, "a b", ""), fmt.Sprint(wire.CodeBadQueueName))
		require.Contains(t, x.both(api.VerbMessageShow, "", `{`), fmt.Sprint(wire.CodeBadJSON))

		require.Contains(t, x.both(api.VerbThrottleShow, "shut", ""), `"waiting":2,"waiting_messages":2,"admitted":0,"blocked":0,"waiting_queues":[{"queue":"first","messages":1,"flows":1},{"queue":"orders","messages":1,"flows":1}]`)
		require.Contains(t, x.both(api.VerbThrottleShow, "nothing", ""), fmt.Sprint(wire.CodeThrottleNotFound))
		require.Contains(t, x.both(api.VerbCircuitShow, "nothing", ""), fmt.Sprint(wire.CodeCircuitNotFound))

		// Node 0 changes a queue of node 1, where the client is known.
		x.says(0, api.VerbQueueUpdate, "first", `{"max_depth":7}`)
		require.EqualValues(t, 7, x.nodes[1].set.Queue("first").Settings().MaxDepth)
		require.Contains(t, x.says(1, api.VerbConfigLog, "", ""), `"client":"alice"`)
		require.Contains(t, x.says(0, api.VerbMessageDelete, "", `{"id":"`+ids["first"]+`"}`), `"done":true`)
		require.Zero(t, x.nodes[1].set.Queue("first").Depth())
		require.Contains(t, x.says(1, api.VerbQueuePurge, "orders", ""), `"purged":1`)
		require.Contains(t, x.says(0, api.VerbPause, "", `{"kind":"queue","name":"first"}`), `"name":"first"`)
		x.says(0, api.VerbQueueDelete, "first", "")
		require.Nil(t, x.nodes[1].set.Queue("first"))
	})
}

// TestReloadReachesAllNodes and names them.
func TestReloadReachesAllNodes(t *testing.T) {
	bubbleOfNodes(t, func(t *testing.T, x *twoNodes) {
		for _, name := range []string{"orders", "first"} { // one per node
			x.says(0, api.VerbQueueCreate, name, "")
			settings := wire.DefaultQueueSettings(name)
			settings.MaxDepth = 7
			for _, m := range x.nodes {
				m.file.Queues = append(m.file.Queues, settings)
			}
		}
		var r api.ReloadReply
		reload := func(node int) {
			r = api.ReloadReply{}
			require.NoError(t, json.Unmarshal([]byte(x.says(node, api.VerbReload, "", "")), &r))
		}
		reload(1)
		require.Equal(t, []string{"node-1", "node-0"}, r.Nodes)
		require.Equal(t, []string{"node-2: the node does not answer"}, r.NotReloaded)
		require.Len(t, r.Changes, 2, "each node has changed what it owns: %v", r.Changes)
		require.EqualValues(t, 7, x.nodes[0].set.Queue("orders").Settings().MaxDepth)
		require.EqualValues(t, 7, x.nodes[1].set.Queue("first").Settings().MaxDepth)

		x.nodes[1].wrong = errors.New("a mistake in line 3")
		reload(0)
		require.Equal(t, []string{"node-0"}, r.Nodes)
		require.Len(t, r.NotReloaded, 2)
		require.Contains(t, r.NotReloaded[0], "node-1: ")
		require.Contains(t, r.NotReloaded[0], "a mistake in line 3")
		_, err := x.ask(1, api.VerbReload, "", "")
		require.Equal(t, wire.CodeReloadFailed, err.ErrCode)

		for _, q := range []string{"orders", "first"} {
			require.Contains(t, x.both(api.VerbQueueInspect, q, ""), fmt.Sprintf(`"shard":%d,"owner":"node-%d"`, x.at.number(q), x.at.number(q)))
		}
		require.Contains(t, x.both(api.VerbQueueList, "", ""), `"shard":1,"owner":"node-1"`)
		_, err = x.ask(0, api.VerbStoreBackup, "", "")
		require.Equal(t, wire.CodeBackupFailed, err.ErrCode)
		require.Contains(t, err.Description, "a node of a cluster has no store of its own")
	})
}

// TestAttentionThroughAnyNode has what all nodes find, and names the node that does not answer.
func TestAttentionThroughAnyNode(t *testing.T) {
	bubbleOfNodes(t, func(t *testing.T, x *twoNodes) {
		for _, name := range []string{"orders", "first"} { // one per node
			x.says(0, api.VerbQueueCreate, name, "")
			x.says(0, api.VerbPause, "", fmt.Sprintf(`{"kind":"queue","name":%q}`, name))
		}
		for node := range x.nodes {
			time.Sleep(time.Minute)
			var reply api.Attention
			require.NoError(t, json.Unmarshal([]byte(x.says(node, api.VerbAttention, "", "")), &reply))
			require.Equal(t, []string{"node-2"}, reply.Unanswered)
			var paused []string
			for _, f := range reply.Findings {
				if f.Condition == "paused" {
					paused = append(paused, f.Queue)
				}
			}
			require.Equal(t, []string{"first", "orders"}, paused)
			require.NoError(t, json.Unmarshal([]byte(x.says(node, api.VerbAttention, "", `{"limit":1}`)), &reply))
			require.Equal(t, []int{reply.Total - 1, 1}, []int{reply.Truncated, len(reply.Findings)})
		}
	})
}

// TestDeadLettersOfTwoNodes are counted together, and of one queue at its owner; a finding about a
// gate is one about each queue that it blocks, at either node; lists have fairness keys.
func TestDeadLettersOfTwoNodes(t *testing.T) {
	bubbleOfNodes(t, func(t *testing.T, x *twoNodes) {
		for node := range x.nodes { // settings are not shared here
			x.says(node, api.VerbCircuitOpen, "bank", `{"for_ms":3600000}`)
		}
		for _, name := range []string{"orders", "first"} { // one per node
			x.says(0, api.VerbQueueCreate, name, `{"max_deliveries":1,"fairness_header":"t","circuit_header":"c"}`)
			got, _ := x.consumer("w", name, `{"consumer":"w","max_in_flight":5}`)
			for range 2 {
				x.must("fila.enqueue."+name, "x", nil)
				require.Nil(t, x.ack(next(t, got), `-NAK {"error":"no such customer"}`))
			}
			require.Nil(t, x.request("fila.enqueue."+name, "x", nats.Header{"t": {"acme"}, "c": {"bank"}}, nil))
		}
		time.Sleep(time.Second)
		var all, one api.DeadRates
		require.NoError(t, json.Unmarshal([]byte(x.both(api.VerbDeadRates, "", "")), &all))
		require.Equal(t, []any{int64(4), 2}, []any{all.Messages, all.Total})
		require.NoError(t, json.Unmarshal([]byte(x.both(api.VerbDeadRates, "", `{"queue":"orders","minutes":2}`)), &one))
		require.Equal(t, []any{int64(2), "orders"}, []any{one.Messages, one.Groups[0].SourceQueue})

		for node := range x.nodes {
			for _, name := range []string{"orders", "first"} {
				var reply api.Attention
				require.NoError(t, json.Unmarshal([]byte(x.says(node, api.VerbAttention, "", fmt.Sprintf(`{"queue":%q}`, name))), &reply))
				f, ok := findingOf(reply, "circuit-open")
				require.True(t, ok, "%+v", reply)
				require.Equal(t, []any{int64(1), "circuit:bank", "fila circuit close bank"}, []any{f.Messages, f.Gate, f.Action.Command})
			}
			var reply api.Attention
			require.NoError(t, json.Unmarshal([]byte(x.says(node, api.VerbAttention, "", "")), &reply))
			f, _ := findingOf(reply, "circuit-open")
			require.Equal(t, []api.WaitingQueue{{Queue: "first", Messages: 1, Flows: 1}, {Queue: "orders", Messages: 1, Flows: 1}}, f.Queues)
			for _, body := range []string{`{"detail":true,"tenants":3}`, `{"sampled":true}`} {
				var list api.QueueList
				require.NoError(t, json.Unmarshal([]byte(x.says(node, api.VerbQueueList, "", body)), &list))
				require.Len(t, list.Queues, 4)
				require.Equal(t, []api.EndedCount{{Key: "default", Ended: 2}}, list.Queues[0].Detail.Tenants, body)
			}
		}
	})
}

// TestQueuesOfTwoNodesAreListed by name, in pages.
func TestQueuesOfTwoNodesAreListed(t *testing.T) {
	bubbleOfNodes(t, func(t *testing.T, x *twoNodes) {
		var want []string
		for i := range 12 {
			name := fmt.Sprintf("q%02d", i)
			x.says(0, api.VerbQueueCreate, name, "")
			want = append(want, name, name+".dlq")
		}
		require.Len(t, x.nodes[0].set.Queues(), 12, "half of them")
		list := func(node int, req api.ListRequest) (names []string, l api.QueueList) {
			t.Helper()
			body, err := json.Marshal(req)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal([]byte(x.says(node, api.VerbQueueList, "", string(body))), &l))
			require.Equal(t, len(want), l.Total)
			require.Empty(t, l.Missing)
			for _, q := range l.Queues {
				names = append(names, q.Name)
			}
			return names, l
		}
		for node := range x.nodes {
			var all []string
			for at, more := "", true; more; {
				names, l := list(node, api.ListRequest{After: at, Limit: 5})
				all = append(all, names...)
				at, more = l.Next, l.Next != ""
			}
			require.Equal(t, want, all)
			names, l := list(node, api.ListRequest{Offset: 7, Limit: 5})
			require.Equal(t, want[7:12], names)
			require.NotEmpty(t, l.Next)
			names, l = list(node, api.ListRequest{After: want[3], Offset: len(want), Limit: 1})
			require.Empty(t, names)
			require.Empty(t, l.Next)
		}
		_, err := x.ask(0, api.VerbQueueList, "", `{"limit":0}`)
		require.Equal(t, wire.CodeBadField, err.ErrCode)
	})
}

// TestQueuesOfAFencedShardAreMissing from lists, and nothing counts twice: the fenced node still gets
// requests for the owner, and answers with what it serves.
func TestQueuesOfAFencedShardAreMissing(t *testing.T) {
	bubbleOfNodes(t, func(t *testing.T, x *twoNodes) {
		x.leave(1, 1)
		x.own(0, 1)
		for _, name := range []string{"orders", "first"} {
			x.says(0, api.VerbQueueCreate, name, "")
		}
		require.Equal(t, 1, x.at.number("first"))
		x.nodes[0].set.Shard(1).Fence(true)
		for node := range x.nodes {
			var l api.QueueList
			require.NoError(t, json.Unmarshal([]byte(x.says(node, api.VerbQueueList, "", "")), &l))
			require.Equal(t, 2, l.Total, node)
			require.Equal(t, []int{1}, l.Missing, node)
			require.Len(t, l.Queues, 2)
			require.Equal(t, "orders", l.Queues[0].Name)
		}
	})
}

// TestWithoutAnOwner requests for a queue are refused with a retry hint.
func TestWithoutAnOwner(t *testing.T) {
	bubbleOfNodes(t, func(t *testing.T, x *twoNodes) {
		for _, name := range []string{"orders", "first"} {
			x.says(0, api.VerbQueueCreate, name, "")
		}
		var r wire.EnqueueReply
		require.Nil(t, x.request("fila.enqueue.orders", "x", nil, &r))
		x.leave(1, 1)
		for _, verb := range []api.AnyVerb{api.VerbQueueInspect, api.VerbQueueCreate, api.VerbPeek} {
			for node := range x.nodes {
				_, err := x.ask(node, verb, "first", "")
				require.Equal(t, wire.CodeNoOwner, err.ErrCode)
				require.Equal(t, time.Second, err.RetryAfter)
			}
		}
		require.Contains(t, x.says(0, api.VerbQueueList, "", ""), `"missing_shards":[1]`)
		require.Contains(t, x.both(api.VerbMessageShow, "", `{"id":"`+r.ID+`"}`), `"queue":"orders"`)
		require.Contains(t, x.both(api.VerbMessageShow, "", `{"id":"0198d1a0-0000-7000-8000-000000000000"}`), fmt.Sprint(wire.CodeNoOwner))
		require.Contains(t, x.says(1, api.VerbPause, "", `{"kind":"queue","name":"first"}`), `"name":"first"`)
		_, err := x.ask(1, api.VerbPause, "", `{"kind":"queue","name":"none"}`)
		require.Equal(t, wire.CodeQueueNotFound, err.ErrCode)

		// An owner that hangs.
		_, failed := x.nc.Subscribe("fila_node.test.admin.1.>", func(*nats.Msg) {})
		require.NoError(t, failed)
		x.flush()
		begun := time.Now()
		require.Contains(t, x.says(0, api.VerbQueueList, "", ""), `"missing_shards":[1]`)
		require.Equal(t, 2*time.Second, time.Since(begun))
		_, err = x.ask(0, api.VerbQueuePurge, "first", "")
		require.Equal(t, wire.CodeOutcomeUnknown, err.ErrCode)
	})
}

// TestAVerbComesTooLateToAShard that the node has just handed over.
func TestAVerbComesTooLateToAShard(t *testing.T) {
	bubbleOfNodes(t, func(t *testing.T, x *twoNodes) {
		x.says(0, api.VerbQueueCreate, "first", "")
		x.nodes[0].set.Shard(0).Fence(true)
		_, err := x.ask(0, api.VerbQueueCreate, "orders", "")
		require.Equal(t, wire.CodeNoOwner, err.ErrCode)
		require.NoError(t, x.nodes[1].set.Remove(t.Context(), 1, 0)) // it is still subscribed
		_, err = x.ask(0, api.VerbQueueInspect, "first", "")
		require.Equal(t, wire.CodeNoOwner, err.ErrCode)
		_, err = x.ask(0, api.VerbMessageShow, "", `{"id":"0198d1a0-0000-7000-8000-000000000000","queue":"first"}`)
		require.Equal(t, wire.CodeNoOwner, err.ErrCode)
		_, _, err = x.nodes[0].admin.Here(api.Sender{Client: "alice"}, "of-a-newer-node", "", nil)
		require.Equal(t, 400, err.Code)
		synctest.Wait()
	})
}
