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
	EventHookCircuitChanged = "hook-circuit-changed" // tail: queue
	EventConsumerJoined     = "consumer-joined"
	EventConsumerLost       = "consumer-lost"
	EventFlowNoisy          = "flow-noisy"       // or no longer; tail: queue
	EventFlowStarved        = "flow-starved"     // or no longer; tail: queue
	EventPaused             = "paused"           // tail: what is paused
	EventResumed            = "resumed"          // by hand or by time
	EventHeld               = "held"             // max_failures; tail: the key
	EventFailureCritical    = "failure-critical" // severity critical; tail: queue, or first key of a call
	EventFailureHigh        = "failure-high"     // severity high; the same tail
	EventRulesReloaded      = "rules-reloaded"
	EventDiskLow            = "disk-low" // messages are refused
	EventDiskRecovered      = "disk-recovered"
	EventSharedConflict     = "shared-conflict" // newer limits of another fila are in force for a shared key
	EventSharedDegraded     = "shared-degraded" // what filas share cannot be reached
	EventSharedRecovered    = "shared-recovered"
	EventClientCut          = "client-cut"    // the embedded NATS server has closed its connection
	EventOwnerChanged       = "owner-changed" // tail: shard
	EventFenced             = "fenced"        // tail: shard
	EventMemberJoined       = "member-joined" // tail: node
	EventMemberLeft         = "member-left"
	EventJobCreated         = "job-created" // tail of these: the queue that the job is about
	EventJobPaused          = "job-paused"  // by hand, or by itself
	EventJobResumed         = "job-resumed"
	EventJobDone            = "job-done"
	EventJobCanceled        = "job-canceled"
	EventScheduleCreated    = "schedule-created" // tail of these: the queue
	EventScheduleReplaced   = "schedule-replaced"
	EventScheduleDeleted    = "schedule-deleted" // by hand
	EventSchedulePaused     = "schedule-paused"
	EventScheduleResumed    = "schedule-resumed"
	EventScheduleEnded      = "schedule-ended"   // it was to run once
	EventScheduleMissed     = "schedule-missed"  // runs were left out
	EventScheduleRefused    = "schedule-refused" // the queue does not take a run now; it is tried again
)

// Event is the body of an event.
type Event struct {
	Type  string         `json:"type"`
	Time  string         `json:"time"` // RFC 3339 with nanoseconds, UTC
	Queue string         `json:"queue,omitempty"`
	Key   string         `json:"key,omitempty"`
	Data  map[string]any `json:"data,omitempty"`
}
