package attention

import (
	"slices"
	"strings"
	"time"

	"github.com/filaq/fila/wire/api"
)

// Sample is what one node knows of itself and of its queues at one time.
type Sample struct {
	At       time.Time
	Node     string  // "": no cluster
	Queues   []Queue // no dead letter queues
	Circuits []api.CircuitInfo
	Pauses   []api.PauseInfo
	Disk     *Disk              // nil: not known
	Limits   []Limit            // of names that clients create
	Cluster  *api.ClusterStatus // nil: no cluster
	// SharedAway is why the bucket of shared circuits and limits cannot be reached; nil: it can, or
	// nothing is shared.
	SharedAway error
}

// Queue is a queue in a [Sample].
type Queue struct {
	api.QueueSummary                 // with Detail
	Tenants          int             // fairness keys that could send now
	Dead             int64           // messages of the dead letter queue
	MostDead         *api.DeadRate   // the error of most dead letters of the last 15 minutes; nil: there is none
	Departures       []api.Departure // of consumers, while there is none; the last one first
	RefusedBy        int             // the error number of most refusals
	Hooks            []api.HookInfo
	HookVersions     map[string]api.HookVersion // by hook, of hooks that do not run well
	Blocked          []Blocked                  // the most messages first
	Noise            *Noise                     // nil: no flow is noisy or starves
	Late             *LateSchedule              // nil: no schedule is late
}

// Blocked are the messages of a queue that a gate blocks.
type Blocked struct {
	api.GateState
	Messages int64
	Tenants  int
	Wait     time.Duration // of the first message that the gate blocks, since it became ready
	Shared   bool          // several filas share the limits of the gate, or the circuit
	// Change is the latest change of the limits of a throttle; nil: it is not known, or the first
	// message has not waited for [HeldAfter].
	Change *api.LimitsChange
}

// limitKinds are how the limits of a throttle block.
var limitKinds = []string{"rate", "window", "concurrency", "reserved", "turn", "budget"}

// throttled reports whether the limits of a throttle block.
func (b *Blocked) throttled() bool {
	return strings.HasPrefix(b.Gate, "throttle:") && slices.Contains(limitKinds, b.Kind)
}

// Noise names the flows of a queue that disturb others, and those that wait, the worst first.
type Noise struct {
	Noisy   []api.NoisyFlow
	Waiting []api.WaitingFlow
	Starved []api.WaitingFlow
}

// LateSchedule is the schedule whose run is due longest.
type LateSchedule struct {
	Name string
	Due  time.Time
	Why  string // "": not known
}

// Disk is the state of the disk of the store.
type Disk struct {
	Low  bool
	Free int64 // bytes
}

// Limit is the use of one of the limits of the process.
type Limit struct {
	Name      string
	Used, Max int64
}

// ready is the number of messages that only wait for a consumer.
func (q *Queue) ready() int64 { return q.Ready }
