package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/wire"
)

// Tail is what the subject of a verb ends in.
type Tail uint8

// The tails.
const (
	NoTail      Tail = iota
	NewQueue         // the name of a queue that need not exist
	AnyQueue         // a queue or a dead letter queue
	Ordinary         // a queue that is no dead letter queue
	DeadLetters      // a dead letter queue, by its name or by that of its queue
	Key              // of the runtime configuration, or of a gate, whose key the body may have instead
	OpAndQueue       // of a job, which the body may have instead
)

// Verb is a verb of the admin protocol.
type Verb struct {
	Name string
	Tail Tail
	do   func(tail string, body []byte) (any, *wire.Error)
	most func() int64 // bytes of a reply
	a    *Admin
	one  *sync.Mutex // one request of a verb at a time, see [control.Control.As]

	// withTail puts what the subject of a request says into its body, after checking the
	// body against it; nil: do gets the tail. Nodes of a cluster get only the body.
	withTail func(tail string, body []byte) ([]byte, *wire.Error)

	// In a cluster, about returns the queue at whose owner a request is carried out, ""
	// for none, and gather has all nodes carry out others. nil: it is carried out here.
	about  func(tail string, body []byte) string
	gather func(Verb, request) ([]byte, *wire.Error)
}

// Verbs is the table of all verbs.
func (a *Admin) Verbs() []Verb { return a.table }

func (a *Admin) newTable() []Verb {
	verbs := a.verbs()
	for i := range verbs {
		verbs[i].most, verbs[i].a, verbs[i].one = a.maxReply, a, new(sync.Mutex)
	}
	return verbs
}

func (a *Admin) verbs() []Verb {
	c := a.control
	return []Verb{
		{Name: wire.VerbQueueCreate, Tail: NewQueue, do: a.queueCreate, about: byTail},
		queueVerb(a, wire.VerbQueueUpdate, Ordinary, undecoded, a.queueUpdate),
		queueVerb(a, wire.VerbQueueDelete, Ordinary, wire.ParseQueueDelete, a.queueDelete),
		queueVerb(a, wire.VerbQueuePurge, AnyQueue, wire.ParseQueuePurge, a.queuePurge),
		queueVerb(a, wire.VerbQueueInspect, AnyQueue, wire.ParseQueueInspect, a.queueInspect),
		queueVerb(a, wire.VerbNoisy, AnyQueue, wire.ParseNoisy, a.noisy),
		bareVerb(wire.VerbQueueList, wire.ParseQueueList, sure(a.queueList)).at(nil, listQueues),
		queueVerb(a, wire.VerbRedrive, DeadLetters, wire.ParseRedrive, a.redrive),
		queueVerb(a, wire.VerbHookReset, Ordinary, wire.ParseHookReset, a.hookReset),
		queueVerb(a, wire.VerbPeek, AnyQueue, wire.ParsePeek, a.peek),
		queueVerb(a, wire.VerbDeadGroups, DeadLetters, wire.ParseDeadGroups, a.deadGroups),
		bareVerb(wire.VerbExplain, wire.ParseExplain, a.explain).at(byBody, find(unexplained)),
		bareVerb(wire.VerbMessageShow, wire.ParseMessageShow, a.messageShow).at(byBody, find(noMessage)),
		bareVerb(wire.VerbMessageDelete, wire.ParseMessage, a.messageDelete).at(byBody, find(noMessage)),
		bareVerb(wire.VerbMessageRunNow, wire.ParseMessage, a.messageRunNow).at(byBody, find(noMessage)),

		a.jobCreateVerb(),
		bareVerb(wire.VerbJobList, wire.ParseJobList, a.jobList).at(byBody, listJobs),
		bareVerb(wire.VerbJobShow, wire.ParseJob, a.jobShow).at(nil, find(noJob)),
		bareVerb(wire.VerbJobPause, wire.ParseJob, a.jobPause).at(nil, find(noJob)),
		bareVerb(wire.VerbJobResume, wire.ParseJob, a.jobResume).at(nil, find(noJob)),
		bareVerb(wire.VerbJobCancel, wire.ParseJob, a.jobCancel).at(nil, find(noJob)),

		queueVerb(a, wire.VerbScheduleAdd, Ordinary, wire.ParseScheduleAdd, (*shard.Queue).AddSchedule),
		queueVerb(a, wire.VerbScheduleShow, Ordinary, wire.ParseSchedule, bySchedule((*shard.Queue).Schedule)),
		queueVerb(a, wire.VerbScheduleDelete, Ordinary, wire.ParseSchedule, bySchedule((*shard.Queue).DeleteSchedule)),
		queueVerb(a, wire.VerbSchedulePause, Ordinary, wire.ParseSchedule, bySchedule((*shard.Queue).PauseSchedule)),
		queueVerb(a, wire.VerbScheduleResume, Ordinary, wire.ParseSchedule, bySchedule((*shard.Queue).ResumeSchedule)),
		bareVerb(wire.VerbScheduleList, wire.ParseScheduleList, a.scheduleList).at(byBody, listSchedules),

		{Name: wire.VerbConfigSet, Tail: Key, do: a.configSet},
		{Name: wire.VerbConfigGet, Tail: Key, do: configVerb(c.ConfigGet)},
		{Name: wire.VerbConfigDelete, Tail: Key, do: configVerb(c.ConfigDelete)},
		bareVerb(wire.VerbConfigList, wire.ParseKeyList, sure(c.ConfigList)),
		bareVerb(wire.VerbConfigLog, wire.ParseKeyList, c.ConfigLog),

		gateVerb(wire.VerbThrottleSet, wire.ParseThrottleSet, c.ThrottleSet),
		gateVerb(wire.VerbThrottleClear, wire.ParseGateKey, c.ThrottleClear),
		gateVerb(wire.VerbThrottleShow, wire.ParseGateKey, a.throttleShow).at(nil, sum(wire.CodeThrottleNotFound, throttleWaiting)),
		bareVerb(wire.VerbThrottleList, wire.ParseKeyList, sure(c.ThrottleList)),
		gateVerb(wire.VerbCircuitShow, wire.ParseGateKey, a.circuitShow).at(nil, sum(wire.CodeCircuitNotFound, circuitWaiting)),
		gateVerb(wire.VerbCircuitOpen, wire.ParseCircuitOpen, c.CircuitOpen),
		gateVerb(wire.VerbCircuitClose, wire.ParseGateKey, c.CircuitClose),
		gateVerb(wire.VerbCircuitReset, wire.ParseGateKey, c.CircuitReset),
		bareVerb(wire.VerbCircuitList, wire.ParseCircuitList, sure(c.CircuitList)),
		bareVerb(wire.VerbPause, wire.ParsePause, c.Pause),
		bareVerb(wire.VerbResume, wire.ParseResume, c.Resume),
		bareVerb(wire.VerbPauseList, wire.ParseList, sure(c.PauseList)),

		bareVerb(wire.VerbGuardPermits, wire.ParseGuardPermits, sure(a.guardPermits)).at(nil, listPermits),
		bareVerb(wire.VerbGuardEnd, wire.ParseGuardEnd, sure(a.guardEnd)).at(nil, endPermits),

		bareVerb(wire.VerbReload, wire.ParseReload, a.reload).at(nil, reloadAll),
		bareVerb(wire.VerbStoreBackup, nothing, a.backups.verb),

		clusterVerb(a, wire.VerbClusterStatus, nothing, clusterStatus),
		clusterVerb(a, wire.VerbClusterDrain, wire.ParseClusterDrain, clusterDrain),
		clusterVerb(a, wire.VerbClusterMove, wire.ParseClusterMove, clusterMove),
	}
}

// at says where in a cluster a verb is carried out.
func (v Verb) at(about func(tail string, body []byte) string, gather func(Verb, request) ([]byte, *wire.Error)) Verb {
	v.about, v.gather = about, gather
	return v
}

// byTail is about for verbs whose tail is a queue.
func byTail(tail string, _ []byte) string { return tail }

// byBody is about for verbs whose request may name a queue.
func byBody(_ string, body []byte) string {
	var named struct{ Queue string }
	_ = json.Unmarshal(body, &named) // it is refused where it is carried out
	return named.Queue
}

// request is one of the verb. Its tail names a dead letter queue in full, for older nodes too.
func (v Verb) request(client, tail string, body []byte) request {
	if v.Tail == DeadLetters {
		tail = wire.DeadLetters(tail)
	}
	return request{v.Name, client, tail, body}
}

// Do carries out a request of a client, "" if it is not known, with the tail of its
// subject. It returns the reply, JSON.
func (v Verb) Do(client, tail string, body []byte) ([]byte, *wire.Error) {
	r := v.request(client, tail, body)
	if v.withTail != nil && tail != "" {
		var err *wire.Error
		if r.body, err = v.withTail(tail, body); err != nil {
			return nil, err
		}
		r.tail = ""
	}
	if v.a.peers == nil {
		return v.here(r)
	}
	return v.anywhere(r) // not under one: two nodes may ask each other
}

// here carries out a request by what this node has.
func (v Verb) here(r request) ([]byte, *wire.Error) {
	v.one.Lock()
	defer v.one.Unlock()
	defer v.a.control.As(v.Name, r.client)()
	tail, body := r.tail, r.body
	before := v.standing(tail, body)
	reply, werr := v.do(tail, body)
	n, counts := messages(reply)
	if werr != nil && n == 0 {
		return nil, werr
	}
	data, err := json.Marshal(reply)
	if err == nil && (n > 0 || !counts && v.standing(tail, body) != before) {
		v.audit(tail, body, data)
	}
	if werr != nil {
		return nil, werr.After(n)
	}
	if long, ok := reply.(wire.Long); ok && err == nil && int64(len(data)) > v.most() {
		data, err = json.Marshal(long.Shorten(int(v.most())))
	}
	if err != nil {
		return nil, wire.Internal(err.Error())
	}
	return data, nil
}

// one counts an order to a cluster that was given: whatever it changes, it is audited.
func one(given bool) int64 {
	if given {
		return 1
	}
	return 0
}

// messages is how many messages a verb has changed, if its reply counts them.
func messages(reply any) (n int64, counts bool) {
	switch r := reply.(type) {
	case wire.QueuePurgeReply:
		return r.Purged, true
	case wire.RedriveReply:
		return r.Redriven, true
	case wire.MessageReply:
		if r.Done {
			n = 1
		}
		return n, true
	case wire.JobInfo:
		return one(r.ID != ""), true
	case wire.ScheduleInfo:
		return one(r.Name != "" && !r.Unchanged), true
	case wire.ClusterDrainReply:
		return one(r.Node != ""), true
	case wire.ClusterMoveReply:
		return one(r.To != ""), true
	case wire.GuardEndReply:
		return r.Ended, true
	case wire.StoreBackupReply: // it holds payloads and the key of tokens
		return one(r.Path != ""), true
	}
	return 0, false
}

// standing is how that stands which a verb changes whose reply does not count, so that one
// that has changed nothing is known.
func (v Verb) standing(tail string, body []byte) string {
	var now any
	switch v.Name {
	case wire.VerbQueueCreate, wire.VerbQueueUpdate, wire.VerbQueueDelete:
		if q := v.a.shards.Queue(tail); q != nil {
			now = q.Settings()
		}
	case wire.VerbHookReset:
		var hooks []wire.HookInfo
		if q := v.a.shards.Queue(tail); q != nil {
			for _, h := range q.Hooks() {
				hooks = append(hooks, wire.HookInfo{Hook: h.Hook, State: h.State, ConsecutiveFailures: h.ConsecutiveFailures})
			}
		}
		now = hooks
	case wire.VerbCircuitOpen, wire.VerbCircuitClose, wire.VerbCircuitReset:
		info, ok := v.a.gates.circuit(circuitKey(tail, body))
		if !ok {
			info.State = "closed"
		}
		now = wire.CircuitInfo{State: info.State, OpenUntil: info.OpenUntil, Cause: info.Cause, ConsecutiveFailures: info.ConsecutiveFailures}
	}
	text, err := json.Marshal(now)
	if err != nil {
		return ""
	}
	return string(text)
}

// circuitKey is the key of a circuit that a request names.
func circuitKey(tail string, body []byte) string {
	var named struct{ Key string }
	_ = json.Unmarshal(body, &named) // a bad one is refused
	return cmp.Or(wire.NamedKey(named.Key), wire.NamedKey(tail))
}

// audit records what has been done by a verb that control does not record itself.
func (v Verb) audit(tail string, body, reply []byte) {
	what, done := "queue:"+tail, string(body)
	switch v.Name {
	case wire.VerbQueueCreate, wire.VerbQueueUpdate, wire.VerbHookReset:
	case wire.VerbQueueDelete, wire.VerbQueuePurge, wire.VerbRedrive:
		done = string(reply)
	case wire.VerbMessageDelete, wire.VerbMessageRunNow:
		var named struct{ ID string }
		_ = json.Unmarshal(reply, &named) // its id is in one form, whatever was asked for
		what, done = "message:"+named.ID, string(reply)
	case wire.VerbJobCreate, wire.VerbJobPause, wire.VerbJobResume, wire.VerbJobCancel:
		var named struct{ ID string }
		_ = json.Unmarshal(reply, &named)
		what, done = "job:"+named.ID, string(reply)
	case wire.VerbScheduleAdd, wire.VerbScheduleDelete, wire.VerbSchedulePause, wire.VerbScheduleResume:
		var named struct{ Name string }
		_ = json.Unmarshal(reply, &named)
		what, done = "schedule:"+tail+"/"+named.Name, string(reply)
	case wire.VerbClusterDrain, wire.VerbClusterMove:
		var named struct {
			Node  string
			Shard int
		}
		_ = json.Unmarshal(reply, &named)
		what, done = "node:"+named.Node, string(reply)
		if v.Name == wire.VerbClusterMove {
			what = fmt.Sprint("shard:", named.Shard)
		}
	case wire.VerbCircuitOpen, wire.VerbCircuitClose, wire.VerbCircuitReset:
		what = "circuit:" + circuitKey(tail, body)
	case wire.VerbGuardEnd:
		what, done = auditPermits(reply)
	case wire.VerbStoreBackup:
		what, done = "store", string(reply)
	default:
		return
	}
	v.a.control.Audit(v.Name, what, cmp.Or(done, "{}"))
}

// maxReply is how large a reply may be.
func (a *Admin) maxReply() int64 {
	room := a.shards.Conn.MaxPayload()
	if a.peers != nil {
		room -= peerHeaders
	}
	return room
}

// peerHeaders is what a reply has on its way to another node beside its body.
const peerHeaders = 1 << 10

// bareVerb makes a verb without a tail.
func bareVerb[Req, Reply any](name string, parse func([]byte) (Req, *wire.Error), do func(Req) (Reply, *wire.Error)) Verb {
	return Verb{Name: name, Tail: NoTail, do: func(_ string, body []byte) (any, *wire.Error) {
		req, err := parse(body)
		if err != nil {
			return nil, err
		}
		return do(req)
	}}
}

// gateVerb makes a verb about a throttle key or circuit key.
func gateVerb[Req, Reply any](name string, parse func(string, []byte) (Req, *wire.Error), do func(Req) (Reply, *wire.Error)) Verb {
	return Verb{Name: name, Tail: Key, do: func(tail string, body []byte) (any, *wire.Error) {
		req, err := parse(tail, body)
		if err != nil {
			return nil, err
		}
		return do(req)
	}}
}

// queueVerb makes a verb about a queue of a kind.
func queueVerb[Req, Reply any](a *Admin, name string, kind Tail,
	parse func([]byte) (Req, *wire.Error), do func(*shard.Queue, Req) (Reply, *wire.Error),
) Verb {
	return Verb{Name: name, Tail: kind, about: byTail, do: func(tail string, body []byte) (any, *wire.Error) {
		req, err := parse(body)
		if err != nil {
			return nil, err
		}
		q, err := a.queue(tail)
		switch {
		case err != nil:
			return nil, err
		case kind == Ordinary && q.IsDLQ():
			return nil, wire.NotForDLQ(name, tail)
		}
		return do(q, req)
	}}
}

// configVerb does something about a key of the runtime configuration.
func configVerb(do func(key string) (wire.ConfigEntry, *wire.Error)) func(string, []byte) (any, *wire.Error) {
	return func(key string, body []byte) (any, *wire.Error) {
		if err := wire.ParseEmpty(body); err != nil {
			return nil, err
		}
		if err := wire.CheckConfigKey(key); err != nil {
			return nil, wire.BadConfigKey(err)
		}
		return do(wire.NamedKey(key))
	}
}

// sure is for what is never refused.
func sure[Req, Reply any](do func(Req) Reply) func(Req) (Reply, *wire.Error) {
	return func(req Req) (Reply, *wire.Error) { return do(req), nil }
}

// nothing decodes a request without fields.
func nothing(body []byte) (struct{}, *wire.Error) { return struct{}{}, wire.ParseEmpty(body) }

// undecoded leaves a request to what it is for.
func undecoded(body []byte) ([]byte, *wire.Error) { return body, nil }

// queue finds the queue that a request names.
func (a *Admin) queue(name string) (*shard.Queue, *wire.Error) {
	if err := wire.CheckQueueName(name); err != nil {
		return nil, wire.BadQueueName(err)
	}
	return a.shards.Find(name)
}

func (a *Admin) configSet(key string, body []byte) (any, *wire.Error) {
	if err := wire.CheckConfigKey(key); err != nil {
		return nil, wire.BadConfigKey(err)
	}
	req, err := wire.ParseConfigSet(key, body)
	if err != nil {
		return nil, err
	}
	return a.control.ConfigSet(wire.NamedKey(key), req)
}

func (a *Admin) reload(req wire.ReloadRequest) (wire.ReloadReply, *wire.Error) {
	if req.DryRun {
		return a.control.ReloadDryRun()
	}
	return a.control.Reload(context.Background())
}
