package hookcmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// queueHook is a hook in the list of all queues.
type queueHook struct {
	Queue  string     `json:"queue"`
	Lines  int        `json:"lines"` // of the script
	Source api.Source `json:"source"`
	api.HookInfo
}

// hookList is what `fila hook list --json` prints.
type hookList struct {
	Total int         `json:"total"`
	Hooks []queueHook `json:"hooks"`
}

func newHookListCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the hooks of all queues, who set them, and the states of their circuits",
		Example: `  fila hook list
  fila hook list --json | jq -r '.hooks[] | select(.state != "closed") | .queue'`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: command.AskList(env, listHooks, func(all []queueHook, _ []string) hookList {
			return hookList{len(all), all}
		}, func(list hookList, _ []string) string {
			t := terminal.NewTable("QUEUE", "HOOK", "LINES", "SET BY", "AT", "CIRCUIT", "RUNS", "FAILURES", "LAST ERROR")
			for i := range list.Hooks {
				h := &list.Hooks[i]
				setBy := h.Source.By
				if h.Source.Client != "" {
					setBy += " " + terminal.Clean(h.Source.Client)
				}
				t.Row(terminal.Clean(h.Queue), h.Hook, h.Lines, terminal.OrDash(setBy), env.When(h.Source.At), h.State, h.Runs, h.Failures, terminal.OrDash(h.LastError))
			}
			return t.Or("no queue has a hook; set one with `fila hook set QUEUE FILE`")
		}),
	}
}

// listHooks inspects every queue. Without some shards of a cluster it returns the hooks of the
// others and the error.
func listHooks(ctx context.Context, s *command.Session) ([]queueHook, error) {
	queues, missing := s.QueueList(ctx)
	all := []queueHook{}
	for i := range queues {
		name := queues[i].Name
		if wire.IsDLQ(name) {
			continue
		}
		info, err := s.QueueInspect(ctx, name, 0)
		if refused, ok := errors.AsType[*client.Error](err); ok && refused.ErrCode == wire.CodeQueueNotFound {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		scripts := map[string]string{wire.HookOnEnqueue: info.Settings.OnEnqueue, wire.HookOnFailure: info.Settings.OnFailure}
		for _, h := range info.Hooks {
			all = append(all, queueHook{name, countLines(scripts[h.Hook]), info.Sources[h.Hook], h})
		}
	}
	return all, missing
}
