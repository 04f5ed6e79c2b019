package messagecmd

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func newJobCommand(env *command.Env) *cobra.Command {
	return command.Group(&cobra.Command{
		Use:     "job",
		Aliases: []string{"jobs"},
		Short:   "Redrive, move, delete or change many messages",
		Long: `A job redrives, moves, deletes or changes all messages of a queue that match a
filter. After a kill or a takeover it continues, and does nothing twice. One job
runs at a time for a queue and its dead letters.`,
	},
		newJobCreateCommand(env), newJobListCommand(env),
		newJobOneCommand(env, "show", "Show a job and its progress", anyJob, (*client.Client).JobShow),
		newJobOneCommand(env, "pause", "Pause a job until it is resumed", (*api.JobInfo).Ended, (*client.Client).JobPause),
		newJobOneCommand(env, "resume", "Resume a paused job", notPaused, (*client.Client).JobResume),
		newJobOneCommand(env, "cancel", "Cancel the rest of a job; its changes so far stay", (*api.JobInfo).Ended, (*client.Client).JobCancel))
}

const exampleJob = "01981c2e-9a30-7b12-8f00-6c1d2e3f4a5b"

// jobFlags are the flags of job create.
type jobFlags struct {
	api.JobCreateRequest
	only    *command.FilterFlags
	all     bool
	set     []string
	file    string
	ifCount int64
	yes     bool
	wait    bool
}

func newJobCreateCommand(env *command.Env) *cobra.Command {
	var f jobFlags
	cmd := &cobra.Command{
		Use:   "create QUEUE OP",
		Short: "Create a job, or show what it would do",
		Long: `Create a job for the present messages of a queue that match the flags, or --all. OP
is

  redrive       moves dead letters back to their queue
  move          moves messages to the queue --to
  delete        removes dead letters for good; QUEUE must be QUEUE.dlq
  cancel        removes pending and delayed messages
  delay         delays messages until --run-at
  run-now       ends the delay of messages
  reprioritise  gives messages the fairness key --to-key or the weight --weight
  edit          gives one message other headers or another payload

--dry-run counts the messages that match, and those that the job would skip. On a
terminal delete and cancel print these counts first, and ask, unless --yes is given.`,
		Example: `  fila job create orders redrive --error-code timeout --rate 500
  fila job create orders.dlq delete --error-contains "card declined" --died-after 2h --dry-run
  fila job create orders move --to slow --key acme --why "they asked for it"
  fila job create orders.dlq edit --id ` + exampleID + ` --set-header currency=EUR`,
		Args: command.Args("QUEUE", "OP"),
		PreRunE: func(cmd *cobra.Command, args []string) error {
			return f.complete(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return command.Ask(env, func(ctx context.Context, s *command.Session, _ []string) (api.JobInfo, error) {
				return f.create(ctx, env, cmd, s)
			}, func(j api.JobInfo, _ []string) string { return showJob(env, &j) })(cmd, args)
		},
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return command.Words(api.JobOps(), prefix)
		}
		return env.Complete(command.QueueNames)(cmd, args, prefix)
	}
	f.only = env.FilterFlags(cmd, jobQueue)
	flags := cmd.Flags()
	flags.BoolVar(&f.all, "all", false, "all messages of the queue")
	flags.StringVar(&f.To, "to", "", "of move: the `target` queue")
	command.CompleteFlag(cmd, "to", env.OfQueue(command.QueueNames, nil))
	flags.StringVar(&f.RunAt, "run-at", "", "of delay: RFC 3339, or a duration from now such as 90m")
	flags.StringVar(&f.Key, "to-key", "", "of reprioritise: the fairness `key`")
	command.CompleteFlag(cmd, "to-key", env.OfQueue(command.FairnessKeys, jobQueue))
	flags.Float64Var(&f.Weight, "weight", 0, "of reprioritise: 1 to 1000000")
	flags.StringArrayVar(&f.set, "set-header", nil, "of edit: set a header, `name=value`; may be repeated")
	flags.StringArrayVar(&f.RemoveHeaders, "remove-header", nil, "of edit: remove this header; may be repeated")
	flags.StringVar(&f.file, "payload-file", "", "of edit: `file` with the new payload")
	flags.StringVar(&f.Order, "order", "", "arrival (default): first enqueued first; death: first dead-lettered first")
	command.Allow(cmd, "order", api.OrderArrival, api.OrderDeath)
	flags.Int64Var(&f.Rate, "rate", 0, "messages per second, at most; 0 is 40,000")
	flags.Int64Var(&f.Limit, "limit", 0, "messages in all, at most; 0 is no limit")
	flags.Int64Var(&f.ifCount, "if-count", 0, "exit code 5 unless exactly this many messages match")
	flags.StringVar(&f.Reason, "why", "", "the `reason`, which the audit log shows")
	flags.BoolVar(&f.DryRun, "dry-run", false, "only print what the job would do")
	flags.BoolVar(&f.yes, "yes", false, "do not ask")
	flags.BoolVar(&f.wait, "wait", false, "wait up to --timeout for the job to end or pause")
	return cmd
}

// jobQueue returns the queue that the arguments QUEUE and OP select from.
func jobQueue(args []string) string {
	if len(args) > 1 && args[1] == api.JobRedrive {
		return wire.DeadLetters(args[0])
	}
	return args[0]
}

// complete builds the request from the flags.
func (f *jobFlags) complete(cmd *cobra.Command, args []string) error {
	f.JobCreateRequest.Queue, f.Op = jobQueue(args), args[1]
	filter, err := f.only.Named()
	switch {
	case err != nil:
		return err
	case f.all && filter != nil:
		return command.UsageError("--all selects all messages: leave out the other flags that select some")
	case f.all:
		filter = &api.Filter{All: true}
	case filter == nil:
		return command.UsageError("no message is selected: give a flag such as --key, --header or --error-code, or --all for all messages of the queue")
	}
	f.JobCreateRequest.Filter = filter
	if cmd.Flag("if-count").Changed {
		f.IfCount = &f.ifCount
	}
	for _, text := range f.set {
		name, value, err := command.ParseHeader("set-header", text)
		if err != nil {
			return err
		}
		if f.SetHeaders == nil {
			f.SetHeaders = make(map[string]string)
		}
		f.SetHeaders[name] = value
	}
	if f.file != "" {
		data, err := os.ReadFile(f.file)
		if err != nil {
			return command.UsageError("--payload-file %s: %w", f.file, command.PathReason(err))
		}
		payload := base64.StdEncoding.EncodeToString(data)
		f.Payload = &payload
	}
	return nil
}

// create starts the job, and with --wait waits for its end or pause. It asks for confirmation if
// the job removes messages.
func (f *jobFlags) create(ctx context.Context, env *command.Env, cmd *cobra.Command, s *command.Session) (api.JobInfo, error) {
	if (f.Op == api.JobDelete || f.Op == api.JobCancel) && !f.yes && !f.DryRun && command.CanAsk(cmd) {
		dry := f.JobCreateRequest
		dry.DryRun = true
		j, err := s.JobCreate(ctx, dry)
		if err != nil {
			return j, err
		}
		if j.Eligible == 0 {
			return j, nil // nothing to confirm
		}
		if !command.Agreed(cmd, fmt.Sprintf("%s\n%s: remove %s for good?", showJob(env, &j), f.JobCreateRequest.Queue, terminal.Plural(j.Eligible, "message"))) {
			return j, command.Exit(command.ExitConflict, errors.New("nothing was removed"))
		}
		f.IfCount = &j.Matched
		var cancel context.CancelFunc
		ctx, cancel = s.WaitFor(cmd, s.Timeout)
		defer cancel()
	}
	j, err := s.JobCreate(ctx, f.JobCreateRequest)
	for f.wait && err == nil && j.ID != "" && !j.Ended() && j.State != api.JobPaused {
		select {
		case <-time.After(jobInterval):
		case <-ctx.Done():
			return j, fmt.Errorf("job %s goes on, longer than --timeout: `fila job show %s` shows its progress", j.ID, j.ID)
		}
		j, err = s.JobShow(ctx, j.ID)
	}
	return j, err
}

// jobInterval is the interval of status requests while a command waits for a job.
const jobInterval = 100 * time.Millisecond

func anyJob(*api.JobInfo) bool { return false }

func notPaused(j *api.JobInfo) bool { return j.State != api.JobPaused }

// jobIDs completes the ids of jobs of all queues, with their actions, except jobs in a state of
// leaveOut, for which the command has no effect.
func jobIDs(leaveOut func(*api.JobInfo) bool) command.Lookup {
	return func(ctx context.Context, s *command.Session, _ []string, _ string) ([]string, error) {
		all, err := s.JobList(ctx, "")
		if len(all) > 0 {
			err = nil // some shards of a cluster are unavailable, but here are the jobs of the others
		}
		var ids []string
		for i := range all {
			if j := &all[i]; !leaveOut(j) {
				ids = append(ids, command.Described(j.ID, j.Op+" "+j.Queue+", "+j.State))
			}
		}
		return ids, err
	}
}

// newJobOneCommand makes a command about one job. Completion leaves out the jobs on which it
// has no effect.
func newJobOneCommand(env *command.Env, verb, short string, leaveOut func(*api.JobInfo) bool, do func(*client.Client, context.Context, string) (api.JobInfo, error)) *cobra.Command {
	return command.One(env, &cobra.Command{
		Use:               verb + " ID",
		Short:             short,
		Example:           "  fila job " + verb + " " + exampleJob,
		ValidArgsFunction: env.Complete(jobIDs(leaveOut)),
	}, do, func(j api.JobInfo) string { return showJob(env, &j) })
}

func newJobListCommand(env *command.Env) *cobra.Command {
	var queue string
	cmd := &cobra.Command{
		Use:     "list",
		Args:    command.Args(),
		Aliases: []string{"ls"},
		Short:   "List jobs, newest first",
		Example: "  fila job list\n  fila job list --queue orders --json",
		RunE: command.AskList(env, func(ctx context.Context, s *command.Session) ([]api.JobInfo, error) {
			return s.JobList(ctx, queue)
		}, func(jobs []api.JobInfo, _ []string) api.JobList {
			return api.JobList{Total: len(jobs), Jobs: append([]api.JobInfo{}, jobs...)}
		}, func(list api.JobList, _ []string) string {
			t := terminal.NewTable("JOB", "QUEUE", "OP", "STATE", "DONE", "MATCHED", "CREATED")
			for _, j := range list.Jobs {
				t.Row(j.ID, j.Queue, j.Op, j.State, j.Done, j.Matched, env.When(j.CreatedAt))
			}
			return t.Or("there are no jobs")
		}),
	}
	cmd.Flags().StringVar(&queue, "queue", "", "only jobs of this `queue` and of its dead letters")
	return cmd
}

// showJob shows a job, or the plan of one.
func showJob(env *command.Env, j *api.JobInfo) string {
	if j.ID == "" {
		t := terminal.NewTable("would "+j.Op, j.Queue)
		t.Row("matched", j.Matched)
		t.Row("eligible", j.Eligible)
		t.Fact("then pauses", terminal.Clean(j.Why))
		skippedRow(t, j)
		samples := terminal.NewTable("ID", "KEY", "STATE", "ENQUEUED")
		for _, m := range j.Samples {
			samples.Row(m.ID, terminal.Clean(m.Key), m.State, env.When(m.EnqueuedAt))
		}
		if len(j.Samples) == 0 {
			return t.String()
		}
		return terminal.Sections(t.String(), samples.String())
	}
	t := terminal.NewTable("job", j.ID)
	t.Row("queue", j.Queue)
	t.Row("op", j.Op)
	t.Fact("to", j.To)
	t.Row("state", j.State)
	t.Fact("why", terminal.Clean(j.Why))
	t.Fact("reason", terminal.Clean(j.Reason))
	t.Row("done", j.Done)
	t.Row("matched", j.Matched)
	if j.CameBack != nil {
		t.Row("came back", *j.CameBack)
	}
	skippedRow(t, j)
	if j.UnderWay > 0 {
		t.Row("under way", j.UnderWay)
	}
	if j.NewSince != nil {
		t.Row("came later", *j.NewSince)
	}
	t.Fact("created", env.WhenSet(j.CreatedAt))
	t.Fact("started", env.WhenSet(j.StartedAt))
	t.Fact("ended", env.WhenSet(j.EndedAt))
	return t.String()
}

// skippedRow shows why a job left messages unchanged.
func skippedRow(t *terminal.Table, j *api.JobInfo) {
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(j.Left)) {
		parts = append(parts, fmt.Sprintf("%d %s", j.Left[why], api.SkippedText(why)))
	}
	t.Fact("skipped", strings.Join(parts, ", "))
}
