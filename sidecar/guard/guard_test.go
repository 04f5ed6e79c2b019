package guard

import (
	"errors"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/schemas/schematest"
	"github.com/filaq/fila/sidecar/circuit"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/fleet"
	"github.com/filaq/fila/sidecar/fleet/fleettest"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/adapt"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// rig is a guard with gates and circuits of its own. Its clock is the clock of the bubble.
type rig struct {
	*Service
	t        *testing.T
	gates    *throttle.Gates
	circuits *circuit.Registry
	rules    *rules.Rules
	tables   []config.GuardTable
	fails    []config.CircuitTable // whose permits fail if they end by themselves
	payload  int64
	keep     func(keys []string, until int64) (onDisk func() *wire.Error)
	kept     atomic.Int64 // calls of Keep that have not ended
	checked  atomic.Int64 // by the metrics
	log      strings.Builder

	metrics    sync.Mutex // guards what follows
	reachedCap []string
	ended      map[string]int64

	told     sync.Mutex   // guards what follows
	events   []wire.Event // with the tail of the subject in their data
	failures []string     // severities, by the metrics
}

// GuardChecked, GuardTook and GuardEnded make it the metrics of its guard.
func (r *rig) GuardChecked(string)               { r.checked.Add(1) }
func (r *rig) GuardTook(int64, wire.TraceParent) {}

func (r *rig) GuardEnded(how string, n int64) {
	r.metrics.Lock()
	defer r.metrics.Unlock()
	r.ended[how] += n
}

func (r *rig) GuardCapped(limit string) {
	r.metrics.Lock()
	defer r.metrics.Unlock()
	r.reachedCap = append(r.reachedCap, limit)
}

func (r *rig) GuardFailed(severity string) {
	r.told.Lock()
	defer r.told.Unlock()
	r.failures = append(r.failures, severity)
}

func newRig(t *testing.T) *rig { return newSharedRig(t, nil) }

// bubble runs fn on a rig in a bubble of its own.
func bubble(t *testing.T, fn func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { fn(t, newRig(t)) })
}

// newSharedRig is newRig with shared circuits, unless f is nil.
func newSharedRig(t *testing.T, f circuit.Fleet) *rig {
	t.Helper()
	now := func() int64 { return time.Now().UnixNano() }
	r := &rig{t: t, ended: make(map[string]int64), gates: throttle.New(throttle.Start{}, now()), payload: 1 << 20, keep: func([]string, int64) func() *wire.Error { return nil }}
	circuits := circuit.Options{
		Log: slog.New(slog.DiscardHandler), Now: now,
		Event:  func(string, string, wire.Event) {},
		Submit: func(b *store.Batch) { b.Done(nil) },
		Shares: func(string) bool { return true },
	}
	if f != nil {
		circuits.Fleet = f
	}
	r.circuits = circuit.New(circuits)
	signer, err := wire.NewSigner(make([]byte, wire.SignerKeyLen))
	require.NoError(t, err)
	r.Service = New(Options{
		Now: now, Gates: r.gates, Circuits: r.circuits, Rules: func() *rules.Rules { return r.rules },
		Tables: func() []config.GuardTable { return r.tables },
		ExpiredFails: func(key string) bool {
			return (&config.Config{Guards: r.tables, Circuits: r.fails}).ExpiredFails(key)
		},
		Notify: func([]*throttle.Wait) {}, Signer: signer,
		Keep: func(keys []string, until int64) (func(), func() *wire.Error) {
			r.kept.Add(1)
			return func() { r.kept.Add(-1) }, r.keep(keys, until)
		},
		Metrics: r, MaxPayload: func() int64 { return r.payload },
		SharesLimits: func(string) bool { return false },
		Log:          slog.New(slog.NewTextHandler(&r.log, nil)),
		Event: func(typ, tail string, e wire.Event) {
			schematest.Event(r.t, typ, e)
			e.Type = typ
			e.Data["tail"] = tail
			r.told.Lock()
			defer r.told.Unlock()
			r.events = append(r.events, e)
		},
	})
	t.Cleanup(func() { r.Stop() })
	return r
}

func (r *rig) limit(key string, l throttle.Limits) {
	r.t.Helper()
	_, err := r.gates.SetLimits(key, l, time.Now().UnixNano(), nil)
	require.NoError(r.t, err)
}

func rate(t *testing.T, text string) throttle.Rate {
	t.Helper()
	rate, err := throttle.ParseRate(text)
	require.NoError(t, err)
	return rate
}

func (r *rig) circuit(s circuit.Settings) { r.circuits.Configure(s, nil, nil) }

// Check decides about calls, and waits for leases and the disk where necessary.
func (r *rig) Check(caller string, asks ...api.GuardAsk) ([]api.GuardAnswer, *wire.Error) {
	from := origin{caller: caller}
	d, err := r.decide(from, asks)
	if err == nil && d.missing != "" {
		d, err = r.retryWithLeases(d, from, asks)
	}
	if err == nil {
		err = r.awaitDisk(d)
	}
	if err != nil {
		return nil, err
	}
	r.count(d, wire.TraceParent{})
	return d.answers, nil
}

func (r *rig) State(key, caller string) api.GuardStatus {
	return r.state(key, origin{caller: caller}, false)
}

func (r *rig) SharedState(key, caller string) api.GuardStatus {
	return r.state(key, origin{caller: caller}, true)
}

// ask checks a call with the defaults of a request.
func (r *rig) ask(key string, with ...string) api.GuardAnswer {
	r.t.Helper()
	a, err := r.Check("me", api.GuardAsk{Key: key, With: with, Cost: 1, TTLMs: api.DefaultPermitMs})
	require.Nil(r.t, err)
	return a[0]
}

func (r *rig) allowed(key string, with ...string) string {
	r.t.Helper()
	a := r.ask(key, with...)
	require.True(r.t, a.Allowed, "refused by %s %s", a.Gate, a.Key)
	require.Len(r.t, a.Permit, wire.PermitLen)
	return a.Permit
}

func (r *rig) done(key, permit, outcome string) api.GuardVerdict {
	r.t.Helper()
	v, err := r.Done(&api.GuardDoneRequest{Key: key, Permit: permit, Caller: "me", Outcome: outcome, Attempt: 1})
	require.Nil(r.t, err)
	return v
}

func TestAllKeysOrNone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.limit("vendor:a", throttle.Limits{Concurrency: 2})
		r.limit("tenant:x", throttle.Limits{Limit: 1, Window: int64(time.Minute)})
		r.allowed("vendor:a", "tenant:x")
		a := r.ask("vendor:a", "tenant:x")
		require.False(t, a.Allowed)
		require.Equal(t, "window", a.Gate)
		require.Equal(t, "tenant:x", a.Key)
		require.Equal(t, int64(60_000), a.RetryAfterMs)
		require.Equal(t, &api.GuardLimit{
			Key: "tenant:x", Gate: "window", Limit: 1, Remaining: 0, ResetS: 60, ResetEpoch: time.Now().Unix() + 60, WindowMs: 60_000,
		}, a.Limit)
		// Nothing was taken of the vendor for the call that was refused.
		r.allowed("vendor:a", "tenant:y")
		a = r.ask("vendor:a", "tenant:z")
		require.Equal(t, "concurrency", a.Gate)
		require.Equal(t, 2, r.Live())
		require.Equal(t, 2, r.State("vendor:a", "me").Permits)
	})
}

// A done corrects what the call took of buckets. A repeated done corrects nothing, and the end of a
// permit by time leaves the estimate.
func TestCorrectedCosts(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bucket := throttle.Limits{Rate: rate(t, "1"), Burst: 10 * throttle.One}
		left := func(key string) int64 {
			g, _ := r.gates.Find(key)
			return g.Info(time.Now().UnixNano()).Tokens
		}
		of := func(n float64) *float64 { return &n }
		for name, c := range map[string]struct {
			outcome string
			cost    *float64
			tokens  int64 // of both keys, after the done
		}{
			"none":      {api.GuardOK, nil, 6000},
			"more":      {api.GuardOK, of(7.5), 2500},
			"too much":  {api.GuardOK, of(30), -20_000},
			"less":      {api.GuardOK, of(1), 9000},
			"nothing":   {api.GuardOK, of(0), 9999},
			"a failure": {api.GuardError, of(0.5), 9500},
		} {
			v, tenant := "v"+name, "t"+name
			r.limit(v, bucket)
			r.limit(tenant, bucket)
			a, err := r.Check("me", api.GuardAsk{Key: v, With: []string{tenant}, Cost: 4, TTLMs: 60_000})
			require.Nil(t, err)
			done := &api.GuardDoneRequest{Key: v, Permit: a[0].Permit, Caller: "me", Outcome: c.outcome, Attempt: 1, Cost: c.cost}
			for _, again := range []bool{false, true} {
				verdict, err := r.Done(done)
				require.Nil(t, err, name)
				require.Equal(t, again, verdict.Duplicate)
				require.Equal(t, c.tokens, left(v), name)
				require.Equal(t, c.tokens, left(tenant), name)
			}
		}
		require.False(t, r.ask("vtoo much").Allowed)
		time.Sleep(20 * time.Second)
		require.False(t, r.ask("vtoo much").Allowed)
		time.Sleep(time.Second)
		require.True(t, r.ask("vtoo much").Allowed)
	})
}

func TestAPermitEndsByItself(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.circuit(circuit.Settings{Breaker: breaker.Config{Threshold: 1, Cooldown: time.Minute, HalfOpenMaxCalls: 1}})
		r.limit("v", throttle.Limits{Concurrency: 1})
		permit := r.allowed("v")
		time.Sleep(api.DefaultPermitMs * time.Millisecond)
		synctest.Wait()
		require.Zero(t, r.Live(), "nobody asked, but the time is over")
		st := r.State("v", "me")
		require.Equal(t, int64(1), st.Limits[0].Remaining, "its place is free")
		require.Equal(t, "closed", r.circuitState("v"), "nobody knows whether the call was made")
		_, err := r.Done(&api.GuardDoneRequest{Key: "v", Permit: permit, Caller: "me", Outcome: api.GuardOK, Attempt: 1})
		require.ErrorIs(t, err, wire.PermitNotFound("v"))
	})
}

// A table can make an expired permit a failure.
func TestAPermitThatEndsByItselfIsAFailureWhereATableSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.circuit(circuit.Settings{Breaker: breaker.Config{Threshold: 1, Cooldown: time.Minute, HalfOpenMaxCalls: 1}})
		r.tables = []config.GuardTable{{Key: "vendor:*", Expired: config.ExpiredFailure}}
		r.fails = []config.CircuitTable{{Key: "hangs", Expired: config.ExpiredFailure}, {Key: "vendor:slow", Expired: config.ExpiredNeutral}}
		want := map[string]string{"vendor:a": "open", "vendor:slow": "closed", "hangs": "open", "other": "closed"}
		for key := range want {
			r.allowed(key, "tenant:x") // such a table says nothing of further keys
		}
		time.Sleep(api.DefaultPermitMs * time.Millisecond)
		synctest.Wait()
		for key, state := range want {
			require.Equal(t, state, r.circuitState(key), key)
		}
	})
}

// An expired probe makes room for the next one.
func TestAProbeThatEndsByItself(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.circuit(circuit.Settings{Breaker: breaker.Config{Threshold: 1, Cooldown: time.Minute, HalfOpenMaxCalls: 1}})
		r.done("v", r.allowed("v"), api.GuardError)
		time.Sleep(time.Minute)
		require.True(t, r.ask("v").Probe)
		require.Equal(t, "circuit", r.ask("v").Gate)
		time.Sleep(api.DefaultPermitMs * time.Millisecond)
		synctest.Wait()
		require.Equal(t, "half-open", r.circuitState("v"))
		r.done("v", r.allowed("v"), api.GuardOK)
		require.Equal(t, "closed", r.circuitState("v"))
	})
}

// A check that is handled too late gives no permit, even if it waited for the disk.
func TestLateChecksGiveNoPermit(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.limit("v", throttle.Limits{Concurrency: 10})
		before := r.State("v", "me")
		check := func(body string, until time.Time) (string, func() api.GuardReply) {
			reply := r.checkVerb("v", []byte(body), api.GuardOrigin{Until: until.UnixNano()})
			require.Nil(t, reply.Err)
			return string(reply.Body), reply.Later
		}
		reply, _ := check("{}", time.Now())
		require.JSONEq(t, `{"allowed":false,"gate":"late","key":"v","retry_after_ms":50}`, reply)
		reply, _ = check(`{"checks":[{},{}]}`, time.Now().Add(-time.Second))
		require.Equal(t, 2, strings.Count(reply, `"gate":"late"`))
		require.Equal(t, before, r.State("v", "me"))
		reply, _ = check("{}", time.Now().Add(1))
		require.Contains(t, reply, `"allowed":true`)

		r.keep = func([]string, int64) func() *wire.Error {
			return func() *wire.Error { time.Sleep(2 * time.Second); return nil }
		}
		_, later := check("{}", time.Now().Add(time.Second))
		slow := later()
		require.Nil(t, slow.Err)
		require.Contains(t, string(slow.Body), `"gate":"late"`)
		require.Equal(t, 1, r.Live(), "the first one alone")
		require.EqualValues(t, 5, r.checked.Load())
	})
}

// The clock may stand still for a while, after it was set back.
func TestAPermitEndsByALateClock(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var back atomic.Int64
		r.opt.Now = func() int64 { return time.Now().UnixNano() - back.Load() }
		r.allowed("v")
		back.Store(int64(10 * time.Second))
		time.Sleep(api.DefaultPermitMs*time.Millisecond + 9*time.Second)
		synctest.Wait()
		require.Equal(t, 1, r.Live())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, r.Live(), "nobody asked")
	})
}

// A permit whose reply cannot be sent is not given.
func TestAnswersThatAreTooLong(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.limit("v", throttle.Limits{Concurrency: 100, Limit: 100, Window: int64(time.Minute)})
		before := r.State("v", "me")
		checks := []byte(`{"checks":[` + strings.Repeat(`{"key":"v"},`, 99) + `{"key":"v"}]}`)
		r.payload = 4096
		require.ErrorContains(t, r.checkVerb("_", checks, api.GuardOrigin{}).Err, "ask for fewer")
		require.Equal(t, before, r.State("v", "me"))
		require.Zero(t, r.checked.Load(), "nobody was allowed anything")
		r.payload = 16 << 10
		require.Nil(t, r.checkVerb("_", checks, api.GuardOrigin{}).Err)
		require.Equal(t, 100, r.Live())
		require.EqualValues(t, 100, r.checked.Load())
	})
}

func TestDoneCountsOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.circuit(circuit.Settings{Breaker: breaker.Config{Threshold: 2, Cooldown: time.Minute, HalfOpenMaxCalls: 1}})
		r.limit("v", throttle.Limits{Concurrency: 2})
		first, second := r.allowed("v"), r.allowed("v")
		v := r.done("v", first, api.GuardError)
		require.False(t, v.Duplicate)
		require.Equal(t, "medium", v.Severity)
		again := r.done("v", first, api.GuardOK)
		require.True(t, again.Duplicate)
		again.Duplicate = false
		require.Equal(t, v, again, "the first outcome stands")
		require.Equal(t, int64(1), r.State("v", "me").Limits[0].Remaining, "one place is free, not two")
		require.Equal(t, 1, r.State("v", "me").Circuit.ConsecutiveFailures)
		r.done("v", second, api.GuardError)
		require.Equal(t, "open", r.State("v", "me").Circuit.State)
		time.Sleep(time.Duration(doneLife))
		_, err := r.Done(&api.GuardDoneRequest{Key: "v", Permit: first, Caller: "me", Outcome: api.GuardOK, Attempt: 1})
		require.ErrorIs(t, err, wire.PermitNotFound("v"))
	})
}

func TestPermitsAreBoundToKeyAndCaller(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		permit := r.allowed("v")
		forged := []byte(permit)
		forged[0] ^= 1
		for name, req := range map[string]api.GuardDoneRequest{
			"another key":    {Key: "w", Permit: permit, Caller: "me"},
			"another caller": {Key: "v", Permit: permit, Caller: "you"},
			"no caller":      {Key: "v", Permit: permit},
			"forged":         {Key: "v", Permit: string(forged), Caller: "me"},
		} {
			_, err := r.Done(&req)
			require.ErrorIs(t, err, wire.PermitRefused("v"), name)
		}
		require.Equal(t, 1, r.Live())
		other := newRig(t) // with the same secret, as after a start
		_, err := other.Done(&api.GuardDoneRequest{Key: "v", Permit: permit, Caller: "me", Outcome: api.GuardOK, Attempt: 1})
		require.ErrorIs(t, err, wire.PermitNotFound("v"))
	})
}

// A guard requests the probe of a shared circuit, even if no queue uses the circuit. The
// probe waits for callers that return at the retry time, or after whole seconds.
func TestProbesOfASharedCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet.New(fleet.Options{
			Log: slog.New(slog.DiscardHandler), Bucket: fleettest.New().Of(), Instance: "a",
			Now: func() int64 { return time.Now().UnixNano() }, Degraded: func(error) {},
		})
		r := newSharedRig(t, f)
		r.circuit(circuit.Settings{Breaker: breaker.Config{Threshold: 1, Cooldown: time.Minute, HalfOpenMaxCalls: 1}})
		require.NoError(t, f.Start(t.Context()))
		for _, header := range []bool{false, true} {
			r.done("v", r.allowed("v"), api.GuardError)
			synctest.Wait()
			require.Equal(t, "circuit", r.ask("v").Gate)
			time.Sleep(time.Minute)
			a := r.ask("v")
			require.False(t, a.Allowed)
			wait := time.Duration(a.RetryAfterMs) * time.Millisecond
			if header {
				wait = time.Second
			}
			time.Sleep(wait)
			a = r.ask("v")
			require.True(t, a.Allowed, "after %s", wait)
			require.True(t, a.Probe)
			require.Equal(t, "circuit", r.ask("v").Gate, "one probe at a time")
			r.done("v", a.Permit, api.GuardOK)
			synctest.Wait()
			require.Equal(t, "closed", r.circuitState("v"))
		}
		f.Stop()
		synctest.Wait()
	})
}

func TestTheCircuitDecidesAndHears(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.circuit(circuit.Settings{Breaker: breaker.Config{Threshold: 2, Cooldown: time.Minute, HalfOpenMaxCalls: 2, HalfOpenSuccesses: 2}})
		for range 2 {
			r.done("v", r.allowed("v", "tenant:x"), api.GuardError)
		}
		a := r.ask("v")
		require.Equal(t, api.GuardAnswer{Gate: "circuit", Key: "v", RetryAfterMs: 60_000}, a)
		require.True(t, r.ask("other", "v").Allowed, "a further key has limits, no circuit")
		time.Sleep(time.Minute)
		one := r.ask("v")
		require.True(t, one.Allowed)
		require.True(t, one.Probe)
		two := r.allowed("v")
		require.Equal(t, "circuit", r.ask("v").Gate, "both probes are under way")
		r.done("v", one.Permit, api.GuardOK)
		r.done("v", two, api.GuardOK)
		require.Equal(t, "closed", r.circuitState("v"))
		require.False(t, r.ask("v").Probe)
	})
}

func (r *rig) circuitState(key string) string {
	if c := r.State(key, "me").Circuit; c != nil {
		return c.State
	}
	return "closed"
}

// A circuit that an operator opened without an end has no retry time.
func TestACircuitThatOnlyAHandCloses(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.circuits.Open("v", math.MaxInt64, "")
		require.Equal(t, api.GuardAnswer{Gate: "circuit", Key: "v"}, r.ask("v"))
		require.Equal(t, api.GuardAnswer{Gate: "circuit", Key: "v"}, r.State("v", "me").Answer)
		r.circuits.Close("v", false)
		r.allowed("v")
	})
}

func TestADestinationAsksForTime(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		permit := r.allowed("v")
		_, err := r.Done(&api.GuardDoneRequest{
			Key: "v", Permit: permit, Caller: "me", Outcome: api.GuardError, ErrorCode: "429", RetryAfterMs: 1500, Attempt: 1,
		})
		require.Nil(t, err)
		require.Equal(t, api.GuardAnswer{Gate: "circuit", Key: "v", RetryAfterMs: 1500}, r.ask("v"))
		time.Sleep(1500 * time.Millisecond)
		r.allowed("v")
	})
}

// done teaches limits that learn: overloads cut, successes grow, feedback lowers the bucket.
func TestDoneTeaches(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.limit("v", throttle.Limits{Concurrency: 4, Rate: rate(t, "10"), Burst: 100_000, Adapt: adapt.Settings{Min: 1000, Backoff: 500, Grow: 1000, GrowPerS: 1_000_000}})
		info := func() throttle.Info {
			gate, ok := r.gates.Find("v")
			require.True(t, ok)
			return gate.Info(time.Now().UnixNano())
		}
		done := func(permit, outcome, code string, remaining *float64) {
			_, err := r.Done(&api.GuardDoneRequest{Key: "v", Permit: permit, Caller: "me", Outcome: outcome, ErrorCode: code, Remaining: remaining, Attempt: 1, Cost: new(0.5)})
			require.Nil(t, err)
		}
		permits := []string{r.allowed("v"), r.allowed("v"), r.allowed("v"), r.allowed("v")}
		time.Sleep(time.Second)
		done(permits[0], api.GuardError, "429", nil)
		done(permits[1], api.GuardError, "429", nil)
		require.EqualValues(t, 2000, info().Learned.Level)
		require.Equal(t, "429 of a call of me", info().Learned.Steps[0].Cause)
		for range 4 {
			time.Sleep(time.Second)
			done(permits[2], api.GuardOK, "", nil)
			permits[2] = r.allowed("v")
		}
		require.Greater(t, info().Learned.Level, int64(2000))
		done(permits[2], api.GuardOK, "", new(3.0))
		require.EqualValues(t, 3000, info().Tokens, "the refund does not raise it")
	})
}

func TestVerdicts(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var err error
		r.rules, err = rules.Compile(
			[]rules.RetryPolicy{{Name: "five", MaxRetries: 5, InitialDelayMs: 100, MaxDelayMs: 10_000}},
			[]rules.ErrorRule{
				{Name: "gone", Code: "404", Description: "there is no such thing", Severity: rules.Low, MessageFault: true, RetryPolicy: "five"},
				{Name: "fatal", Code: "401", Severity: rules.Critical},
			})
		require.NoError(t, err)
		left := func(n int64) *int64 { return &n }
		for _, c := range []struct {
			name string
			req  api.GuardDoneRequest
			want api.GuardVerdict
		}{
			{"ok", api.GuardDoneRequest{Outcome: api.GuardOK}, api.GuardVerdict{}},
			{"a rule", api.GuardDoneRequest{ErrorCode: "404", Attempt: 2}, api.GuardVerdict{
				Severity: rules.Low, Rule: "gone", Description: "there is no such thing", Retry: true, DelayMs: 200, RetriesLeft: left(4),
			}},
			{"retries used up", api.GuardDoneRequest{ErrorCode: "404", Attempt: 6}, api.GuardVerdict{
				Severity: rules.Low, Rule: "gone", Description: "there is no such thing", RetriesLeft: left(0),
			}},
			{"never retried", api.GuardDoneRequest{ErrorCode: "401", Attempt: 1}, api.GuardVerdict{Severity: rules.Critical, Rule: "fatal", RetriesLeft: left(0)}},
			{"the policy of the request", api.GuardDoneRequest{ErrorCode: "500", Attempt: 5, RetryPolicy: "five"}, api.GuardVerdict{
				Severity: rules.Medium, Retry: true, DelayMs: 1600, RetriesLeft: left(1),
			}},
		} {
			req := c.req
			req.Key, req.Caller = "v", "me"
			req.Permit = r.allowed("v")
			if req.Outcome == "" {
				req.Outcome = api.GuardError
			}
			v, werr := r.Done(&req)
			require.Nil(t, werr, c.name)
			require.Equal(t, c.want, v, c.name)
		}
		// The verdict about an error needs no call, and counts nothing.
		state := r.Verbs()[api.GuardState]
		for body, want := range map[string]string{
			`{"error_code":"404","attempt":2}`:    `{"severity":"low","rule":"gone","description":"there is no such thing","retry":true,"delay_ms":200,"retries_left":4}`,
			`{"error":"x","retry_policy":"five"}`: `{"severity":"medium","retry":true,"delay_ms":100,"retries_left":5}`,
			`{"error_code":"401"}`:                `{"severity":"critical","rule":"fatal","retry":false,"retries_left":0}`,
		} {
			reply := state("_", []byte(strings.Replace(body, "{", `{"key":"v",`, 1)), api.GuardOrigin{})
			require.Nil(t, reply.Err)
			require.Contains(t, string(reply.Body), `"verdict":`+want)
		}
		require.ErrorContains(t, state("v", []byte(`{"error":"x","retry_policy":"six"}`), api.GuardOrigin{}).Err, "five")
		require.ErrorContains(t, state("v", []byte(`{"attempt":2}`), api.GuardOrigin{}).Err, "is required with attempt or retry_policy")
		require.Equal(t, 2, r.State("v", "me").Circuit.ConsecutiveFailures, "the fault of a call does not count against its destination")
		_, werr := r.Done(&api.GuardDoneRequest{Key: "v", Permit: r.allowed("v"), Caller: "me", Outcome: api.GuardError, Attempt: 1, RetryPolicy: "six"})
		require.Equal(t, wire.CodeBadField, werr.ErrCode)
		require.Contains(t, werr.Description, "five")
	})
}

// Refusals have the fields and headers of docs/guard.md.
func TestRefusalsAreAsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/guard.md")
	require.NoError(t, err)
	limited := map[string][]bool{} // by gate, what the rows say of limit
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z]+)` \\| [^|]+ \\| ([^|]+) \\| (yes|no)[^|]* \\|$").FindAllStringSubmatch(string(page), -1) {
		limited[row[1]] = append(limited[row[1]], row[3] == "yes")
	}
	bubble(t, func(t *testing.T, r *rig) {
		now := time.Now().UnixNano()
		r.limit("k", throttle.Limits{Rate: rate(t, "1"), Burst: throttle.One, Limit: 1, Window: int64(time.Minute), Concurrency: 1})
		set, err := r.gates.Set([]string{"k"}, now)
		require.NoError(t, err)
		defer r.gates.Close(set, now)
		said := map[string]api.GuardAnswer{
			"circuit": r.byCircuit("k", now+int64(time.Second), now),
			"late":    {Gate: api.GateLate, Key: "k", RetryAfterMs: lateRetryAfter.Milliseconds()},
		}
		for _, kind := range []throttle.Kind{throttle.ByRate, throttle.ByWindow, throttle.ByInFlight, throttle.ByTurn, throttle.ByReserved, throttle.ByPause, throttle.ByBudget} {
			a, _ := r.byThrottle(throttle.Block{Gate: set.Gates()[0], Kind: kind, At: now + int64(time.Second)}, throttle.One, now)
			said[a.Gate] = a
		}
		require.ElementsMatch(t, slices.Collect(maps.Keys(limited)), slices.Collect(maps.Keys(said)))
		for gate, a := range said {
			for _, has := range limited[gate] {
				require.Equal(t, has, a.Limit != nil, gate)
			}
			want := []string{wire.HeaderRetryAfter, wire.HeaderRetryAfterMs}
			if a.Limit != nil {
				want = append(want, wire.HeaderRateLimitLimit, wire.HeaderRateLimitRemaining, wire.HeaderRateLimitReset)
				require.Equal(t, gate == "window", a.Limit.WindowMs != 0, gate)
			}
			require.ElementsMatch(t, want, slices.Collect(maps.Keys(a.Headers())), gate)
		}

		// A circuit that only a hand closes says neither when nor how many.
		r.circuits.Open("v", math.MaxInt64, "")
		reply := r.checkVerb("v", nil, api.GuardOrigin{})
		require.Nil(t, reply.Err)
		require.Nil(t, reply.Later)
		require.JSONEq(t, `{"allowed":false,"gate":"circuit","key":"v"}`, string(reply.Body))
		require.Empty(t, reply.Headers)
		r.circuits.Open("v", now+int64(1500*time.Millisecond), "")
		reply = r.checkVerb("v", nil, api.GuardOrigin{})
		require.JSONEq(t, `{"allowed":false,"gate":"circuit","key":"v","retry_after_ms":1500}`, string(reply.Body))
		require.Equal(t, map[string][]string{wire.HeaderRetryAfter: {"2"}, wire.HeaderRetryAfterMs: {"1500"}}, reply.Headers)
		require.Empty(t, r.checkVerb("_", []byte(`{"checks":[{"key":"v"}]}`), api.GuardOrigin{}).Headers, "a list of answers has no headers")
	})
}

// Failures of calls are counted, logged and published like failures of messages.
func TestFailuresAreReported(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.circuit(circuit.Settings{Breaker: breaker.Config{Threshold: 1000, Cooldown: time.Minute, HalfOpenMaxCalls: 1, HalfOpenSuccesses: 1}})
		var err error
		r.rules, err = rules.Compile(nil, []rules.ErrorRule{
			{Name: "fatal", Code: "401", Severity: rules.Critical},
			{Name: "down", Code: "503", Severity: rules.High},
			{Name: "busy", Code: "429", Severity: rules.Low},
		})
		require.NoError(t, err)
		var permit string
		fail := func(code string) {
			t.Helper()
			permit = r.allowed("vendor:stripe", "tenant:acme")
			_, err := r.Done(&api.GuardDoneRequest{
				Key: "vendor:stripe", Permit: permit, Caller: "me", Outcome: api.GuardError, ErrorCode: code, Error: "no", Attempt: 2,
			})
			require.Nil(t, err)
		}
		event := func(typ, code, rule string) wire.Event {
			return wire.Event{Type: typ, Key: "vendor:stripe", Data: map[string]any{
				"tail": "vendor:stripe", "kind": api.FailureOfCall, "caller": "me", "error": "no", "error_code": code, "rule": rule, "attempts": uint32(2),
			}}
		}
		for _, code := range []string{"401", "503", "429", "other"} {
			fail(code)
		}
		require.Equal(t, []string{rules.Critical, rules.High, rules.Low, rules.Medium}, r.failures)
		require.Equal(t, []wire.Event{event(wire.EventFailureCritical, "401", "fatal"), event(wire.EventFailureHigh, "503", "down")}, r.events)
		lines := strings.Split(strings.TrimSpace(r.log.String()), "\n")
		require.Len(t, lines, 4)
		require.Contains(t, lines[0], `level=WARN msg="call failed" key=vendor:stripe caller=me attempts=2 error=no error_code=401 severity=critical rule=fatal suppressed=0`)
		require.Contains(t, lines[2], "level=INFO")

		v, werr := r.Done(&api.GuardDoneRequest{Key: "vendor:stripe", Permit: permit, Caller: "me", Outcome: api.GuardError, ErrorCode: "401", Attempt: 1})
		require.Nil(t, werr)
		require.True(t, v.Duplicate)
		require.Len(t, r.failures, 4, "a repetition counts nowhere")
		r.done("vendor:stripe", r.allowed("vendor:stripe"), api.GuardOK)
		require.Len(t, r.failures, 4, "a success is none")

		// The log has one line of a kind in ten seconds for all callers; events and counts
		// have every failure.
		r.log.Reset()
		for range 100 {
			fail("401")
		}
		require.Empty(t, r.log.String())
		require.Len(t, r.events, 102)
		time.Sleep(10 * time.Second)
		fail("401")
		require.Equal(t, 1, strings.Count(r.log.String(), "\n"))
		require.Contains(t, r.log.String(), "suppressed=100")
	})
}

func TestPairs(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tables = []config.GuardTable{{Key: "vendor:*", With: []string{"tenant:*", "all"}}, {Key: "vendor:a", With: []string{"special"}}}
		r.allowed("vendor:a", "tenant:x", "all", "special")
		r.allowed("anything")
		for first, with := range map[string]string{"vendor:b": "special", "tenant:x": "vendor:a", "vendor:a": "workflow:1"} {
			_, err := r.Check("", api.GuardAsk{Key: first, With: []string{with}, Cost: 1, TTLMs: 1000})
			require.ErrorIs(t, err, wire.GuardPair("", ""), first)
			require.Contains(t, err.Description, with)
		}
	})
}

func TestSeveralChecksAreOrNot(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.limit("v", throttle.Limits{Concurrency: 2, Limit: 2, Window: int64(time.Minute), Rate: rate(t, "1"), Burst: 2 * throttle.One})
		ask := api.GuardAsk{Key: "v", Cost: 1, TTLMs: 1000}
		answers, err := r.Check("", ask, ask, ask)
		require.Nil(t, err)
		require.True(t, answers[0].Allowed && answers[1].Allowed)
		require.False(t, answers[2].Allowed)
		require.NotEqual(t, answers[0].Permit, answers[1].Permit)

		r = newRig(t)
		r.opt.Caps.Permits = 1
		r.limit("v", throttle.Limits{Concurrency: 2, Limit: 2, Window: int64(time.Minute), Rate: rate(t, "1"), Burst: 2 * throttle.One})
		before := r.State("v", "me")
		_, err = r.Check("", ask, ask)
		require.ErrorContains(t, err, "max_guard_permits")
		require.Equal(t, before, r.State("v", "me"), "as if nobody had asked")
		require.Zero(t, r.Live())
	})
}

// Only keys with a concurrency limit are stored. A call that cannot be stored is refused
// and takes nothing.
func TestCallsAreKeptBeforeTheyAreAllowed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.circuit(circuit.Settings{Breaker: breaker.Config{Threshold: 1, Cooldown: time.Minute, HalfOpenMaxCalls: 1}})
		r.limit("v", throttle.Limits{Concurrency: 2, Limit: 2, Window: int64(time.Minute)})
		r.limit("w", throttle.Limits{Limit: 2, Window: int64(time.Minute)})
		var kept []string
		var until int64
		r.keep = func(keys []string, end int64) func() *wire.Error {
			kept, until = keys, end
			return nil
		}
		r.done("v", r.allowed("v", "w", "x"), api.GuardError)
		require.Equal(t, []string{"v"}, kept)
		require.Equal(t, time.Now().UnixNano()+int64(api.DefaultPermitMs*time.Millisecond), until)
		kept = nil
		r.allowed("w", "x")
		require.Empty(t, kept)

		time.Sleep(time.Minute)
		r.keep = func([]string, int64) func() *wire.Error { return wire.OutcomeUnknown }
		before := r.State("v", "me")
		answers, err := r.Check("me", api.GuardAsk{Key: "v", With: []string{"w"}, Cost: 1, TTLMs: 1000})
		require.NotNil(t, err, answers)
		require.ErrorIs(t, err, wire.OutcomeUnknown())
		require.Equal(t, before, r.State("v", "me"), "the probe has come back, too")
		require.Zero(t, r.Live())

		r.Stop()
		_, err = r.Check("me", api.GuardAsk{Key: "y", With: []string{"w"}, Cost: 1, TTLMs: 1000})
		require.ErrorIs(t, err, wire.Draining())
		require.Equal(t, int64(2), r.State("w", "me").Limits[0].Remaining)
	})
}

// Only a check that needs the disk waits for it. Until then its permit does not expire, and
// it is cancelled if the disk fails or takes too long, or fila stops.
func TestOnlyCallsThatNeedTheDiskWaitForIt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tables = []config.GuardTable{{Key: "*", Expired: config.ExpiredFailure}}
		r.circuit(circuit.Settings{Breaker: breaker.Config{Threshold: 1, Cooldown: time.Minute, HalfOpenMaxCalls: 1}})
		r.limit("v", throttle.Limits{Concurrency: 2, Limit: 100, Window: int64(time.Hour)})
		free := r.State("v", "me")
		ask := func(body string) (disk chan *wire.Error, answered chan *wire.Error) {
			disk, answered = make(chan *wire.Error, 1), make(chan *wire.Error, 1)
			r.keep = func([]string, int64) func() *wire.Error { return func() *wire.Error { return <-disk } }
			reply := r.checkVerb("_", []byte(body), api.GuardOrigin{})
			require.Nil(t, reply.Err)
			require.NotNil(t, reply.Later)
			go func() { answered <- reply.Later().Err }()
			return disk, answered
		}
		const call, batch = `{"key":"v","ttl_ms":1000}`, `{"checks":[{"key":"w","ttl_ms":1},{"key":"v","ttl_ms":1000}]}`
		disk, answered := ask(call)
		r.allowed("other")
		require.Equal(t, 1, r.State("v", "me").Permits, "it holds its place")
		disk <- nil
		require.Nil(t, <-answered)
		time.Sleep(time.Second)
		require.Equal(t, "open", r.circuitState("v"), "it was a permit like any other")
		r.circuits.Close("v", true)
		free.Limits = r.State("v", "me").Limits

		for name, tell := range map[string]struct {
			after time.Duration
			err   *wire.Error
		}{
			"the disk fails": {0, wire.OutcomeUnknown()}, "it is too late": {time.Second, nil}, "both": {time.Minute, wire.OutcomeUnknown()},
		} {
			for _, body := range []string{call, batch} {
				checked := r.checked.Load()
				disk, answered := ask(body)
				time.Sleep(tell.after)
				synctest.Wait()
				disk <- tell.err
				err := <-answered
				require.NotNil(t, err, name)
				if tell.err != nil {
					require.ErrorIs(t, err, tell.err, name)
				}
				require.Equal(t, free.Limits[1].Remaining, r.State("v", "me").Limits[1].Remaining, name)
				require.Zero(t, r.State("v", "me").Permits+r.State("w", "me").Permits, name)
				require.Equal(t, "closed", r.circuitState("v"), "%s: no call was made", name)
				require.Equal(t, "closed", r.circuitState("w"), "%s: no call was made", name)
				require.Equal(t, checked, r.checked.Load(), name)
			}
		}
		r.allowed("third")
		disk, answered = ask(call)
		require.Equal(t, 1, r.Stop(), "nobody has been told of the other one")
		disk <- nil
		require.ErrorIs(t, <-answered, wire.Draining())
	})
}

// A done for a permit of another fila is forwarded without holding up others, up to a
// number at once.
func TestPermitsOfAnotherFila(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		other := newRig(t)
		answer := make(chan error)
		var asked []uint64
		r.opt.Forward = func(issuer uint64, body []byte) ([]byte, *wire.Error, error) {
			asked = append(asked, issuer)
			if err := <-answer; err != nil {
				return nil, nil, err
			}
			reply, refused := other.DoneForwarded(body)
			return reply, refused, nil
		}
		done := r.SharedVerbs()[api.GuardDone]
		end := func(permit, caller string) api.GuardReply {
			return done(`v\x`, []byte(`{"permit":"`+permit+`","caller":"`+caller+`","outcome":"ok"}`), api.GuardOrigin{})
		}
		tell := func(permit, caller string) func() api.GuardReply {
			reply := end(permit, caller)
			require.Nil(t, reply.Err)
			require.NotNil(t, reply.Later)
			return reply.Later
		}
		own, foreign := r.allowed(`v\x`), other.allowed(`v\x`)
		reply := end(own, "me")
		require.Nil(t, reply.Err)
		require.Nil(t, reply.Later)
		require.JSONEq(t, `{"retry":false}`, string(reply.Body))
		require.ErrorIs(t, end(strings.Repeat("=", wire.PermitLen), "").Err, wire.PermitRefused(""))

		outcome := func(later func() api.GuardReply, failed error) api.GuardReply {
			go func() { answer <- failed }()
			return later()
		}
		require.ErrorIs(t, outcome(tell(foreign, "you"), nil).Err, wire.PermitRefused(""))
		require.ErrorIs(t, outcome(tell(foreign, "me"), errors.New("nobody is there")).Err, wire.PermitAway("", 0))
		require.Equal(t, 1, other.Live())
		for _, want := range []string{`{"retry":false}`, `{"duplicate":true,"retry":false}`} {
			got := outcome(tell(foreign, "me"), nil)
			require.Nil(t, got.Err)
			require.JSONEq(t, want, string(got.Body))
		}
		require.Zero(t, other.Live())
		require.Equal(t, []uint64{other.Issuer(), other.Issuer(), other.Issuer(), other.Issuer()}, asked)

		var waiting []func() api.GuardReply
		for range maxForwards {
			waiting = append(waiting, tell(foreign, "me"))
		}
		reply = end(foreign, "me")
		require.Nil(t, reply.Later)
		require.ErrorContains(t, reply.Err, "at most 1000")
		for _, later := range waiting {
			outcome(later, nil)
		}
		tell(foreign, "me")
	})
}

func TestCapsRefuse(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opt.Caps = Caps{Permits: 2, ThrottleKeys: 3, Circuits: 2}
		ask := func(key string, with ...string) *wire.Error {
			_, err := r.Check("", api.GuardAsk{Key: key, With: with, Cost: 1, TTLMs: 1000})
			return err
		}
		require.Nil(t, ask("a"))
		require.ErrorContains(t, ask("b", "c", "d"), "limits.max_throttle_keys")
		require.Nil(t, ask("b"))
		require.ErrorContains(t, ask("a"), "limits.max_guard_permits")
		time.Sleep(time.Second)
		require.Nil(t, ask("a"))
		require.Nil(t, ask("b"))
	})
}

// For random requests, a window admits exactly what a log of all calls allows, and the retry
// time is exact.
func TestWindowsAreExact(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	bubble(t, func(t *testing.T, r *rig) {
		const limit, window = 7, 1000 * time.Millisecond
		r.limit("v", throttle.Limits{Limit: limit, Window: int64(window)})
		var log []time.Time
		for range 2000 {
			time.Sleep(time.Duration(rnd.IntN(400)) * time.Millisecond)
			live := 0
			for _, at := range log {
				if time.Since(at) < window {
					live++
				}
			}
			log = log[len(log)-live:]
			a := r.ask("v")
			require.Equal(t, live < limit, a.Allowed, a.Gate)
			if a.Allowed {
				r.done("v", a.Permit, api.GuardOK)
				log = append(log, time.Now())
				continue
			}
			require.Equal(t, time.Until(log[0].Add(window)).Milliseconds(), a.RetryAfterMs)
			require.Equal(t, int64(0), a.Limit.Remaining)
			last := log[len(log)-1].Add(window)
			require.Equal(t, up(int64(time.Until(last)), time.Second), a.Limit.ResetS)
			require.Equal(t, up(last.UnixNano(), time.Second), a.Limit.ResetEpoch)
			if rnd.IntN(2) == 0 {
				time.Sleep(time.Duration(a.RetryAfterMs)*time.Millisecond - 1)
				require.False(t, r.ask("v").Allowed, "a nanosecond too early")
				time.Sleep(time.Nanosecond)
				r.done("v", r.allowed("v"), api.GuardOK)
				log = append(log[1:], time.Now())
			}
		}
	})
}

// A waiting queue and guests that ask all the time take turns.
func TestGuestsAndQueuesTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.limit("v", throttle.Limits{Rate: rate(t, "10"), Burst: throttle.One})
		now := func() int64 { return time.Now().UnixNano() }
		set, err := r.gates.Set([]string{"v"}, now())
		require.NoError(t, err)
		wait := throttle.NewWait(set.Gates()[0], "queue")
		r.allowed("v")
		wait.Join(now(), throttle.One)
		var guests, queues int
		for range 10_000 {
			time.Sleep(time.Millisecond)
			for range 3 { // faster than the queue looks
				if r.ask("v").Allowed {
					guests++
				}
			}
			if grant, _, ok := set.Acquire(now(), throttle.One, "queue"); ok {
				queues++
				set.Release(&grant, now(), nil)
			}
		}
		require.InDelta(t, 50, guests, 1, "half of 10 s at 10/s")
		require.InDelta(t, 50, queues, 1)
		wait.Leave(nil)
		a := r.ask("v")
		require.NotEqual(t, "turn", a.Gate, "nobody waits any more")
		r.gates.Close(set, now())
	})
}

// Whatever callers do, the calls under way never exceed the concurrency limit, and all places
// are returned.
func TestNothingLeaks(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	bubble(t, func(t *testing.T, r *rig) {
		r.circuit(circuit.Settings{Breaker: breaker.Config{Threshold: 3, Cooldown: time.Second, HalfOpenMaxCalls: 2}})
		keys := []string{"a", "b", "c", "d"}
		for i, key := range keys {
			r.limit(key, throttle.Limits{Concurrency: int64(i + 1)})
		}
		type call struct {
			key, permit string
			with        []string
			ends        time.Time
		}
		var live []call
		for range 5000 {
			time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
			kept := live[:0]
			for _, c := range live {
				if time.Now().Before(c.ends) {
					kept = append(kept, c)
				}
			}
			live = kept
			if len(live) > 0 && rnd.IntN(2) == 0 {
				i := rnd.IntN(len(live))
				r.done(live[i].key, live[i].permit, []string{api.GuardOK, api.GuardError}[rnd.IntN(2)])
				live = append(live[:i], live[i+1:]...)
			}
			order := rnd.Perm(len(keys))
			c := call{key: keys[order[0]]}
			for _, k := range order[1 : 1+rnd.IntN(3)] {
				c.with = append(c.with, keys[k])
			}
			ttl := int64(1 + rnd.IntN(2000))
			a, err := r.Check("me", api.GuardAsk{Key: c.key, With: c.with, Cost: 1, TTLMs: ttl})
			require.Nil(t, err)
			if a := a[0]; a.Allowed {
				c.permit, c.ends = a.Permit, time.Now().Add(time.Duration(ttl)*time.Millisecond)
				live = append(live, c)
			}
			used := make(map[string]int64)
			for _, c := range live {
				for _, key := range append([]string{c.key}, c.with...) {
					used[key]++
				}
			}
			for i, key := range keys {
				require.LessOrEqual(t, used[key], int64(i+1))
				require.Equal(t, int64(i+1)-used[key], r.State(key, "me").Limits[0].Remaining, key)
			}
			require.Equal(t, len(live), r.Live())
		}
		time.Sleep(time.Minute)
		require.Zero(t, r.Live())
		require.Empty(t, r.mu.permits, "what is done is forgotten")
		require.Empty(t, r.mu.byKey)
		for i, key := range keys {
			require.Equal(t, int64(i+1), r.State(key, "me").Limits[0].Remaining)
		}
	})
}
