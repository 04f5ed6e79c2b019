package api

import (
	"encoding/json"
	"slices"

	"github.com/filaq/fila/wire"
)

// Tail says what the subject of an admin verb ends in.
type Tail uint8

// The tails.
const (
	TailNone        Tail = iota
	TailNewQueue         // the name of a queue that need not exist
	TailQueue            // a queue or a dead letter queue
	TailMainQueue        // a queue that is no dead letter queue
	TailDeadLetters      // a dead letter queue, by its own name or the name of its queue
	TailConfigKey        // a key of the runtime configuration
	TailGateKey          // a throttle key or circuit key, see [KeyTail]
	TailJob              // the op and the queue of a job, see [JobTail]; the subject may also have no tail
)

// Verb describes one verb of the admin protocol: the name in its subject, and how a request
// is decoded and checked. Reply is the type of the reply.
type Verb[Req, Reply any] struct {
	Name string
	Tail Tail

	defaults Req                                   // the request that an empty body makes
	required string                                // a field that the body must have; "": none
	key      func(r *Req) *string                  // the key that the tail names, see [KeyTail]; nil: it has no field for it
	prepare  func(r *Req, tail string)             // sets what the tail names, before decoding; may be nil
	bind     func(r *Req, tail string) *wire.Error // puts the tail into the request; nil: it has no field for it
	check    func(r *Req) *wire.Error              // nil: whatever decodes is a request
}

// AnyVerb is a [Verb] of any request and reply.
type AnyVerb interface {
	String() string // the name
	Kind() Tail
	Shape() (request, reply any)
}

// String returns the name of the verb.
func (v *Verb[Req, Reply]) String() string { return v.Name }

// Kind returns the verb's tail.
func (v *Verb[Req, Reply]) Kind() Tail { return v.Tail }

// Shape returns a request with the defaults of the verb, and a zero reply: schemas describe their
// types.
func (v *Verb[Req, Reply]) Shape() (request, reply any) {
	r := v.defaults
	if v.prepare != nil {
		v.prepare(&r, wire.JobTail("op", "queue"))
	}
	return r, *new(Reply)
}

// Parse decodes and checks the body of a request with the tail of its subject. A refused
// request is the zero value.
func (v *Verb[Req, Reply]) Parse(tail string, body []byte) (Req, *wire.Error) {
	r := v.defaults
	if raw, ok := any(&r).(*json.RawMessage); ok { // the settings of a queue decode themselves
		*raw = body
		return r, nil
	}
	if v.prepare != nil {
		v.prepare(&r, tail)
	}
	seen, err := wire.DecodeNamed(body, &r)
	switch {
	case err != nil:
	case v.required != "" && !slices.Contains(seen, v.required):
		err = wire.BadField(v.required, "", "a string is expected")
	default:
		if v.key != nil {
			err = resolveKey(tail, v.key(&r))
		}
		if v.bind != nil {
			err = v.bind(&r, tail)
		}
		if err == nil && v.check != nil {
			err = v.check(&r)
		}
	}
	if err != nil {
		return *new(Req), err
	}
	return r, nil
}

// NameKey makes key the key of a request, and returns the tail of its subject.
func (v *Verb[Req, Reply]) NameKey(r *Req, key string) (tail string) {
	if v.key == nil {
		return key
	}
	tail, *v.key(r) = KeyTail(key)
	return tail
}

// verbs are all verbs, in the order of their declarations.
var verbs []AnyVerb

// Verbs returns all verbs of the admin protocol.
func Verbs() []AnyVerb { return slices.Clone(verbs) }

// verb registers a verb.
func verb[Req, Reply any](v Verb[Req, Reply]) *Verb[Req, Reply] {
	verbs = append(verbs, &v)
	return &v
}

// inBounds is the check of a request that only has bounds.
func inBounds[R wire.Bounded](r R) *wire.Error { return wire.CheckBounds(r) }

// Empty is the request of a verb that takes no fields.
type Empty struct{}

// Queues.
var (
	// The body of queue-create patches the default settings, and the body of queue-update the
	// settings in force, see [QueueSettings.Patch].
	VerbQueueCreate  = verb(Verb[json.RawMessage, QueueReply]{Name: "queue-create", Tail: TailNewQueue})
	VerbQueueUpdate  = verb(Verb[json.RawMessage, QueueReply]{Name: "queue-update", Tail: TailMainQueue})
	VerbQueueDelete  = verb(Verb[QueueDeleteRequest, QueueDeleteReply]{Name: "queue-delete", Tail: TailMainQueue})
	VerbQueuePurge   = verb(Verb[QueuePurgeRequest, QueuePurgeReply]{Name: "queue-purge", Tail: TailQueue, check: (*QueuePurgeRequest).check})
	VerbQueueInspect = verb(Verb[QueueInspectRequest, QueueInfo]{
		Name: "queue-inspect", Tail: TailQueue, defaults: QueueInspectRequest{Flows: DefaultInspectFlows}, check: inBounds[*QueueInspectRequest],
	})
	VerbQueueWanted = verb(Verb[QueueWantedRequest, QueueWanted]{
		Name: "queue-wanted", Tail: TailQueue, defaults: QueueWantedRequest{HorizonMs: wire.DefaultHorizon.Milliseconds()}, check: (*QueueWantedRequest).check,
	})
	VerbQueueList = verb(Verb[QueueListRequest, QueueList]{
		Name: "queue-list", defaults: QueueListRequest{ListRequest: firstPage}, check: inBounds[*QueueListRequest],
	})
	VerbNoisy = verb(Verb[NoisyRequest, NoisyReply]{
		Name: "noisy", Tail: TailQueue, defaults: NoisyRequest{Limit: DefaultNoisyLimit}, check: inBounds[*NoisyRequest],
	})
	VerbLanes = verb(Verb[LanesRequest, LanesReply]{
		Name: "lanes", Tail: TailQueue, defaults: LanesRequest{Limit: DefaultLanes, Next: DefaultLaneForecast}, check: inBounds[*LanesRequest],
	})
	VerbHookShow  = verb(Verb[HookShowRequest, HookReply]{Name: "hook-show", Tail: TailMainQueue, check: inBounds[*HookShowRequest]})
	VerbHookSet   = verb(Verb[HookSetRequest, HookReply]{Name: "hook-set", Tail: TailMainQueue, check: (*HookSetRequest).check})
	VerbHookReset = verb(Verb[HookResetRequest, HookResetReply]{Name: "hook-reset", Tail: TailMainQueue, check: inBounds[*HookResetRequest]})
)

// Messages and dead letters.
var (
	VerbPeek = verb(Verb[PeekRequest, PeekReply]{
		Name: "peek", Tail: TailQueue, defaults: PeekRequest{Limit: DefaultPeekLimit, PayloadBytes: DefaultPeekPayload}, check: (*PeekRequest).check,
	})
	VerbMessageShow = verb(Verb[MessageShowRequest, MessageInfo]{
		Name: "message-show", defaults: MessageShowRequest{PayloadBytes: DefaultPeekPayload}, check: (*MessageShowRequest).check,
	})
	VerbMessageDelete = verb(Verb[MessageRequest, MessageReply]{Name: "message-delete", check: (*MessageRequest).check})
	VerbMessageRunNow = verb(Verb[MessageRequest, MessageReply]{Name: "message-run-now", check: (*MessageRequest).check})
	VerbRedrive       = verb(Verb[RedriveRequest, RedriveReply]{Name: "redrive", Tail: TailDeadLetters, check: inBounds[*RedriveRequest]})
	VerbDeadGroups    = verb(Verb[DeadGroupsRequest, DeadGroups]{
		Name: "dead-groups", Tail: TailDeadLetters, defaults: DeadGroupsRequest{Limit: DefaultDeadGroups}, check: inBounds[*DeadGroupsRequest],
	})
	VerbDeadRates = verb(Verb[DeadRatesRequest, DeadRates]{
		Name: "dead-rates", defaults: DeadRatesRequest{Minutes: MaxDeadRateMinutes, Limit: DefaultDeadRates}, check: (*DeadRatesRequest).check,
	})
	// VerbExplain replies with an [ExplainMessage], an [ExplainKey] or an [ExplainQueue],
	// as its request says.
	VerbExplain = verb(Verb[ExplainRequest, any]{Name: "explain", check: (*ExplainRequest).check})
)

// Jobs and schedules.
var (
	VerbJobCreate = verb(Verb[JobCreateRequest, JobInfo]{
		Name: "job-create", Tail: TailJob, defaults: JobCreateRequest{Order: OrderArrival},
		prepare: (*JobCreateRequest).prepare, bind: (*JobCreateRequest).bind, check: (*JobCreateRequest).check,
	})
	VerbJobList   = verb(Verb[JobListRequest, JobList]{Name: "job-list", defaults: JobListRequest{Limit: DefaultListLimit}, check: (*JobListRequest).check})
	VerbJobShow   = verb(Verb[JobRequest, JobInfo]{Name: "job-show", check: (*JobRequest).check})
	VerbJobPause  = verb(Verb[JobRequest, JobInfo]{Name: "job-pause", check: (*JobRequest).check})
	VerbJobResume = verb(Verb[JobRequest, JobInfo]{Name: "job-resume", check: (*JobRequest).check})
	VerbJobCancel = verb(Verb[JobRequest, JobInfo]{Name: "job-cancel", check: (*JobRequest).check})

	// The queue checks a new schedule, see [ScheduleAddRequest.Check].
	VerbScheduleAdd    = verb(Verb[ScheduleAddRequest, ScheduleInfo]{Name: "schedule-add", Tail: TailMainQueue, defaults: ScheduleAddRequest{Missed: wire.MissedOne}})
	VerbScheduleShow   = verb(Verb[ScheduleRequest, ScheduleInfo]{Name: "schedule-show", Tail: TailMainQueue})
	VerbScheduleDelete = verb(Verb[ScheduleRequest, ScheduleInfo]{Name: "schedule-delete", Tail: TailMainQueue})
	VerbSchedulePause  = verb(Verb[ScheduleRequest, ScheduleInfo]{Name: "schedule-pause", Tail: TailMainQueue})
	VerbScheduleResume = verb(Verb[ScheduleRequest, ScheduleInfo]{Name: "schedule-resume", Tail: TailMainQueue})
	VerbScheduleList   = verb(Verb[ScheduleListRequest, ScheduleList]{
		Name: "schedule-list", defaults: ScheduleListRequest{Limit: DefaultListLimit}, check: (*ScheduleListRequest).check,
	})
)

// Runtime configuration, throttles, circuits and pauses.
var (
	VerbConfigSet = verb(Verb[ConfigSetRequest, ConfigSetReply]{
		Name: "config-set", Tail: TailConfigKey, required: "value", bind: (*ConfigSetRequest).bind,
	})
	VerbConfigEdit   = verb(Verb[ConfigEditRequest, ConfigEditReply]{Name: "config-edit", check: (*ConfigEditRequest).check})
	VerbConfigGet    = verb(Verb[Empty, ConfigEntry]{Name: "config-get", Tail: TailConfigKey})
	VerbConfigDelete = verb(Verb[Empty, ConfigEntry]{Name: "config-delete", Tail: TailConfigKey})
	VerbConfigList   = verb(Verb[KeyListRequest, ConfigList]{Name: "config-list", defaults: firstKeys, check: (*KeyListRequest).check})
	VerbConfigLog    = verb(Verb[KeyListRequest, ConfigLog]{Name: "config-log", defaults: firstKeys, check: (*KeyListRequest).check})

	VerbAnnotate = verb(Verb[AnnotateRequest, Mark]{Name: "annotate", check: (*AnnotateRequest).check})
	VerbMarks    = verb(Verb[MarksRequest, Marks]{
		Name: "marks", defaults: MarksRequest{Limit: DefaultMarks, WindowMs: MaxMarksWindowMs}, check: (*MarksRequest).check,
	})

	VerbThrottleSet = verb(Verb[ThrottleSetRequest, ThrottleInfo]{
		Name: "throttle-set", Tail: TailGateKey, key: (*ThrottleSetRequest).key, check: (*ThrottleSetRequest).check,
	})
	VerbThrottleClear = verb(Verb[GateKeyRequest, ThrottleInfo]{Name: "throttle-clear", Tail: TailGateKey, key: (*GateKeyRequest).key})
	VerbThrottleShow  = verb(Verb[GateKeyRequest, ThrottleInfo]{Name: "throttle-show", Tail: TailGateKey, key: (*GateKeyRequest).key})
	VerbThrottleList  = verb(Verb[KeyListRequest, ThrottleList]{Name: "throttle-list", defaults: firstKeys, check: (*KeyListRequest).check})

	VerbBudgetList  = verb(Verb[KeyListRequest, BudgetList]{Name: "budget-list", defaults: firstKeys, check: (*KeyListRequest).check})
	VerbBudgetShow  = verb(Verb[GateKeyRequest, BudgetInfo]{Name: "budget-show", Tail: TailGateKey, key: (*GateKeyRequest).key})
	VerbBudgetTopUp = verb(Verb[BudgetTopUpRequest, BudgetInfo]{
		Name: "budget-top-up", Tail: TailGateKey, required: "amount", key: (*BudgetTopUpRequest).key, check: (*BudgetTopUpRequest).check,
	})
	VerbBudgetReset = verb(Verb[GateKeyRequest, BudgetInfo]{Name: "budget-reset", Tail: TailGateKey, key: (*GateKeyRequest).key})

	VerbCircuitShow = verb(Verb[GateKeyRequest, CircuitInfo]{Name: "circuit-show", Tail: TailGateKey, key: (*GateKeyRequest).key})
	VerbCircuitOpen = verb(Verb[CircuitOpenRequest, CircuitInfo]{
		Name: "circuit-open", Tail: TailGateKey, key: (*CircuitOpenRequest).key, check: inBounds[*CircuitOpenRequest],
	})
	VerbCircuitClose = verb(Verb[GateKeyRequest, CircuitInfo]{Name: "circuit-close", Tail: TailGateKey, key: (*GateKeyRequest).key})
	VerbCircuitReset = verb(Verb[GateKeyRequest, CircuitInfo]{Name: "circuit-reset", Tail: TailGateKey, key: (*GateKeyRequest).key})
	VerbCircuitList  = verb(Verb[CircuitListRequest, CircuitList]{
		Name: "circuit-list", defaults: CircuitListRequest{KeyListRequest: firstKeys}, check: (*CircuitListRequest).check,
	})

	VerbPause     = verb(Verb[PauseRequest, PauseInfo]{Name: "pause", check: (*PauseRequest).check})
	VerbResume    = verb(Verb[PauseRequest, PauseInfo]{Name: "resume", check: (*PauseRequest).checkResume})
	VerbPauseList = verb(Verb[ListRequest, PauseList]{Name: "pause-list", defaults: firstPage, check: inBounds[*ListRequest]})
)

// The guard, the process and the cluster.
var (
	VerbGuardPermits = verb(Verb[GuardPermitsRequest, GuardPermitList]{
		Name: "guard-permits", defaults: GuardPermitsRequest{Limit: DefaultListLimit}, check: (*GuardPermitsRequest).check,
	})
	VerbGuardEnd = verb(Verb[GuardEndRequest, GuardEndReply]{Name: "guard-end", check: (*GuardEndRequest).check})

	VerbAttention = verb(Verb[AttentionRequest, Attention]{
		Name: "attention", defaults: AttentionRequest{Limit: DefaultFindings}, check: (*AttentionRequest).check,
	})

	VerbReload = verb(Verb[ReloadRequest, ReloadReply]{Name: "reload"})
	// VerbStoreBackup writes into the directory backups of the data directory. A request
	// cannot name a path.
	VerbStoreBackup = verb(Verb[Empty, StoreBackupReply]{Name: "store-backup"})

	VerbClusterStatus = verb(Verb[Empty, ClusterStatus]{Name: "cluster-status"})
	VerbClusterDrain  = verb(Verb[ClusterDrainRequest, ClusterDrainReply]{Name: "cluster-drain", check: (*ClusterDrainRequest).check})
	VerbClusterMove   = verb(Verb[ClusterMoveRequest, ClusterMoveReply]{Name: "cluster-move", check: (*ClusterMoveRequest).check})
	VerbClusterVerify = verb(Verb[ClusterVerifyRequest, ClusterVerifyReply]{Name: "cluster-verify", check: (*ClusterVerifyRequest).check})
	VerbClusterRepair = verb(Verb[ClusterLossRequest, ClusterLoss]{Name: "cluster-repair", check: (*ClusterLossRequest).check})
	VerbClusterAccept = verb(Verb[ClusterLossRequest, ClusterLoss]{Name: "cluster-accept", check: (*ClusterLossRequest).check})
)

// Wildcards returns the subscriptions for one verb: with a wildcard as its tail, without a
// tail, or both.
func Wildcards(s wire.Subjects, verb AnyVerb) []string {
	bare, tailed := s.Admin(verb.String(), ""), s.Admin(verb.String(), ">")
	switch verb.Kind() {
	case TailNone:
		return []string{bare}
	case TailJob:
		return []string{tailed, bare}
	default:
		return []string{tailed}
	}
}
