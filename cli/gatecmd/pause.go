package gatecmd

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/wire/api"
)

// pausable is a kind of object that can be paused, as a subcommand.
type pausable struct {
	kind, use, what, where, name string
	names                        command.Lookup // completes objects that can be paused
}

var pausables = []pausable{
	{api.PauseQueue, "queue QUEUE", "a queue", "", "orders", command.QueueNames},
	{api.PauseKey, "key QUEUE KEY", "a fairness key of a queue", "", "orders acme", command.FairnessKeys},
	{api.PauseThrottle, "throttle KEY", "a throttle key", " in all queues", "stripe", throttleKeys},
	{api.PauseCircuit, "circuit KEY", "a circuit key", " in all queues", "stripe", circuitKeys},
}

func newPauseCommand(env *command.Env) *cobra.Command {
	cmd := command.Group(&cobra.Command{
		Use:   "pause",
		Short: "Pause a queue, a fairness key, a throttle key or a circuit",
		Long: `Pause a queue, a fairness key of a queue, a throttle key or a circuit: fila delivers
none of its messages until the pause ends. Producers can still publish, and messages
in flight continue. A pause survives a restart. Another pause of the same object
replaces its end.`,
	})
	for _, p := range pausables {
		cmd.AddCommand(newPauseOneCommand(env, p))
	}
	cmd.AddCommand(newPauseListCommand(env))
	return cmd
}

func newResumeCommand(env *command.Env) *cobra.Command {
	cmd := command.Group(&cobra.Command{
		Use:   "resume",
		Short: "End a pause",
		Long: `End a pause now, also a pause that fila set after too many failures. "fila pause list"
shows the pauses.`,
	})
	for _, p := range pausables {
		cmd.AddCommand(newResumeOneCommand(env, p))
	}
	return cmd
}

// request names the object to pause. The queue of a key is the first argument or --queue.
func (p pausable) request(args []string, queue string) api.PauseRequest {
	r := api.PauseRequest{Kind: p.kind, Name: args[len(args)-1]}
	if p.kind == api.PauseKey {
		r.Queue = cmp.Or(queue, args[0])
	}
	return r
}

func (p pausable) args(queue *string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		names := strings.Fields(p.use)[1:]
		if *queue != "" {
			names = names[1:]
		}
		return command.Args(names...)(cmd, args)
	}
}

func (p pausable) command(env *command.Env, queue *string, names command.Lookup) *cobra.Command {
	cmd := &cobra.Command{Use: p.use, Args: p.args(queue)}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if p.kind != api.PauseKey {
			return env.Complete(names)(cmd, args, prefix)
		}
		if *queue != "" && len(args) == 0 {
			args = []string{*queue}
		}
		return env.Complete(command.QueueNames, names)(cmd, args, prefix)
	}
	if p.kind == api.PauseKey {
		cmd.Flags().StringVar(queue, "queue", "", "the `queue` of the key, instead of the first argument")
	}
	return cmd
}

func newPauseOneCommand(env *command.Env, p pausable) *cobra.Command {
	var queue, until string
	var forMs terminal.Millis
	cmd := p.command(env, &queue, p.names)
	cmd.Short = "Pause " + p.what + p.where
	cmd.Example = fmt.Sprintf("  fila pause %[1]s %[2]s --for 10m\n  fila pause %[1]s %[2]s --until 07:00", p.kind, p.name)
	var request api.PauseRequest
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		request = p.request(args, queue)
		request.ForMs = int64(forMs)
		if until != "" {
			if cmd.Flags().Changed("for") {
				return command.UsageError("--until and --for: only one is allowed")
			}
			t, err := parseUntil(until, env.Now())
			if err != nil {
				return err
			}
			request.Until = t.UTC().Format(time.RFC3339Nano)
		} else if cmd.Flags().Changed("for") && forMs == 0 {
			return command.UsageError("--for 0s: leave out --for to pause until `fila resume`")
		}
		return nil
	}
	cmd.RunE = command.Ask(env, func(ctx context.Context, s *command.Session, _ []string) (api.PauseInfo, error) {
		return s.Pause(ctx, request)
	}, func(info api.PauseInfo, _ []string) string {
		until := "until `" + resumeCommand(request) + "`"
		if info.Until != "" {
			until = "until " + env.When(info.Until)
		}
		return fmt.Sprintf("%s paused %s\n", terminal.Clean(target(request)), terminal.Clean(until))
	})
	cmd.Flags().StringVar(&until, "until", "", "when it ends: an RFC 3339 `time`, or local time as 2030-01-02 07:00 or 07:00")
	cmd.Flags().Var(&forMs, "for", "how long (default until it is resumed)")
	cmd.Flag("for").DefValue = "" // the text has the default
	return cmd
}

func resumeCommand(r api.PauseRequest) string {
	if r.Kind == api.PauseKey {
		return fmt.Sprintf("fila resume key %s %s", r.Queue, r.Name)
	}
	return fmt.Sprintf("fila resume %s %s", r.Kind, r.Name)
}

func target(r api.PauseRequest) string {
	if r.Kind == api.PauseKey {
		return fmt.Sprintf("key %s of queue %s", r.Name, r.Queue)
	}
	return r.Kind + " " + r.Name
}

func newResumeOneCommand(env *command.Env, p pausable) *cobra.Command {
	var queue string
	cmd := p.command(env, &queue, p.paused)
	cmd.Short = "Resume " + p.what + p.where
	cmd.Example = fmt.Sprintf("  fila resume %s %s", p.kind, p.name)
	cmd.RunE = command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.PauseInfo, error) {
		return s.Resume(ctx, p.request(args, queue))
	}, func(info api.PauseInfo, args []string) string {
		since := ""
		if info.Since != "" {
			since = " (paused " + env.Soon(info.Since) + ")"
		}
		return fmt.Sprintf("%s resumed%s\n", terminal.Clean(target(p.request(args, queue))), terminal.Clean(since))
	})
	return cmd
}

// paused completes the paused objects of the kind.
func (p pausable) paused(ctx context.Context, s *command.Session, args []string, _ string) ([]string, error) {
	pauses, err := s.Pauses(ctx)
	var names []string
	for _, one := range pauses {
		if one.Kind == p.kind && (p.kind != api.PauseKey || one.Queue == args[0]) {
			names = append(names, one.Name)
		}
	}
	return names, err
}

func newPauseListCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Args:    command.Args(),
		Aliases: []string{"ls"},
		Short:   "List what is paused",
		Example: `  fila pause list
  fila pause list --json`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, _ []string) (api.PauseList, error) {
			pauses, err := s.Pauses(ctx)
			return api.PauseList{Total: len(pauses), Pauses: pauses}, err
		}, func(list api.PauseList, _ []string) string {
			t := terminal.NewTable("KIND", "NAME", "QUEUE", "SINCE", "UNTIL", "BY")
			for _, p := range list.Pauses {
				until := "until resumed"
				if p.Until != "" {
					until = env.When(p.Until)
				}
				t.Row(p.Kind, p.Name, terminal.OrDash(p.Queue), env.When(p.Since), until, pausedBy(&p))
			}
			return t.Or("nothing is paused")
		}),
	}
}

// parseUntil parses a future time: RFC 3339, or local time with or without a date. Without a
// date it is the next such time.
func parseUntil(s string, now time.Time) (time.Time, error) {
	if clock, err := time.Parse("15:04", s); err == nil {
		t := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), 0, 0, now.Location())
		if !t.After(now) {
			t = t.AddDate(0, 0, 1)
		}
		return t, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02T15:04:05"} {
		t, err := time.ParseInLocation(layout, s, now.Location())
		switch {
		case err != nil:
			continue
		case !t.After(now):
			return t, command.UsageError("--until %q: allowed is a future time", s)
		}
		return t, nil
	}
	return now, command.UsageError("--until %q: allowed is an RFC 3339 time such as 2030-01-02T15:04:05Z, or local time such as 2030-01-02 07:00 or 07:00", s)
}

// pausedBy says who paused something: the cause, and the client if it is known.
func pausedBy(p *api.PauseInfo) string {
	if p.Client == "" {
		return p.By
	}
	return p.By + " (" + p.Client + ")"
}
