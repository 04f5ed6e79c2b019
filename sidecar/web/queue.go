package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// queueData is the data of the page of a queue.
type queueData struct {
	api.QueueInfo
	Why       api.ExplainQueue
	Attention api.Attention
	Source    string // of a dead letter queue
	Line      line
	Counted   []counter
	Waits     chart
	Rates     chart
	Depth     chart
	Heat      heatPicture
	Marks     marks
	Dead      int64 // its dead letters
}

// IsDLQ is for templates.
func (d queueData) IsDLQ() bool { return d.Source != "" }

// Served reports whether consumers have had messages since the process started.
func (d queueData) Served() bool { return d.Counters["delivered"] > 0 }

// explaining are the conditions that say what the sentence of explain says.
var explaining = []string{"no-consumers", "circuit-open", "safety-limit", "held-by-limit", "paused"}

// Explained reports whether a finding says why messages wait.
func (d queueData) Explained() bool {
	return slices.ContainsFunc(d.Attention.Findings, func(f api.Finding) bool { return slices.Contains(explaining, f.Condition) })
}

type counter struct {
	Name string
	N    int64
}

func queuePage(a *ask) (any, error) {
	name := a.r.PathValue("queue")
	d := queueData{}
	if err := a.verb(api.VerbQueueInspect, name, api.QueueInspectRequest{}, &d.QueueInfo); err != nil {
		return nil, err
	}
	if err := a.verb(api.VerbExplain, "", api.ExplainRequest{Kind: "queue", Queue: name}, &d.Why); err != nil {
		return nil, err
	}
	s, err := a.web.history.fresh(a.web)
	if err != nil {
		return nil, err
	}
	d.Dead = s.dead[d.DLQ]
	if wire.IsDLQ(name) {
		d.Source = wire.Source(name)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Counters)) {
		d.Counted = append(d.Counted, counter{strings.ReplaceAll(name, "_", " "), d.Counters[name]})
	}
	d.Line = a.web.history.of(name, historyPoints)
	if d.Marks, err = marksOf(a, api.MarksRequest{Queue: name}, bandTime); err != nil {
		return nil, err
	}
	lines := func(pairs ...string) chart { return chartOf(d.Line.Past, d.Marks, queueLines(pairs...)...) }
	d.Waits = lines("median", "p50 wait", "high", "p99 wait")
	d.Rates = lines("enqueued", "enqueued", "failed", "failed", "acked", "acked", "terminated", "terminated", "dead", "dead-lettered")
	d.Depth = lines("ready", "ready", "blocked", "blocked", "delayed", "delayed", "in flight", "in flight")
	now := time.Now()
	d.Heat = heatPictureOf(a.web.history.heat(name, now), now)
	d.Heat.Marks = d.Marks.Until(now.Truncate(time.Minute).Add(time.Minute), d.Heat.Minutes) // the last column is this minute
	d.Attention, err = attentionOf(a, name)
	return d, err
}

// queueSettingsData has the settings of a queue.
type queueSettingsData struct{ Settings []setting }

// setting is one setting, as people read it and as requests have it.
type setting struct {
	field
	Raw    string // "": as Value
	Source api.Source
}

func queueSettings(a *ask) (any, error) {
	var info api.QueueInfo
	if err := a.verb(api.VerbQueueInspect, a.r.PathValue("queue"), api.QueueInspectRequest{}, &info); err != nil {
		return nil, err
	}
	fields, err := settingsOf(info.Settings)
	d := new(queueSettingsData)
	for _, f := range fields {
		d.Settings = append(d.Settings, settingFrom(f, info.Sources[f.Name]))
	}
	return d, err
}

// settingFrom adds units and the source to a setting.
func settingFrom(f field, source api.Source) setting {
	s := setting{field: f, Source: source}
	n, err := strconv.ParseInt(f.Value, 10, 64)
	name, isTime := strings.CutSuffix(f.Name, "_ms")
	var list []string
	switch {
	case err == nil && isTime:
		s.Name, s.Value, s.Raw = name, spanMs(n), f.Value+" ms"
	case err == nil:
		s.Value = grouped(n)
	case json.Unmarshal([]byte(f.Value), &list) == nil:
		s.Value = strings.Join(list, ", ")
	}
	return s
}

// settingsOf lists non-empty settings as in requests. Scripts have a page of their own.
func settingsOf(s wire.QueueSettings) ([]field, error) {
	var data bytes.Buffer
	enc := json.NewEncoder(&data)
	enc.SetEscapeHTML(false) // the template escapes
	if err := enc.Encode(s); err != nil {
		return nil, err
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(data.Bytes(), &values); err != nil {
		return nil, err
	}
	var list []field
	for _, name := range slices.Sorted(maps.Keys(values)) {
		text := string(values[name])
		switch {
		case name == "name" || text == `""` || text == "0" || text == "null" || text == "[]":
			continue
		case name == wire.HookOnEnqueue || name == wire.HookOnFailure:
			text = "a script"
		case text[0] == '"':
			if err := json.Unmarshal(values[name], &text); err != nil {
				return nil, err
			}
		}
		list = append(list, field{name, text})
	}
	return list, nil
}

// shownPauses is how many pauses a page reads.
const shownPauses = api.MaxListLimit

// keyPauses lists pauses of fairness keys of a queue among the first shownPauses.
func keyPauses(a *ask, queue string) ([]api.PauseInfo, error) {
	var all api.PauseList
	if err := a.verb(api.VerbPauseList, "", api.ListRequest{Limit: shownPauses}, &all); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all.Pauses, func(p api.PauseInfo) bool { return p.Kind != api.PauseKey || p.Queue != queue }), nil
}

// setWeight sets the weight of a fairness key, or removes the override.
func setWeight(a *ask, form url.Values) (string, error) {
	queue, key, weight := form.Get("queue"), form.Get("key"), form.Get("weight")
	name := "weight:" + queue + ":" + key
	if weight == "" {
		return fmt.Sprintf("The override of the weight of %s in %s is removed: its messages decide the weight.", key, queue), a.verb(api.VerbConfigDelete, name, nil, nil)
	}
	return fmt.Sprintf("The weight of %s is %s in %s now.", key, weight, queue), a.verb(api.VerbConfigSet, name, api.ConfigSetRequest{Value: weight}, nil)
}

// resetHooks closes the circuits of a queue's hooks.
func resetHooks(a *ask, form url.Values) (string, error) {
	queue := form.Get("queue")
	return "The hooks of " + queue + " run again.", a.verb(api.VerbHookReset, queue, api.HookResetRequest{Hook: form.Get("hook")}, nil)
}
