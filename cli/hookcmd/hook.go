package hookcmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
		Short: "Run a hook on a sample message and print its decision",
		Long: `Load a script and run one of its hooks in the server's sandbox, within its limits. Print
the decision with its defaults, the returned table, time and memory.

Exit code: 0 the hook decided, 1 it failed or the server would refuse the message for
a key, 2 the script does not load, 3 the time or memory limit stopped it.`,
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
	fl.StringVar(&f.hook, "hook", "", "on_enqueue or on_failure (default the one in the script, or on_enqueue)")
	command.Allow(c, "hook", string(hooks.OnEnqueue), string(hooks.OnFailure))
	headerFlag(c, &f.headers)
	fl.StringArrayVar(&f.config, "config", nil, "runtime configuration for fila.get as key=value; may be repeated")
	fl.IntVar(&f.payloadSize, "payload-size", 0, "msg.payload_size in bytes")
	fl.Uint32Var(&f.message.Attempts, "attempts", 1, "msg.attempts, including the failed attempt")
	fl.Var(&f.requestedDelay, "requested-delay", "msg.requested_delay_ms, the delay that the nack asks for")
	fl.StringVar(&f.message.Error, "error", "", "msg.error")
	fl.StringVar(&f.message.ErrorCode, "error-code", "", "msg.error_code")
	fl.StringVar(&f.message.ID, "id", "m1", "msg.id")
	fl.StringVar(&f.message.Queue, "queue", "orders", "msg.queue")
	fl.IntVar(&f.repeat, "repeat", 1, "runs in one VM, of which the worst is reported")
	f.limits.Timeout = hooks.DefaultTimeout
	fl.Var((*terminal.Duration)(&f.limits.Timeout), "lua-timeout", "time limit of a run")
	fl.Int64Var(&f.limits.MemoryBytes, "lua-memory", hooks.DefaultMemoryBytes, "allocation limit of a run in bytes")
	fl.BoolVar(&f.json, "json", false, "print one JSON object")
	return c
}

// headerFlag adds the flag for headers of a message.
func headerFlag(c *cobra.Command, headers *[]string) {
	c.Flags().StringArrayVarP(headers, "header", "H", nil, "header `name=value`; may be repeated")
	c.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "headers" { // the former name
			name = "header"
		}
		return pflag.NormalizedName(name)
	})
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
	sample, err := newSample(f.headers, f.config)
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
	headers := sample.message.Headers
	sample.message, sample.payloadSize = f.message, f.payloadSize
	sample.message.Headers = headers
	return sample.run(script, kind, f.limits, f.repeat, log), nil
}

// sample is an example message with a runtime configuration.
type sample struct {
	message     hooks.FailureInput
	payloadSize int
	config      map[string]string
}

// newSample returns the message of `fila hook run` without other flags.
func newSample(headers, config []string) (*sample, error) {
	s := &sample{message: hooks.FailureInput{Attempts: 1, ID: "m1", Queue: "orders", Headers: make(map[string][]string, len(headers))}}
	for _, text := range headers {
		name, value, err := command.ParseHeader("header", text)
		if err != nil {
			return nil, err
		}
		s.message.Headers[name] = append(s.message.Headers[name], value)
	}
	var err error
	s.config, err = pairs("config", config)
	return s, err
}

// run runs a hook repeatedly in one VM and returns the worst outcome.
func (s *sample) run(script *hooks.Script, kind hooks.Kind, limits hooks.Limits, repeat int, log io.Writer) *hookOutcome {
	r := hooks.NewTester(hooks.TesterOptions{
		Kind: kind, Script: script, Limits: limits,
		Get: func(key string) (string, bool) { v, ok := s.config[key]; return v, ok },
		Log: logTo(log),
	})
	var worst *hookOutcome
	for range max(repeat, 1) {
		var o *hookOutcome
		if kind == hooks.OnEnqueue {
			o = enqueueOutcome(r.OnEnqueue(&hooks.EnqueueInput{Headers: s.message.Headers, PayloadSize: s.payloadSize, Queue: s.message.Queue}))
		} else {
			o = failureOutcome(r.OnFailure(&s.message), &s.message)
		}
		if worst == nil || o.worse(worst) {
			worst = o
		}
	}
	return worst
}

// decided are the fields of a decision in the order of the output.
var decided = []string{"fairness_key", "weight", "cost", "throttle_keys", "circuit_key", "routes", "priority", "action", "delay_ms"}

// each calls fn for each field of the decision.
func (o *hookOutcome) each(fn func(name string, value any)) {
	for _, name := range decided {
		if v, ok := o.Decision[name]; ok {
			switch list := v.(type) {
			case []string:
				v = strings.Join(list, ", ")
			case []hookRoute:
				text, _ := json.Marshal(list) // it is plain data
				v = string(text)
			}
			fn(name, v)
		}
	}
}

// returned is the table that the hook returned, as text.
func (o *hookOutcome) returned() string {
	text, _ := json.Marshal(o.Decision["returned"]) // it is plain data
	return string(text)
}

// warnings describes the corrected fields.
func (o *hookOutcome) warnings() string {
	text := fmt.Sprintf("%d (fields with defaults: compare with the returned table)", o.Warnings)
	if len(o.Notes) > 0 {
		text += ": " + strings.Join(o.Notes, ", ")
	}
	return text
}

// brief is the outcome in a few lines.
func (o *hookOutcome) brief() string {
	if o.Outcome != "ok" {
		return o.text
	}
	var facts []string
	o.each(func(name string, value any) {
		if value != "" {
			facts = append(facts, fmt.Sprintf("%s %v", name, value))
		}
	})
	lines := []string{"returned " + o.returned(), "  decides " + strings.Join(facts, ", ")}
	if o.Warnings > 0 {
		lines = append(lines, "  warnings: "+o.warnings())
	}
	return strings.Join(lines, "\n")
}

func (o *hookOutcome) String() string {
	t := terminal.NewTable("outcome", o.Outcome)
	o.each(func(name string, value any) { t.Row(name, value) })
	if o.Warnings > 0 {
		t.Row("warnings", o.warnings())
	}
	if o.Decision["returned"] != nil {
		t.Row("returned", o.returned())
	}
	t.Row("instructions", o.Instructions)
	t.Row("allocated_bytes", o.AllocatedBytes)
	t.Row("elapsed_us", o.ElapsedUs)
	return t.String()
}

// hookOutcome is what `fila hook run --json` prints.
type hookOutcome struct {
	Outcome        string         `json:"outcome"`  // ok, error, timeout, memory, refused or load
	Decision       map[string]any `json:"decision"` // null if the script was refused
	Error          string         `json:"error"`
	Line           int            `json:"line"`
	Instructions   int64          `json:"instructions"`
	AllocatedBytes int64          `json:"allocated_bytes"`
	ElapsedUs      int64          `json:"elapsed_us"`
	Warnings       int64          `json:"warnings"`
	Notes          []string       `json:"notes,omitempty"` // ignored keys, and why

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
	decision["returned"] = shown(r.Returned)
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
	throttle := shownKeys(r.Enqueue.ThrottleKeys)
	o := newHookOutcome(r, map[string]any{
		"fairness_key": wire.ShowKey(r.Enqueue.Key), "weight": float64(r.Enqueue.Weight) / 1000,
		"cost": float64(r.Enqueue.Cost) / 1000, "throttle_keys": throttle, "circuit_key": wire.ShowKey(r.Enqueue.CircuitKey),
	})
	if p := r.Enqueue.Priority; p > 0 {
		o.Decision["priority"] = p
	}
	var routes []hookRoute
	for _, one := range r.Enqueue.Routes {
		routes = append(routes, hookRoute{
			Name: wire.ShowKey(one.Name), Weight: float64(one.Weight) / 1000,
			ThrottleKeys: shownKeys(one.ThrottleKeys), CircuitKey: wire.ShowKey(one.CircuitKey),
		})
	}
	if routes != nil {
		o.Decision["routes"] = routes
	}
	o.checkKeys(&r.Enqueue)
	if returned, ok := r.Returned.(map[string]any); ok {
		o.checkLengths("fairness_key", returned["fairness_key"])
		o.checkLengths("throttle_keys", returned["throttle_keys"])
		o.checkLengths("circuit_key", returned["circuit_key"])
	}
	return o
}

// hookRoute is a route of a decision.
type hookRoute struct {
	Name         string   `json:"name"`
	Weight       float64  `json:"weight,omitempty"`
	ThrottleKeys []string `json:"throttle_keys,omitempty"`
	CircuitKey   string   `json:"circuit_key,omitempty"`
}

func shownKeys(keys []string) []string {
	shown := make([]string, len(keys))
	for i, key := range keys {
		shown[i] = wire.ShowKey(key)
	}
	return shown
}

// checkKeys finds keys for which the server would refuse the message.
func (o *hookOutcome) checkKeys(d *hooks.EnqueueDecision) {
	check := func(kind, key string) {
		if o.Outcome == "ok" && key != "" && wire.CheckKey(key) != nil {
			o.Outcome, o.Error = "refused", wire.BadMessageKey(kind, key).Description
			o.text = "the server would refuse the message: " + o.Error
		}
	}
	check("fairness", d.Key)
	for _, key := range d.ThrottleKeys {
		check("throttle", key)
	}
	check("circuit", d.CircuitKey)
	for _, r := range d.Routes {
		check("route", r.Name)
		for _, key := range r.ThrottleKeys {
			check("throttle", key)
		}
		check("circuit", r.CircuitKey)
	}
}

// checkLengths notes keys that are ignored because they are too long or empty.
func (o *hookOutcome) checkLengths(field string, returned any) {
	switch v := returned.(type) {
	case string:
		switch {
		case v == "":
			o.Notes = append(o.Notes, field+" is empty and does not count")
		case len(v) > hooks.MaxKeyBytes:
			o.Notes = append(o.Notes, fmt.Sprintf("%s is longer than %d bytes and does not count", field, hooks.MaxKeyBytes))
		}
	case []any:
		for _, one := range v {
			o.checkLengths("one of "+field, one)
		}
	}
}

// shown returns a value for JSON. Texts that are not UTF-8 are written like keys.
func shown(v any) any {
	switch v := v.(type) {
	case string:
		if !utf8.ValidString(v) {
			return wire.ShowKey(v)
		}
	case []any:
		for i := range v {
			v[i] = shown(v[i])
		}
	case map[string]any:
		for _, name := range slices.Collect(maps.Keys(v)) {
			value := shown(v[name])
			delete(v, name)
			v[shown(name).(string)] = value
		}
	}
	return v
}

// failureOutcome shows the delay of the nack if a retry has no delay, since it applies
// then.
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

// code is the exit code.
func (o *hookOutcome) code() int {
	switch o.Outcome {
	case "ok":
		return command.ExitOK
	case "load":
		return exitHookLoad
	case "timeout", "memory":
		return exitHookLimit
	}
	return exitHookError
}

// exit is the error that carries the exit code, nil for ok.
func (o *hookOutcome) exit() error {
	if o.Outcome == "ok" {
		return nil
	}
	return command.Exit(o.code(), errors.New(o.text))
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
