package wire

import (
	"encoding/json"
	"strconv"
)

// Page returns the items of a list from offset on, up to limit.
func Page[T any](items []T, offset, limit int) []T {
	items = items[min(offset, len(items)):]
	return items[:min(limit, len(items))]
}

// Long is a reply with lists that may be cut. The totals of the reply tell the reader that
// there is more.
type Long interface {
	// Shorten returns the reply with as many entries as fit into room bytes of JSON.
	Shorten(room int) any
}

// envelope bounds the bytes of JSON around the entries of a list reply: the total, and a
// next of 256 bytes that may all be escaped.
const envelope = 2 << 10

// shorten returns as many of the first items as fit into room bytes of JSON, and the
// remaining room.
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

// trim shortens items to room, but keeps at least one, because a client would take an empty
// page for the end. It sets next if it removes items.
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

// Shorten implements [Long].
func (l JobList) Shorten(room int) any {
	trim(&l.Jobs, &l.Next, room, func(j *JobInfo) string { return j.ID })
	return l
}

// Shorten implements [Long].
func (l ScheduleList) Shorten(room int) any {
	trim(&l.Schedules, &l.Next, room, (*ScheduleInfo).Cursor)
	return l
}

// Shorten implements [Long].
func (l GuardPermitList) Shorten(room int) any {
	const holder = 1 << 10 // a key of 256 bytes, all of them escaped
	trim(&l.Permits, &l.Next, room-holder*(len(l.Keys)+len(l.Callers)), func(p *GuardPermit) string { return p.ID })
	return l
}

// Shorten implements [Long].
func (d DeadGroups) Shorten(room int) any {
	d.Groups, _ = shorten(d.Groups, room-envelope)
	return d
}

// Shorten implements [Long].
func (r NoisyReply) Shorten(room int) any {
	r.Noisy, room = shorten(r.Noisy, room-envelope) // there are fewer than twenty
	r.Starved, room = shorten(r.Starved, room)
	r.Waiting, _ = shorten(r.Waiting, room)
	return r
}

// Shorten implements [Long]. The flows may take half of the room.
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
