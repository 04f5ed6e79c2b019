package client

import (
	"context"
	"maps"

	"github.com/filaq/fila/wire"
)

// QueueChanges are settings to change, under their names in config.toml, with
// values of the types of [QueueSettings]. What is not named stays.
type QueueChanges map[string]any

// QueueCreate makes a queue with its dead letter queue and returns the full
// settings. When it returns, the queue can be published to. Creating it again
// with the same settings changes nothing; with others it is a conflict (409).
func (c *Client) QueueCreate(ctx context.Context, settings QueueSettings) (QueueSettings, error) {
	var full QueueSettings
	if err := checkQueue(settings.Name); err != nil {
		return full, err
	}
	err := c.call(ctx, c.subjects.Admin(wire.VerbQueueCreate, settings.Name), settings, &full)
	return full, err
}

// QueueUpdate changes settings of a queue and returns the full settings.
func (c *Client) QueueUpdate(ctx context.Context, queue string, changes QueueChanges) (QueueSettings, error) {
	var full QueueSettings
	if err := checkQueue(queue); err != nil {
		return full, err
	}
	body := maps.Clone(changes)
	if body == nil {
		body = QueueChanges{}
	}
	err := c.call(ctx, c.subjects.Admin(wire.VerbQueueUpdate, queue), body, &full)
	return full, err
}

// QueueDelete deletes a queue and its dead letter queue. Without force it is a
// conflict (409) if there are messages in them.
func (c *Client) QueueDelete(ctx context.Context, queue string, force bool) (QueueDeleteReply, error) {
	var reply QueueDeleteReply
	if err := checkQueue(queue); err != nil {
		return reply, err
	}
	body := wire.QueueDeleteRequest{Force: force}
	err := c.call(ctx, c.subjects.Admin(wire.VerbQueueDelete, queue), body, &reply)
	return reply, err
}

// QueueListPage returns up to limit queues from offset on, in the order of
// their names. A limit of 0 is the server's default.
func (c *Client) QueueListPage(ctx context.Context, offset, limit int) (QueueList, error) {
	var page QueueList
	body := wire.ListRequest{Offset: offset, Limit: limit}
	err := c.call(ctx, c.subjects.Admin(wire.VerbQueueList, ""), body, &page)
	return page, err
}

// QueueList returns all queues, page by page.
func (c *Client) QueueList(ctx context.Context) ([]QueueSummary, error) {
	return pages(func(offset int) ([]QueueSummary, int, error) {
		page, err := c.QueueListPage(ctx, offset, wire.MaxListLimit)
		return page.Queues, page.Total, err
	})
}

// QueueInspect describes a queue with its consumers, hooks and up to flows of
// the flows with the most pending messages (0 to 1000).
func (c *Client) QueueInspect(ctx context.Context, queue string, flows int) (QueueInfo, error) {
	var info QueueInfo
	if err := checkQueue(queue); err != nil {
		return info, err
	}
	body := wire.QueueInspectRequest{Flows: flows}
	err := c.call(ctx, c.subjects.Admin(wire.VerbQueueInspect, queue), body, &info)
	return info, err
}

// Peek shows messages of a queue without leasing them, a page at a time.
func (c *Client) Peek(ctx context.Context, queue string, what PeekRequest) (PeekReply, error) {
	var reply PeekReply
	if err := checkQueue(queue); err != nil {
		return reply, err
	}
	err := c.call(ctx, c.subjects.Admin(wire.VerbPeek, queue), what, &reply)
	return reply, err
}

// ConfigSet sets a key of the runtime configuration. If ifValue is not nil, it
// must be the present value; otherwise it is a conflict (409).
func (c *Client) ConfigSet(ctx context.Context, key, value string, ifValue *string) (ConfigSetReply, error) {
	var reply ConfigSetReply
	if err := checkKey(key); err != nil {
		return reply, err
	}
	body := wire.ConfigSetRequest{Value: value, IfValue: ifValue}
	err := c.call(ctx, c.subjects.Admin(wire.VerbConfigSet, key), body, &reply)
	return reply, err
}

// ConfigGet returns a key of the runtime configuration.
func (c *Client) ConfigGet(ctx context.Context, key string) (ConfigEntry, error) {
	return c.configEntry(ctx, wire.VerbConfigGet, key)
}

// ConfigDelete deletes a key and returns what it was.
func (c *Client) ConfigDelete(ctx context.Context, key string) (ConfigEntry, error) {
	return c.configEntry(ctx, wire.VerbConfigDelete, key)
}

func (c *Client) configEntry(ctx context.Context, verb, key string) (ConfigEntry, error) {
	var entry ConfigEntry
	if err := checkKey(key); err != nil {
		return entry, err
	}
	err := c.call(ctx, c.subjects.Admin(verb, key), nil, &entry)
	return entry, err
}

// ConfigList returns all keys that start with prefix, in order.
func (c *Client) ConfigList(ctx context.Context, prefix string) ([]ConfigEntry, error) {
	return pages(func(offset int) ([]ConfigEntry, int, error) {
		var page ConfigList
		body := wire.KeyListRequest{Prefix: prefix, Offset: offset, Limit: wire.MaxListLimit}
		err := c.call(ctx, c.subjects.Admin(wire.VerbConfigList, ""), body, &page)
		return page.Entries, page.Total, err
	})
}

// Redrive moves up to count messages (0: all) of a dead letter queue back to
// its queue, oldest first. It returns how many; leased ones are skipped.
func (c *Client) Redrive(ctx context.Context, dlq string, count int64) (RedriveReply, error) {
	var reply RedriveReply
	if err := checkQueue(dlq); err != nil {
		return reply, err
	}
	err := c.call(ctx, c.subjects.Admin(wire.VerbRedrive, dlq), wire.RedriveRequest{Count: count}, &reply)
	return reply, err
}

// HookReset closes the circuit of a queue's hook, on_enqueue or on_failure, or
// of both if hook is empty.
func (c *Client) HookReset(ctx context.Context, queue, hook string) (HookResetReply, error) {
	var reply HookResetReply
	if err := checkQueue(queue); err != nil {
		return reply, err
	}
	err := c.call(ctx, c.subjects.Admin(wire.VerbHookReset, queue), wire.HookResetRequest{Hook: hook}, &reply)
	return reply, err
}

// pages collects what next returns until there is no more. A list that changes
// meanwhile may show an entry twice or not at all; the end is reached anyway.
func pages[T any](next func(offset int) (page []T, total int, err error)) ([]T, error) {
	all := []T{}
	for {
		page, total, err := next(len(all))
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) == 0 || len(all) >= total {
			return all, nil
		}
	}
}
