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
	Spec
	config string // of its keys in the runtime configuration; empty: objects of it are elsewhere
	// make makes the object of a document whose fields are known; spec has the fields as JSON.
	make func(d *document, spec []byte) (object, error)
}

// Spec describes the documents of a kind.
type Spec struct {
	Kind     string
	Fields   any      // a struct with the fields of a spec, which have their defaults; its name or key is the name of the document
	Required []string // fields
}

// kinds are in the order in which objects are applied: what others name comes first.
var kinds = []kind{
	{Spec{"RetryPolicy", rules.DefaultRetryPolicy(""), nil}, "retry_policy", makeTable[rules.RetryPolicy]},
	{Spec{"ErrorRule", rules.OrderedRule{}, nil}, "error_rule", makeTable[rules.OrderedRule]},
	{Spec{"Guard", config.GuardTable{}, nil}, "guard", makeTable[config.GuardTable]},
	{Spec{"RouteChoice", config.RouteChoice{}, []string{"routes"}}, "route_choice", makeRoutes},
	{Spec{"Throttle", api.ThrottleLimits{}, nil}, "throttle", makeThrottle},
	{Spec{"Circuit", config.CircuitLimits{}, nil}, "circuit", makeCircuit},
	{Spec{"Queue", wire.DefaultQueueSettings(""), nil}, "", makeQueue},
	{Spec{"Schedule", scheduleSpec{ScheduleAddRequest: api.ScheduleAddRequest{Missed: wire.MissedOne}}, []string{"queue", "schedule"}}, "", makeSchedule},
}

// Specs returns what the documents of all kinds have.
func Specs() (all []Spec) {
	for i := range kinds {
		all = append(all, kinds[i].Spec)
	}
	return all
}

// scheduleSpec is a schedule of a queue.
type scheduleSpec struct {
	Queue   string `json:"queue"`
	Payload any    `json:"payload,omitempty"` // a text, or anything else that becomes JSON
	api.ScheduleAddRequest
}

func kindNames() (names []string) {
	for i := range kinds {
		names = append(names, kinds[i].Kind)
	}
	return names
}

// fields returns the names of the fields of a spec.
func (s *Spec) fields() (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeOf(s.Fields)) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !slices.Contains([]string{"", "-", "name", "key"}, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// makeObject makes the object of a document.
func (d *document) makeObject() (object, *kind, error) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.Kind == d.Kind })
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
		return nil, nil, d.fail("%s %s: %w", k.Kind, d.Name, err)
	}
	return o, k, nil
}

// spec returns the fields of a document as JSON. A field of milliseconds, whose name ends in _ms, may
// also be a duration such as 45s, with or without the ending.
func (k *kind) spec(d *document) ([]byte, error) {
	known, fields := k.fields(), make(map[string]any, len(d.Spec))
	for _, name := range slices.Sorted(maps.Keys(d.Spec)) {
		value, field := d.Spec[name], name
		if !slices.Contains(known, field) {
			field += "_ms"
		}
		if !slices.Contains(known, field) {
			return nil, d.fail("%s %s: unknown field %q%s", k.Kind, d.Name, name, nearest(name, slices.Concat(known, durations(known))))
		}
		if _, twice := fields[field]; twice {
			return nil, d.fail("%s %s: %s and %s are the same: one of them is allowed", k.Kind, d.Name, strings.TrimSuffix(field, "_ms"), field)
		}
		if text, ok := value.(string); ok && strings.HasSuffix(field, "_ms") {
			ms, err := terminal.ParseMs(text)
			if err != nil {
				return nil, d.fail("%s %s: %s: %w", k.Kind, d.Name, name, err)
			}
			value = ms
		} else if field != name {
			return nil, d.fail("%s %s: %s is %v: allowed is a duration such as 45s, or %s in milliseconds", k.Kind, d.Name, name, value, field)
		}
		fields[field] = value
	}
	for _, name := range k.Required {
		if fields[name] == nil || fields[name] == "" {
			return nil, d.fail("%s %s: %s is missing", k.Kind, d.Name, name)
		}
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, d.fail("%s %s: %w", k.Kind, d.Name, err)
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

// makeTable makes an object that is one JSON value of the runtime configuration.
func makeTable[T wire.Bounded](_ *document, spec []byte) (object, error) {
	var table T
	if err := decode(spec, &table); err != nil {
		return nil, err
	}
	if out := wire.OutOfBounds(table); out != nil {
		return nil, out
	}
	text := string(spec) // of a map: its keys are sorted
	return &settings{values: map[string]*string{"": &text}}, nil
}

func makeRoutes(d *document, spec []byte) (object, error) {
	var choice config.RouteChoice
	if err := decode(spec, &choice); err != nil {
		return nil, err
	}
	if _, err := choice.Tables(d.Name); err != nil {
		return nil, err
	}
	text := string(spec)
	return &settings{values: map[string]*string{"": &text}}, nil
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
	case l.Rate == nil && l.Concurrency == nil && l.Limit == nil && l.Budget == nil:
		return nil, fmt.Errorf("it limits nothing: set at least one of rate, concurrency, limit with window, and budget with period")
	case (l.Budget == nil) != (l.Period == nil) || l.Budget == nil && (l.Zone != nil || l.WarnAt != nil || l.OnEmpty != nil):
		return nil, fmt.Errorf("budget and period go together, and zone, warn_at and on_empty need them")
	case (l.Limit == nil) != (l.WindowMs == nil):
		return nil, fmt.Errorf("limit and window go together")
	case l.Burst != nil && l.Rate == nil:
		return nil, fmt.Errorf("burst needs a rate")
	case l.Adapt != nil && l.Rate == nil && l.Concurrency == nil:
		return nil, fmt.Errorf("adapt needs concurrency or rate, one of which is its ceiling")
	}
	s := &settings{values: map[string]*string{"rate": nil, "burst": nil}}
	if l.Rate != nil {
		s.set("rate", string(*l.Rate))
	}
	if l.Burst != nil {
		s.set("burst", strconv.FormatFloat(*l.Burst, 'f', -1, 64))
	}
	if s.values["adapt"] = nil; l.Adapt != nil {
		s.set("adapt", l.Adapt.Text())
	}
	if s.values["level"] = nil; l.Level != nil {
		return nil, fmt.Errorf("level is for incidents: set it by hand, with an end")
	}
	for name, n := range map[string]*int64{"concurrency": l.Concurrency, "limit": l.Limit, "window_ms": l.WindowMs} {
		if s.values[name] = nil; n != nil {
			s.set(name, strconv.FormatInt(*n, 10))
		}
	}
	for _, name := range []string{"budget", "period", "zone", "warn_at", "on_empty"} {
		s.values[name] = nil
	}
	if l.Budget != nil {
		s.set("budget", strconv.FormatFloat(*l.Budget, 'f', -1, 64))
		s.set("period", *l.Period)
	}
	if l.Zone != nil {
		s.set("zone", *l.Zone)
	}
	if l.OnEmpty != nil {
		s.set("on_empty", *l.OnEmpty)
	}
	if l.WarnAt != nil {
		s.set("warn_at", api.PartsText(*l.WarnAt))
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
		return nil, fmt.Errorf("it sets nothing: set at least one of %s", strings.Join(slices.Sorted(maps.Keys(s.values)), ", "))
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
	return &queue{q}, q.Validate()
}

func makeSchedule(d *document, spec []byte) (object, error) {
	var fields scheduleSpec
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
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("%s", err.Description)
	}
	return s, nil
}
