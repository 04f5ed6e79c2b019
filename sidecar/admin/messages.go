package admin

import (
	"github.com/google/uuid"

	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/sidecar/finder"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// located finds a message, and refuses one that does not exist.
func (a *Admin) located(name, id string) (*located, *wire.Error) {
	at, err := a.message(name, id)
	if err == nil && at == nil {
		err = wire.MessageNotFound(name, id)
	}
	return at, err
}

// messageShow shows a message as peek and explain do.
func (a *Admin) messageShow(req api.MessageShowRequest) (info api.MessageInfo, err *wire.Error) {
	at, err := a.located(req.Queue, req.ID)
	if err != nil {
		return info, err
	}
	p := peeking{Admin: a, queue: at.q.Name(), id: at.q.ID(), store: at.q.Store(), req: api.PeekRequest{PayloadBytes: req.PayloadBytes}}
	e := a.explained(at)
	info = api.MessageInfo{
		PeekedMessage: p.peeked(at.v), Queue: p.queue, Cost: float64(at.v.Cost) / thousand,
		Reason: e.Reason, Gates: append([]api.GateState{}, e.Gates...), Routes: e.Routes, Route: e.Route, BlockedSince: e.BlockedSince, Ahead: e.Ahead, Estimate: e.Estimate,
	}
	info.BlockedBy, info.History = e.BlockedBy, e.History
	if !p.read(at.v.Seq, &info.PeekedMessage) {
		if a.find(at.q, at.v.ID) == nil {
			return info, wire.MessageNotFound(req.Queue, req.ID)
		}
		info.Unreadable = "it is not on disk yet"
	}
	return info, nil
}

// messageDelete removes a message that is not in flight.
func (a *Admin) messageDelete(by control.Actor, req api.MessageRequest) (api.MessageReply, *wire.Error) {
	return a.changeMessage(by, req, (*shard.Queue).Remove)
}

// messageRunNow ends the delay of a message.
func (a *Admin) messageRunNow(by control.Actor, req api.MessageRequest) (api.MessageReply, *wire.Error) {
	return a.changeMessage(by, req, (*shard.Queue).RunNow)
}

// changeMessage changes a message that is not in flight, and records that.
func (a *Admin) changeMessage(by control.Actor, req api.MessageRequest,
	do func(*shard.Queue, uint64, store.ID) (queue.Handled, *wire.Error),
) (api.MessageReply, *wire.Error) {
	at, err := a.located(req.Queue, req.ID)
	if err != nil {
		return api.MessageReply{}, err
	}
	h, err := do(at.q, at.v.Seq, at.v.ID)
	switch {
	case err != nil:
		return api.MessageReply{}, err
	case !h.Found:
		return api.MessageReply{}, wire.MessageNotFound(req.Queue, req.ID)
	}
	at.v.State = h.State
	if why := inFlight[h.State]; why != "" {
		return api.MessageReply{}, wire.MessageInFlight(at.q.Name(), req.ID, why)
	}
	reply := api.MessageReply{ID: uuid.UUID(at.v.ID).String(), Queue: at.q.Name(), State: finder.StateName(at.v.State, at.q.IsDLQ()), Done: h.Done > 0}
	if reply.Done {
		a.audit(by, "message:"+reply.ID, reply)
	}
	return reply, nil
}

// inFlight says why a message in a state cannot be changed.
var inFlight = map[inspect.MessageState]string{
	inspect.StateLeased:  "it is in flight",
	inspect.StateFailing: "its failure is being judged",
	inspect.StateMoving:  "it is moving",
}
