package client

import (
	"cmp"
	"context"

	"github.com/filaq/fila/wire/api"
)

// ConfigSet sets a key of the runtime configuration. If ifValue is not nil, it
// must be the present value; otherwise it is a conflict (409).
func (c *Client) ConfigSet(ctx context.Context, key, value string, ifValue *string) (api.ConfigSetReply, error) {
	return Call(ctx, c, api.VerbConfigSet, key, api.ConfigSetRequest{Value: value, IfValue: ifValue})
}

// ConfigEdit changes several keys of the runtime configuration: all of them or none. If a
// value is not as expected, it is a conflict (409).
func (c *Client) ConfigEdit(ctx context.Context, req api.ConfigEditRequest) (api.ConfigEditReply, error) {
	return Call(ctx, c, api.VerbConfigEdit, "", req)
}

// ConfigGet returns a key of the runtime configuration.
func (c *Client) ConfigGet(ctx context.Context, key string) (api.ConfigEntry, error) {
	return Call(ctx, c, api.VerbConfigGet, key, api.Empty{})
}

// ConfigDelete deletes a key and returns its value.
func (c *Client) ConfigDelete(ctx context.Context, key string) (api.ConfigEntry, error) {
	return Call(ctx, c, api.VerbConfigDelete, key, api.Empty{})
}

// ConfigList returns all keys that start with prefix, in order.
func (c *Client) ConfigList(ctx context.Context, prefix string) ([]api.ConfigEntry, error) {
	return list(ctx, c, api.VerbConfigList, (*api.ConfigList).Page, func(from place) api.KeyListRequest { return from.keys(prefix) })
}

// ConfigLog returns the newest changes of keys that start with prefix, newest
// first, up to limit of them, or all that fila keeps if limit is 0.
func (c *Client) ConfigLog(ctx context.Context, prefix string, limit int) ([]api.ConfigLogEntry, error) {
	log, err := c.ConfigLogPage(ctx, prefix, limit)
	return log.Entries, err
}

// ConfigLogPage is [Client.ConfigLog] with Total, the number of changes that fila keeps of
// these keys.
func (c *Client) ConfigLogPage(ctx context.Context, prefix string, limit int) (log api.ConfigLog, err error) {
	size := api.MaxListLimit
	if limit > 0 {
		size = min(size, limit)
	}
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	entries := []api.ConfigLogEntry{}
	for body := (api.KeyListRequest{Prefix: prefix, Limit: size}); ; {
		page, err := Call(ctx, c, api.VerbConfigLog, "", body)
		if err != nil {
			return log, err
		}
		if len(entries) == 0 { // later pages count what has come meanwhile
			log.Total = page.Total
		}
		for _, entry := range page.Entries {
			// By offset, a change meanwhile moves entries to the next page.
			if n := len(entries); n == 0 || entry.Seq < entries[n-1].Seq {
				entries = append(entries, entry)
			}
		}
		body.Offset += len(page.Entries)
		switch {
		case limit > 0 && len(entries) >= limit:
			log.Entries = entries[:limit]
			return log, nil
		case page.Next != "":
			body.After, body.Offset = page.Next, 0
		case body.After != "" || len(page.Entries) == 0 || body.Offset >= page.Total:
			log.Entries = entries
			return log, nil
		} // else: fila is too old to return next
	}
}

// Annotate marks a time, such as a release, on the charts of a queue or of all.
func (c *Client) Annotate(ctx context.Context, what api.AnnotateRequest) (api.Mark, error) {
	return Call(ctx, c, api.VerbAnnotate, "", what)
}

// Marks returns what happened in the last hour to a queue and the gates that blocked its messages,
// or to a throttle or circuit: annotations, pauses, changes of limits and hooks, openings of
// circuits. A limit of 0 is the server's default.
func (c *Client) Marks(ctx context.Context, what api.MarksRequest) (api.Marks, error) {
	what.Limit = cmp.Or(what.Limit, api.DefaultMarks)
	what.WindowMs = cmp.Or(what.WindowMs, api.MaxMarksWindowMs)
	return Call(ctx, c, api.VerbMarks, "", what)
}

// ThrottleSet changes the limits of a throttle key at once, also for messages that wait already,
// and returns the key's new state.
func (c *Client) ThrottleSet(ctx context.Context, change ThrottleChange) (api.ThrottleInfo, error) {
	return Call(ctx, c, api.VerbThrottleSet, change.Key, change.request())
}

// ThrottleClear removes all limits of a throttle key, an override included, and returns the
// key's new state. Messages that the limits blocked may go.
func (c *Client) ThrottleClear(ctx context.Context, key string) (api.ThrottleInfo, error) {
	return Call(ctx, c, api.VerbThrottleClear, key, api.GateKeyRequest{})
}

// ThrottleShow returns the limits and the state of a throttle key.
func (c *Client) ThrottleShow(ctx context.Context, key string) (api.ThrottleInfo, error) {
	return Call(ctx, c, api.VerbThrottleShow, key, api.GateKeyRequest{})
}

// ThrottleList returns the throttle keys that start with prefix, in order:
// those with limits, and those that messages name.
func (c *Client) ThrottleList(ctx context.Context, prefix string) ([]api.ThrottleInfo, error) {
	return list(ctx, c, api.VerbThrottleList, (*api.ThrottleList).Page, func(from place) api.KeyListRequest { return from.keys(prefix) })
}

// BudgetList returns the budgets of the throttle keys that start with prefix and were used in their
// present period, in order.
func (c *Client) BudgetList(ctx context.Context, prefix string) ([]api.BudgetInfo, error) {
	return list(ctx, c, api.VerbBudgetList, (*api.BudgetList).Page, func(from place) api.KeyListRequest { return from.keys(prefix) })
}

// BudgetShow returns the budget of a throttle key.
func (c *Client) BudgetShow(ctx context.Context, key string) (api.BudgetInfo, error) {
	return Call(ctx, c, api.VerbBudgetShow, key, api.GateKeyRequest{})
}

// BudgetTopUp adds an amount (cost) to the present period of a throttle key's budget.
func (c *Client) BudgetTopUp(ctx context.Context, key string, amount float64) (api.BudgetInfo, error) {
	return Call(ctx, c, api.VerbBudgetTopUp, key, api.BudgetTopUpRequest{Amount: amount})
}

// BudgetReset begins the present period of a throttle key's budget anew, with nothing used.
func (c *Client) BudgetReset(ctx context.Context, key string) (api.BudgetInfo, error) {
	return Call(ctx, c, api.VerbBudgetReset, key, api.GateKeyRequest{})
}

// CircuitShow returns the state of a circuit.
func (c *Client) CircuitShow(ctx context.Context, key string) (api.CircuitInfo, error) {
	return Call(ctx, c, api.VerbCircuitShow, key, api.GateKeyRequest{})
}

// CircuitOpen opens a circuit by hand for forMs milliseconds, or until it is
// closed by hand if forMs is 0. Its messages stay where they are.
func (c *Client) CircuitOpen(ctx context.Context, key string, forMs int64) (api.CircuitInfo, error) {
	return Call(ctx, c, api.VerbCircuitOpen, key, api.CircuitOpenRequest{ForMs: forMs})
}

// CircuitClose closes a circuit now, and sets its failures in a row to 0.
func (c *Client) CircuitClose(ctx context.Context, key string) (api.CircuitInfo, error) {
	return Call(ctx, c, api.VerbCircuitClose, key, api.GateKeyRequest{})
}

// CircuitReset closes a circuit now and forgets its failures, including those that
// max_failures counts.
func (c *Client) CircuitReset(ctx context.Context, key string) (api.CircuitInfo, error) {
	return Call(ctx, c, api.VerbCircuitReset, key, api.GateKeyRequest{})
}

// CircuitList returns the circuits whose keys start with prefix, in order.
func (c *Client) CircuitList(ctx context.Context, prefix string) ([]api.CircuitInfo, error) {
	return list(ctx, c, api.VerbCircuitList, (*api.CircuitList).Page, func(from place) api.CircuitListRequest {
		return api.CircuitListRequest{KeyListRequest: from.keys(prefix)}
	})
}

// Pause pauses a queue, a fairness key of a queue, a throttle key or a circuit until the
// time in the request, or until [Client.Resume]. Nothing of it is delivered meanwhile;
// deliveries in flight continue. Pauses survive restarts. A second pause replaces the end of
// the first.
func (c *Client) Pause(ctx context.Context, what api.PauseRequest) (api.PauseInfo, error) {
	return c.pause(ctx, api.VerbPause, what)
}

// Resume ends a pause, also one by max_failures, and returns it. The request has no time.
func (c *Client) Resume(ctx context.Context, what api.PauseRequest) (api.PauseInfo, error) {
	return c.pause(ctx, api.VerbResume, what)
}

func (c *Client) pause(ctx context.Context, v *api.Verb[api.PauseRequest, api.PauseInfo], what api.PauseRequest) (api.PauseInfo, error) {
	if what.Kind != api.PauseQueue {
		if err := checkGateKey(what.Name); err != nil {
			return api.PauseInfo{}, err
		}
	}
	return Call(ctx, c, v, "", what)
}

// Pauses returns the pauses in force.
func (c *Client) Pauses(ctx context.Context) ([]api.PauseInfo, error) {
	return list(ctx, c, api.VerbPauseList, (*api.PauseList).Page, place.list)
}

// GuardPermits returns a page of the permits of the guard that match a filter. The first
// page also says which keys and callers have the most. A limit of 0 is the server's default.
func (c *Client) GuardPermits(ctx context.Context, what api.GuardPermitsRequest) (api.GuardPermitList, error) {
	if err := checkPermitFilter(&what.PermitFilter); err != nil {
		return api.GuardPermitList{}, err
	}
	what.Limit = cmp.Or(what.Limit, api.DefaultListLimit)
	return Call(ctx, c, api.VerbGuardPermits, "", what)
}

// GuardEnd ends permits of the guard, by a filter or by their ids. It does not tell their
// circuits an outcome, and does not stop the calls: end only permits whose calls are over.
func (c *Client) GuardEnd(ctx context.Context, what api.GuardEndRequest) (api.GuardEndReply, error) {
	if err := checkPermitFilter(&what.PermitFilter); err != nil {
		return api.GuardEndReply{}, err
	}
	return Call(ctx, c, api.VerbGuardEnd, "", what)
}

// checkPermitFilter refuses a key that JSON would change on its way.
func checkPermitFilter(f *api.PermitFilter) error {
	if f.Key == "" {
		return nil
	}
	return checkGateKey(f.Key)
}

// Reload makes fila read its configuration file again and apply what can change
// while it runs: the rules about failures, throttles, circuits and queues. It is
// all or nothing. It returns the changes.
func (c *Client) Reload(ctx context.Context) (api.ReloadReply, error) {
	return Call(ctx, c, api.VerbReload, "", api.ReloadRequest{})
}

// ReloadDryRun returns what [Client.Reload] would change, and changes nothing.
func (c *Client) ReloadDryRun(ctx context.Context) (api.ReloadReply, error) {
	return Call(ctx, c, api.VerbReload, "", api.ReloadRequest{DryRun: true})
}

// StoreBackup makes fila write a copy of its store into the directory backups of
// its data directory, and returns when it is on disk. fila keeps working meanwhile. It
// takes as long as the disk needs for the whole file: give ctx a deadline that
// allows for it, as otherwise the client's timeout counts.
func (c *Client) StoreBackup(ctx context.Context) (api.StoreBackupReply, error) {
	return Call(ctx, c, api.VerbStoreBackup, "", api.Empty{})
}

// ClusterStatus returns the nodes and shards of the cluster, as the answering node knows
// them. A fila that is not in a cluster refuses it.
func (c *Client) ClusterStatus(ctx context.Context) (api.ClusterStatus, error) {
	return Call(ctx, c, api.VerbClusterStatus, "", api.Empty{})
}

// ClusterDrain makes a node hand over all its shards and take none until it restarts; with
// cancel it takes shards again. It returns as soon as the node knows.
func (c *Client) ClusterDrain(ctx context.Context, node string, cancel bool) (api.ClusterDrainReply, error) {
	return Call(ctx, c, api.VerbClusterDrain, "", api.ClusterDrainRequest{Node: node, Cancel: cancel})
}

// ClusterMove hands a shard over to a node, where it stays as long as the node is a member
// of the cluster. It returns as soon as the move has begun. If the node's copy is a second or
// more behind, it is a conflict (409).
func (c *Client) ClusterMove(ctx context.Context, shard int, node string) (api.ClusterMoveReply, error) {
	return Call(ctx, c, api.VerbClusterMove, "", api.ClusterMoveRequest{Shard: &shard, Node: node})
}

// ClusterVerify reads the log of a shard, or of all shards if shard is negative, and compares
// it with the copies of the nodes. It may take minutes.
func (c *Client) ClusterVerify(ctx context.Context, shard int) (api.ClusterVerifyReply, error) {
	var req api.ClusterVerifyRequest
	if shard >= 0 {
		req.Shard = &shard
	}
	return Call(ctx, c, api.VerbClusterVerify, "", req)
}

// ClusterRepair lets the log of a shard go on from the most advanced copy that can be asked,
// and gives up the records that only other nodes have, which must be loss. With dryRun it
// only returns what the log lacks. If the log lacks nothing, it is a conflict (409).
func (c *Client) ClusterRepair(ctx context.Context, shard int, loss uint64, dryRun bool) (api.ClusterLoss, error) {
	return Call(ctx, c, api.VerbClusterRepair, "", api.ClusterLossRequest{Shard: &shard, Loss: loss, DryRun: dryRun})
}

// ClusterAccept gives up the records that the log of a shard lacks and that no node which can
// be asked has, which must be loss, so that a node without them can own the shard. With
// dryRun it only returns what the log lacks. If a node has them, or the log lacks nothing, it
// is a conflict (409).
func (c *Client) ClusterAccept(ctx context.Context, shard int, loss uint64, dryRun bool) (api.ClusterLoss, error) {
	return Call(ctx, c, api.VerbClusterAccept, "", api.ClusterLossRequest{Shard: &shard, Loss: loss, DryRun: dryRun})
}
