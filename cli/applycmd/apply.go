package applycmd

import (
	"context"
	"encoding/json"
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

// exitChanges is the exit code of a plan that would change something.
const exitChanges = 2

// applyTimeout is how long the commands may take without --timeout.
const applyTimeout = 10 * time.Minute

// Commands returns fila apply, diff and export-config.
func Commands(env *command.Env) []*cobra.Command {
	return []*cobra.Command{newApplyCommand(env), newDiffCommand(env), newExportCommand(env)}
}

// options are the flags of fila apply and fila diff.
type options struct {
	files              []string
	owner              api.Owner
	dryRun, prune, yes bool
}

func (o *options) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringArrayVarP(&o.files, "file", "f", nil, "`file` or directory with documents, - is standard input; may be repeated")
	fs.StringVar(&o.owner.Owner, "owner", "", "`name` of who has these objects, such as a team")
	fs.BoolVar(&o.prune, "prune", false, "delete what the owner has applied and the documents do not have")
	_ = cmd.MarkFlagFilename("file", "yaml", "yml")
}

// check checks the flags, and reads the documents.
func (o *options) read(cmd *cobra.Command) ([]*document, error) {
	if len(o.files) == 0 {
		return nil, command.UsageError("--file is missing: give a file or directory with documents")
	}
	if err := wire.CheckName("--owner", o.owner.Owner, wire.MaxPolicyName); err != nil {
		return nil, command.Exit(command.ExitUsage, err)
	}
	return readDocuments(o.files, cmd.InOrStdin())
}

const formText = `A document has kind, name and spec; the kinds are RetryPolicy, ErrorRule, Guard,
RouteChoice, Throttle, Circuit, Queue and Schedule, and a spec has the fields of
config.toml. A field that ends in _ms may also be a duration without the ending:

  kind: Queue
  name: orders
  spec:
    fairness_header: tenant
    visibility_timeout: 45s
    on_failure_file: retry.lua`

func newApplyCommand(env *command.Env) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Make queues, limits, schedules and rules as documents say",
		Long: `Make queues, limits, schedules and rules as documents say. It prints each change by
field, and carries it out; applied again it changes nothing. An interrupted apply can
be repeated.

` + formText + `

Each object gets the owner. An object of another owner is a conflict (exit code 5).
Overrides with an end, pauses and circuits that were opened by hand stay. What
config.toml declares belongs there: it wins at the next start.

With --dry-run the exit code is 2 if something would change, and 0 if nothing would.`,
		Example: `  fila apply -f fila/ --owner team-a --reason "commit $(git rev-parse HEAD)"
  fila apply -f fila/ --owner team-a --dry-run
  fila apply -f fila/ --owner team-a --prune --yes`,
	}
	cmd.RunE = o.run(env)
	o.add(cmd)
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only print what would change")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask before something is deleted")
	cmd.Flags().StringVar(&o.owner.Reason, "reason", "", "`text` for the audit log, such as a commit")
	return cmd
}

func newDiffCommand(env *command.Env) *cobra.Command {
	o := options{dryRun: true}
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Show what fila apply would change",
		Long: `Show what "fila apply" with the same flags would change, by field. The exit code is
2 if something would change, and 0 if nothing would.`,
		Example: `  fila diff -f fila/ --owner team-a`,
	}
	cmd.RunE = o.run(env)
	o.add(cmd)
	return cmd
}

// outcome is the JSON of fila apply and fila diff.
type outcome struct {
	DryRun   bool     `json:"dry_run"`
	Steps    []*Step  `json:"steps"`
	Warnings []string `json:"warnings,omitempty"`
}

func (o *options) run(env *command.Env) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		docs, err := o.read(cmd)
		if err != nil {
			return err
		}
		s, err := env.Conn.Open()
		if err != nil {
			return err
		}
		defer s.Close()
		ctx, cancel := s.WaitFor(cmd, applyTimeout)
		defer cancel()
		ctx = client.As(ctx, api.Sender{Owner: o.owner.Owner, Reason: o.owner.Reason})
		w, err := look(ctx, s)
		if err != nil {
			return s.Explain(err)
		}
		steps, err := plan(ctx, w, docs, o.owner.Owner, o.prune)
		if err != nil {
			return err
		}
		result := outcome{DryRun: o.dryRun, Steps: steps}
		if result.Steps == nil {
			result.Steps = []*Step{}
		}
		if !o.dryRun {
			if err := o.agree(cmd, steps); err != nil {
				return err
			}
			if result.Warnings, err = o.carryOut(ctx, env, cmd, w, steps); err != nil {
				cmd.PrintErr(command.Warnings(result.Warnings)) // of the steps that are done
				return err
			}
		}
		if err := env.Show(cmd, result, func() string { return o.summary(&result) }); err != nil {
			return err
		}
		if o.dryRun && len(steps) > 0 {
			return command.Exit(exitChanges, fmt.Errorf("%s would change", terminal.Plural(int64(len(steps)), "object")))
		}
		return nil
	}
}

// agree asks before something is deleted.
func (o *options) agree(cmd *cobra.Command, steps []*Step) error {
	var names []string
	for _, s := range steps {
		if s.Action == Delete {
			names = append(names, s.Kind+" "+terminal.Clean(s.Name))
		}
	}
	if len(names) == 0 || o.yes {
		return nil
	}
	if !terminal.IsTerminalInput(cmd.InOrStdin()) {
		return command.UsageError("nothing was done: --yes deletes %s", strings.Join(names, ", "))
	}
	if !command.Agreed(cmd, "Delete "+strings.Join(names, ", ")+"?") {
		return errors.New("nothing was done")
	}
	return nil
}

// carryOut makes all steps, and prints each one when it is done.
func (o *options) carryOut(ctx context.Context, env *command.Env, cmd *cobra.Command, w *world, steps []*Step) (warnings []string, err error) {
	for _, s := range steps {
		told, err := s.carryOut(ctx, w, o.owner)
		if err != nil {
			return warnings, w.about(s, err)
		}
		for _, warning := range told {
			warnings = append(warnings, s.Kind+" "+s.Name+": "+warning)
		}
		if env.JSON {
			continue
		}
		if _, err := fmt.Fprint(cmd.OutOrStdout(), s.String()); err != nil {
			return warnings, err
		}
	}
	return warnings, nil
}

// summary is what comes after the steps.
func (o *options) summary(r *outcome) string {
	text := ""
	if o.dryRun {
		for _, s := range r.Steps {
			text += s.String()
		}
	}
	text += command.Warnings(r.Warnings)
	counts := map[string]int{}
	for _, s := range r.Steps {
		counts[s.Action]++
	}
	if len(r.Steps) == 0 {
		return text + "nothing to change\n"
	}
	var parts []string
	for _, action := range []struct{ name, plan, done string }{
		{Create, "to create", "created"}, {Update, "to update", "updated"}, {Adopt, "to adopt", "adopted"}, {Delete, "to delete", "deleted"},
	} {
		if n := counts[action.name]; n > 0 {
			word := action.done
			if o.dryRun {
				word = action.plan
			}
			parts = append(parts, fmt.Sprintf("%d %s", n, word))
		}
	}
	return text + strings.Join(parts, ", ") + "\n"
}

func newExportCommand(env *command.Env) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "export-config",
		Short: "Print the queues, limits, schedules and rules as documents",
		Long: `Print queues, schedules, and the limits and rules of the runtime configuration as
documents for "fila apply". Fields with their defaults are left out. Queues, throttles
and circuits of config.toml are in it as well; its rules, guards and routes are not.`,
		Example: `  fila export-config > fila.yaml
  fila export-config --owner team-a`,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := env.Conn.Open()
		if err != nil {
			return err
		}
		defer s.Close()
		ctx, cancel := s.WaitFor(cmd, applyTimeout)
		defer cancel()
		docs, err := export(ctx, s, name)
		if err != nil {
			return s.Explain(err)
		}
		return env.Show(cmd, docs, func() string { return yamlText(docs) })
	}
	cmd.Flags().StringVar(&name, "owner", "", "only the objects of this `name`")
	return cmd
}

// exported is a document that is printed.
type exported struct {
	Kind string                     `json:"kind"`
	Name string                     `json:"name"`
	Spec map[string]json.RawMessage `json:"spec"`
}
