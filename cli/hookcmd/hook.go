package hookcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/hooks"
)

// Exit codes of `fila hook check` and `fila hook run`.
const (
	exitHookError = 1 // the script raised an error or returned no table
	exitHookLoad  = 2 // the script is refused
	exitHookLimit = 3 // the time or memory limit stopped it
)

// Commands returns fila hook.
func Commands(env *command.Env) []*cobra.Command {
	group := &cobra.Command{Use: "hook", Short: "Check, try and look after the Lua hooks of queues"}
	return []*cobra.Command{command.Group(group, newHookCheckCommand(), newHookRunCommand(), newHookResetCommand(env))}
}

// hookCheck is what `fila hook check --json` prints for each file.
type hookCheck struct {
	File     string        `json:"file"`
	OK       bool          `json:"ok"`
	Hooks    []hooks.Kind  `json:"hooks"`
	Warnings []hookWarning `json:"warnings"`
	Error    string        `json:"error,omitempty"`
	Line     int           `json:"line,omitempty"`
	Column   int           `json:"column,omitempty"`
}

type hookWarning struct {
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

func newHookCheckCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "check FILE...",
		Short: "Load scripts and say which hooks they define",
		Long: `Check loads each script as the server would: it compiles it within the load
limits, runs its top level once, and lists the hooks it defines and what
deserves a look. It exits with 2 if a script is refused.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			bad := 0
			for _, file := range args {
				text, err := os.ReadFile(file)
				if err != nil {
					return fmt.Errorf("cannot read the script: %w", err)
				}
				r := checkHook(file, string(text))
				if !r.OK {
					bad++
				}
				if err := show(cmd.OutOrStdout(), &r, asJSON); err != nil {
					return err
				}
			}
			if bad > 0 {
				return command.Exit(exitHookLoad, fmt.Errorf("%d of %s refused", bad, terminal.Plural(int64(len(args)), "script")))
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per file")
	return c
}

func checkHook(file, text string) hookCheck {
	r := hookCheck{File: file, Hooks: []hooks.Kind{}, Warnings: []hookWarning{}}
	s, err := hooks.Compile("", filepath.Base(file), text, hooks.Limits{})
	if err != nil {
		r.Error = err.Error()
		var le *hooks.LoadError
		if errors.As(err, &le) {
			r.Line, r.Column = le.Line, le.Column
		}
		return r
	}
	r.OK, r.Hooks = true, s.Defines()
	for _, w := range s.Warnings() {
		r.Warnings = append(r.Warnings, hookWarning(w))
	}
	return r
}

func (r *hookCheck) String() string {
	if !r.OK {
		return fmt.Sprintf("%s: refused\n  %s\n", r.File, strings.ReplaceAll(r.Error, "\n", "\n  "))
	}
	names := make([]string, len(r.Hooks))
	for i, k := range r.Hooks {
		names[i] = string(k)
	}
	text := fmt.Sprintf("%s: ok, defines %s\n", r.File, strings.Join(names, " and "))
	for _, w := range r.Warnings {
		place := r.File
		if w.Line > 0 {
			place = fmt.Sprintf("%s:%d", r.File, w.Line)
		}
		text += fmt.Sprintf("  warning: %s: %s\n", place, w.Message)
	}
	return text
}

// show writes what a script came to: JSON on one line, or text.
func show(w io.Writer, result fmt.Stringer, asJSON bool) error {
	if asJSON {
		return terminal.PrintJSONLine(w, result)
	}
	_, err := io.WriteString(w, result.String())
	return err
}

// hookRunFlags are the flags of `fila hook run`.
type hookRunFlags struct {
	hook            string
	headers, config []string
	payloadSize     int
	message         hooks.FailureInput // without the headers and the delay
	requestedDelay  terminal.Millis
	limits          hooks.Limits
	repeat          int
	json            bool
}

func newHookRunCommand() *cobra.Command {
	var f hookRunFlags
	c := &cobra.Command{
		Use:   "run FILE",
		Short: "Run a hook on a made-up message and print its decision",
		Long: `Run loads a script and runs one of its hooks in the same sandbox and within
the same limits as the server. It prints the decision after defaults, the table
that the script returned, and what the run took.

Exit status: 0 the hook decided, 1 it failed, 2 the script was refused, 3 the
time or memory limit stopped it.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return fmt.Errorf("cannot read the script: %w", err)
			}
			f.message.HasDelay, f.message.RequestedDelay = cmd.Flags().Changed("requested-delay"), f.requestedDelay.Duration()
			o, err := runHook(filepath.Base(args[0]), string(text), f, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := show(cmd.OutOrStdout(), o, f.json); err != nil {
				return err
			}
			return o.exit()
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.hook, "hook", "", "on_enqueue or on_failure (default: the one that the script defines, on_enqueue if both)")
	command.Allow(c, "hook", string(hooks.OnEnqueue), string(hooks.OnFailure))
	fl.StringArrayVarP(&f.headers, "header", "H", nil, "a header as `name=value` or name:value; may be repeated")
	fl.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "headers" { // what it was called first
			name = "header"
		}
		return pflag.NormalizedName(name)
	})
	fl.StringArrayVar(&f.config, "config", nil, "runtime configuration for fila.get as key=value; may be repeated")
	fl.IntVar(&f.payloadSize, "payload-size", 0, "msg.payload_size in bytes")
	fl.Uint32Var(&f.message.Attempts, "attempts", 1, "msg.attempts, with the attempt that failed")
	fl.Var(&f.requestedDelay, "requested-delay", "msg.requested_delay_ms, the delay that the nack asks for")
	fl.StringVar(&f.message.Error, "error", "", "msg.error")
	fl.StringVar(&f.message.ErrorCode, "error-code", "", "msg.error_code")
	fl.StringVar(&f.message.ID, "id", "m1", "msg.id")
	fl.StringVar(&f.message.Queue, "queue", "orders", "msg.queue")
	fl.IntVar(&f.repeat, "repeat", 1, "run it so often in one VM and report the worst run")
	f.limits.Timeout = hooks.DefaultTimeout
	fl.Var((*terminal.Duration)(&f.limits.Timeout), "lua-timeout", "time limit of a run")
	fl.Int64Var(&f.limits.MemoryBytes, "lua-memory", hooks.DefaultMemoryBytes, "allocation limit of a run in bytes")
	fl.BoolVar(&f.json, "json", false, "print one JSON object")
	return c
}

// pairs splits name=value at the first =; the value may hold anything.
func pairs(flag string, list []string) (map[string]string, error) {
	m := make(map[string]string, len(list))
	for _, s := range list {
		k, v, ok := strings.Cut(s, "=")
		if !ok || k == "" {
			return nil, command.UsageError("--%s %q: want name=value", flag, s)
		}
		m[k] = v
	}
	return m, nil
}

func runHook(name, text string, f hookRunFlags, log io.Writer) (*hookOutcome, error) {
	f.message.Headers = make(map[string][]string, len(f.headers))
	for _, text := range f.headers {
		name, value, err := command.ParseHeader("header", text)
		if err != nil {
			return nil, err
		}
		f.message.Headers[name] = append(f.message.Headers[name], value)
	}
	config, err := pairs("config", f.config)
	if err != nil {
		return nil, err
	}
	kind := hooks.Kind(f.hook)
	if !slices.Contains([]hooks.Kind{"", hooks.OnEnqueue, hooks.OnFailure}, kind) {
		return nil, command.UsageError("--hook %q: want on_enqueue or on_failure", f.hook)
	}
	script, err := hooks.Compile(kind, name, text, f.limits)
	if err != nil {
		return loadOutcome(err), nil
	}
	if kind == "" {
		kind = script.Defines()[0]
	}
	r := hooks.NewRunner(hooks.RunnerOptions{
		Kind: kind, Script: script, Limits: f.limits,
		Get: func(key string) (string, bool) { v, ok := config[key]; return v, ok },
		Log: logTo(log),
	})
	var worst *hookOutcome
	for range max(f.repeat, 1) {
		var o *hookOutcome
		if kind == hooks.OnEnqueue {
			o = enqueueOutcome(r.OnEnqueue(&hooks.EnqueueInput{Headers: f.message.Headers, PayloadSize: f.payloadSize, Queue: f.message.Queue}))
		} else {
			o = failureOutcome(r.OnFailure(&f.message), &f.message)
		}
		if worst == nil || o.worse(worst) {
			worst = o
		}
	}
	return worst, nil
}

func (o *hookOutcome) String() string {
	t := terminal.NewTable("outcome", o.Outcome)
	for _, k := range []string{"fairness_key", "weight", "cost", "throttle_keys", "circuit_key", "action", "delay_ms"} {
		if v, ok := o.Decision[k]; ok {
			if list, isList := v.([]string); isList {
				v = strings.Join(list, ", ")
			}
			t.Row(k, v)
		}
	}
	if o.Warnings > 0 {
		t.Row("warnings", fmt.Sprintf("%d (fields that were corrected: compare with what was returned)", o.Warnings))
	}
	if o.Decision["returned"] != nil {
		returned, _ := json.Marshal(o.Decision["returned"]) // hooks has made JSON of it, infinite numbers included
		t.Row("returned", string(returned))
	}
	t.Row("instructions", o.Instructions)
	t.Row("allocated_bytes", o.AllocatedBytes)
	t.Row("elapsed_us", o.ElapsedUs)
	return t.String()
}

// hookOutcome is what `fila hook run --json` prints.
type hookOutcome struct {
	Outcome        string         `json:"outcome"`  // ok, error, timeout, memory or load
	Decision       map[string]any `json:"decision"` // null if the script was refused
	Error          string         `json:"error"`
	Line           int            `json:"line"`
	Instructions   int64          `json:"instructions"`
	AllocatedBytes int64          `json:"allocated_bytes"`
	ElapsedUs      int64          `json:"elapsed_us"`
	Warnings       int64          `json:"warnings"`

	text string // the error with its place and line, for people
}

func loadOutcome(err error) *hookOutcome {
	o := &hookOutcome{Outcome: "load", Error: err.Error(), text: err.Error()}
	var le *hooks.LoadError
	if errors.As(err, &le) {
		o.Error, o.Line = le.Message, le.Line
	}
	return o
}

func newHookOutcome(r hooks.Result, decision map[string]any) *hookOutcome {
	decision["returned"] = r.Returned
	o := &hookOutcome{
		Outcome: "ok", Decision: decision, Instructions: r.Instructions,
		AllocatedBytes: r.Allocated, ElapsedUs: r.Elapsed.Microseconds(), Warnings: r.Warnings,
	}
	if r.Err != nil {
		o.Outcome = "error"
		if r.Err.Cause == hooks.CauseTimeout || r.Err.Cause == hooks.CauseMemory {
			o.Outcome = string(r.Err.Cause)
		}
		o.Error, o.Line, o.text = r.Err.Message, r.Err.Line, r.Err.Error()
	}
	return o
}

func enqueueOutcome(r hooks.Result) *hookOutcome {
	keys := r.Enqueue.ThrottleKeys
	if keys == nil {
		keys = []string{}
	}
	return newHookOutcome(r, map[string]any{
		"fairness_key": r.Enqueue.FairnessKey, "weight": float64(r.Enqueue.Weight) / 1000,
		"cost": float64(r.Enqueue.Cost) / 1000, "throttle_keys": keys, "circuit_key": r.Enqueue.CircuitKey,
	})
}

// failureOutcome shows the delay of the nack where a retry has none of its own, as it
// counts then.
func failureOutcome(r hooks.Result, m *hooks.FailureInput) *hookOutcome {
	delay := r.Failure.Delay
	if r.Failure.Action == hooks.Retry && !r.Failure.HasDelay {
		delay = m.RequestedDelay
	}
	return newHookOutcome(r, map[string]any{
		"action": r.Failure.Action.String(), "delay_ms": float64(delay) / 1e6,
	})
}

// worse orders the runs of --repeat: a failed one first, then the longer one.
func (o *hookOutcome) worse(than *hookOutcome) bool {
	if failed := o.Outcome != "ok"; failed != (than.Outcome != "ok") {
		return failed
	}
	return o.ElapsedUs > than.ElapsedUs
}

// exit is the error that carries the exit code, nil for ok.
func (o *hookOutcome) exit() error {
	code := exitHookError
	switch o.Outcome {
	case "ok":
		return nil
	case "load":
		code = exitHookLoad
	case "timeout", "memory":
		code = exitHookLimit
	}
	return command.Exit(code, errors.New(o.text))
}

// logTo prints what a script logs.
func logTo(w io.Writer) func(slog.Level, string) {
	return func(_ slog.Level, line string) {
		_, _ = fmt.Fprintf(w, "log: %s\n", line) // the decision follows; a closed terminal shows there
	}
}

func newHookResetCommand(env *command.Env) *cobra.Command {
	var hook string
	cmd := &cobra.Command{
		Use:   "reset QUEUE",
		Short: "Close the circuit of a queue's hooks",
		Long: `Close the circuit of a queue's hooks, so that they run again at once. A hook's
circuit opens after it has failed several times in a row; messages then go on
with safe defaults until the cooldown is over.`,
		Example: `  fila hook reset orders
  fila hook reset orders --hook on_failure`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (client.HookResetReply, error) {
			return s.HookReset(ctx, args[0], hook)
		}, func(reply client.HookResetReply, _ []string) string {
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
