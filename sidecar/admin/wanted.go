package admin

import (
	"sync"
	"time"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// wantedMeters keep how many messages of each queue of this node are wanted. Watch takes a reading
// of all queues every watchEvery, but spends at most one in wantedFactor of a core on it; a
// request only reads a meter. The first request for a queue takes its first reading, so that a
// queue that was just made or taken over is never without one.
type wantedMeters struct {
	sync.Mutex
	of map[*shard.Queue]*inspect.WantedMeter

	// Watch alone uses the fields below.
	at     time.Time // when the last reading of all queues began
	took   time.Duration
	demand inspect.Demand // to reuse
}

const wantedFactor = 20

// measureWanted takes a reading of all queues.
func (a *Admin) measureWanted() {
	began := a.now()
	if age := began.Sub(a.meters.at); age >= 0 && age < wantedFactor*a.meters.took {
		return
	}
	queues := a.shards.Queues()
	here := make(map[*shard.Queue]bool, len(queues))
	for _, q := range queues {
		here[q] = true
		a.readWanted(q, &a.meters.demand)
	}
	a.meters.at, a.meters.took = began, a.now().Sub(began)
	a.meters.Lock()
	defer a.meters.Unlock()
	for q := range a.meters.of {
		if !here[q] {
			delete(a.meters.of, q)
		}
	}
}

// readWanted takes a reading of a queue in pieces, so that the queue works in between.
func (a *Admin) readWanted(q *shard.Queue, d *inspect.Demand) {
	d.Reset()
	for more := true; more; {
		if !q.View(func(m *queue.Queue, side queue.Role, now int64) { more = m.Inspect(side).ReadDemand(d, now) }) {
			return
		}
	}
	w := d.Wanted()
	a.meters.Lock()
	defer a.meters.Unlock()
	m := a.meters.of[q]
	if m == nil {
		m = new(inspect.WantedMeter)
		a.meters.of[q] = m
	}
	m.Add(w, a.shards.Now())
}

// wanted returns how many messages of a queue are wanted within one of wire.WantedHorizons. It
// reports false if the queue is gone.
func (a *Admin) wanted(q *shard.Queue, horizon time.Duration) (reply api.QueueWanted, ok bool) {
	a.meters.Lock()
	_, known := a.meters.of[q]
	a.meters.Unlock()
	if !known {
		a.readWanted(q, new(inspect.Demand))
	}
	reply.Queue = q.Name()
	ok = q.View(func(m *queue.Queue, side queue.Role, now int64) {
		r := m.Inspect(side)
		reply.Pending, reply.InFlight = r.Pending()
		reply.AttemptMs = float64(r.MeanAttempt(now)) / 1e6
	})
	a.meters.Lock()
	defer a.meters.Unlock()
	if m := a.meters.of[q]; m != nil {
		reply.Wanted = m.Wanted(wire.HorizonIndex(horizon), reply.Pending, reply.InFlight)
	}
	return reply, ok
}

func (a *Admin) queueWanted(q *shard.Queue, req api.QueueWantedRequest) (api.QueueWanted, *wire.Error) {
	w, ok := a.wanted(q, req.Horizon())
	if !ok {
		return w, q.Gone()
	}
	return w, nil
}
