package applycmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// object is a thing that a document describes.
type object interface {
	// differs says how the object differs from what is there: nothing if it is the same. exists is whether
	// it is there.
	differs(ctx context.Context, w *world, id string) (exists bool, changes []Change, err error)
	// put makes it so. claim is the change of its owner; objects in the runtime configuration make it part
	// of their own.
	put(ctx context.Context, w *world, id string, exists bool, changes []Change) (warnings []string, err error)
}

// Change is the change of a field.
type Change struct {
	Field string          `json:"field"`
	From  json.RawMessage `json:"from"` // null: it is not set
	To    json.RawMessage `json:"to"`
}

// world is a fila and what is known of it.
type world struct {
	*command.Session
	config map[string]string    // the runtime configuration, as far as it is about objects
	owners map[string]api.Owner // by kind and name: "queue:orders"
}

const ownerPrefix = "owner:"

// look reads the runtime configuration.
func look(ctx context.Context, s *command.Session) (*world, error) {
	w := &world{Session: s, config: make(map[string]string), owners: make(map[string]api.Owner)}
	prefixes := []string{ownerPrefix}
	for _, k := range kinds {
		if k.config != "" {
			prefixes = append(prefixes, k.config+":")
		}
	}
	for _, prefix := range prefixes {
		entries, err := s.ConfigList(ctx, prefix)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			w.config[e.Key] = e.Value
			if id, ok := strings.CutPrefix(e.Key, ownerPrefix); ok {
				w.owners[id], _ = api.ReadOwner(e.Value) // what cannot be read is a name
			}
		}
	}
	return w, nil
}

// setOwner changes only the owner of an object, unless another one has taken it since the plan; nil
// leaves it to nobody.
func (w *world) setOwner(ctx context.Context, id string, o *api.Owner) (warnings []string, err error) {
	key := ownerPrefix + id
	req := api.ConfigEditRequest{Set: map[string]*string{key: nil}, If: map[string]*string{key: nil}}
	if o != nil {
		req.Set[key] = new(o.Text())
	}
	if text, ok := w.config[key]; ok {
		req.If[key] = &text
	}
	return w.edit(ctx, req)
}

// settings are an object in the runtime configuration: values by the last part of their keys, nil: not set.
// A key without a last part is the object as JSON.
type settings struct {
	values map[string]*string
}

func (s *settings) set(name, text string) { s.values[name] = &text }

func settingKey(id, name string) string {
	if name == "" {
		return id
	}
	return id + ":" + name
}

func (s *settings) differs(_ context.Context, w *world, id string) (exists bool, changes []Change, err error) {
	for _, name := range slices.Sorted(maps.Keys(s.values)) {
		text, ok := w.config[settingKey(id, name)]
		exists = exists || ok
		to := s.values[name]
		switch {
		case name == "":
			changes = append(changes, fieldChanges([]byte(text), []byte(*to))...)
		case to == nil && ok:
			changes = append(changes, Change{name, quoted(text), null})
		case to != nil && (!ok || text != *to):
			from := null
			if ok {
				from = quoted(text)
			}
			changes = append(changes, Change{name, from, quoted(*to)})
		}
	}
	return exists, changes, nil
}

func (s *settings) put(ctx context.Context, w *world, id string, _ bool, _ []Change) (warnings []string, err error) {
	req := api.ConfigEditRequest{Set: make(map[string]*string)}
	for name, text := range s.values {
		req.Set[settingKey(id, name)] = text
	}
	return w.edit(ctx, req)
}

// edit changes the runtime configuration, and warns of tables of the configuration file.
func (w *world) edit(ctx context.Context, req api.ConfigEditRequest) (warnings []string, err error) {
	reply, err := w.ConfigEdit(ctx, req)
	warnings = reply.Warnings
	for _, table := range reply.InFile {
		warnings = append(warnings, "config.toml of fila has "+table+": it wins at the next start or reload")
	}
	return warnings, err
}

// queue is a queue with its settings.
type queue struct{ wire.QueueSettings }

func (q *queue) differs(ctx context.Context, w *world, _ string) (exists bool, changes []Change, err error) {
	info, err := w.QueueInspect(ctx, q.Name, 0)
	if isNotFound(err) {
		return false, valueChanges(nil, q.QueueSettings, wire.DefaultQueueSettings(q.Name)), nil
	}
	if err != nil {
		return false, nil, err
	}
	return true, valueChanges(info.Settings, q.QueueSettings, nil), nil
}

func (q *queue) put(ctx context.Context, w *world, _ string, exists bool, changes []Change) ([]string, error) {
	settings := client.QueueChanges{}
	for _, ch := range changes {
		settings[ch.Field] = ch.To
	}
	body, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	verb := api.VerbQueueUpdate
	if !exists {
		verb = api.VerbQueueCreate
	}
	reply, err := client.Call(ctx, w.Client, verb, q.Name, body)
	return reply.Warnings, err
}

// schedule is a schedule of a queue.
type schedule struct {
	queue string
	api.ScheduleAddRequest
}

func (s *schedule) differs(ctx context.Context, w *world, _ string) (exists bool, changes []Change, err error) {
	info, err := w.ScheduleShow(ctx, s.queue, s.Name)
	if isNotFound(err) {
		return false, valueChanges(nil, s.ScheduleAddRequest, api.ScheduleAddRequest{Name: s.Name}), nil
	}
	now := api.ScheduleAddRequest{
		Name: s.Name, Schedule: info.Schedule, TimeZone: info.TimeZone, Missed: info.Missed, TTLMs: info.TTLMs, Headers: info.Headers, Payload: info.Payload,
	}
	return true, valueChanges(now, s.ScheduleAddRequest, nil), err
}

func (s *schedule) put(ctx context.Context, w *world, _ string, _ bool, _ []Change) ([]string, error) {
	reply, err := w.ScheduleAdd(ctx, s.queue, s.ScheduleAddRequest)
	return reply.Warnings, err
}

// isNotFound reports whether fila has said that something does not exist.
func isNotFound(err error) bool {
	var e *client.Error
	return errors.As(err, &e) && e.Code == 404
}

var null = json.RawMessage("null")

func quoted(text string) json.RawMessage {
	b, err := json.Marshal(text)
	if err != nil {
		return null
	}
	return b
}

// valueChanges returns the changes from one value to another, both structs; from may be nil. Fields that are
// as in standard, unless that is nil, are no changes.
func valueChanges(from, to, standard any) []Change {
	encode := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			return nil
		}
		return b
	}
	changes := fieldChanges(encode(from), encode(to))
	if standard == nil {
		return changes
	}
	plain := objectFields(encode(standard))
	return slices.DeleteFunc(changes, func(ch Change) bool { return bytes.Equal(ch.To, plain[ch.Field]) })
}

// fieldChanges returns the changes of fields from one JSON object to another, by name.
func fieldChanges(from, to []byte) (changes []Change) {
	old, next := objectFields(from), objectFields(to)
	names := make(map[string]bool)
	for name := range old {
		names[name] = true
	}
	for name := range next {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, b := orNull(old[name]), orNull(next[name])
		if !bytes.Equal(a, b) {
			changes = append(changes, Change{name, a, b})
		}
	}
	return changes
}

func orNull(v json.RawMessage) json.RawMessage {
	if v == nil {
		return null
	}
	return v
}

// objectFields returns the fields of a JSON object in their shortest form; none if it is no object.
func objectFields(text []byte) map[string]json.RawMessage {
	var values map[string]any
	if json.Unmarshal(text, &values) != nil {
		return nil
	}
	fields := make(map[string]json.RawMessage, len(values))
	for name, v := range values {
		b, err := json.Marshal(v)
		if err == nil && v != nil {
			fields[name] = b
		}
	}
	return fields
}

// Actions of steps.
const (
	Create = "create"
	Update = "update"
	Delete = "delete"
	Adopt  = "adopt" // only the owner changes
)

// Step is the change of an object.
type Step struct {
	Kind    string   `json:"kind"`
	Name    string   `json:"name"`
	Action  string   `json:"action"`
	Changes []Change `json:"changes,omitempty"`

	id     string
	object object
	kind   *kind
	exists bool
}

// plan returns the steps that make the documents so, and with prune the ones that delete what the owner has
// applied and the documents do not have.
func plan(ctx context.Context, w *world, docs []*document, team string, prune bool) (steps []*Step, err error) {
	wanted := make(map[string]*document)
	for _, d := range docs {
		o, k, err := d.makeObject()
		if err != nil {
			return nil, err
		}
		step := &Step{Kind: k.Kind, Name: d.Name, id: objectID(k, d.Name, o), object: o, kind: k}
		if first := wanted[step.id]; first != nil {
			return nil, d.fail("%s %s is in %s:%d as well", k.Kind, d.Name, first.file, first.line)
		}
		wanted[step.id] = d
		other, owned := w.owners[step.id]
		step.exists, step.Changes, err = o.differs(ctx, w, step.id)
		switch {
		case err != nil:
			return nil, w.about(step, err)
		case owned && other.Owner != team && (step.exists || k.config != ""): // otherwise it is the owner of an earlier one
			return nil, command.Exit(command.ExitConflict, d.fail("%s %s belongs to %s, not to %s", k.Kind, d.Name, other.Owner, team))
		case !step.exists:
			step.Action = Create
		case len(step.Changes) > 0:
			step.Action = Update
		case !owned:
			step.Action = Adopt
		default:
			continue
		}
		steps = append(steps, step)
	}
	slices.SortStableFunc(steps, func(a, b *Step) int { return rank(a.kind) - rank(b.kind) })
	if prune {
		steps = append(steps, w.pruned(wanted, team)...)
	}
	return steps, nil
}

func rank(k *kind) int {
	return slices.IndexFunc(kinds, func(other kind) bool { return other.Kind == k.Kind })
}

// objectID is the name of an object in the keys of owners, and of its settings.
func objectID(k *kind, name string, o object) string {
	if s, ok := o.(*schedule); ok {
		name = s.queue + "/" + name
	}
	return k.id() + ":" + name
}

// id is the kind in keys.
func (k *kind) id() string {
	if k.config != "" {
		return k.config
	}
	return strings.ToLower(k.Kind)
}

// about adds the object of a step to an error of fila.
func (w *world) about(s *Step, err error) error {
	err = w.Explain(err)
	return command.Exit(command.ExitCode(err), fmt.Errorf("%s %s: %w", s.Kind, terminal.Clean(s.Name), err))
}

// pruned returns steps that delete objects of an owner without a document, in an order in which nothing
// goes before what names it.
func (w *world) pruned(wanted map[string]*document, team string) (steps []*Step) {
	for i := len(kinds) - 1; i >= 0; i-- {
		k := &kinds[i]
		for _, id := range slices.Sorted(maps.Keys(w.owners)) {
			name, ok := strings.CutPrefix(id, k.id()+":")
			if ok && w.owners[id].Owner == team && wanted[id] == nil {
				steps = append(steps, &Step{Kind: k.Kind, Name: name, Action: Delete, id: id, kind: k, exists: true})
			}
		}
	}
	return steps
}

// carryOut makes a step.
func (s *Step) carryOut(ctx context.Context, w *world, by api.Owner) (warnings []string, err error) {
	if s.Action == Delete {
		return s.remove(ctx, w)
	}
	if s.Action == Adopt {
		return w.setOwner(ctx, s.id, &by)
	}
	return s.object.put(ctx, w, s.id, s.exists, s.Changes)
}

// remove deletes an object, which then has no owner.
func (s *Step) remove(ctx context.Context, w *world) (warnings []string, err error) {
	if s.kind.config != "" {
		req := api.ConfigEditRequest{Set: map[string]*string{ownerPrefix + s.id: nil}}
		for key := range w.config {
			if name, ok := strings.CutPrefix(key, s.id); ok && (name == "" || name[0] == ':' && slices.Contains(s.kind.fields(), name[1:])) {
				req.Set[key] = nil
			}
		}
		return w.edit(ctx, req)
	}
	if s.kind.Kind == "Queue" {
		var reply api.QueueDeleteReply
		reply, err = w.QueueDelete(ctx, s.Name, false)
		warnings = reply.Warnings
	} else {
		var reply api.ScheduleInfo
		queue, name, _ := strings.Cut(s.Name, "/")
		reply, err = w.ScheduleDelete(ctx, queue, name)
		warnings = reply.Warnings
	}
	if isNotFound(err) { // it was deleted before, and its owner is left
		return w.setOwner(ctx, s.id, nil)
	}
	return warnings, err
}

// String describes a step for people: a line, and one for each field.
func (s *Step) String() string {
	sign := map[string]string{Create: "+", Update: "~", Delete: "-", Adopt: "="}[s.Action]
	text := fmt.Sprintf("%s %s %s", sign, s.Kind, terminal.Clean(s.Name))
	if s.Action == Adopt {
		text += ": nobody has it yet"
	}
	text += "\n"
	for _, ch := range s.Changes {
		text += "    " + ch.String() + "\n"
	}
	return text
}

// String returns a change as "field: from -> to".
func (ch Change) String() string {
	if s := string(ch.From); s == "null" {
		return ch.Field + ": " + show(ch.To)
	}
	return ch.Field + ": " + show(ch.From) + " -> " + show(ch.To)
}

// show returns a value in a line.
func show(v json.RawMessage) string {
	const most = 60
	text := string(v)
	if text == "null" {
		return "none"
	}
	var s string
	if json.Unmarshal(v, &s) == nil {
		if lines := strings.Count(s, "\n"); lines > 0 {
			return fmt.Sprintf("a text of %d lines", lines+1)
		}
		if len(s) < most && s != "" && !strings.ContainsAny(s, " \"") && terminal.Clean(s) == s {
			text = s
		}
	}
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "..."
	}
	return text
}
