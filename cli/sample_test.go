package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/knadh/koanf/parsers/toml/v2"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar"
	"github.com/filaq/fila/wire"
)

const samplePath = "../config.toml"

// leaves lists all keys that are not tables with their values, by reflection.
func leaves(path string, v reflect.Value, into map[string]any) {
	for field := range v.Type().Fields() {
		key := joinKey(path, field.Tag.Get("koanf"))
		value := v.FieldByIndex(field.Index)
		switch value.Kind() {
		case reflect.Struct:
			leaves(key, value, into)
		case reflect.Int, reflect.Int64:
			into[key] = value.Int()
		case reflect.Bool, reflect.String:
			into[key] = value.Interface()
		}
	}
}

func flatten(path string, table map[string]any, into map[string]any) {
	for key, value := range table {
		if sub, ok := value.(map[string]any); ok {
			flatten(joinKey(path, key), sub, into)
			continue
		}
		into[joinKey(path, key)] = value
	}
}

func TestSampleListsEveryKeyWithItsDefault(t *testing.T) {
	data, err := os.ReadFile(samplePath)
	require.NoError(t, err)
	parsed, err := toml.Parser().Unmarshal(data)
	require.NoError(t, err)
	got, want := map[string]any{}, map[string]any{}
	flatten("", parsed, got)
	leaves("", reflect.ValueOf(sidecar.Default()), want)
	require.Equal(t, want, got)
}

func TestSampleLoadsAsTheDefaults(t *testing.T) {
	loaded, err := loadConfig(configSources{path: samplePath})
	require.NoError(t, err)
	require.Equal(t, sidecar.Default(), loaded.Config)
	require.Empty(t, loaded.Queues, "`go run . serve` in a checkout must not make queues")
	require.Empty(t, loaded.warnings)
}

// The queue in the comments has every key, with its default.
func TestSampleQueue(t *testing.T) {
	data, err := os.ReadFile(samplePath)
	require.NoError(t, err)
	_, commented, ok := strings.Cut(string(data), "# [[queue]]\n")
	require.True(t, ok)
	text := "[[queue]]\n" + strings.ReplaceAll("\n"+commented, "\n# ", "\n")
	path := filepath.Join(t.TempDir(), "queue.toml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))

	loaded, err := loadConfig(configSources{path: path})
	require.NoError(t, err)
	require.Len(t, loaded.Queues, 1)
	want := wire.DefaultQueueSettings("orders")
	got := loaded.Queues[0]
	require.EqualValues(t, wire.DefaultMaxDeliveries, *got.MaxDeliveries)
	got.MaxDeliveries = nil
	require.True(t, want.Equal(got), "%+v", got)

	parsed, err := toml.Parser().Unmarshal([]byte(text))
	require.NoError(t, err)
	table := parsed["queue"].([]any)[0].(map[string]any)
	for field := range reflect.TypeFor[wire.QueueSettings]().Fields() {
		require.Contains(t, table, field.Tag.Get("koanf"))
	}
}

// docs/configuration.md has a row for every key, with the default.
func TestDocumentationNamesEveryKey(t *testing.T) {
	data, err := os.ReadFile("../docs/configuration.md")
	require.NoError(t, err)
	doc := string(data)
	keys := map[string]any{}
	leaves("", reflect.ValueOf(sidecar.Default()), keys)
	for key, value := range keys {
		row := "| `" + key + "` | " + documented(value) + " |"
		require.Contains(t, doc, row)
	}
	queue := map[string]any{}
	leaves("", reflect.ValueOf(wire.DefaultQueueSettings("")), queue)
	for key := range queue {
		require.Contains(t, doc, "| `"+key+"` | ")
	}
	require.Contains(t, doc, "| `max_deliveries` | ")
	require.Contains(t, doc, "| `throttle_headers` | ")
}
