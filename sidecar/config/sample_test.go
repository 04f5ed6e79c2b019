package config

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/knadh/koanf/parsers/toml/v2"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/wire"
)

const samplePath = "../../config.toml"

// leaves lists all keys that are not tables with their values, by reflection.
func leaves(path string, v reflect.Value, into map[string]any) {
	for field := range v.Type().Fields() {
		key := join(path, field.Tag.Get("koanf"))
		value := v.FieldByIndex(field.Index)
		switch value.Kind() {
		case reflect.Struct:
			leaves(key, value, into)
		case reflect.Int, reflect.Int64:
			into[key] = value.Int()
		case reflect.Bool, reflect.String:
			into[key] = value.Interface()
		case reflect.Slice:
			if value.Type().Elem().Kind() != reflect.String {
				continue // tables
			}
			list := []any{}
			for _, one := range value.Seq2() {
				list = append(list, one.String())
			}
			into[key] = list
		}
	}
}

func flatten(path string, table map[string]any, into map[string]any) {
	for key, value := range table {
		if sub, ok := value.(map[string]any); ok {
			flatten(join(path, key), sub, into)
			continue
		}
		into[join(path, key)] = value
	}
}

func TestSampleListsEveryKeyWithItsDefault(t *testing.T) {
	data, err := os.ReadFile(samplePath)
	require.NoError(t, err)
	parsed, err := toml.Parser().Unmarshal(data)
	require.NoError(t, err)
	got, want := map[string]any{}, map[string]any{}
	flatten("", parsed, got)
	leaves("", reflect.ValueOf(Default()), want)
	require.Equal(t, want, got)
}

func TestSampleLoadsAsTheDefaults(t *testing.T) {
	loaded, err := Load(Sources{File: samplePath})
	require.NoError(t, err)
	loaded.Reload = nil // functions are never equal
	require.Equal(t, Default(), loaded.Config)
	require.Empty(t, loaded.Queues, "`go run . serve` in a checkout must not make queues")
	require.Empty(t, loaded.Warnings)
}

// sampleTables returns the tables that stand in the comments of config.toml, by
// name, as text.
func sampleTables(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile(samplePath)
	require.NoError(t, err)
	tables := map[string]string{}
	for _, found := range regexp.MustCompile(`(?m)^# (\[\[(\w+)\]\]\n(?:# .+\n)+)`).FindAllStringSubmatch(string(data), -1) {
		tables[found[2]] = strings.ReplaceAll("\n"+found[1], "\n# ", "\n")
	}
	return tables
}

// Each table in the comments has every key, with its default as far as the table
// makes sense with it.
func TestSampleTables(t *testing.T) {
	tables := sampleTables(t)
	text := strings.Join(slices.Collect(maps.Values(tables)), "")
	loaded, err := Load(Sources{File: writeFile(t, "tables.toml", text)})
	require.NoError(t, err)

	require.Len(t, loaded.Queues, 1)
	want, got := wire.DefaultQueueSettings("orders"), loaded.Queues[0]
	require.EqualValues(t, wire.DefaultMaxDeliveries, *got.MaxDeliveries)
	got.MaxDeliveries = nil
	require.True(t, want.Equal(got), "%+v", got)
	require.Equal(t, []ThrottleTable{{Key: "tenant:*", Rate: "10", WarnAt: []float64{}}}, loaded.Throttles)
	require.Equal(t, []CircuitTable{{Key: "stripe", Zeros: []string{"max_failures", "failure_hold_ms"}}}, loaded.Circuits)
	policy := rules.DefaultRetryPolicy("gentle")
	policy.Retry = new(true)
	require.Equal(t, []rules.RetryPolicy{policy}, loaded.RetryPolicies)
	require.Equal(t, []rules.ErrorRule{{
		Name: "timeouts", Pattern: "(?i)timeout|timed out", Severity: "medium", RetryPolicy: "gentle", Retry: new(true),
	}}, loaded.ErrorRules)

	for table, fields := range tableTypes() {
		parsed, err := toml.Parser().Unmarshal([]byte(tables[table]))
		require.NoError(t, err)
		require.Contains(t, parsed, table)
		keys := slices.Sorted(maps.Keys(parsed[table].([]any)[0].(map[string]any)))
		require.Equal(t, slices.Sorted(maps.Keys(schemaOf(fields).fields)), keys, table)
	}
}

// tableTypes are the types of the lists of tables of the configuration.
func tableTypes() map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for field := range reflect.TypeFor[Config]().Fields() {
		if field.Type.Kind() == reflect.Slice {
			types[field.Tag.Get("koanf")] = field.Type.Elem()
		}
	}
	return types
}

func documented(value any) string {
	switch v := value.(type) {
	case string:
		value = strconv.Quote(v)
	case []any:
		var quoted []string
		for _, one := range v {
			quoted = append(quoted, documented(one))
		}
		return "`[" + strings.ReplaceAll(strings.Join(quoted, ", "), "`", "") + "]`"
	}
	return fmt.Sprintf("`%v`", value)
}

// docs/configuration.md has a line for every key, with the default unless that is empty,
// 0 or false.
func TestDocumentationNamesEveryKey(t *testing.T) {
	data, err := os.ReadFile("../../docs/configuration.md")
	require.NoError(t, err)
	doc := string(data)
	keys := map[string]any{}
	leaves("", reflect.ValueOf(Default()), keys)
	for key, value := range keys {
		line := "\n- `" + key + "` (" + documented(value) + "): "
		if reflect.ValueOf(value).IsZero() && !strings.Contains(doc, line) {
			line = "\n- `" + key + "`: "
		}
		require.Contains(t, doc, line)
	}
	for table, fields := range tableTypes() {
		_, section, ok := strings.Cut(doc, "\n## `[["+table+"]]`\n")
		require.True(t, ok, table)
		section, _, _ = strings.Cut(section, "\n## ")
		var named []string
		for _, line := range regexp.MustCompile("(?m)^- (`\\w+`(?:, `\\w+`)*)(?: \\(`[^`]+`\\))?: ").FindAllStringSubmatch(section, -1) {
			for name := range strings.SplitSeq(line[1], ", ") {
				named = append(named, strings.Trim(name, "`"))
			}
		}
		require.ElementsMatch(t, slices.Collect(maps.Keys(schemaOf(fields).fields)), named, table)
	}
}

// The examples of docs/configuration.md load as they stand.
func TestDocumentationExamples(t *testing.T) {
	data, err := os.ReadFile("../../docs/configuration.md")
	require.NoError(t, err)
	var text strings.Builder
	for _, example := range regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllStringSubmatch(string(data), -1) {
		text.WriteString(example[1])
	}
	loaded, err := Load(Sources{File: writeFile(t, "examples.toml", text.String())})
	require.NoError(t, err)
	require.Len(t, loaded.Queues, 3)
	require.Len(t, loaded.Routes, 2)
	require.Len(t, loaded.Throttles, 2)
	require.Len(t, loaded.ErrorRules, 2)
	require.Equal(t, wire.Rate("100"), loaded.Throttles[0].Rate)
}
