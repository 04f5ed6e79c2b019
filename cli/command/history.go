package command

import (
	"slices"
	"strconv"
	"strings"

	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Timeline has a line for each record of a message's history; it is empty without history.
func (env *Env) Timeline(history []api.AttemptInfo) string {
	if len(history) == 0 {
		return ""
	}
	head := []string{"ATTEMPT", "AT", "CONSUMER", "ENDED", "ERROR", "THEN", "BEFORE"}
	const routeColumn = 3
	routed := slices.ContainsFunc(history, func(a api.AttemptInfo) bool { return a.Route != "" })
	if routed {
		head = slices.Insert(head, routeColumn, "ROUTE")
	}
	t := terminal.NewTable(head...)
	for i := range history {
		a := &history[i]
		attempt, at := "-", "-"
		if a.Attempt != 0 {
			attempt = strconv.FormatUint(uint64(a.Attempt), 10)
		}
		if a.Dead {
			attempt += " (dead)"
		}
		if a.At != "" {
			at = env.When(a.At)
		}
		row := []any{attempt, at, terminal.OrDash(a.Consumer), a.EndText(wire.FormatMs), terminal.OrDash(terminal.Fit(terminal.Clean(failureText(a)), 60)), terminal.OrDash(env.then(a)), terminal.OrDash(before(a))}
		if routed {
			row = slices.Insert(row, routeColumn, any(terminal.OrDash(terminal.Clean(a.Route))))
		}
		t.Row(row...)
	}
	return t.String()
}

func failureText(a *api.AttemptInfo) string {
	if a.ErrorCode == "" {
		return a.Error
	}
	return strings.TrimSpace("[" + a.ErrorCode + "] " + a.Error)
}

// then describes the decision after an attempt, or the time of the last of several attempts.
func (env *Env) then(a *api.AttemptInfo) string {
	if a.Times > 1 {
		return "the last " + env.When(a.LastAt)
	}
	return a.ThenText(wire.FormatMs)
}

// before describes how long the message waited for the delivery, and for which gates.
func before(a *api.AttemptInfo) string {
	if a.WaitedMs == 0 {
		return ""
	}
	text := "waited " + wire.FormatMs(a.WaitedMs)
	for i, h := range a.Held {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		text += sep + h.Gate + " (" + h.Kind + ") " + wire.FormatMs(h.Ms)
	}
	return text
}
