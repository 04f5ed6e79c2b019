package sidecar

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// settable is a key of a table in double brackets that can also be set at run time. Three tables test
// it: one that sets it, one that does not, and one that sets it to 0 where 0 is a value.
type settable struct {
	table, key string
	file       string // value in the file, TOML
	runtime    string // value set at run time, JSON
	with       string // other keys that the table needs, TOML
	unsaid     string // value in force if the table does not set it, JSON
	zero       bool   // 0 differs from not setting it
}

var settables = []settable{
	{table: "throttle", key: "rate", file: `10`, runtime: `"20"`, with: "concurrency = 1"},
	{table: "throttle", key: "burst", file: `5`, runtime: `7`, with: "rate = 1"},
	{table: "throttle", key: "concurrency", file: `3`, runtime: `4`, with: "rate = 1"},
	{table: "throttle", key: "limit", file: `100`, runtime: `200`, with: "rate = 1\n#window"},
	{table: "throttle", key: "window_ms", file: `1000`, runtime: `2000`, with: "rate = 1\n#limit"},
	{table: "throttle", key: "budget", file: `5`, runtime: `7`, with: "rate = 1\n#period"},
	{table: "throttle", key: "period", file: `"day"`, runtime: `"hour"`, with: "rate = 1\n#budget"},
	{table: "throttle", key: "zone", file: `"Asia/Tokyo"`, runtime: `"Europe/Berlin"`, with: "budget = 1\nperiod = \"day\""},
	{table: "throttle", key: "warn_at", file: `[0.5]`, runtime: `[0.9]`, with: "budget = 1\nperiod = \"day\""},
	{table: "throttle", key: "on_empty", file: `"refuse"`, runtime: `"dead_letter"`, with: "budget = 1\nperiod = \"day\""},

	{table: "circuit", key: "threshold", file: `5`, runtime: `7`, with: "cooldown_ms = 1", unsaid: `11`},
	{table: "circuit", key: "cooldown_ms", file: `5`, runtime: `7`, with: "threshold = 1", unsaid: `12`},
	{table: "circuit", key: "half_open_max_calls", file: `5`, runtime: `7`, with: "threshold = 1", unsaid: `13`},
	{table: "circuit", key: "half_open_successes", file: `5`, runtime: `7`, with: "threshold = 1", unsaid: `14`},
	{table: "circuit", key: "max_failures", file: `5`, runtime: `7`, with: "threshold = 1", unsaid: `15`, zero: true},
	{table: "circuit", key: "failure_window_ms", file: `5`, runtime: `7`, with: "threshold = 1", unsaid: `16`},
	{table: "circuit", key: "failure_hold_ms", file: `5`, runtime: `7`, with: "threshold = 1", unsaid: `17`, zero: true},

	{table: "queue", key: "on_enqueue", file: `"function on_enqueue(m) return {} end"`, runtime: `"function on_enqueue(m) return nil end"`, unsaid: `""`},
	{table: "queue", key: "on_failure", file: `"function on_failure(m) return {} end"`, runtime: `"function on_failure(m) return nil end"`, unsaid: `""`},
	{table: "queue", key: "visibility_timeout_ms", file: `5`, runtime: `7`, unsaid: `30000`},
	{table: "queue", key: "max_deliveries", file: `5`, runtime: `7`, unsaid: `null`},
	{table: "queue", key: "max_depth", file: `5`, runtime: `7`, unsaid: `0`},
	{table: "queue", key: "max_bytes", file: `5`, runtime: `7`, unsaid: `0`},
	{table: "queue", key: "dedupe_window_ms", file: `5`, runtime: `7`, unsaid: `120000`},
	{table: "queue", key: "quantum", file: `5`, runtime: `7`, unsaid: `1`},
	{table: "queue", key: "lua_timeout_ms", file: `5`, runtime: `7`, unsaid: `0`},
	{table: "queue", key: "lua_memory_limit_bytes", file: `5000`, runtime: `7000`, unsaid: `0`},
	{table: "queue", key: "lua_circuit_breaker_threshold", file: `5`, runtime: `7`, unsaid: `0`},
	{table: "queue", key: "lua_circuit_breaker_cooldown_ms", file: `5`, runtime: `7`, unsaid: `0`},
	{table: "queue", key: "fairness_header", file: `"a"`, runtime: `"b"`, unsaid: `""`},
	{table: "queue", key: "weight_header", file: `"a"`, runtime: `"b"`, unsaid: `""`},
	{table: "queue", key: "throttle_headers", file: `["a"]`, runtime: `["b","c"]`, unsaid: `null`},
	{table: "queue", key: "route_header", file: `"a"`, runtime: `"b"`, unsaid: `""`},
	{table: "queue", key: "circuit_header", file: `"a"`, runtime: `"b"`, unsaid: `""`},
	{table: "queue", key: "priority_header", file: `"a"`, runtime: `"b"`, unsaid: `""`},
	{table: "queue", key: "priority_age_ms", file: `5`, runtime: `7`, unsaid: `0`},
	{table: "queue", key: "priority_reserved", file: `5`, runtime: `7`, unsaid: `0`},
	{table: "queue", key: "starve_after_ms", file: `5000`, runtime: `7000`, unsaid: `0`},
	{table: "queue", key: "retry_policy", file: `"one"`, runtime: `"two"`, unsaid: `""`},
	{table: "queue", key: "retry_initial_ms", file: `5`, runtime: `7`, unsaid: `1000`, zero: true},
	{table: "queue", key: "retry_max_ms", file: `5`, runtime: `7`, with: `retry_initial_ms = 1`, unsaid: `300000`},
	{table: "queue", key: "retry_jitter", file: `0.5`, runtime: `0.7`, unsaid: `1`, zero: true},
	{table: "queue", key: "ordering", file: `"key"`, runtime: `""`, unsaid: `""`},
	{table: "queue", key: "on_blocked", file: `"wait"`, runtime: `"skip"`, with: `ordering = "key"`, unsaid: `""`},
	{table: "queue", key: "max_pending_per_key", file: `5`, runtime: `7`, unsaid: `0`},
	{table: "queue", key: "enqueue_rate", file: `"5"`, runtime: `"7"`, unsaid: `""`},
	{table: "queue", key: "enqueue_burst", file: `5`, runtime: `7`, with: `enqueue_rate = 1`, unsaid: `0`},
	{table: "queue", key: "enqueue_rate_per_key", file: `"5"`, runtime: `"7"`, unsaid: `""`},
	{table: "queue", key: "enqueue_burst_per_key", file: `5`, runtime: `7`, with: `enqueue_rate_per_key = 1`, unsaid: `0`},
	{table: "queue", key: "enqueue_schedules", file: `"refuse"`, runtime: `"allow"`, unsaid: `""`},
	{table: "queue", key: "max_failures_per_key", file: `5`, runtime: `7`, unsaid: `0`},
	{table: "queue", key: "failure_window_ms", file: `5`, runtime: `7`, with: `max_failures_per_key = 1`, unsaid: `0`},
	{table: "queue", key: "failure_hold_ms", file: `5`, runtime: `7`, with: `max_failures_per_key = 1`, unsaid: `0`},
}

// settablesAreAll checks that all fields of the tables are tested.
func settablesAreAll(t *testing.T) {
	t.Helper()
	var want, have []string
	for _, table := range []struct {
		name string
		of   reflect.Type
		but  []string // the name of the table, what is gone when the file is read, and what only the file can say
	}{
		// How a limit learns is a table, whose text at run time has another form: sidecar/control tests it.
		{"throttle", reflect.TypeFor[config.ThrottleTable](), []string{"key", "adapt"}},
		{"circuit", reflect.TypeFor[config.CircuitTable](), []string{"key", "-", "expired"}},
		{"queue", reflect.TypeFor[wire.QueueSettings](), []string{"name", "on_enqueue_file", "on_failure_file"}},
	} {
	fields:
		for _, field := range reflect.VisibleFields(table.of) {
			key := field.Tag.Get("koanf")
			for _, but := range append(table.but, "") {
				if key == but {
					continue fields
				}
			}
			want = append(want, table.name+"."+key)
		}
	}
	for _, s := range settables {
		have = append(have, s.table+"."+s.key)
	}
	require.ElementsMatch(t, want, have, "every key of every table has a row, and only once")
}

// Variants of a table.
var sayings = []string{"said", "unsaid", "zero"}

// name is the key or queue whose table is about a row.
func (s *settable) name(saying string) string {
	return strings.ReplaceAll(s.table+"-"+s.key+"-"+saying, "_", "-")
}

// text returns the table.
func (s *settable) text(saying string) string {
	id := "key"
	if s.table == "queue" {
		id = "name"
	}
	text := fmt.Sprintf("[[%s]]\n%s = %q\n%s\n", s.table, id, s.name(saying), s.with)
	switch saying {
	case "said":
		text += s.key + " = " + s.file + "\n"
		text = strings.NewReplacer("#window", "window_ms = 1", "#limit", "limit = 1", "#period", `period = "day"`, "#budget", "budget = 1").Replace(text)
	case "zero":
		text += s.key + " = 0\n"
	}
	return text
}

// want returns the value that has to be in force, JSON.
func (s *settable) want(saying string) string {
	switch {
	case saying == "unsaid":
		return s.unsaid
	case saying == "zero":
		return "0"
	case s.table == "throttle" && s.key == "rate":
		return `"` + s.file + `"`
	}
	return s.file
}

// change sets the key at run time.
func (s *settable) change(x *fileSite, saying string) {
	x.t.Helper()
	if s.table == "queue" {
		x.must("fila.admin.queue-update."+s.name(saying), fmt.Sprintf("{%q:%s}", s.key, s.runtime), nil)
		return
	}
	value := strings.Trim(s.runtime, `"[]`)
	x.must("fila.admin.config-set."+s.table+":"+s.name(saying)+":"+s.key, fmt.Sprintf(`{"value":%q}`, value), nil)
}

// now returns the value in force, JSON; empty: none.
func (s *settable) now(x *fileSite, saying string) string {
	x.t.Helper()
	var shown map[string]json.RawMessage
	if s.table != "queue" {
		x.must("fila.admin."+s.table+"-show."+s.name(saying), "", &shown)
		return string(shown[s.key])
	}
	var info struct{ Settings map[string]json.RawMessage }
	x.must("fila.admin.queue-inspect."+s.name(saying), "", &info)
	return string(info.Settings[s.key])
}

// TestTheFileWins over values set at run time, for every key of every table, whether the file sets it,
// does not, or sets it to 0, at a start and at a reload. The show verbs return the value in force.
func TestTheFileWins(t *testing.T) {
	settablesAreAll(t)
	const policies = "[[retry_policy]]\nname = \"one\"\n[[retry_policy]]\nname = \"two\"\n"
	file := "[circuit_defaults]\n"
	for _, s := range settables {
		if s.table == "circuit" {
			file += s.key + " = " + s.unsaid + "\n"
		}
	}
	file += policies
	each := func(do func(s *settable, saying string)) {
		for i := range settables {
			for _, saying := range sayings {
				if saying != "zero" || settables[i].zero {
					do(&settables[i], saying)
				}
			}
		}
	}
	before := policies // the queues exist, and nothing else is declared
	each(func(s *settable, saying string) {
		file += s.text(saying)
		if s.table == "queue" {
			before += fmt.Sprintf("[[queue]]\nname = %q\n%s\n", s.name(saying), s.with)
		}
	})
	x := startWithFile(t, before)
	change := func() { each(func(s *settable, saying string) { s.change(x, saying) }) }
	changed := func() {
		each(func(s *settable, saying string) {
			require.JSONEq(t, s.runtime, s.now(x, saying), "at run time: %s", s.name(saying))
		})
	}
	check := func(after string) {
		t.Helper()
		each(func(s *settable, saying string) {
			require.Equal(t, s.want(saying), s.now(x, saying), "after a %s: %s", after, s.name(saying))
		})
	}
	change()
	changed()
	x.end()

	x.rewrite(file)
	x.start(t)
	defer func() { x.end() }()
	check("start")
	change()
	changed()
	require.NoError(t, x.s.Reload())
	check("reload")
	var again api.ReloadReply
	x.must("fila.admin.reload", "", &again)
	require.Empty(t, again.Changes, "there is nothing that a second reload could do")
}
