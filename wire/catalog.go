package wire

import "slices"

// Numbers of errors. They are part of the protocol: a number is never reused and never
// changes its meaning. The last three digits are the class; the digits before them count the
// errors of the class, from 10.
const (
	// Requests and subjects.
	CodeBadJSON         = 10400
	CodeUnknownField    = 11400
	CodeBadField        = 12400
	CodeBadReplySubject = 13400
	CodeBadSubject      = 14400

	// Names.
	CodeBadQueueName    = 15400
	CodeReservedName    = 16400
	CodeBadConsumerName = 17400
	CodeBadConfigKey    = 18400

	// Queues.
	CodeBadQueueSettings = 19400
	CodeHookLoad         = 20400
	CodeNotForDLQ        = 21400
	CodeOnlyForDLQ       = 22400
	CodeQueueNotFound    = 10404
	CodeQueueExists      = 11409
	CodeQueueNotEmpty    = 12409

	// Enqueue.
	CodeBadDelay           = 23400
	CodeBadNotBefore       = 24400
	CodeDelayAndNotBefore  = 25400
	CodeBadTTL             = 26400
	CodeBadMsgID           = 27400
	CodeHeaderRepeated     = 28400
	CodeBadHeaderName      = 29400
	CodeBadMessageKey      = 37400
	CodeHeaderReserved     = 38400
	CodeBadHeaderValue     = 44400
	CodeHeadersTooLarge    = 45400
	CodeBadBatch           = 46400
	CodePredecessorRefused = 20409
	CodeMessageTooLarge    = 10413
	CodeReplyTooLarge      = 11413
	CodeBacklogMessages    = 10429
	CodeBacklogBytes       = 11429
	CodeBacklogUncommitted = 12429
	CodeEnqueueRate        = 14429
	CodeKeyPending         = 15429
	CodeBacklogLog         = 16429
	CodeBudgetEmpty        = 17429

	// Acks.
	CodeTokenRefused    = 30400
	CodeBadAckPayload   = 31400
	CodeBadAckStatus    = 32400
	CodeBadAckHeader    = 33400
	CodeMessageNotFound = 11404
	CodeLeaseLost       = 10409
	CodeMessageInFlight = 15409

	// Jobs.
	CodeJobNotFound = 22404
	CodeJobCount    = 17409
	CodeJobEnded    = 18409

	// Schedules.
	CodeBadSchedule      = 43400
	CodeScheduleNotFound = 23404

	// Runtime configuration.
	CodeBadConfigValue    = 34400
	CodeConfigKeyNotFound = 12404
	CodeConfigMismatch    = 13409

	// Hooks.
	CodeHookNotFound = 13404

	// Gates.
	CodeBadThrottle      = 35400
	CodeThrottleNotFound = 14404
	CodeBudgetNotFound   = 24404
	CodeCircuitNotFound  = 15404
	CodePauseNotFound    = 16404
	CodeKeyNotFound      = 17404
	CodeThrottleMismatch = 14409
	CodeOwned            = 21409
	CodeReloadFailed     = 36400

	// The guard.
	CodeGuardPair      = 40400
	CodePermitRefused  = 41400
	CodePermitNotFound = 20404
	CodePermitAway     = 14503

	// A cluster.
	CodeNoCluster       = 42400
	CodeNodeNotFound    = 21404
	CodeStandbyNotReady = 16409
	CodeNodeSilent      = 15503
	CodeLogLost         = 16503
	CodeNotRepaired     = 19409

	// The sidecar itself.
	CodeLimitReached   = 13429
	CodeOutcomeUnknown = 10500
	CodeInternal       = 11500
	CodeBackupFailed   = 12500
	CodeDraining       = 10503
	CodeStoreFailed    = 11503
	CodeDiskLow        = 12503
	CodeNoOwner        = 13503
	CodeSharedAway     = 17503
)

// Entry describes one error number.
type Entry struct {
	ErrCode int    // the number
	Code    int    // its class
	Name    string // a short name, stable, for metrics labels and docs
	Meaning string // one sentence: what it means and what to do
}

// Catalog returns all errors, grouped by subject.
func Catalog() []Entry { return slices.Clone(catalog) }

func entry(errCode int, name, meaning string) Entry {
	return Entry{ErrCode: errCode, Code: errCode % 1000, Name: name, Meaning: meaning}
}

var catalog = []Entry{
	entry(CodeBadJSON, "bad_json", "The body is not one JSON object, or a field has the wrong type."),
	entry(CodeUnknownField, "unknown_field", "The request has an unknown field, or a field twice."),
	entry(CodeBadField, "bad_field", "A field of the request is missing or out of its range."),
	entry(CodeBadReplySubject, "bad_reply_subject", "The reply subject is under none of nats.reply_prefixes, or is not the consumer's own inbox. fila does not carry out the request. In the first case it sends no reply; it logs and counts the request and, for enqueues and acks, publishes an event."),
	entry(CodeBadSubject, "bad_subject", "The subject does not have the form of the protocol."),

	entry(CodeBadQueueName, "bad_queue_name", "The queue name is not 1 to 128 bytes of A-Za-z0-9_- with dots between non-empty parts."),
	entry(CodeReservedName, "reserved_name", "Queue names that end in .dlq belong to dead letter queues, which are made with their queue."),
	entry(CodeBadConsumerName, "bad_consumer_name", "The consumer name is not 1 to 64 bytes of A-Za-z0-9_-."),
	entry(CodeBadConfigKey, "bad_config_key", "The configuration key is too long or not legal at the end of a subject."),

	entry(CodeBadQueueSettings, "bad_queue_settings", "A setting of the queue is out of its range; the description names it and what is allowed."),
	entry(CodeHookLoad, "hook_load", "The hook's script does not compile or does not define its function; the description has line and column."),
	entry(CodeNotForDLQ, "not_for_dlq", "A dead letter queue does not allow the operation: producers cannot enqueue into it, and it is deleted with its queue."),
	entry(CodeOnlyForDLQ, "only_for_dlq", "The operation needs a dead letter queue, whose name ends in .dlq."),
	entry(CodeQueueNotFound, "queue_not_found", "No queue has this name."),
	entry(CodeQueueExists, "queue_exists", "The queue exists with other settings; use queue-update to change them."),
	entry(CodeQueueNotEmpty, "queue_not_empty", "The queue or its dead letter queue has messages; force deletes them, too."),

	entry(CodeBadDelay, "bad_delay", "Fila-Delay is not a Go duration from 0 to ten years."),
	entry(CodeBadNotBefore, "bad_not_before", "Fila-Not-Before is not an RFC 3339 time within ten years."),
	entry(CodeDelayAndNotBefore, "delay_and_not_before", "Fila-Delay and Fila-Not-Before are both given."),
	entry(CodeBadTTL, "bad_ttl", "Nats-TTL is not whole seconds, a Go duration or never, from one second to ten years."),
	entry(CodeBadMsgID, "bad_msg_id", "Nats-Msg-Id is empty, longer than 256 bytes, not UTF-8, or has control characters."),
	entry(CodeHeaderRepeated, "header_repeated", "A header that fila understands is given several times with different values."),
	entry(CodeBadHeaderName, "bad_header_name", "The name of a header is not an RFC 7230 token, so NATS clients cannot deliver it."),
	entry(CodeHeaderReserved, "header_reserved", "The header begins with Fila- or Nats-, or is Status, and has no meaning on an enqueue."),
	entry(CodeBadMessageKey, "bad_message_key", "A fairness, throttle or circuit key, or the name of a route, is not UTF-8, has control characters, or comes from a header with more than 256 bytes."),
	entry(CodeBadHeaderValue, "bad_header_value", "The weight in weight_header is not from 1 to 1,000,000, or the priority in priority_header not from 0 to 9, or the configuration has no choice of routes with the name in route_header."),
	entry(CodeHeadersTooLarge, "headers_too_large", "The headers have more bytes than nats.max_header_bytes, or are more than nats.max_headers; put the data into the payload, or raise the limit."),
	entry(CodeBadBatch, "bad_batch", "The headers of a batch, its lengths or a header line in it are not formed as the protocol says, or a message in it is a batch or a schedule."),
	entry(CodePredecessorRefused, "predecessor_refused", "The queue is strictly ordered, and the batch has an earlier message of the key that was refused; send both again, in this order."),
	entry(CodeMessageTooLarge, "message_too_large", "Payload and headers exceed the server's max_payload minus 8 KiB for the headers of deliveries."),
	entry(CodeReplyTooLarge, "reply_too_large", "The reply exceeds the server's max_payload; a change that the request asked for is done. Ask for less, or raise max_payload."),
	entry(CodeBacklogMessages, "backlog_full", "The queue holds max_depth messages; retry later."),
	entry(CodeBacklogBytes, "backlog_bytes_full", "The queue holds max_bytes bytes; retry later."),
	entry(CodeBacklogUncommitted, "backlog_uncommitted", "Too many messages wait for the disk; retry later."),
	entry(CodeEnqueueRate, "enqueue_rate", "The queue's enqueue_rate or the key's enqueue_rate_per_key is used up; retry after the time in the headers."),
	entry(CodeKeyPending, "key_pending", "The fairness key has max_pending_per_key unfinished messages in the queue; retry later."),
	entry(CodeBacklogLog, "backlog_log", "The log of the queue's shard in JetStream is nearly full (cluster.log_bytes); retry later; everything else continues."),
	entry(CodeBudgetEmpty, "budget_empty", "The message costs more than is left of the budget of one of its throttle keys, whose limits have on_empty = \"refuse\"; retry when the next period begins."),

	entry(CodeTokenRefused, "bad_token", "The token in the subject is malformed or was not made by this fila for this queue."),
	entry(CodeBadAckPayload, "bad_ack_payload", "The payload of the ack is invalid, or its delay is out of range; the lease continues."),
	entry(CodeBadAckStatus, "bad_ack_status", "The ack has an unknown Status header; the lease continues."),
	entry(CodeBadAckHeader, "bad_ack_header", "A header of the nack does not parse or is out of its range; the lease continues."),
	entry(CodeMessageNotFound, "message_not_found", "The queue has no such message."),
	entry(CodeMessageInFlight, "message_in_flight", "The message is in flight, its failure is being judged, or it is moving; nothing changes."),
	entry(CodeJobNotFound, "job_not_found", "No job has this id; jobs are kept for seven days after their end."),
	entry(CodeJobCount, "job_count", "`if_count` is not the number of messages that match; no job was created."),
	entry(CodeJobEnded, "job_ended", "The job is done or canceled."),
	entry(CodeBadSchedule, "bad_schedule", "The schedule does not parse, has an unknown time zone or another queue as target, lacks a field, or the queue accepts no schedules by enqueues; the description says which."),
	entry(CodeScheduleNotFound, "schedule_not_found", "The queue has no schedule of this name; a schedule that has run once is gone."),
	entry(CodeLeaseLost, "lease_lost", "The token is not the message's current lease: it was acked, nacked or has expired; nothing changes."),

	entry(CodeBadConfigValue, "bad_config_value", "The value does not fit its key, or is too long."),
	entry(CodeConfigKeyNotFound, "config_key_not_found", "The configuration has no such key."),
	entry(CodeConfigMismatch, "config_mismatch", "The key does not have the value that if_value expects; nothing changes."),

	entry(CodeHookNotFound, "hook_not_found", "The queue has no such hook."),

	entry(CodeBadThrottle, "bad_throttle", "A limit of the throttle key is out of its range or has no effect without another one, or the request has no limit; the description says which."),
	entry(CodeBudgetNotFound, "budget_not_found", "The throttle key has no budget."),
	entry(CodeThrottleNotFound, "throttle_not_found", "The throttle key has no limits and no waiting messages."),
	entry(CodeCircuitNotFound, "circuit_not_found", "The circuit key has no limits and no messages."),
	entry(CodePauseNotFound, "pause_not_found", "The object is not paused."),
	entry(CodeKeyNotFound, "key_not_found", "The queue has no messages of this fairness key, and nothing is set for it."),
	entry(CodeThrottleMismatch, "throttle_mismatch", "The throttle key does not have the limits that if expects; nothing changes."),
	entry(CodeOwned, "owned", "The value belongs to another owner, whom the description names; the header Fila-Force, or an if of the request that expects the value, changes it all the same."),
	entry(CodeReloadFailed, "reload_failed", "The configuration file cannot be read or has a mistake; nothing was applied."),

	entry(CodeGuardPair, "guard_pair", "No [[guard]] table allows the further key with the first key of the call."),
	entry(CodePermitRefused, "bad_permit", "The permit was not given by this fila for this key and caller."),
	entry(CodePermitNotFound, "permit_not_found", "The permit has ended by its time or with its fila; its limits are given back."),
	entry(CodePermitAway, "permit_away", "The fila that gave the permit, one of several that answer a guard, has ended or does not answer; repeat the done later, or let the permit end."),

	entry(CodeNoCluster, "no_cluster", "The request needs a cluster, and this fila is not in one."),
	entry(CodeNodeNotFound, "node_not_found", "The cluster heard no node of this name in the last ten seconds."),
	entry(CodeStandbyNotReady, "standby_not_ready", "The node cannot take the shard now: its copy is a second or more behind, or it is drained or stopping."),
	entry(CodeNodeSilent, "node_silent", "The cluster node does not answer; retry later."),
	entry(CodeLogLost, "log_lost", "The log of the queue's shard lacks confirmed messages; no node serves it until an operator repairs the log."),
	entry(CodeNotRepaired, "not_repaired", "The log of the shard lacks no records, or another number than the request says, or cannot be repaired now."),

	entry(CodeLimitReached, "limit_reached", "A limit of this fila on the number of objects is reached; retry later or raise it."),
	entry(CodeOutcomeUnknown, "outcome_unknown", "The commit failed, and it is unknown whether it reached the disk; retry with the same Nats-Msg-Id."),
	entry(CodeInternal, "internal", "fila has a defect or met an unexpected state; its log says more."),
	entry(CodeBackupFailed, "backup_failed", "The backup could not be written, such as for lack of disk space; the store is not affected."),
	entry(CodeDraining, "draining", "fila is shutting down; retry when it, or its successor, is back."),
	entry(CodeStoreFailed, "store_failed", "The store has failed, such as by a full or broken disk; nothing was stored."),
	entry(CodeDiskLow, "disk_low", "The disk has less than store.min_free_bytes free, so fila refuses messages; retry later; everything else continues."),
	entry(CodeNoOwner, "no_owner", "No cluster node serves the queue now: its owner failed or hands it over; retry."),
	entry(CodeSharedAway, "shared_away", "The bucket of shared limits cannot be reached, so the change was not made, or its outcome is not known; look before a retry."),
}
