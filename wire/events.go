package wire

// Types of events.
const (
	EventQueueCreated       = "queue-created"
	EventQueueUpdated       = "queue-updated"
	EventQueueDeleted       = "queue-deleted"
	EventConfigChanged      = "config-changed"       // tail: key
	EventRefused            = "refused"              // an enqueue without reply
	EventDeadLettered       = "dead-lettered"        // tail: source queue
	EventRedriven           = "redriven"             // tail: source queue
	EventCircuitChanged     = "circuit-changed"      // tail: circuit key
	EventThrottleCut        = "throttle-cut"         // a limit that learns was cut; tail: throttle key
	EventHookCircuitChanged = "hook-circuit-changed" // tail: queue
	EventConsumerJoined     = "consumer-joined"
	EventConsumerLeft       = "consumer-left"
	EventConsumerLost       = "consumer-lost"
	EventFlowNoisy          = "flow-noisy"       // begins or ends; tail: queue
	EventFlowStarved        = "flow-starved"     // begins or ends; tail: queue
	EventPaused             = "paused"           // tail: what is paused
	EventResumed            = "resumed"          // by an operator or by time
	EventHeld               = "held"             // max_failures; tail: the key
	EventFailureCritical    = "failure-critical" // severity critical; tail: queue, or first key of a call
	EventFailureHigh        = "failure-high"     // severity high; the same tail
	EventBudgetWarning      = "budget-warning"   // the budget of a key is used up to a part of it; tail: throttle key
	EventRulesReloaded      = "rules-reloaded"
	EventDiskLow            = "disk-low" // messages are refused
	EventDiskRecovered      = "disk-recovered"
	EventSharedConflict     = "shared-conflict" // newer limits of another fila are in force for a shared key
	EventSharedDegraded     = "shared-degraded" // the shared state cannot be reached
	EventSharedRecovered    = "shared-recovered"
	EventClientCut          = "client-cut"    // the embedded NATS server closed a client's connection
	EventOwnerChanged       = "owner-changed" // tail: shard
	EventFenced             = "fenced"        // tail: shard
	EventLogLost            = "log-lost"      // tail: shard; its log lacks confirmed messages
	EventLogDamaged         = "log-damaged"   // tail: shard; a replica of its log cannot be read, or differs
	EventMemberJoined       = "member-joined" // tail: node
	EventMemberLeft         = "member-left"
	EventJobCreated         = "job-created" // tail of all job events: the job's queue
	EventJobPaused          = "job-paused"  // by an operator, or by itself
	EventJobResumed         = "job-resumed"
	EventJobDone            = "job-done"
	EventJobCanceled        = "job-canceled"
	EventScheduleCreated    = "schedule-created" // tail of all schedule events: the queue
	EventScheduleReplaced   = "schedule-replaced"
	EventScheduleDeleted    = "schedule-deleted" // by hand
	EventSchedulePaused     = "schedule-paused"
	EventScheduleResumed    = "schedule-resumed"
	EventScheduleEnded      = "schedule-ended"   // after its only run
	EventScheduleMissed     = "schedule-missed"  // runs were skipped
	EventScheduleRefused    = "schedule-refused" // the queue refuses a run, which is retried
)

// Event is the body of an event.
type Event struct {
	Type  string         `json:"type"`
	Time  string         `json:"time"` // RFC 3339 with nanoseconds, UTC
	Queue string         `json:"queue,omitempty"`
	Key   string         `json:"key,omitempty"`
	Data  map[string]any `json:"data,omitempty"`
}
