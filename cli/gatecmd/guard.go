package gatecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func newGuardCommand(env *command.Env) *cobra.Command {
	return command.Group(&cobra.Command{
		Use:   "guard",
		Short: "Apply limits and circuits to calls that are not messages",
		Long: `The guard applies limits and circuits to calls that are not messages. A caller asks
before the call, gets a permit, and reports the outcome of the call. The first key
names the destination, whose circuit decides; the limits of all keys apply.`,
	}, newGuardCheckCommand(env), newGuardDoneCommand(env), newGuardJudgeCommand(env), newGuardStateCommand(env), newGuardPermitsCommand(env), newGuardEndCommand(env))
}

func newGuardCheckCommand(env *command.Env) *cobra.Command {
	var caller string
	var ttl terminal.Millis
	var call client.GuardCall
	var wait bool
	cmd := &cobra.Command{
		Use:   "check KEY [KEY...]",
		Short: "Ask whether a call may be made now",
		Long: `Ask whether a call may be made now. The command prints the permit for "fila guard
done", or the gate that refuses the call (exit code 6).`,
		Example: `  fila guard check vendor:stripe tenant:acme
  permit=$(fila guard check vendor:stripe --json | jq -r .permit)`,
		ValidArgsFunction: env.Complete(circuitKeys, throttleKeys),
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.GuardAnswer, error) {
			call.Keys, call.TTL = args, ttl.Duration()
			options := []client.GuardOption{client.GuardCaller(caller)}
			if wait {
				options = append(options, client.GuardWait())
			}
			permit, err := s.Guard(options...).Check(ctx, call)
			var refused *client.RefusedError
			switch {
			case errors.As(err, &refused):
				return refused.GuardAnswer, command.Later(command.Exit(command.ExitRefused, errors.New(terminal.Clean(refused.Error()))))
			case err != nil:
				return api.GuardAnswer{}, err
			}
			return permit.GuardAnswer, nil
		}, func(a api.GuardAnswer, _ []string) string { return showGuardAnswer(env, &a) }),
	}
	cmd.Flags().StringVar(&caller, "caller", "", "`name` of the caller, which done must repeat")
	cmd.Flags().Float64Var(&call.Cost, "cost", 0, "cost of the call at rates; 0 is 1")
	cmd.Flags().Var(&ttl, "ttl", "lifetime of the permit without a done; 0 is 30s")
	cmd.Flags().BoolVar(&wait, "wait", false, "ask again until the call is allowed, within --timeout")
	return cmd
}

// failedCall describes a failed call by flags.
type failedCall struct {
	text, code string
	retryAfter time.Duration
}

func (e *failedCall) Error() string             { return e.text }
func (e *failedCall) ErrorCode() string         { return e.code }
func (e *failedCall) RetryAfter() time.Duration { return e.retryAfter }

func newGuardDoneCommand(env *command.Env) *cobra.Command {
	var failure failedCall
	var failed bool
	var caller string
	var retryAfter terminal.Millis
	var call client.GuardCall
	var cost, remaining float64
	var reset terminal.Millis
	var cmd *cobra.Command
	cmd = &cobra.Command{
		Use:   "done KEY PERMIT",
		Short: "Report how a call went",
		Long: `Report the outcome of a call: success without flags. After a failure the command shows
what the error rules decide: the severity, whether to call again, and when. KEY is the
first key of the check. --cost replaces the cost that the check took of rates;
--remaining and --reset tell limits that learn what the destination still admits.`,
		Example: `  fila guard done vendor:stripe $permit
  fila guard done vendor:stripe $permit --cost 3120 --remaining 12000 --reset 800ms
  fila guard done vendor:stripe $permit --error-code 503 --error "upstream is down"`,
		ValidArgsFunction: env.Complete(circuitKeys),
		PreRunE: func(*cobra.Command, []string) error {
			if reset != 0 && !cmd.Flags().Changed("remaining") {
				return command.UsageError("--reset is given without --remaining: they go together")
			}
			return nil
		},
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.GuardVerdict, error) {
			call.Keys = args[:1]
			var err error
			failure.retryAfter = time.Duration(retryAfter) * time.Millisecond
			if failed || failure != (failedCall{}) {
				err = &failure
			}
			permit := s.Guard(client.GuardCaller(caller)).Permit(args[1], call)
			var o client.AckOptions
			if cmd.Flags().Changed("cost") {
				o.Cost = &cost
			}
			if cmd.Flags().Changed("remaining") {
				o.Feedback = &client.Feedback{Remaining: remaining, Reset: reset.Duration()}
			}
			return permit.DoneWith(ctx, err, o)
		}, func(v api.GuardVerdict, _ []string) string { return showVerdict(&v) }),
	}
	f := cmd.Flags()
	f.StringVar(&caller, "caller", "", "`name` that the check gave")
	f.Float64Var(&cost, "cost", 0, "actual cost of the call; without it the cost of the check stands")
	f.Float64Var(&remaining, "remaining", 0, "cost that the destination still admits, as it says")
	f.Var(&reset, "reset", "time until the destination admits more")
	f.BoolVar(&failed, "failed", false, "the call failed; implied by the flags with details")
	f.Var(&retryAfter, "retry-after", "pause that the destination asked for")
	addErrorFlags(cmd, &failure, &call)
	return cmd
}

func newGuardJudgeCommand(env *command.Env) *cobra.Command {
	var failure failedCall
	var call client.GuardCall
	cmd := &cobra.Command{
		Use:   "judge KEY",
		Short: "Show what the error rules decide about an error, without a call",
		Long: `Show what the error rules of the running fila decide about an error: its severity, whether
to call again, and when. Nothing is counted. KEY is the destination.`,
		Example:           `  fila guard judge vendor:stripe --error-code 503 --error "upstream is down"`,
		ValidArgsFunction: env.Complete(circuitKeys),
		PreRunE: func(*cobra.Command, []string) error {
			if failure == (failedCall{}) {
				return command.UsageError("the error is missing: give --error-code, --error or both")
			}
			return nil
		},
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.GuardVerdict, error) {
			call.Keys = args[:1]
			return s.Guard().Judge(ctx, call, &failure)
		}, func(v api.GuardVerdict, _ []string) string {
			return verdictTable(terminal.NewTable("severity", v.Severity), &v)
		}),
	}
	addErrorFlags(cmd, &failure, &call)
	return cmd
}

// addErrorFlags adds flags for the fields that error rules match.
func addErrorFlags(cmd *cobra.Command, failure *failedCall, call *client.GuardCall) {
	f := cmd.Flags()
	f.StringVar(&failure.code, "error-code", "", "error `code`, for error rules")
	f.StringVar(&failure.text, "error", "", "error `text`, for error rules")
	f.IntVar(&call.Attempt, "attempt", 1, "number of calls so far for this work")
	f.StringVar(&call.RetryPolicy, "retry-policy", "", "`name` of the retry policy if no rule has one")
}

func newGuardStateCommand(env *command.Env) *cobra.Command {
	var caller string
	cmd := &cobra.Command{
		Use:               "state KEY",
		Short:             "Show whether a call with a key would be allowed, and its limits",
		Example:           "  fila guard state vendor:stripe",
		ValidArgsFunction: env.Complete(circuitKeys),
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.GuardStatus, error) {
			return s.Guard(client.GuardCaller(caller)).State(ctx, args[0])
		}, func(st api.GuardStatus, _ []string) string { return showGuardStatus(env, &st) }),
	}
	cmd.Flags().StringVar(&caller, "caller", "", "`name` of the caller")
	return cmd
}

func showGuardAnswer(env *command.Env, a *api.GuardAnswer) string {
	if a.Allowed {
		t := terminal.NewTable("permit", a.Permit)
		t.Row("until", env.When(a.ExpiresAt))
		if a.Probe {
			t.Row("probe", "the circuit is half-open, and this call decides about it")
		}
		return t.String()
	}
	t := terminal.NewTable("refused by", a.Gate+" of "+terminal.Clean(a.Key))
	again := "not known"
	if a.RetryAfterMs > 0 {
		again = "in " + wire.FormatMs(a.RetryAfterMs)
	}
	t.Row("ask again", again)
	if l := a.Limit; l != nil {
		t.Row("limit", limitText(l))
	}
	return t.String()
}

// limitText describes a limit: "3 of 10 left in 1m, all in 12s".
func limitText(l *api.GuardLimit) string {
	text := fmt.Sprintf("%d of %d left", l.Remaining, l.Limit)
	if l.WindowMs > 0 {
		text += " in " + wire.FormatMs(l.WindowMs)
	}
	if l.ResetS > 0 {
		text += ", all in " + wire.FormatMs(l.ResetS*1000)
	}
	return text
}

func showVerdict(v *api.GuardVerdict) string {
	counted := "yes"
	if v.Duplicate {
		counted = "no: it was reported before"
	}
	t := terminal.NewTable("counted", counted)
	if v.Severity == "" {
		return t.String()
	}
	t.Row("severity", v.Severity)
	return verdictTable(t, v)
}

// verdictTable adds the result of the error rules.
func verdictTable(t *terminal.Table, v *api.GuardVerdict) string {
	t.Row("rule", cmp.Or(terminal.Clean(strings.TrimSpace(v.Rule+"  "+v.Description)), "none"))
	retry := "no"
	if v.Retry {
		retry = "in " + wire.FormatMs(v.DelayMs)
		if v.DelayMs == 0 {
			retry = "at once"
		}
		if v.RetriesLeft != nil {
			retry += fmt.Sprintf(", %d left", *v.RetriesLeft)
		}
	}
	t.Row("retry", retry)
	return t.String()
}

func showGuardStatus(env *command.Env, st *api.GuardStatus) string {
	t := terminal.NewTable("key", terminal.Clean(st.Key))
	if st.Answer.Allowed {
		t.Row("a call now", "allowed")
	} else {
		text := "refused by " + st.Answer.Gate
		if st.Answer.RetryAfterMs > 0 {
			text += ", ask again in " + wire.FormatMs(st.Answer.RetryAfterMs)
		}
		t.Row("a call now", text)
	}
	circuit := api.CircuitInfo{State: "closed"}
	if st.Circuit != nil {
		circuit = *st.Circuit
	}
	t.Row("circuit", circuitState(circuit.State))
	for i := range st.Limits {
		t.Row(st.Limits[i].Gate, limitText(&st.Limits[i]))
	}
	t.Row("calls under way", st.Permits)
	return t.String()
}
