package opscmd

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// knownEvent is an event that fila publishes, with its colour and its sentence.
//
// In a sentence {name} is a field of the event. A part in <> is shown if all its fields have a
// text; a part that begins with "name?" or "!name?" is shown if the field is set, or is not: null
// and false are not.
type knownEvent struct {
	name  string
	paint func(terminal.Style, string) string
	text  string
}

const (
	circuitTurned = "changed from {old} to {new}< ({cause})><, failures in a row: {consecutive_failures}><, until {until}>"
	callFailed    = "<call?a call of {key}>< by {caller}><!call?message {id} of key {key} in queue {queue}> failed, attempt {attempts}< by route {route}>: <[{error_code}] >{error} (rule {rule})"
	jobTurned     = "job {job} ({op}) of queue {queue}: {word}, {done} of {matched} done<; {why}>"
	scheduleTurns = "schedule {schedule} of queue {queue}: {word}<, runs: {missed}><, {description}>< ({text})>"
)

var knownEvents = func() []knownEvent {
	red, yellow, green := terminal.Style.Red, terminal.Style.Yellow, terminal.Style.Green
	return []knownEvent{
		{wire.EventQueueCreated, green, "queue {queue} was created"},
		{wire.EventQueueUpdated, green, "the settings of queue {queue} changed"},
		{wire.EventQueueDeleted, green, "queue {queue} was deleted, with messages: {messages}"},
		{wire.EventConfigChanged, green, "{key}<value? is {value}><!value? was deleted><previous?; it was {previous}>"},
		{wire.EventRefused, red, "a message without reply subject was refused< by queue {queue}>: {description} [err_code {err_code}]<; earlier refusals that were not reported: {not_reported}>"},
		{wire.EventDeadLettered, red, "message {id} of queue {queue} was dead-lettered ({reason}), attempts: {attempts}<; last error: {error}>"},
		{wire.EventRedriven, green, "messages redriven from {queue}" + wire.DLQSuffix + " to {queue}: {redriven}"},
		{wire.EventCircuitChanged, yellow, "circuit {key} " + circuitTurned},
		{wire.EventThrottleCut, yellow, "the {of} of throttle {key} was cut from {old} to {new} by {cause}"},
		{wire.EventHookCircuitChanged, yellow, "the circuit of {hook} of queue {queue} " + circuitTurned},
		{wire.EventConsumerJoined, green, "consumer {consumer} joined queue {queue}, up to {max_in_flight} in flight"},
		{wire.EventConsumerLeft, yellow, "consumer {consumer} left queue {queue}, in flight: {in_flight}"},
		{wire.EventConsumerLost, red, "consumer {consumer} of queue {queue} is lost ({reason}), in flight: {in_flight}"},
		{wire.EventFlowNoisy, yellow, "key {key} of queue {queue} is <began?noisy, in flight: {in_flight}><!began?no longer noisy>"},
		{wire.EventFlowStarved, yellow, "key {key} of queue {queue} <began?starves: only others were delivered for {wait_ms}><!began?no longer starves>"},
		{wire.EventPaused, yellow, "{what} is paused ({by})<, until {until}>"},
		{wire.EventResumed, green, "{what} is resumed ({by})"},
		{wire.EventHeld, red, "{what} is blocked after <{failures} failures><!failures?too many failures><, until {until}>"},
		{wire.EventFailureCritical, red, callFailed},
		{wire.EventFailureHigh, yellow, callFailed},
		{wire.EventRulesReloaded, green, "the configuration file was reloaded, changes: {count}<: {changes}>"},
		{wire.EventDiskLow, red, "messages are refused: the disk of fila has {free_bytes} bytes free, below {min_free_bytes}"},
		{wire.EventDiskRecovered, green, "messages are accepted again: the disk of fila has {free_bytes} bytes free"},
		{wire.EventBudgetWarning, yellow, "{used} of {budget} of the budget of {key} are used (warn_at {part}); it begins again at {ends_at}"},
		{wire.EventSharedDegraded, red, "the bucket of shared circuits and limits is unreachable, each fila decides alone: {error}"},
		{wire.EventSharedRecovered, green, "circuits and limits are shared again"},
		{wire.EventSharedConflict, yellow, "fila {by} set the limits of the shared {kind} {key} later: its limits ({limits}) are in force here, instead of {own}"},
		{wire.EventClientCut, red, "the embedded NATS server disconnected client {client} (user {user}) at {address}: {reason}"},
		{wire.EventOwnerChanged, yellow, "shard {shard} <planned?was handed over to><!planned?was taken over by> node {owner}, epoch {epoch}<; previous owner: {previous}>"},
		{wire.EventFenced, red, "node {node} cannot write the log of shard {shard} and neither delivers nor answers"},
		{wire.EventLogLost, red, "the log of shard {shard} lacks confirmed messages: it ends at record {log_end}, and node {has} has record {seq}"},
		{wire.EventLogDamaged, red, "a replica of the log of shard {shard} is damaged, as read by node {node}: {problem}"},
		{wire.EventMemberJoined, green, "node {node} ({version}) has joined the cluster"},
		{wire.EventMemberLeft, red, "node {node} has left the cluster"},
		{wire.EventJobCreated, green, jobTurned},
		{wire.EventJobPaused, green, jobTurned},
		{wire.EventJobResumed, green, jobTurned},
		{wire.EventJobDone, green, jobTurned},
		{wire.EventJobCanceled, green, jobTurned},
		{wire.EventScheduleCreated, green, scheduleTurns},
		{wire.EventScheduleReplaced, green, scheduleTurns},
		{wire.EventScheduleDeleted, green, scheduleTurns},
		{wire.EventSchedulePaused, green, scheduleTurns},
		{wire.EventScheduleResumed, green, scheduleTurns},
		{wire.EventScheduleEnded, green, scheduleTurns},
		{wire.EventScheduleMissed, green, scheduleTurns},
		{wire.EventScheduleRefused, green, scheduleTurns},
	}
}()

func eventTypes() []string {
	var names []string
	for _, e := range knownEvents {
		names = append(names, e.name)
	}
	return names
}

// findEvent returns the row of an event. A newer fila may publish unknown ones.
func findEvent(name string) knownEvent {
	if i := slices.IndexFunc(knownEvents, func(e knownEvent) bool { return e.name == name }); i >= 0 {
		return knownEvents[i]
	}
	return knownEvent{name, terminal.Style.Green, ""}
}

var (
	eventPart  = regexp.MustCompile(`<(?:(!?)(\w+)\?)?([^>]*)>`)
	eventField = regexp.MustCompile(`\{(\w+)\}`)
)

// sentence describes an event.
func (k knownEvent) sentence(env *command.Env, e wire.Event) string {
	if k.text == "" {
		all := []string{e.Queue, e.Key, compactJSON(e.Data)}
		return strings.Join(slices.DeleteFunc(all, func(text string) bool { return text == "" }), " ")
	}
	d := fieldsOf(env, e)
	text := eventPart.ReplaceAllStringFunc(k.text, func(part string) string {
		found := eventPart.FindStringSubmatch(part)
		not, name, rest := found[1] != "", found[2], found[3]
		shown := name == "" || (d[name] == nil || d[name] == false) == not
		for _, field := range eventField.FindAllStringSubmatch(rest, -1) {
			shown = shown && (name != "" || d.text(field[1]) != "")
		}
		if !shown {
			return ""
		}
		return rest
	})
	return eventField.ReplaceAllStringFunc(text, func(field string) string { return d.text(strings.Trim(field, "{}")) })
}

// fieldsOf returns the data of an event for its sentence, with times and durations for people.
func fieldsOf(env *command.Env, e wire.Event) eventData {
	d := eventData{"queue": e.Queue, "key": e.Key, "what": "queue " + e.Queue}
	maps.Copy(d, e.Data)
	_, d["word"], _ = strings.Cut(e.Type, "-")
	d["call"] = d["kind"] == api.FailureOfCall
	if e.Key != "" || e.Queue == "" {
		d["what"] = d.text("kind") + " " + e.Key
		if e.Queue != "" {
			d["what"] = d.text("what") + " of queue " + e.Queue
		}
	}
	if until := d.text("until"); until != "" {
		d["until"] = env.When(until)
	}
	if ms, ok := d["wait_ms"].(float64); ok {
		d["wait_ms"] = terminal.Age(int64(ms))
	}
	if d.text("consecutive_failures") == "0" {
		d["consecutive_failures"] = nil
	}
	if changes, ok := d["changes"].([]any); ok || e.Type == wire.EventRulesReloaded {
		d["count"] = float64(len(changes))
	}
	if e.Type == wire.EventClientCut {
		d["reason"] = map[string]string{
			"pending": "it left too much unread", "deadline": "it read nothing for too long", "connections": "its user has too many connections",
		}[d.text("reason")]
	}
	return d
}
