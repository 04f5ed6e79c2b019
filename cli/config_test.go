package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func documented(value any) string {
	switch v := value.(type) {
	case string:
		return "`" + strconv.Quote(v) + "`"
	default:
		return fmt.Sprintf("`%v`", v)
	}
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func serveFlags(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	cmd, rest, err := newRootCommand(&app{}).Find(append([]string{"serve"}, args...))
	require.NoError(t, err)
	require.NoError(t, cmd.ParseFlags(rest))
	return cmd.Flags()
}

func TestConfigPrecedence(t *testing.T) {
	path := writeFile(t, "config.toml", `
data_dir = "from file"
drain_timeout_ms = 1
[nats]
url = "nats://file:4222"
name = "from file"
[http]
addr = ""
`)
	loaded, err := loadConfig(configSources{
		path:    path,
		environ: []string{"FILA_DATA_DIR=from env", "FILA_NATS__URL=nats://env:4222", "FILA_HTTP__PPROF=true", "FILA_DRAIN_TIMEOUT_MS=2s", "OTHER=1"},
		flags:   serveFlags(t, "--nats-url", "nats://flag:4222", "--drain-timeout", "3s"),
		keys:    serveKeys,
	})
	require.NoError(t, err)
	require.Equal(t, path, loaded.file)
	require.Empty(t, loaded.warnings)
	require.Equal(t, "nats://flag:4222", loaded.NATS.URL)
	require.EqualValues(t, 3000, loaded.DrainTimeoutMs)
	require.Equal(t, "from env", loaded.DataDir)
	require.True(t, loaded.HTTP.Pprof)
	require.Equal(t, "from file", loaded.NATS.Name)
	require.Equal(t, "", loaded.HTTP.Addr)
	require.Equal(t, "fila", loaded.NATS.SubjectPrefix, "a flag that was not given changes nothing")
}

func TestEveryServeFlagSetsItsKey(t *testing.T) {
	values := map[string]string{"drain-timeout": "1234", "port": "4333", "max-payload": "20000", "pprof": "true"}
	for flag, key := range serveKeys {
		_, ok := configSchema.lookup(key)
		require.True(t, ok, "%s: no key %s", flag, key)
		value, ok := values[flag]
		if !ok {
			value = "x"
		}
		loaded, err := loadConfig(configSources{flags: serveFlags(t, "--"+flag, value), keys: serveKeys})
		if err != nil { // "x" is no log level and so on: the message names the key or its table
			require.Contains(t, err.Error(), key[:min(len(key), 8)], flag)
			continue
		}
		defaults, err := loadConfig(configSources{})
		require.NoError(t, err)
		require.NotEqual(t, defaults.Config, loaded.Config, flag)
	}
}

func TestConfigFiles(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing.toml")
	second := filepath.Join(dir, "second.toml")
	require.NoError(t, os.WriteFile(second, []byte(`data_dir = "second"`), 0o600))

	_, err := loadConfig(configSources{path: missing})
	require.EqualError(t, err, "--config "+missing+": no such file or directory")

	loaded, err := loadConfig(configSources{search: []string{missing, second}})
	require.NoError(t, err)
	require.Equal(t, "second", loaded.DataDir)

	loaded, err = loadConfig(configSources{search: []string{missing}})
	require.NoError(t, err)
	require.Equal(t, "", loaded.file)
}

func TestConfigMistakes(t *testing.T) {
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
		"script missing":       {"[[queue]]\nname = \"a\"\non_failure_file = \"y.lua\"", `queue "a" in FILE: on_failure_file = "y.lua": DIR/y.lua: no such file or directory`},
		"script is a folder":   {"[[queue]]\nname = \"a\"\non_failure_file = \".\"", `queue "a" in FILE: on_failure_file = ".": DIR: is a directory`},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeFile(t, "config.toml", tc.file)
			want := strings.NewReplacer("FILE", path, "DIR", filepath.Dir(path)).Replace(tc.want)
			_, err := loadConfig(configSources{path: path})
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestConfigEnvironment(t *testing.T) {
	loaded, err := loadConfig(configSources{environ: []string{
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
	}, loaded.warnings)

	for entry, want := range map[string]string{
		"FILA_NATS__EMBEDDED__PORT=abc":    `FILA_NATS__EMBEDDED__PORT = "abc": allowed is a whole number`,
		"FILA_NATS__EMBEDDED__PORT=":       `FILA_NATS__EMBEDDED__PORT = "": allowed is a whole number`,
		"FILA_HTTP__PPROF=yes":             `FILA_HTTP__PPROF = "yes": allowed is true or false`,
		"FILA_DRAIN_TIMEOUT_MS=soon":       `FILA_DRAIN_TIMEOUT_MS = "soon": allowed is a duration such as 30s`,
		"FILA_STORE__READ_CACHE_BYTES=1.5": `FILA_STORE__READ_CACHE_BYTES = "1.5": allowed is a whole number of bytes`,
		"FILA_LOG__LEVEL=loud":             `log.level = "loud": allowed is debug, info, warn, error`,
	} {
		_, err := loadConfig(configSources{environ: []string{entry}})
		require.ErrorContains(t, err, want)
	}
}

func TestConfigScripts(t *testing.T) {
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
	loaded, err := loadConfig(configSources{path: path})
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

func FuzzConfigFile(f *testing.F) {
	sample, err := os.ReadFile(samplePath)
	require.NoError(f, err)
	f.Add(string(sample))
	f.Add("[[queue]]\nname = \"a\"\nquantum = 3")
	f.Add("nats = 5")
	f.Add("queue = [1, [2]]")
	path := filepath.Join(f.TempDir(), "config.toml")
	f.Fuzz(func(t *testing.T, text string) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		loaded, err := loadConfig(configSources{path: path})
		if err == nil {
			require.NoError(t, loaded.Validate())
			return
		}
		require.NotEmpty(t, err.Error())
	})
}
