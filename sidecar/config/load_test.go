package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/wire"
)

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestPrecedence(t *testing.T) {
	path := writeFile(t, "config.toml", `
data_dir = "from file"
drain_timeout_ms = 1
[nats]
url = "nats://file:4222"
name = "from file"
[http]
addr = ""
`)
	loaded, err := Load(Sources{
		File:    path,
		Environ: []string{"FILA_DATA_DIR=from env", "FILA_NATS__URL=nats://env:4222", "FILA_HTTP__PPROF=true", "FILA_DRAIN_TIMEOUT_MS=2s", "OTHER=1"},
		Flags:   []Setting{{"--nats-url", "nats.url", "nats://flag:4222"}, {"--drain-timeout", "drain_timeout_ms", "3s"}},
	})
	require.NoError(t, err)
	require.Equal(t, path, loaded.File)
	require.Empty(t, loaded.Warnings)
	require.Equal(t, "nats://flag:4222", loaded.NATS.URL)
	require.EqualValues(t, 3000, loaded.DrainTimeoutMs)
	require.Equal(t, "from env", loaded.DataDir)
	require.True(t, loaded.HTTP.Pprof)
	require.Equal(t, "from file", loaded.NATS.Name)
	require.Equal(t, "", loaded.HTTP.Addr)
	require.Equal(t, "fila", loaded.NATS.SubjectPrefix, "nobody says otherwise")
}

// A list takes the place of the default as a whole.
func TestLists(t *testing.T) {
	path := writeFile(t, "config.toml", "[nats]\nreply_prefixes = [\"a.\"]\n")
	loaded, err := Load(Sources{File: path})
	require.NoError(t, err)
	require.Equal(t, []string{"a."}, loaded.NATS.ReplyPrefixes)
	loaded, err = Load(Sources{File: path, Environ: []string{"FILA_NATS__REPLY_PREFIXES=x., _INBOX.,z_"}})
	require.NoError(t, err)
	require.Equal(t, []string{"x.", "_INBOX.", "z_"}, loaded.NATS.ReplyPrefixes)
	require.Equal(t, []string{"_INBOX.", "_R_."}, Default().NATS.ReplyPrefixes)
	_, err = Load(Sources{Environ: []string{"FILA_NATS__REPLY_PREFIXES="}})
	require.ErrorContains(t, err, `nats.reply_prefixes: reply prefix ""`)
	_, err = Load(Sources{File: writeFile(t, "empty.toml", "[nats]\nreply_prefixes = []\n")})
	require.ErrorContains(t, err, "nats.reply_prefixes = []")
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing.toml")
	second := filepath.Join(dir, "second.toml")
	require.NoError(t, os.WriteFile(second, []byte(`data_dir = "second"`), 0o600))

	_, err := Load(Sources{File: missing})
	require.EqualError(t, err, "--config "+missing+": no such file or directory")

	loaded, err := Load(Sources{Search: []string{missing, second}})
	require.NoError(t, err)
	require.Equal(t, "second", loaded.DataDir)

	loaded, err = Load(Sources{Search: []string{missing}})
	require.NoError(t, err)
	require.Equal(t, "", loaded.File)
}

func TestFileMistakes(t *testing.T) {
	for name, tc := range map[string]struct{ file, want string }{
		"unknown key":          {`dta_dir = "x"`, "unknown key dta_dir in FILE (did you mean data_dir?)"},
		"unknown key, far off": {`colour = "red"`, "unknown key colour in FILE"},
		"unknown key in table": {"[nats]\nulr = \"x\"", "unknown key nats.ulr in FILE (did you mean url?)"},
		"key in wrong table":   {"[http]\nurl = \"x\"", "unknown key http.url in FILE"},
		"wrong case":           {`Data_Dir = "x"`, "unknown key Data_Dir in FILE (did you mean data_dir?)"},
		"dotted key":           {`"nats.url" = "x"`, "unknown key nats.url in FILE"},
		"unknown in queue":     {"[[queue]]\nname = \"a\"\nquantm = 1", "unknown key queue[a].quantm in FILE (did you mean quantum?)"},
		"text for number":      {"[[queue]]\nname = \"a\"\nvisibility_timeout_ms = \"abc\"", `queue[a].visibility_timeout_ms = "abc" in FILE: allowed is a whole number of milliseconds`},
		"digits as text":       {`drain_timeout_ms = "5"`, `drain_timeout_ms = "5" in FILE: allowed is a whole number of milliseconds`},
		"fraction":             {`drain_timeout_ms = 1.0`, `drain_timeout_ms = 1 in FILE: allowed is a whole number of milliseconds`},
		"number for text":      {`data_dir = 5`, `data_dir = 5 in FILE: allowed is a string`},
		"number for bool":      {"[http]\npprof = 1", "http.pprof = 1 in FILE: allowed is true or false"},
		"bytes":                {"[store]\nread_cache_bytes = \"1MB\"", `store.read_cache_bytes = "1MB" in FILE: allowed is a whole number of bytes`},
		"text for table":       {`nats = "nats://x"`, `nats = "nats://x" in FILE: allowed is a table`},
		"table for queues":     {"[queue]\nname = \"a\"", "queue = a table in FILE: allowed is [[queue]] tables"},
		"list of numbers":      {"[[queue]]\nname = \"a\"\nthrottle_headers = [1]", "queue[a].throttle_headers[0] = 1 in FILE: allowed is a string"},
		"text for list":        {"[[queue]]\nname = \"a\"\nthrottle_headers = \"x\"", `queue[a].throttle_headers = "x" in FILE: allowed is a list of strings`},
		"date":                 {"data_dir = 2026-01-01", "data_dir = 2026-01-01 in FILE: allowed is a string"},
		"secret of wrong type": {"[nats]\npassword = 12345", "nats.password = (not shown) in FILE: allowed is a string"},
		"key twice":            {"data_dir = \"a\"\ndata_dir = \"b\"", "FILE: key data_dir is already defined"},
		"syntax":               {"data_dir = \n", "FILE:1:"},
		"not UTF-8":            {"data_dir = \"\xff\"", "FILE:1:"},
		"impossible value":     {"[lua]\ndefault_timeout_ms = 0", "lua.default_timeout_ms = 0: allowed is 1 to"},
		"queue without name":   {"[[queue]]\nquantum = 1", "queue[0].name is missing"},
		"queue twice":          {"[[queue]]\nname = \"a\"\n[[queue]]\nname = \"a\"", `queue "a" is declared twice`},
		"script twice":         {"[[queue]]\nname = \"a\"\non_enqueue = \"x\"\non_enqueue_file = \"y\"", `queue "a" in FILE: on_enqueue and on_enqueue_file are both set`},
		"two that decide":      {"[[queue]]\nname = \"a\"\non_enqueue = \"x\"\nfairness_header = \"tenant\"", `queue "a": fairness_header is "tenant": allowed is either fairness_header or on_enqueue`},
		"script missing":       {"[[queue]]\nname = \"a\"\non_failure_file = \"y.lua\"", `queue "a" in FILE: on_failure_file = "y.lua": DIR/y.lua: no such file or directory`},
		"script is a folder":   {"[[queue]]\nname = \"a\"\non_failure_file = \".\"", `queue "a" in FILE: on_failure_file = ".": DIR: is a directory`},

		"unknown key of a throttle": {"[[throttle]]\nkey = \"a\"\nrtae = 1", "unknown key throttle[a].rtae in FILE (did you mean rate?)"},
		"unknown key of a circuit":  {"[[circuit]]\ncooldown = 1", "unknown key circuit[0].cooldown in FILE"},
		"unknown key of a policy":   {"[[retry_policy]]\nname = \"a\"\njiter = 1", "unknown key retry_policy[a].jiter in FILE (did you mean jitter?)"},
		"unknown key of a rule":     {"[[error_rule]]\nname = \"a\"\ncodes = \"\"", "unknown key error_rule[a].codes in FILE (did you mean code?)"},
		"unknown default":           {"[circuit_defaults]\nkey = \"a\"", "unknown key circuit_defaults.key in FILE"},
		"table for tables":          {"[throttle]\nkey = \"a\"", "throttle = a table in FILE: allowed is [[throttle]] tables"},
		"tables for a table":        {"[[circuit_defaults]]\nthreshold = 1", "circuit_defaults = a list in FILE: allowed is a table"},
		"key of several lines":      {"[[throttle]]\nkey = \"a\\nb\"\nx = 1", "unknown key throttle[0].x in FILE"},
		"whole number":              {"[[throttle]]\nkey = \"a\"\nconcurrency = 1.5", "throttle[a].concurrency = 1.5 in FILE: allowed is a whole number"},
		"number":                    {"[[retry_policy]]\nname = \"a\"\njitter = \"0.1\"", `retry_policy[a].jitter = "0.1" in FILE: allowed is a number`},
		"bool":                      {"[[error_rule]]\nname = \"a\"\nretry = 1", "error_rule[a].retry = 1 in FILE: allowed is true or false"},
		"multiplier":                {"[[retry_policy]]\nname = \"a\"\nmultiplier = nan", "retry_policy[a].multiplier = NaN: allowed is 1 to 1000"},
		"queue's policy":            {"[[queue]]\nname = \"q\"\nretry_policy = \"p\"", `queue[q].retry_policy = "p": there is no [[retry_policy]]`},
		"queue's rate":              {"[[queue]]\nname = \"q\"\nenqueue_rate = true", "queue[q].enqueue_rate = true in FILE: allowed is a number per second"},
		"pattern":                   {"[[error_rule]]\nname = \"a\"\npattern = '''a\n('''", `error_rule[a].pattern = "a\n(": missing closing )`},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeFile(t, "config.toml", tc.file)
			want := strings.NewReplacer("FILE", path, "DIR", filepath.Dir(path)).Replace(tc.want)
			_, err := Load(Sources{File: path})
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestEnvironment(t *testing.T) {
	loaded, err := Load(Sources{Environ: []string{
		"FILA_NATS__TLS__CA=ca.pem", "FILA_NATS__URL=nats://x:1", "FILA_NATS__EMBEDDED__PORT=-1", "FILA_LUA__DEFAULT_TIMEOUT_MS=20",
		"FILA_NOSUCH=1", "FILA_QUEUE=x", "FILA_NATS=x", "FILA_=x", "FILAMENT=x",
	}})
	require.NoError(t, err)
	require.Equal(t, "ca.pem", loaded.NATS.TLS.CA)
	require.Equal(t, -1, loaded.NATS.Embedded.Port)
	require.EqualValues(t, 20, loaded.Lua.DefaultTimeoutMs)
	require.Equal(t, []string{
		"environment variable FILA_ is not a setting of fila; it is ignored",
		"environment variable FILA_NATS is not a setting of fila; it is ignored",
		"environment variable FILA_NOSUCH is not a setting of fila; it is ignored",
		"environment variable FILA_QUEUE is not a setting of fila; it is ignored",
	}, loaded.Warnings)

	for entry, want := range map[string]string{
		"FILA_NATS__EMBEDDED__PORT=abc":    `FILA_NATS__EMBEDDED__PORT = "abc": allowed is a whole number`,
		"FILA_NATS__EMBEDDED__PORT=":       `FILA_NATS__EMBEDDED__PORT = "": allowed is a whole number`,
		"FILA_HTTP__PPROF=yes":             `FILA_HTTP__PPROF = "yes": allowed is true or false`,
		"FILA_DRAIN_TIMEOUT_MS=soon":       `FILA_DRAIN_TIMEOUT_MS = "soon": allowed is a duration such as 30s`,
		"FILA_STORE__READ_CACHE_BYTES=1.5": `FILA_STORE__READ_CACHE_BYTES = "1.5": allowed is a whole number of bytes`,
		"FILA_DRAIN_TIMEOUT_MS=-1":         `FILA_DRAIN_TIMEOUT_MS = "-1": allowed is a duration such as 30s, 5m or 1h30m, or a number of milliseconds, 0 to 9223372036854`,
		"FILA_DRAIN_TIMEOUT_MS=10us":       `FILA_DRAIN_TIMEOUT_MS = "10us": nothing finer than a millisecond is allowed`,
		"FILA_LOG__LEVEL=loud":             `log.level = "loud": allowed is debug, info, warn, error`,
	} {
		_, err := Load(Sources{Environ: []string{entry}})
		require.ErrorContains(t, err, want)
	}
}

func TestScripts(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "hooks"), 0o700))
	script := "function on_enqueue(msg) return {} end\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hooks", "a.lua"), []byte(script), 0o600))
	path := filepath.Join(dir, "config.toml")
	require.NoError(t, os.WriteFile(path, []byte(`
[[queue]]
name = "a"
on_enqueue_file = "hooks/a.lua"
on_failure = "function on_failure(msg) end"
max_deliveries = 0
[[queue]]
name = "b"
quantum = 5
throttle_headers = ["provider"]
`), 0o600))
	loaded, err := Load(Sources{File: path})
	require.NoError(t, err)
	require.Len(t, loaded.Queues, 2)
	a, b := loaded.Queues[0], loaded.Queues[1]
	require.Equal(t, script, a.OnEnqueue)
	require.Equal(t, "", a.OnEnqueueFile)
	require.Equal(t, "function on_failure(msg) end", a.OnFailure)
	require.Zero(t, *a.MaxDeliveries)
	require.EqualValues(t, 30_000, a.VisibilityTimeoutMs, "defaults stay")
	require.Nil(t, b.MaxDeliveries)
	require.EqualValues(t, 5, b.Quantum)
	require.Equal(t, []string{"provider"}, b.ThrottleHeaders)
}

// The key of a script has to name a script.
func TestScriptMistakes(t *testing.T) {
	for text, want := range map[string]string{
		" \n":                                `a.lua is empty`,
		strings.Repeat("-", maxScriptFile+1): "a.lua has 1048577 bytes: that is no hook script",
	} {
		script := writeFile(t, "a.lua", text)
		_, err := Load(Sources{File: writeFile(t, "config.toml", "[[queue]]\nname = \"a\"\non_failure_file = '"+script+"'")})
		require.ErrorContains(t, err, want)
	}
}

func FuzzFile(f *testing.F) {
	sample, err := os.ReadFile(samplePath)
	require.NoError(f, err)
	f.Add(string(sample))
	f.Add("[[queue]]\nname = \"a\"\nquantum = 3")
	f.Add("nats = 5")
	f.Add("queue = [1, [2]]")
	path := filepath.Join(f.TempDir(), "config.toml")
	f.Fuzz(func(t *testing.T, text string) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		loaded, err := Load(Sources{File: path})
		if err == nil {
			require.NoError(t, loaded.Validate())
			return
		}
		require.NotEmpty(t, err.Error())
	})
}

func TestTables(t *testing.T) {
	loaded, err := Load(Sources{File: writeFile(t, "config.toml", `
[circuit_defaults]
threshold = 5

[[throttle]]
key = "tenant:*"
rate = 0.1
burst = 2.5
[[throttle]]
key = "a.b"
concurrency = 3
limit = 4
window_ms = 5

[[circuit]]
key = "stripe"
half_open_max_calls = 1

[[retry_policy]]
name = "none"
retry = false
[[retry_policy]]
name = "slow"
initial_delay_ms = 0
multiplier = 3
jitter = 1

[[error_rule]]
name = "e"
code = "c"
retry = false

[[queue]]
name = "q"
retry_policy = "slow"
enqueue_rate = 0.5
enqueue_rate_per_key = "1/3"
`), Environ: []string{"FILA_CIRCUIT_DEFAULTS__COOLDOWN_MS=5m"}})
	require.NoError(t, err)
	require.Equal(t, []ThrottleTable{
		{Key: "tenant:*", Rate: "0.1", Burst: 2.5},
		{Key: "a.b", Concurrency: 3, Limit: 4, WindowMs: 5},
	}, loaded.Throttles)
	defaults := Default().CircuitDefaults
	defaults.Threshold, defaults.CooldownMs = 5, 300_000
	require.Equal(t, defaults, loaded.CircuitDefaults)
	require.Equal(t, []CircuitTable{{Key: "stripe", CircuitLimits: CircuitLimits{HalfOpenMaxCalls: 1}}}, loaded.Circuits)
	require.Equal(t, []rules.RetryPolicy{
		{Name: "none", Retry: new(false), InitialDelayMs: 1000, MaxDelayMs: 300_000, Multiplier: 2},
		{Name: "slow", MaxDelayMs: 300_000, Multiplier: 3, Jitter: 1},
	}, loaded.RetryPolicies)
	require.Equal(t, []rules.ErrorRule{{Name: "e", Code: "c", Retry: new(false)}}, loaded.ErrorRules)
	require.Equal(t, wire.Rate("0.5"), loaded.Queues[0].EnqueueRate)
	require.Equal(t, wire.Rate("1/3"), loaded.Queues[0].EnqueueRatePerKey)
}

// A rate is the number that stands in the file.
func TestRates(t *testing.T) {
	for text, want := range map[string]wire.Rate{
		`10`: "10", `0.1`: "0.1", `0.3`: "0.3", `10.0`: "10", `1e3`: "1000", `1_000`: "1000", `0x10`: "16", `2.5e-1`: "0.25",
		`0.000000001e9`: "1", `1000000000`: "1000000000", `123456789.0125`: "123456789.0125", `"0.5"`: "0.5", `"1/3"`: "1/3", `"007"`: "007",
	} {
		loaded, err := Load(Sources{File: writeFile(t, "config.toml", "[[throttle]]\nkey = \"k\"\nrate = "+text)})
		require.NoError(t, err, text)
		require.Equal(t, want, loaded.Throttles[0].Rate, text)
	}
	const kind = `a number per second of at most 15 digits such as 10 or 0.5, or a string such as "1/3"`
	const size = `allowed is a number per second such as 10 or 0.5, or a fraction such as 1/3, from 1/31536000 to 1000000000`
	for text, want := range map[string]string{
		`0.30000000000000004`:  "throttle[k].rate = 0.30000000000000004 in FILE: allowed is " + kind,
		`123456789.0123456789`: "in FILE: allowed is " + kind,
		`true`:                 "throttle[k].rate = true in FILE: allowed is " + kind,
		`[1]`:                  "throttle[k].rate = a list in FILE: allowed is " + kind,
		`0.1234567891`:         `throttle[k].rate = "0.1234567891": ` + size,
		`1e-9`:                 `throttle[k].rate = "0.000000001": ` + size,
		`0`:                    `throttle[k].rate = "0": ` + size,
		`-1`:                   `throttle[k].rate = "-1": ` + size,
		`-0.0`:                 `throttle[k].rate = "-0": ` + size,
		`inf`:                  `throttle[k].rate = "+Inf": ` + size,
		`nan`:                  `throttle[k].rate = "NaN": ` + size,
		`1e300`:                `: ` + size,
		`"10/s"`:               `throttle[k].rate = "10/s": ` + size,
		`""`:                   "throttle[k] limits nothing",
	} {
		path := writeFile(t, "config.toml", "[[throttle]]\nkey = \"k\"\nrate = "+text)
		_, err := Load(Sources{File: path})
		require.ErrorContains(t, err, strings.ReplaceAll(want, "FILE", path), text)
	}
}

// A reload reads the file that was found at the start, with the flags and the
// environment of the start.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first.toml"), filepath.Join(dir, "second.toml")
	write := func(path, text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write(second, "[[throttle]]\nkey = \"k\"\nrate = 1")
	loaded, err := Load(Sources{
		Search: []string{first, second}, Environ: []string{"FILA_DATA_DIR=d"},
		Flags: []Setting{{"--prefix", "nats.subject_prefix", "p"}, {"--json", "log.format", "json"}},
	})
	require.NoError(t, err)
	require.Equal(t, "json", loaded.Log.Format)

	write(first, "data_dir = \"another file\"")
	write(second, "[[throttle]]\nkey = \"k\"\nrate = 2")
	next, err := loaded.Reload()
	require.NoError(t, err)
	want := loaded.Config
	want.Throttles = []ThrottleTable{{Key: "k", Rate: "2"}}
	require.NotNil(t, next.Reload)
	want.Reload, next.Reload = nil, nil
	require.Equal(t, want, next)

	write(second, "colours = 2")
	_, err = loaded.Reload()
	require.EqualError(t, err, "unknown key colours in "+second)
	require.NoError(t, os.Remove(second))
	_, err = loaded.Reload()
	require.EqualError(t, err, second+": file does not exist")

	loaded, err = Load(Sources{})
	require.NoError(t, err)
	require.Nil(t, loaded.Reload, "nothing to read again")
}

func TestSettingWithoutAKey(t *testing.T) {
	_, err := Load(Sources{Flags: []Setting{{"--port", "nats.port", "1"}}})
	require.EqualError(t, err, "--port: there is no key nats.port")
}
