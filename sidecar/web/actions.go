package web

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// action is one form action: a row of the table. It needs an [Operator].
type action struct {
	name string // last part of the path, after /do/
	form string // the form with the fields, if several actions share one; "": name
	// asks returns the question for a confirmation, nil for none. label is the text of its
	// button.
	asks  question
	label string
	typed string // the field whose value has to be typed to confirm; "": none
	why   bool   // the confirmation asks for a reason
	// do calls verbs and returns a sentence about the result.
	do func(a *ask, form url.Values) (note string, err error)
	// show and data belong to an action that changes nothing: a template and its data.
	show string
	data func(a *ask, form url.Values) (any, error)
	back func(url.Values) string // the next page, after the base path; nil: the page in the form
}

// question returns the text of a confirmation of a form.
type question func(form url.Values) string

// about returns a question with these fields of the form in its text.
func about(text string, fields ...string) question {
	return func(form url.Values) string {
		values := make([]any, len(fields))
		for i, name := range fields {
			values[i] = form.Get(name)
		}
		return fmt.Sprintf(text, values...)
	}
}

// actions is the table of actions.
var actions = []action{
	{name: "pause", do: pause},
	{name: "resume", do: resume},
	{name: "weight", do: setWeight},
	{
		name: "hook-reset", do: resetHooks, label: "Close the circuit",
		asks: about("Close the circuit of %s of %s? It runs again for the next message, and its circuit opens again if the script still fails. A new script or a rollback closes it, too.", "hook", "queue"),
	},
	{name: "throttle-set", do: throttleSet},
	{name: "throttle-back", label: "Set back", do: throttleBack, asks: asksThrottleBack},
	{
		name: "throttle-clear", label: "Remove the limits", do: aboutGate(api.VerbThrottleClear, "%s has no limits of its own now."),
		back: backToGates,
		asks: about("Remove all limits of %s, including an override? Its blocked messages can go then.", "key"),
	},
	{name: "circuit-open", do: circuitOpen},
	{name: "circuit-close", do: aboutGate(api.VerbCircuitClose, "The circuit %s is closed."), back: backToGates},
	{name: "circuit-reset", do: aboutGate(api.VerbCircuitReset, "The circuit %s is closed, and its failures are forgotten."), back: backToGates},
	{
		name: "cluster-drain", label: "Continue", do: clusterDrain,
		asks: func(f url.Values) string {
			if f.Get("cancel") != "" {
				return about("Cancel the drain of %s? It takes shards again.", "node")(f)
			}
			return about("Drain %s? It hands over all of its shards. No node serves a shard for a moment during its handover.", "node")(f)
		},
	},
	{
		name: "cluster-move", label: "Move the shard", do: clusterMove,
		asks: about("Move shard %s to %s? No node serves the shard for a moment.", "shard", "node"),
	},
	{
		name: "purge", label: "Remove the messages", typed: "queue", do: purge,
		asks: about("Remove all pending and delayed messages of %s? Messages in flight stay. This cannot be undone.", "queue"),
	},
	{
		name: "delete-queue", label: "Delete the queue", typed: "queue", do: deleteQueue, back: func(url.Values) string { return "/queues" },
		asks: about("Delete the queue %s with all of its messages and dead letters? This cannot be undone.", "queue"),
	},
	{name: "run-now", do: runNow},
	{
		name: "cancel-message", label: "Remove the message", do: cancelMessage, back: backToMessages,
		asks: about("Remove message %s? This cannot be undone.", "id"),
	},
	{name: "edit-message", do: editMessage, back: backToJob},
	{name: "start-job", do: startJob, back: backToJob},
	{name: "pause-job", do: aboutJob(api.VerbJobPause, "paused"), back: backToJob},
	{name: "resume-job", do: aboutJob(api.VerbJobResume, "resumed"), back: backToJob},
	{
		name: "cancel-job", label: "Cancel the rest", do: aboutJob(api.VerbJobCancel, "canceled"), back: backToJob,
		asks: about("Cancel the rest of job %s? Its changes so far stay.", "id"),
	},
	{name: "schedule-add", do: addSchedule},
	{name: "schedule-pause", do: aboutSchedule(api.VerbSchedulePause, "paused")},
	{name: "schedule-resume", do: aboutSchedule(api.VerbScheduleResume, "resumed")},
	{
		name: "schedule-delete", label: "Delete the schedule", do: aboutSchedule(api.VerbScheduleDelete, "deleted"),
		asks: about("Delete the schedule %s of %s? Messages that it has enqueued stay.", "name", "queue"),
	},
	{name: "set-config", do: setConfig},
	{name: "config-back", label: "Set it back", do: configBack, asks: asksConfigBack},
	{
		name: "delete-config", label: "Delete the key", do: deleteConfig,
		asks: about("Delete the configuration key %s?", "key"),
	},
	{name: "reload", do: reload},
	{name: "try-hook", form: "hook", show: "tried", data: tryHook},
	{name: "save-hook", form: "hook", do: saveHook, back: backToHooks},
	{name: "rollback-hook", do: rollbackHook, label: "Roll back", why: true, asks: about("Roll %s of %s back to its previous version? It runs for the next message, and another rollback undoes this.", "hook", "queue")},
}

// maxForm is more than the largest message.
const maxForm = 8 << 20 // bytes

// act executes an action, or asks for confirmation.
func (w *Web) act(a *ask, act *action) {
	a.r.Body = http.MaxBytesReader(a.rw, a.r.Body, maxForm)
	if err := a.r.ParseForm(); err != nil {
		w.fail(a, http.StatusBadRequest, "The form cannot be read: "+err.Error()+".")
		return
	}
	form := a.r.PostForm
	confirmed := form.Get("confirm") == "yes"
	mistake := ""
	if confirmed && act.typed != "" && form.Get("typed") != form.Get(act.typed) {
		confirmed, mistake = false, fmt.Sprintf("The typed name is not %s.", form.Get(act.typed))
	}
	if act.asks != nil && !confirmed {
		w.confirm(a, act, act.asks(form), act.label, mistake)
		return
	}
	if act.show != "" {
		w.shows(a, act, form)
		return
	}
	note, err := act.do(a, form)
	if refused := (*wire.Error)(nil); errors.As(err, &refused) && refused.ErrCode == wire.CodeOwned && form.Get("force") == "" {
		form.Set("force", "yes")
		w.confirm(a, act, refused.Description+". Change it all the same?", "Change it all the same", "")
		return
	}
	if err != nil {
		w.refuse(a, act, err)
		return
	}
	w.setNote(a, strings.Join(append([]string{note}, a.warnings...), " "))
	to := w.local(form.Get("back"))
	if act.back != nil {
		to = w.base + act.back(form)
	}
	http.Redirect(a.rw, a.r, to, http.StatusSeeOther)
}

// shows replies to a form with a page.
func (w *Web) shows(a *ask, act *action, form url.Values) {
	data, err := act.data(a, form)
	if err != nil {
		w.refuse(a, act, err)
		return
	}
	w.render(a, http.StatusOK, act.show, w.view(a, &page{}, data))
}

// confirmation is the data of a confirmation page.
type confirmation struct {
	Text, Action, Label, Typed, Mistake, Back string
	Why                                       bool // it asks for a reason
	Fields                                    []field
}

type field struct{ Name, Value string }

// confirm asks a question before an action, whose form it sends again with the answer.
func (w *Web) confirm(a *ask, act *action, text, label, mistake string) {
	form := a.r.PostForm
	q := confirmation{Text: text, Action: w.base + "/do/" + act.name, Label: label, Why: act.why, Mistake: mistake, Back: w.local(form.Get("back"))}
	if act.typed != "" {
		q.Typed = form.Get(act.typed)
	}
	for _, name := range slices.Sorted(maps.Keys(form)) {
		if name == "confirm" || name == "typed" {
			continue
		}
		for _, value := range form[name] {
			q.Fields = append(q.Fields, field{name, value})
		}
	}
	status := http.StatusOK
	if mistake != "" {
		status = http.StatusUnprocessableEntity
	}
	w.render(a, status, "confirm", &view{Title: label + "?", Data: q})
}

// duration parses a duration; 0 for no end.
func duration(form url.Values, name string) (int64, error) {
	text := form.Get(name)
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Millisecond {
		return 0, wrongField(name, "%q is not a duration: allowed are durations such as 90s, 30m or 2h, and an empty field for no end", text)
	}
	return d.Milliseconds(), nil
}

// pauseOf parses the object that a form pauses.
func pauseOf(form url.Values) (api.PauseRequest, string, error) {
	req := api.PauseRequest{Kind: form.Get("kind"), Queue: form.Get("queue"), Name: form.Get("name")}
	var err error
	if req.ForMs, err = duration(form, "for"); err != nil {
		return req, "", err
	}
	if req.Name == "" {
		return req, "", wrongField("name", "the name of the object to pause is missing")
	}
	what := req.Kind + " " + req.Name
	if req.Queue != "" {
		what += " of queue " + req.Queue
	}
	return req, what, nil
}

func pause(a *ask, form url.Values) (string, error) {
	req, what, err := pauseOf(form)
	if err != nil {
		return "", err
	}
	return "Paused: " + what + ".", a.verb(api.VerbPause, "", req, nil)
}

func resume(a *ask, form url.Values) (string, error) {
	req, what, err := pauseOf(form)
	if err != nil {
		return "", err
	}
	req.ForMs = 0
	return "Resumed: " + what + ".", a.verb(api.VerbResume, "", req, nil)
}

func deleteQueue(a *ask, form url.Values) (string, error) {
	queue := form.Get("queue")
	var reply api.QueueDeleteReply
	if err := a.verb(api.VerbQueueDelete, queue, api.QueueDeleteRequest{Force: true}, &reply); err != nil {
		return "", err
	}
	return fmt.Sprintf("Deleted the queue %s with %s.", queue, howMany(reply.Deleted, "message")), nil
}

// purgeTime bounds how long a browser waits for a purge.
const purgeTime = 20 * time.Second

func purge(a *ask, form url.Values) (string, error) {
	queue := form.Get("queue")
	end := time.Now().Add(purgeTime)
	var req api.QueuePurgeRequest
	for sum := int64(0); ; {
		var reply api.QueuePurgeReply
		if err := a.verb(api.VerbQueuePurge, queue, req, &reply); err != nil {
			if sum > 0 {
				return "", fmt.Errorf("removed %d messages of %s before an error: %w", sum, queue, err)
			}
			return "", err
		}
		sum, req.After = sum+reply.Purged, reply.Next
		switch {
		case reply.Next == "":
			return fmt.Sprintf("Removed %d messages of %s.", sum, queue), nil
		case time.Now().After(end):
			return fmt.Sprintf("Removed %d messages of %s. More are left: purge it again.", sum, queue), nil
		}
	}
}
