package client

import "github.com/filaq/fila/wire"

// The types of the protocol, under the names of this package, so that callers
// need not import wire.
type (
	// Error is a refusal by fila.
	Error = wire.Error
	// Receipt confirms a publish: the message is on disk, or finished already.
	Receipt = wire.EnqueueReply
	// QueueSettings are the settings of a queue, with the names of config.toml.
	QueueSettings = wire.QueueSettings
	// QueueReply is what QueueCreate and QueueUpdate return.
	QueueReply = wire.QueueReply
	// QueueSummary is a queue in a list.
	QueueSummary = wire.QueueSummary
	// QueueList is a page of queues.
	QueueList = wire.QueueList
	// QueueInfo describes a queue, its consumers, flows and hooks.
	QueueInfo = wire.QueueInfo
	// ConsumerInfo is a registered consumer.
	ConsumerInfo = wire.ConsumerInfo
	// FlowInfo is a flow with pending messages.
	FlowInfo = wire.FlowInfo
	// HookInfo is the state of a hook and its circuit.
	HookInfo = wire.HookInfo
	// ConfigEntry is a key of the runtime configuration.
	ConfigEntry = wire.ConfigEntry
	// ConfigList is a page of the runtime configuration.
	ConfigList = wire.ConfigList
	// ConfigSetReply has the previous value as well.
	ConfigSetReply = wire.ConfigSetReply
	// PeekRequest selects messages to show, and how much of each.
	PeekRequest = wire.PeekRequest
	// Filter selects messages.
	Filter = wire.Filter
	// NoisyReply has the noisy and the waiting flows of a queue.
	NoisyReply = wire.NoisyReply
	// WaitingFlow is a quiet flow that waits.
	WaitingFlow = wire.WaitingFlow
	// DeadGroups is the dead letters of a queue grouped by error.
	DeadGroups = wire.DeadGroups
	// DeadGroup is the dead letters with one error.
	DeadGroup = wire.DeadGroup
	// PeekReply is a page of messages. Next is where the next one begins, 0 if
	// there is none.
	PeekReply = wire.PeekReply
	// MessageInfo is everything about a message.
	MessageInfo = wire.MessageInfo
	// MessageReply names the message that was deleted or made ready.
	MessageReply = wire.MessageReply
	// QueuePurgeReply counts the removed messages.
	QueuePurgeReply = wire.QueuePurgeReply
	// QueueDeleteReply counts the messages deleted with the queue.
	QueueDeleteReply = wire.QueueDeleteReply
	// JobCreateRequest describes a job to begin.
	JobCreateRequest = wire.JobCreateRequest
	// JobInfo is a job.
	JobInfo = wire.JobInfo
	// ScheduleAddRequest describes a schedule: what it enqueues, and when.
	ScheduleAddRequest = wire.ScheduleAddRequest
	// ScheduleInfo is a schedule of a queue.
	ScheduleInfo = wire.ScheduleInfo
	// ScheduleRun is a past run of a schedule.
	ScheduleRun = wire.ScheduleRun
	// RedriveReply counts the moved messages.
	RedriveReply = wire.RedriveReply
	// StoreBackupReply says where a backup of the store is.
	StoreBackupReply = wire.StoreBackupReply
	// HookResetReply has the hooks with closed circuits.
	HookResetReply = wire.HookResetReply
	// RateLimit is the state of the enqueue limit that refused a message.
	RateLimit = wire.RateLimit
)

// The types of the guard.
type (
	// GuardAnswer says whether a call is allowed, or what refuses it.
	GuardAnswer = wire.GuardAnswer
	// GuardLimit is the state of a limit.
	GuardLimit = wire.GuardLimit
	// GuardVerdict is the judgement of the rules about a failed call.
	GuardVerdict = wire.GuardVerdict
	// GuardStatus is the state of a key.
	GuardStatus = wire.GuardStatus
	// PermitFilter selects permits of the guard.
	PermitFilter = wire.PermitFilter
	// GuardPermitsRequest asks for permits of the guard.
	GuardPermitsRequest = wire.GuardPermitsRequest
	// GuardPermit is a permit in use.
	GuardPermit = wire.GuardPermit
	// GuardHolder is the number of permits of a key or a caller.
	GuardHolder = wire.GuardHolder
	// GuardPermitList is a page of permits.
	GuardPermitList = wire.GuardPermitList
	// GuardEndRequest ends permits of the guard.
	GuardEndRequest = wire.GuardEndRequest
	// GuardEndReply counts the ended permits.
	GuardEndReply = wire.GuardEndReply
)

// The types of gates: throttles, circuits and pauses.
type (
	// Rate is messages per second as text: "10", "0.5" or "1/3".
	Rate = wire.Rate
	// CircuitLimits decide when a circuit opens and closes.
	CircuitLimits = wire.CircuitLimits
	// ThrottleLimits are the limits of a throttle key.
	ThrottleLimits = wire.ThrottleLimits
	// ThrottleChange changes the limits of the throttle key that it names.
	ThrottleChange = wire.ThrottleSetRequest
	// ThrottleInfo is a throttle key with its limits and state.
	ThrottleInfo = wire.ThrottleInfo
	// ThrottleList is a page of throttle keys.
	ThrottleList = wire.ThrottleList
	// CircuitInfo is a circuit around a destination.
	CircuitInfo = wire.CircuitInfo
	// CircuitList is a page of circuits.
	CircuitList = wire.CircuitList
	// PauseRequest names what to pause or to resume.
	PauseRequest = wire.PauseRequest
	// PauseInfo is a pause.
	PauseInfo = wire.PauseInfo
	// PauseList is a page of pauses.
	PauseList = wire.PauseList
	// ConfigLogEntry is a change in the audit log.
	ConfigLogEntry = wire.ConfigLogEntry
	// ConfigLog is a page of the audit log.
	ConfigLog = wire.ConfigLog
	// ReloadReply lists the changes of a reload.
	ReloadReply = wire.ReloadReply
	// ExplainedMessage says where a message is and what it waits for.
	ExplainedMessage = wire.ExplainMessage
	// AttemptInfo is one record of the history of a message.
	AttemptInfo = wire.AttemptInfo
	// HeldInfo is how long a gate blocked a message.
	HeldInfo = wire.HeldInfo
	// ExplainedKey describes the flow of a fairness key.
	ExplainedKey = wire.ExplainKey
	// ExplainedQueue says what a queue waits for.
	ExplainedQueue = wire.ExplainQueue
	// GateState is a gate of a message and its state.
	GateState = wire.GateState
	// BlockedCount is a gate and how much it blocks.
	BlockedCount = wire.BlockedCount
)

// The types of a cluster.
type (
	// ClusterStatus is the nodes and shards of a cluster.
	ClusterStatus = wire.ClusterStatus
	// ClusterNode is a node that was heard in the last ten seconds.
	ClusterNode = wire.ClusterNode
	// ClusterShard is a shard with its owner and its copies.
	ClusterShard = wire.ClusterShard
	// ClusterStandby is the copy of a shard at a node that does not own it.
	ClusterStandby = wire.ClusterStandby
	// ClusterDrainReply counts the shards that a node has to hand over.
	ClusterDrainReply = wire.ClusterDrainReply
	// ClusterMoveReply has the old and the new owner of a shard.
	ClusterMoveReply = wire.ClusterMoveReply
)

// Outcomes of attempts, and other records of a message's history.
const (
	AttemptNack         = wire.AttemptNack
	AttemptTerm         = wire.AttemptTerm
	AttemptExpired      = wire.AttemptExpired
	AttemptNoResponders = wire.AttemptNoResponders
	AttemptRedriven     = wire.AttemptRedriven
	AttemptMoved        = wire.AttemptMoved
)

// Deciders about a message after a failed attempt.
const (
	DecidedByHook     = wire.DecidedByHook
	DecidedByConsumer = wire.DecidedByConsumer
	DecidedByRule     = wire.DecidedByRule
	DecidedByPolicy   = wire.DecidedByPolicy
	DecidedByDefault  = wire.DecidedByDefault
	DecidedByLimit    = wire.DecidedByLimit
	DecidedByTTL      = wire.DecidedByTTL
)

// Kinds of pauses.
const (
	PauseQueue    = wire.PauseQueue
	PauseKey      = wire.PauseKey
	PauseThrottle = wire.PauseThrottle
	PauseCircuit  = wire.PauseCircuit
)

// DefaultPrefix is the subject prefix if none is configured.
const DefaultPrefix = wire.DefaultPrefix

// DefaultMaxDeliveries is how often a message is delivered if max_deliveries is not set and
// no on_failure hook decides.
const DefaultMaxDeliveries = wire.DefaultMaxDeliveries

// DefaultQueueSettings returns the default settings of a queue. Start from them: the zero
// QueueSettings is not valid.
func DefaultQueueSettings(name string) QueueSettings { return wire.DefaultQueueSettings(name) }
