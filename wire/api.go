package wire

// EnqueueReply confirms an enqueue: the message is on disk or finished.
type EnqueueReply struct {
	ID        string `json:"id"` // a UUID; of the first one if Duplicate
	Queue     string `json:"queue"`
	Duplicate bool   `json:"duplicate,omitempty"`

	// Of an enqueue that has made a schedule, which has no id.
	Schedule  string `json:"schedule,omitempty"`  // its name
	Replaced  bool   `json:"replaced,omitempty"`  // there was another one of that name
	Unchanged bool   `json:"unchanged,omitempty"` // it was there
	Next      string `json:"next,omitempty"`      // its first run, RFC 3339 in its time zone
}

// ConsumeReply answers a [ConsumeRequest].
type ConsumeReply struct {
	Deliver             string `json:"deliver"` // the subject of the deliveries
	MaxInFlight         int    `json:"max_in_flight"`
	VisibilityTimeoutMs int64  `json:"visibility_timeout_ms"`
	Left                bool   `json:"left,omitempty"` // the name was registered and is not any more
}

// QueueDeleteReply answers a [QueueDeleteRequest].
type QueueDeleteReply struct {
	Deleted  int64    `json:"deleted"` // messages, those of the dead letter queue included
	Warnings []string `json:"warnings,omitempty"`
}

// QueuePurgeReply answers a [QueuePurgeRequest].
type QueuePurgeReply struct {
	Purged int64  `json:"purged"`         // messages that this request has removed
	Next   string `json:"next,omitempty"` // after of the next request, if there is more
}

// QueueList answers a [QueueListRequest].
type QueueList struct {
	Total  int            `json:"total"` // of all pages
	Queues []QueueSummary `json:"queues"`
	Next   string         `json:"next,omitempty"` // after of the next request, if there is more
	// Missing are the shards of a cluster that no node serves at the moment: their queues
	// are not in the list.
	Missing []int `json:"missing_shards,omitempty"`
}

// QueueSummary is a queue in one line. A message counts in exactly one of
// Pending, Delayed, InFlight and Moving. Parked are those of the pending ones that a
// pause, a gate or the order of their key holds back.
type QueueSummary struct {
	Name        string `json:"name"`
	Pending     int64  `json:"pending"`
	Parked      int64  `json:"parked"`
	Delayed     int64  `json:"delayed"`
	InFlight    int64  `json:"in_flight"`
	Moving      int64  `json:"moving,omitempty"` // picked by a job, or held until another queue has them
	Consumers   int    `json:"consumers"`
	Bytes       int64  `json:"bytes"`         // payloads and headers of all messages
	OldestAgeMs int64  `json:"oldest_age_ms"` // of the oldest unfinished message, 0 if there is none
	DLQ         string `json:"dlq,omitempty"` // absent for a dead letter queue

	// In a cluster: the shard that the queue is in, and the node that owns it.
	Shard *int   `json:"shard,omitempty"`
	Owner string `json:"owner,omitempty"`

	Detail *QueueDetail `json:"detail,omitempty"` // if it was asked for
}

// QueueDetail is what has happened to a queue since the start of the process that serves
// it, and who is noisy in it now.
type QueueDetail struct {
	Enqueued     int64 `json:"enqueued"`
	Delivered    int64 `json:"delivered"`
	Acked        int64 `json:"acked"`
	Failed       int64 `json:"failed"` // attempts: nacks and leases that ended
	DeadLettered int64 `json:"dead_lettered"`
	// Waits counts deliveries by how long their message waited since it was enqueued or
	// became due: at most as long as each of [WaitBounds], and longer.
	Waits []int64 `json:"waits"`

	NoisyFlows       int   `json:"noisy_flows"` // as in [NoisyReply]
	QuietPending     int64 `json:"quiet_pending"`
	QuietOldestAgeMs int64 `json:"quiet_oldest_age_ms"`
	StarvedFlows     int   `json:"starved_flows"`
}

// WaitBounds are the upper ends, in seconds, of what Waits of a [QueueDetail] counts. They
// reach from a delivery at once to a backlog of an hour.
var WaitBounds = []float64{
	.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600,
}

// QueueInfo answers a [QueueInspectRequest].
type QueueInfo struct {
	QueueSummary
	Settings     QueueSettings    `json:"settings"`
	Quantum      int64            `json:"quantum"`
	Flows        int              `json:"flows"`                 // active ones, all of them
	BusyMs       int64            `json:"busy_ms"`               // as in [NoisyReply]
	NoisyFlows   []string         `json:"noisy_flows,omitempty"` // see [NoisyReply]
	StarvedFlows int              `json:"starved_flows,omitempty"`
	ConsumerList []ConsumerInfo   `json:"consumer_list"`
	TopFlows     []FlowInfo       `json:"top_flows"` // those with the most pending messages
	Hooks        []HookInfo       `json:"hooks"`
	Counters     map[string]int64 `json:"counters"` // since the start of the process

	// How many of the flows that were asked for, and of the consumers, found no
	// room in the reply.
	MoreFlows     int `json:"more_flows,omitempty"`
	MoreConsumers int `json:"more_consumers,omitempty"`
}

// QueueReply answers queue-create and queue-update: the settings of the queue, and what
// about them is likely not meant.
type QueueReply struct {
	QueueSettings
	Warnings []string `json:"warnings,omitempty"`
}

// ConsumerInfo is a registered consumer, or a waiting fetch.
type ConsumerInfo struct {
	Name        string `json:"name"`
	MaxInFlight int    `json:"max_in_flight"`
	InFlight    int    `json:"in_flight"`
	Credit      int    `json:"credit"` // how many more it may get
	Fetch       bool   `json:"fetch"`
	ExpiresAt   string `json:"expires_at,omitempty"` // RFC 3339, absent if never
}

// FlowInfo is a flow with pending messages.
type FlowInfo struct {
	Key     string  `json:"key"`
	Weight  float64 `json:"weight"`
	Deficit float64 `json:"deficit"`
	Pending int64   `json:"pending"`
	Share   float64 `json:"share"` // its weight among all active flows, 0 to 1

	// What it has of what consumers do: messages in flight, and part of busy_ms of the
	// queue, 0 to 1, as far as it is known.
	InFlight  int64   `json:"in_flight"`
	BusyShare float64 `json:"busy_share"`
}

// HookInfo is the state of a hook and its circuit. Counts are since the start
// of the process.
type HookInfo struct {
	Hook                string `json:"hook"`  // on_enqueue or on_failure
	State               string `json:"state"` // closed, open or half-open
	Runs                int64  `json:"runs"`
	Failures            int64  `json:"failures"`
	Bypassed            int64  `json:"bypassed"` // not run because the circuit was open
	Warnings            int64  `json:"warnings"` // fields that took their defaults
	ConsecutiveFailures int    `json:"consecutive_failures"`
	LastError           string `json:"last_error,omitempty"`
}

// HookResetReply answers a [HookResetRequest] with the hooks after it.
type HookResetReply struct {
	Queue string     `json:"queue"`
	Hooks []HookInfo `json:"hooks"`
}

// ConfigSetReply answers a [ConfigSetRequest].
type ConfigSetReply struct {
	Key      string  `json:"key"`
	Value    string  `json:"value"`
	Previous *string `json:"previous"` // null if the key was not set
}

// ConfigEntry is one key of the runtime configuration. It answers config-get,
// and config-delete with what was deleted.
type ConfigEntry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// ConfigList answers config-list.
type ConfigList struct {
	Total   int           `json:"total"` // of all pages
	Entries []ConfigEntry `json:"entries"`
	Next    string        `json:"next,omitempty"` // after of the next request, if there is more
}

// RedriveReply answers a [RedriveRequest].
type RedriveReply struct {
	Redriven int64  `json:"redriven"`
	Job      string `json:"job"` // its id: a redrive is a job, which job-show shows for seven days
}

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
