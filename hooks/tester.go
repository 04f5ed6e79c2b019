package hooks

import (
	"log/slog"
	"time"

	"github.com/filaq/fila/hooks/sandbox"
)

// Tester runs a script by hand, without a circuit, and reports the details of a
// run. It is for `fila hook`, pages and tests, and for one goroutine at a time.
type Tester struct {
	vm *sandbox.VM
}

// TesterOptions configure a Tester. Kind and Script are required.
type TesterOptions struct {
	Kind   Kind
	Script *Script
	Limits Limits
	Get    func(key string) (string, bool)
	// Log receives what the script logs: fila.log at Info, print at Debug.
	Log func(level slog.Level, line string)
}

// Result is the result of one run.
type Result struct {
	Enqueue EnqueueDecision // effective, after defaults; for on_enqueue
	Failure FailureDecision // for on_failure
	// Returned is the table that the script returned as far as it is plain
	// data: nil, bool, int64, float64, string, []any or map[string]any.
	Returned any
	Warnings int64 // fields that were corrected
	sandbox.Usage
	Elapsed time.Duration
	Err     *RunError // nil if the run succeeded
}

// NewTester returns a Tester.
func NewTester(o TesterOptions) *Tester {
	return &Tester{vm: sandbox.New(o.Script.Script, string(o.Kind), o.Limits, sandbox.Env{Get: o.Get, Log: o.Log})}
}

// OnEnqueue runs on_enqueue.
func (t *Tester) OnEnqueue(in *EnqueueInput) (res Result) {
	start := time.Now()
	d, r, err := runEnqueue(t.vm, in)
	res = t.result(start, r, err)
	res.Enqueue = d
	return res
}

// OnFailure runs on_failure.
func (t *Tester) OnFailure(in *FailureInput) (res Result) {
	start := time.Now()
	d, r, err := runFailure(t.vm, in)
	res = t.result(start, r, err)
	res.Failure = d
	return res
}

func (t *Tester) result(start time.Time, r fieldReader, err *RunError) Result {
	return Result{Returned: r.table.Plain(), Warnings: r.warnings, Usage: t.vm.Usage(), Elapsed: time.Since(start), Err: err}
}
