package admin

import (
	"time"

	"github.com/filaq/fila/sidecar/deadletter"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// deadGroups groups dead letters by their errors, with what had changed before the first of each group.
func (a *Admin) deadGroups(q *shard.Queue, req api.DeadGroupsRequest) (api.DeadGroups, *wire.Error) {
	reply, err := q.Groups(req.Limit)
	if err != nil {
		return reply, err
	}
	a.addBefore(len(reply.Groups), func(i int) (queue, at string, before *[]api.Mark) {
		g := &reply.Groups[i]
		return wire.Source(q.Name()), g.First, &g.Before
	})
	return reply, nil
}

// deadRates counts, by minute, how many messages of a queue, or of all queues of this node, have
// failed for good.
func (a *Admin) deadRates(req api.DeadRatesRequest) (api.DeadRates, *wire.Error) {
	now := a.now()
	reply := newDeadRates(req, now.Truncate(time.Minute))
	queues := a.shards.Queues()
	if req.Queue != "" {
		q, err := a.queue(wire.Source(req.Queue))
		if err != nil {
			return reply, err
		}
		queues = []*shard.Queue{q}
		reply.Queue = q.Name()
	}
	for _, q := range queues {
		q.DeadRates(&reply, now.UnixNano())
	}
	deadletter.Largest(&reply, req.Limit)
	return reply, nil
}

func newDeadRates(req api.DeadRatesRequest, last time.Time) api.DeadRates {
	from := last.Add(-time.Duration(req.Minutes-1) * time.Minute)
	return api.DeadRates{From: wire.Timestamp(from.UnixNano()), Groups: []api.DeadRate{}, Other: make([]int64, req.Minutes)}
}

// deadRatesOfAll counts the messages of all queues of a cluster.
func deadRatesOfAll(v Verb, r request) ([]byte, *wire.Error) {
	req, err := api.VerbDeadRates.Parse("", r.body)
	if err != nil {
		return nil, err
	}
	all := newDeadRates(req, v.a.now().Truncate(time.Minute))
	all.Missing, err = gather(v, r, func(part api.DeadRates) {
		from, err := time.Parse(time.RFC3339, part.From)
		begins, _ := time.Parse(time.RFC3339, all.From) // our own
		if err != nil {
			return // of a newer node in another form
		}
		deadletter.Join(&all, &part, int(begins.Sub(from).Round(time.Minute)/time.Minute))
	})
	if err != nil {
		return nil, err
	}
	deadletter.Largest(&all, req.Limit)
	return v.a.encode(&all)
}
