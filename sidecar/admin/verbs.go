package admin

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/wire"
)

// Verb carries out the requests of one verb of the admin protocol. Requests run side by
// side; changes of one object are ordered, see [objects].
type Verb struct {
	wire.AnyVerb
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
func row[Req, Reply any](v *wire.Verb[Req, Reply], do func(by control.Actor, tail string, req Req) (Reply, *wire.Error)) Verb {
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
func reads[Req, Reply any](v *wire.Verb[Req, Reply], do func(Req) (Reply, *wire.Error)) Verb {
	return row(v, func(_ control.Actor, _ string, req Req) (Reply, *wire.Error) { return do(req) })
}

// lists is reads for a verb that is never refused.
func lists[Req, Reply any](v *wire.Verb[Req, Reply], do func(Req) Reply) Verb {
	return row(v, func(_ control.Actor, _ string, req Req) (Reply, *wire.Error) { return do(req), nil })
}

// changes is row for a verb whose request names its object.
func changes[Req, Reply any](v *wire.Verb[Req, Reply], do func(control.Actor, Req) (Reply, *wire.Error)) Verb {
	return row(v, func(by control.Actor, _ string, req Req) (Reply, *wire.Error) { return do(by, req) })
}

// changesOne is changes for a verb whose changes of one object must not overlap.
func changesOne[Req, Reply any](a *Admin, v *wire.Verb[Req, Reply], object func(*Req) string, do func(control.Actor, Req) (Reply, *wire.Error)) Verb {
	return changes(v, func(by control.Actor, req Req) (Reply, *wire.Error) {
		defer a.objects.lock(object(&req))()
		return do(by, req)
	})
}

// changesAudited is changesOne for a change that the audit log shows by its reply.
func changesAudited[Req, Reply any](a *Admin, v *wire.Verb[Req, Reply], object func(*Req) string, do func(Req) (Reply, *wire.Error)) Verb {
	return changesOne(a, v, object, func(by control.Actor, req Req) (Reply, *wire.Error) {
		reply, err := do(req)
		if err == nil {
			a.audit(by, object(&req), reply)
		}
		return reply, err
	})
}

// changesJob is changesAudited for a verb about one job.
func changesJob(a *Admin, v *wire.Verb[wire.JobRequest, wire.JobInfo], change func(id string) (wire.JobInfo, *wire.Error)) Verb {
	return changesAudited(a, v, func(r *wire.JobRequest) string { return "job:" + r.ID },
		func(r wire.JobRequest) (wire.JobInfo, *wire.Error) { return change(r.ID) }).at(nil, find(refusedBy(wire.CodeJobNotFound)))
}

// pauseObject names the object of a pause or resume.
func pauseObject(req *wire.PauseRequest) string {
	if req.Queue != "" {
		return req.Kind + ":" + req.Queue + ":" + req.Name
	}
	return req.Kind + ":" + req.Name
}

// configKey is row for a verb about a key of the runtime configuration.
func configKey[Req, Reply any](v *wire.Verb[Req, Reply], do func(by control.Actor, key string, req Req) (Reply, *wire.Error)) Verb {
	return row(v, func(by control.Actor, tail string, req Req) (reply Reply, _ *wire.Error) {
		if err := wire.CheckConfigKey(tail); err != nil {
			return reply, wire.BadConfigKey(err)
		}
		return do(by, wire.NamedKey(tail), req)
	})
}

// changesQueue is row for a verb about an existing queue of the kind that its tail names.
func changesQueue[Req, Reply any](a *Admin, v *wire.Verb[Req, Reply], do func(control.Actor, *shard.Queue, Req) (Reply, *wire.Error)) Verb {
	r := row(v, func(by control.Actor, tail string, req Req) (reply Reply, _ *wire.Error) {
		q, err := a.queue(tail)
		switch {
		case err != nil:
			return reply, err
		case v.Tail == wire.TailMainQueue && q.IsDLQ():
			return reply, wire.NotForDLQ(v.Name, tail)
		}
		return do(by, q, req)
	})
	r.about = byTail
	return r
}

// readsQueue is changesQueue for a verb that changes nothing.
func readsQueue[Req, Reply any](a *Admin, v *wire.Verb[Req, Reply], do func(*shard.Queue, Req) (Reply, *wire.Error)) Verb {
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
		changesQueue(a, wire.VerbQueueUpdate, a.queueUpdate),
		changesQueue(a, wire.VerbQueueDelete, a.queueDelete).waiting(),
		changesQueue(a, wire.VerbQueuePurge, a.queuePurge).waiting(),
		readsQueue(a, wire.VerbQueueInspect, a.queueInspect),
		readsQueue(a, wire.VerbNoisy, a.noisy),
		lists(wire.VerbQueueList, a.queueList).at(nil, listQueues),
		changesQueue(a, wire.VerbHookReset, a.hookReset),

		readsQueue(a, wire.VerbPeek, a.peek),
		reads(wire.VerbExplain, a.explain).at(byBody, find(unexplained)),
		reads(wire.VerbMessageShow, a.messageShow).at(byBody, find(refusedBy(wire.CodeMessageNotFound))),
		changes(wire.VerbMessageDelete, a.messageDelete).at(byBody, find(refusedBy(wire.CodeMessageNotFound))),
		changes(wire.VerbMessageRunNow, a.messageRunNow).at(byBody, find(refusedBy(wire.CodeMessageNotFound))),
		changesQueue(a, wire.VerbRedrive, a.redrive).waiting(),
		readsQueue(a, wire.VerbDeadGroups, a.deadGroups),

		a.jobCreateVerb(),
		reads(wire.VerbJobList, a.jobList).at(byBody, listJobs),
		reads(wire.VerbJobShow, a.jobShow).at(nil, find(refusedBy(wire.CodeJobNotFound))),
		changesJob(a, wire.VerbJobPause, a.shards.PauseJob),
		changesJob(a, wire.VerbJobResume, a.shards.ResumeJob),
		changesJob(a, wire.VerbJobCancel, a.shards.CancelJob),

		changesQueue(a, wire.VerbScheduleAdd, a.scheduleAdd),
		readsQueue(a, wire.VerbScheduleShow, scheduleShow),
		changesQueue(a, wire.VerbScheduleDelete, a.changeSchedule((*shard.Queue).DeleteSchedule)),
		changesQueue(a, wire.VerbSchedulePause, a.changeSchedule((*shard.Queue).PauseSchedule)),
		changesQueue(a, wire.VerbScheduleResume, a.changeSchedule((*shard.Queue).ResumeSchedule)),
		reads(wire.VerbScheduleList, a.scheduleList).at(byBody, listSchedules),

		configKey(wire.VerbConfigSet, func(by control.Actor, key string, req wire.ConfigSetRequest) (wire.ConfigSetReply, *wire.Error) {
			defer a.objects.lock("config:" + key)()
			return c.ConfigSet(by, key, req)
		}),
		configKey(wire.VerbConfigGet, func(_ control.Actor, key string, _ wire.Empty) (wire.ConfigEntry, *wire.Error) {
			return c.ConfigGet(key)
		}),
		configKey(wire.VerbConfigDelete, func(by control.Actor, key string, _ wire.Empty) (wire.ConfigEntry, *wire.Error) {
			defer a.objects.lock("config:" + key)()
			return c.ConfigDelete(by, key)
		}),
		lists(wire.VerbConfigList, c.ConfigList),
		reads(wire.VerbConfigLog, c.ConfigLog),

		changesOne(a, wire.VerbThrottleSet, func(req *wire.ThrottleSetRequest) string { return "throttle:" + req.Key }, c.ThrottleSet),
		changesOne(a, wire.VerbThrottleClear, func(req *wire.GateKeyRequest) string { return "throttle:" + req.Key }, c.ThrottleClear),
		reads(wire.VerbThrottleShow, a.throttleShow).at(nil, sum(wire.CodeThrottleNotFound, throttleWaiting)),
		lists(wire.VerbThrottleList, c.ThrottleList),
		reads(wire.VerbCircuitShow, a.circuitShow).at(nil, sum(wire.CodeCircuitNotFound, circuitWaiting)),
		changes(wire.VerbCircuitOpen, a.circuitOpen),
		changes(wire.VerbCircuitClose, a.changeCircuit(c.CircuitClose)),
		changes(wire.VerbCircuitReset, a.changeCircuit(c.CircuitReset)),
		lists(wire.VerbCircuitList, c.CircuitList),
		changesOne(a, wire.VerbPause, pauseObject, c.Pause),
		changesOne(a, wire.VerbResume, pauseObject, c.Resume),
		lists(wire.VerbPauseList, c.PauseList),

		lists(wire.VerbGuardPermits, a.guardPermits).at(nil, listPermits),
		changes(wire.VerbGuardEnd, a.guardEnd).at(nil, endPermits),

		reads(wire.VerbReload, a.reload).at(nil, reloadAll).waiting(),
		// A backup holds payloads and the key of tokens.
		changesAudited(a, wire.VerbStoreBackup, func(*wire.Empty) string { return "store" }, a.backups.make).waiting(),

		reads(wire.VerbClusterStatus, a.clusterStatus),
		changesAudited(a, wire.VerbClusterDrain, func(r *wire.ClusterDrainRequest) string { return "node:" + r.Node }, a.clusterDrain).waiting(),
		changesAudited(a, wire.VerbClusterMove, func(r *wire.ClusterMoveRequest) string { return "shard:" + strconv.Itoa(*r.Shard) }, a.clusterMove).waiting(),
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

// request is a request of a client, "" if it is not known, with the tail of its subject.
type request struct {
	verb, client, tail string
	body               []byte
}

// request returns a request of the verb. Its tail names a dead letter queue in full, because
// nodes of older versions know no other name.
func (v Verb) request(client, tail string, body []byte) request {
	if v.Kind() == wire.TailDeadLetters {
		tail = wire.DeadLetters(tail)
	}
	return request{v.String(), client, tail, body}
}

// Do carries out a request of a client, "" if it is not known, with the tail of its
// subject. It returns the reply as JSON.
func (v Verb) Do(client, tail string, body []byte) ([]byte, *wire.Error) {
	r := v.request(client, tail, body)
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
	reply, err := v.do(control.Actor{By: r.verb, Client: r.client}, r.tail, r.body)
	if err != nil {
		return nil, err
	}
	return v.a.encode(reply)
}

// encode returns a reply as JSON. A list that NATS would not carry is shortened.
func (a *Admin) encode(reply any) ([]byte, *wire.Error) {
	data, err := json.Marshal(reply)
	if long, ok := reply.(wire.Long); ok && err == nil {
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

func (a *Admin) reload(req wire.ReloadRequest) (wire.ReloadReply, *wire.Error) {
	if req.DryRun {
		return a.control.ReloadDryRun()
	}
	return a.control.Reload(context.Background())
}
