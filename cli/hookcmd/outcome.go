package hookcmd

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/hooks"
)

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

func failureOutcome(r hooks.Result) *hookOutcome {
	return newHookOutcome(r, map[string]any{
		"action": r.Failure.Action.String(), "delay_ms": float64(r.Failure.Delay) / 1e6,
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
