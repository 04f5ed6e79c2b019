package opscmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/wire"
)

// eventTypes are the events that fila publishes.
var eventTypes = []string{
	wire.EventQueueCreated, wire.EventQueueUpdated, wire.EventQueueDeleted, wire.EventConfigChanged, wire.EventRefused,
	wire.EventDeadLettered, wire.EventRedriven, wire.EventCircuitChanged, wire.EventHookCircuitChanged,
	wire.EventConsumerJoined, wire.EventConsumerLost, wire.EventFlowNoisy, wire.EventFlowStarved, wire.EventPaused, wire.EventResumed, wire.EventHeld,
	wire.EventFailureCritical, wire.EventFailureHigh, wire.EventRulesReloaded,
	wire.EventDiskLow, wire.EventDiskRecovered, wire.EventSharedDegraded, wire.EventSharedRecovered, wire.EventSharedConflict, wire.EventClientCut,
	wire.EventOwnerChanged, wire.EventFenced, wire.EventMemberJoined, wire.EventMemberLeft,
	wire.EventJobCreated, wire.EventJobPaused, wire.EventJobResumed, wire.EventJobDone, wire.EventJobCanceled,
	wire.EventScheduleCreated, wire.EventScheduleReplaced, wire.EventScheduleDeleted, wire.EventSchedulePaused,
	wire.EventScheduleResumed, wire.EventScheduleEnded, wire.EventScheduleMissed, wire.EventScheduleRefused,
}

type watchFlags struct {
	types []string
	queue string
	count int
}

func newWatchCommand(env *command.Env) *cobra.Command {
	var f watchFlags
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Print events as they happen",
		Long: `Print fila's events, one line each, until an interrupt. fila does not keep events
for later. docs/protocol.md explains the types; a wrong --type lists them.`,
		Example: `  fila watch
  fila watch --type dead-lettered,circuit-changed
  fila watch --queue orders --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, typ := range f.types {
				if !slices.Contains(eventTypes, typ) {
					return command.UsageError("--type %q: allowed are %s", typ, strings.Join(eventTypes, ", "))
				}
			}
			if f.count < 0 {
				return command.UsageError("--count %d: allowed is 0 (no end) and more", f.count)
			}
			return env.Stay(cmd, func(ctx context.Context, _ func(), s *command.Session) error {
				w := watcher{env: env, flags: f, out: cmd.OutOrStdout(), paint: terminal.StyleFor(cmd.OutOrStdout())}
				return w.watch(ctx, s, cmd.ErrOrStderr())
			}, nats.PermissionErrOnSubscribe(true))
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.types, "type", nil, "only events of this `type`; may be repeated")
	command.Allow(cmd, "type", eventTypes...)
	flags.StringVar(&f.queue, "queue", "", "only events of this `queue`")
	flags.IntVar(&f.count, "count", 0, "end after this many events; 0 is no end")
	return cmd
}

func (w *watcher) watch(ctx context.Context, s *command.Session, errOut io.Writer) error {
	subjects, err := wire.NewSubjects(s.Prefix())
	if err != nil {
		return err
	}
	sub, err := s.Conn().SubscribeSync(subjects.EventWildcard())
	if err != nil {
		return err
	}
	if err := s.Flush(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	missed := 0
	for {
		msg, err := sub.NextMsgWithContext(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, nats.ErrSlowConsumer):
			continue
		case err != nil:
			return s.Explain(fmt.Errorf("subscribe to events: %w", err))
		}
		if dropped, err := sub.Dropped(); err == nil && dropped > missed {
			command.Complain(errOut, fmt.Sprintf("%s missed: they came faster than they could be printed", terminal.Plural(int64(dropped-missed), "event")))
			missed = dropped
		}
		if more, err := w.print(msg.Data); err != nil || !more {
			return err
		}
	}
}

type watcher struct {
	env     *command.Env
	flags   watchFlags
	out     io.Writer
	paint   terminal.Style
	printed int
}

// print prints an event if the flags select it, and reports whether to continue.
func (w *watcher) print(data []byte) (more bool, err error) {
	var e wire.Event
	if err := json.Unmarshal(data, &e); err != nil {
		return true, nil // not from fila: the subject is open to others
	}
	if len(w.flags.types) > 0 && !slices.Contains(w.flags.types, e.Type) || w.flags.queue != "" && e.Queue != w.flags.queue {
		return true, nil
	}
	if w.env.JSON {
		err = terminal.PrintJSONLine(w.out, e)
	} else {
		_, err = fmt.Fprintln(w.out, w.line(e))
	}
	w.printed++
	return w.flags.count == 0 || w.printed < w.flags.count, err
}

func (w *watcher) line(e wire.Event) string {
	at := e.Time
	if t, err := time.Parse(time.RFC3339Nano, e.Time); err == nil {
		at = t.UTC().Format("2006-01-02T15:04:05.000Z")
	}
	typ := terminal.Pad(terminal.Clean(e.Type), 20)
	switch e.Type {
	case wire.EventDeadLettered, wire.EventFailureCritical, wire.EventConsumerLost, wire.EventRefused, wire.EventHeld,
		wire.EventDiskLow, wire.EventSharedDegraded, wire.EventClientCut, wire.EventFenced, wire.EventMemberLeft:
		typ = w.paint.Red(typ)
	case wire.EventFailureHigh, wire.EventFlowNoisy, wire.EventFlowStarved, wire.EventCircuitChanged, wire.EventHookCircuitChanged, wire.EventPaused, wire.EventOwnerChanged, wire.EventSharedConflict:
		typ = w.paint.Yellow(typ)
	default:
		typ = w.paint.Green(typ)
	}
	return w.paint.Dim(terminal.Clean(at)) + "  " + typ + "  " + terminal.Clean(sentence(w.env, e))
}

// sentence describes an event.
func sentence(env *command.Env, e wire.Event) string {
	d := eventData(e.Data)
	switch e.Type {
	case wire.EventQueueCreated:
		return "queue " + e.Queue + " was created"
	case wire.EventQueueUpdated:
		return "queue " + e.Queue + " has other settings"
	case wire.EventQueueDeleted:
		return "queue " + e.Queue + " was deleted, with messages: " + d.text("messages")
	case wire.EventConfigChanged:
		return configSentence(e.Key, d)
	case wire.EventRefused:
		by := ""
		if e.Queue != "" {
			by = " by queue " + e.Queue
		}
		return fmt.Sprintf("a message without reply subject was refused%s: %s [err_code %s]%s",
			by, d.text("description"), d.text("err_code"), d.between("; before it ", "not_reported", " more that were not reported"))
	case wire.EventDeadLettered:
		return fmt.Sprintf("message %s of queue %s is dead (%s) after attempts: %s%s",
			d.text("id"), e.Queue, d.text("reason"), d.text("attempts"), d.between("; last error: ", "error", ""))
	case wire.EventRedriven:
		return "back from " + e.Queue + wire.DLQSuffix + " to " + e.Queue + ", messages: " + d.text("redriven")
	case wire.EventCircuitChanged, wire.EventHookCircuitChanged:
		return circuitSentence(env, e, d)
	case wire.EventConsumerJoined:
		return fmt.Sprintf("consumer %s joined queue %s, up to %s in flight", d.text("consumer"), e.Queue, d.text("max_in_flight"))
	case wire.EventConsumerLost:
		return fmt.Sprintf("consumer %s of queue %s is lost (%s), in flight: %s", d.text("consumer"), e.Queue, d.text("reason"), d.text("in_flight"))
	case wire.EventFlowNoisy, wire.EventFlowStarved:
		return flowSentence(e, d)
	case wire.EventPaused, wire.EventResumed, wire.EventHeld:
		return pauseSentence(env, e, d)
	case wire.EventFailureCritical, wire.EventFailureHigh:
		if d.text("kind") == wire.FailureOfCall {
			return fmt.Sprintf("a call of %s%s failed, attempt %s: %s%s (rule %s)",
				e.Key, d.between(" by ", "caller", ""), d.text("attempts"), d.between("[", "error_code", "] "), d.text("error"), d.text("rule"))
		}
		return fmt.Sprintf("message %s of key %s in queue %s failed, attempt %s: %s%s (rule %s)",
			d.text("id"), e.Key, e.Queue, d.text("attempts"), d.between("[", "error_code", "] "), d.text("error"), d.text("rule"))
	case wire.EventRulesReloaded:
		changes, _ := e.Data["changes"].([]any)
		return fmt.Sprintf("the configuration file was read again, changes: %d", len(changes)) + d.between(": ", "changes", "")
	case wire.EventDiskLow:
		return fmt.Sprintf("messages are refused: the disk of fila has %s bytes free, below %s", d.text("free_bytes"), d.text("min_free_bytes"))
	case wire.EventSharedDegraded:
		return "shared circuits and limits cannot be reached, each fila goes by itself: " + d.text("error")
	case wire.EventClientCut:
		why := map[string]string{
			"pending": "it left too much unread", "deadline": "it read nothing for too long", "connections": "its user has too many connections",
		}[d.text("reason")]
		return fmt.Sprintf("the embedded NATS server has cut off client %s (user %s) at %s: %s", d.text("client"), d.text("user"), d.text("address"), why)
	case wire.EventSharedRecovered:
		return "circuits and limits are shared again"
	case wire.EventSharedConflict:
		return fmt.Sprintf("%s %s is shared, and fila %s has set it later: in force here are its limits (%s), not the own ones (%s)",
			d.text("kind"), e.Key, d.text("by"), d.text("limits"), d.text("own"))
	case wire.EventOwnerChanged:
		how := "was taken over by"
		if planned, _ := e.Data["planned"].(bool); planned {
			how = "was handed over to"
		}
		return fmt.Sprintf("shard %s %s node %s, epoch %s%s", d.text("shard"), how, d.text("owner"), d.text("epoch"), d.between("; before it: ", "previous", ""))
	case wire.EventFenced:
		return fmt.Sprintf("node %s cannot write the log of shard %s and neither delivers nor answers", d.text("node"), d.text("shard"))
	case wire.EventMemberJoined:
		return fmt.Sprintf("node %s (%s) has joined the cluster", d.text("node"), d.text("version"))
	case wire.EventMemberLeft:
		return fmt.Sprintf("node %s has left the cluster", d.text("node"))
	case wire.EventDiskRecovered:
		return "messages are taken again: the disk of fila has " + d.text("free_bytes") + " bytes free"
	}
	if word, ok := strings.CutPrefix(e.Type, "job-"); ok {
		return fmt.Sprintf("job %s (%s) of queue %s: %s, %s of %s done%s",
			d.text("job"), d.text("op"), e.Queue, word, d.text("done"), d.text("matched"), d.between("; ", "why", ""))
	}
	if word, ok := strings.CutPrefix(e.Type, "schedule-"); ok {
		return fmt.Sprintf("schedule %s of queue %s: %s%s%s%s",
			d.text("schedule"), e.Queue, word, d.between(", runs: ", "missed", ""), d.between(", ", "description", ""), d.between(" (", "text", ")"))
	}
	known := []string{e.Queue, e.Key, compactJSON(e.Data)}
	return strings.Join(slices.DeleteFunc(known, func(text string) bool { return text == "" }), " ")
}

func configSentence(key string, d eventData) string {
	switch value, was := d.text("value"), d.text("previous"); {
	case d["value"] == nil:
		return key + " was deleted; it was " + was
	case d["previous"] == nil:
		return key + " is " + value
	default:
		return key + " is " + value + "; it was " + was
	}
}

func flowSentence(e wire.Event, d eventData) string {
	text := "key " + e.Key + " of queue " + e.Queue
	began, _ := d["began"].(bool)
	switch {
	case e.Type == wire.EventFlowNoisy && began:
		return text + " is noisy, in flight: " + d.text("in_flight")
	case e.Type == wire.EventFlowNoisy:
		return text + " is no longer noisy"
	case began:
		ms, _ := d["wait_ms"].(float64)
		return text + " is not delivered while others are, waiting for " + terminal.Age(int64(ms))
	}
	return text + " no longer starves"
}

func circuitSentence(env *command.Env, e wire.Event, d eventData) string {
	what := "circuit " + e.Key
	if e.Type == wire.EventHookCircuitChanged {
		what = "the circuit of " + d.text("hook") + " of queue " + e.Queue
	}
	text := what + " is " + d.text("new") + "; it was " + d.text("old") + d.between(" (", "cause", ")")
	if n := d.text("consecutive_failures"); n != "" && n != "0" {
		text += ", failures in a row: " + n
	}
	return text + untilText(env, d.text("until"))
}

func pauseSentence(env *command.Env, e wire.Event, d eventData) string {
	what := d.text("kind") + " " + e.Key
	switch {
	case e.Key == "" && e.Queue != "":
		what = "queue " + e.Queue
	case e.Queue != "":
		what += " of queue " + e.Queue
	}
	switch e.Type {
	case wire.EventResumed:
		return what + " goes on (" + d.text("by") + ")"
	case wire.EventHeld:
		failures := cmp.Or(d.between("", "failures", " failures"), "too many failures")
		return what + " is held after " + failures + untilText(env, d.text("until"))
	}
	return what + " is paused (" + d.text("by") + ")" + untilText(env, d.text("until"))
}

func untilText(env *command.Env, until string) string {
	if until == "" {
		return ""
	}
	return ", until " + env.When(until)
}

// eventData reads the data of an event; any field may be missing.
type eventData map[string]any

func (d eventData) text(name string) string {
	switch v := d[name].(type) {
	case nil:
		return ""
	case string:
		return v
	case []any:
		texts := make([]string, len(v))
		for i := range v {
			texts[i] = fmt.Sprint(v[i])
		}
		return strings.Join(texts, "; ")
	case float64:
		return terminal.Number(v)
	default:
		return compactJSON(v)
	}
}

// between returns a field between two texts, or nothing without the field.
func (d eventData) between(before, name, after string) string {
	if text := d.text(name); text != "" {
		return before + text + after
	}
	return ""
}

func compactJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil || string(data) == "null" {
		return ""
	}
	return string(data)
}
