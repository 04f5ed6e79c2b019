package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
)

// Env is what the commands of one invocation share.
type Env struct {
	Conn    Connection
	JSON    bool
	started bool // a command has started: later errors are not about usage
	terminal.Clock
}

// Root returns the command fila with the given subcommands and the common flags.
func (env *Env) Root(commands ...*cobra.Command) *cobra.Command {
	root := Group(&cobra.Command{
		Use:              "fila",
		Version:          ReadBuildInfo().String(),
		SilenceErrors:    true,
		SilenceUsage:     true,
		PersistentPreRun: func(*cobra.Command, []string) { env.started = true },
	}, commands...)
	root.SetVersionTemplate("{{.Version}}")
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	flags := root.PersistentFlags()
	env.Conn.addFlags(flags)
	flags.BoolVar(&env.JSON, "json", false, "print JSON")
	root.AddCommand(flagsTopic(root))
	root.SetUsageFunc(usage)
	CompleteFlag(root, "context", completeContexts)
	return root
}

// Run runs a root command with the arguments after its name and returns the exit code. It
// prints a problem on errOut, as a line of text or, with --json, of JSON.
func Run(ctx context.Context, env *Env, root *cobra.Command, args []string, in io.Reader, out, errOut io.Writer) int {
	if len(args) > 0 && slices.Contains([]string{cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}, args[0]) {
		env.completeByName(root)
	}
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	code := ExitCode(err)
	text := err.Error()
	if !env.started && code == ExitFailed {
		code = ExitUsage
		text = badFlag(err)
		text += fmt.Sprintf(" (see `%s --help`)", cmd.CommandPath())
	}
	if env.JSON || !env.started && asksForJSON(args) {
		complainJSON(errOut, err, text)
	} else {
		Complain(errOut, text)
	}
	return code
}

// Group adds subcommands to a command without an action of its own, and makes it refuse other
// arguments, where cobra would print the help and report success. It also checks the number of
// arguments of subcommands by their Use, unless they have their own check.
func Group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	for _, sub := range commands {
		if sub.Args == nil {
			sub.Args = Args(argumentNames(sub)...)
		}
		cmd.AddCommand(sub)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		hint := ""
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = fmt.Sprintf(" (did you mean %s?)", strings.Join(near, " or "))
		}
		return UsageError("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint)
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.SuggestionsMinimumDistance = 2
	return cmd
}

// KeyGroup is a Group of commands whose first argument is a key or the beginning of keys.
func (env *Env) KeyGroup(cmd *cobra.Command, keys Lookup, commands ...*cobra.Command) *cobra.Command {
	for _, sub := range commands {
		sub.ValidArgsFunction = env.Complete(keys)
		if slices.Contains(argumentNames(sub), keyPrefix) {
			prefixFlag(sub)
		}
	}
	return Group(cmd, commands...)
}

// keyPrefix is the argument of a list of keys.
const keyPrefix = "[KEY-PREFIX]"

// prefixFlag adds --prefix as an alternative to the argument of a list of keys.
func prefixFlag(cmd *cobra.Command) {
	prefix := cmd.Flags().String("prefix", "", "only keys that begin with this `text`")
	CompleteFlag(cmd, "prefix", func(cmd *cobra.Command, _ []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return cmd.ValidArgsFunction(cmd, nil, text)
	})
	count, run := Args(argumentNames(cmd)...), cmd.RunE
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("prefix") && len(args) > 0 {
			return errors.New("KEY-PREFIX and --prefix say the same: one of them is allowed")
		}
		return count(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("prefix") {
			args = []string{*prefix}
		}
		return run(cmd, args)
	}
}

// argumentNames returns the argument names of a command.
func argumentNames(cmd *cobra.Command) []string { return strings.Fields(cmd.Use)[1:] }

// Args checks the number of arguments by their names: names in brackets are optional, and a
// name that ends in "...]" may repeat.
func Args(names ...string) cobra.PositionalArgs {
	required, repeats := 0, len(names) > 0 && strings.HasSuffix(names[len(names)-1], "...]")
	for _, name := range names {
		if !strings.HasPrefix(name, "[") {
			required++
		}
	}
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < required:
			return fmt.Errorf("%s is missing", names[len(args)])
		case len(args) > len(names) && !repeats:
			return fmt.Errorf("unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// Bound refuses a whole number as the value of a flag unless it is from lo to hi. allowed says
// which are allowed; empty names both bounds.
func Bound(cmd *cobra.Command, flag string, lo, hi int64, allowed string) {
	if allowed == "" {
		allowed = fmt.Sprintf("are %d to %d", lo, hi)
	}
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		text := cmd.Flag(flag).Value.String()
		if n, err := strconv.ParseInt(text, 10, 64); err != nil || n < lo || n > hi {
			return UsageError("--%s %s: allowed %s", flag, text, allowed)
		}
		if before != nil {
			return before(cmd, args)
		}
		return nil
	}
}

// CanAsk reports whether a command can ask its user a question.
func CanAsk(cmd *cobra.Command) bool {
	return terminal.IsTerminalInput(cmd.InOrStdin()) && terminal.IsTerminal(cmd.ErrOrStderr())
}

// Agreed asks a question on standard error, and reports whether the answer is yes.
func Agreed(cmd *cobra.Command, question string) bool {
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// Ask returns a function that connects, calls fila and shows the reply. --timeout bounds all of
// it, including the connection and all pages.
func Ask[T any](env *Env, ask func(ctx context.Context, s *Session, args []string) (T, error), show func(reply T, args []string) string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		begin := time.Now()
		s, err := env.Conn.Open()
		if err != nil {
			return err
		}
		defer s.Close()
		s.named = queuesNamed(cmd)
		ctx, cancel := context.WithDeadline(cmd.Context(), begin.Add(s.Timeout))
		defer cancel()
		reply, err := ask(ctx, s, args)
		var later *laterError
		if err != nil && !errors.As(err, &later) {
			return s.Explain(err)
		}
		if err := env.Show(cmd, reply, func() string { return show(reply, args) }); err != nil || later == nil {
			return err
		}
		return later.error
	}
}

// WaitFor returns a context for a request that may take longer than others, or that comes after a
// question. Without --timeout it ends after most.
func (s *Session) WaitFor(cmd *cobra.Command, most time.Duration) (context.Context, context.CancelFunc) {
	if cmd.Flags().Changed("timeout") || os.Getenv(TimeoutVariable) != "" {
		most = s.Timeout
	}
	return context.WithTimeout(cmd.Context(), most)
}

// laterError is an error of Ask that does not keep it from showing the reply.
type laterError struct{ error }

// Later makes an error with which Ask fails after it has shown the reply.
func Later(err error) error { return &laterError{err} }

// AskList is Ask for a list of a cluster: if a part of it is unavailable, it shows the rest, and
// then fails.
func AskList[T, R any](env *Env, list func(ctx context.Context, s *Session) ([]T, error), reply func(all []T, args []string) R, show func(reply R, args []string) string) func(*cobra.Command, []string) error {
	return Ask(env, func(ctx context.Context, s *Session, args []string) (R, error) {
		all, err := list(ctx, s)
		if refused := (*client.Error)(nil); len(all) > 0 && errors.As(err, &refused) && refused.ErrCode == wire.CodeNoOwner {
			err = Later(fmt.Errorf("the list is not whole: %w", s.Explain(err)))
		}
		return reply(all, args), err
	}, show)
}

// One gives a command, whose first argument names an object, its action: it calls fila and shows
// the object of the reply.
func One[T any](env *Env, cmd *cobra.Command, call func(c *client.Client, ctx context.Context, name string) (T, error), show func(T) string) *cobra.Command {
	cmd.RunE = Ask(env, func(ctx context.Context, s *Session, args []string) (T, error) {
		return call(s.Client, ctx, args[0])
	}, func(reply T, _ []string) string { return show(reply) })
	return cmd
}

// Show writes a result: as JSON with --json, otherwise as text.
func (env *Env) Show(cmd *cobra.Command, result any, text func() string) error {
	if env.JSON {
		return terminal.PrintJSON(cmd.OutOrStdout(), result)
	}
	_, err := io.WriteString(cmd.OutOrStdout(), text())
	return err
}

// Stay runs fn with a reconnecting connection and a context that ends with the first signal.
// After restore a signal ends the process.
func (env *Env) Stay(cmd *cobra.Command, fn func(ctx context.Context, restore func(), s *Session) error, options ...nats.Option) error {
	ctx, restore := UntilSignal(cmd)
	defer restore()
	s, err := env.Conn.Open(append(options, nats.MaxReconnects(-1))...)
	if err != nil {
		return err
	}
	defer s.Close()
	s.named = queuesNamed(cmd)
	return fn(ctx, restore, s)
}

// UntilSignal returns a context that ends with the first signal. After restore a signal ends
// the process.
func UntilSignal(cmd *cobra.Command) (ctx context.Context, restore func()) {
	return signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
}
