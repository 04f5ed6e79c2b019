package hooks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	lua "github.com/yuin/gopher-lua"
)

const typicalHook = `
function on_enqueue(msg)
  local tenant = msg.headers["tenant"] or "default"
  local weight = tonumber(msg.headers["weight"]) or 1
  return { fairness_key = tenant, weight = weight, throttle_keys = { "tenant:" .. tenant } }
end
`

// plainHook runs a script in the cheapest way without limits: gopher-lua alone, no
// context, one message table that is used again.
type plainHook struct {
	L            *lua.LState
	fn           lua.LValue
	msg, headers *lua.LTable
}

func newPlainHook(tb testing.TB, text string) *plainHook {
	tb.Helper()
	p := &plainHook{L: lua.NewState()}
	require.NoError(tb, p.L.DoString(text))
	p.fn = p.L.GetGlobal("on_enqueue")
	p.msg, p.headers = p.L.CreateTable(0, 4), p.L.CreateTable(0, 4)
	p.msg.RawSetString("headers", p.headers)
	return p
}

func (p *plainHook) run(tb testing.TB, in *EnqueueInput) EnqueueDecision {
	for k, v := range in.Headers {
		p.headers.RawSetString(k, lua.LString(v[0]))
	}
	p.msg.RawSetString("payload_size", lua.LNumber(in.PayloadSize))
	p.msg.RawSetString("queue", lua.LString(in.Queue))
	if err := p.L.CallByParam(lua.P{Fn: p.fn, NRet: 1, Protect: true}, p.msg); err != nil {
		tb.Fatal(err)
	}
	t := p.L.Get(-1).(*lua.LTable)
	p.L.Pop(1)
	d := DefaultEnqueueDecision()
	d.Key = lua.LVAsString(t.RawGetString("fairness_key"))
	d.Weight = uint32(1000 * lua.LVAsNumber(t.RawGetString("weight")))
	for _, absent := range []string{"cost", "circuit_key", "priority"} {
		if t.RawGetString(absent) != lua.LNil {
			tb.Fatal(absent)
		}
	}
	d.ThrottleKeys = []string{lua.LVAsString(t.RawGetString("throttle_keys").(*lua.LTable).RawGetInt(1))}
	return d
}

// benchInputs are messages of several tenants, so that values change from one
// run to the next.
func benchInputs() []*EnqueueInput {
	var ins []*EnqueueInput
	for i, tenant := range []string{"acme", "globex", "initech", "umbrella", "hooli"} {
		ins = append(ins, &EnqueueInput{
			Headers:     map[string][]string{"tenant": {tenant}, "weight": {string(rune('1' + i))}},
			PayloadSize: 1000 + i, Queue: "orders",
		})
	}
	return ins
}

func newBenchRunner(b *testing.B, text string) *Runner {
	script, err := Compile(OnEnqueue, "s", text, Limits{})
	require.NoError(b, err)
	return NewRunner(RunnerOptions{Kind: OnEnqueue, Queue: "orders", Script: script})
}

// BenchmarkTypicalHook reports the time of a run in a Runner and in plain
// gopher-lua, and their ratio. They alternate in slices of 200 runs, so that the
// load of the machine affects both alike.
func BenchmarkTypicalHook(b *testing.B) {
	runner := newBenchRunner(b, typicalHook)
	plain := newPlainHook(b, typicalHook)
	ins := benchInputs()
	require.Equal(b, plain.run(b, ins[1]), runner.OnEnqueue(ins[1]))
	var plainTime, sandboxTime time.Duration
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; {
		n := min(200, b.N-i)
		start := time.Now()
		for k := range n {
			plain.run(b, ins[k%len(ins)])
		}
		middle := time.Now()
		for k := range n {
			runner.OnEnqueue(ins[k%len(ins)])
		}
		plainTime += middle.Sub(start)
		sandboxTime += time.Since(middle)
		i += n
	}
	b.ReportMetric(float64(plainTime.Nanoseconds())/float64(b.N), "plain-ns/op")
	b.ReportMetric(float64(sandboxTime.Nanoseconds())/float64(b.N), "sandboxed-ns/op")
	b.ReportMetric(float64(sandboxTime)/float64(plainTime), "ratio")
}

func BenchmarkSandboxed(b *testing.B) { benchRunner(b, typicalHook) }

func benchRunner(b *testing.B, text string) {
	runner := newBenchRunner(b, text)
	ins := benchInputs()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		runner.OnEnqueue(ins[i%len(ins)])
	}
}

// BenchmarkOnFailure is a hook for failed attempts of messages without a choice of routes.
func BenchmarkOnFailure(b *testing.B) {
	script, err := Compile(OnFailure, "s", `function on_failure(msg)
  if msg.attempts > 8 then return { action = "dlq" } end
  return { action = "retry", delay_ms = fila.backoff(msg.attempts, 1000, 60000) }
end`, Limits{})
	require.NoError(b, err)
	runner := NewRunner(RunnerOptions{Kind: OnFailure, Queue: "orders", Script: script})
	ids := []string{"m1", "m2", "m3"}
	in := FailureInput{Headers: map[string][]string{"tenant": {"acme"}}, Queue: "orders", Error: "unavailable", ErrorCode: "503"}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		in.ID, in.Attempts = ids[i%len(ids)], uint32(1+i%5)
		runner.OnFailure(&in)
	}
}

func BenchmarkPlain(b *testing.B) {
	plain := newPlainHook(b, typicalHook)
	ins := benchInputs()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		plain.run(b, ins[i%len(ins)])
	}
}

// BenchmarkDirty is a hook that writes to shared state in each run, and so
// gets fresh globals for each.
func BenchmarkDirty(b *testing.B) {
	benchRunner(b, `n = 0
function on_enqueue(msg) n = n + 1 return { fairness_key = msg.headers.tenant } end`)
}
