package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
)

// pausable is a kind of thing that can be paused, as a subcommand.
type pausable struct {
	kind, use, what, where, name string
	names                        lookup // of what can be paused
}

var pausables = []pausable{
	{client.PauseQueue, "queue QUEUE", "a queue", "", "orders", queueNames},
	{client.PauseKey, "key QUEUE KEY", "a fairness key of a queue", "", "orders acme", fairnessKeys},
	{client.PauseThrottle, "throttle KEY", "a throttle key", " in all queues", "stripe", throttleKeys},
	{client.PauseCircuit, "circuit KEY", "a circuit key", " in all queues", "stripe", circuitKeys},
}

func newPauseCommand(a *app) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "pause",
		Short: "Hold a queue, a fairness key, a throttle key or a circuit",
		Long: `Hold a queue, a fairness key of a queue, a throttle key or a circuit: nothing
of it is delivered until the pause ends. Producers go on, and so does what is in
flight. A pause survives a restart. Pausing again replaces the time.`,
	})
	for _, p := range pausables {
		cmd.AddCommand(newPauseOneCommand(a, p))
	}
	cmd.AddCommand(newPauseListCommand(a))
	return cmd
}

func newResumeCommand(a *app) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "resume",
		Short: "End a pause",
		Long: `End a pause now, also one that a limit on failures has set. "fila pause list"
shows what is paused.`,
	})
	for _, p := range pausables {
		cmd.AddCommand(newResumeOneCommand(a, p))
	}
	return cmd
}

// request names what to pause. The queue of a key is its first argument or
// --queue.
func (p pausable) request(args []string, queue string) client.PauseRequest {
	r := client.PauseRequest{Kind: p.kind, Name: args[len(args)-1]}
	if p.kind == client.PauseKey {
		r.Queue = queue
		if len(args) == 2 {
			r.Queue = args[0]
		}
	}
	return r
}

func (p pausable) args(queue *string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case p.kind == client.PauseQueue:
			return needArgs("QUEUE")(cmd, args)
		case p.kind == client.PauseKey && *queue == "":
			return needArgs("QUEUE", "KEY")(cmd, args)
		}
		return needArgs("KEY")(cmd, args)
	}
}

func (p pausable) command(a *app, queue *string, names lookup) *cobra.Command {
	cmd := &cobra.Command{Use: p.use, Args: p.args(queue)}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if p.kind != client.PauseKey {
			return a.complete(names)(cmd, args, prefix)
		}
		if *queue != "" && len(args) == 0 {
			args = []string{*queue}
		}
		return a.complete(queueNames, names)(cmd, args, prefix)
	}
	if p.kind == client.PauseKey {
		cmd.Flags().StringVar(queue, "queue", "", "the `queue` of the key, instead of the first argument")
	}
	return cmd
}

func newPauseOneCommand(a *app, p pausable) *cobra.Command {
	var queue, until string
	var forMs msValue
	cmd := p.command(a, &queue, p.names)
	cmd.Short = "Hold " + p.what + p.where
	cmd.Example = fmt.Sprintf("  fila pause %[1]s %[2]s --for 10m\n  fila pause %[1]s %[2]s --until 07:00", p.kind, p.name)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		request := p.request(args, queue)
		request.ForMs = int64(forMs)
		if until != "" {
			if cmd.Flags().Changed("for") {
				return usageError("--until and --for: only one is allowed")
			}
			t, err := parseUntil(until, a.now())
			if err != nil {
				return err
			}
			request.Until = t.UTC().Format(time.RFC3339Nano)
		} else if cmd.Flags().Changed("for") && forMs == 0 {
			return usageError("--for 0s: leave it out for a pause that only `fila resume` ends")
		}
		return a.online(cmd, func(ctx context.Context, s *session) error {
			info, err := s.Pause(ctx, request)
			if err != nil {
				return hint(err, wire.CodeQueueNotFound, "`fila queue list` shows those that there are")
			}
			if a.json {
				return printJSON(cmd.OutOrStdout(), info)
			}
			return a.printPaused(cmd.OutOrStdout(), request, info)
		})
	}
	cmd.Flags().StringVar(&until, "until", "", "when it ends: an RFC 3339 `time`, or local time as 2030-01-02 07:00 or 07:00")
	cmd.Flags().Var(&forMs, "for", "how long (default until it is resumed)")
	return cmd
}

func (a *app) printPaused(w io.Writer, r client.PauseRequest, info client.PauseInfo) error {
	until := "until `" + resumeCommand(r) + "`"
	if info.Until != "" {
		until = "until " + a.when(info.Until)
	}
	_, err := fmt.Fprintf(w, "%s paused %s\n", clean(target(r)), clean(until))
	return err
}

func resumeCommand(r client.PauseRequest) string {
	if r.Kind == client.PauseKey {
		return fmt.Sprintf("fila resume key %s %s", r.Queue, r.Name)
	}
	return fmt.Sprintf("fila resume %s %s", r.Kind, r.Name)
}

func target(r client.PauseRequest) string {
	if r.Kind == client.PauseKey {
		return fmt.Sprintf("key %s of queue %s", r.Name, r.Queue)
	}
	return r.Kind + " " + r.Name
}

func newResumeOneCommand(a *app, p pausable) *cobra.Command {
	var queue string
	cmd := p.command(a, &queue, p.paused)
	cmd.Short = "Let " + p.what + " go on" + p.where
	cmd.Example = fmt.Sprintf("  fila resume %s %s", p.kind, p.name)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		request := p.request(args, queue)
		return a.online(cmd, func(ctx context.Context, s *session) error {
			info, err := s.Resume(ctx, request)
			if err != nil {
				return hint(err, wire.CodePauseNotFound, "`fila pause list` shows what is")
			}
			if a.json {
				return printJSON(cmd.OutOrStdout(), info)
			}
			since := ""
			if info.Since != "" {
				since = " (paused " + a.soon(info.Since) + ")"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s resumed%s\n", clean(target(request)), clean(since))
			return err
		})
	}
	return cmd
}

// paused are the names of the kind that are paused now.
func (p pausable) paused(ctx context.Context, s *session, args []string, _ string) ([]string, error) {
	pauses, err := s.Pauses(ctx)
	var names []string
	for _, one := range pauses {
		if one.Kind == p.kind && (p.kind != client.PauseKey || one.Queue == args[0]) {
			names = append(names, one.Name)
		}
	}
	return names, err
}

func newPauseListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List what is paused",
		Example: `  fila pause list
  fila pause list --json`,
		Args: needArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.online(cmd, func(ctx context.Context, s *session) error {
				pauses, err := s.Pauses(ctx)
				if err != nil {
					return err
				}
				if a.json {
					return printJSON(cmd.OutOrStdout(), client.PauseList{Total: len(pauses), Pauses: pauses})
				}
				if len(pauses) == 0 {
					_, err := fmt.Fprintln(cmd.OutOrStdout(), "nothing is paused")
					return err
				}
				t := newTable("KIND", "NAME", "QUEUE", "SINCE", "UNTIL", "BY")
				for _, p := range pauses {
					until := "resumed"
					if p.Until != "" {
						until = a.when(p.Until)
					}
					t.row(p.Kind, p.Name, orDash(p.Queue), a.when(p.Since), until, p.By)
				}
				return t.print(cmd.OutOrStdout())
			})
		},
	}
}

// parseUntil reads a time to come: RFC 3339, or local time with or without its
// date. Without the date it is the next such time.
func parseUntil(s string, now time.Time) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	for _, layout := range []string{"2006-01-02 15:04", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02T15:04:05"} {
		if err == nil {
			break
		}
		t, err = time.ParseInLocation(layout, s, now.Location())
	}
	if err != nil {
		var clock time.Time
		if clock, err = time.ParseInLocation("15:04", s, now.Location()); err == nil {
			t = time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), 0, 0, now.Location())
			if !t.After(now) {
				t = t.AddDate(0, 0, 1)
			}
		}
	}
	if err != nil {
		return t, usageError("--until %q: allowed is an RFC 3339 time such as 2030-01-02T15:04:05Z, or local time such as 2030-01-02 07:00 or 07:00", s)
	}
	if !t.After(now) {
		return t, usageError("--until %q: this time is over", s)
	}
	return t, nil
}
