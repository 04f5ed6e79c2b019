package hookcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
)

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
	fl.StringVar(&f.message.Route, "route", "", "msg.route, by which the failed attempt went")
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
