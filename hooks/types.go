package hooks

import (
	"slices"
	"time"

	"github.com/filaq/fila/hooks/sandbox"
)

type (
	// Limits bound one run.
	Limits = sandbox.Limits
	// LoadError is the reason why a script is refused.
	LoadError = sandbox.LoadError
	// RunError is the reason why a run failed.
	RunError = sandbox.RunError
	// Warning is a hint about a script that works.
	Warning = sandbox.Warning
)

// Defaults of Limits.
const (
	DefaultTimeout     = sandbox.DefaultTimeout
	DefaultMemoryBytes = sandbox.DefaultMemoryBytes
)

// The causes of a RunError that end a run for good.
const (
	CauseTimeout = sandbox.CauseTimeout // the time or step limit
	CauseMemory  = sandbox.CauseMemory  // the allocation or stack limit
)

// Kind is the kind of a hook, which is the name of its Lua function.
type Kind string

// The kinds of hooks.
const (
	OnEnqueue Kind = "on_enqueue"
	OnFailure Kind = "on_failure"
)

// Script is a checked and compiled script. It is immutable and may be shared
// by any number of Runners.
type Script struct {
	*sandbox.Script
}

// Defines returns the kinds of hooks that the script defines.
func (s *Script) Defines() []Kind {
	var kinds []Kind
	for _, name := range s.Script.Defines() {
		kinds = append(kinds, Kind(name))
	}
	return kinds
}

// Compile checks and compiles a script that must define the function of its kind at
// the top level. The error is a *LoadError. An empty kind accepts a script that
// defines either function.
//
// Compile runs the top level once, within the limits. While it does, fila.get knows
// no key.
func Compile(kind Kind, name, text string, l Limits) (*Script, error) {
	compiled, err := sandbox.Compile(name, text, []string{string(OnEnqueue), string(OnFailure)}, l)
	if err != nil {
		return nil, err
	}
	s := &Script{compiled}
	if defines := s.Defines(); kind == "" && len(defines) > 0 || slices.Contains(defines, kind) {
		return s, nil
	}
	want := "function " + string(kind) + "(msg)"
	if kind == "" {
		want = "function on_enqueue(msg) or function on_failure(msg)"
	}
	return nil, &LoadError{Name: name, Message: "the script does not define " + want + " at its top level"}
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
	// MaxRoutes bounds the routes of a message, MaxRouteName the name of one in bytes.
	MaxRoutes    = 8
	MaxRouteName = 64
	// MaxPriority is the highest priority of a message.
	MaxPriority = 9
	// MaxKeyBytes bounds fairness, throttle and circuit keys.
	MaxKeyBytes = 256
	// MaxThousandths bounds weights and costs.
	MaxThousandths = 1_000_000_000
	// MaxDelay bounds the delay of a retry.
	MaxDelay = 10 * 365 * 24 * time.Hour
)

// EnqueueInput is the argument of on_enqueue. A run does not change it and keeps
// only its strings.
type EnqueueInput struct {
	// Headers of the message, names in their exact case. A script sees the
	// first value of a header with several.
	Headers     map[string][]string
	PayloadSize int
	Queue       string
}

func (in *EnqueueInput) fill(a *sandbox.Argument) {
	a.SetText("queue", in.Queue)
	a.SetNumber("payload_size", float64(in.PayloadSize))
	a.SetMap("headers", in.Headers)
}

// EnqueueDecision is the decision of on_enqueue, within bounds.
type EnqueueDecision struct {
	Key          string // fairness key, 1..256 bytes
	Weight       uint32 // thousandths, 1000..1_000_000_000
	Cost         uint32 // thousandths, 1..1_000_000_000
	ThrottleKeys []string
	CircuitKey   string  // "" for none
	Priority     uint8   // 0..9
	Routes       []Route // names differ
}

// Route is one of several ways through gates that a message may go.
type Route struct {
	Name         string // 1..64 bytes
	Weight       uint32 // thousandths, 1000..1_000_000_000; 0 for none
	ThrottleKeys []string
	CircuitKey   string // "" for none
}

// DefaultEnqueueDecision is the decision about a message whose hook failed, is
// bypassed or does not exist.
func DefaultEnqueueDecision() EnqueueDecision {
	return EnqueueDecision{Key: DefaultFairnessKey, Weight: DefaultWeight, Cost: DefaultCost}
}

// FailureInput is the argument of on_failure.
type FailureInput struct {
	Headers                     map[string][]string
	ID, Queue, Error, ErrorCode string
	Route                       string // by which the attempt went; empty: the message had no choice
	// Attempts includes the attempt that failed: it is 1 after the first.
	Attempts uint32
	// RequestedDelay is the delay that the nack asks for, if HasDelay.
	RequestedDelay time.Duration
	HasDelay       bool
}

func (in *FailureInput) fill(a *sandbox.Argument) {
	a.SetText("queue", in.Queue)
	a.SetText("id", in.ID)
	a.SetText("error", in.Error)
	a.SetText("error_code", in.ErrorCode)
	a.SetOptionalText("route", in.Route, in.Route != "")
	a.SetNumber("attempts", float64(in.Attempts))
	a.SetMap("headers", in.Headers)
	a.SetOptionalNumber("requested_delay_ms", float64(in.RequestedDelay)/float64(time.Millisecond), in.HasDelay)
}

// Action is what happens to a message whose attempt failed.
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

// FailureDecision is the decision of on_failure.
type FailureDecision struct {
	Action Action
	Delay  time.Duration // 0..MaxDelay; only for Retry
	// HasDelay is false if the hook returns no delay. Then the delay of the nack
	// applies, if it has one.
	HasDelay bool
	// Decided is false if the hook failed or was bypassed. Then the retry policy
	// of the queue decides.
	Decided bool
}
