//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// fleet is several filas with their own prefixes and queues that share circuits in a bucket.
type fleet struct {
	t     testing.TB
	nc    *nats.Conn
	procs []*proc
}

const fleetQueues = 4

func fleetPrefix(i int) string { return fmt.Sprintf("f%d", i) }

// fleetOptions are the settings of a fleet.
type fleetOptions struct {
	nats   string             // URL of NATS, for the test
	url    func(i int) string // for fila i; nil: the same
	shared string             // further TOML of [shared]
	limits string             // TOML of [circuit_defaults]
	queue  string             // further TOML of each [[queue]]
	tail   string             // further TOML tables
}

// startFleet starts n filas on one NATS server, with the limits of a [circuit_defaults] table.
func startFleet(t *testing.T, n int, limits string) *fleet {
	t.Helper()
	return startFleetOn(t, n, fleetOptions{nats: natstest.Start(t, natstest.JetStream).URL, limits: limits})
}

// startFleetOn starts n filas.
func startFleetOn(t *testing.T, n int, o fleetOptions) *fleet {
	t.Helper()
	if o.url == nil {
		o.url = func(int) string { return o.nats }
	}
	f := &fleet{t: t}
	var err error
	// The client leaves a frozen server within seconds.
	f.nc, err = nats.Connect(o.nats, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.PingInterval(2*time.Second))
	require.NoError(t, err)
	t.Cleanup(f.nc.Close)
	var queues strings.Builder
	for q := range fleetQueues {
		fmt.Fprintf(&queues, "[[queue]]\nname = \"q%d\"\ncircuit_header = \"Vendor\"\nretry_initial_ms = 0\n%s\n", q, o.queue)
	}
	for i := range n {
		p := newFila(t, options{
			natsURL: o.url(i), nats: fmt.Sprintf("subject_prefix = %q", fleetPrefix(i)),
			tail: fmt.Sprintf("[shared]\nenabled = true\ninstance = \"fila-%d\"\n%s\n[circuit_defaults]\n%s\n%s\n%s", i, o.shared, o.limits, queues.String(), o.tail),
		})
		require.NoError(t, p.start())
		f.procs = append(f.procs, p)
	}
	for _, p := range f.procs {
		require.NoError(t, p.waitReady(), p.log)
	}
	return f
}

// deliveries registers a consumer of a queue of fila i.
func (f *fleet) deliveries(i, queue int, handle func(*nats.Msg)) {
	f.t.Helper()
	prefix := fleetPrefix(i)
	_, err := f.nc.Subscribe(fmt.Sprintf("%s.deliver.w.q%d", prefix, queue), handle)
	require.NoError(f.t, err)
	f.register(i, queue)
}

const registration = `{"consumer":"w","max_in_flight":1000,"ttl_ms":600000}`

func (f *fleet) register(i, queue int) {
	f.t.Helper()
	_, err := f.nc.Request(fmt.Sprintf("%s.consume.q%d", fleetPrefix(i), queue), []byte(registration), patience)
	require.NoError(f.t, err)
}

func (f *fleet) enqueue(i, queue int, vendor string) {
	f.t.Helper()
	m := &nats.Msg{Subject: fmt.Sprintf("%s.enqueue.q%d", fleetPrefix(i), queue), Header: nats.Header{"Vendor": {vendor}}, Data: []byte("x")}
	r, err := f.nc.RequestMsg(m, patience)
	require.NoError(f.t, err)
	require.Empty(f.t, r.Header.Get("Nats-Service-Error"), r.Data)
}

// fleetCircuit is the reply of circuit-show.
type fleetCircuit struct {
	State               string `json:"state"`
	ConsecutiveFailures int    `json:"consecutive_failures"`
	Shared              bool   `json:"shared"`
}

// circuit returns the state of a circuit at fila i.
func (f *fleet) circuit(i int, key string) (info fleetCircuit) {
	f.t.Helper()
	r, err := f.nc.Request(fleetPrefix(i)+".admin.circuit-show."+key, nil, patience)
	require.NoError(f.t, err)
	_ = json.Unmarshal(r.Data, &info)
	return info
}

// nackFor outlasts the test.
const nackFor = `-NAK {"delay": 3600000000000}`

// opening is an opening that a fila announces.
type opening struct {
	fila    int
	version uint64
	by      string
	at      time.Time // when the test received it
}

// race sends failures of each of n circuits to all filas at once, one circuit after the other.
// It returns when the failures of each circuit began, and the announced openings.
func (f *fleet) race(circuits, failures int) (begun map[string]time.Time, openings map[string][]opening) {
	t, filas := f.t, len(f.procs)
	t.Helper()
	begun, openings = make(map[string]time.Time), make(map[string][]opening)
	var mu sync.Mutex
	events, err := f.nc.Subscribe("*.event.circuit-changed.>", func(m *nats.Msg) {
		at := time.Now()
		var e struct {
			Key  string
			Data struct {
				New, By string
				Version uint64
			}
		}
		if json.Unmarshal(m.Data, &e) != nil || e.Data.New != "open" {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		openings[e.Key] = append(openings[e.Key], opening{int(m.Subject[1] - '0'), e.Data.Version, e.Data.By, at})
	})
	require.NoError(t, err)
	replies := make(map[string][]string)
	for i := range filas {
		f.deliveries(i, 0, func(m *nats.Msg) {
			mu.Lock()
			defer mu.Unlock()
			replies[m.Header.Get("Vendor")] = append(replies[m.Header.Get("Vendor")], m.Reply)
		})
	}
	for c := range circuits {
		for j := range failures {
			f.enqueue((c+j)%filas, 0, fmt.Sprint("v", c))
		}
	}
	eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		n := 0
		for _, all := range replies {
			n += len(all)
		}
		return n == circuits*failures
	}, "all are delivered")
	for c := range circuits {
		key := fmt.Sprint("v", c)
		begun[key] = time.Now()
		for _, reply := range replies[key] {
			require.NoError(t, f.nc.Publish(reply, []byte(nackFor)))
		}
		eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(openings[key]) == filas
		}, "all filas tell the opening")
	}
	// Failures after the threshold change nothing more.
	for i := range filas {
		for c := range circuits {
			info := f.circuit(i, fmt.Sprint("v", c))
			require.Equal(t, "open", info.State)
			require.True(t, info.Shared)
		}
	}
	require.NoError(t, f.nc.Flush())
	require.NoError(t, events.Unsubscribe())
	mu.Lock()
	defer mu.Unlock()
	return begun, maps.Clone(openings)
}

// TestFleetOpensEachCircuitOnce: for each circuit six failures with a threshold of five arrive
// at four filas at once. Each circuit opens once, and all filas announce the same opening.
func TestFleetOpensEachCircuitOnce(t *testing.T) {
	const circuits, failures, filas = 60, 6, 4
	f := startFleet(t, filas, "threshold = 5\ncooldown_ms = 600000")
	_, openings := f.race(circuits, failures)
	require.Len(t, openings, circuits)
	for key, all := range openings {
		require.Len(t, all, filas, key)
		for i, o := range all {
			require.Equal(t, all[0].version, o.version, key)
			require.Equal(t, all[0].by, o.by, key)
			require.False(t, slices.ContainsFunc(all[:i], func(p opening) bool { return p.fila == o.fila }), "%s was announced twice", key)
		}
	}
}

// fail makes each fila report failures of one circuit, rate a second (0: as fast as possible),
// and waits until every failure counts, none twice.
func (f *fleet) fail(each, rate int) {
	t, filas := f.t, len(f.procs)
	t.Helper()
	for i := range filas {
		f.deliveries(i, 0, func(m *nats.Msg) { _ = f.nc.Publish(m.Reply, []byte(nackFor)) })
	}
	begin := time.Now()
	for n := range each {
		if rate > 0 {
			<-time.After(time.Until(begin.Add(time.Duration(n) * time.Second / time.Duration(rate))))
		}
		for i := range filas {
			m := &nats.Msg{Subject: fleetPrefix(i) + ".enqueue.q0", Header: nats.Header{"Vendor": {"stripe"}}}
			require.NoError(t, f.nc.PublishMsg(m))
		}
	}
	sent := time.Since(begin)
	for i := range filas {
		eventually(t, func() bool { return f.circuit(i, "stripe").ConsecutiveFailures >= filas*each })
	}
	t.Logf("%d failures, sent in %v, were counted everywhere %v later", filas*each, sent, time.Since(begin)-sent)
	for i := range filas {
		require.Equal(t, filas*each, f.circuit(i, "stripe").ConsecutiveFailures)
	}
}

// TestFleetCountsEachFailure: four filas report failures of one circuit as fast as they can;
// none is lost, none counts twice.
func TestFleetCountsEachFailure(t *testing.T) {
	f := startFleet(t, 4, "threshold = 1000000")
	f.fail(10_000, 0)
}

// TestTwoFilasOnOneLaptop: one fila embeds the NATS server with JetStream, and another one uses
// it. The first one restarts.
func TestTwoFilasOnOneLaptop(t *testing.T) {
	const queue = "[[queue]]\nname = \"q0\"\ncircuit_header = \"Vendor\"\nretry_initial_ms = 0\n"
	const limits = "[circuit_defaults]\nthreshold = 2\ncooldown_ms = 600000\n" + queue
	first := startFila(t, options{nats: `subject_prefix = "f0"`, embedded: "jetstream = true", tail: "[shared]\nenabled = true\ninstance = \"first\"\n" + limits})
	second := startFila(t, options{
		natsURL: first.URL, nats: `subject_prefix = "f1"`, tail: "[shared]\nenabled = true\ninstance = \"second\"\n" + limits,
	})
	nc, err := nats.Connect(first.URL, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	require.NoError(t, err)
	defer nc.Close()
	f := &fleet{t: t, nc: nc, procs: []*proc{first, second}}
	for i := range 2 {
		f.deliveries(i, 0, func(m *nats.Msg) { _ = nc.Publish(m.Reply, []byte(nackFor)) })
		f.enqueue(i, 0, "stripe")
	}
	for i := range 2 {
		eventually(t, func() bool { return f.circuit(i, "stripe").State == "open" })
	}
	first.Restart(t)
	for i := range 2 {
		eventually(t, func() bool {
			r, err := nc.Request(fleetPrefix(i)+".admin.circuit-show.stripe", nil, time.Second)
			return err == nil && strings.Contains(string(r.Data), `"state":"open"`) && strings.Contains(string(r.Data), `"shared":true`) && !strings.Contains(string(r.Data), `"degraded"`)
		}, "they share it again")
	}
	open := nats.NewMsg("f1.admin.circuit-open.stripe")
	open.Header.Set("Fila-Client", "alice")
	_, err = nc.RequestMsg(open, patience)
	require.NoError(t, err)
	eventually(t, func() bool {
		r, err := nc.Request("f0.admin.circuit-show.stripe", nil, patience)
		return err == nil && strings.Contains(string(r.Data), `"opened_by_client":"alice"`) && strings.Contains(string(r.Data), `"opened_by":"second"`)
	}, "everybody sees who has opened it")
	r, err := nc.Request("f1.admin.circuit-reset.stripe", nil, patience)
	require.NoError(t, err)
	require.Contains(t, string(r.Data), `"state":"closed"`)
	eventually(t, func() bool { return f.circuit(0, "stripe").State != "open" })
}
