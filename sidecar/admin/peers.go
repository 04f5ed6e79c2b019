package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Peers are the nodes of a cluster. Ask may be called from any goroutine.
type Peers interface {
	// Ask sends a request to the owner of a shard, which carries it out by
	// [Admin.Here], and waits for the reply until ctx ends. It returns the unchanged reply
	// and the shards of that node. A refusal is a *wire.Error. After another error, except
	// the end of ctx, no node received the request.
	Ask(ctx context.Context, by api.Sender, shard int, verb, tail string, body []byte) (reply []byte, shards []int, err error)
	// AskNode is Ask for a node by name.
	AskNode(ctx context.Context, by api.Sender, node, verb, tail string, body []byte) (reply []byte, err error)
}

const (
	// forwardTimeout is long because some verbs wait, such as a redrive.
	forwardTimeout = time.Minute
	// askTimeout bounds the wait for one node of a request to all nodes, gatherTimeout for
	// all of them.
	askTimeout    = 2 * time.Second
	gatherTimeout = 5 * time.Second
)

// Here carries out a request from another node at this node, and returns the shards of this
// node.
func (a *Admin) Here(by api.Sender, verb, tail string, body []byte) (reply []byte, shards []int, err *wire.Error) {
	if verb == shard.TransferVerb {
		reply, err = a.shards.Receive(body)
		return reply, a.shards.Numbers(), err
	}
	v, ok := a.verb(verb)
	if !ok { // a newer node has it
		return nil, nil, wire.BadSubject(verb)
	}
	shards = a.shards.Numbers()
	reply, err = v.here(v.request(by, tail, body))
	return reply, shards, err
}

// anywhere carries out a request at the owner of its queue, at all nodes, or here.
func (v Verb) anywhere(r request) ([]byte, *wire.Error) {
	name := ""
	if v.about != nil {
		name = v.about(r.tail, r.body)
	}
	switch {
	case wire.CheckQueueName(name) == nil:
		if home := v.a.shards.Home(name); v.a.shards.Shard(home) == nil {
			return v.a.forward(home, name, r)
		}
	case v.gather != nil:
		return v.gather(v, r)
	}
	return v.here(r)
}

// forward sends a request about a queue to the owner of the queue's shard.
func (a *Admin) forward(shard int, queue string, r request) ([]byte, *wire.Error) {
	ctx, cancel := context.WithTimeout(context.Background(), forwardTimeout)
	defer cancel()
	reply, _, err := a.peers.Ask(ctx, r.by, shard, r.verb, r.tail, r.body)
	var refused *wire.Error
	switch {
	case err == nil:
		return reply, nil
	case errors.As(err, &refused):
		return nil, refused
	case errors.Is(err, context.DeadlineExceeded):
		return nil, wire.OutcomeUnknown()
	}
	a.log.Debug("a request finds no owner", "verb", r.verb, "queue", queue, "shard", shard, "error", err)
	if a.cluster != nil && a.cluster.LogLost(shard) {
		return nil, wire.LogLost(queue)
	}
	return nil, wire.NoOwner(queue)
}

// everywhere carries out a request at all nodes, this node first, and calls each with every reply
// until that returns false. It returns the shards that did not answer.
func (v Verb) everywhere(r request, each func(reply []byte, err *wire.Error) bool) (missing []int) {
	ctx, cancel := context.WithTimeout(context.Background(), gatherTimeout)
	defer cancel()
	asked := v.a.shards.Numbers()
	if reply, err := v.here(r); !each(reply, err) {
		return nil
	}
	for number := range v.a.shards.Placement.Shards() {
		if slices.Contains(asked, number) {
			continue
		}
		reply, shards, err := v.a.ask(ctx, number, r)
		var refused *wire.Error
		if err != nil && !errors.As(err, &refused) || !slices.Contains(shards, number) { // fenced; it may be this node
			missing = append(missing, number)
			continue
		}
		asked = append(asked, shards...)
		if !each(reply, refused) {
			return nil
		}
	}
	return missing
}

func (a *Admin) ask(ctx context.Context, shard int, r request) ([]byte, []int, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return a.peers.Ask(ctx, r.by, shard, r.verb, r.tail, r.body)
}

// find asks all nodes until one knows the object. unknown recognises the replies of nodes
// that do not know it.
func find(unknown func(reply []byte, err *wire.Error) bool) func(Verb, request) ([]byte, *wire.Error) {
	return func(v Verb, r request) (reply []byte, werr *wire.Error) {
		first, found := true, false
		missing := v.everywhere(r, func(data []byte, err *wire.Error) bool {
			found = !unknown(data, err)
			if first || found {
				reply, werr = data, err
			}
			first = false
			return !found
		})
		if !found && len(missing) > 0 {
			return nil, wire.ShardsMissing(missing)
		}
		return reply, werr
	}
}

// refusedBy recognises refusals with a number.
func refusedBy(errCode int) func([]byte, *wire.Error) bool {
	return func(_ []byte, err *wire.Error) bool { return err != nil && err.ErrCode == errCode }
}

// unexplained recognises the explanation of a message that no queue has.
func unexplained(reply []byte, err *wire.Error) bool {
	var e api.ExplainMessage
	return err == nil && json.Unmarshal(reply, &e) == nil && e.State == api.StateUnknown
}

// sum asks all nodes for a gate. The state is from the first node that knows it, and add adds what
// another node knows.
func sum[Info any](notFound int, add func(to, from *Info)) func(Verb, request) ([]byte, *wire.Error) {
	return func(v Verb, r request) ([]byte, *wire.Error) {
		var total *Info
		var refused *wire.Error
		v.everywhere(r, func(reply []byte, err *wire.Error) bool {
			info := new(Info)
			if err == nil && json.Unmarshal(reply, info) != nil {
				return true // of a newer node in another form
			}
			switch {
			case err != nil && err.ErrCode != notFound:
				refused = err
				return total != nil // the other nodes would refuse it as well
			case err != nil:
				refused = cmp.Or(refused, err)
			case total == nil:
				total = info
			default:
				add(total, info)
			}
			return true
		})
		if total == nil {
			return nil, refused
		}
		return v.a.encode(total)
	}
}

// addThrottle adds what a throttle blocks at another node, or the keys of a prefix.
func addThrottle(to, from *api.ThrottleInfo) {
	to.Waiting, to.WaitingMessages = to.Waiting+from.Waiting, to.WaitingMessages+from.WaitingMessages
	to.WaitingQueues = mostWaiting(append(to.WaitingQueues, from.WaitingQueues...))
	for _, k := range from.WaitingKeys { // a key may block queues of several nodes
		if i := slices.IndexFunc(to.WaitingKeys, func(had api.WaitingKey) bool { return had.Key == k.Key }); i >= 0 {
			to.WaitingKeys[i].Messages += k.Messages
		} else {
			to.WaitingKeys = append(to.WaitingKeys, k)
		}
	}
	to.WaitingKeys = mostWaitingKeys(to.WaitingKeys)
}

// addCircuit adds what a circuit blocks at another node, and the failures that this has seen. All nodes
// see the same changes.
func addCircuit(to, from *api.CircuitInfo) {
	to.Waiting, to.WaitingMessages = to.Waiting+from.Waiting, to.WaitingMessages+from.WaitingMessages
	to.WaitingQueues = mostWaiting(append(to.WaitingQueues, from.WaitingQueues...))
	if from.LastFailure != nil && (to.LastFailure == nil || from.LastFailure.At > to.LastFailure.At) {
		to.LastFailure = from.LastFailure
	}
	if from.Openings != nil && (to.Openings == nil || from.Openings.Count > to.Openings.Count) {
		to.Openings = from.Openings // this node has known the circuit for longer
	}
	switch {
	case from.History == nil:
		return
	case to.History == nil:
		to.History = from.History
		return
	case len(from.History.Changes) > len(to.History.Changes):
		to.History.Changes = from.History.Changes
	}
	to.History.Since = min(to.History.Since, from.History.Since)
	to.History.Failures = mergeMinutes(to.History.Failures, from.History.Failures, func(f api.CircuitFailures) string { return f.Minute },
		func(to *api.CircuitFailures, from api.CircuitFailures) { to.Failures += from.Failures })
	to.History.Openings = mergeMinutes(to.History.Openings, from.History.Openings, func(o api.CircuitOpened) string { return o.Minute },
		func(to *api.CircuitOpened, from api.CircuitOpened) { to.Openings = max(to.Openings, from.Openings) })
}

// mergeMinutes merges counts by minute, which are sorted; add merges two of one minute.
func mergeMinutes[Count any](to, from []Count, minute func(Count) string, add func(to *Count, from Count)) []Count {
	for _, c := range from {
		i, found := slices.BinarySearchFunc(to, c, func(a, b Count) int { return cmp.Compare(minute(a), minute(b)) })
		if found {
			add(&to[i], c)
		} else {
			to = slices.Insert(to, i, c)
		}
	}
	return to
}

// verb returns the verb of a name.
func (a *Admin) verb(name string) (Verb, bool) {
	i := slices.IndexFunc(a.table, func(v Verb) bool { return v.String() == name })
	if i < 0 {
		return Verb{}, false
	}
	return a.table[i], true
}

// merge merges pages of several nodes into one of up to limit items. If a node has more items,
// the items after the last one of its page wait for the next page: others may come before them.
// An item may be on two pages, if its queue was handed over meanwhile.
func merge[Item any](into api.PageOf[Item], pages []api.PageOf[Item], limit int, compare func(a, b Item) int) {
	all := []Item{}
	var end *Item
	for _, p := range pages {
		items := *p.Items
		all = append(all, items...)
		if n := len(items); *p.Next != "" && n > 0 && (end == nil || compare(items[n-1], *end) < 0) {
			end = &items[n-1]
		}
	}
	slices.SortFunc(all, compare)
	all = slices.CompactFunc(all, func(a, b Item) bool { return compare(a, b) == 0 })
	if end != nil {
		all = slices.DeleteFunc(all, func(i Item) bool { return compare(i, *end) > 0 })
	}
	if cut := len(all) > limit; cut || end != nil {
		all = all[:min(limit, len(all))]
		*into.Next = into.Cursor(&all[len(all)-1])
	}
	*into.Items = all
}

// gather carries out a request at all shards and calls each with every reply. It returns the
// shards that did not answer.
func gather[Reply any](v Verb, r request, each func(Reply)) (missing []int, err *wire.Error) {
	missing = v.everywhere(r, func(data []byte, refused *wire.Error) bool {
		var reply Reply
		if err = refused; err == nil {
			err = decode(data, &reply)
		}
		if err == nil {
			each(reply)
		}
		return err == nil
	})
	return missing, err
}

// failure is why a node did not carry out a request.
type failure struct{ node, why string }

// gatherNodes carries out a request at all nodes of a cluster, this node first, and calls each
// with every reply. It returns the nodes that failed. A refusal by this node is the
// refusal of the request.
func gatherNodes[Reply any](v Verb, r request, each func(node string, reply Reply)) (failed []failure, err *wire.Error) {
	data, err := v.here(r)
	if err != nil {
		return nil, err
	}
	take := func(node string, data []byte) *wire.Error {
		var reply Reply
		err := decode(data, &reply)
		if err == nil {
			each(node, reply)
		}
		return err
	}
	if err := take(v.a.node, data); err != nil || v.a.cluster == nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), gatherTimeout)
	defer cancel()
	for _, n := range v.a.cluster.Status().Nodes {
		if n.Node == v.a.node {
			continue
		}
		data, err := v.a.peers.AskNode(ctx, r.by, n.Node, r.verb, r.tail, r.body)
		var refused *wire.Error
		switch {
		case errors.As(err, &refused):
		case err != nil:
			failed = append(failed, failure{n.Node, "the node does not answer"})
			continue
		default:
			refused = take(n.Node, data)
		}
		if refused != nil {
			failed = append(failed, failure{n.Node, refused.Description})
		}
	}
	return failed, nil
}

// listQueues lists the queues of all nodes, by name.
func listQueues(v Verb, r request) ([]byte, *wire.Error) {
	req, err := api.VerbQueueList.Parse("", r.body)
	if err != nil {
		return nil, err
	}
	list := api.QueueList{Queues: []api.QueueSummary{}, Next: req.After}
	for skip, more := req.Offset, true; more && len(list.Queues) < req.Limit; {
		limit := min(skip+req.Limit-len(list.Queues), api.MaxListLimit)
		page, err := pageOfQueues(v, r, api.QueueListRequest{ListRequest: api.ListRequest{After: list.Next, Limit: limit}, Detail: req.Detail, Tenants: req.Tenants, Sampled: req.Sampled})
		if err != nil {
			return nil, err
		}
		skipped := min(skip, len(page.Queues))
		skip -= skipped
		list.Queues = append(list.Queues, page.Queues[skipped:]...)
		list.Total, list.Next, list.Missing = page.Total, page.Next, page.Missing
		more = page.Next != ""
	}
	return v.a.encode(&list)
}

// pageOfQueues merges the pages of all nodes. It may be shorter than requested.
func pageOfQueues(v Verb, r request, req api.QueueListRequest) (all api.QueueList, err *wire.Error) {
	if r.body, err = v.a.encode(req); err != nil {
		return all, err
	}
	return gatherPage(v, r, (*api.QueueList).Page, req.Limit, func(a, b api.QueueSummary) int { return cmp.Compare(a.Name, b.Name) })
}

// gatherPage merges the pages of all shards.
func gatherPage[Reply, Item any](v Verb, r request, pageOf func(*Reply) api.PageOf[Item], limit int, compare func(a, b Item) int) (all Reply, err *wire.Error) {
	whole := pageOf(&all)
	var pages []api.PageOf[Item]
	*whole.Missing, err = gather(v, r, func(part Reply) {
		page := pageOf(&part)
		*whole.Total += *page.Total
		pages = append(pages, page)
	})
	merge(whole, pages, limit, compare)
	return all, err
}

// listAll lists the items of all shards in their order.
func listAll[Req, Reply, Item any](
	verb *api.Verb[Req, Reply], pageOf func(*Reply) api.PageOf[Item], limit func(Req) int, compare func(a, b Item) int,
) func(Verb, request) ([]byte, *wire.Error) {
	return func(v Verb, r request) ([]byte, *wire.Error) {
		req, err := verb.Parse("", r.body)
		if err != nil {
			return nil, err
		}
		all, err := gatherPage(v, r, pageOf, limit(req), compare)
		if err != nil {
			return nil, err
		}
		return v.a.encode(&all)
	}
}

// reloadAll makes all nodes reload, each its own file, this node first: a mistake in its file
// is likely in the others as well.
func reloadAll(v Verb, r request) ([]byte, *wire.Error) {
	if v.a.cluster == nil {
		return v.here(r)
	}
	all := api.ReloadReply{Changes: []string{}}
	failed, err := gatherNodes(v, r, func(node string, reply api.ReloadReply) {
		all.DryRun = reply.DryRun
		all.Nodes = append(all.Nodes, node)
		for _, line := range reply.Changes {
			all.Changes = append(all.Changes, node+": "+line)
		}
	})
	if err != nil {
		return nil, err
	}
	for _, f := range failed {
		all.NotReloaded = append(all.NotReloaded, f.node+": "+f.why)
	}
	return v.a.encode(all)
}

// decode decodes the reply of a node.
func decode(data []byte, reply any) *wire.Error {
	if json.Unmarshal(data, reply) != nil {
		return wire.Internal("the reply of a node of the cluster cannot be read")
	}
	return nil
}
