package messagecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func newScheduleCommand(env *command.Env) *cobra.Command {
	return command.Group(&cobra.Command{
		Use:     "schedule",
		Aliases: []string{"schedules"},
		Short:   "Enqueue messages at fixed times or intervals",
		Long: `A schedule enqueues a message into its queue at its times. Each run makes exactly
one message, even after a kill or a takeover.`,
	},
		newScheduleAddCommand(env), newScheduleListCommand(env),
		newScheduleOneCommand(env, "show", "Show a schedule, its message, its last runs and its next ones", (*client.Client).ScheduleShow),
		newScheduleDeleteCommand(env),
		newScheduleOneCommand(env, "pause", "Pause a schedule until it is resumed", (*client.Client).SchedulePause),
		newScheduleOneCommand(env, "resume", "Resume a paused schedule, from now on", (*client.Client).ScheduleResume))
}

// scheduleFlags are the flags of schedule add.
type scheduleFlags struct {
	zone, missed, file string
	ttl                terminal.Millis
	headers            []string
}

func newScheduleAddCommand(env *command.Env) *cobra.Command {
	var f scheduleFlags
	cmd := &cobra.Command{
		Use:               "add QUEUE NAME SCHEDULE [TEXT]",
		ValidArgsFunction: env.Complete(command.QueueNames, scheduleNames),
		Short:             "Add a schedule, or replace the one of that name",
		Long: `Add a schedule to a queue. Adding a schedule with an existing name replaces it;
adding it unchanged does nothing. The payload is TEXT, --file (- is standard input),
or empty. SCHEDULE is one of

  @at 2026-03-29T02:30:00+01:00   once; at once if the time has passed
  @every 90m                      at this interval, from now on
  @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually
  '0 30 2 * * mon-fri'            second, minute, hour, day of month, month, day of week

If a change of the clocks in --zone skips the time of a run, fila makes the run right
after the change. If a time comes twice, fila makes one run, unless the hour field has
a *.

--missed decides about runs that fila missed, because it was down or the queue was
full: one makes up for the last run, all for the last 1,000, skip for none that is
more than a minute late.`,
		Example: `  fila schedule add orders nightly '0 30 2 * * *' '{"report":"sales"}' --zone Europe/Berlin
  fila schedule add orders poll '@every 90s' --missed skip -H tenant=acme
  fila schedule add orders launch '@at 2026-12-01T09:00:00+01:00' --file launch.json`,
		Args: func(_ *cobra.Command, args []string) error {
			for i, name := range []string{"QUEUE", "NAME", "SCHEDULE"} {
				if len(args) <= i {
					return command.UsageError("%s is missing", name)
				}
			}
			if len(args) > 4 {
				return command.UsageError("%q is too much: put a SCHEDULE of several words in quotes", args[4])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := f.request(cmd.InOrStdin(), args)
			if err != nil {
				return err
			}
			return command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.ScheduleInfo, error) {
				return s.ScheduleAdd(ctx, wire.Source(args[0]), req)
			}, func(i api.ScheduleInfo, _ []string) string {
				return showSchedule(env, &i) + command.Warnings(i.Warnings)
			})(cmd, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.zone, "zone", "", "of a cron schedule: the time `zone`, such as Europe/Berlin (default UTC)")
	flags.StringVar(&f.missed, "missed", wire.MissedOne, "missed runs to make up for: skip, one or all")
	command.Allow(cmd, "missed", wire.MissedSkip, wire.MissedOne, wire.MissedAll)
	flags.Var(&f.ttl, "ttl", "dead-letter its messages if undelivered after this time, at least 1s")
	flags.StringArrayVarP(&f.headers, "header", "H", nil, "header `name=value` of its messages; may be repeated")
	flags.StringVarP(&f.file, "file", "f", "", "the payload is in this `file`")
	return command.Owned(cmd)
}

// request builds the request from the flags.
func (f *scheduleFlags) request(in io.Reader, args []string) (api.ScheduleAddRequest, error) {
	req := api.ScheduleAddRequest{Name: args[1], Schedule: args[2], TimeZone: f.zone, Missed: f.missed, TTLMs: int64(f.ttl)}
	for _, text := range f.headers {
		name, value, err := command.ParseHeader("header", text)
		if err != nil {
			return req, err
		}
		if req.Headers == nil {
			req.Headers = make(map[string][]string)
		}
		req.Headers[name] = append(req.Headers[name], value)
	}
	switch {
	case len(args) > 3 && f.file != "":
		return req, command.UsageError("TEXT and --file: one of them is allowed")
	case len(args) > 3:
		req.Payload = []byte(args[3])
	case f.file == "-":
		data, err := readPayload(in)
		if err != nil {
			return req, err
		}
		req.Payload = data
	case f.file != "":
		data, err := os.ReadFile(f.file)
		if err != nil {
			return req, command.UsageError("--file %s: %w", f.file, command.PathReason(err))
		}
		req.Payload = data
	}
	return req, nil
}

// scheduleNames completes the schedules of the queue in the first argument, with their times.
func scheduleNames(ctx context.Context, s *command.Session, args []string, _ string) ([]string, error) {
	all, err := s.ScheduleList(ctx, wire.Source(args[0]))
	var names []string
	for i := range all {
		names = append(names, command.Described(all[i].Name, all[i].Schedule))
	}
	return names, err
}

// newScheduleOneCommand makes a command about one schedule.
func newScheduleOneCommand(env *command.Env, verb, short string, do func(*client.Client, context.Context, string, string) (api.ScheduleInfo, error)) *cobra.Command {
	return &cobra.Command{
		Use:               verb + " QUEUE NAME",
		Short:             short,
		Example:           "  fila schedule " + verb + " orders nightly",
		ValidArgsFunction: env.Complete(command.QueueNames, scheduleNames),
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.ScheduleInfo, error) {
			return do(s.Client, ctx, wire.Source(args[0]), args[1])
		}, func(i api.ScheduleInfo, _ []string) string { return showSchedule(env, &i) }),
	}
}

func newScheduleDeleteCommand(env *command.Env) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:               "delete QUEUE NAME",
		ValidArgsFunction: env.Complete(command.QueueNames, scheduleNames),
		Short:             "Delete a schedule; messages that it has enqueued stay",
		Long: `Delete a schedule and its message, and print them. On a terminal the command shows
them first, and asks, unless --yes is given.`,
		Example: "  fila schedule delete orders nightly",
	}
	cmd.RunE = command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.ScheduleInfo, error) {
		if !yes && command.CanAsk(cmd) {
			i, err := s.ScheduleShow(ctx, wire.Source(args[0]), args[1])
			if err != nil {
				return i, err
			}
			if !command.Agreed(cmd, fmt.Sprintf("%s\n%s: delete this schedule?", showSchedule(env, &i), i.Queue)) {
				return i, command.Exit(command.ExitConflict, errors.New("nothing was deleted"))
			}
			var cancel context.CancelFunc
			ctx, cancel = s.WaitFor(cmd, s.Timeout)
			defer cancel()
		}
		return s.ScheduleDelete(ctx, wire.Source(args[0]), args[1])
	}, func(i api.ScheduleInfo, _ []string) string {
		return fmt.Sprintf("deleted schedule %s of queue %s: %s\n%s", i.Name, i.Queue, terminal.Clean(i.Schedule), command.Warnings(i.Warnings))
	})
	cmd.Flags().BoolVar(&yes, "yes", false, "delete without asking")
	return command.Owned(cmd)
}

func newScheduleListCommand(env *command.Env) *cobra.Command {
	var queue string
	cmd := &cobra.Command{
		Use:     "list",
		Args:    command.Args(),
		Aliases: []string{"ls"},
		Short:   "List schedules by queue and name",
		Example: "  fila schedule list\n  fila schedule list --queue orders --json",
		RunE: command.AskList(env, func(ctx context.Context, s *command.Session) ([]api.ScheduleInfo, error) {
			return s.ScheduleList(ctx, wire.Source(queue))
		}, func(all []api.ScheduleInfo, _ []string) api.ScheduleList {
			return api.ScheduleList{Total: len(all), Schedules: append([]api.ScheduleInfo{}, all...)}
		}, func(list api.ScheduleList, _ []string) string {
			t := terminal.NewTable("QUEUE", "NAME", "SCHEDULE", "ZONE", "STATE", "NEXT", "RUNS", "MISSED")
			for i := range list.Schedules {
				s := &list.Schedules[i]
				next := "-"
				if len(s.Next) > 0 {
					next = nextRun(env, s.Next[0])
				}
				t.Row(s.Queue, s.Name, terminal.Clean(s.Schedule), terminal.OrDash(terminal.Clean(s.TimeZone)), scheduleState(s), next, s.Runs, s.MissedN)
			}
			return t.Or("there are no schedules")
		}),
	}
	cmd.Flags().StringVar(&queue, "queue", "", "only schedules of this `queue`")
	return cmd
}

// nextRun formats the next run in the schedule's time zone.
func nextRun(env *command.Env, stamp string) string { return stamp + " (" + env.Soon(stamp) + ")" }

// scheduleState describes the state of a schedule in a word.
func scheduleState(s *api.ScheduleInfo) string {
	if s.Why != "" {
		return "late"
	}
	return s.State
}

func showSchedule(env *command.Env, i *api.ScheduleInfo) string {
	t := terminal.NewTable("schedule", i.Name)
	t.Row("queue", i.Queue)
	t.Row("runs", terminal.Clean(i.Schedule))
	t.Fact("time zone", terminal.Clean(i.TimeZone))
	t.Row("state", scheduleState(i))
	t.Fact("why", terminal.Clean(i.Why))
	t.Row("missed runs", i.Missed)
	if i.TTLMs > 0 {
		t.Row("ttl", wire.FormatMs(i.TTLMs))
	}
	by := ""
	if i.ByEnqueue {
		by = ", by an enqueue"
	}
	t.Row("created", env.When(i.CreatedAt)+by)
	if i.Replaced {
		t.Row("", "an earlier one of that name was replaced")
	}
	if i.Unchanged {
		t.Row("", "it existed already, and is unchanged")
	}
	for n, next := range i.Next {
		name := ""
		if n == 0 {
			name = "next"
		}
		t.Row(name, nextRun(env, next))
	}
	t.Row("made", i.Runs)
	t.Row("missed", i.MissedN)
	for _, name := range slices.Sorted(maps.Keys(i.Headers)) {
		for _, value := range i.Headers[name] {
			t.Row("header", terminal.Clean(name)+": "+terminal.Clean(value))
		}
	}
	t.Row("bytes", i.Bytes)
	if len(i.Payload) > 0 {
		t.Row("payload", terminal.Fit(terminal.Clean(string(i.Payload)), 100))
	}
	if len(i.Last) == 0 {
		return t.String()
	}
	runs := terminal.NewTable("RAN AT", "MADE", "MESSAGE")
	for _, r := range i.Last {
		runs.Row(env.When(r.At), r.MadeAt, r.ID)
	}
	return terminal.Sections(t.String(), runs.String())
}
