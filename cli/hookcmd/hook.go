package hookcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Exit codes of `fila hook check` and `fila hook run`.
const (
	exitHookError = 1 // the script failed, or the server would refuse one of its keys
	exitHookLoad  = 2 // the script is refused
	exitHookLimit = 3 // the time or memory limit stopped the script
)

// Commands returns fila hook.
func Commands(env *command.Env) []*cobra.Command {
	group := &cobra.Command{Use: "hook", Short: "Check, list, set and roll back Lua hooks, and close their circuits"}
	return []*cobra.Command{command.Group(group, newHookCheckCommand(), newHookRunCommand(), newHookListCommand(env), newHookShowCommand(env), newHookSetCommand(env), newHookRollbackCommand(env), newHookResetCommand(env))}
}

// hookCheck is what `fila hook check --json` prints for each file.
type hookCheck struct {
	File     string        `json:"file"`
	OK       bool          `json:"ok"` // it loads
	Hooks    []hooks.Kind  `json:"hooks"`
	Warnings []hookWarning `json:"warnings"`
	Error    string        `json:"error,omitempty"`
	Line     int           `json:"line,omitempty"`
	Column   int           `json:"column,omitempty"`
	// Runs are the outcomes of the hooks on the sample, unless --no-run is set.
	Runs map[hooks.Kind]*hookOutcome `json:"runs,omitempty"`
}

type hookWarning struct {
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// checkFlags are the flags of `fila hook check`.
type checkFlags struct {
	headers     []string
	noRun, json bool
}

func newHookCheckCommand() *cobra.Command {
	var f checkFlags
	c := &cobra.Command{
		Use:   "check FILE...",
		Short: "Load scripts, run their hooks on a sample and print the results",
		Long: `Load each script as the server does, and list its hooks and warnings. Then run each
hook once on the sample message of fila hook run, which has no headers without
--header, and print the result.

Exit code: 0 all is well, 1 a hook failed or its message would be refused, 2 a script
does not load, 3 the time or memory limit stopped a hook.`,
		Args: command.Args("FILE", "[FILE...]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			checks := make([]hookCheck, 0, len(args))
			for _, file := range args {
				text, err := os.ReadFile(file)
				if err != nil {
					return fmt.Errorf("cannot read the script: %w", err)
				}
				r, err := checkHook(file, string(text), f, cmd.ErrOrStderr())
				if err != nil {
					return err
				}
				if err := show(cmd.OutOrStdout(), &r, f.json); err != nil {
					return err
				}
				checks = append(checks, r)
			}
			return checkExit(checks)
		},
	}
	headerFlag(c, &f.headers)
	c.Flags().BoolVar(&f.noRun, "no-run", false, "only load the scripts")
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON object per file")
	return c
}

func checkHook(file, text string, f checkFlags, log io.Writer) (hookCheck, error) {
	r := hookCheck{File: file, Hooks: []hooks.Kind{}, Warnings: []hookWarning{}}
	s, err := hooks.Compile("", filepath.Base(file), text, hooks.Limits{})
	if err != nil {
		r.Error = err.Error()
		var le *hooks.LoadError
		if errors.As(err, &le) {
			r.Line, r.Column = le.Line, le.Column
		}
		return r, nil
	}
	r.OK, r.Hooks = true, s.Defines()
	for _, w := range s.Warnings() {
		r.Warnings = append(r.Warnings, hookWarning(w))
	}
	if f.noRun {
		return r, nil
	}
	sample, err := newSample(f.headers, nil)
	if err != nil {
		return r, err
	}
	r.Runs = map[hooks.Kind]*hookOutcome{}
	for _, kind := range r.Hooks {
		o := sample.run(s, kind, hooks.Limits{}, 1, log)
		for range 2 { // the machine may be busy
			if o.Outcome == string(hooks.CauseTimeout) {
				o = sample.run(s, kind, hooks.Limits{}, 1, log)
			}
		}
		r.Runs[kind] = o
	}
	return r, nil
}

// checkExit returns the worst problem with its exit code.
func checkExit(checks []hookCheck) error {
	var refused, stopped, failed int64
	for _, c := range checks {
		if !c.OK {
			refused++
		}
		worst := 0
		for _, o := range c.Runs {
			worst = max(worst, o.code())
		}
		switch worst {
		case exitHookError:
			failed++
		case exitHookLimit:
			stopped++
		}
	}
	of := "of " + terminal.Plural(int64(len(checks)), "script")
	switch {
	case refused > 0:
		return command.Exit(exitHookLoad, fmt.Errorf("%d %s refused", refused, of))
	case stopped > 0:
		return command.Exit(exitHookLimit, fmt.Errorf("%d %s met a limit on the sample", stopped, of))
	case failed > 0:
		return command.Exit(exitHookError, fmt.Errorf("%d %s failed on the sample: --header gives it headers", failed, of))
	}
	return nil
}

func (r *hookCheck) String() string {
	if !r.OK {
		return fmt.Sprintf("%s: refused\n  %s\n", r.File, indent(r.Error))
	}
	names := make([]string, len(r.Hooks))
	for i, k := range r.Hooks {
		names[i] = string(k)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: ok, defines %s\n", r.File, strings.Join(names, " and "))
	for _, w := range r.Warnings {
		place := r.File
		if w.Line > 0 {
			place = fmt.Sprintf("%s:%d", r.File, w.Line)
		}
		fmt.Fprintf(&b, "  warning: %s: %s\n", place, w.Message)
	}
	for _, kind := range r.Hooks {
		if o := r.Runs[kind]; o != nil {
			fmt.Fprintf(&b, "  %s on a sample: %s\n", kind, indent(o.brief()))
		}
	}
	return b.String()
}

// indent indents all lines but the first.
func indent(text string) string { return strings.ReplaceAll(text, "\n", "\n  ") }

// show writes the result of a script: JSON on one line, or text.
func show(w io.Writer, result fmt.Stringer, asJSON bool) error {
	if asJSON {
		return terminal.PrintJSONLine(w, result)
	}
	_, err := io.WriteString(w, result.String())
	return err
}

// logTo prints what a script logs.
func logTo(w io.Writer) func(slog.Level, string) {
	return func(_ slog.Level, line string) {
		_, _ = fmt.Fprintf(w, "log: %s\n", line) // writing the decision reports a closed terminal
	}
}

// changedHook adds the flags of a command about one hook of a queue.
func changedHook(cmd *cobra.Command, hook, reason *string) *cobra.Command {
	flags := cmd.Flags()
	flags.StringVar(hook, "hook", string(hooks.OnEnqueue), "the `hook`, on_enqueue or on_failure")
	command.Allow(cmd, "hook", string(hooks.OnEnqueue), string(hooks.OnFailure))
	if reason != nil {
		flags.StringVar(reason, "reason", "", "`text` for the audit log")
		return command.Owned(cmd)
	}
	return cmd
}

func newHookShowCommand(env *command.Env) *cobra.Command {
	var hook string
	return changedHook(&cobra.Command{
		Use:   "show QUEUE",
		Short: "Show the script of a queue's hook, who set it, and the previous version",
		Example: `  fila hook show orders
  fila hook show orders --hook on_failure --json | jq -r .before.script`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.HookReply, error) {
			return s.HookShow(ctx, wire.Source(args[0]), hook)
		}, func(reply api.HookReply, _ []string) string {
			lines := strings.Split(reply.Script, "\n")
			for i := range lines {
				lines[i] = terminal.Clean(lines[i])
			}
			return terminal.Sections(hookTable(env, &reply), strings.Join(lines, "\n"))
		}),
	}, &hook, nil)
}

func newHookSetCommand(env *command.Env) *cobra.Command {
	var hook, reason, script string
	cmd := changedHook(&cobra.Command{
		Use:   "set QUEUE FILE",
		Short: "Replace the script of a queue's hook",
		Long: `Replace the script of a queue's hook. The previous script is kept, and
fila hook rollback restores it. A script that does not load is refused.`,
		Example: `  fila hook set orders fair.lua --reason "acme counts double"`,
		PreRunE: func(_ *cobra.Command, args []string) error {
			data, err := os.ReadFile(args[1])
			script = string(data)
			return err
		},
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.HookReply, error) {
			return s.HookSet(ctx, wire.Source(args[0]), hook, script, reason)
		}, func(reply api.HookReply, _ []string) string { return hookTable(env, &reply) }),
	}, &hook, &reason)
	return cmd
}

func newHookRollbackCommand(env *command.Env) *cobra.Command {
	var hook, reason string
	return changedHook(&cobra.Command{
		Use:   "rollback QUEUE",
		Short: "Restore the previous script of a queue's hook",
		Long: `Restore the previous script of a queue's hook. A second rollback undoes the first. fila
hook show prints the previous script.`,
		Example: `  fila hook rollback orders --reason "acme waits too long"`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.HookReply, error) {
			return s.HookRollback(ctx, wire.Source(args[0]), hook, reason)
		}, func(reply api.HookReply, _ []string) string { return hookTable(env, &reply) }),
	}, &hook, &reason)
}

// hookTable shows who set a hook, and what a rollback would put in force.
func hookTable(env *command.Env, reply *api.HookReply) string {
	t := terminal.NewTable("hook", reply.Hook)
	t.Row("queue", terminal.Clean(reply.Queue))
	t.Row("script", scriptText(reply.Script))
	t.Row("set by", setterText(env, &reply.HookVersion))
	t.Fact("reason", terminal.Clean(reply.Reason))
	if reply.Before != nil {
		t.Row("previous", scriptText(reply.Before.Script)+", set by "+setterText(env, reply.Before))
	}
	return t.String() + command.Warnings(reply.Warnings)
}

func scriptText(script string) string {
	if script == "" {
		return "none"
	}
	return terminal.Plural(int64(countLines(script)), "line")
}

func countLines(script string) int { return strings.Count(strings.TrimSuffix(script, "\n"), "\n") + 1 }

// setterText says who set a version, and when.
func setterText(env *command.Env, v *api.HookVersion) string {
	if v.At == "" {
		return "the configuration file, or before fila kept versions"
	}
	return cmp.Or(terminal.Clean(v.Client), "an unnamed client") + ", " + env.When(v.At)
}

func newHookResetCommand(env *command.Env) *cobra.Command {
	var hook string
	cmd := &cobra.Command{
		Use:   "reset QUEUE",
		Short: "Close the circuit of a queue's hooks",
		Long:  `Close the circuit of a queue's hooks, so that they run again now.`,
		Example: `  fila hook reset orders
  fila hook reset orders --hook on_failure`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.HookResetReply, error) {
			return s.HookReset(ctx, wire.Source(args[0]), hook)
		}, func(reply api.HookResetReply, _ []string) string {
			t := terminal.NewTable("HOOK", "CIRCUIT")
			for _, h := range reply.Hooks {
				t.Row(h.Hook, h.State)
			}
			return t.String()
		}),
	}
	cmd.Flags().StringVar(&hook, "hook", "", "only this `hook`, on_enqueue or on_failure (default both)")
	command.Allow(cmd, "hook", string(hooks.OnEnqueue), string(hooks.OnFailure))
	return cmd
}
