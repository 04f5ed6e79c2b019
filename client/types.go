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
	// QueueInfo is what inspecting a queue tells.
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
	// ConfigSetReply tells the previous value, too.
	ConfigSetReply = wire.ConfigSetReply
	// PeekRequest says which messages to show, from where, and how much of each.
	PeekRequest = wire.PeekRequest
	// Filter says which messages are meant.
	Filter = wire.Filter
	// NoisyReply says which flows of a queue disturb which.
	NoisyReply = wire.NoisyReply
	// WaitingFlow is a flow that could send something.
	WaitingFlow = wire.WaitingFlow
	// DeadGroups is the dead letters of a queue by their errors.
	DeadGroups = wire.DeadGroups
	// DeadGroup is those of them with the same error.
	DeadGroup = wire.DeadGroup
	// PeekReply is a page of messages. Next is where the next one begins, 0 if
	// there is none.
	PeekReply = wire.PeekReply
	// MessageInfo is a message with all that is known about it.
	MessageInfo = wire.MessageInfo
	// MessageReply says which message was deleted, or made ready.
	MessageReply = wire.MessageReply
	// QueuePurgeReply tells how many messages were removed.
	QueuePurgeReply = wire.QueuePurgeReply
	// QueueDeleteReply tells how many messages went with the queue.
	QueueDeleteReply = wire.QueueDeleteReply
	// JobCreateRequest says what a job is to do.
	JobCreateRequest = wire.JobCreateRequest
	// JobInfo is a job.
	JobInfo = wire.JobInfo
	// ScheduleAddRequest says what a schedule enqueues, and when.
	ScheduleAddRequest = wire.ScheduleAddRequest
	// ScheduleInfo is a schedule of a queue.
	ScheduleInfo = wire.ScheduleInfo
	// ScheduleRun is a run of a schedule that was made.
	ScheduleRun = wire.ScheduleRun
	// RedriveReply tells how many messages were moved.
	RedriveReply = wire.RedriveReply
	// StoreBackupReply says where a backup of the store is.
	StoreBackupReply = wire.StoreBackupReply
	// HookResetReply shows the hooks after their circuits were closed.
	HookResetReply = wire.HookResetReply
	// RateLimit is how an enqueue limit stands that refused a message.
	RateLimit = wire.RateLimit
)

// The types of the guard.
type (
	// GuardAnswer says whether a call may be made, or what refuses it.
	GuardAnswer = wire.GuardAnswer
	// GuardLimit is how a limit stands.
	GuardLimit = wire.GuardLimit
	// GuardVerdict is what the rules make of a call that failed.
	GuardVerdict = wire.GuardVerdict
	// GuardStatus is how a key stands.
	GuardStatus = wire.GuardStatus
	// PermitFilter says which permits of the guard are meant.
	PermitFilter = wire.PermitFilter
	// GuardPermitsRequest asks for permits of the guard that are held.
	GuardPermitsRequest = wire.GuardPermitsRequest
	// GuardPermit is a permit that is held.
	GuardPermit = wire.GuardPermit
	// GuardHolder is how many permits are held under a key, or by a caller.
	GuardHolder = wire.GuardHolder
	// GuardPermitList is a page of permits.
	GuardPermitList = wire.GuardPermitList
	// GuardEndRequest ends permits of the guard.
	GuardEndRequest = wire.GuardEndRequest
	// GuardEndReply says how many permits were ended.
	GuardEndReply = wire.GuardEndReply
)

// The types of gates: throttles, circuits and pauses.
type (
	// Rate is messages per second as text: "10", "0.5" or "1/3".
	Rate = wire.Rate
	// CircuitLimits are when a circuit opens and closes.
	CircuitLimits = wire.CircuitLimits
	// ThrottleLimits are the limits of a throttle key.
	ThrottleLimits = wire.ThrottleLimits
	// ThrottleChange changes the limits of the throttle key that it names.
	ThrottleChange = wire.ThrottleSetRequest
	// ThrottleInfo is a throttle key with its limits and the state of its gate.
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
	// ReloadReply says what a reload has changed.
	ReloadReply = wire.ReloadReply
	// ExplainedMessage says where a message is and why.
	ExplainedMessage = wire.ExplainMessage
	// AttemptInfo is one record of the history of a message.
	AttemptInfo = wire.AttemptInfo
	// HeldInfo is how long a gate has held a message back.
	HeldInfo = wire.HeldInfo
	// ExplainedKey says how a fairness key stands.
	ExplainedKey = wire.ExplainKey
	// ExplainedQueue says what a queue waits for.
	ExplainedQueue = wire.ExplainQueue
	// GateState is a gate of a message and how it stands.
	GateState = wire.GateState
	// BlockedCount is a gate with what it holds back.
	BlockedCount = wire.BlockedCount
)

// The types of a cluster.
type (
	// ClusterStatus is the nodes and shards of a cluster.
	ClusterStatus = wire.ClusterStatus
	// ClusterNode is a node that was heard in the last ten seconds.
	ClusterNode = wire.ClusterNode
	// ClusterShard is a shard: who owns it, and who has copies.
	ClusterShard = wire.ClusterShard
	// ClusterStandby is the copy of a shard at a node that does not own it.
	ClusterStandby = wire.ClusterStandby
	// ClusterDrainReply says how many shards a node has to hand over.
	ClusterDrainReply = wire.ClusterDrainReply
	// ClusterMoveReply says where a shard goes from and to.
	ClusterMoveReply = wire.ClusterMoveReply
)

// How an attempt has ended, or what else there is in the history of a message.
const (
	AttemptNack         = wire.AttemptNack
	AttemptTerm         = wire.AttemptTerm
	AttemptExpired      = wire.AttemptExpired
	AttemptNoResponders = wire.AttemptNoResponders
	AttemptRedriven     = wire.AttemptRedriven
	AttemptMoved        = wire.AttemptMoved
)

// Who has decided what became of a message after a failed attempt.
const (
	DecidedByHook     = wire.DecidedByHook
	DecidedByConsumer = wire.DecidedByConsumer
	DecidedByRule     = wire.DecidedByRule
	DecidedByPolicy   = wire.DecidedByPolicy
	DecidedByDefault  = wire.DecidedByDefault
	DecidedByLimit    = wire.DecidedByLimit
	DecidedByTTL      = wire.DecidedByTTL
)

// What a [PauseRequest] names.
const (
	PauseQueue    = wire.PauseQueue
	PauseKey      = wire.PauseKey
	PauseThrottle = wire.PauseThrottle
	PauseCircuit  = wire.PauseCircuit
)

// DefaultPrefix is the subject prefix of a fila that was not told another.
const DefaultPrefix = wire.DefaultPrefix

// DefaultMaxDeliveries is how often a message is delivered at most when
// max_deliveries is not set and no on_failure hook decides.
const DefaultMaxDeliveries = wire.DefaultMaxDeliveries

// DefaultQueueSettings returns the settings of a queue about which nothing is
// said. Start from it: the zero QueueSettings is not valid.
func DefaultQueueSettings(name string) QueueSettings { return wire.DefaultQueueSettings(name) }
