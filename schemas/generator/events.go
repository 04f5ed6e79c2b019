package generator

import "github.com/filaq/fila/wire"

// event is a type of event with its data. fila sends the data of each event as a map; the tests of
// the sidecar check that it has exactly these fields.
type event struct {
	typ  string
	data any // nil: none
}

var events = []event{
	{wire.EventQueueCreated, nil},
	{wire.EventQueueUpdated, nil},
	{wire.EventQueueDeleted, QueueDeleted{}},
	{wire.EventConfigChanged, ConfigChanged{}},
	{wire.EventRefused, Refused{}},
	{wire.EventDeadLettered, DeadLettered{}},
	{wire.EventRedriven, Redriven{}},
	{wire.EventCircuitChanged, CircuitChanged{}},
	{wire.EventThrottleCut, ThrottleCut{}},
	{wire.EventHookCircuitChanged, HookCircuitChanged{}},
	{wire.EventConsumerJoined, ConsumerJoined{}},
	{wire.EventConsumerLeft, ConsumerLeft{}},
	{wire.EventConsumerLost, ConsumerLost{}},
	{wire.EventFlowNoisy, FlowNoisy{}},
	{wire.EventFlowStarved, FlowStarved{}},
	{wire.EventPaused, Paused{}},
	{wire.EventResumed, Resumed{}},
	{wire.EventHeld, Held{}},
	{wire.EventFailureCritical, FailureReport{}},
	{wire.EventFailureHigh, FailureReport{}},
	{wire.EventRulesReloaded, RulesReloaded{}},
	{wire.EventDiskLow, DiskSpace{}},
	{wire.EventDiskRecovered, DiskSpace{}},
	{wire.EventBudgetWarning, BudgetWarning{}},
	{wire.EventSharedConflict, SharedConflict{}},
	{wire.EventSharedDegraded, SharedDegraded{}},
	{wire.EventSharedRecovered, nil},
	{wire.EventClientCut, ClientCut{}},
	{wire.EventOwnerChanged, OwnerChanged{}},
	{wire.EventFenced, Fenced{}},
	{wire.EventLogLost, LogLost{}},
	{wire.EventLogDamaged, LogDamaged{}},
	{wire.EventMemberJoined, Member{}},
	{wire.EventMemberLeft, Member{}},
	{wire.EventJobCreated, JobReport{}},
	{wire.EventJobPaused, JobReport{}},
	{wire.EventJobResumed, JobReport{}},
	{wire.EventJobDone, JobReport{}},
	{wire.EventJobCanceled, JobReport{}},
	{wire.EventScheduleCreated, ScheduleReport{}},
	{wire.EventScheduleReplaced, ScheduleReport{}},
	{wire.EventScheduleDeleted, ScheduleReport{}},
	{wire.EventSchedulePaused, ScheduleReport{}},
	{wire.EventScheduleResumed, ScheduleReport{}},
	{wire.EventScheduleEnded, ScheduleReport{}},
	{wire.EventScheduleMissed, ScheduleMissed{}},
	{wire.EventScheduleRefused, ScheduleRefused{}},
}

// QueueDeleted says that a queue and its dead letter queue are gone.
type QueueDeleted struct {
	Messages int64 `json:"messages"` // deleted with it
}

// ConfigChanged says that a key of the runtime configuration changed.
type ConfigChanged struct {
	Value    *string `json:"value"`    // null: it was deleted
	Previous *string `json:"previous"` // null: it was not set
}

// Refused says that fila refused an enqueue or ack that has no reply subject, or none that it may answer.
type Refused struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
	NotReported int64  `json:"not_reported,omitempty"` // refusals before it that were left out
}

// DeadLettered says that a message came to the dead letter queue.
type DeadLettered struct {
	ID       string `json:"id"`
	Reason   string `json:"reason"`
	Error    string `json:"error"`
	Attempts uint32 `json:"attempts"`
}

// Redriven says that messages went back from a dead letter queue.
type Redriven struct {
	Redriven int64  `json:"redriven"` // messages
	Job      string `json:"job"`      // the id of the job that did it
}

// CircuitChanged says that a circuit opened, closed or became half-open.
type CircuitChanged struct {
	Old                 string `json:"old"`
	New                 string `json:"new"`
	ConsecutiveFailures int    `json:"consecutive_failures"`
	Cause               string `json:"cause"`
	At                  string `json:"at"`              // RFC 3339
	Until               string `json:"until,omitempty"` // of an opening: RFC 3339, or "closed" if only an operator closes it

	// Of a shared circuit, the same at all filas.
	Shared    bool   `json:"shared,omitempty"`
	Version   uint64 `json:"version,omitempty"`    // of the change; grows
	By        string `json:"by,omitempty"`         // instance that made the change
	ChangedAt string `json:"changed_at,omitempty"` // RFC 3339, by the clock of the fleet
}

// ThrottleCut says that a limit that learns was cut after an overload.
type ThrottleCut struct {
	Of    string  `json:"of"` // concurrency or rate
	Old   float64 `json:"old"`
	New   float64 `json:"new"`
	Cause string  `json:"cause"`
	At    string  `json:"at"`   // RFC 3339
	Cuts  uint64  `json:"cuts"` // since the limit learns
}

// HookCircuitChanged says that a hook is bypassed because it failed, or runs again.
type HookCircuitChanged struct {
	Hook                string `json:"hook"`
	Old                 string `json:"old"`
	New                 string `json:"new"`
	ConsecutiveFailures int    `json:"consecutive_failures"`
	At                  string `json:"at"` // RFC 3339
}

// ConsumerJoined says that a consumer registered.
type ConsumerJoined struct {
	Consumer    string `json:"consumer"`
	MaxInFlight int    `json:"max_in_flight"`
}

// ConsumerLeft says that a consumer ended its registration.
type ConsumerLeft struct {
	Consumer string `json:"consumer"`
	InFlight int    `json:"in_flight"` // messages that it still has
}

// ConsumerLost says that a registration ended without leave.
type ConsumerLost struct {
	Consumer string `json:"consumer"`
	Reason   string `json:"reason"`
	InFlight int    `json:"in_flight"` // messages that it had
}

// FlowNoisy says that a fairness key is noisy, or no longer.
type FlowNoisy struct {
	Began      bool  `json:"began"`               // false: it is no longer noisy
	NoisyFlows int   `json:"noisy_flows"`         // of the queue
	InFlight   int64 `json:"in_flight,omitempty"` // of the key, at the beginning
}

// FlowStarved says that a fairness key starves, or no longer.
type FlowStarved struct {
	Began        bool  `json:"began"`             // false: it starves no longer
	StarvedFlows int   `json:"starved_flows"`     // of the queue
	WaitMs       int64 `json:"wait_ms,omitempty"` // of its first message, at the beginning
}

// Paused says that a pause began.
type Paused struct {
	Kind  string `json:"kind"` // queue, key, throttle or circuit
	By    string `json:"by"`
	Until string `json:"until,omitempty"` // RFC 3339; absent: until it is resumed
}

// Resumed says that a pause ended.
type Resumed struct {
	Kind string `json:"kind"` // queue, key, throttle or circuit
	By   string `json:"by"`
}

// Held says that fila paused a fairness key or opened a circuit after too many failures.
type Held struct {
	Kind     string `json:"kind"` // key or circuit
	By       string `json:"by,omitempty"`
	Cause    string `json:"cause,omitempty"`     // of a circuit
	Failures int64  `json:"failures,omitempty"`  // of a circuit
	WindowMs int64  `json:"window_ms,omitempty"` // of a circuit, in which they happened
	Until    string `json:"until,omitempty"`     // RFC 3339, or "closed" if only an operator closes it; absent: until it is resumed
}

// FailureReport is a failure to which an error rule gives a severity.
type FailureReport struct {
	Error     string `json:"error"`
	ErrorCode string `json:"error_code"`
	Rule      string `json:"rule"`
	Attempts  int    `json:"attempts"`
	ID        string `json:"id,omitempty"`     // of the message
	Route     string `json:"route,omitempty"`  // by which the message went, if it had a choice
	Kind      string `json:"kind,omitempty"`   // "call": of a call of the guard
	Caller    string `json:"caller,omitempty"` // of the guard
}

// RulesReloaded says that fila read its configuration file again.
type RulesReloaded struct {
	Changes []string `json:"changes"` // lines for people
}

// DiskSpace is the free space of the disk.
type DiskSpace struct {
	FreeBytes    int64 `json:"free_bytes"`
	MinFreeBytes int64 `json:"min_free_bytes"` // below it messages are refused
}

// BudgetWarning says that a budget is used up to a part of it.
type BudgetWarning struct {
	Part   float64 `json:"part"`    // 0.8: of warn_at
	Budget float64 `json:"budget"`  // cost in a period
	Added  float64 `json:"added"`   // by top-ups
	Used   float64 `json:"used"`    // in the present period
	EndsAt string  `json:"ends_at"` // RFC 3339: the period
}

// SharedConflict says that newer limits of another fila are in force for a shared key.
type SharedConflict struct {
	Kind      string  `json:"kind"`       // throttle or circuit
	By        string  `json:"by"`         // the other fila
	ChangedAt *string `json:"changed_at"` // RFC 3339; null: not known
	Limits    string  `json:"limits"`     // in force, in words
	Own       string  `json:"own"`        // set here, in words
}

// SharedDegraded says that the shared state cannot be reached.
type SharedDegraded struct {
	Error string `json:"error"`
}

// ClientCut says that the embedded NATS server closed the connection of a client.
type ClientCut struct {
	Reason  string `json:"reason"` // pending, deadline or connections
	User    string `json:"user"`
	Client  string `json:"client"` // the name of the connection
	Address string `json:"address"`
}

// OwnerChanged says that another node serves a shard.
type OwnerChanged struct {
	Shard    int    `json:"shard"`
	Node     string `json:"node"` // that reports it
	Owner    string `json:"owner"`
	Epoch    uint64 `json:"epoch"`
	Previous string `json:"previous"` // the owner before; empty: none
	Planned  bool   `json:"planned"`  // it handed the shard over
}

// Fenced says that the owner of a shard cannot write its log, and neither delivers nor answers.
type Fenced struct {
	Shard int    `json:"shard"`
	Node  string `json:"node"`
	Epoch uint64 `json:"epoch"`
}

// LogLost says that the log of a shard lacks confirmed messages.
type LogLost struct {
	Shard  int    `json:"shard"`
	Node   string `json:"node"` // that reports it
	Has    string `json:"has"`  // the node with the newest commit
	Epoch  uint64 `json:"epoch"`
	Seq    uint64 `json:"seq"`     // of that commit
	LogEnd uint64 `json:"log_end"` // the newest record of the log
}

// LogDamaged says that a replica of the log of a shard cannot be read, or differs.
type LogDamaged struct {
	Shard   int    `json:"shard"`
	Node    string `json:"node"` // that reports it
	Problem string `json:"problem"`
}

// Member is a node of a cluster that came or left.
type Member struct {
	Node    string `json:"node"`
	Version string `json:"version"`
}

// JobReport is the progress of a job.
type JobReport struct {
	Job     string `json:"job"` // its id
	Op      string `json:"op"`
	Matched int64  `json:"matched"`
	Done    int64  `json:"done"`
	Why     string `json:"why,omitempty"` // it paused itself
}

// ScheduleReport names a schedule.
type ScheduleReport struct {
	Schedule string `json:"schedule"` // its name
	Text     string `json:"text"`     // when it runs
}

// ScheduleMissed says that a schedule left out runs.
type ScheduleMissed struct {
	ScheduleReport
	Missed int64 `json:"missed"`
}

// ScheduleRefused says that the queue refuses a run, which is retried.
type ScheduleRefused struct {
	ScheduleReport
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}
