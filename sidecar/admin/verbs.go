package admin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Verb carries out the requests of one verb of the admin protocol. Requests run side by
// side; changes of one object are ordered, see [objects].
type Verb struct {
	api.AnyVerb
	// Waits reports whether a request may wait long for something other than a commit: for
	// a job, a reload or other nodes.
	Waits bool

	a  *Admin
	do func(by control.Actor, tail string, body []byte) (reply any, err *wire.Error)
	// rewrite puts the tail of a request into its body, so that other nodes need only the
	// body; nil: they get both.
	rewrite func(tail string, body []byte) ([]byte, *wire.Error)

	// In a cluster: about returns the queue at whose owner a request is carried out, ""
	// for none, and gather carries out requests about no queue at all nodes. nil: here.
	about  func(tail string, body []byte) string
	gather func(Verb, request) ([]byte, *wire.Error)
}

// Verbs returns all verbs.
func (a *Admin) Verbs() []Verb { return a.table }

// row returns the Verb that decodes the requests of v for do.
func row[Req, Reply any](v *api.Verb[Req, Reply], do func(by control.Actor, tail string, req Req) (Reply, *wire.Error)) Verb {
	return Verb{AnyVerb: v, do: func(by control.Actor, tail string, body []byte) (any, *wire.Error) {
		req, err := v.Parse(tail, body)
		if err != nil {
			return nil, err
		}
		reply, err := do(by, tail, req)
		return &reply, err
	}}
}

// reads is row for a verb that changes nothing and has no tail.
func reads[Req, Reply any](v *api.Verb[Req, Reply], do func(Req) (Reply, *wire.Error)) Verb {
	return row(v, func(_ control.Actor, _ string, req Req) (Reply, *wire.Error) { return do(req) })
}

// lists is reads for a verb that is never refused.
func lists[Req, Reply any](v *api.Verb[Req, Reply], do func(Req) Reply) Verb {
	return row(v, func(_ control.Actor, _ string, req Req) (Reply, *wire.Error) { return do(req), nil })
}

// changes is row for a verb whose request names its object.
func changes[Req, Reply any](v *api.Verb[Req, Reply], do func(control.Actor, Req) (Reply, *wire.Error)) Verb {
	return row(v, func(by control.Actor, _ string, req Req) (Reply, *wire.Error) { return do(by, req) })
}

// changesOne is changes for a verb whose changes of one object must not overlap.
func changesOne[Req, Reply any](a *Admin, v *api.Verb[Req, Reply], object func(*Req) string, do func(control.Actor, Req) (Reply, *wire.Error)) Verb {
	return changes(v, func(by control.Actor, req Req) (Reply, *wire.Error) {
		defer a.objects.lock(object(&req))()
		return do(by, req)
	})
}

// changesAudited is changesOne for a change that the audit log shows by its reply.
func changesAudited[Req, Reply any](a *Admin, v *api.Verb[Req, Reply], object func(*Req) string, do func(Req) (Reply, *wire.Error)) Verb {
	return changesOne(a, v, object, func(by control.Actor, req Req) (Reply, *wire.Error) {
		reply, err := do(req)
		if err == nil {
			a.audit(by, object(&req), reply)
		}
		return reply, err
	})
}

// changesJob is changesAudited for a verb about one job.
func changesJob(a *Admin, v *api.Verb[api.JobRequest, api.JobInfo], change func(id string) (api.JobInfo, *wire.Error)) Verb {
	return changesAudited(a, v, func(r *api.JobRequest) string { return "job:" + r.ID },
		func(r api.JobRequest) (api.JobInfo, *wire.Error) { return change(r.ID) }).at(nil, find(refusedBy(wire.CodeJobNotFound)))
}

func lossObject(r *api.ClusterLossRequest) string { return shardObject(r.Shard) }

// pauseObject names the object of a pause or resume.
func pauseObject(req *api.PauseRequest) string {
	if req.Queue != "" {
		return req.Kind + ":" + req.Queue + ":" + req.Name
	}
	return req.Kind + ":" + req.Name
}

// configKey is row for a verb about a key of the runtime configuration.
func configKey[Req, Reply any](v *api.Verb[Req, Reply], do func(by control.Actor, key string, req Req) (Reply, *wire.Error)) Verb {
	return row(v, func(by control.Actor, tail string, req Req) (reply Reply, _ *wire.Error) {
		if err := wire.CheckConfigKey(tail); err != nil {
			return reply, wire.BadConfigKey(err)
		}
		return do(by, wire.NamedKey(tail), req)
	})
}

// changesQueue is row for a verb about an existing queue of the kind that its tail names.
func changesQueue[Req, Reply any](a *Admin, v *api.Verb[Req, Reply], do func(control.Actor, *shard.Queue, Req) (Reply, *wire.Error)) Verb {
	r := row(v, func(by control.Actor, tail string, req Req) (reply Reply, _ *wire.Error) {
		q, err := a.queue(tail)
		switch {
		case err != nil:
			return reply, err
		case v.Tail == api.TailMainQueue && q.IsDLQ():
			return reply, wire.NotForDLQ(v.Name, tail)
		}
		return do(by, q, req)
	})
	r.about = byTail
	return r
}

// readsQueue is changesQueue for a verb that changes nothing.
func readsQueue[Req, Reply any](a *Admin, v *api.Verb[Req, Reply], do func(*shard.Queue, Req) (Reply, *wire.Error)) Verb {
	return changesQueue(a, v, func(_ control.Actor, q *shard.Queue, req Req) (Reply, *wire.Error) { return do(q, req) })
}

// at sets where in a cluster a verb is carried out.
func (v Verb) at(about func(tail string, body []byte) string, gather func(Verb, request) ([]byte, *wire.Error)) Verb {
	v.about, v.gather = about, gather
	return v
}

// waiting sets Waits.
func (v Verb) waiting() Verb {
	v.Waits = true
	return v
}

func (a *Admin) newTable() []Verb {
	verbs := a.rows()
	for i := range verbs {
		verbs[i].a = a
	}
	return verbs
}

func (a *Admin) rows() []Verb {
	c := a.control
	return []Verb{
		a.queueCreateVerb(),
		changesQueue(a, api.VerbQueueUpdate, a.queueUpdate),
		changesQueue(a, api.VerbQueueDelete, a.queueDelete).waiting(),
		changesQueue(a, api.VerbQueuePurge, a.queuePurge).waiting(),
		readsQueue(a, api.VerbQueueInspect, a.queueInspect),
		readsQueue(a, api.VerbQueueWanted, a.queueWanted),
		readsQueue(a, api.VerbNoisy, a.noisy),
		readsQueue(a, api.VerbLanes, a.lanes),
		lists(api.VerbQueueList, a.queueList).at(nil, listQueues),
		readsQueue(a, api.VerbHookShow, a.hookShow),
		changesQueue(a, api.VerbHookSet, a.hookSet),
		changesQueue(a, api.VerbHookReset, a.hookReset),

		readsQueue(a, api.VerbPeek, a.peek),
		reads(api.VerbExplain, a.explain).at(byBody, find(unexplained)),
		reads(api.VerbMessageShow, a.messageShow).at(byBody, find(refusedBy(wire.CodeMessageNotFound))),
		changes(api.VerbMessageDelete, a.messageDelete).at(byBody, find(refusedBy(wire.CodeMessageNotFound))),
		changes(api.VerbMessageRunNow, a.messageRunNow).at(byBody, find(refusedBy(wire.CodeMessageNotFound))),
		changesQueue(a, api.VerbRedrive, a.redrive).waiting(),
		readsQueue(a, api.VerbDeadGroups, a.deadGroups),
		reads(api.VerbDeadRates, a.deadRates).at(byBody, deadRatesOfAll),

		a.jobCreateVerb(),
		reads(api.VerbJobList, a.jobList).at(byBody, listJobs),
		reads(api.VerbJobShow, a.jobShow).at(nil, find(refusedBy(wire.CodeJobNotFound))),
		changesJob(a, api.VerbJobPause, a.shards.PauseJob),
		changesJob(a, api.VerbJobResume, a.shards.ResumeJob),
		changesJob(a, api.VerbJobCancel, a.shards.CancelJob),

		changesQueue(a, api.VerbScheduleAdd, a.scheduleAdd),
		readsQueue(a, api.VerbScheduleShow, scheduleShow),
		changesQueue(a, api.VerbScheduleDelete, a.scheduleDelete),
		changesQueue(a, api.VerbSchedulePause, a.changeSchedule((*shard.Queue).PauseSchedule)),
		changesQueue(a, api.VerbScheduleResume, a.changeSchedule((*shard.Queue).ResumeSchedule)),
		reads(api.VerbScheduleList, a.scheduleList).at(byBody, listSchedules),

		configKey(api.VerbConfigSet, func(by control.Actor, key string, req api.ConfigSetRequest) (api.ConfigSetReply, *wire.Error) {
			defer a.objects.lock("config:" + key)()
			return c.ConfigSet(by, key, req)
		}),
		changesOne(a, api.VerbConfigEdit, func(*api.ConfigEditRequest) string { return "config" }, c.ConfigEdit),
		configKey(api.VerbConfigGet, func(_ control.Actor, key string, _ api.Empty) (api.ConfigEntry, *wire.Error) {
			return c.ConfigGet(key)
		}),
		configKey(api.VerbConfigDelete, func(by control.Actor, key string, _ api.Empty) (api.ConfigEntry, *wire.Error) {
			defer a.objects.lock("config:" + key)()
			return c.ConfigDelete(by, key)
		}),
		lists(api.VerbConfigList, c.ConfigList),
		reads(api.VerbConfigLog, c.ConfigLog),
		changes(api.VerbAnnotate, a.annotate).at(byBody, nil),
		reads(api.VerbMarks, a.marks).at(byBody, nil),

		changesOne(a, api.VerbThrottleSet, func(req *api.ThrottleSetRequest) string { return "throttle:" + req.Key }, c.ThrottleSet),
		changesOne(a, api.VerbThrottleClear, func(req *api.GateKeyRequest) string { return "throttle:" + req.Key }, c.ThrottleClear),
		reads(api.VerbThrottleShow, a.throttleShow).at(nil, sum(wire.CodeThrottleNotFound, addThrottle)),
		lists(api.VerbThrottleList, a.throttleList),
		lists(api.VerbBudgetList, c.BudgetList),
		reads(api.VerbBudgetShow, c.BudgetShow),
		changesOne(a, api.VerbBudgetTopUp, func(req *api.BudgetTopUpRequest) string { return "budget:" + req.Key }, c.BudgetTopUp),
		changesOne(a, api.VerbBudgetReset, func(req *api.GateKeyRequest) string { return "budget:" + req.Key }, c.BudgetReset),
		reads(api.VerbCircuitShow, a.circuitShow).at(nil, sum(wire.CodeCircuitNotFound, addCircuit)),
		changes(api.VerbCircuitOpen, a.circuitOpen),
		changes(api.VerbCircuitClose, a.changeCircuit(c.CircuitClose)),
		changes(api.VerbCircuitReset, a.changeCircuit(c.CircuitReset)),
		lists(api.VerbCircuitList, c.CircuitList),
		changesOne(a, api.VerbPause, pauseObject, c.Pause),
		changesOne(a, api.VerbResume, pauseObject, c.Resume),
		lists(api.VerbPauseList, c.PauseList),

		lists(api.VerbGuardPermits, a.guardPermits).at(nil, listPermits),
		changes(api.VerbGuardEnd, a.guardEnd).at(nil, endPermits),

		lists(api.VerbAttention, a.attention).at(nil, attentionOfAll),

		reads(api.VerbReload, a.reload).at(nil, reloadAll).waiting(),
		// A backup holds payloads and the key of tokens.
		changesAudited(a, api.VerbStoreBackup, func(*api.Empty) string { return "store" }, a.backups.make).waiting(),

		reads(api.VerbClusterStatus, a.clusterStatus),
		changesAudited(a, api.VerbClusterDrain, func(r *api.ClusterDrainRequest) string { return "node:" + r.Node }, a.clusterDrain).waiting(),
		changesAudited(a, api.VerbClusterMove, func(r *api.ClusterMoveRequest) string { return shardObject(r.Shard) }, a.clusterMove).waiting(),
		reads(api.VerbClusterVerify, a.clusterVerify).waiting(),
		changesOne(a, api.VerbClusterRepair, lossObject, a.clusterRepair).waiting(),
		changesOne(a, api.VerbClusterAccept, lossObject, a.clusterAccept).waiting(),
	}
}

// byTail is Verb.about for verbs whose tail is a queue.
func byTail(tail string, _ []byte) string { return tail }

// byBody is Verb.about for verbs whose request may name a queue.
func byBody(_ string, body []byte) string {
	var named struct{ Queue string }
	_ = json.Unmarshal(body, &named) // the node that executes it refuses it
	return named.Queue
}

// request is a request of a verb with the tail of its subject.
type request struct {
	by         api.Sender
	verb, tail string
	body       []byte
}

// request returns a request of the verb. Its tail names a dead letter queue in full, because
// nodes of older versions know no other name.
func (v Verb) request(by api.Sender, tail string, body []byte) request {
	if v.Kind() == api.TailDeadLetters {
		tail = wire.DeadLetters(tail)
	}
	return request{by, v.String(), tail, body}
}

// Do carries out a request with the tail of its subject. It returns the reply as JSON.
func (v Verb) Do(by api.Sender, tail string, body []byte) ([]byte, *wire.Error) {
	r := v.request(by, tail, body)
	if v.rewrite != nil && tail != "" {
		var err *wire.Error
		if r.body, err = v.rewrite(tail, body); err != nil {
			return nil, err
		}
		r.tail = ""
	}
	if v.a.peers == nil {
		return v.here(r)
	}
	return v.anywhere(r)
}

// here carries out a request at this node.
func (v Verb) here(r request) ([]byte, *wire.Error) {
	reply, err := v.do(control.Actor{By: r.verb, Sender: r.by}, r.tail, r.body)
	if err != nil {
		return nil, err
	}
	return v.a.encode(reply)
}

// encode returns a reply as JSON. A list that NATS would not carry is shortened.
func (a *Admin) encode(reply any) ([]byte, *wire.Error) {
	data, err := json.Marshal(reply)
	if long, ok := reply.(api.Long); ok && err == nil {
		room := a.shards.Conn.MaxPayload()
		if a.peers != nil {
			room -= peerHeaders
		}
		if int64(len(data)) > room {
			long.Shorten(int(room))
			data, err = json.Marshal(reply)
		}
	}
	if err != nil {
		return nil, wire.Internal(err.Error())
	}
	return data, nil
}

// peerHeaders bounds the headers of a reply between nodes.
const peerHeaders = 1 << 10

// audit records a change of an object in the audit log, and waits for the disk. Control
// records the changes of what it keeps itself.
func (a *Admin) audit(by control.Actor, object string, change any) {
	text, _ := json.Marshal(change) // a request or a reply, which are texts and numbers
	a.control.Audit(by, object, string(text))
}

// queue finds the queue that a request names.
func (a *Admin) queue(name string) (*shard.Queue, *wire.Error) {
	if err := wire.CheckQueueName(name); err != nil {
		return nil, wire.BadQueueName(err)
	}
	return a.shards.Find(name)
}

// now is the time of the queues.
func (a *Admin) now() time.Time { return time.Unix(0, a.shards.Now()) }

func (a *Admin) reload(req api.ReloadRequest) (api.ReloadReply, *wire.Error) {
	if req.DryRun {
		return a.control.ReloadDryRun()
	}
	return a.control.Reload(context.Background())
}
