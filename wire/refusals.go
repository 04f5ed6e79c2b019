package wire

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// about makes the constructor of an error about one thing, which the format quotes.
func about(errCode int, format string) func(thing string) *Error {
	return func(thing string) *Error { return newError(errCode, format, Quote(thing)) }
}

// because makes the constructor of an error whose detail is a text or another error.
func because[Detail any](errCode int, format string) func(detail Detail) *Error {
	return func(detail Detail) *Error { return newError(errCode, format, detail) }
}

// always makes the constructor of an error that is always the same.
func always(errCode int, text string, retryAfter time.Duration) func() *Error {
	return func() *Error { return newError(errCode, "%s", text).retry(retryAfter) }
}

const (
	restartTime  = 5 * time.Second // when to retry a request after a restart of fila
	handoverTime = time.Second     // when to retry a request about a queue between two owners
)

// Requests, subjects and names. The errors come from the checks of names, and from
// [QueueSettings.Validate].
var (
	BadJSON          = because[string](CodeBadJSON, "bad JSON: %s")
	FieldRepeated    = about(CodeUnknownField, "field %s is given twice")
	BadSubject       = about(CodeBadSubject, "subject %s is not formed as the protocol says")
	BadQueueName     = because[error](CodeBadQueueName, "%v")
	BadConsumerName  = because[error](CodeBadConsumerName, "%v")
	BadConfigKey     = because[error](CodeBadConfigKey, "%v")
	BadQueueSettings = because[error](CodeBadQueueSettings, "%v")
	ReservedName     = about(CodeReservedName, "queue name %s: names that end in "+DLQSuffix+" are reserved for dead letter queues")
)

// Objects that do not exist.
var (
	QueueNotFound     = about(CodeQueueNotFound, "no such queue %s")
	JobNotFound       = about(CodeJobNotFound, "no such job %s: jobs are kept for seven days after their end")
	ConfigKeyNotFound = about(CodeConfigKeyNotFound, "no such configuration key %s")
	ThrottleNotFound  = about(CodeThrottleNotFound, "no such throttle key %s: it has no limits and no waiting messages")
	BudgetNotFound    = about(CodeBudgetNotFound, "throttle key %s has no budget: throttle-set sets one")
	CircuitNotFound   = about(CodeCircuitNotFound, "no such circuit %s")
	PermitNotFound    = about(CodePermitNotFound, "the permit for key %s has ended: it expired, or fila was restarted")
	NodeNotFound      = about(CodeNodeNotFound, "no such node %s: the cluster heard no node of this name in the last ten seconds")
)

// Headers of an enqueue.
var (
	BadDelay          = about(CodeBadDelay, HeaderDelay+" %s: allowed is a Go duration such as 30s, from 0 to 87600h")
	BadNotBefore      = about(CodeBadNotBefore, HeaderNotBefore+" %s: allowed is an RFC 3339 time such as 2030-01-02T15:04:05Z, at most ten years from now")
	DelayAndNotBefore = always(CodeDelayAndNotBefore, HeaderDelay+" and "+HeaderNotBefore+" are both given: only one is allowed", 0)
	BadTTL            = about(CodeBadTTL, HeaderTTL+" %s: allowed are whole seconds, a Go duration or never, from 1s to 87600h")
	BadBatch          = because[string](CodeBadBatch, "bad batch: %s")
	BadHeaderName     = about(CodeBadHeaderName, `header name %s: allowed is printable ASCII without spaces and "(),/:;<=>?@[\]{}`)
)

// Acks and permits. TokenRefused does not say what is wrong with a token.
var (
	TokenRefused  = always(CodeTokenRefused, "the token in the subject is malformed or not valid for this queue", 0)
	BadAckPayload = because[string](CodeBadAckPayload, "bad ack payload: %s")
	BadAckStatus  = because[string](CodeBadAckStatus, "bad ack: %s")
	LeaseLost     = always(CodeLeaseLost, "the lease has ended: the message was acked or nacked, or the lease expired", 0)
	PermitRefused = about(CodePermitRefused, "the permit was not given by this fila for key %s and this caller")
)

// The process, its store, its configuration and its cluster.
var (
	BadThrottle    = because[string](CodeBadThrottle, "%s")
	ReloadFailed   = because[error](CodeReloadFailed, "nothing was reloaded: %v")
	BackupFailed   = because[string](CodeBackupFailed, "no backup was made: %s")
	OutcomeUnknown = always(CodeOutcomeUnknown, "the commit failed and its outcome is not known", 0)
	Internal       = because[string](CodeInternal, "internal error: %s")
	Draining       = always(CodeDraining, "fila is shutting down", restartTime)
	StoreFailed    = always(CodeStoreFailed, "the store has failed", restartTime)
	NoCluster      = always(CodeNoCluster, "this fila is not in a cluster: its configuration does not enable [cluster]", 0)
	NodeSilent     = about(CodeNodeSilent, "node %s does not answer")
)

// UnknownField refuses a field that the request does not have.
func UnknownField(name string, allowed []string) *Error {
	if len(allowed) == 0 {
		return newError(CodeUnknownField, "unknown field %s: no fields are allowed", Quote(name))
	}

	return newError(CodeUnknownField, "unknown field %s: allowed are %s", Quote(name), strings.Join(allowed, ", "))
}

// BadField refuses a field that is missing or out of range.
func BadField(name, value, allowed string) *Error {
	if value == "" {
		return newError(CodeBadField, "%s is missing: %s", name, allowed)
	}

	return newError(CodeBadField, "%s is %s: %s", name, tame(value), allowed)
}

// BadKey refuses a key in a request.
func BadKey(field, key string) *Error {
	value := ""
	if key != "" {
		value = Quote(key)
	}
	return BadField(field, value, "allowed are 1 to 256 bytes of UTF-8")
}

// BadReplySubject refuses a request because of its reply subject.
func BadReplySubject(reply, allowed string) *Error {
	return newError(CodeBadReplySubject, "reply subject %s: %s", Quote(reply), allowed)
}

// HookLoad refuses a queue whose hook does not load.
func HookLoad(queue, hook, why string) *Error {
	return newError(CodeHookLoad, "queue %s: %s: %s", Quote(queue), hook, why)
}

// NotForDLQ refuses an operation on a dead letter queue.
func NotForDLQ(operation, queue string) *Error {
	return newError(CodeNotForDLQ, "%s is not possible on the dead letter queue %s", operation, Quote(queue))
}

// OnlyForDLQ refuses an operation on a queue that is not a dead letter queue.
func OnlyForDLQ(operation, queue string) *Error {
	return newError(CodeOnlyForDLQ, "%s needs a dead letter queue, a name that ends in %s; got %s",
		operation, DLQSuffix, Quote(queue))
}

// QueueExists refuses to create a queue that exists with other settings; differences
// come from [QueueSettings.Differences].
func QueueExists(queue string, differences []string) *Error {
	return newError(CodeQueueExists, "queue %s exists with other settings: %s", Quote(queue), strings.Join(differences, "; "))
}

// QueueNotEmpty refuses to delete a queue that has messages.
func QueueNotEmpty(queue string, messages int64) *Error {
	return newError(CodeQueueNotEmpty, "queue %s has %s, dead letters included, and force is not set", Quote(queue), Plural(messages, "message"))
}

// Plural prints a number of things whose plural ends in s.
func Plural(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return Grouped(n) + " " + thing + "s"
}

// HeaderReserved refuses a header that consumers would not get; allowed names the reserved
// headers that are accepted.
func HeaderReserved(name, allowed string) *Error {
	return newError(CodeHeaderReserved, "header %s: names that begin with Fila- or Nats-, and %s, are reserved; %s", Quote(name), HeaderStatus, allowed)
}

// BadMsgID refuses the value of Nats-Msg-Id.
func BadMsgID(id string) *Error {
	if id == "" || len(id) > MaxDedupeID {
		return newError(CodeBadMsgID, "%s has %d bytes: allowed are 1 to %d", HeaderMsgID, len(id), MaxDedupeID)
	}

	return newError(CodeBadMsgID, "%s %s: allowed is UTF-8 without control characters", HeaderMsgID, Quote(id))
}

// BadMessageKey refuses a message with an invalid key from a header or on_enqueue; which is
// the kind of key.
func BadMessageKey(which, key string) *Error {
	return newError(CodeBadMessageKey, "%s key %s: %s", which, Quote(key), AllowedKey)
}

// BadHeaderValue refuses the value of a header.
func BadHeaderValue(name, value, allowed string) *Error {
	return newError(CodeBadHeaderValue, "header %s %s: %s", name, Quote(value), allowed)
}

// HeaderRepeated refuses a header with different values.
func HeaderRepeated(name string) *Error {
	return newError(CodeHeaderRepeated, "header %s is given several times with different values", name)
}

// HeadersTooLarge refuses the headers of a message or request for their bytes.
func HeadersTooLarge(size, limit int) *Error {
	return newError(CodeHeadersTooLarge, "headers of %d bytes: allowed are %d (nats.max_header_bytes)", size, limit)
}

// TooManyHeaders refuses the headers of a message or request for their number.
func TooManyHeaders(count, limit int) *Error {
	return newError(CodeHeadersTooLarge, "%d headers: allowed are %d (nats.max_headers)", count, limit)
}

// MessageTooLarge refuses a message; the sizes are of payload and headers together.
func MessageTooLarge(size, limit int64) *Error {
	return newError(CodeMessageTooLarge, "message has %d bytes of payload and headers: allowed are %d", size, limit)
}

// BacklogMessages refuses a message because of max_depth.
func BacklogMessages(queue string, maxDepth int64, retryAfter time.Duration) *Error {
	return newError(CodeBacklogMessages, "queue %s is full: max_depth is %s", Quote(queue), Plural(maxDepth, "message")).retry(retryAfter)
}

// BacklogBytes refuses a message because of max_bytes.
func BacklogBytes(queue string, maxBytes int64, retryAfter time.Duration) *Error {
	return newError(CodeBacklogBytes, "queue %s is full: max_bytes is %d", Quote(queue), maxBytes).retry(retryAfter)
}

// BacklogUncommitted refuses a message because too many messages wait for the disk.
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
	what, setting := "queue "+Quote(queue), "enqueue_rate"
	if key != "" {
		what, setting = "fairness key "+Quote(key)+" of "+what, "enqueue_rate_per_key"
	}

	e := newError(CodeEnqueueRate, "%s accepts no messages now: %s is used up (%s)", what, setting, BurstText(float64(rl.Limit))).retry(retryAfter)
	e.RateLimit = &rl
	return e
}

// BudgetEmpty refuses a message that costs more than is left of the budget of a throttle key until a time
// (Unix ns).
func BudgetEmpty(throttleKey string, until int64, retryAfter time.Duration) *Error {
	return newError(CodeBudgetEmpty, "the budget of throttle key %s is empty until %s: the message costs more than is left",
		Quote(ShowKey(throttleKey)), Timestamp(until)).retry(retryAfter)
}

// PredecessorRefused refuses a message of a batch whose predecessor in its fairness key was
// refused; without a key, since the key of that message is not known.
func PredecessorRefused(index int, key string, retryAfter time.Duration) *Error {
	of := "of the same fairness key"
	if key == "" {
		of = "whose fairness key is not known"
	}
	return newError(CodePredecessorRefused, "message %d of the batch, %s, was refused", index, of).retry(retryAfter)
}

// InBatch returns e, which refuses a message, as the refusal of its whole batch.
func (e *Error) InBatch(index int) *Error {
	whole := *e
	whole.Description = HeaderValue(fmt.Sprintf("message %d of the batch, which is atomic: %s", index, e.Description))
	return &whole
}

// KeyPending refuses a message because of max_pending_per_key.
func KeyPending(queue, key string, limit int64, retryAfter time.Duration) *Error {
	return newError(CodeKeyPending, "fairness key %s of queue %s is full: max_pending_per_key is %s",
		Quote(key), Quote(queue), Plural(limit, "message")).retry(retryAfter)
}

// BadAckHeader refuses the value of a nack header.
func BadAckHeader(name, value, allowed string) *Error {
	return newError(CodeBadAckHeader, "%s %s: %s", name, Quote(value), allowed)
}

// MessageNotFound answers for a message that is not in a queue, or in no queue if queue is
// empty.
func MessageNotFound(queue, id string) *Error {
	if queue == "" {
		return newError(CodeMessageNotFound, "no queue has message %s: it is finished, or was never enqueued", Quote(id))
	}

	return newError(CodeMessageNotFound, "no such message %s in queue %s", Quote(id), Quote(queue))
}

// MessageInFlight refuses to change a message in flight.
func MessageInFlight(queue, id, why string) *Error {
	return newError(CodeMessageInFlight, "message %s of queue %s cannot be changed: %s", Quote(id), Quote(queue), why)
}

// JobCount refuses a job whose if_count is not the number of matching messages.
func JobCount(asked, found int64) *Error {
	return newError(CodeJobCount, "the filter matches %s, not %d: no job was created", Plural(found, "message"), asked)
}

// BadSchedule refuses a schedule.
func BadSchedule(why string) *Error { return newError(CodeBadSchedule, "bad schedule: %s", tame(why)) }

// ScheduleNotFound answers for a schedule that a queue does not have.
func ScheduleNotFound(queue, name string) *Error {
	return newError(CodeScheduleNotFound, "queue %s has no schedule %s", Quote(queue), Quote(name))
}

// JobEnded refuses to change a job that has ended.
func JobEnded(id, state string) *Error {
	return newError(CodeJobEnded, "job %s is %s", Quote(id), state)
}

// KeyNotFound answers for a fairness key without messages and settings.
func KeyNotFound(queue, key string) *Error {
	return newError(CodeKeyNotFound, "queue %s has no messages of key %s, and no weight or pause of the key is set", Quote(queue), Quote(ShowKey(key)))
}

// BadConfigValue refuses a value of the runtime configuration.
func BadConfigValue(key, value, allowed string) *Error {
	return newError(CodeBadConfigValue, "%s is %s: %s", Quote(key), Quote(value), allowed)
}

// Owned refuses to change an object of another owner. now has its present values.
func Owned(object, owner, now string) *Error {
	return newError(CodeOwned, "%s belongs to %s (%s): allowed is a change by this owner (Fila-Owner), with Fila-Force, or by a request that expects the present value", Quote(object), Quote(owner), now)
}

// ConfigMismatch refuses a change whose if_value does not match. current is nil if the key
// is not set.
func ConfigMismatch(key string, current *string) *Error {
	if current == nil {
		return newError(CodeConfigMismatch, "%s is not set, so it does not have the value of if_value", Quote(key))
	}

	return newError(CodeConfigMismatch, "%s is %s, which is not the value of if_value", Quote(key), Quote(*current))
}

// NoHookBefore refuses to roll back a hook of which no earlier version is known.
func NoHookBefore(queue, hook string) *Error {
	return newError(CodeHookNotFound, "queue %s has no previous version of %s", Quote(queue), hook)
}

// HookNotFound answers for a hook that the queue does not have.
func HookNotFound(queue, hook string) *Error {
	if hook == "" {
		return newError(CodeHookNotFound, "queue %s has no hook", Quote(queue))
	}

	return newError(CodeHookNotFound, "queue %s has no hook %s", Quote(queue), Quote(hook))
}

// PauseNotFound refuses to resume something that is not paused. Only a fairness key has a
// queue.
func PauseNotFound(kind, queue, name string) *Error {
	if queue != "" {
		return newError(CodePauseNotFound, "%s %s of queue %s is not paused", kind, Quote(name), Quote(queue))
	}

	return newError(CodePauseNotFound, "%s %s is not paused", kind, Quote(name))
}

// ThrottleMismatch refuses a change whose if does not match in field. current is the limit
// that is set, "" if there is none.
func ThrottleMismatch(key, field, current string) *Error {
	if current == "" {
		return newError(CodeThrottleMismatch, "%s of throttle key %s is not set, which is not what if expects", field, Quote(key))
	}

	return newError(CodeThrottleMismatch, "%s of throttle key %s is %s, which is not what if expects", field, Quote(key), Quote(current))
}

// GuardPair refuses a further key of a guarded call.
func GuardPair(key, with string) *Error {
	return newError(CodeGuardPair, "key %s is not allowed with first key %s: no [[guard]] table of the configuration allows it", Quote(with), Quote(key))
}

// PermitAway answers for a permit of a fila that does not answer.
func PermitAway(key string, retryAfter time.Duration) *Error {
	return newError(CodePermitAway, "the fila that gave the permit for key %s does not answer: it has ended or is unreachable; the permit ends by itself", Quote(key)).retry(retryAfter)
}

// LimitReached refuses another one of something; what is a plural.
func LimitReached(what string, limit int64, retryAfter time.Duration) *Error {
	return newError(CodeLimitReached, "too many %s: at most %d", what, limit).retry(retryAfter)
}

// ReplyTooLarge replaces a reply that is too large for NATS.
func ReplyTooLarge(size int, limit int64) *Error {
	return newError(CodeReplyTooLarge,
		"the reply has more bytes (%d) than max_payload of the NATS server allows (%d); a change that the request asked for is done", size, limit)
}

// GuardReplyTooLarge refuses checks whose answers are too large for one reply.
func GuardReplyTooLarge(checks, size int, limit int64) *Error {
	return BadField("checks", strconv.Itoa(checks)+" of them",
		fmt.Sprintf("their answers have more bytes (%d) than max_payload of the NATS server allows (%d): ask for fewer at a time", size, limit))
}

// NoOwner answers for a queue that no node of the cluster serves at the moment.
func NoOwner(queue string) *Error {
	return newError(CodeNoOwner, "no node of the cluster serves queue %s at the moment", Quote(queue)).retry(handoverTime)
}

// SharedAway refuses a change of the budget of a key that filas share.
func SharedAway(key string, why error) *Error {
	return newError(CodeSharedAway, "the budget of throttle key %s is shared, and was not changed as far as this fila knows: %s", Quote(key), why).retry(handoverTime)
}

// NotTaken refuses a transfer from another shard.
func NotTaken(queue, why string) *Error {
	return newError(CodeNoOwner, "the shard of queue %s takes no messages: %s", Quote(queue), why).retry(handoverTime)
}

// ShardsMissing answers for something that may be in shards that no node serves.
func ShardsMissing(shards []int) *Error {
	return newError(CodeNoOwner, "no node of the cluster serves the shards %v at the moment, which may have it", shards).retry(handoverTime)
}

// DiskLow refuses a message because the disk is nearly full.
func DiskLow(free, minFree int64, retryAfter time.Duration) *Error {
	return newError(CodeDiskLow, "the disk of fila is nearly full: %d bytes are free, store.min_free_bytes is %d", free, minFree).retry(retryAfter)
}

// NoSuchShard refuses a shard that the cluster does not have.
func NoSuchShard(shard, shards int) *Error {
	return BadField("shard", fmt.Sprint(shard), fmt.Sprintf("allowed is 0 to %d", shards-1))
}

// LogLost answers for a queue whose log lacks confirmed messages.
func LogLost(queue string) *Error {
	return newError(CodeLogLost, "the log of the shard of queue %s lacks confirmed messages, and no node serves it until it is repaired", Quote(queue)).retry(handoverTime)
}

// NotRepaired refuses to repair the log of a shard, or to accept its loss.
func NotRepaired(shard int, why string) *Error {
	return newError(CodeNotRepaired, "shard %d: %s", shard, why)
}

// StandbyNotReady refuses to move a shard to a node that cannot take it over now.
func StandbyNotReady(shard int, node string) *Error {
	return newError(CodeStandbyNotReady, "node %s cannot take over shard %d now: its copy is a second or more behind, or the node is drained or stopping", Quote(node), shard)
}
