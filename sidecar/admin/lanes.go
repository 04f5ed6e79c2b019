package admin

import (
	"github.com/google/uuid"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// lanes describes a queue by fairness key, with its next deliveries.
func (a *Admin) lanes(q *shard.Queue, req api.LanesRequest) (api.LanesReply, *wire.Error) {
	var v inspect.LanesView
	var next []inspect.NextDelivery
	var left int
	var at int64
	if !q.View(func(m *queue.Queue, side queue.Role, now int64) {
		v, at = m.Inspect(side).Lanes(req.Limit, now), now
		next, left = m.Inspect(side).Forecast(req.Next, now)
	}) {
		return api.LanesReply{}, q.Gone()
	}
	n := &v.State
	reply := api.LanesReply{
		Queue: q.Name(), At: wire.Timestamp(at), Quantum: q.Settings().Quantum, Paused: pausedText(n.Paused),
		Consumers: n.Consumers, Credit: n.Credit, Ready: n.Pending - n.Stats.Blocked, Blocked: n.Stats.Blocked, InFlight: n.InFlight,
		Ended: v.All.Ended, Keys: v.Keys, WaitCounts: waitCounts(&v.All.Waits), Lanes: []api.Lane{}, Next: []api.NextDelivery{}, LeftOut: left,
	}
	for i := range v.Lanes {
		reply.Lanes = append(reply.Lanes, a.lane(q.Name(), &v.Lanes[i]))
	}
	for i := range next {
		d := &next[i]
		n := api.NextDelivery{Key: wire.ShowKey(d.Key), ID: uuid.UUID(d.ID).String(), Cost: float64(d.Cost) / thousand}
		if d.By != gates.ByNothing {
			n.Gate, n.Kind = placeName(d.At), d.By.String()
		}
		if d.Opens != 0 {
			n.AdmitsAt = wire.Timestamp(d.Opens)
		}
		reply.Next = append(reply.Next, n)
	}
	return reply, nil
}

// placeName names a throttle key or a circuit as explanations do.
func placeName(at gates.Place) string {
	if at.Throttle != nil {
		return "throttle:" + wire.ShowKey(at.Throttle.Key())
	}
	return "circuit:" + wire.ShowKey(at.Circuit.Key())
}

func (a *Admin) lane(queue string, l *inspect.LaneView) api.Lane {
	lane := api.Lane{
		Key: wire.ShowKey(l.Key), Weight: float64(l.Weight) / thousand, Share: l.Share, Deficit: float64(l.Deficit) / thousand,
		Ready: l.Ready, Blocked: l.Blocked, InFlight: l.InFlight, OldestMs: l.Oldest / 1e6,
		Ended: l.Ended, WaitCounts: waitCounts(&l.Waits),
	}
	if l.Blocked > 0 {
		if by := a.gates.counts(queue, l.At[:1]); len(by) > 0 {
			lane.BlockedBy = &by[0]
		}
	}
	return lane
}

func waitCounts(w *inspect.Waits) api.WaitCounts {
	c := api.WaitCounts{Waits: make([]int64, len(w.Count)), MaxWaitMs: float64(w.Longest) / 1e6}
	for i, n := range w.Count {
		c.Waits[i] = int64(n)
	}
	return c
}
