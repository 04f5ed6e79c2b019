package wire

import (
	"encoding/json"
	"strconv"
)

// Page returns what a list reply has of items: limit of them from offset on.
func Page[T any](items []T, offset, limit int) []T {
	items = items[min(offset, len(items)):]
	return items[:min(limit, len(items))]
}

// Long is a reply with lists that may be cut. Who got a part sees by the totals
// that there is more.
type Long interface {
	// Shorten returns the reply with as many entries as there is room for, in bytes
	// of JSON.
	Shorten(room int) any
}

// envelope is what the JSON of a list reply has around its entries at most: the total
// and next, which is a key of 256 bytes with all of them escaped, or little more.
const envelope = 2 << 10

// shorten returns as many of the first items as there is room for in JSON, and the
// room that is left.
func shorten[T any](items []T, room int) ([]T, int) {
	for i := range items {
		data, err := json.Marshal(items[i])
		if err != nil || len(data)+1 > room {
			return items[:i], room
		}
		room -= len(data) + 1
	}
	return items, room
}

// trim leaves as many items as there is room for, but at least one: a page without any
// would be taken for the end. The next page comes after the last that stays.
func trim[T any](items *[]T, next *string, room int, cursor func(*T) string) {
	some, _ := shorten(*items, room-envelope)
	n := max(len(some), min(1, len(*items)))
	if n < len(*items) {
		*next = cursor(&(*items)[n-1])
		*items = (*items)[:n]
	}
}

// Shorten implements [Long].
func (l QueueList) Shorten(room int) any {
	trim(&l.Queues, &l.Next, room, func(q *QueueSummary) string { return q.Name })
	return l
}

// Shorten implements [Long].
func (l ConfigList) Shorten(room int) any {
	trim(&l.Entries, &l.Next, room, func(e *ConfigEntry) string { return e.Key })
	return l
}

// Shorten implements [Long].
func (l ConfigLog) Shorten(room int) any {
	trim(&l.Entries, &l.Next, room, func(e *ConfigLogEntry) string { return strconv.FormatUint(e.Seq, 10) })
	return l
}

// Shorten implements [Long].
func (l ThrottleList) Shorten(room int) any {
	trim(&l.Throttles, &l.Next, room, func(t *ThrottleInfo) string { return t.Key })
	return l
}

// Shorten implements [Long].
func (l CircuitList) Shorten(room int) any {
	trim(&l.Circuits, &l.Next, room, func(c *CircuitInfo) string { return c.Key })
	return l
}

// Shorten implements [Long].
func (l PauseList) Shorten(room int) any {
	trim(&l.Pauses, &l.Next, room, func(p *PauseInfo) string { return p.Kind + "/" + p.Queue + "/" + p.Name })
	return l
}

// Shorten implements [Long]. Flows, of which the request says how many, may take
// half of the room.
func (q QueueInfo) Shorten(room int) any {
	rest := q
	rest.TopFlows, rest.ConsumerList = nil, nil
	data, err := json.Marshal(rest)
	if err != nil {
		return q
	}
	room -= len(data) + envelope
	flows, consumers := len(q.TopFlows), len(q.ConsumerList)
	var left int
	q.TopFlows, left = shorten(q.TopFlows, room/2)
	q.ConsumerList, _ = shorten(q.ConsumerList, room-room/2+left)
	q.MoreFlows, q.MoreConsumers = flows-len(q.TopFlows), consumers-len(q.ConsumerList)
	return q
}
