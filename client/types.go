package client

import (
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

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
	QueueReply = api.QueueReply
	// QueueSummary is a queue in a list.
	QueueSummary = api.QueueSummary
	// QueueList is a page of queues.
	QueueList = api.QueueList
	// QueueInfo describes a queue, its consumers, flows and hooks.
	QueueInfo = api.QueueInfo
	// ConsumerInfo is a registered consumer.
	ConsumerInfo = api.ConsumerInfo
	// FlowInfo is a flow with pending messages.
	FlowInfo = api.FlowInfo
	// HookInfo is the state of a hook and its circuit.
	HookInfo = api.HookInfo
	// ConfigEntry is a key of the runtime configuration.
	ConfigEntry = api.ConfigEntry
	// ConfigList is a page of the runtime configuration.
	ConfigList = api.ConfigList
	// ConfigEditRequest changes several keys of the runtime configuration.
	ConfigEditRequest = api.ConfigEditRequest
	// ConfigEditReply has the changes.
	ConfigEditReply = api.ConfigEditReply
	// ConfigSetReply has the previous value as well.
	ConfigSetReply = api.ConfigSetReply
	// PeekRequest selects messages to show, and how much of each.
	PeekRequest = api.PeekRequest
	// Filter selects messages.
	Filter = api.Filter
	// Attention has what is wrong now.
	Attention = api.Attention
	// Finding is a condition that holds for an object now.
	Finding = api.Finding
	// QueueWanted says how many messages of a queue could be worked on.
	QueueWanted = api.QueueWanted
	// ScaleOptions say how to count workers.
	ScaleOptions = api.ScaleOptions
	// Scale is how many workers some queues need.
	Scale = api.Scale
	// NoisyReply has the noisy and the waiting flows of a queue.
	NoisyReply = api.NoisyReply
	// WaitingFlow is a quiet flow that waits.
	WaitingFlow = api.WaitingFlow
	// LanesRequest asks for fairness keys and for the next deliveries.
	LanesRequest = api.LanesRequest
	// LanesReply is a queue by fairness key, with its next deliveries.
	LanesReply = api.LanesReply
	// Lane is a fairness key of a queue.
	Lane = api.Lane
	// NextDelivery is a delivery that is expected.
	NextDelivery = api.NextDelivery
	// DeadGroups is the dead letters of a queue grouped by error.
	DeadGroups = api.DeadGroups
	// DeadGroup is the dead letters with one error.
	DeadGroup = api.DeadGroup
	// DeadRatesRequest asks for the dead letters of the last minutes.
	DeadRatesRequest = api.DeadRatesRequest
	// DeadRates is how many messages became dead letters in each of the last minutes.
	DeadRates = api.DeadRates
	// DeadRate is DeadRates of one error group.
	DeadRate = api.DeadRate
	// PeekReply is a page of messages. Next is where the next one begins, 0 if
	// there is none.
	PeekReply = api.PeekReply
	// MessageInfo is everything about a message.
	MessageInfo = api.MessageInfo
	// MessageReply names the message that was deleted or made ready.
	MessageReply = api.MessageReply
	// QueuePurgeReply counts the removed messages.
	QueuePurgeReply = api.QueuePurgeReply
	// QueueDeleteReply counts the messages deleted with the queue.
	QueueDeleteReply = api.QueueDeleteReply
	// JobCreateRequest describes a job to begin.
	JobCreateRequest = api.JobCreateRequest
	// JobInfo is a job.
	JobInfo = api.JobInfo
	// ScheduleAddRequest describes a schedule: what it enqueues, and when.
	ScheduleAddRequest = api.ScheduleAddRequest
	// ScheduleInfo is a schedule of a queue.
	ScheduleInfo = api.ScheduleInfo
	// ScheduleRun is a past run of a schedule.
	ScheduleRun = api.ScheduleRun
	// RedriveReply counts the moved messages.
	RedriveReply = api.RedriveReply
	// StoreBackupReply says where a backup of the store is.
	StoreBackupReply = api.StoreBackupReply
	// HookReply is a script of a hook, with the version before it.
	HookReply = api.HookReply
	// HookVersion is a script of a hook with the change that put it in force.
	HookVersion = api.HookVersion
	// HookResetReply has the hooks with closed circuits.
	HookResetReply = api.HookResetReply
	// AnnotateRequest marks a time on the charts of a queue or of all.
	AnnotateRequest = api.AnnotateRequest
	// MarksRequest asks for what happened to a queue, a throttle or a circuit.
	MarksRequest = api.MarksRequest
	// Mark is something that happened at one time.
	Mark = api.Mark
	// Marks is the newest marks of an object.
	Marks = api.Marks
	// Source says who set a value.
	Source = api.Source
	// Sources are the sources of the values of an object, by name.
	Sources = api.Sources
	// RateLimit is the state of the enqueue limit that refused a message.
	RateLimit = wire.RateLimit
)

// The types of the guard.
type (
	// GuardAnswer says whether a call is allowed, or what refuses it.
	GuardAnswer = api.GuardAnswer
	// GuardLimit is the state of a limit.
	GuardLimit = api.GuardLimit
	// GuardVerdict is the judgement of the rules about a failed call.
	GuardVerdict = api.GuardVerdict
	// GuardStatus is the state of a key.
	GuardStatus = api.GuardStatus
	// PermitFilter selects permits of the guard.
	PermitFilter = api.PermitFilter
	// GuardPermitsRequest asks for permits of the guard.
	GuardPermitsRequest = api.GuardPermitsRequest
	// GuardPermit is a permit in use.
	GuardPermit = api.GuardPermit
	// GuardHolder is the number of permits of a key or a caller.
	GuardHolder = api.GuardHolder
	// GuardPermitList is a page of permits.
	GuardPermitList = api.GuardPermitList
	// GuardEndRequest ends permits of the guard.
	GuardEndRequest = api.GuardEndRequest
	// GuardEndReply counts the ended permits.
	GuardEndReply = api.GuardEndReply
)

// The types of gates: throttles, circuits and pauses.
type (
	// Rate is messages per second as text: "10", "0.5" or "1/3".
	Rate = wire.Rate
	// CircuitLimits decide when a circuit opens and closes.
	CircuitLimits = api.CircuitLimits
	// ThrottleLimits are the limits of a throttle key.
	ThrottleLimits = api.ThrottleLimits
	// ThrottleChange changes the limits of the throttle key that it names.
	ThrottleChange = api.ThrottleSetRequest
	// ThrottleInfo is a throttle key with its limits and state.
	ThrottleInfo = api.ThrottleInfo
	// ThrottleList is a page of throttle keys.
	ThrottleList = api.ThrottleList
	// CircuitInfo is a circuit around a destination.
	CircuitInfo = api.CircuitInfo
	// CircuitFailure is a failed delivery, or a failed call of the guard, behind a circuit.
	CircuitFailure = api.CircuitFailure
	// CircuitHistory is the last hour of a circuit.
	CircuitHistory = api.CircuitHistory
	// CircuitList is a page of circuits.
	CircuitList = api.CircuitList
	// PauseRequest names what to pause or to resume.
	PauseRequest = api.PauseRequest
	// PauseInfo is a pause.
	PauseInfo = api.PauseInfo
	// PauseList is a page of pauses.
	PauseList = api.PauseList
	// ConfigLogEntry is a change in the audit log.
	ConfigLogEntry = api.ConfigLogEntry
	// ConfigLog is a page of the audit log.
	ConfigLog = api.ConfigLog
	// ReloadReply lists the changes of a reload.
	ReloadReply = api.ReloadReply
	// ExplainedMessage says where a message is and what it waits for.
	ExplainedMessage = api.ExplainMessage
	// AttemptInfo is one record of the history of a message.
	AttemptInfo = api.AttemptInfo
	// HeldInfo is how long a gate blocked a message.
	HeldInfo = api.HeldInfo
	// ExplainedKey describes the flow of a fairness key.
	ExplainedKey = api.ExplainKey
	// ExplainedQueue says what a queue waits for.
	ExplainedQueue = api.ExplainQueue
	// GateState is a gate of a message and its state.
	GateState = api.GateState
	// BlockedCount is a gate and how much it blocks.
	BlockedCount = api.BlockedCount
)

// The types of a cluster.
type (
	// ClusterStatus is the nodes and shards of a cluster.
	ClusterStatus = api.ClusterStatus
	// ClusterNode is a node that was heard in the last ten seconds.
	ClusterNode = api.ClusterNode
	// ClusterShard is a shard with its owner and its copies.
	ClusterShard = api.ClusterShard
	// ClusterServer is a NATS server that has replicas of the logs.
	ClusterServer = api.ClusterServer
	// ClusterStandby is the copy of a shard at a node that does not own it.
	ClusterStandby = api.ClusterStandby
	// ClusterDrainReply counts the shards that a node has to hand over.
	ClusterDrainReply = api.ClusterDrainReply
	// ClusterMoveReply has the old and the new owner of a shard.
	ClusterMoveReply = api.ClusterMoveReply
	// ClusterLoss is what the log of a shard lacks.
	ClusterLoss = api.ClusterLoss
	// ClusterVerifyReply is what the logs have, and which copies they agree with.
	ClusterVerifyReply = api.ClusterVerifyReply
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
	PauseQueue    = api.PauseQueue
	PauseKey      = api.PauseKey
	PauseThrottle = api.PauseThrottle
	PauseCircuit  = api.PauseCircuit
)

// DefaultPrefix is the subject prefix if none is configured.
const DefaultPrefix = wire.DefaultPrefix

// DefaultMaxDeliveries is how often a message is delivered if max_deliveries is not set and
// no on_failure hook decides.
const DefaultMaxDeliveries = wire.DefaultMaxDeliveries

// DefaultScaleOptions returns the options that /scale has without parameters.
func DefaultScaleOptions() ScaleOptions { return api.DefaultScaleOptions() }

// DefaultQueueSettings returns the default settings of a queue. Start from them: the zero
// QueueSettings is not valid.
func DefaultQueueSettings(name string) QueueSettings { return wire.DefaultQueueSettings(name) }
