package admin

import (
	"cmp"

	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Permits are the permits of the guard. Its methods may be called from any goroutine.
type Permits interface {
	Permits(r api.GuardPermitsRequest) api.GuardPermitList
	EndPermits(r api.GuardEndRequest) (ended int64)
}

func (a *Admin) guardPermits(r api.GuardPermitsRequest) api.GuardPermitList {
	return a.permits.Permits(r)
}

// auditedIDs is how many of the ended permits an entry of the audit log names.
const auditedIDs = 10

func (a *Admin) guardEnd(by control.Actor, r api.GuardEndRequest) (api.GuardEndReply, *wire.Error) {
	reply := api.GuardEndReply{GuardEndRequest: r, Ended: a.permits.EndPermits(r)}
	reply.Key = wire.ShowKey(r.Key)
	if reply.Ended > 0 {
		short, caller := reply, ""
		short.IDs = r.IDs[:min(len(r.IDs), auditedIDs)]
		if r.Caller != nil {
			caller = *r.Caller
		}
		a.audit(by, "guard:"+cmp.Or(reply.Key, r.User, caller), short)
	}
	return reply, nil
}

// listPermits lists the permits of all nodes, by id.
func listPermits(v Verb, r request) ([]byte, *wire.Error) {
	req, err := api.VerbGuardPermits.Parse("", r.body)
	if err != nil {
		return nil, err
	}
	var all api.GuardPermitList
	var pages []api.PageOf[api.GuardPermit]
	failed, err := gatherNodes(v, r, func(_ string, part api.GuardPermitList) {
		all.Total += part.Total
		all.Keys, all.Callers = append(all.Keys, part.Keys...), append(all.Callers, part.Callers...)
		pages = append(pages, part.Page())
	})
	if err != nil {
		return nil, err
	}
	all.Missing = nodes(failed)
	all.Keys, all.Callers = api.MostPermits(all.Keys), api.MostPermits(all.Callers)
	merge(all.Page(), pages, req.Limit, func(a, b api.GuardPermit) int { return cmp.Compare(a.ID, b.ID) })
	return v.a.encode(&all)
}

// nodes returns the names of the nodes that failed.
func nodes(failed []failure) (names []string) {
	for _, f := range failed {
		names = append(names, f.node)
	}
	return names
}

// endPermits ends permits at all nodes. Each node records what it ended in its audit log.
func endPermits(v Verb, r request) ([]byte, *wire.Error) {
	var all api.GuardEndReply
	failed, err := gatherNodes(v, r, func(_ string, part api.GuardEndReply) {
		part.Ended += all.Ended
		all = part
	})
	if err != nil {
		return nil, err
	}
	all.Missing = nodes(failed)
	return v.a.encode(all)
}
