package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

func TestQueueCreateSendsSettings(t *testing.T) {
	f := startFake(t)
	f.answer("fila.admin.queue-create.orders", wire.DefaultQueueSettings("orders"))
	script := writeFile(t, "orders.lua", "function on_enqueue(msg) return {} end")
	r := runCLI(t, "function on_failure(msg) end", "queue", "create", "orders",
		"--on-enqueue", script, "--on-failure", "-", "--visibility-timeout", "1m", "--max-deliveries", "0", "--max-depth", "5",
		"--max-bytes", "6", "--dedupe-window", "30000", "--quantum", "7", "--fairness-header", "tenant", "--weight-header", "w",
		"--throttle-header", "a,b", "--throttle-header", "c", "--lua-timeout", "5", "--lua-memory-limit", "2048",
		"--lua-circuit-breaker-threshold", "4", "--lua-circuit-breaker-cooldown", "1s",
		"--circuit-header", "vendor", "--retry-policy", "slow", "--ordering", "key", "--on-blocked", "skip", "--max-pending-per-key", "8",
		"--enqueue-rate", "0.5", "--enqueue-burst", "9", "--enqueue-rate-per-key", "1/3", "--enqueue-burst-per-key", "10",
		"--max-failures-per-key", "11", "--failure-window", "5m", "--failure-hold", "1h")
	require.Equal(t, exitOK, r.code, r.err)
	var got wire.QueueSettings
	require.NoError(t, json.Unmarshal(f.next().Data, &got))
	require.Equal(t, wire.QueueSettings{
		Name: "orders", OnEnqueue: "function on_enqueue(msg) return {} end", OnFailure: "function on_failure(msg) end",
		VisibilityTimeoutMs: 60_000, MaxDeliveries: new(int64), MaxDepth: 5, MaxBytes: 6, DedupeWindowMs: 30_000, Quantum: 7,
		FairnessHeader: "tenant", WeightHeader: "w", ThrottleHeaders: []string{"a,b", "c"},
		LuaTimeoutMs: 5, LuaMemoryLimitBytes: 2048, LuaCircuitBreakerThreshold: 4, LuaCircuitBreakerCooldownMs: 1000,
		CircuitHeader: "vendor", RetryPolicy: "slow", Ordering: "key", OnBlocked: "skip", MaxPendingPerKey: 8,
		EnqueueRate: "0.5", EnqueueBurst: 9, EnqueueRatePerKey: "1/3", EnqueueBurstPerKey: 10,
		MaxFailuresPerKey: 11, FailureWindowMs: 300_000, FailureHoldMs: 3_600_000,
	}, got)
	require.Equal(t, "queue               orders created\nquantum             1\nvisibility timeout  30s\nmax deliveries      20 (default)\ndedupe window       2m\n", r.out)

	r = runCLI(t, "", "queue", "create", "orders")
	require.Equal(t, exitOK, r.code, r.err)
	got = wire.QueueSettings{}
	require.NoError(t, json.Unmarshal(f.next().Data, &got))
	require.Equal(t, wire.DefaultQueueSettings("orders"), got)
}

func TestQueueUpdateSendsOnlyChanges(t *testing.T) {
	f := startFake(t)
	f.answer("fila.admin.queue-update.orders", wire.DefaultQueueSettings("orders"))
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--max-depth", "0"}, `{"max_depth":0}`},
		{[]string{"--on-failure", ""}, `{"on_failure":""}`},
		{[]string{"--throttle-header", ""}, `{"throttle_headers":[]}`},
		{[]string{"--enqueue-rate", "", "--ordering", "", "--failure-hold", "0"}, `{"enqueue_rate":"","ordering":"","failure_hold_ms":0}`},
		{[]string{"--visibility-timeout", "1500", "--quantum", "2"}, `{"visibility_timeout_ms":1500,"quantum":2}`},
	} {
		r := runCLI(t, "", append([]string{"queue", "update", "orders"}, tc.args...)...)
		require.Equal(t, exitOK, r.code, r.err)
		require.JSONEq(t, tc.want, string(f.next().Data))
	}
	r := runCLI(t, "", "queue", "update", "orders")
	require.Equal(t, result{exitUsage, "", "fila: nothing to change: give the flag of at least one setting\n"}, r)
}

func TestQueueList(t *testing.T) {
	f := startFake(t)
	list := wire.QueueList{Total: 2, Queues: []wire.QueueSummary{
		{Name: "orders", Pending: 1234, Parked: 34, Delayed: 5, InFlight: 7, Consumers: 2, Bytes: 1 << 20, OldestAgeMs: 90_500, DLQ: "orders.dlq"},
		{Name: "orders.dlq"},
	}}
	f.answer("fila.admin.queue-list", list)
	r := runCLI(t, "", "queue", "list")
	require.Equal(t, result{exitOK, strings.Join([]string{
		"QUEUE       PENDING  PARKED  DELAYED  IN FLIGHT  CONSUMERS  SIZE     OLDEST",
		"orders      1234     34      5        7          2          1.0 MiB  1m30s",
		"orders.dlq  0        0       0        0          0          0 B      -",
		"",
	}, "\n"), ""}, r)
	r = runCLI(t, "", "--json", "queue", "list")
	var got wire.QueueList
	require.NoError(t, json.Unmarshal([]byte(r.out), &got))
	require.Equal(t, list, got)
}

func TestQueueInspect(t *testing.T) {
	f := startFake(t)
	info := wire.QueueInfo{
		QueueSummary: wire.QueueSummary{Name: "orders", Pending: 3, InFlight: 1, Consumers: 2, DLQ: "orders.dlq"},
		Settings:     wire.DefaultQueueSettings("orders"), Quantum: 1, Flows: 2,
		ConsumerList: []wire.ConsumerInfo{{Name: "w1", MaxInFlight: 64, InFlight: 1, Credit: 63}, {Fetch: true, MaxInFlight: 5, Credit: 5}},
		TopFlows:     []wire.FlowInfo{{Key: "acme\x1b[31m", Weight: 3, Deficit: 0.5, Pending: 2, Share: 0.75}},
		Hooks:        []wire.HookInfo{{Hook: "on_enqueue", State: "open", Runs: 10, Failures: 3, ConsecutiveFailures: 3, LastError: "a\nb"}},
		Counters:     map[string]int64{"enqueued": 10, "acked": 6},
	}
	f.answer("fila.admin.queue-inspect.orders", info)
	r := runCLI(t, "", "queue", "inspect", "orders", "--flows", "5")
	require.Equal(t, exitOK, r.code, r.err)
	require.JSONEq(t, `{"flows":5}`, string(f.next().Data))
	require.Contains(t, r.out, "pending             3\n")
	require.Contains(t, r.out, "w1        1          63      64   -\n")
	require.Contains(t, r.out, "(fetch)   0          5       5    -\n")
	require.Contains(t, r.out, "acme?[31m  3       0.5      2        75.0%\n", "foreign text does not reach the terminal raw")
	require.Contains(t, r.out, "on_enqueue  open     10    3         3         0         0         a?b\n")
	require.Contains(t, r.out, "acked     6\nenqueued  10\n")

	require.NotContains(t, r.out, "parked", "none is")

	info.Parked = 2
	info.Settings.CircuitHeader, info.Settings.RetryPolicy, info.Settings.Ordering = "vendor", "slow", "key"
	info.Settings.EnqueueRate, info.Settings.EnqueueBurst, info.Settings.EnqueueRatePerKey = "0.5", 7, "1/3"
	info.Settings.MaxPendingPerKey, info.Settings.MaxFailuresPerKey, info.Settings.FailureHoldMs = 9, 5, 600_000
	f.answer("fila.admin.queue-inspect.strict", info)
	r = runCLI(t, "", "queue", "inspect", "strict")
	require.Equal(t, exitOK, r.code, r.err)
	for _, line := range []string{
		"of them parked        2, wait for a gate (`fila explain queue orders`)", "max pending per key   9",
		"max failures per key  5 in 1m, then held for 10m", "circuit header        vendor", "retry policy          slow",
		"ordering              by key, on_blocked wait", "enqueue rate          0.5/s, burst 7", "enqueue rate per key  1/3 per second",
	} {
		require.Contains(t, r.out, line+"\n")
	}
	info.Settings, info.Parked = wire.DefaultQueueSettings("orders"), 0

	r = runCLI(t, "", "queue", "inspect", "orders", "--json")
	var got wire.QueueInfo
	require.NoError(t, json.Unmarshal([]byte(r.out), &got))
	require.Equal(t, info, got)
}

func TestPlainOutputs(t *testing.T) {
	f := startFake(t)
	was := "4"
	f.answer("fila.admin.queue-delete.orders", wire.QueueDeleteReply{Deleted: 1})
	f.answer("fila.admin.redrive.orders.dlq", wire.RedriveReply{Redriven: 2})
	f.answer("fila.admin.config-set.a", wire.ConfigSetReply{Key: "a", Value: "5", Previous: &was})
	f.answer("fila.admin.config-get.a", wire.ConfigEntry{Key: "a", Value: "line 1\nline 2"})
	f.answer("fila.admin.config-delete.a", wire.ConfigEntry{Key: "a", Value: "5"})
	f.answer("fila.admin.config-list", wire.ConfigList{Total: 1, Entries: []wire.ConfigEntry{{Key: "a", Value: "5"}}})
	f.answer("fila.admin.hook-reset.orders", wire.HookResetReply{Queue: "orders", Hooks: []wire.HookInfo{{Hook: "on_failure", State: "closed"}}})
	for _, tc := range []struct {
		args, out, body string
	}{
		{"queue delete orders --force", "queue orders deleted, 1 message with it\n", `{"force":true}`},
		{"queue rm orders", "queue orders deleted, 1 message with it\n", `{}`},
		{"redrive orders.dlq --count 10", "2 messages redriven from orders.dlq\n", `{"count":10}`},
		{"config set a 5 --if-value 4", "a = 5 (was 4)\n", `{"value":"5","if_value":"4"}`},
		{"config set a -- -5", "a = 5 (was 4)\n", `{"value":"-5"}`},
		{"config get a", "line 1\nline 2\n", ""},
		{"config delete a", "a deleted (was 5)\n", ""},
		{"config list x:", "KEY  VALUE\na    5\n", `{"prefix":"x:","limit":1000}`},
		{"hook reset orders --hook on_failure", "HOOK        CIRCUIT\non_failure  closed\n", `{"hook":"on_failure"}`},
	} {
		r := runCLI(t, "", strings.Fields(tc.args)...)
		require.Equal(t, result{exitOK, tc.out, ""}, r, tc.args)
		if body := f.next().Data; tc.body != "" {
			require.JSONEq(t, tc.body, string(body))
		}
		r = runCLI(t, "", append(strings.Fields("--json"), strings.Fields(tc.args)...)...)
		require.Equal(t, exitOK, r.code, r.err)
		require.True(t, json.Valid([]byte(r.out)), tc.args)
		f.next()
	}
}

func TestExitCodes(t *testing.T) {
	f := startFake(t)
	for code, want := range map[int]int{400: exitUsage, 404: exitNotFound, 409: exitConflict, 413: exitUsage, 429: exitRefused, 500: exitFailed, 503: exitRefused} {
		subject := "fila.admin.queue-delete.q" + strings.Repeat("x", code-399)
		f.answer(subject, &wire.Error{Code: code, ErrCode: 10_000 + code, Description: "because", RetryAfter: time.Second})
		r := runCLI(t, "", "queue", "delete", strings.TrimPrefix(subject, "fila.admin.queue-delete."))
		require.Equal(t, want, r.code)
		require.Contains(t, r.err, "fila: because (try again in 1s) [err_code 10")
		require.Empty(t, r.out)
	}
}

func TestNobodyAnswers(t *testing.T) {
	f := startFake(t)
	url := os.Getenv("NATS_URL")
	r := runCLI(t, "", "queue", "list")
	require.Equal(t, result{exitConnect, "", "fila: no fila listens at " + url + ` under the prefix "fila": is ` + "`fila serve` running and connected to this NATS server?\n"}, r)

	f.handle("fila.admin.queue-list", func(*natsMsg) any { return nil })
	r = runCLI(t, "", "queue", "list", "--timeout", "20ms")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "no reply in time")

	r = runCLI(t, "", "queue", "list", "--server", "nats://me:secret@127.0.0.1:1")
	require.Equal(t, exitConnect, r.code)
	require.Equal(t, "fila: no NATS server answers at nats://me:xxxxx@127.0.0.1:1: start one with `fila serve`, or name another with --server, --context or NATS_URL\n", r.err)
}

func TestUsageErrors(t *testing.T) {
	isolate(t)
	t.Setenv("NATS_URL", "nats://127.0.0.1:1")
	dir := t.TempDir()
	for args, want := range map[string]string{
		"nosuch":                     `unknown command "nosuch" for "fila"`,
		"que":                        `unknown command "que" for "fila" (did you mean queue?)`,
		"queue lst":                  `unknown command "lst" for "fila queue" (did you mean list?)`,
		"hook nosuch":                `unknown command "nosuch" for "fila hook"`,
		"queue create":               "QUEUE is missing (see `fila queue create --help`)",
		"queue create a b":           `unexpected argument "b" (see`,
		"queue list --nosuch":        "unknown flag: --nosuch (see `fila queue list --help`)",
		"queue create a --quantum x": `invalid argument "x" for "--quantum"`,
		"queue create a --visibility-timeout soon":     `allowed is a duration such as 30s`,
		"queue create a --on-enqueue " + dir:           "--on-enqueue: " + dir + ": is a directory",
		"queue create a --enqueue-rate fast":           "--enqueue-rate: allowed is a number per second such as 10 or 0.5",
		"queue create a --on-enqueue nosuch.lua":       "--on-enqueue: nosuch.lua: no such file or directory",
		"queue create a --on-enqueue - --on-failure -": "standard input can be read once",
		"publish a x -H tenant":                        `--header "tenant": allowed is name=value`,
		"publish a x -H =acme":                         `--header "=acme": allowed is name=value`,
		"publish a x --delay -5s":                      "allowed is a duration",
		"publish a x --dedupe-id=":                     "--dedupe-id is empty",
		"consume a --count -1":                         "--count -1: allowed is 0",
		"redrive a.dlq --count -1":                     "--count -1: allowed is 0",
		"queue list --timeout 0":                       "--timeout 0s: allowed is 1ms and more",
		"queue list --context nosuch":                  `NATS context "nosuch" does not exist`,
		"queue list --token a --creds b":               "more than one way to log in",
		"queue list --tlscert a":                       "--tlscert and --tlskey go together",
	} {
		r := runCLI(t, "", strings.Fields(args)...)
		require.Equal(t, exitUsage, r.code, "%s: %s", args, r.err)
		require.Contains(t, r.err, want)
		require.True(t, strings.HasPrefix(r.err, "fila: "))
		require.Equal(t, 1, strings.Count(r.err, "\n"), "one line: %s", r.err)
		require.Empty(t, r.out)
	}
	require.Equal(t, exitOK, runCLI(t, "", "queue").code)
	require.Equal(t, exitOK, runCLI(t, "", "--help").code)
}

func TestContexts(t *testing.T) {
	home := isolate(t)
	srv := startNATS(t, nil)
	write := func(name, text string) {
		path := filepath.Join(home, "nats", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("context/a.json", `{"description":"","url":"nats://a:1","user":"u","password":"p","creds":"","ca":"~/ca.pem","inbox_prefix":"_INBOX.u","jetstream_domain":"x"}`)
	write("context/b.json", `{"url":"nats://b:1","creds":"$CREDS_DIR/b.creds"}`)
	write("context/nsc.json", `{"nsc":"nsc://x"}`)
	write("context/bad.json", `{"url":`)
	write("context/first.json", `{"url":"nats://a:1","tls_first":true}`)
	t.Setenv("HOME", "/home/me")
	t.Setenv("CREDS_DIR", "/creds")

	settle := func(args ...string) (*settled, error) {
		a := &app{}
		cmd := newRootCommand(a)
		require.NoError(t, cmd.ParseFlags(args))
		return a.conn.settle()
	}
	must := func(args ...string) natsContext {
		s, err := settle(args...)
		require.NoError(t, err)
		return s.natsContext
	}
	require.Equal(t, natsContext{URL: defaultServer}, must())
	a := natsContext{URL: "nats://a:1", User: "u", Password: "p", CA: "/home/me/ca.pem", InboxPrefix: "_INBOX.u"}
	require.Equal(t, a, must("--context", "a"))
	require.Equal(t, a, must("--context", filepath.Join(home, "nats", "context", "a.json")))
	require.Equal(t, "/creds/b.creds", must("--context", "b").Creds)

	write("context.txt", "a\n")
	require.Equal(t, a, must(), "the selected one")
	require.Equal(t, "nats://b:1", must("--context", "b").URL)
	t.Setenv("NATS_CONTEXT", "b")
	require.Equal(t, "nats://b:1", must().URL)
	require.Equal(t, a, must("--context", "a"), "flag over environment")
	t.Setenv("NATS_CONTEXT", "")

	own := must("--token", "t", "--server", "nats://own:1")
	require.Equal(t, natsContext{URL: "nats://own:1", Token: "t", CA: a.CA, InboxPrefix: a.InboxPrefix}, own, "a login replaces the context's")
	require.Equal(t, "solo", must("--user", "solo").Token, "a user without password is a token")
	t.Setenv("NATS_URL", "nats://env:1")
	require.Equal(t, "nats://env:1", must().URL)
	require.Equal(t, "nats://flag:1", must("-s", "nats://flag:1").URL)

	for name, want := range map[string]string{
		"nsc": "uses nsc, which fila does not support", "bad": "unexpected end of JSON", "../a": "not a name of a context",
	} {
		_, err := settle("--context", name)
		require.ErrorContains(t, err, want)
	}
	t.Setenv("NATS_TIMEOUT", "soon")
	_, err := settle()
	require.ErrorContains(t, err, "NATS_TIMEOUT = ")
	t.Setenv("NATS_TIMEOUT", "2s")
	s, err := settle()
	require.NoError(t, err)
	require.Equal(t, 2*time.Second, s.timeout)
	_ = srv

	// fila serve takes a context only by name, and what it sets itself wins.
	loaded, err := loadConfig(configSources{environ: []string{"FILA_NATS__CONTEXT=a", "FILA_NATS__TOKEN=t"}})
	require.NoError(t, err)
	require.Equal(t, "nats://a:1", loaded.NATS.URL)
	require.Equal(t, "t", loaded.NATS.Token)
	require.Empty(t, loaded.NATS.User)
	require.Equal(t, "/home/me/ca.pem", loaded.NATS.TLS.CA)
	loaded, err = loadConfig(configSources{})
	require.NoError(t, err)
	require.Empty(t, loaded.NATS.URL)
	_, err = loadConfig(configSources{environ: []string{"FILA_NATS__CONTEXT=first"}})
	require.ErrorContains(t, err, "tls_first")
}

func TestLogin(t *testing.T) {
	isolate(t)
	srv := startNATS(t, func(o *serverOptions) { o.Username, o.Password = "me", "secret" })
	args := []string{"queue", "list", "--server", srv.ClientURL()}
	r := runCLI(t, "", args...)
	require.Equal(t, exitConnect, r.code)
	require.Contains(t, r.err, "Authorization Violation")
	r = runCLI(t, "", append(args, "--user", "me", "--password", "secret")...)
	require.Contains(t, r.err, "no fila listens", "logged in")
}
