package hooks

import (
	"fmt"
	"strings"
	"time"
)

// Kind names the hook that a script defines.
type Kind string

// The kinds of hooks. The Lua function has the same name.
const (
	OnEnqueue Kind = "on_enqueue"
	OnFailure Kind = "on_failure"
)

// Defaults and bounds of the limits.
const (
	DefaultTimeout     = 10 * time.Millisecond
	DefaultMemoryBytes = 1 << 20
	// MaxSource is the largest script that is loaded, in bytes.
	MaxSource = 64 << 10
)

// Limits bound one run of a hook. A field that is zero or negative means its
// default, never that there is no limit.
type Limits struct {
	// Timeout is the running time of one run. A run that uses it up is over after
	// less than 1.5 times Timeout of wall time, its rests included. On an overloaded
	// machine a gap in which the goroutine was not scheduled counts for 1 ms at
	// most, and three times Timeout of wall time ends the run. Default 10 ms.
	Timeout time.Duration
	// MemoryBytes bounds the bytes that one run allocates, garbage included,
	// by a fixed charge per operation, so that a run costs the same on every
	// machine. Default 1 MiB.
	MemoryBytes int64
	// Steps bounds the work units of one run: one per VM instruction, more for
	// builtins that do more. The default is 100 per nanosecond of Timeout,
	// which only matters when the clock stands still; tests set it to be exact.
	Steps int64
}

func (l Limits) withDefaults() Limits {
	setDefault(&l.Timeout, DefaultTimeout)
	setDefault(&l.MemoryBytes, DefaultMemoryBytes)
	setDefault(&l.Steps, max(100*int64(l.Timeout), 1_000_000))
	return l
}

func setDefault[T ~int64](limit *T, value T) {
	if *limit <= 0 {
		*limit = value
	}
}

// Defaults of a decision, for fields that a script leaves out and for a hook
// that failed or is bypassed. Weights and costs are in thousandths.
const (
	DefaultFairnessKey        = "default"
	DefaultWeight      uint32 = 1000
	DefaultCost        uint32 = 1000
)

// Bounds of a decision.
const (
	MaxThrottleKeys = 16
	// MaxPriority is the highest priority of a message.
	MaxPriority = 9
	// MaxKeyBytes bounds fairness, throttle and circuit keys.
	MaxKeyBytes = 256
	// MaxThousandths bounds weights and costs.
	MaxThousandths = 1_000_000_000
	// MaxDelay bounds the delay of a retry.
	MaxDelay = 10 * 365 * 24 * time.Hour
)

// EnqueueInput is what on_enqueue sees. The run does not change it and keeps
// nothing of it but strings.
type EnqueueInput struct {
	// Headers of the message, names in their exact case. A script sees the
	// first value of a header with several.
	Headers     map[string][]string
	PayloadSize int
	Queue       string
}

// EnqueueDecision is what on_enqueue decided, within bounds.
type EnqueueDecision struct {
	FairnessKey  string // 1..256 bytes
	Weight       uint32 // thousandths, 1000..1_000_000_000
	Cost         uint32 // thousandths, 1..1_000_000_000
	ThrottleKeys []string
	CircuitKey   string // "" for none
	Priority     uint8  // 0..9
}

// DefaultEnqueueDecision is the decision about a message whose hook failed, is
// bypassed or does not exist.
func DefaultEnqueueDecision() EnqueueDecision {
	return EnqueueDecision{FairnessKey: DefaultFairnessKey, Weight: DefaultWeight, Cost: DefaultCost}
}

// FailureInput is what on_failure sees.
type FailureInput struct {
	Headers                     map[string][]string
	ID, Queue, Error, ErrorCode string
	// Attempts already counts the attempt that failed: 1 after the first.
	Attempts uint32
	// RequestedDelay is what the nack asks for, if HasDelay.
	RequestedDelay time.Duration
	HasDelay       bool
}

// Action says what becomes of a message whose attempt failed.
type Action uint8

// The actions of on_failure.
const (
	Retry Action = iota
	DeadLetter
)

// String returns the word that a script uses: "retry" or "dlq".
func (a Action) String() string {
	if a == DeadLetter {
		return "dlq"
	}
	return "retry"
}

// FailureDecision is what on_failure decided.
type FailureDecision struct {
	Action Action
	Delay  time.Duration // 0..MaxDelay; only for Retry
	// HasDelay is false when the hook names no delay: the nack's counts, or none.
	HasDelay bool
	// Decided is false when the hook failed or was bypassed: others decide. An unknown
	// action, or neither an action nor a delay, is a failure of the hook.
	Decided bool
}

// LoadError is a script that is refused. Its text names the script, the place
// and the reason, and quotes the line.
type LoadError struct {
	Name    string
	Line    int // from 1; 0 if the error has no place
	Column  int // in bytes, from 1; 0 if unknown
	Message string
	Source  string // the line as it stands in the script
}

// Error returns "name:line:column: message" and the line with a mark under the
// column.
func (e *LoadError) Error() string {
	var b strings.Builder
	writePlace(&b, e.Name, e.Line, e.Column)
	b.WriteString(e.Message)
	quoteLine(&b, e.Source, e.Column)
	return b.String()
}

// Brief returns the error as one line: the place, the message and the quoted line.
func (e *LoadError) Brief() string {
	var b strings.Builder
	writePlace(&b, e.Name, e.Line, e.Column)
	b.WriteString(e.Message)
	if source := strings.TrimSpace(drawn(e.Source)); source != "" {
		b.WriteString(", in: " + source)
	}
	return b.String()
}

// writePlace writes as much of "name:line:column: " as is known.
func writePlace(b *strings.Builder, name string, line, column int) {
	b.WriteString(name)
	if line > 0 {
		fmt.Fprintf(b, ":%d", line)
	}
	if column > 0 {
		fmt.Fprintf(b, ":%d", column)
	}
	b.WriteString(": ")
}

// Cause sorts the failures of a run.
type Cause string

// The causes of a failure.
const (
	CauseError   Cause = "error"   // the script raised an error
	CauseTimeout Cause = "timeout" // the time or step limit
	CauseMemory  Cause = "memory"  // the allocation or stack limit
	CauseType    Cause = "type"    // the result is not a table, or has no action that on_failure knows
	CauseMissing Cause = "missing" // the function is not there
)

// RunError is a run that failed.
type RunError struct {
	Cause   Cause
	Name    string
	Line    int // from 1; 0 if unknown
	Column  int // in bytes, from 1; 0 if unknown
	Message string
	Source  string

	usedUp bool // the run used up its running time or its steps
}

// Error returns the cause, the place, the message and the line.
func (e *RunError) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Cause))
	b.WriteString(": ")
	if e.Line > 0 {
		writePlace(&b, e.Name, e.Line, e.Column)
	}
	b.WriteString(e.Message)
	quoteLine(&b, e.Source, e.Column)
	return b.String()
}
