package control

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Latencies of the cloud.
const (
	writing = 3 * time.Millisecond // until a write is done and answered
	telling = 2 * time.Millisecond // from there until other nodes know
)

// cloud stores entries for several nodes, in one order.
type cloud struct {
	mu      sync.Mutex
	entries map[string]string
	ends    []*end
}

// end is the SharedKV of one node.
type end struct {
	cloud *cloud

	// Under the mutex of the cloud.
	known   map[string]string // what has come here
	pending map[string]int    // writes of a key from here
	news    map[string]bool   // keys of which the node has to be told
	gone    bool              // nothing gets through to the cloud
	last    chan struct{}     // closed when the latest write has its outcome

	wake chan struct{}
	stop chan struct{}
	done sync.WaitGroup
}

func (k *cloud) end() *end {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := &end{
		cloud: k, known: maps.Clone(k.entries), pending: map[string]int{}, news: map[string]bool{},
		last: make(chan struct{}), wake: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	close(e.last)
	k.ends = append(k.ends, e)
	return e
}

// kept returns the entries for a node that starts.
func (e *end) kept() store.Snapshot {
	var snap store.Snapshot
	for _, key := range slices.Sorted(maps.Keys(e.known)) {
		snap.Config = append(snap.Config, store.Entry{Key: key, Value: e.known[key]})
	}
	return snap
}

// Write serializes writes.
func (e *end) Write(b Batch) <-chan error {
	e.cloud.mu.Lock()
	defer e.cloud.mu.Unlock()
	keys := slices.Clone(b.Delete)
	for _, p := range b.Put {
		keys = append(keys, p.Key)
	}
	for _, key := range keys {
		e.pending[key]++
	}
	before, last, done := e.last, make(chan struct{}), make(chan error, 1)
	e.last = last
	e.done.Go(func() {
		<-before
		time.Sleep(writing)
		done <- e.carryOut(b, keys)
		close(last)
	})
	return done
}

func (e *end) carryOut(b Batch, keys []string) error {
	k := e.cloud
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		e.pending[key]--
	}
	defer e.tell(keys)
	if e.gone {
		return errDisk
	}
	for _, was := range b.Was {
		now, ok := k.entries[was.Key]
		if ok != (was.Value != nil) || ok && now != *was.Value {
			return ErrChanged
		}
	}
	for _, p := range b.Put {
		k.entries[p.Key] = p.Value
	}
	for _, key := range b.Delete {
		delete(k.entries, key)
	}
	e.read(keys)
	for _, other := range k.ends {
		if other != e {
			other.done.Go(func() { other.learn(keys) })
		}
	}
	return nil
}

// read needs the cloud's mutex.
func (e *end) read(keys []string) {
	for _, key := range keys {
		delete(e.known, key)
		if value, ok := e.cloud.entries[key]; ok {
			e.known[key] = value
		}
	}
}

func (e *end) learn(keys []string) {
	time.Sleep(telling)
	e.cloud.mu.Lock()
	defer e.cloud.mu.Unlock()
	e.read(keys)
	e.tell(keys)
}

// tell needs the cloud's mutex.
func (e *end) tell(keys []string) {
	for _, key := range keys {
		e.news[key] = true
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

func (e *end) Newest(key string) (string, bool, bool) {
	e.cloud.mu.Lock()
	defer e.cloud.mu.Unlock()
	value, ok := e.known[key]
	return value, ok, e.pending[key] == 0
}

func (e *end) Refresh(keys []string) error {
	time.Sleep(writing)
	e.cloud.mu.Lock()
	defer e.cloud.mu.Unlock()
	if e.gone {
		return errDisk
	}
	e.read(keys)
	e.tell(keys)
	return nil
}

func (e *end) cut(gone bool) {
	e.cloud.mu.Lock()
	defer e.cloud.mu.Unlock()
	e.gone = gone
}

// run sends changes to a node until the end is closed.
func (e *end) run(c *Control) {
	e.done.Go(func() {
		for {
			select {
			case <-e.wake:
			case <-e.stop:
				return
			}
			e.cloud.mu.Lock()
			keys := slices.Collect(maps.Keys(e.news))
			clear(e.news)
			e.cloud.mu.Unlock()
			c.Changed(keys)
		}
	})
}

// nodes are rigs with one cloud. Each has queues and events of its own.
type nodes struct {
	t     *testing.T
	cloud *cloud
	all   []*rig
	ends  []*end
}

func clusterBubble(t *testing.T, n int, fn func(t *testing.T, ns *nodes)) {
	t.Helper()
	disk := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ns := &nodes{t: t, cloud: &cloud{entries: map[string]string{}}}
		for i := range n {
			ns.start(i, fmt.Sprint(disk, i))
		}
		ns.settle()
		fn(t, ns)
		for i := range ns.all {
			ns.stop(i)
		}
	})
}

// start starts node i, or another process of it.
func (ns *nodes) start(i int, disk string) {
	ns.t.Helper()
	r := newRig(ns.t, disk)
	r.openStore() // for circuits alone
	e := ns.cloud.end()
	r.begin(Options{Shared: e, Node: string(rune('a' + i)), Share: func(*throttle.Gates) {}}, e.kept())
	_, werr := r.queues.Declare(context.Background(), wire.DefaultQueueSettings("orders"))
	require.Nil(ns.t, werr)
	e.run(r.c)
	require.NoError(ns.t, r.c.Save())
	require.NoError(ns.t, r.c.Start(r.cfg))
	if i < len(ns.all) {
		ns.all[i], ns.ends[i] = r, e
	} else {
		ns.all, ns.ends = append(ns.all, r), append(ns.ends, e)
	}
}

func (ns *nodes) stop(i int) {
	r, e := ns.all[i], ns.ends[i]
	r.c.Stop()
	close(e.stop)
	e.done.Wait()
	r.circuits.Stop()
	require.NoError(ns.t, r.st.Close())
}

// settle waits until every node has all changes.
func (ns *nodes) settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// stored returns the entries that all nodes have.
func (ns *nodes) stored(prefix string) map[string]string {
	ns.cloud.mu.Lock()
	defer ns.cloud.mu.Unlock()
	found := maps.Clone(ns.cloud.entries)
	maps.DeleteFunc(found, func(key, _ string) bool { return !strings.HasPrefix(key, prefix) })
	return found
}

// types returns the event types of all nodes.
func (ns *nodes) types() []string {
	var types []string
	for _, r := range ns.all {
		for _, e := range r.events.take() {
			types = append(types, e.Type)
		}
	}
	return types
}

// A change at one node applies at all of them, and one of them publishes the event.
func TestNodesKnowWhatOthersDo(t *testing.T) {
	clusterBubble(t, 3, func(t *testing.T, ns *nodes) {
		a, b, c := ns.all[0], ns.all[1], ns.all[2]
		a.put("greeting", "hello")
		a.put("throttle:api:rate", "5")
		a.put("weight:orders:vip", "3")
		b.pause(`{"kind":"queue","name":"orders"}`)
		b.pause(`{"kind":"key","queue":"orders","name":"k","for_ms":60000}`)
		c.pause(`{"kind":"throttle","name":"stripe"}`)
		c.set("tenant", `{"rate":7,"for_ms":60000}`)
		minute := now() + int64(time.Minute)
		ns.settle()
		for _, r := range ns.all {
			value, ok := r.c.Get("greeting")
			require.True(t, ok)
			require.Equal(t, "hello", value)
			require.Equal(t, perSecond(5), r.limits("api").Rate)
			require.Equal(t, perSecond(7), r.limits("tenant").Rate)
			require.Len(t, r.pauses(), 3)
			require.Equal(t, map[string]int64{"orders": math.MaxInt64, "orders/k": r.queues.told()["orders/k"], "weight orders/vip": 3000}, r.queues.told())
			require.InDelta(t, minute, r.queues.told()["orders/k"], float64(100*time.Millisecond))
			require.Equal(t, 0, r.admits("stripe"))
			require.Equal(t, a.trail(), r.trail())
		}
		require.Len(t, a.trail(), 7)
		require.ElementsMatch(t, []string{
			wire.EventConfigChanged, wire.EventConfigChanged, wire.EventConfigChanged, wire.EventPaused, wire.EventPaused, wire.EventPaused, wire.EventConfigChanged,
		}, ns.types())

		b.delete("greeting")
		c.resume(`{"kind":"queue","name":"orders"}`)
		a.clear("tenant")
		ns.settle()
		for _, r := range ns.all {
			_, ok := r.c.Get("greeting")
			require.False(t, ok)
			require.NotContains(t, r.queues.told(), "orders")
			require.Zero(t, r.limits("tenant").Rate)
			require.Len(t, r.pauses(), 2)
		}
		require.ElementsMatch(t, []string{wire.EventConfigChanged, wire.EventResumed, wire.EventConfigChanged}, ns.types())

		c.delete("weight:orders:vip")
		time.Sleep(time.Minute)
		ns.settle()
		for _, r := range ns.all {
			require.Empty(t, r.queues.told())
		}
		require.Len(t, ns.stored(statePause), 1)
		require.Empty(t, ns.stored(stateOverride))
	})
}

// Nodes agree on when limits were set, and a later change has a later time, whatever their
// clocks say.
func TestNodesKnowWhenLimitsWereSet(t *testing.T) {
	clusterBubble(t, 2, func(t *testing.T, ns *nodes) {
		a, b := ns.all[0], ns.all[1]
		agree := func() int64 {
			ns.settle()
			require.Equal(t, a.c.ThrottleSetAt("x"), b.c.ThrottleSetAt("x"))
			return a.c.ThrottleSetAt("x")
		}
		require.Nil(t, setThrottle(a, "x", 3, 0))
		first := agree()
		require.Positive(t, first)
		require.Nil(t, setThrottle(b, "x", 4, 60_000))
		second := agree()
		require.Greater(t, second, first)
		a.c.setTimes.mu.Lock() // as by a clock that is ahead
		a.c.setTimes.at[kindThrottle+":x"] += int64(time.Hour)
		a.c.setTimes.mu.Unlock()
		require.Nil(t, setThrottle(a, "x", 5, 0))
		third := agree()
		require.Equal(t, second+int64(time.Hour)+1, third)
		require.Nil(t, setThrottle(b, "x", 6, 0))
		require.Equal(t, third+1, agree(), "what is changed later is newer")
	})
}

// An override or pause ends at each node at its time, and its end is stored and published
// once.
func TestNodesEndTogether(t *testing.T) {
	clusterBubble(t, 3, func(t *testing.T, ns *nodes) {
		ns.all[0].pause(`{"kind":"queue","name":"orders","for_ms":60000}`)
		ns.all[1].set("api", `{"rate":7,"for_ms":60000}`)
		ns.settle()
		ns.types()
		ns.ends[2].cut(true) // it cannot note it, and ends it all the same
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, r := range ns.all {
			require.Empty(t, r.queues.told())
			require.Zero(t, r.limits("api").Rate)
		}
		ns.ends[2].cut(false)
		ns.settle()
		require.ElementsMatch(t, []string{wire.EventResumed, wire.EventConfigChanged}, ns.types())
		require.Empty(t, ns.stored(statePause))
		require.Empty(t, ns.stored(stateOverride))
		for _, r := range ns.all {
			require.Len(t, r.trail(), 4)
			require.Empty(t, r.pauses())
		}
	})
}

// A starting node has the stored state, and ends pauses and overrides that are over.
func TestANodeStartsLate(t *testing.T) {
	clusterBubble(t, 1, func(t *testing.T, ns *nodes) {
		a := ns.all[0]
		a.put("throttle:api:rate", "5")
		a.pause(`{"kind":"queue","name":"orders"}`)
		a.pause(`{"kind":"key","queue":"orders","name":"k","for_ms":60000}`)
		a.pause(`{"kind":"key","queue":"orders","name":"later","for_ms":600000}`)
		ns.stop(0)
		time.Sleep(time.Minute)
		ns.start(0, a.disk)
		ns.settle()
		a = ns.all[0]
		require.Equal(t, perSecond(5), a.limits("api").Rate)
		require.Positive(t, a.admits("api"), "the gates have their state elsewhere: this is no crash")
		require.Empty(t, ns.stored(stateGates))
		require.Len(t, a.pauses(), 2)
		require.Len(t, ns.stored(statePause), 2)
		require.Contains(t, a.trail()[len(a.trail())-1], "pause-ended pause:key:orders:k: until ")
		ns.start(1, t.TempDir())
		ns.settle()
		require.Equal(t, a.pauses(), ns.all[1].pauses())
		require.Equal(t, a.trail(), ns.all[1].trail())
		_, wait := a.c.KeepCall([]string{"api"}, now()+1)
		require.Nil(t, wait)
		require.Empty(t, ns.stored(stateCalls))
	})
}

// Of competing edits with conditions one wins, and none is lost.
func TestNodesEditTheSameKey(t *testing.T) {
	clusterBubble(t, 3, func(t *testing.T, ns *nodes) {
		ns.all[0].put("n", "0")
		ns.settle()
		var all sync.WaitGroup
		const each = 5
		for _, r := range ns.all {
			all.Go(func() {
				for done := 0; done < each; {
					text, _ := r.c.Get("n")
					n, err := strconv.Atoi(text)
					require.NoError(t, err)
					_, werr := r.c.ConfigSet(verb(api.VerbConfigSet), "n", api.ConfigSetRequest{Value: strconv.Itoa(n + 1), IfValue: &text})
					if werr == nil {
						done++
						continue
					}
					require.Equal(t, wire.CodeConfigMismatch, werr.ErrCode)
				}
			})
		}
		all.Wait()
		ns.settle()
		for _, r := range ns.all {
			text, _ := r.c.Get("n")
			require.Equal(t, strconv.Itoa(len(ns.all)*each), text)
			require.Len(t, r.trail(), 1+len(ns.all)*each, "no entry has taken the place of another one")
		}
	})
}

// Other nodes may have changed what a refusal or a change to the same value rests on.
func TestNodesDecideOnTheNewest(t *testing.T) {
	clusterBubble(t, 2, func(t *testing.T, ns *nodes) {
		set := func(i int, value string, was ...string) (api.ConfigSetReply, *wire.Error) {
			req := api.ConfigSetRequest{Value: value}
			if was != nil {
				req.IfValue = &was[0]
			}
			return ns.all[i].c.ConfigSet(verb(api.VerbConfigSet), "n", req)
		}
		ns.all[0].put("n", "0")
		ns.settle()
		ns.all[0].put("n", "1")
		r, werr := set(1, "0")
		require.Nil(t, werr)
		require.Equal(t, "1", *r.Previous)
		ns.settle()
		ns.all[0].put("n", "2")
		_, werr = set(1, "3", "2")
		require.Nil(t, werr)
		_, werr = set(0, "4", "2")
		require.Equal(t, wire.CodeConfigMismatch, werr.ErrCode)
		require.Contains(t, werr.Error(), `"3"`)
		ns.settle()
		for _, e := range ns.ends {
			e.cut(true)
		}
		_, werr = set(0, "3")
		require.NotNil(t, werr, "it may be another one by now")
	})
}

// After concurrent changes of all kinds, all nodes have the stored state.
func TestNodesAgree(t *testing.T) {
	clusterBubble(t, 3, func(t *testing.T, ns *nodes) {
		var all sync.WaitGroup
		for i, r := range ns.all {
			all.Go(func() {
				for n := range 60 {
					key := strconv.Itoa(n % 2)
					switch (i*7 + n) % 6 {
					case 0:
						_, _ = r.tryResume(`{"kind":"key","queue":"orders","name":"` + key + `"}`)
					case 1:
						r.c.HoldKey("orders", key, now()+int64(i+1)*1e9)
					case 2:
						r.pause(`{"kind":"key","queue":"orders","name":"` + key + `","for_ms":` + strconv.Itoa(20*(i+1)) + `}`)
					case 3:
						r.set("api", `{"rate":`+strconv.Itoa(n+1)+`,"for_ms":`+strconv.Itoa(30*(i+1))+`}`)
					case 4:
						_, _ = r.tryClear("api")
					default:
						r.put("throttle:api:rate", strconv.Itoa(i*100+n+1))
					}
				}
			})
		}
		all.Wait()
		check := func() {
			t.Helper()
			ns.settle()
			for _, r := range ns.all {
				require.Equal(t, ns.all[0].queues.told(), r.queues.told())
				require.Equal(t, ns.all[0].pauses(), r.pauses())
				require.Len(t, r.pauses(), len(ns.stored(statePause)))
				require.Equal(t, ns.all[0].limits("api"), r.limits("api"))
				require.Equal(t, ns.all[0].trail(), r.trail())
				require.Len(t, r.trail(), len(ns.stored(stateLog)))
			}
		}
		check()
		ns.all[1].pause(`{"kind":"key","queue":"orders","name":"0"}`)
		time.Sleep(time.Minute)
		check()
		require.Len(t, ns.all[0].pauses(), 1)
	})
}

// A change that could not be written is undone.
func TestANodeThatCannotWrite(t *testing.T) {
	clusterBubble(t, 2, func(t *testing.T, ns *nodes) {
		a := ns.all[0]
		a.pause(`{"kind":"queue","name":"orders"}`)
		ns.settle()
		ns.ends[0].cut(true)
		_, err := a.tryPause(`{"kind":"key","queue":"orders","name":"k"}`)
		refused(t, wire.CodeOutcomeUnknown, err)
		_, err = a.tryResume(`{"kind":"queue","name":"orders"}`)
		refused(t, wire.CodeOutcomeUnknown, err)
		_, err = a.c.ConfigSet(verb(api.VerbConfigSet), "k", api.ConfigSetRequest{Value: "v"})
		refused(t, wire.CodeOutcomeUnknown, err)
		_, err = a.trySet("api", `{"rate":7,"for_ms":60000}`)
		refused(t, wire.CodeOutcomeUnknown, err)
		ns.settle()
		for _, r := range ns.all {
			require.Equal(t, map[string]int64{"orders": math.MaxInt64}, r.queues.told())
			require.Len(t, r.pauses(), 1)
			require.Zero(t, r.limits("api").Rate)
			require.Len(t, r.trail(), 1)
		}
	})
}

// The audit log of a cluster keeps its newest entries, too.
func TestAuditOfNodesIsCut(t *testing.T) {
	clusterBubble(t, 2, func(t *testing.T, ns *nodes) {
		for i := range maxAudit/500 + 4 {
			var kept Batch
			changes := make([]change, 500)
			for n := range changes {
				changes[n] = change{key: fmt.Sprint(i, ".", n)}
			}
			r := ns.all[i%2]
			r.c.audit.record(&kept, now(), Actor{By: "test"}, changes...)
			require.NoError(t, <-r.c.opt.KV.Write(kept))
			ns.settle()
		}
		require.Len(t, ns.stored(stateLog), maxAudit)
		require.Equal(t, ns.all[0].trail(), ns.all[1].trail())
		require.Len(t, ns.all[0].trail(), maxAudit)
		require.Contains(t, ns.all[0].trail()[0], " 4.0:")
		for key := range ns.stored(stateLog) {
			seq, err := strconv.ParseUint(strings.TrimPrefix(key, stateLog), 10, 64)
			require.NoError(t, err)
			require.Less(t, seq, uint64(1)<<53, "exact in JSON everywhere")
			break
		}
	})
}

// Tables of the runtime configuration are in force at all nodes, and one of two nodes that edit the same
// owner at once is refused.
func TestTablesAtAllNodes(t *testing.T) {
	clusterBubble(t, 2, func(t *testing.T, ns *nodes) {
		a, b := ns.all[0], ns.all[1]
		edit := func(r *rig, owner string) *wire.Error {
			_, err := r.c.ConfigEdit(verb(api.VerbConfigEdit), api.ConfigEditRequest{
				Set: map[string]*string{"owner:retry_policy:p": &owner, "retry_policy:p": new(`{"initial_delay_ms":7}`)},
				If:  map[string]*string{"owner:retry_policy:p": nil},
			})
			return err
		}
		require.Nil(t, edit(a, "team-a"))
		refused(t, wire.CodeConfigMismatch, edit(b, "team-b"))
		change := func(r *rig, owner string, o ObjectChange) *wire.Error {
			o.Object = "queue:orders"
			_, err := r.c.ChangeObject(Actor{Sender: api.Sender{Owner: owner}}, o, func() *wire.Error { return nil })
			return err
		}
		require.Nil(t, change(b, "team-b", ObjectChange{New: true}))
		refused(t, wire.CodeOwned, change(a, "", ObjectChange{Changes: "quantum 1 -> 2"})) // it has not heard of the owner yet
		require.Nil(t, change(a, "team-b", ObjectChange{Deleted: true}))
		ns.settle()
		require.True(t, b.c.Rules().HasPolicy("p"))
		require.Equal(t, map[string]string{"owner:retry_policy:p": "team-a"}, ns.stored("owner:"))
		drop := api.ConfigEditRequest{Set: map[string]*string{"retry_policy:p": nil, "x": nil}, DryRun: true}
		_, err := b.c.ConfigEdit(verb(api.VerbConfigEdit), drop)
		refused(t, wire.CodeOwned, err)
		dry, err := b.c.ConfigEdit(Actor{Sender: api.Sender{Owner: "team-a"}}, drop)
		require.Nil(t, err)
		require.Equal(t, []api.ConfigChange{{Key: "owner:retry_policy:p", Previous: new("team-a")}, {Key: "retry_policy:p", Previous: new(`{"initial_delay_ms":7}`)}}, dry.Changes)
		require.True(t, a.c.Rules().HasPolicy("p"))
	})
}
