package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// app is what the commands of one invocation share.
type app struct {
	conn    connection
	json    bool
	started bool // a command began to run: later errors are not about usage
	clock

	newServer  serverFactory // of fila serve; tests put their own
	readScript func(path string) (string, error)
}

// root returns the command fila with commands below it, and the flags that all of
// them have.
func (a *app) root(commands ...*cobra.Command) *cobra.Command {
	root := group(&cobra.Command{
		Use:              "fila",
		SilenceErrors:    true,
		SilenceUsage:     true,
		PersistentPreRun: func(*cobra.Command, []string) { a.started = true },
	})
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	flags := root.PersistentFlags()
	a.conn.addFlags(flags)
	flags.BoolVar(&a.json, "json", false, "print JSON")
	completeFlag(root, "context", a.completeContexts)
	root.AddCommand(commands...)
	return root
}

// run runs a root command with the arguments after its name and returns the exit
// code. It prints a problem as one line on errOut.
func run(ctx context.Context, a *app, root *cobra.Command, args []string, in io.Reader, out, errOut io.Writer) int {
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
