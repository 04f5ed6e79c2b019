package wire

import "encoding/json"

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

// envelope is what the JSON of a list reply has around its entries, and more.
const envelope = 128

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

// page is what shorten returns, but at least one entry: a page without any would
// be taken for the end.
func page[T any](items []T, room int) []T {
	some, _ := shorten(items, room-envelope)
	return items[:max(len(some), min(1, len(items)))]
}

// Shorten implements [Long].
func (l QueueList) Shorten(room int) any {
	l.Queues = page(l.Queues, room)
	return l
}

// Shorten implements [Long].
func (l ConfigList) Shorten(room int) any {
	l.Entries = page(l.Entries, room)
	return l
}

// Shorten implements [Long].
func (l ConfigLog) Shorten(room int) any {
	l.Entries = page(l.Entries, room)
	return l
}

// Shorten implements [Long].
func (l ThrottleList) Shorten(room int) any {
	l.Throttles = page(l.Throttles, room)
	return l
}

// Shorten implements [Long].
func (l CircuitList) Shorten(room int) any {
	l.Circuits = page(l.Circuits, room)
	return l
}

// Shorten implements [Long].
func (l PauseList) Shorten(room int) any {
	l.Pauses = page(l.Pauses, room)
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
