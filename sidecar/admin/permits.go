package admin

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/filaq/fila/wire"
)

// Permits are those of the guard. Its methods may be called from any goroutine.
type Permits interface {
	Permits(r wire.GuardPermitsRequest) wire.GuardPermitList
	EndPermits(r wire.GuardEndRequest) (ended int64)
}

func (a *Admin) guardPermits(r wire.GuardPermitsRequest) wire.GuardPermitList {
	return a.permits.Permits(r)
}

func (a *Admin) guardEnd(r wire.GuardEndRequest) wire.GuardEndReply {
	reply := wire.GuardEndReply{GuardEndRequest: r, Ended: a.permits.EndPermits(r)}
	reply.Key = wire.ShowKey(r.Key)
	return reply
}

// atNodes has all nodes of a cluster carry out a request, this one first, and calls each
// with their replies. It returns the nodes that have not answered.
func (v Verb) atNodes(r request, each func(reply []byte) *wire.Error) (missing []string, err *wire.Error) {
	data, err := v.here(r)
	if err == nil {
		err = each(data)
	}
	if err != nil || v.a.cluster == nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), gatherTimeout)
	defer cancel()
	for _, n := range v.a.cluster.Status().Nodes {
		if n.Node == v.a.node {
			continue
		}
		data, failed := v.a.peers.AskNode(ctx, n.Node, r.verb, r.client, r.tail, r.body)
		if failed != nil || each(data) != nil {
			missing = append(missing, n.Node)
		}
	}
	return missing, nil
}

// listPermits lists the permits of all nodes, by id.
func listPermits(v Verb, r request) ([]byte, *wire.Error) {
	req, err := wire.ParseGuardPermits(r.body)
	if err != nil {
		return nil, err
	}
	var pages []wire.GuardPermitList
	missing, err := v.atNodes(r, func(reply []byte) *wire.Error {
		var page wire.GuardPermitList
		if json.Unmarshal(reply, &page) != nil {
			return wire.Internal("a list of permits cannot be read")
		}
		pages = append(pages, page)
		return nil
	})
	if err != nil {
		return nil, err
	}
	all := wire.MergePermits(pages, req.Limit)
	all.Missing = missing
	data, err := encode(all)
	if err == nil && int64(len(data)) > v.most() {
		return encode(all.Shorten(int(v.most())))
	}
	return data, err
}

// endPermits ends permits at all nodes. Each has what it did in its audit log.
func endPermits(v Verb, r request) ([]byte, *wire.Error) {
	var all wire.GuardEndReply
	missing, err := v.atNodes(r, func(reply []byte) *wire.Error {
		ended := all.Ended
		if json.Unmarshal(reply, &all) != nil {
			return wire.Internal("how many permits were ended cannot be read")
		}
		all.Ended += ended
		return nil
	})
	if err != nil {
		return nil, err
	}
	all.Missing = missing
	return encode(all)
}

// auditedIDs is how many of the ids of permits that were ended the audit log names.
const auditedIDs = 10

// auditPermits returns what the audit log says of a reply to guard-end.
func auditPermits(reply []byte) (what, done string) {
	var r wire.GuardEndReply
	_ = json.Unmarshal(reply, &r) // it is what was encoded a moment ago
	caller := ""
	if r.Caller != nil {
		caller = *r.Caller
	}
	what = "guard:" + cmp.Or(r.Key, r.User, caller)
	r.IDs = r.IDs[:min(len(r.IDs), auditedIDs)]
	short, err := json.Marshal(r)
	if err != nil {
		return what, string(reply)
	}
	return what, string(short)
}
