package wire

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// BadJSON refuses a body that is not one JSON object of the right types.
func BadJSON(detail string) *Error { return newError(CodeBadJSON, "bad JSON: %s", detail) }

// UnknownField refuses a field that the request does not have.
func UnknownField(name string, allowed []string) *Error {
	if len(allowed) == 0 {
		return newError(CodeUnknownField, "unknown field %s: no fields are allowed", quote(name))
	}
	return newError(CodeUnknownField, "unknown field %s: allowed are %s", quote(name), strings.Join(allowed, ", "))
}

// FieldRepeated refuses a field that is there twice.
func FieldRepeated(name string) *Error {
	return newError(CodeUnknownField, "field %s is given twice", quote(name))
}

// BadField refuses a field that is missing or out of range.
func BadField(name, value, allowed string) *Error {
	if value == "" {
		return newError(CodeBadField, "%s is missing: %s", name, allowed)
	}
	return newError(CodeBadField, "%s is %s: %s", name, tame(value), allowed)
}

// BadReplySubject refuses a request because of its reply subject.
func BadReplySubject(reply, allowed string) *Error {
	return newError(CodeBadReplySubject, "reply subject %s: %s", quote(reply), allowed)
}

// BadSubject refuses a subject that is not formed as the protocol says.
func BadSubject(subject string) *Error {
	return newError(CodeBadSubject, "subject %s is not formed as the protocol says", quote(subject))
}

// BadQueueName refuses a queue name; err is that of [CheckQueueName].
func BadQueueName(err error) *Error { return newError(CodeBadQueueName, "%v", err) }

// ReservedName refuses to create a queue under a dead letter queue's name.
func ReservedName(queue string) *Error {
	return newError(CodeReservedName, "queue name %s: names that end in %s are reserved for dead letter queues",
		quote(queue), DLQSuffix)
}

// BadConsumerName refuses a consumer name; err is that of [CheckConsumerName].
func BadConsumerName(err error) *Error { return newError(CodeBadConsumerName, "%v", err) }

// BadConfigKey refuses a configuration key; err is that of [CheckConfigKey].
func BadConfigKey(err error) *Error { return newError(CodeBadConfigKey, "%v", err) }

// BadQueueSettings refuses settings; err is that of [QueueSettings.Validate].
func BadQueueSettings(err error) *Error { return newError(CodeBadQueueSettings, "%v", err) }

// HookLoad refuses a queue whose hook does not load; err says where and why.
func HookLoad(queue, hook, why string) *Error {
	return newError(CodeHookLoad, "queue %s: %s: %s", quote(queue), hook, why)
}

// NotForDLQ refuses an operation on a dead letter queue.
func NotForDLQ(operation, queue string) *Error {
	return newError(CodeNotForDLQ, "%s is not possible on the dead letter queue %s", operation, quote(queue))
}

// OnlyForDLQ refuses an operation on a queue that is not a dead letter queue.
func OnlyForDLQ(operation, queue string) *Error {
	return newError(CodeOnlyForDLQ, "%s needs a dead letter queue, a name that ends in %s; got %s",
		operation, DLQSuffix, quote(queue))
}

// QueueNotFound answers for a queue that does not exist.
func QueueNotFound(queue string) *Error {
	return newError(CodeQueueNotFound, "no such queue %s", quote(queue))
}

// QueueExists refuses to create a queue that exists with other settings; differences
// are those of [QueueSettings.Differences].
func QueueExists(queue string, differences []string) *Error {
	return newError(CodeQueueExists, "queue %s exists with other settings: %s", quote(queue), strings.Join(differences, "; "))
}

// QueueNotEmpty refuses to delete a queue that has messages.
func QueueNotEmpty(queue string, messages int64) *Error {
	return newError(CodeQueueNotEmpty, "queue %s has %s, dead letters included, and force is not set", quote(queue), count(messages, "message"))
}

// count says how many things there are, in words.
func count(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// HeaderReserved refuses a header that consumers would not get; allowed says which of its
// kind are taken there.
func HeaderReserved(name, allowed string) *Error {
	return newError(CodeHeaderReserved, "header %s: names that begin with Fila- or Nats-, and %s, are reserved; %s", quote(name), HeaderStatus, allowed)
}

// BadDelay refuses the value of Fila-Delay.
func BadDelay(value string) *Error {
	return newError(CodeBadDelay, "%s %s: allowed is a Go duration such as 30s, from 0 to 87600h", HeaderDelay, quote(value))
}

// BadNotBefore refuses the value of Fila-Not-Before.
func BadNotBefore(value string) *Error {
	return newError(CodeBadNotBefore, "%s %s: allowed is an RFC 3339 time such as 2030-01-02T15:04:05Z, at most ten years from now",
		HeaderNotBefore, quote(value))
}

// DelayAndNotBefore refuses a message with two times to wait for.
func DelayAndNotBefore() *Error {
	return newError(CodeDelayAndNotBefore, "%s and %s are both given: only one is allowed", HeaderDelay, HeaderNotBefore)
}

// BadTTL refuses the value of Nats-TTL.
func BadTTL(value string) *Error {
	return newError(CodeBadTTL, "%s %s: allowed are whole seconds, a Go duration or never, from 1s to 87600h",
		HeaderTTL, quote(value))
}

// BadMsgID refuses the value of Nats-Msg-Id.
func BadMsgID(id string) *Error {
	if id == "" || len(id) > MaxDedupeID {
		return newError(CodeBadMsgID, "%s has %d bytes: allowed are 1 to %d", HeaderMsgID, len(id), MaxDedupeID)
	}
	return newError(CodeBadMsgID, "%s %s: allowed is UTF-8 without control characters", HeaderMsgID, quote(id))
}

// BadMessageKey refuses a message because of a key that a header or on_enqueue
// gives it; which says what key it is.
func BadMessageKey(which, key string) *Error {
	return newError(CodeBadMessageKey, "%s key %s: %s", which, quote(key), allowedKey)
}

// BadHeaderValue refuses a message because of the header that a setting of its queue
// names.
func BadHeaderValue(name, value, allowed string) *Error {
	return newError(CodeBadHeaderValue, "header %s %s: %s", name, quote(value), allowed)
}

// HeaderRepeated refuses a header with different values.
func HeaderRepeated(name string) *Error {
	return newError(CodeHeaderRepeated, "header %s is given several times with different values", name)
}

// BadHeaderName refuses a header that could not be delivered.
func BadHeaderName(name string) *Error {
	return newError(CodeBadHeaderName, `header name %s: allowed is printable ASCII without spaces and "(),/:;<=>?@[\]{}`, quote(name))
}

// HeadersTooLarge refuses the headers of a message or request for their bytes.
func HeadersTooLarge(size, limit int) *Error {
	return newError(CodeHeadersTooLarge, "headers of %d bytes: allowed are %d (nats.max_header_bytes)", size, limit)
}

// TooManyHeaders refuses the headers of a message or request for their number.
func TooManyHeaders(count, limit int) *Error {
	return newError(CodeHeadersTooLarge, "%d headers: allowed are %d (nats.max_headers)", count, limit)
}

// MessageTooLarge refuses a message; both sizes are bytes of payload and
// headers together.
func MessageTooLarge(size, limit int64) *Error {
	return newError(CodeMessageTooLarge, "message has %d bytes of payload and headers: allowed are %d", size, limit)
}

// BacklogMessages refuses a message because of max_depth.
func BacklogMessages(queue string, maxDepth int64, retryAfter time.Duration) *Error {
	return newError(CodeBacklogMessages, "queue %s is full: max_depth is %s", quote(queue), count(maxDepth, "message")).retry(retryAfter)
}

// BacklogBytes refuses a message because of max_bytes.
func BacklogBytes(queue string, maxBytes int64, retryAfter time.Duration) *Error {
	return newError(CodeBacklogBytes, "queue %s is full: max_bytes is %d", quote(queue), maxBytes).retry(retryAfter)
}

// BacklogUncommitted refuses a message because too much waits for the disk.
func BacklogUncommitted(retryAfter time.Duration) *Error {
	return newError(CodeBacklogUncommitted, "too many messages are waiting for the disk").retry(retryAfter)
}

// BacklogLog refuses a message because the log of its shard is nearly full.
func BacklogLog(shard int, retryAfter time.Duration) *Error {
	return newError(CodeBacklogLog, "the log of shard %d in JetStream is nearly full", shard).retry(retryAfter)
}

// EnqueueRate refuses a message because of enqueue_rate or, if key is not
// empty, of the key's enqueue_rate_per_key.
func EnqueueRate(queue, key string, rl RateLimit, retryAfter time.Duration) *Error {
	what, setting := "queue "+quote(queue), "enqueue_rate"
	if key != "" {
		what, setting = "fairness key "+quote(key)+" of "+what, "enqueue_rate_per_key"
	}
	e := newError(CodeEnqueueRate, "%s takes no more now: %s is used up, at most %d at once", what, setting, rl.Limit).retry(retryAfter)
	e.RateLimit = &rl
	return e
}

// KeyPending refuses a message because of max_pending_per_key.
func KeyPending(queue, key string, limit int64, retryAfter time.Duration) *Error {
	return newError(CodeKeyPending, "fairness key %s of queue %s is full: max_pending_per_key is %s",
		quote(key), quote(queue), count(limit, "message")).retry(retryAfter)
}

// TokenRefused refuses an ack whose token is malformed or forged. It does not
// say which.
func TokenRefused() *Error {
	return newError(CodeTokenRefused, "the token in the subject is malformed or not valid for this queue")
}

// BadAckPayload refuses the payload of an ack.
func BadAckPayload(detail string) *Error {
	return newError(CodeBadAckPayload, "bad ack payload: %s", detail)
}

// BadAckStatus refuses an ack because of its Status header.
func BadAckStatus(detail string) *Error {
	return newError(CodeBadAckStatus, "bad ack: %s", detail)
}

// BadAckHeader refuses the value of a nack header.
func BadAckHeader(name, value, allowed string) *Error {
	return newError(CodeBadAckHeader, "%s %s: %s", name, quote(value), allowed)
}

// MessageNotFound answers for a message that is not in the queue, or in none if queue
// is empty.
func MessageNotFound(queue, id string) *Error {
	if queue == "" {
		return newError(CodeMessageNotFound, "no queue has a message %s: it is finished, or never was", quote(id))
	}
	return newError(CodeMessageNotFound, "no such message %s in queue %s", quote(id), quote(queue))
}

// MessageInFlight refuses to change a message that does not wait. why says where it is.
func MessageInFlight(queue, id, why string) *Error {
	return newError(CodeMessageInFlight, "message %s of queue %s does not wait: %s", quote(id), quote(queue), why)
}

// JobNotFound answers for a job that there is not, or not any more.
func JobNotFound(id string) *Error {
	return newError(CodeJobNotFound, "there is no job %s; ended ones are kept for seven days", quote(id))
}

// JobCount refuses a job that would be about another number of messages.
func JobCount(asked, found int64) *Error {
	messages := "messages"
	if found == 1 {
		messages = "message"
	}
	return newError(CodeJobCount, "the filter means %d %s, not %d: nothing was begun", found, messages, asked)
}

// BadSchedule refuses a schedule; why says what is wrong with it.
func BadSchedule(why string) *Error { return newError(CodeBadSchedule, "bad schedule: %s", tame(why)) }

// ScheduleNotFound answers for a schedule that a queue does not have.
func ScheduleNotFound(queue, name string) *Error {
	return newError(CodeScheduleNotFound, "queue %s has no schedule %s", quote(queue), quote(name))
}

// JobEnded refuses to change a job that has ended.
func JobEnded(id, state string) *Error {
	return newError(CodeJobEnded, "job %s is %s", quote(id), state)
}

// KeyNotFound answers for a fairness key of which a queue knows nothing.
func KeyNotFound(queue, key string) *Error {
	return newError(CodeKeyNotFound, "queue %s has no messages of key %s, and nothing is set for it", quote(queue), quote(ShowKey(key)))
}

// LeaseLost refuses an ack that is not the message's current lease.
func LeaseLost() *Error {
	return newError(CodeLeaseLost, "the lease is no longer current: the message was acked, nacked or its lease expired")
}

// BadConfigValue refuses a value of the runtime configuration.
func BadConfigValue(key, value, allowed string) *Error {
	return newError(CodeBadConfigValue, "%s is %s: %s", quote(key), quote(value), allowed)
}

// ConfigKeyNotFound answers for a configuration key that is not set.
func ConfigKeyNotFound(key string) *Error {
	return newError(CodeConfigKeyNotFound, "no such configuration key %s", quote(key))
}

// ConfigMismatch refuses a change whose if_value does not match. current is
// nil if the key is not set.
func ConfigMismatch(key string, current *string) *Error {
	if current == nil {
		return newError(CodeConfigMismatch, "%s is not set, so it does not have the value of if_value", quote(key))
	}
	return newError(CodeConfigMismatch, "%s is %s, which is not the value of if_value", quote(key), quote(*current))
}

// HookNotFound answers for a hook that the queue does not have.
func HookNotFound(queue, hook string) *Error {
	if hook == "" {
		return newError(CodeHookNotFound, "queue %s has no hook", quote(queue))
	}
	return newError(CodeHookNotFound, "queue %s has no hook %s", quote(queue), quote(hook))
}

// BadThrottle refuses limits of a throttle key.
func BadThrottle(detail string) *Error { return newError(CodeBadThrottle, "%s", detail) }

// ThrottleNotFound answers for a throttle key that nothing is known about.
func ThrottleNotFound(key string) *Error {
	return newError(CodeThrottleNotFound, "nothing is set for throttle key %s and no message waits at it", quote(key))
}

// CircuitNotFound answers for a circuit that does not exist.
func CircuitNotFound(key string) *Error {
	return newError(CodeCircuitNotFound, "no such circuit %s", quote(key))
}

// PauseNotFound answers for something that is not paused. The queue is that of
// a fairness key, and empty otherwise.
func PauseNotFound(kind, queue, name string) *Error {
	if queue != "" {
		return newError(CodePauseNotFound, "%s %s of queue %s is not paused", kind, quote(name), quote(queue))
	}
	return newError(CodePauseNotFound, "%s %s is not paused", kind, quote(name))
}

// ThrottleMismatch refuses a change whose if does not match in field. current
// is what is set, empty for nothing.
func ThrottleMismatch(key, field, current string) *Error {
	if current == "" {
		return newError(CodeThrottleMismatch, "%s of throttle key %s is not set, which is not what if expects", field, quote(key))
	}
	return newError(CodeThrottleMismatch, "%s of throttle key %s is %s, which is not what if expects", field, quote(key), quote(current))
}

// ReloadFailed refuses a reload; nothing has changed.
func ReloadFailed(err error) *Error {
	return newError(CodeReloadFailed, "nothing was reloaded: %v", err)
}

// GuardPair refuses a further key of a guarded call.
func GuardPair(key, with string) *Error {
	return newError(CodeGuardPair, "key %s may not come with key %s: no [[guard]] table of the configuration allows it", quote(with), quote(key))
}

// PermitRefused refuses a permit that was not given for this key and caller.
func PermitRefused(key string) *Error {
	return newError(CodePermitRefused, "the permit was not given by this fila for key %s and this caller", quote(key))
}

// PermitNotFound answers for a permit that has ended.
func PermitNotFound(key string) *Error {
	return newError(CodePermitNotFound, "the permit for key %s has ended: its time was over, or fila was started again", quote(key))
}

// PermitAway answers for a permit of another fila, which does not answer.
func PermitAway(key string, retryAfter time.Duration) *Error {
	return newError(CodePermitAway, "the fila that gave the permit for key %s does not answer: it has ended, or cannot be reached; the permit ends by itself", quote(key)).retry(retryAfter)
}

// LimitReached refuses one more of something, named in the plural.
func LimitReached(what string, limit int64, retryAfter time.Duration) *Error {
	return newError(CodeLimitReached, "too many %s: at most %d", what, limit).retry(retryAfter)
}

// ReplyTooLarge answers in the place of a reply that NATS does not carry.
func ReplyTooLarge(size int, limit int64) *Error {
	return newError(CodeReplyTooLarge,
		"the reply has more bytes (%d) than max_payload of the NATS server allows (%d); if it was to change something, that is done", size, limit)
}

// GuardReplyTooLarge refuses checks whose answers NATS does not carry in one reply.
func GuardReplyTooLarge(checks, size int, limit int64) *Error {
	return BadField("checks", strconv.Itoa(checks)+" of them",
		fmt.Sprintf("their answers have more bytes (%d) than max_payload of the NATS server allows (%d): ask for fewer at a time", size, limit))
}

// OutcomeUnknown answers for a change whose commit failed.
func OutcomeUnknown() *Error {
	return newError(CodeOutcomeUnknown, "the commit failed and its outcome is not known")
}

// Internal answers when nothing else fits.
func Internal(detail string) *Error { return newError(CodeInternal, "internal error: %s", detail) }

// restartTime is when the next process may be asked.
const restartTime = 5 * time.Second

// Draining refuses everything new during shutdown.
func Draining() *Error {
	return newError(CodeDraining, "fila is shutting down").retry(restartTime)
}

// StoreFailed refuses what would have to be stored.
func StoreFailed() *Error {
	return newError(CodeStoreFailed, "the store has failed").retry(restartTime)
}

// handoverTime is when a queue may be asked that is between two owners.
const handoverTime = time.Second

// NoOwner answers for a queue that no node of the cluster serves at the moment.
func NoOwner(queue string) *Error {
	return newError(CodeNoOwner, "no node of the cluster serves queue %s at the moment", quote(queue)).retry(handoverTime)
}

// NotTaken answers for messages that the shard of a queue does not take from another one.
func NotTaken(queue, why string) *Error {
	return newError(CodeNoOwner, "the shard of queue %s takes no messages: %s", quote(queue), why).retry(handoverTime)
}

// ShardsMissing answers for what may be in shards that no node of the cluster serves at
// the moment.
func ShardsMissing(shards []int) *Error {
	return newError(CodeNoOwner, "no node of the cluster serves the shards %v at the moment, and it may be there", shards).retry(handoverTime)
}

// DiskLow refuses a message because the disk is nearly full.
func DiskLow(free, minFree int64, retryAfter time.Duration) *Error {
	return newError(CodeDiskLow, "the disk of fila is nearly full: %d bytes are free, store.min_free_bytes is %d", free, minFree).retry(retryAfter)
}

// BackupFailed answers when a backup could not be written. The store is not affected.
func BackupFailed(detail string) *Error {
	return newError(CodeBackupFailed, "no backup was made: %s", detail)
}

// NoCluster refuses a cluster verb at a fila that is not in a cluster.
func NoCluster() *Error {
	return newError(CodeNoCluster, "this fila is not in a cluster: its configuration has no [cluster] that is enabled")
}

// NodeNotFound answers for a node that is not a member of the cluster.
func NodeNotFound(node string) *Error {
	return newError(CodeNodeNotFound, "the cluster has no node %s: none of that name was heard in the last ten seconds", quote(node))
}

// NodeSilent answers for a node that does not answer.
func NodeSilent(node string) *Error {
	return newError(CodeNodeSilent, "node %s does not answer", quote(node))
}

// NoSuchShard refuses a shard that the cluster does not have.
func NoSuchShard(shard, shards int) *Error {
	return BadField("shard", fmt.Sprint(shard), fmt.Sprintf("allowed is 0 to %d", shards-1))
}

// StandbyNotReady refuses to move a shard to a node that cannot take it over now.
func StandbyNotReady(shard int, node string) *Error {
	return newError(CodeStandbyNotReady, "node %s cannot take shard %d over now: its copy has to be less than a second behind, and the node neither drained nor stopping", quote(node), shard)
}
