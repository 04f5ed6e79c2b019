package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar"
	"github.com/filaq/fila/wire"
)

func TestConfigTables(t *testing.T) {
	loaded, err := loadConfig(configSources{path: writeFile(t, "config.toml", `
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
`), environ: []string{"FILA_CIRCUIT_DEFAULTS__COOLDOWN_MS=5m"}})
	require.NoError(t, err)
	require.Equal(t, []sidecar.ThrottleTable{
		{Key: "tenant:*", Rate: "0.1", Burst: 2.5},
		{Key: "a.b", Concurrency: 3, Limit: 4, WindowMs: 5},
	}, loaded.Throttles)
	defaults := sidecar.Default().CircuitDefaults
	defaults.Threshold, defaults.CooldownMs = 5, 300_000
	require.Equal(t, defaults, loaded.CircuitDefaults)
	require.Equal(t, []sidecar.CircuitTable{{Key: "stripe", HalfOpenMaxCalls: 1}}, loaded.Circuits)
	require.Equal(t, []sidecar.RetryPolicy{
		{Name: "none", Retry: new(false), InitialDelayMs: 1000, MaxDelayMs: 300_000, Multiplier: 2},
		{Name: "slow", MaxDelayMs: 300_000, Multiplier: 3, Jitter: 1},
	}, loaded.RetryPolicies)
	require.Equal(t, []sidecar.ErrorRule{{Name: "e", Code: "c", Retry: new(false)}}, loaded.ErrorRules)
	require.Equal(t, wire.Rate("0.5"), loaded.Queues[0].EnqueueRate)
	require.Equal(t, wire.Rate("1/3"), loaded.Queues[0].EnqueueRatePerKey)
}

// A rate is the number that stands in the file.
func TestConfigRates(t *testing.T) {
	for text, want := range map[string]wire.Rate{
		`10`: "10", `0.1`: "0.1", `0.3`: "0.3", `10.0`: "10", `1e3`: "1000", `1_000`: "1000", `0x10`: "16", `2.5e-1`: "0.25",
		`0.000000001e9`: "1", `1000000000`: "1000000000", `123456789.0125`: "123456789.0125", `"0.5"`: "0.5", `"1/3"`: "1/3", `"007"`: "007",
	} {
		loaded, err := loadConfig(configSources{path: writeFile(t, "config.toml", "[[throttle]]\nkey = \"k\"\nrate = "+text)})
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
		_, err := loadConfig(configSources{path: path})
		require.ErrorContains(t, err, strings.ReplaceAll(want, "FILE", path), text)
	}
}

func TestConfigTableMistakes(t *testing.T) {
	for name, tc := range map[string]struct{ file, want string }{
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
			_, err := loadConfig(configSources{path: path})
			require.ErrorContains(t, err, strings.ReplaceAll(tc.want, "FILE", path))
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

// A reload reads the file that was found at the start, with the flags and the
// environment of the start.
func TestConfigReload(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first.toml"), filepath.Join(dir, "second.toml")
	write := func(path, text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write(second, "[[throttle]]\nkey = \"k\"\nrate = 1")
	sources := configSources{
		search: []string{first, second}, environ: []string{"FILA_DATA_DIR=d"},
		flags: serveFlags(t, "--prefix", "p"), keys: serveKeys, json: true,
	}
	loaded, err := loadConfig(sources)
	require.NoError(t, err)
	require.Equal(t, "json", loaded.Log.Format)
	again := sources.reload(loaded.file)

	write(first, "data_dir = \"another file\"")
	write(second, "[[throttle]]\nkey = \"k\"\nrate = 2")
	next, err := again()
	require.NoError(t, err)
	want := loaded.Config
	want.Throttles = []sidecar.ThrottleTable{{Key: "k", Rate: "2"}}
	require.Equal(t, want, next)

	write(second, "colours = 2")
	_, err = again()
	require.EqualError(t, err, "unknown key colours in "+second)
	require.NoError(t, os.Remove(second))
	_, err = again()
	require.EqualError(t, err, second+": file does not exist")
	require.Nil(t, sources.reload(""), "nothing to read again")
}
