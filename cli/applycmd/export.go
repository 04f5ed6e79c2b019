package applycmd

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// export returns the objects of an owner, or all, in the order in which they can be applied.
func export(ctx context.Context, s *command.Session, name string) ([]*exported, error) {
	w, err := look(ctx, s)
	if err != nil {
		return nil, err
	}
	all := []*exported{}
	for i := range kinds {
		k := &kinds[i]
		var found []*exported
		switch {
		case k.config != "":
			found = w.exportSettings(k)
		case k.Kind == "Queue":
			found, err = w.exportQueues(ctx)
		default:
			found, err = w.exportSchedules(ctx)
		}
		if err != nil {
			return nil, err
		}
		for _, d := range found {
			id := d.Name
			if k.Kind == "Schedule" {
				var queue string
				_ = json.Unmarshal(d.Spec["queue"], &queue)
				id = queue + "/" + d.Name
			}
			if name == "" || w.owners[k.id()+":"+id].Owner == name {
				all = append(all, d)
			}
		}
	}
	return all, nil
}

// exportSettings returns the objects of a kind in the runtime configuration.
func (w *world) exportSettings(k *kind) (all []*exported) {
	byName := make(map[string]*exported)
	for _, key := range slices.Sorted(maps.Keys(w.config)) {
		rest, ok := strings.CutPrefix(key, k.config+":")
		if !ok {
			continue
		}
		name, field := rest, ""
		if k.Kind == "Throttle" || k.Kind == "Circuit" {
			cut := strings.LastIndexByte(rest, ':')
			if cut < 0 || !slices.Contains(k.fields(), rest[cut+1:]) {
				continue
			}
			name, field = rest[:cut], rest[cut+1:]
		}
		d := byName[name]
		if d == nil {
			d = &exported{Kind: k.Kind, Name: name, Spec: make(map[string]json.RawMessage)}
			byName[name] = d
			all = append(all, d)
		}
		switch text := w.config[key]; {
		case field == "":
			d.Spec = objectFields([]byte(text))
		case field == "rate" || !json.Valid([]byte(text)):
			d.Spec[field] = quoted(text)
		default:
			d.Spec[field] = json.RawMessage(text)
		}
	}
	return all
}

func (w *world) exportQueues(ctx context.Context) (all []*exported, err error) {
	queues, err := w.QueueList(ctx)
	if err != nil {
		return nil, err
	}
	for _, q := range queues {
		if wire.IsDLQ(q.Name) {
			continue
		}
		info, err := w.QueueInspect(ctx, q.Name, 0)
		if err != nil {
			return nil, err
		}
		all = append(all, changed("Queue", q.Name, valueChanges(wire.DefaultQueueSettings(q.Name), info.Settings, nil)))
	}
	return all, nil
}

func (w *world) exportSchedules(ctx context.Context) (all []*exported, err error) {
	schedules, err := w.ScheduleList(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, s := range schedules {
		if s.ByEnqueue {
			continue // a producer made it
		}
		info, err := w.ScheduleShow(ctx, s.Queue, s.Name)
		if err != nil {
			return nil, err
		}
		d := changed("Schedule", s.Name, valueChanges(api.ScheduleAddRequest{Missed: wire.MissedOne}, api.ScheduleAddRequest{
			Schedule: info.Schedule, TimeZone: info.TimeZone, Missed: info.Missed, TTLMs: info.TTLMs, Headers: info.Headers,
		}, nil))
		d.Spec["queue"] = quoted(s.Queue)
		if len(info.Payload) > 0 {
			d.Spec["payload"] = quoted(string(info.Payload))
		}
		all = append(all, d)
	}
	return all, nil
}

// changed is a document with the fields that are not as by default.
func changed(kind, name string, changes []Change) *exported {
	d := &exported{Kind: kind, Name: name, Spec: make(map[string]json.RawMessage)}
	for _, ch := range changes {
		d.Spec[ch.Field] = ch.To
	}
	return d
}

// yamlText returns documents as a file for fila apply.
func yamlText(docs []*exported) string {
	var b strings.Builder
	for i, d := range docs {
		if i > 0 {
			b.WriteString("---\n")
		}
		spec := make(map[string]any, len(d.Spec))
		for name, text := range d.Spec {
			var v any
			if json.Unmarshal(text, &v) == nil {
				spec[name] = v
			}
		}
		text, err := yaml.Marshal(struct {
			Kind string
			Name string
			Spec map[string]any
		}{d.Kind, d.Name, spec})
		if err != nil {
			continue // it came from JSON
		}
		b.Write(text)
	}
	return b.String()
}
