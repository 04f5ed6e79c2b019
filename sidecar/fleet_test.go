package sidecar

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/schemas/schematest"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/e2e/natstest"
	"github.com/filaq/fila/sidecar/fleet"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// sharing is a fila that shares gates, with its own prefix.
type sharing struct {
	*testSite
	prefix string
	events chan wire.Event
}

func startSharing(t *testing.T, url, prefix, dir string, more ...func(*config.Config)) *sharing {
	t.Helper()
	x := &sharing{prefix: prefix, events: make(chan wire.Event, 1000)}
	nc, err := nats.Connect(url)
	require.NoError(t, err)
	_, err = nc.Subscribe(prefix+".event.circuit-changed.>", func(m *nats.Msg) {
		schematest.Published(t, m.Data)
		var e wire.Event
		if json.Unmarshal(m.Data, &e) == nil {
			x.events <- e
		}
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	x.testSite = startSite(t, dir, func(c *config.Config) {
		c.NATS.URL, c.NATS.SubjectPrefix = url, prefix
		c.Shared.Enabled, c.Shared.Instance = true, "host-"+prefix
		c.CircuitDefaults.Threshold, c.CircuitDefaults.CooldownMs = 3, 500
		queue := wire.DefaultQueueSettings("orders")
		queue.CircuitHeader, queue.RetryInitialMs = "Vendor", 0
		c.Queues = []wire.QueueSettings{queue}
		for _, change := range more {
			change(c)
		}
	})
	x.nc = nc
	return x
}

func (x *sharing) info(key string) api.CircuitInfo {
	x.t.Helper()
	var i api.CircuitInfo
	if werr := x.request(x.prefix+".admin.circuit-show."+key, "", nil, &i); werr != nil {
		require.Equal(x.t, wire.CodeCircuitNotFound, werr.ErrCode)
		i.State = "unknown"
	}
	return i
}

// deliver registers a consumer.
func (x *sharing) deliver(to chan *nats.Msg, credit int) {
	x.t.Helper()
	_, err := x.nc.Subscribe(x.prefix+".deliver.w.orders", func(m *nats.Msg) { to <- m })
	require.NoError(x.t, err)
	x.must(x.prefix+".consume.orders", fmt.Sprintf(`{"consumer":"w","max_in_flight":%d}`, credit), nil)
}

// waitGone waits until a circuit is closed or not known any more.
func (x *sharing) waitGone(key string) {
	x.t.Helper()
	require.Eventually(x.t, func() bool { s := x.info(key).State; return s == "closed" || s == "unknown" }, patience, time.Millisecond)
}

func (x *sharing) waitState(key, state string) {
	x.t.Helper()
	require.Eventually(x.t, func() bool { return x.info(key).State == state }, patience, time.Millisecond, state)
}

// TestFilasShareACircuit: failures at one fila block the other, whose probe closes the circuit for both.
func TestFilasShareACircuit(t *testing.T) {
	ns := natstest.Start(t, natstest.JetStream)
	a := startSharing(t, ns.URL, "a", t.TempDir())
	b := startSharing(t, ns.URL, "b", t.TempDir())
	deliveries := make(chan *nats.Msg, 10)
	a.deliver(deliveries, 1)
	b.deliver(deliveries, 1)
	stripe := nats.Header{"Vendor": {"stripe"}}
	require.Nil(t, a.request("a.enqueue.orders", "one", stripe, nil))
	for range 3 {
		require.Nil(t, a.ack(<-deliveries, "-NAK"))
	}
	require.Equal(t, "open", next(t, a.events).Data["new"])
	e := next(t, b.events)
	require.Equal(t, []any{"open", "failures", "host-a", true}, []any{e.Data["new"], e.Data["cause"], e.Data["by"], e.Data["shared"]})
	require.Positive(t, e.Data["version"])
	require.NotEmpty(t, e.Data["changed_at"])
	require.Equal(t, "open", b.info("stripe").State)
	require.Nil(t, b.request("b.enqueue.orders", "two", stripe, nil))
	// Both probe when it is time; the first success closes it.
	m := <-deliveries
	require.Nil(t, a.ack(m, ""))
	m = <-deliveries
	require.Nil(t, a.ack(m, ""))
	a.waitGone("stripe")
	b.waitGone("stripe")
	a.end()
	b.end()
}

// TestByHandAtAnyFila: what an operator does at one fila can be undone at another, also over a restart.
func TestByHandAtAnyFila(t *testing.T) {
	ns := natstest.Start(t, natstest.JetStream)
	dirs := []string{t.TempDir(), t.TempDir()}
	a := startSharing(t, ns.URL, "a", dirs[0])
	b := startSharing(t, ns.URL, "b", dirs[1])
	a.must("a.admin.pause", `{"kind":"circuit","name":"stripe"}`, nil)
	b.waitState("stripe", "open")
	require.Equal(t, []any{"by hand", "host-a", true}, []any{b.info("stripe").Cause, b.info("stripe").By, b.info("stripe").Shared})
	var list api.CircuitList
	b.must("b.admin.circuit-list", "", &list)
	require.Equal(t, 1, list.Total)

	// a is away while b resumes; a does not restore its pause.
	a.end()
	var resumed api.PauseInfo
	b.must("b.admin.resume", `{"kind":"circuit","name":"stripe"}`, &resumed)
	require.Equal(t, "fleet", resumed.By)
	require.Eventually(t, func() bool { return b.info("stripe").State != "open" }, patience, time.Millisecond)
	a = startSharing(t, ns.URL, "a", dirs[0])
	require.NotEqual(t, "open", a.info("stripe").State)
	var pauses api.PauseList
	require.Eventually(t, func() bool { a.must("a.admin.pause-list", "", &pauses); return pauses.Total == 0 }, patience, time.Millisecond)

	// open, close and reset answer when they count everywhere.
	var info api.CircuitInfo
	a.must("a.admin.circuit-open.paypal", `{"for_ms":60000}`, &info)
	require.Equal(t, "open", info.State)
	b.waitState("paypal", "open")
	b.must("b.admin.circuit-reset.paypal", "", &info)
	require.Equal(t, "closed", info.State)
	require.Eventually(t, func() bool { return a.info("paypal").State != "open" }, patience, time.Millisecond)
	a.end()
	b.end()
}

// TestSharedNeedsJetStream: the start fails with a line that says what is missing.
func TestSharedNeedsJetStream(t *testing.T) {
	ns := natstest.Start(t)
	err := failsToStart(t, func(c *config.Config) { c.NATS.URL, c.Shared.Enabled = ns.URL, true })
	require.ErrorIs(t, err, fleet.ErrUnusable)
	require.ErrorContains(t, err, "shared.enabled = true: shared gates need JetStream")
	require.NotContains(t, err.Error(), "\n")
}

// TestFilaGoesOnWithoutTheBucket, which is deleted for good: the fila reports it and delivers.
func TestFilaGoesOnWithoutTheBucket(t *testing.T) {
	t.Parallel()
	ns := natstest.Start(t, natstest.JetStream)
	a := startSharing(t, ns.URL, "a", t.TempDir())
	told, err := a.nc.SubscribeSync("a.event.shared-degraded._")
	require.NoError(t, err)
	require.NoError(t, ns.DisableJetStream())
	nextOf(t, told)
	require.Equal(t, 1, a.log.count("the bucket of shared circuits and limits is unreachable"))
	deliveries := make(chan *nats.Msg, 10)
	a.deliver(deliveries, 1)
	require.Nil(t, a.request("a.enqueue.orders", "one", nats.Header{"Vendor": {"stripe"}}, nil))
	for range 3 {
		require.Nil(t, a.ack(<-deliveries, "-NAK"))
	}
	require.NotEqual(t, "closed", a.info("stripe").State)
	require.True(t, a.info("stripe").Degraded)
	require.Nil(t, a.ack(<-deliveries, "")) // its own probe
	a.waitGone("stripe")
	a.end()
}

// TestDegradedIsPublishedAfterAnOutage of NATS as a whole: the event arrives when NATS is back, with the
// time of the outage, before the event about its end.
func TestDegradedIsPublishedAfterAnOutage(t *testing.T) {
	t.Parallel()
	ns := natstest.Start(t, natstest.JetStream)
	a := startSharing(t, ns.URL, "a", t.TempDir())
	listener, err := nats.Connect(ns.URL, nats.MaxReconnects(-1))
	require.NoError(t, err)
	defer listener.Close()
	told, err := listener.SubscribeSync("a.event.*._")
	require.NoError(t, err)
	require.NoError(t, listener.Flush())
	ns.Stop()
	require.Eventually(t, func() bool { return a.log.count("the bucket of shared circuits and limits is unreachable") == 1 }, patience, time.Millisecond)
	before := time.Now()
	ns.Again()
	for i, typ := range []string{wire.EventSharedDegraded, wire.EventSharedRecovered} {
		var e wire.Event
		m := nextOf(t, told)
		require.NoError(t, json.Unmarshal(m.Data, &e))
		require.Equal(t, typ, e.Type)
		schematest.Published(t, m.Data)
		at, err := time.Parse(time.RFC3339Nano, e.Time)
		require.NoError(t, err)
		require.Equal(t, i == 0, at.Before(before), "it is the time when it happened")
	}
	a.end()
}

// TestSharedWithDocumentedPermissions: fila's role is enough for shared circuits, other roles cannot
// reach their records, and without fila's permissions the start fails.
func TestSharedWithDocumentedPermissions(t *testing.T) {
	g, x := startGuarded(t, withJetStream(t), func(c *config.Config) { c.Shared.Enabled = true })
	operator, producer := g.connect("operator"), g.connect("producer")
	g.request(operator, "fila.admin.circuit-open.stripe", "{}")
	g.request(operator, "fila.admin.circuit-reset.stripe", "{}")
	require.NoError(t, x.s.parts.fleet.Away())
	for _, subject := range []string{"$KV.FILA_GATES.c.c3RyaXBl", "$JS.API.STREAM.DELETE.KV_FILA_GATES", "$JS.API.STREAM.MSG.GET.KV_FILA_GATES", "$JS.API.CONSUMER.CREATE.KV_FILA_GATES.x"} {
		g.cannotPublish(producer, subject, "", "{}")
		g.cannotPublish(operator, subject, "", "{}")
	}
	g.cannotSubscribe(producer, "$KV.>")
	g.cannotPublish(g.connect("fila"), "$JS.API.STREAM.DELETE.KV_FILA_GATES", "", "")
	x.end()
	require.Zero(t, x.log.count("NATS permissions deny"))
}

// TestCommonGuardWithDocumentedPermissions: fila's role is enough for a common guard; a caller reaches
// its key and nothing between filas.
func TestCommonGuardWithDocumentedPermissions(t *testing.T) {
	g, x := startGuarded(t, withJetStream(t), func(c *config.Config) { c.Shared.Enabled, c.Shared.GuardPrefix = true, "acme" })
	caller, fila := g.connect("caller"), g.connect("fila")
	var a api.GuardAnswer
	require.NoError(t, json.Unmarshal(g.request(caller, "acme.guard.check.vendor:stripe", "").Data, &a))
	g.request(caller, "acme.guard.state.vendor:stripe", "")
	issuer := "acme.node.done." + strconv.FormatUint(x.s.parts.guard.Issuer(), 16)
	for _, subject := range []string{"acme.guard.check.vendor:other", "acme.guard.done._", "acme.guard.check._", "acme.node.done.1", issuer} {
		g.cannotPublish(caller, subject, caller.NewInbox(), `{"key":"vendor:other"}`)
	}
	for _, nc := range []*nats.Conn{caller, g.connect("producer"), g.connect("worker-1"), g.connect("operator")} {
		for _, subject := range []string{"acme.>", "acme.guard.>", "acme.node.>", issuer} {
			g.cannotSubscribe(nc, subject)
		}
	}
	for _, nc := range []*nats.Conn{g.connect("producer"), g.connect("worker-1"), g.connect("operator")} {
		g.cannotPublish(nc, "acme.guard.check.vendor:stripe", "", "")
		g.cannotPublish(nc, issuer, "", "")
	}
	g.cannotPublish(fila, "acme.guard.done.vendor:stripe", "", "")

	// A permit of an absent fila, and one of this fila by way of another.
	other, err := wire.NewSigner(make([]byte, wire.SignerKeyLen))
	require.NoError(t, err)
	foreign := string(other.AppendPermit(nil, "x", wire.Token{Seq: 1, Lease: 1}))
	_, werr := g.ask(caller, "acme.guard.done.vendor:stripe", `{"outcome":"ok","permit":"`+foreign+`"}`)
	require.ErrorIs(t, werr, wire.PermitAway("", 0))
	_, werr = g.ask(fila, issuer, `{"key":"vendor:other","outcome":"ok","permit":"`+a.Permit+`"}`)
	require.ErrorIs(t, werr, wire.PermitRefused(""), "the MAC is checked there, too")
	_, werr = g.ask(fila, issuer, `{"key":"vendor:stripe","outcome":"ok","permit":"`+a.Permit+`"}`)
	require.Nil(t, werr)
	require.Zero(t, x.s.parts.guard.Live())
	x.end()
	require.Zero(t, x.log.count("NATS permissions deny"))
}

// TestCommonGuardWithoutPermissions: the log names the missing permissions.
func TestCommonGuardWithoutPermissions(t *testing.T) {
	t.Parallel()
	g, x := startGuarded(t, func(permissions string) string {
		permissions = strings.ReplaceAll(strings.ReplaceAll(permissions, `"acme.node.>", "$SRV.>"`, `"$SRV.>"`), "\"acme.node.>\"\n", "")
		require.NotContains(t, permissions, "acme.node")
		return withJetStream(t)(permissions)
	}, func(c *config.Config) { c.Shared.Enabled, c.Shared.GuardPrefix = true, "acme" })
	require.Eventually(t, func() bool { return x.log.count("NATS permissions deny fila's user a subject that it needs") == 1 }, patience, time.Millisecond)
	foreign := strings.Repeat("A", wire.PermitLen)
	_, werr := g.ask(g.connect("caller"), "acme.guard.done.vendor:stripe", `{"outcome":"ok","permit":"`+foreign+`"}`)
	require.ErrorIs(t, werr, wire.PermitAway("", 0))
	require.Eventually(t, func() bool { return x.log.count("NATS permissions deny fila's user a subject that it needs") == 2 }, patience, time.Millisecond)
	require.Zero(t, x.log.count("NATS permissions deny a reply"))
	x.end()
}

// TestSharedWithoutPermissions: fila reports missing permissions as such, not as an unreachable bucket.
func TestSharedWithoutPermissions(t *testing.T) {
	t.Parallel()
	ns := natstest.Start(t, natstest.JetStream, func(o *server.Options) {
		o.Users = []*server.User{{Username: "fila", Password: "secret", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{"$JS.>", "$KV.>"}},
		}}}
	})
	err := failsToStart(t, func(c *config.Config) {
		c.NATS.URL, c.NATS.User, c.NATS.Password, c.Shared.Enabled = ns.URL, "fila", "secret", true
	})
	require.ErrorIs(t, err, fleet.ErrUnusable)
	require.True(t, strings.Contains(err.Error(), "docs/security.md"), err)
}

// commonGuard configures a common guard.
func commonGuard(c *config.Config) { c.Shared.GuardPrefix = "acme" }

// permits asks for calls until each fila has issued some permits.
func permits(t *testing.T, key string, filas ...*sharing) map[string]*sharing {
	t.Helper()
	by := make(map[uint64]*sharing)
	for _, x := range filas {
		by[x.s.parts.guard.Issuer()] = x
	}
	given, seen := make(map[string]*sharing), make(map[*sharing]bool)
	for range 1000 {
		var a api.GuardAnswer
		filas[0].must("acme.guard.check."+key, `{"caller":"me","ttl_ms":600000}`, &a)
		require.True(t, a.Allowed)
		issuer, err := wire.LeaseOf(a.Permit)
		require.NoError(t, err)
		require.NotNil(t, by[issuer])
		given[a.Permit] = by[issuer]
		seen[by[issuer]] = true
		if len(given) >= 20 && len(seen) == len(filas) {
			return given
		}
	}
	require.Fail(t, "one of them is never asked")
	return nil
}

// TestOneGuardOfTwoFilas: checks and outcomes may go to either fila, and each call counts once, at the
// fila that issued its permit.
func TestOneGuardOfTwoFilas(t *testing.T) {
	ns := natstest.Start(t, natstest.JetStream)
	a := startSharing(t, ns.URL, "a", t.TempDir(), commonGuard)
	b := startSharing(t, ns.URL, "acme.b", t.TempDir(), commonGuard)
	live := func() int { return a.s.parts.guard.Live() + b.s.parts.guard.Live() }
	done := func(key, permit, more string) (v api.GuardVerdict, werr *wire.Error) {
		werr = a.request("acme.guard.done."+key, `{"caller":"me","permit":"`+permit+`",`+more+`}`, nil, &v)
		return v, werr
	}
	given := permits(t, "v", a, b)
	require.Equal(t, len(given), live())
	for permit, issuer := range given {
		before, all := issuer.s.parts.guard.Live(), live()
		require.ErrorIs(t, a.request("acme.guard.done.v", `{"caller":"you","permit":"`+permit+`","outcome":"ok"}`, nil, nil), wire.PermitRefused("v"))
		require.ErrorIs(t, a.request("acme.guard.done.w", `{"caller":"me","permit":"`+permit+`","outcome":"ok"}`, nil, nil), wire.PermitRefused("w"))
		for i := range 4 {
			v, werr := done("v", permit, `"outcome":"ok"`)
			require.Nil(t, werr)
			require.Equal(t, i > 0, v.Duplicate)
		}
		require.Equal(t, []int{before - 1, all - 1}, []int{issuer.s.parts.guard.Live(), live()})
	}

	// Any key, errors, and rule decisions work.
	var odd api.GuardAnswer
	a.must("acme.guard.check._", `{"key":"a \\x5cx41","caller":"me"}`, &odd)
	v, werr := done("_", odd.Permit, `"key":"a \\x5cx41","outcome":"error","error_code":"503","retry_after_ms":600000`)
	require.Nil(t, werr)
	require.Equal(t, "medium", v.Severity)
	require.True(t, v.Retry)

	// Shared state is the same at any fila.
	a.must("a.admin.throttle-set.v", `{"concurrency":100}`, nil)
	given = permits(t, "v", a, b)
	for permit := range given {
		_, werr := done("v", permit, `"outcome":"error","error":"down"`)
		require.Nil(t, werr)
	}
	a.waitState("v", "open")
	require.Eventually(t, func() bool {
		var i api.CircuitInfo
		return b.request("acme.b.admin.circuit-show.v", "", nil, &i) == nil && i.State == "open"
	}, patience, time.Millisecond)
	a.must("a.admin.circuit-open.v", `{"for_ms":3600000}`, nil)
	b.waitState("v", "open")
	for range 20 {
		var st api.GuardStatus
		a.must("acme.guard.state.v", "", &st)
		require.Equal(t, "circuit", st.Answer.Gate)
		require.Empty(t, st.Limits, "limits of one fila alone")
		require.True(t, st.Circuit.Shared)
	}
	var own api.GuardStatus
	a.must("a.guard.state.v", "", &own)
	require.NotEmpty(t, own.Limits)

	// Prefixes that overlap.
	for want, change := range map[string]func(*config.Config){
		`nats.subject_prefix = "acme": the fila host-a`:                                                         func(c *config.Config) { c.NATS.SubjectPrefix = "acme" },
		`shared.guard_prefix = "a": it would use subjects of the fila host-a, whose nats.subject_prefix is "a"`: func(c *config.Config) { c.NATS.SubjectPrefix, c.Shared.GuardPrefix = "c", "a" },
	} {
		require.ErrorContains(t, failsToStart(t, func(c *config.Config) {
			c.NATS.URL, c.Shared.Enabled = ns.URL, true
			change(c)
		}), want)
	}

	a.s.Kill()
	a.end()
	b.s.Kill()
	b.end()
}

// TestStateOfSharedLimits shows what all filas have used, at any fila, and nothing for a local key.
func TestStateOfSharedLimits(t *testing.T) {
	t.Parallel()
	ns := natstest.Start(t, natstest.JetStream)
	limited := func(c *config.Config) {
		commonGuard(c)
		c.Shared.Keys = []string{"throttle:tenant:*"}
		c.Throttles = []config.ThrottleTable{
			{Key: "tenant:*", Limit: 500, WindowMs: 3_600_000, Concurrency: 100},
			{Key: "local", Limit: 500, WindowMs: 3_600_000},
		}
	}
	a := startSharing(t, ns.URL, "a", t.TempDir(), limited)
	b := startSharing(t, ns.URL, "b", t.TempDir(), limited)
	calls := 0
	seen := make(map[uint64]bool)
	require.Eventually(t, func() bool {
		var answer api.GuardAnswer
		a.must("acme.guard.check.tenant:x", `{"caller":"me","ttl_ms":600000}`, &answer)
		if answer.Allowed {
			issuer, err := wire.LeaseOf(answer.Permit)
			require.NoError(t, err)
			seen[issuer] = true
			calls++
		}
		return calls >= 10 && len(seen) == 2 || calls >= 50
	}, patience, time.Millisecond)
	require.Len(t, seen, 2, "one of them is never asked")
	require.Eventually(t, func() bool { // unused leases are given back
		for range 20 {
			var st api.GuardStatus
			a.must("acme.guard.state.tenant:x", "", &st)
			require.Len(t, st.Limits, 2)
			window, places := st.Limits[0], st.Limits[1]
			require.Equal(t, []int64{500, 100}, []int64{window.Limit, places.Limit})
			if window.Remaining != int64(500-calls) || places.Remaining != int64(100-calls) {
				return false
			}
		}
		return true
	}, patience, 10*time.Millisecond)
	var st api.GuardStatus
	a.must("acme.guard.state.local", "", &st)
	require.Empty(t, st.Limits)
	a.s.Kill()
	a.end()
	b.s.Kill()
	b.end()
}

// TestAStopLeavesTheGuard: a stopping fila is not asked any more, and waits for calls that it allowed,
// whose outcomes other filas forward.
func TestAStopLeavesTheGuard(t *testing.T) {
	ns := natstest.Start(t, natstest.JetStream)
	a := startSharing(t, ns.URL, "a", t.TempDir(), commonGuard)
	b := startSharing(t, ns.URL, "b", t.TempDir(), commonGuard, func(c *config.Config) { c.DrainTimeoutMs = 3_600_000 })
	given := permits(t, "v", a, b)
	b.stop()
	require.Eventually(t, func() bool { return b.log.count("waiting for leases") == 1 }, patience, time.Millisecond)
	require.NoError(t, b.s.endpoints.nc.Flush()) // it has left when the server knows
	for range 100 {
		var c api.GuardAnswer
		a.must("acme.guard.check.v", `{"caller":"me"}`, &c)
		issuer, err := wire.LeaseOf(c.Permit)
		require.NoError(t, err)
		require.Equal(t, a.s.parts.guard.Issuer(), issuer)
		a.must("acme.guard.done.v", `{"caller":"me","outcome":"ok","permit":"`+c.Permit+`"}`, nil)
	}
	for permit := range given {
		a.must("acme.guard.done.v", `{"caller":"me","outcome":"ok","permit":"`+permit+`"}`, nil)
	}
	<-b.ended
	require.NoError(t, b.err)
	b.nc.Close()
	a.end()
}

// TestFilasShareAConcurrencyLimit: two filas have two messages in flight together, and finish all.
func TestFilasShareAConcurrencyLimit(t *testing.T) {
	t.Parallel()
	ns := natstest.Start(t, natstest.JetStream)
	limited := func(c *config.Config) {
		c.Shared.Keys = []string{"throttle:vendor:*"}
		c.Throttles = []config.ThrottleTable{{Key: "vendor:*", Concurrency: 2}}
		c.Queues[0].ThrottleHeaders = []string{"Gate"}
	}
	a := startSharing(t, ns.URL, "a", t.TempDir(), limited)
	b := startSharing(t, ns.URL, "b", t.TempDir(), limited)
	const each = 10
	deliveries := make(chan *nats.Msg, 2*each)
	for _, x := range []*sharing{a, b} {
		for range each {
			require.Nil(t, x.request(x.prefix+".enqueue.orders", "one", nats.Header{"Gate": {"vendor:x"}}, nil))
		}
		x.deliver(deliveries, 10)
	}
	var flying []*nats.Msg
	for range 2 * each {
		flying = append(flying, next(t, deliveries))
		require.LessOrEqual(t, len(flying)+len(deliveries), 2)
		if len(flying) == 2 {
			m := flying[0]
			flying = flying[1:]
			require.Nil(t, a.ack(m, ""))
		}
	}
	require.Nil(t, a.ack(flying[0], ""))
	a.end()
	b.end()
}

// TestRestartOfTheOnlyUserOfALimit: the stop leaves the used part in the bucket, so exactly the rest of
// a daily window can be used afterwards.
func TestRestartOfTheOnlyUserOfALimit(t *testing.T) {
	ns := natstest.Start(t, natstest.JetStream)
	dir := t.TempDir()
	deliveries := make(chan *nats.Msg, 100)
	start := func() *sharing {
		x := startSharing(t, ns.URL, "a", dir, func(c *config.Config) {
			c.Shared.Keys = []string{"throttle:*"}
			c.Throttles = []config.ThrottleTable{{Key: "daily", Limit: 5, WindowMs: 24 * 3600 * 1000}}
			c.Queues[0].ThrottleHeaders = []string{"Gate"}
		})
		x.deliver(deliveries, 10)
		return x
	}
	send := func(x *sharing, n int) {
		for range n {
			require.Nil(t, x.request("a.enqueue.orders", "one", nats.Header{"Gate": {"daily"}}, nil))
		}
	}
	receive := func(x *sharing, n int) {
		for range n {
			require.Nil(t, x.ack(next(t, deliveries), ""))
		}
	}
	x := start()
	send(x, 3)
	receive(x, 3)
	x.end()
	x = start()
	send(x, 4)
	receive(x, 2)
	x.end()
	x = start()
	var i api.ThrottleInfo
	require.Eventually(t, func() bool {
		x.must("a.admin.throttle-show.daily", "", &i)
		return i.WaitingMessages == 2 && i.State == "window"
	}, patience, time.Millisecond)
	require.Empty(t, deliveries)
	x.end()
}

// TestSharedCircuitLimitsThatDiffer: the limits of the file that was changed last are in force at both
// filas, also after a restart of the other one, which reports that.
func TestSharedCircuitLimitsThatDiffer(t *testing.T) {
	ns := natstest.Start(t, natstest.JetStream)
	threshold := func(n int64) func(*config.Config) {
		return func(c *config.Config) {
			c.CircuitDefaults.Threshold, c.CircuitDefaults.CooldownMs = n, 3_600_000
		}
	}
	dir := t.TempDir()
	a := startSharing(t, ns.URL, "a", dir, threshold(4))
	b := startSharing(t, ns.URL, "b", t.TempDir(), threshold(6))
	conflicts := make(chan wire.Event, 10)
	_, err := a.nc.Subscribe("a.event.shared-conflict.>", func(m *nats.Msg) {
		schematest.Published(t, m.Data)
		var e wire.Event
		if json.Unmarshal(m.Data, &e) == nil {
			conflicts <- e
		}
	})
	require.NoError(t, err)
	require.NoError(t, a.nc.Flush())
	a.must("a.admin.circuit-open.stripe", `{}`, nil)
	e := <-conflicts
	require.Equal(t, []any{"stripe", "circuit", "host-b"}, []any{e.Key, e.Data["kind"], e.Data["by"]})
	require.Contains(t, e.Data["limits"], "threshold 6,")
	require.Contains(t, e.Data["own"], "threshold 4,")
	for restarted := range 2 {
		require.Eventually(t, func() bool {
			i := a.info("stripe")
			return i.Threshold == 6 && i.Own != nil && i.Own.Threshold == 4 && i.LimitsBy == "host-b"
		}, patience, time.Millisecond, "restarts: %d", restarted)
		require.Equal(t, 6, b.info("stripe").Threshold)
		require.Nil(t, b.info("stripe").Own)
		if restarted == 0 {
			a.end()
			a = startSharing(t, ns.URL, "a", dir, threshold(4))
		}
	}
	a.end()
	a = startSharing(t, ns.URL, "a", dir, threshold(5))
	require.Eventually(t, func() bool { return b.info("stripe").Threshold == 5 }, patience, time.Millisecond, "a file that was changed")
	require.Nil(t, a.info("stripe").Own)
	a.end()
	b.end()
}
