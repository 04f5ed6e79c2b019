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
)

// Peers are the nodes of a cluster. Ask may be called from any goroutine.
type Peers interface {
	// Ask has the node that owns a shard carry out a request of a client with the tail of
	// its subject, by [Admin.Here], and waits until ctx ends. It returns the reply as it
	// is, and the shards of that node. A refusal by it is a *wire.Error; after any other
	// error but the end of ctx nobody has got the request.
	Ask(ctx context.Context, shard int, verb, client, tail string, body []byte) (reply []byte, shards []int, err error)
	// AskNode is Ask for a node, whatever it owns.
	AskNode(ctx context.Context, node, verb, client, tail string, body []byte) (reply []byte, err error)
}

const (
	// forwardTimeout is for verbs that take their time, such as a redrive.
	forwardTimeout = time.Minute
	// askTimeout is for one of the nodes that all are asked, gatherTimeout for all of
	// them.
	askTimeout    = 2 * time.Second
	gatherTimeout = 5 * time.Second
)

// request is one of a client, "" if it is not known, with the tail of its subject.
type request struct {
	verb, client, tail string
	body               []byte
}

// Here carries out a request that another node has sent to this one, and returns which
// shards the reply is about.
func (a *Admin) Here(verb, client, tail string, body []byte) (reply []byte, shards []int, err *wire.Error) {
	if verb == shard.ParcelVerb {
		reply, err = a.shards.Receive(body)
		return reply, a.shards.Numbers(), err
	}
	i := slices.IndexFunc(a.table, func(v Verb) bool { return v.Name == verb })
	if i < 0 { // a newer node has it
		return nil, nil, wire.BadSubject(verb)
	}
	shards = a.shards.Numbers()
	v := a.table[i]
	reply, err = v.here(v.request(client, tail, body))
	return reply, shards, err
}

// anywhere carries out a request where it belongs: at the owner of the queue that it is
// about, at all nodes, or here.
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

// forward has the owner of a shard carry out a request about a queue of it.
func (a *Admin) forward(shard int, queue string, r request) ([]byte, *wire.Error) {
	ctx, cancel := context.WithTimeout(context.Background(), forwardTimeout)
	defer cancel()
	reply, _, err := a.peers.Ask(ctx, shard, r.verb, r.client, r.tail, r.body)
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
	return nil, wire.NoOwner(queue)
}

// everywhere has all nodes carry out a request, this one first, and calls each with
// their answers while it returns true. It returns the shards that nobody has answered
// for.
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
	return a.peers.Ask(ctx, shard, r.verb, r.client, r.tail, r.body)
}

// find asks all nodes until one knows. unknown tells the answers of those that do not.
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

func noMessage(_ []byte, err *wire.Error) bool {
	return err != nil && err.ErrCode == wire.CodeMessageNotFound
}

// unexplained tells the explanation of a message that no queue has.
func unexplained(reply []byte, err *wire.Error) bool {
	var e wire.ExplainMessage
	return err == nil && json.Unmarshal(reply, &e) == nil && e.State == wire.StateUnknown
}

// sum asks all nodes how a gate stands, and adds up what waits at it. The gate itself
// stands as it does at the first node that knows it.
func sum[Info any](notFound int, waiting func(*Info) (queues *int, messages *int64, most *[]wire.WaitingQueue)) func(Verb, request) ([]byte, *wire.Error) {
	return func(v Verb, r request) ([]byte, *wire.Error) {
		var total *Info
		var refused *wire.Error
		v.everywhere(r, func(reply []byte, err *wire.Error) bool {
			info := new(Info)
			if err == nil && json.Unmarshal(reply, info) != nil {
				return true // a newer node says it in another way
			}
			switch {
			case err != nil && err.ErrCode != notFound:
				refused = err
				return total != nil // others ask as well, and are told the same
			case err != nil:
				refused = cmp.Or(refused, err)
			case total == nil:
				total = info
			default:
				queues, messages, most := waiting(total)
				more, moreMessages, others := waiting(info)
				*queues, *messages, *most = *queues+*more, *messages+*moreMessages, mostWaiting(append(*most, *others...))
			}
			return true
		})
		if total == nil {
			return nil, refused
		}
		return encode(total)
	}
}

func throttleWaiting(i *wire.ThrottleInfo) (*int, *int64, *[]wire.WaitingQueue) {
	return &i.Waiting, &i.WaitingMessages, &i.WaitingQueues
}

func circuitWaiting(i *wire.CircuitInfo) (*int, *int64, *[]wire.WaitingQueue) {
	return &i.Waiting, &i.WaitingMessages, &i.WaitingQueues
}

// listQueues lists the queues of all nodes, by name.
func listQueues(v Verb, r request) ([]byte, *wire.Error) {
	req, err := wire.ParseQueueList(r.body)
	if err != nil {
		return nil, err
	}
	list := wire.QueueList{Queues: []wire.QueueSummary{}, Next: req.After}
	for skip, more := req.Offset, true; more && len(list.Queues) < req.Limit; {
		limit := min(skip+req.Limit-len(list.Queues), wire.MaxListLimit)
		page, err := pageOfQueues(v, r, wire.QueueListRequest{ListRequest: wire.ListRequest{After: list.Next, Limit: limit}, Detail: req.Detail})
		if err != nil {
			return nil, err
		}
		skipped := min(skip, len(page.Queues))
		skip -= skipped
		list.Queues = append(list.Queues, page.Queues[skipped:]...)
		list.Total, list.Next, list.Missing = page.Total, page.Next, page.Missing
		more = page.Next != ""
	}
	data, err := encode(list)
	if err == nil && int64(len(data)) > v.most() {
		return encode(list.Shorten(int(v.most())))
	}
	return data, err
}

// pageOfQueues puts a page together of those of all nodes. They may be shorter than was
// asked for: beyond the end of any that goes on, there may be others.
func pageOfQueues(v Verb, r request, req wire.QueueListRequest) (page wire.QueueList, err *wire.Error) {
	if r.body, err = encode(req); err != nil {
		return page, err
	}
	end := ""
	page.Missing = v.everywhere(r, func(reply []byte, refused *wire.Error) bool {
		var part wire.QueueList
		if refused != nil || json.Unmarshal(reply, &part) != nil {
			err = cmp.Or(refused, wire.Internal("a list of queues cannot be read"))
			return false
		}
		page.Total += part.Total
		page.Queues = append(page.Queues, part.Queues...)
		if part.Next != "" && (end == "" || part.Next < end) {
			end = part.Next
		}
		return true
	})
	if err != nil {
		return page, err
	}
	byName := func(a, b wire.QueueSummary) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(page.Queues, byName)
	// One that has been handed over meanwhile is there twice.
	page.Queues = slices.CompactFunc(page.Queues, func(a, b wire.QueueSummary) bool { return a.Name == b.Name })
	if end != "" {
		page.Queues = slices.DeleteFunc(page.Queues, func(q wire.QueueSummary) bool { return q.Name > end })
		page.Next = end
	}
	if len(page.Queues) > req.Limit {
		page.Queues = page.Queues[:req.Limit]
		page.Next = page.Queues[req.Limit-1].Name
	}
	return page, nil
}

// reloadAll has all nodes reload, each its own file, this one first: what is wrong in its
// file is likely wrong in the others.
func reloadAll(v Verb, r request) ([]byte, *wire.Error) {
	data, err := v.here(r)
	if err != nil || v.a.cluster == nil {
		return data, err
	}
	all := wire.ReloadReply{Changes: []string{}}
	add := func(node string, data []byte) {
		var reply wire.ReloadReply
		if err := json.Unmarshal(data, &reply); err != nil {
			all.NotReloaded = append(all.NotReloaded, node+": its answer cannot be read")
			return
		}
		all.DryRun = reply.DryRun
		all.Nodes = append(all.Nodes, node)
		for _, line := range reply.Changes {
			all.Changes = append(all.Changes, node+": "+line)
		}
	}
	add(v.a.node, data)
	ctx, cancel := context.WithTimeout(context.Background(), gatherTimeout)
	defer cancel()
	for _, n := range v.a.cluster.Status().Nodes {
		if n.Node == v.a.node {
			continue
		}
		data, err := v.a.peers.AskNode(ctx, n.Node, r.verb, r.client, r.tail, r.body)
		if err != nil {
			all.NotReloaded = append(all.NotReloaded, n.Node+": "+why(err))
			continue
		}
		add(n.Node, data)
	}
	return encode(all)
}

// why says in a sentence why a node has not done something.
func why(err error) string {
	var refused *wire.Error
	if errors.As(err, &refused) {
		return refused.Description
	}
	return "the node does not answer"
}

// encode is a reply as it is sent.
func encode(reply any) ([]byte, *wire.Error) {
	data, err := json.Marshal(reply)
	if err != nil {
		return nil, wire.Internal(err.Error())
	}
	return data, nil
}
