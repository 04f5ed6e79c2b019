package client

import (
	"context"

	"github.com/filaq/fila/wire"
)

// ThrottleSet changes the limits of the throttle key change.Key at once, for
// what waits already, too, and returns how the key stands then. Limits that are
// nil stay. A key that ends in '*' is a prefix: it limits every key that begins
// so and has no limits of its own, each on its own. With ForMs the change is an
// override that ends by itself. If change.If does not match it is a conflict
// (409).
func (c *Client) ThrottleSet(ctx context.Context, change ThrottleChange) (ThrottleInfo, error) {
	if err := checkGateKey(change.Key); err != nil {
		return ThrottleInfo{}, err
	}
	var tail string
	tail, change.Key = wire.KeyTail(change.Key)
	return admin[ThrottleInfo](ctx, c, wire.VerbThrottleSet, tail, change)
}

// ThrottleClear takes all limits of a throttle key away, an override included,
// and returns how the key stands then. What waits for it goes.
func (c *Client) ThrottleClear(ctx context.Context, key string) (ThrottleInfo, error) {
	return aboutGate[ThrottleInfo](ctx, c, wire.VerbThrottleClear, key)
}

// ThrottleShow returns the limits of a throttle key and how its gate stands.
func (c *Client) ThrottleShow(ctx context.Context, key string) (ThrottleInfo, error) {
	return aboutGate[ThrottleInfo](ctx, c, wire.VerbThrottleShow, key)
}

// ThrottleList returns the throttle keys that start with prefix, in order:
// those with limits, and those that messages name.
func (c *Client) ThrottleList(ctx context.Context, prefix string) ([]ThrottleInfo, error) {
	return pages(ctx, c, func(ctx context.Context, from place) ([]ThrottleInfo, int, string, error) {
		page, err := keyList[ThrottleList](ctx, c, wire.VerbThrottleList, prefix, from)
		return page.Throttles, page.Total, page.Next, err
	})
}

// CircuitShow returns how the circuit of a circuit key stands.
func (c *Client) CircuitShow(ctx context.Context, key string) (CircuitInfo, error) {
	return aboutGate[CircuitInfo](ctx, c, wire.VerbCircuitShow, key)
}

// CircuitOpen opens a circuit by hand for forMs milliseconds, or until it is
// closed by hand if forMs is 0. Its messages stay where they are.
func (c *Client) CircuitOpen(ctx context.Context, key string, forMs int64) (CircuitInfo, error) {
	if err := checkGateKey(key); err != nil {
		return CircuitInfo{}, err
	}
	tail, bodyKey := wire.KeyTail(key)
	return admin[CircuitInfo](ctx, c, wire.VerbCircuitOpen, tail, wire.CircuitOpenRequest{Key: bodyKey, ForMs: forMs})
}

// CircuitClose closes a circuit now, with no failures in a row.
func (c *Client) CircuitClose(ctx context.Context, key string) (CircuitInfo, error) {
	return aboutGate[CircuitInfo](ctx, c, wire.VerbCircuitClose, key)
}

// CircuitReset closes a circuit now and forgets its failures, those that max_failures
// counts among them.
func (c *Client) CircuitReset(ctx context.Context, key string) (CircuitInfo, error) {
	return aboutGate[CircuitInfo](ctx, c, wire.VerbCircuitReset, key)
}

// CircuitList returns the circuits whose keys start with prefix, in order.
func (c *Client) CircuitList(ctx context.Context, prefix string) ([]CircuitInfo, error) {
	return pages(ctx, c, func(ctx context.Context, from place) ([]CircuitInfo, int, string, error) {
		page, err := keyList[CircuitList](ctx, c, wire.VerbCircuitList, prefix, from)
		return page.Circuits, page.Total, page.Next, err
	})
}

// Pause holds a queue, a fairness key of a queue, a throttle key or a circuit
// until the time that the request names, or until [Client.Resume]. Nothing of
// it is delivered meanwhile; what is in flight goes on. It is persisted. A
// second pause replaces the first one's end.
func (c *Client) Pause(ctx context.Context, what PauseRequest) (PauseInfo, error) {
	return c.pause(ctx, wire.VerbPause, what)
}

// Resume ends a pause, also one that max_failures set, and returns what it was.
// The request has no time.
func (c *Client) Resume(ctx context.Context, what PauseRequest) (PauseInfo, error) {
	return c.pause(ctx, wire.VerbResume, what)
}

func (c *Client) pause(ctx context.Context, verb string, what PauseRequest) (PauseInfo, error) {
	if what.Kind != wire.PauseQueue {
		if err := checkGateKey(what.Name); err != nil {
			return PauseInfo{}, err
		}
	}
	return admin[PauseInfo](ctx, c, verb, "", what)
}

// Pauses returns the pauses in force.
func (c *Client) Pauses(ctx context.Context) ([]PauseInfo, error) {
	return pages(ctx, c, func(ctx context.Context, from place) ([]PauseInfo, int, string, error) {
		page, err := listPage[PauseList](ctx, c, wire.VerbPauseList, from)
		return page.Pauses, page.Total, page.Next, err
	})
}

// ConfigLog returns the newest changes of keys that start with prefix, newest
// first, up to limit of them, or all that are kept if limit is 0.
func (c *Client) ConfigLog(ctx context.Context, prefix string, limit int) ([]ConfigLogEntry, error) {
	log, err := c.ConfigLogPage(ctx, prefix, limit)
	return log.Entries, err
}

// ConfigLogPage is [Client.ConfigLog] with Total, how many changes fila keeps of these keys.
func (c *Client) ConfigLogPage(ctx context.Context, prefix string, limit int) (log ConfigLog, err error) {
	size := wire.MaxListLimit
	if limit > 0 {
		size = min(size, limit)
	}
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	entries := []ConfigLogEntry{}
	for body := (wire.KeyListRequest{Prefix: prefix, Limit: size}); ; {
		page, err := admin[ConfigLog](ctx, c, wire.VerbConfigLog, "", body)
		if err != nil {
			return log, err
		}
		if len(entries) == 0 { // later pages count what has come meanwhile
			log.Total = page.Total
		}
		for _, entry := range page.Entries {
			// Asked by offset, a change meanwhile moves entries to the next page.
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
		} // else: a fila that does not say what is next
	}
}

// Reload makes fila read its configuration file again and take what can change
// while it runs: the rules about failures, throttles, circuits and queues. It is
// all or nothing. It returns what has changed.
func (c *Client) Reload(ctx context.Context) (ReloadReply, error) {
	return admin[ReloadReply](ctx, c, wire.VerbReload, "", nil)
}

// ReloadDryRun returns what [Client.Reload] would change, and changes nothing.
func (c *Client) ReloadDryRun(ctx context.Context) (ReloadReply, error) {
	return admin[ReloadReply](ctx, c, wire.VerbReload, "", wire.ReloadRequest{DryRun: true})
}

// ExplainMessage says where a message is, which gates it has and what it waits
// for. It is looked for in all queues if queue is empty; one that is not found
// has the state "unknown". It changes nothing.
func (c *Client) ExplainMessage(ctx context.Context, queue, id string) (ExplainedMessage, error) {
	what := wire.ExplainRequest{Kind: wire.ExplainKindMessage, Queue: queue, ID: id}
	return admin[ExplainedMessage](ctx, c, wire.VerbExplain, "", what)
}

// ExplainKey says how a fairness key of a queue stands and what holds its
// messages back.
func (c *Client) ExplainKey(ctx context.Context, queue, key string) (ExplainedKey, error) {
	if err := checkGateKey(key); err != nil {
		return ExplainedKey{}, err
	}
	what := wire.ExplainRequest{Kind: wire.ExplainKindKey, Queue: queue, Key: key}
	return admin[ExplainedKey](ctx, c, wire.VerbExplain, "", what)
}

// ExplainQueue says what a queue waits for.
func (c *Client) ExplainQueue(ctx context.Context, queue string) (ExplainedQueue, error) {
	what := wire.ExplainRequest{Kind: wire.ExplainKindQueue, Queue: queue}
	return admin[ExplainedQueue](ctx, c, wire.VerbExplain, "", what)
}

// aboutGate makes a request that only names a throttle key or circuit key. One that
// cannot stand in the subject goes into the body.
func aboutGate[R any](ctx context.Context, c *Client, verb, key string) (reply R, err error) {
	if err := checkGateKey(key); err != nil {
		return reply, err
	}
	tail, bodyKey := wire.KeyTail(key)
	return admin[R](ctx, c, verb, tail, wire.GateKeyRequest{Key: bodyKey})
}

// checkGateKey refuses what JSON would change on its way.
func checkGateKey(key string) error {
	return badRequest(wire.CodeBadField, wire.CheckNamedKey(key))
}
