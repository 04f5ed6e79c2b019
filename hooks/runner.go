package hooks

import (
	"log/slog"
	"time"
)

// Runner runs a script by hand, without a circuit: it is behind `fila hook run`
// and the tests. Owned by one goroutine.
type Runner struct {
	vm *vm
}

// RunnerOptions are the surroundings of a Runner. Kind and Script are required.
type RunnerOptions struct {
	Kind   Kind
	Script *Script
	Limits Limits
	Get    func(key string) (string, bool)
	// Log gets what the script logs: fila.log at Info, print at Debug.
	Log func(level slog.Level, line string)
}

// Result is what one run gave.
type Result struct {
	Enqueue EnqueueDecision // effective, after defaults; for on_enqueue
	Failure FailureDecision // for on_failure
	// Returned is the table that the script returned as far as it is plain
	// data: nil, bool, int64, float64, string, []any or map[string]any.
	Returned any
	Warnings int64
	// Instructions are the work units of the run, Allocated its charged bytes.
	// Neither includes the top level of the script.
	Instructions, Allocated int64
	Elapsed                 time.Duration
	// Dirty tells that the run wrote to state that outlives it, so that the
	// script starts afresh.
	Dirty bool
	Err   *RunError // nil if the run succeeded
}

// NewRunner returns a Runner.
func NewRunner(o RunnerOptions) *Runner {
	return &Runner{vm: newVM(o.Script, o.Kind, o.Limits, env{get: o.Get, log: o.Log})}
}

// OnEnqueue runs on_enqueue.
func (r *Runner) OnEnqueue(in *EnqueueInput) (res Result) {
	r.run(&res, func(w *warner) { res.Enqueue, res.Err = r.vm.enqueue(in, w) })
	return res
}

// OnFailure runs on_failure.
func (r *Runner) OnFailure(in *FailureInput) (res Result) {
	r.run(&res, func(w *warner) { res.Failure, res.Err = r.vm.failure(in, w) })
	return res
}

func (r *Runner) run(res *Result, run func(*warner)) {
	var w warner
	x := &r.vm.x
	r.vm.keep = &res.Returned
	start := time.Now()
	run(&w)
	res.Elapsed = time.Since(start)
	r.vm.keep = nil
	res.Warnings = w.n
	res.Instructions, res.Allocated = x.steps+int64(x.interval-x.n), x.used
	res.Dirty = x.dirty
}
