package generator

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/applycmd"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

var update = flag.Bool("update", false, "write the files of the directory schemas")

const (
	root = "../.."
	dir  = root + "/schemas"
)

// TestFiles: the directory schemas and the worker libraries have what the Go types say.
func TestFiles(t *testing.T) {
	files, err := Files(root)
	require.NoError(t, err)
	old, err := filepath.Glob(dir + "/*.json")
	require.NoError(t, err)
	if *update {
		for _, path := range old {
			require.NoError(t, os.Remove(path))
		}
		for name, data := range files {
			require.NoError(t, os.WriteFile(filepath.Join(root, name), data, 0o644))
		}
		return
	}
	for _, path := range old {
		require.Contains(t, files, "schemas/"+filepath.Base(path), "run go test ./schemas/generator -update")
	}
	for name, data := range files {
		have, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		require.Equal(t, string(data), string(have), "%s is old: run go test ./schemas/generator -update", name)
	}
}

// compiled compiles a file with the others that it refers to.
func compiled(t *testing.T, path string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	s, err := c.Compile(path)
	require.NoError(t, err)
	return s
}

// TestSchemasAreValid: each is a JSON Schema of its dialect, without references to anything else.
func TestSchemasAreValid(t *testing.T) {
	for _, d := range Documents() {
		path := filepath.Join(dir, d.Name+".json")
		compiled(t, path)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, ref := range regexp.MustCompile(`"\$ref": "(.*)"`).FindAllSubmatch(text, -1) {
			require.Regexp(t, `^#/\$defs/\w+$`, string(ref[1]))
			require.Contains(t, string(text), `"`+strings.TrimPrefix(string(ref[1]), "#/$defs/")+`": {`)
		}
	}
}

// TestAsyncAPI: the document is valid, and its messages use every schema.
func TestAsyncAPI(t *testing.T) {
	text, err := os.ReadFile(dir + "/asyncapi.json")
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	asyncAPI3 := compiled(t, "testdata/asyncapi-3.0.0.json")
	require.NoError(t, asyncAPI3.Validate(doc))
	require.Error(t, asyncAPI3.Validate(map[string]any{"asyncapi": "3.0.0", "channels": doc.(map[string]any)["channels"]}), "without info")

	used := make(map[string]bool)
	var follow func(any)
	follow = func(part any) {
		switch part := part.(type) {
		case []any:
			for _, p := range part {
				follow(p)
			}
		case map[string]any:
			for _, p := range part {
				follow(p)
			}
			to, _ := part["$ref"].(string)
			if name, file := strings.CutPrefix(to, "./"); file {
				used[strings.TrimSuffix(name, ".json")] = true
			} else if to != "" {
				require.NotNil(t, at(doc, strings.Split(strings.TrimPrefix(to, "#/"), "/")), to)
			}
		}
	}
	follow(doc)
	for _, d := range Documents() {
		require.True(t, used[d.Name], d.Name)
		delete(used, d.Name)
	}
	require.Empty(t, used, "there are no such schemas")
}

// at returns the part of a document at a path.
func at(doc any, path []string) any {
	for _, key := range path {
		doc = doc.(map[string]any)[key]
	}
	return doc
}

// TestEverythingHasASchema: the constants of package wire name no event and no header without one.
func TestEverythingHasASchema(t *testing.T) {
	described := make(map[string]bool)
	for _, e := range events {
		described[e.typ] = true
	}
	for _, set := range headerSets {
		for _, name := range set.headers {
			described[name] = true
		}
	}
	paths, err := filepath.Glob(root + "/wire/*.go")
	require.NoError(t, err)
	seen := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^\t((?:Event|Header)[A-Z]\w*) += "(.*?)"`).FindAllSubmatch(text, -1) {
			require.True(t, described[string(m[2])], "%s has no schema", m[1])
			seen++
		}
	}
	require.GreaterOrEqual(t, seen, 80)
}

// TestDescriptionsNameFields: a description names types that have a schema, and no other identifiers of Go.
func TestDescriptionsNameFields(t *testing.T) {
	files, err := Files(root)
	require.NoError(t, err)
	known := map[string]bool{"JetStream": true, "KiB": true, "MiB": true}
	for _, spec := range applycmd.Specs() {
		known[reflect.TypeOf(spec.Fields).Name()] = true
	}
	for _, text := range files {
		for _, m := range regexp.MustCompile(`(?m)^    "(\w+)": \{$`).FindAllSubmatch(text, -1) {
			known[string(m[1])] = true
		}
	}
	found := 0
	for name, text := range files {
		for _, m := range regexp.MustCompile(`"description": "(.*)"`).FindAllSubmatch(text, -1) {
			for _, word := range regexp.MustCompile(`\b([A-Z]\w*[a-z]\w*[A-Z]\w*|nil)\b`).FindAllString(string(m[1]), -1) {
				require.True(t, known[word], "%s: %s: %s", name, word, m[1])
				found++
			}
		}
	}
	require.Positive(t, found)
}

// TestSchemasAreLinked: docs/protocol.md links each schema.
func TestSchemasAreLinked(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/protocol.md")
	require.NoError(t, err)
	names := []string{"asyncapi"}
	for _, d := range Documents() {
		names = append(names, d.Name)
	}
	for _, name := range names {
		require.Contains(t, string(page), "(../schemas/"+name+".json)")
	}
}

// TestRequestsHaveTheBoundsOfTheChecks: what a schema refuses, fila refuses, and the reverse.
func TestRequestsHaveTheBoundsOfTheChecks(t *testing.T) {
	for _, c := range []struct {
		name, body string
		ok         bool
		parse      func(body []byte) *wire.Error
	}{
		{"queue-list.request", `{}`, true, parse(api.VerbQueueList, "")},
		{"queue-list.request", `{"limit":1000}`, true, parse(api.VerbQueueList, "")},
		{"queue-list.request", `{"limit":1001}`, false, parse(api.VerbQueueList, "")},
		{"queue-list.request", `{"offset":-1}`, false, parse(api.VerbQueueList, "")},
		{"queue-list.request", `{"ofset":1}`, false, parse(api.VerbQueueList, "")},
		{"hook-show.request", `{"hook":"on_enqueue"}`, true, parse(api.VerbHookShow, "q")},
		{"hook-show.request", `{"hook":"on_start"}`, false, parse(api.VerbHookShow, "q")},
		{"hook-show.request", `{}`, false, parse(api.VerbHookShow, "q")},
		{"hook-reset.request", `{"hook":""}`, true, parse(api.VerbHookReset, "q")},
		{"message-show.request", `{"payload_bytes":0}`, false, parse(api.VerbMessageShow, "")},
		{"cluster-move.request", `{"node":"b"}`, false, parse(api.VerbClusterMove, "")},
		{"job-create.request", `{"filter":{"keys":["a"]}}`, true, parse(api.VerbJobCreate, "delay.q")},
		{"job-create.request", `{"op":"clean","queue":"q","filter":{"all":true}}`, false, parse(api.VerbJobCreate, "")},
		{"job-create.request", `{"filter":{"all":true},"limit":0}`, true, parse(api.VerbJobCreate, "redrive.q")},
		{"job-create.request", `{}`, false, parse(api.VerbJobCreate, "redrive.q")},
		{"throttle-set.request", `{"rate":0.5,"if":{"limit":0}}`, true, parse(api.VerbThrottleSet, "k")},
		{"throttle-set.request", `{"limit":0}`, false, parse(api.VerbThrottleSet, "k")},
		{"throttle-set.request", `{"limit":1000000001}`, false, parse(api.VerbThrottleSet, "k")},
		{"throttle-set.request", `{"rate":0.5,"if":{"limit":-1}}`, false, parse(api.VerbThrottleSet, "k")},
		{"throttle-set.request", `{"rate":5,"burst":0.5}`, false, parse(api.VerbThrottleSet, "k")},
		{"throttle-set.request", `{"unset":["window"]}`, false, parse(api.VerbThrottleSet, "k")},
		{"throttle-set.request", `{"unset":["window_ms"]}`, true, parse(api.VerbThrottleSet, "k")},
		{"job-create.request", `{"filter":{"all":true},"weight":1000001}`, false, parse(api.VerbJobCreate, "reprioritise.q")},
		{"job-create.request", `{"filter":{"all":true},"weight":1.5}`, true, parse(api.VerbJobCreate, "reprioritise.q")},
		{"queue-wanted.request", `{"horizon_ms":300001}`, false, parse(api.VerbQueueWanted, "q")},
		{"queue-create.request", `{"retry_jitter":1.5}`, false, settings},
		{"queue-create.request", `{"retry_jitter":0.5}`, true, settings},
		{"consume.request", `{}`, false, registration},
		{"consume.request", `{"consumer":"w"}`, true, registration},
		{"guard-check.request", `{"cost":1000001}`, false, check},
		{"guard-check.request", `{"with":["1","2","3","4","5","6","7","8"]}`, false, check},
		{"queue-create.request", `{"starve_after_ms":0}`, true, settings},
		{"queue-create.request", `{"starve_after_ms":1000,"ordering":"key"}`, true, settings},
		{"queue-create.request", `{"starve_after_ms":999}`, false, settings},
		{"queue-create.request", `{"on_enqueue_file":"x"}`, false, settings},
		{"queue-create.request", `{"max_deliveries":"5"}`, false, settings},
		{"consumer.request", `{"fetch":{"batch":1}}`, true, consumer},
		{"consumer.request", `{"max_in_flight":0}`, false, consumer},
		{"consumer.request", `{"headers":"few"}`, false, consumer},
		{"guard-check.request", `{"ttl_ms":3600001}`, false, check},
		{"guard-check.request", `{"checks":[{"cost":2}],"caller":"me"}`, true, check},
	} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(c.body))
		require.NoError(t, err)
		err = compiled(t, filepath.Join(dir, c.name+".json")).Validate(v)
		require.Equal(t, c.ok, err == nil, "%s by the schema: %s: %v", c.name, c.body, err)
		refused := c.parse([]byte(c.body))
		require.Equal(t, c.ok, refused == nil, "%s by fila: %s: %v", c.name, c.body, refused)
	}
}

func parse[Req, Reply any](v *api.Verb[Req, Reply], tail string) func([]byte) *wire.Error {
	return func(body []byte) *wire.Error {
		_, err := v.Parse(tail, body)
		return err
	}
}

func settings(body []byte) *wire.Error {
	_, err := wire.DefaultQueueSettings("q").Patch(body)
	return err
}

func consumer(body []byte) *wire.Error {
	_, err := wire.ParseConsumer("w", body)
	return err
}

func registration(body []byte) *wire.Error {
	_, err := wire.ParseConsume(body)
	return err
}

func check(body []byte) *wire.Error {
	_, err := api.ParseGuardCheck("k", body)
	return err
}
