package applycmd

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// kind is a kind of documents.
type kind struct {
	name   string   // in documents
	config string   // of its keys in the runtime configuration; empty: objects of it are elsewhere
	fields []string // of a spec
	// make makes the object of a document whose fields are known; spec has the fields as JSON.
	make func(d *document, spec []byte) (object, error)
}

// kinds are in the order in which objects are applied: what others name comes first.
var kinds = []kind{
	{"RetryPolicy", "retry_policy", without(fieldsOf(rules.RetryPolicy{}), "name"), table(func() any { return new(rules.RetryPolicy) })},
	{"ErrorRule", "error_rule", append(without(fieldsOf(rules.ErrorRule{}), "name"), "order"), table(func() any { return new(orderedRule) })},
	{"Guard", "guard", without(fieldsOf(config.GuardTable{}), "key"), table(func() any { return new(config.GuardTable) })},
	{"Throttle", "throttle", fieldsOf(api.ThrottleLimits{}), makeThrottle},
	{"Circuit", "circuit", circuitFields(), makeCircuit},
	{"Queue", "", without(fieldsOf(wire.QueueSettings{}), "name"), makeQueue},
	{"Schedule", "", append(without(fieldsOf(api.ScheduleAddRequest{}), "name"), "queue"), makeSchedule},
}

// orderedRule is an error rule with its place among others.
type orderedRule struct {
	Order int64 `json:"order"`
	rules.ErrorRule
}

func kindNames() (names []string) {
	for i := range kinds {
		names = append(names, kinds[i].name)
	}
	return names
}

// fieldsOf returns the names of the fields of a struct in JSON.
func fieldsOf(v any) (names []string) {
	t := reflect.TypeOf(v)
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

func without(names []string, name string) []string {
	return slices.DeleteFunc(names, func(n string) bool { return n == name })
}

func circuitFields() (names []string) {
	for _, limit := range config.EachCircuitLimit {
		names = append(names, limit.Key)
	}
	return names
}

// makeObject makes the object of a document.
func (d *document) makeObject() (object, *kind, error) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == d.Kind })
	if i < 0 {
		return nil, nil, d.fail("unknown kind %q%s", d.Kind, nearest(d.Kind, kindNames()))
	}
	k := &kinds[i]
	spec, err := k.spec(d)
	if err != nil {
		return nil, nil, err
	}
	o, err := k.make(d, spec)
	if err != nil {
		return nil, nil, d.fail("%s %s: %w", k.name, d.Name, err)
	}
	return o, k, nil
}

// spec returns the fields of a document as JSON. A field of milliseconds, whose name ends in _ms, may
// also be a duration such as 45s, with or without the ending.
func (k *kind) spec(d *document) ([]byte, error) {
	fields := make(map[string]any, len(d.Spec))
	for _, name := range slices.Sorted(maps.Keys(d.Spec)) {
		value, field := d.Spec[name], name
		if !slices.Contains(k.fields, field) {
			field += "_ms"
		}
		if !slices.Contains(k.fields, field) {
			known := slices.Concat(k.fields, durations(k.fields))
			return nil, d.fail("%s %s: unknown field %q%s", k.name, d.Name, name, nearest(name, known))
		}
		if _, twice := fields[field]; twice {
			return nil, d.fail("%s %s: %s and %s are the same: one of them is allowed", k.name, d.Name, strings.TrimSuffix(field, "_ms"), field)
		}
		if text, ok := value.(string); ok && strings.HasSuffix(field, "_ms") {
			ms, err := terminal.ParseMs(text)
			if err != nil {
				return nil, d.fail("%s %s: %s: %w", k.name, d.Name, name, err)
			}
			value = ms
		} else if field != name {
			return nil, d.fail("%s %s: %s is %v: allowed is a duration such as 45s, or %s in milliseconds", k.name, d.Name, name, value, field)
		}
		fields[field] = value
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, d.fail("%s %s: %w", k.name, d.Name, err)
	}
	return text, nil
}

// durations returns the fields of milliseconds without their endings.
func durations(fields []string) (names []string) {
	for _, name := range fields {
		if short, ok := strings.CutSuffix(name, "_ms"); ok {
			names = append(names, short)
		}
	}
	return names
}

// decode decodes a spec, with errors that name the field.
func decode(spec []byte, into any) error {
	if err := wire.DecodeStrict(spec, into); err != nil {
		return fmt.Errorf("%s", err.Description)
	}
	return nil
}

// table makes objects that are one JSON value of the runtime configuration.
func table(newTable func() any) func(d *document, spec []byte) (object, error) {
	return func(d *document, spec []byte) (object, error) {
		if err := decode(spec, newTable()); err != nil {
			return nil, err
		}
		text := string(spec) // of a map: its keys are sorted
		return &settings{values: map[string]*string{"": &text}}, nil
	}
}

func makeThrottle(_ *document, spec []byte) (object, error) {
	var req api.ThrottleSetRequest
	if err := decode(spec, &req.ThrottleLimits); err != nil {
		return nil, err
	}
	req.Key = "k" // any
	if err := req.Validate(); err != nil {
		return nil, fmt.Errorf("%s", err.Description)
	}
	l := &req.ThrottleLimits
	switch {
	case l.Rate == nil && l.Concurrency == nil && l.Limit == nil:
		return nil, fmt.Errorf("it limits nothing: set at least one of rate, concurrency, and limit with window")
	case (l.Limit == nil) != (l.WindowMs == nil):
		return nil, fmt.Errorf("limit and window go together")
	case l.Burst != nil && l.Rate == nil:
		return nil, fmt.Errorf("burst needs a rate")
	}
	s := &settings{values: map[string]*string{"rate": nil, "burst": nil}}
	if l.Rate != nil {
		s.set("rate", string(*l.Rate))
	}
	if l.Burst != nil {
		s.set("burst", strconv.FormatFloat(*l.Burst, 'f', -1, 64))
	}
	for name, n := range map[string]*int64{"concurrency": l.Concurrency, "limit": l.Limit, "window_ms": l.WindowMs} {
		if s.values[name] = nil; n != nil {
			s.set(name, strconv.FormatInt(*n, 10))
		}
	}
	return s, nil
}

func makeCircuit(d *document, spec []byte) (object, error) {
	fields := make(map[string]int64)
	if err := json.Unmarshal(spec, &fields); err != nil {
		return nil, fmt.Errorf("allowed are whole numbers and durations")
	}
	if strings.HasSuffix(d.Name, "*") {
		return nil, fmt.Errorf("circuits have no prefixes")
	}
	s := &settings{values: make(map[string]*string)}
	for _, limit := range config.EachCircuitLimit {
		s.values[limit.Key] = nil
		n, ok := fields[limit.Key]
		if !ok {
			continue
		}
		if n < limit.Low || n > limit.High {
			return nil, fmt.Errorf("%s is %d: allowed is %d to %d", limit.Key, n, limit.Low, limit.High)
		}
		s.set(limit.Key, strconv.FormatInt(n, 10))
	}
	if len(fields) == 0 {
		return nil, fmt.Errorf("it sets nothing: set at least one of %s", strings.Join(circuitFields(), ", "))
	}
	return s, nil
}

func makeQueue(d *document, spec []byte) (object, error) {
	q := wire.DefaultQueueSettings(d.Name)
	if err := decode(spec, &q); err != nil {
		return nil, err
	}
	if wire.IsDLQ(d.Name) {
		return nil, fmt.Errorf("a dead letter queue comes with its queue")
	}
	for _, hook := range []struct{ file, text *string }{{&q.OnEnqueueFile, &q.OnEnqueue}, {&q.OnFailureFile, &q.OnFailure}} {
		if *hook.file == "" {
			continue
		}
		if *hook.text != "" {
			return nil, fmt.Errorf("a hook has a file or a text: one of them is allowed")
		}
		path := *hook.file
		if !filepath.IsAbs(path) && d.file != "-" {
			path = filepath.Join(filepath.Dir(d.file), path)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		*hook.file, *hook.text = "", string(text)
	}
	q.Name = d.Name
	return &queue{q}, nil
}

func makeSchedule(d *document, spec []byte) (object, error) {
	var fields struct {
		Queue   string `json:"queue"`
		Payload any    `json:"payload"` // a text, or what becomes JSON
		api.ScheduleAddRequest
	}
	fields.Missed = wire.MissedOne
	if err := decode(spec, &fields); err != nil {
		return nil, err
	}
	s := &schedule{queue: fields.Queue, ScheduleAddRequest: fields.ScheduleAddRequest}
	s.Name = d.Name
	switch payload := fields.Payload.(type) {
	case nil:
	case string:
		s.Payload = []byte(payload)
	default:
		text, err := json.Marshal(payload)
		if err != nil {
			return nil, err
		}
		s.Payload = text
	}
	if s.queue == "" {
		return nil, fmt.Errorf("queue is missing")
	}
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("%s", err.Description)
	}
	return s, nil
}
