// Package schematest checks what fila sends against the schemas, in tests of other packages. It is
// stricter than the schemas: a field that a schema does not have fails.
package schematest

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/schemas"
	"github.com/filaq/fila/wire"
)

// T is the part of a testing.TB that a check uses.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
}

// compiled are the compiled schemas by name.
var compiled struct {
	sync.Mutex
	schemas map[string]*jsonschema.Schema
}

// Check requires that the JSON has the form of a schema.
func Check(t T, name string, data []byte) {
	t.Helper()
	assert.NoError(t, Validate(t, name, data), "%s: %s", name, data) // assert: it may be another goroutine
}

// Validate returns an error if the JSON does not have the form of a schema.
func Validate(t T, name string, data []byte) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return err
	}
	return compile(t, name).Validate(v)
}

func compile(t T, name string) *jsonschema.Schema {
	t.Helper()
	compiled.Lock()
	defer compiled.Unlock()
	if s := compiled.schemas[name]; s != nil {
		return s
	}
	text, ok := schemas.Get(name)
	require.True(t, ok, "there is no schema %s", name)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	closeObjects(doc)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource(name, doc))
	s, err := c.Compile(name)
	require.NoError(t, err)
	if compiled.schemas == nil {
		compiled.schemas = make(map[string]*jsonschema.Schema)
	}
	compiled.schemas[name] = s
	return s
}

// closeObjects refuses other fields than the schemas of objects have.
func closeObjects(doc any) {
	switch doc := doc.(type) {
	case map[string]any:
		_, object := doc["properties"].(map[string]any)
		if _, open := doc["additionalProperties"]; object && !open {
			doc["additionalProperties"] = false
		}
		for _, part := range doc {
			closeObjects(part)
		}
	case []any:
		for _, part := range doc {
			closeObjects(part)
		}
	}
}

// Event checks an event that has no type and time yet.
func Event(t T, typ string, e wire.Event) {
	t.Helper()
	e.Type, e.Time = typ, "now"
	data, err := json.Marshal(e)
	assert.NoError(t, err)
	Check(t, "event."+typ, data)
}

// Published checks a published event.
func Published(t T, data []byte) {
	t.Helper()
	var e wire.Event
	assert.NoError(t, json.Unmarshal(data, &e))
	Check(t, "event."+e.Type, data)
}

// replies are the schemas of replies to requests that are no admin verbs, by kind of subject.
var replies = map[string]string{
	wire.KindEnqueue: "enqueue.reply", wire.KindConsume: "consume.reply", wire.KindConsumer: "consume.reply",
	"guard.check": "guard-check.reply", "guard.done": "guard-done.reply", "guard.state": "guard-state.reply",
}

// Reply checks the reply to a request on a subject, whose prefix has one token. It does not check
// empty replies, which confirm acks, and deliveries.
func Reply(t T, subject string, header map[string][]string, data []byte) {
	t.Helper()
	if wire.ParseError(header, data) != nil {
		Check(t, "error", data)
		checkHeaders(t, "error.headers", header)
		return
	}
	part := strings.Split(subject, ".")
	name := replies[part[1]]
	switch {
	case len(data) == 0 || len(part) < 3:
		return
	case part[1] == "admin":
		name = part[2] + ".reply"
	case part[1] == "guard":
		name = replies["guard."+part[2]]
	case part[1] == wire.KindAck || part[1] == wire.KindNack:
		name = "ack-batch.reply"
	case part[1] == wire.KindEnqueue && !bytes.Contains(data, []byte(`"id":`)):
		name = "enqueue-batch.reply"
	}
	if name != "" && len(header[wire.HeaderID]) == 0 {
		Check(t, name, data)
	}
}

func checkHeaders(t T, name string, header map[string][]string) {
	t.Helper()
	first := make(map[string]string, len(header))
	for k, v := range header {
		first[k] = v[0]
	}
	data, err := json.Marshal(first)
	require.NoError(t, err)
	Check(t, name, data)
}
