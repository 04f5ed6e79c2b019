package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// app is what the commands of one invocation share.
type app struct {
	conn    connection
	json    bool
	started bool             // a command began to run: later errors are not about usage
	now     func() time.Time // nil: the clock

	newServer serverFactory // of fila serve; tests put their own
}

// Main runs the fila command with the arguments after its name and returns the
// exit code. It prints a problem as one line on errOut.
func Main(args []string, in io.Reader, out, errOut io.Writer) int {
	return run(context.Background(), &app{newServer: newSidecar}, args, in, out, errOut)
}

func run(ctx context.Context, a *app, args []string, in io.Reader, out, errOut io.Writer) int {
	root := newRootCommand(a)
	if len(args) > 0 && slices.Contains([]string{cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}, args[0]) {
		a.completeFlags(root)
	}
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	code := exitCode(err)
	text := err.Error()
	if !a.started && code == exitFailed {
		code = exitUsage
		text += fmt.Sprintf(" (see `%s --help`)", cmd.CommandPath())
	}
	complain(errOut, text)
	return code
}

func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "fila",
		Short: "A scheduling sidecar for NATS: fair, weighted, durable queues",
		Long: `fila decides which message of a queue goes next: fairly between tenants, by
weight, within rate limits, and only to a consumer that can work on it now.

Start one with "fila serve". All other commands talk to a running fila over
NATS and find it like the nats CLI does: --server, --context, NATS_URL, or the
selected context, and nats://127.0.0.1:4222 otherwise.`,
		Example: `  fila demo
  fila serve
  fila queue create orders --fairness-header tenant
  fila publish orders '{"id":1}' -H tenant=acme
  fila consume orders --count 1
  fila queue inspect orders
  fila top
  fila throttle set stripe --rate 10
  fila explain queue orders`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(*cobra.Command, []string) {
			a.started = true
		},
	}
	group(root)
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	flags := root.PersistentFlags()
	a.conn.addFlags(flags)
	flags.BoolVar(&a.json, "json", false, "print JSON")

	hook := newHookCommand()
	hook.AddCommand(newHookResetCommand(a))
	serve := newServeCommand(a)
	allow(serve, "log-level", "debug", "info", "warn", "error")
	allow(serve, "log-format", "text", "json")
	root.AddCommand(
		serve,
		newQueueCommand(a),
		newConfigCommand(a),
		newPublishCommand(a),
		newConsumeCommand(a),
		newPeekCommand(a),
		newTopCommand(a),
		newWatchCommand(a),
		newDemoCommand(a),
		newRedriveCommand(a),
		newThrottleCommand(a),
		newCircuitCommand(a),
		newPauseCommand(a),
		newResumeCommand(a),
		newExplainCommand(a),
		newReloadCommand(a),
		newStoreCommand(a),
		newBenchCommand(a),
		hook,
		newManCommand(),
		newVersionCommand(a),
	)
	completeFlag(root, "context", completeContexts)
	return root
}

// group makes a command that only has subcommands refuse anything else. cobra
// would show the help and report success.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		hint := ""
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = fmt.Sprintf(" (did you mean %s?)", strings.Join(near, " or "))
		}
		return usageError("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint)
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.SuggestionsMinimumDistance = 2
	return cmd
}

// needArgs checks the number of arguments by their names; those in brackets
// may be left out.
func needArgs(names ...string) cobra.PositionalArgs {
	required := 0
	for _, name := range names {
		if !strings.HasPrefix(name, "[") {
			required++
		}
	}
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < required:
			return fmt.Errorf("%s is missing", names[len(args)])
		case len(args) > len(names):
			return fmt.Errorf("unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// online runs fn with a connection to fila and a context for requests.
func (a *app) online(cmd *cobra.Command, fn func(ctx context.Context, s *session) error) error {
	s, err := a.conn.open()
	if err != nil {
		return err
	}
	defer s.close()
	return s.explain(fn(cmd.Context(), s))
}

// complain writes a problem as one line. Where standard error is broken, nobody
// can be told.
func complain(w io.Writer, text string) {
	_, _ = fmt.Fprintf(w, "fila: %s\n", oneLine(text))
}

func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
