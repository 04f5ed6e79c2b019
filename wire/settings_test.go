package wire

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDefaultQueueSettings(t *testing.T) {
	q := DefaultQueueSettings("orders")
	require.NoError(t, q.Validate())
	require.Equal(t, QueueSettings{Name: "orders", VisibilityTimeoutMs: 30_000, DedupeWindowMs: 120_000, Quantum: 1, RetryInitialMs: 1000, RetryMaxMs: 300_000, RetryJitter: 1}, q)
	b, err := json.Marshal(q)
	require.NoError(t, err)
	require.JSONEq(t, `{"name":"orders","on_enqueue":"","on_failure":"","visibility_timeout_ms":30000,"max_deliveries":null,
		"max_depth":0,"max_bytes":0,"dedupe_window_ms":120000,"quantum":1,"lua_timeout_ms":0,"lua_memory_limit_bytes":0,
		"lua_circuit_breaker_threshold":0,"lua_circuit_breaker_cooldown_ms":0,"fairness_header":"","weight_header":"","throttle_headers":null,
		"circuit_header":"","route_header":"","priority_header":"","priority_age_ms":0,"priority_reserved":0,"starve_after_ms":0,"retry_policy":"","retry_initial_ms":1000,"retry_max_ms":300000,"retry_jitter":1,"ordering":"","on_blocked":"","max_pending_per_key":0,"enqueue_rate":"","enqueue_burst":0,
		"enqueue_rate_per_key":"","enqueue_burst_per_key":0,"enqueue_schedules":"","max_failures_per_key":0,"failure_window_ms":0,"failure_hold_ms":0}`, string(b))
}

// A setting has the same name everywhere.
func TestQueueSettingsTags(t *testing.T) {
	for f := range reflect.TypeFor[QueueSettings]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		toml, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
		require.Regexp(t, "^[a-z]+(_[a-z]+)*$", name)
		require.Equal(t, name, toml)
		require.Equal(t, name, f.Tag.Get("koanf"))
	}
}

func TestQueueSettingsValidate(t *testing.T) {
	set := func(change func(*QueueSettings)) QueueSettings {
		q := DefaultQueueSettings("q")
		change(&q)
		return q
	}
	n := func(v int64) *int64 { return &v }
	for i, q := range []QueueSettings{
		set(func(q *QueueSettings) { q.VisibilityTimeoutMs = 1 }),
		set(func(q *QueueSettings) { q.VisibilityTimeoutMs = MaxSettingMs }),
		set(func(q *QueueSettings) { q.MaxDeliveries = n(0) }),
		set(func(q *QueueSettings) { q.MaxDeliveries = n(20) }),
		set(func(q *QueueSettings) { q.MaxDepth, q.MaxBytes = 1<<62, 1<<62 }),
		set(func(q *QueueSettings) { q.DedupeWindowMs = 0 }),
		set(func(q *QueueSettings) { q.LuaMemoryLimitBytes = MinLuaMemoryBytes }),
		set(func(q *QueueSettings) { q.FairnessHeader, q.WeightHeader = "tenant", "X-Weight" }),
		set(func(q *QueueSettings) { q.ThrottleHeaders = []string{"a", "b"} }),
		set(func(q *QueueSettings) { q.Name = "a.b-c_d" }),
		set(func(q *QueueSettings) { q.CircuitHeader, q.RetryPolicy = "vendor", "slow-2" }),
		set(func(q *QueueSettings) { q.RetryInitialMs, q.RetryMaxMs, q.RetryJitter = 0, 0, 0 }),
		set(func(q *QueueSettings) {
			q.RetryInitialMs, q.RetryMaxMs, q.RetryJitter = MaxSettingMs, MaxSettingMs, 0.5
		}),
		set(func(q *QueueSettings) { q.Ordering = OrderingKey }),
		set(func(q *QueueSettings) { q.Ordering, q.OnBlocked = OrderingKey, OnBlockedWait }),
		set(func(q *QueueSettings) { q.Ordering, q.OnBlocked = OrderingKey, OnBlockedSkip }),
		set(func(q *QueueSettings) { q.EnqueueRate, q.EnqueueBurst = "0.5", MaxEnqueueBurst }),
		set(func(q *QueueSettings) { q.EnqueueRatePerKey, q.MaxPendingPerKey = "1/3", 1<<62 }),
		set(func(q *QueueSettings) {
			q.MaxFailuresPerKey, q.FailureWindowMs, q.FailureHoldMs = MaxFailures, MaxSettingMs, MaxSettingMs
		}),
	} {
		require.NoError(t, q.Validate(), i)
	}
	for _, tc := range []struct {
		field, text string
		change      func(*QueueSettings)
	}{
		{"name", `is "": allowed`, func(q *QueueSettings) { q.Name = "" }},
		{"name", `"a b"`, func(q *QueueSettings) { q.Name = "a b" }},
		{"name", "reserved", func(q *QueueSettings) { q.Name = "a.dlq" }},
		{"on_enqueue_file", "send the text", func(q *QueueSettings) { q.OnEnqueueFile = "/etc/passwd" }},
		{"on_failure_file", "send the text", func(q *QueueSettings) { q.OnFailureFile = "x.lua" }},
		{"visibility_timeout_ms", "is 0: allowed are 1 to 31536000000", func(q *QueueSettings) { q.VisibilityTimeoutMs = 0 }},
		{"visibility_timeout_ms", "is -5", func(q *QueueSettings) { q.VisibilityTimeoutMs = -5 }},
		{"visibility_timeout_ms", "allowed", func(q *QueueSettings) { q.VisibilityTimeoutMs = MaxSettingMs + 1 }},
		{"max_deliveries", "is -1", func(q *QueueSettings) { q.MaxDeliveries = n(-1) }},
		{"max_deliveries", "allowed are 0 to 2147483647", func(q *QueueSettings) { q.MaxDeliveries = n(1 << 31) }},
		{"max_depth", "is -1", func(q *QueueSettings) { q.MaxDepth = -1 }},
		{"max_bytes", "is -1", func(q *QueueSettings) { q.MaxBytes = -1 }},
		{"dedupe_window_ms", "is -1", func(q *QueueSettings) { q.DedupeWindowMs = -1 }},
		{"dedupe_window_ms", "allowed", func(q *QueueSettings) { q.DedupeWindowMs = MaxSettingMs + 1 }},
		{"quantum", "is 0: allowed are 1 to 1000000", func(q *QueueSettings) { q.Quantum = 0 }},
		{"quantum", "allowed", func(q *QueueSettings) { q.Quantum = MaxQuantum + 1 }},
		{"lua_timeout_ms", "is -1", func(q *QueueSettings) { q.LuaTimeoutMs = -1 }},
		{"lua_timeout_ms", "allowed are 0 to 60000", func(q *QueueSettings) { q.LuaTimeoutMs = MaxLuaTimeoutMs + 1 }},
		{"lua_memory_limit_bytes", "allowed are 0 (the global default) and 1024 to", func(q *QueueSettings) { q.LuaMemoryLimitBytes = 1023 }},
		{"lua_memory_limit_bytes", "allowed", func(q *QueueSettings) { q.LuaMemoryLimitBytes = MaxLuaMemoryBytes + 1 }},
		{"lua_circuit_breaker_threshold", "is -1", func(q *QueueSettings) { q.LuaCircuitBreakerThreshold = -1 }},
		{"lua_circuit_breaker_cooldown_ms", "is -1", func(q *QueueSettings) { q.LuaCircuitBreakerCooldownMs = -1 }},
		{"fairness_header", `"a b"`, func(q *QueueSettings) { q.FairnessHeader = "a b" }},
		{"fairness_header", "does not start with Fila- or Nats-", func(q *QueueSettings) { q.FairnessHeader = "nats-msg-id" }},
		{"weight_header", "Fila-Key", func(q *QueueSettings) { q.WeightHeader = "Fila-Key" }},
		{"throttle_headers", "not be empty", func(q *QueueSettings) { q.ThrottleHeaders = []string{"a", ""} }},
		{"throttle_headers", "once", func(q *QueueSettings) { q.ThrottleHeaders = []string{"a", "A"} }},
		{"throttle_headers", `"a:b"`, func(q *QueueSettings) { q.ThrottleHeaders = []string{"a:b"} }},
		{"throttle_headers", "17 names", func(q *QueueSettings) { q.ThrottleHeaders = make([]string, 17) }},
		{"circuit_header", `"Fila-Key"`, func(q *QueueSettings) { q.CircuitHeader = "Fila-Key" }},
		{"fairness_header", `is "tenant": allowed is either fairness_header or on_enqueue`, func(q *QueueSettings) { q.OnEnqueue, q.FairnessHeader = "lua", "tenant" }},
		{"priority_header", `"Fila-Key"`, func(q *QueueSettings) { q.PriorityHeader = "Fila-Key" }},
		{"priority_header", "or on_enqueue", func(q *QueueSettings) { q.OnEnqueue, q.PriorityHeader = "lua", "urgency" }},
		{"priority_age_ms", "0 to 604800000", func(q *QueueSettings) { q.PriorityAgeMs = MaxPriorityAgeMs + 1 }},
		{"priority_reserved", "0 to 9", func(q *QueueSettings) { q.PriorityReserved = 10 }},
		{"starve_after_ms", "0 (never) and 1000 to ", func(q *QueueSettings) { q.StarveAfterMs = 999 }},
		{"ordering", "priorities", func(q *QueueSettings) { q.Ordering, q.PriorityHeader = OrderingKey, "urgency" }},
		{"ordering", "priorities", func(q *QueueSettings) { q.Ordering, q.PriorityReserved = OrderingKey, 9 }},
		{"weight_header", "or on_enqueue", func(q *QueueSettings) { q.OnEnqueue, q.WeightHeader = "lua", "w" }},
		{"throttle_headers", `is "a, b": allowed is either throttle_headers or on_enqueue`, func(q *QueueSettings) { q.OnEnqueue, q.ThrottleHeaders = "lua", []string{"a", "b"} }},
		{"circuit_header", "or on_enqueue", func(q *QueueSettings) { q.OnEnqueue, q.CircuitHeader = "lua", "to" }},
		{"retry_policy", "1 to 64 bytes", func(q *QueueSettings) { q.RetryPolicy = "a b" }},
		{"retry_initial_ms", "is -1: allowed are 0 to 31536000000", func(q *QueueSettings) { q.RetryInitialMs = -1 }},
		{"retry_initial_ms", "is 300001: allowed is at most retry_max_ms, which is 300000", func(q *QueueSettings) { q.RetryInitialMs = 300_001 }},
		{"retry_max_ms", "allowed", func(q *QueueSettings) { q.RetryMaxMs = MaxSettingMs + 1 }},
		{"retry_jitter", "is -0.1: allowed are 0 to 1", func(q *QueueSettings) { q.RetryJitter = -0.1 }},
		{"retry_jitter", "is 1.5", func(q *QueueSettings) { q.RetryJitter = 1.5 }},
		{"retry_jitter", "is NaN", func(q *QueueSettings) { q.RetryJitter = math.NaN() }},
		{"ordering", `allowed are ""`, func(q *QueueSettings) { q.Ordering = "Key" }},
		{"enqueue_schedules", `is "never": allowed are allow and refuse`, func(q *QueueSettings) { q.EnqueueSchedules = "never" }},
		{"on_blocked", `it goes with ordering "key"`, func(q *QueueSettings) { q.OnBlocked = OnBlockedWait }},
		{"on_blocked", `allowed are wait and skip`, func(q *QueueSettings) { q.Ordering, q.OnBlocked = OrderingKey, "drop" }},
		{"max_pending_per_key", "is -1", func(q *QueueSettings) { q.MaxPendingPerKey = -1 }},
		{"enqueue_rate", "such as 10 or 0.5", func(q *QueueSettings) { q.EnqueueRate = "fast" }},
		{"enqueue_rate_per_key", "from 1/31536000", func(q *QueueSettings) { q.EnqueueRatePerKey = "0" }},
		{"enqueue_burst", "it goes with enqueue_rate", func(q *QueueSettings) { q.EnqueueBurst = 5 }},
		{"enqueue_burst_per_key", "it goes with enqueue_rate_per_key", func(q *QueueSettings) { q.EnqueueRate, q.EnqueueBurstPerKey = "5", 5 }},
		{"enqueue_burst", "allowed are 0 to 1000000000", func(q *QueueSettings) { q.EnqueueRate, q.EnqueueBurst = "5", MaxEnqueueBurst+1 }},
		{"enqueue_burst_per_key", "is -1", func(q *QueueSettings) { q.EnqueueRatePerKey, q.EnqueueBurstPerKey = "5", -1 }},
		{"max_failures_per_key", "allowed are 0 to 1000000", func(q *QueueSettings) { q.MaxFailuresPerKey = MaxFailures + 1 }},
		{"failure_window_ms", "is -1", func(q *QueueSettings) { q.FailureWindowMs = -1 }},
		{"failure_hold_ms", "allowed are 0 to 31536000000", func(q *QueueSettings) { q.FailureHoldMs = MaxSettingMs + 1 }},
	} {
		err := set(tc.change).Validate()
		var se *SettingError
		require.ErrorAs(t, err, &se, tc.field)
		require.Equal(t, tc.field, se.Field)
		require.True(t, strings.HasPrefix(err.Error(), tc.field+" is "), err)
		require.ErrorContains(t, err, tc.text)
	}
}

func TestDeliveryLimit(t *testing.T) {
	q := DefaultQueueSettings("q")
	require.EqualValues(t, 20, q.DeliveryLimit(false))
	require.EqualValues(t, 20, q.DeliveryLimit(true), "there is no hook that could decide")
	q.OnFailure = "function on_failure(msg) end"
	require.EqualValues(t, 0, q.DeliveryLimit(true), "the hook decides")
	require.EqualValues(t, 20, q.DeliveryLimit(false), "the hook failed or was bypassed")
	for _, v := range []int64{0, 3} {
		q.MaxDeliveries = &v
		require.Equal(t, v, q.DeliveryLimit(true))
		require.Equal(t, v, q.DeliveryLimit(false))
	}
}

func TestPatch(t *testing.T) {
	n := int64(5)
	old := DefaultQueueSettings("orders")
	old.MaxDeliveries = &n
	old.ThrottleHeaders = []string{"a", "b"}
	before := old.Clone()

	p, err := old.Patch([]byte(`{"name":"orders","quantum":4,"max_deliveries":7,"throttle_headers":["x"]}`))
	require.Nil(t, err)
	require.Equal(t, before, old, "the settings in use are untouched")
	require.EqualValues(t, 4, p.Quantum)
	require.EqualValues(t, 7, *p.MaxDeliveries)
	require.Equal(t, []string{"x"}, p.ThrottleHeaders)
	require.EqualValues(t, 30_000, p.VisibilityTimeoutMs)

	p, err = old.Patch([]byte(`{"enqueue_rate":0.5,"enqueue_rate_per_key":"1/3","ordering":"key","on_blocked":"skip"}`))
	require.Nil(t, err)
	require.Equal(t, []any{Rate("0.5"), Rate("1/3"), "key", "skip"}, []any{p.EnqueueRate, p.EnqueueRatePerKey, p.Ordering, p.OnBlocked})
	_, err = p.Patch([]byte(`{"ordering":""}`))
	require.NotNil(t, err, "on_blocked is left over")
	p, err = p.Patch([]byte(`{"ordering":"","on_blocked":"","enqueue_rate":"","enqueue_rate_per_key":""}`))
	require.Nil(t, err)
	require.True(t, p.Equal(old))

	p, err = old.Patch([]byte(`{"max_deliveries":null}`))
	require.Nil(t, err)
	require.Nil(t, p.MaxDeliveries, "null is the default again")

	p, err = old.Patch(nil)
	require.Nil(t, err)
	require.True(t, p.Equal(old))

	for body, want := range map[string]struct {
		code int
		text string
	}{
		`{"name":"other"}`:                    {CodeBadQueueSettings, `the subject names the queue "orders"`},
		`{"name":""}`:                         {CodeBadQueueSettings, "name"},
		`{"quantum":0}`:                       {CodeBadQueueSettings, "quantum is 0"},
		`{"visibility_timeout_ms":"30s"}`:     {CodeBadJSON, "visibility_timeout_ms: a whole number"},
		`{"visibilty_timeout_ms":1}`:          {CodeUnknownField, "visibilty_timeout_ms"},
		`{"on_enqueue_file":"/etc/passwd"}`:   {CodeBadField, "send the script's text as on_enqueue"},
		`{"on_failure_file":""}`:              {CodeBadField, "send the script's text as on_failure"},
		`{"throttle_headers":["a","b","a"]}`:  {CodeBadQueueSettings, "once"},
		`{"throttle_headers":"a"}`:            {CodeBadJSON, "throttle_headers: an array"},
		`{"enqueue_rate":true}`:               {CodeBadJSON, "enqueue_rate: a number per second"},
		`{"enqueue_rate":-1}`:                 {CodeBadQueueSettings, `enqueue_rate is "-1"`},
		`{"quantum":2} trailing`:              {CodeBadJSON, "data after"},
		`{"max_deliveries":1,"quantum":1.25}`: {CodeBadJSON, "quantum"},
	} {
		got, err := old.Patch([]byte(body))
		require.NotNil(t, err, body)
		require.Equal(t, want.code, err.ErrCode, "%s: %v", body, err)
		require.Contains(t, err.Description, want.text)
		require.Zero(t, got)
		require.Equal(t, before, old, body)
	}
}

func TestQueueSettingsEqual(t *testing.T) {
	a, b := DefaultQueueSettings("q"), DefaultQueueSettings("q")
	x, y := int64(1), int64(1)
	a.MaxDeliveries, b.MaxDeliveries = &x, &y
	b.ThrottleHeaders = []string{}
	require.True(t, a.Equal(b))
	y = 2
	require.False(t, a.Equal(b))
	b.MaxDeliveries = nil
	require.False(t, a.Equal(b))
	b.MaxDeliveries = a.Clone().MaxDeliveries
	require.True(t, a.Equal(b))
	b.ThrottleHeaders = []string{"t"}
	require.False(t, a.Equal(b))
	a.ThrottleHeaders = []string{"t"}
	require.True(t, a.Equal(b))
	b.WeightHeader = "w"
	require.False(t, a.Equal(b))
}

// Equal compares each setting, and a clone has each.
func TestQueueSettingsEveryField(t *testing.T) {
	for f := range reflect.TypeFor[QueueSettings]().Fields() {
		q := DefaultQueueSettings("q")
		v := reflect.ValueOf(&q).Elem().FieldByIndex(f.Index)
		switch v.Kind() {
		case reflect.String:
			v.SetString("x")
		case reflect.Int64:
			v.SetInt(77)
		case reflect.Float64:
			v.SetFloat(0.77)
		case reflect.Pointer:
			v.Set(reflect.ValueOf(new(int64(77))))
		case reflect.Slice:
			v.Set(reflect.ValueOf([]string{"x"}))
		default:
			require.Fail(t, "a kind of setting that this test does not know", f.Name)
		}
		require.False(t, q.Equal(DefaultQueueSettings("q")), f.Name)
		require.True(t, q.Equal(q.Clone()), f.Name)
		differences := q.Differences(DefaultQueueSettings("q"))
		require.Len(t, differences, 1, f.Name)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		require.True(t, strings.HasPrefix(differences[0], name+" is "), differences[0])
	}
}

func TestQueueSettingsDifferences(t *testing.T) {
	have, asked := DefaultQueueSettings("q"), DefaultQueueSettings("q")
	asked.ThrottleHeaders = []string{}
	require.Empty(t, have.Differences(asked))
	have.Quantum, have.MaxDeliveries, have.RetryJitter, have.EnqueueRate = 7, new(int64(5)), 0.25, "1/2"
	have.OnEnqueue, asked.OnEnqueue = "one", "two"
	have.OnFailure, asked.FairnessHeader, asked.ThrottleHeaders = "one", "x\n", []string{"a", "b"}
	require.Equal(t, []string{
		"on_enqueue is another script", "on_failure is a script, not none", "max_deliveries is 5, not the default", "quantum is 7, not 1",
		`fairness_header is "", not "x\n"`, `throttle_headers is [], not ["a" "b"]`, "retry_jitter is 0.25, not 1", `enqueue_rate is "1/2", not ""`,
	}, have.Differences(asked))
}
