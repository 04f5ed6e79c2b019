package api

import (
	"encoding/json"
	"strconv"
)

// Page returns the items of a list from offset on, up to limit.
func Page[T any](items []T, offset, limit int) []T {
	items = items[min(offset, len(items)):]
	return items[:min(limit, len(items))]
}

// PageOf is a page of a list, as the replies of all list verbs have it.
type PageOf[Item any] struct {
	Items   *[]Item
	Total   *int
	Next    *string
	Missing *[]int             // shards that did not answer; nil: the list has no such field
	Cursor  func(*Item) string // after of the request for the page that begins behind an item
}

// Long is a reply with lists that may be cut. The totals of the reply tell the reader that
// there is more.
type Long interface {
	// Shorten keeps as many entries as fit into room bytes of JSON.
	Shorten(room int)
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

// trim shortens a page to room, but keeps at least one item, because a client would take an
// empty page for the end. It sets Next if it removes items.
func trim[Item any](p PageOf[Item], room int) {
	some, _ := shorten(*p.Items, room-envelope)
	n := max(len(some), min(1, len(*p.Items)))
	if n < len(*p.Items) {
		*p.Next = p.Cursor(&(*p.Items)[n-1])
		*p.Items = (*p.Items)[:n]
	}
}

// Page returns the page.
func (l *QueueList) Page() PageOf[QueueSummary] {
	return PageOf[QueueSummary]{&l.Queues, &l.Total, &l.Next, &l.Missing, func(q *QueueSummary) string { return q.Name }}
}

// Page returns the page.
func (l *ConfigList) Page() PageOf[ConfigEntry] {
	return PageOf[ConfigEntry]{&l.Entries, &l.Total, &l.Next, nil, func(e *ConfigEntry) string { return e.Key }}
}

// Page returns the page.
func (l *ConfigLog) Page() PageOf[ConfigLogEntry] {
	return PageOf[ConfigLogEntry]{&l.Entries, &l.Total, &l.Next, nil, func(e *ConfigLogEntry) string { return strconv.FormatUint(e.Seq, 10) }}
}

// Page returns the page.
func (l *ThrottleList) Page() PageOf[ThrottleInfo] {
	return PageOf[ThrottleInfo]{&l.Throttles, &l.Total, &l.Next, nil, func(t *ThrottleInfo) string { return t.Key }}
}

// Page returns the page.
func (l *CircuitList) Page() PageOf[CircuitInfo] {
	return PageOf[CircuitInfo]{&l.Circuits, &l.Total, &l.Next, nil, func(c *CircuitInfo) string { return c.Key }}
}

// Page returns the page.
func (l *PauseList) Page() PageOf[PauseInfo] {
	return PageOf[PauseInfo]{&l.Pauses, &l.Total, &l.Next, nil, func(p *PauseInfo) string { return p.Kind + "/" + p.Queue + "/" + p.Name }}
}

// Page returns the page.
func (l *JobList) Page() PageOf[JobInfo] {
	return PageOf[JobInfo]{&l.Jobs, &l.Total, &l.Next, &l.Missing, func(j *JobInfo) string { return j.ID }}
}

// Page returns the page.
func (l *ScheduleList) Page() PageOf[ScheduleInfo] {
	return PageOf[ScheduleInfo]{&l.Schedules, &l.Total, &l.Next, &l.Missing, (*ScheduleInfo).Cursor}
}

// Page returns the page.
func (l *GuardPermitList) Page() PageOf[GuardPermit] {
	return PageOf[GuardPermit]{&l.Permits, &l.Total, &l.Next, nil, func(p *GuardPermit) string { return p.ID }}
}

// Shorten implements [Long].
func (l *QueueList) Shorten(room int) { trim(l.Page(), room) }

// Shorten implements [Long].
func (l *ConfigList) Shorten(room int) { trim(l.Page(), room) }

// Shorten implements [Long].
func (l *ConfigLog) Shorten(room int) { trim(l.Page(), room) }

// Shorten implements [Long].
func (l *ThrottleList) Shorten(room int) { trim(l.Page(), room) }

// Shorten implements [Long].
func (l *CircuitList) Shorten(room int) { trim(l.Page(), room) }

// Shorten implements [Long].
func (l *PauseList) Shorten(room int) { trim(l.Page(), room) }

// Shorten implements [Long].
func (l *JobList) Shorten(room int) { trim(l.Page(), room) }

// Shorten implements [Long].
func (l *ScheduleList) Shorten(room int) { trim(l.Page(), room) }

// Shorten implements [Long].
func (l *GuardPermitList) Shorten(room int) {
	const holder = 1 << 10 // a key of 256 bytes, all of them escaped
	trim(l.Page(), room-holder*(len(l.Keys)+len(l.Callers)))
}

// Shorten implements [Long].
func (d *DeadGroups) Shorten(room int) { d.Groups, _ = shorten(d.Groups, room-envelope) }

// Shorten implements [Long].
func (r *NoisyReply) Shorten(room int) {
	r.Noisy, room = shorten(r.Noisy, room-envelope) // there are fewer than twenty
	r.Starved, room = shorten(r.Starved, room)
	r.Waiting, _ = shorten(r.Waiting, room)
}

// Shorten implements [Long]. The flows may take half of the room.
func (q *QueueInfo) Shorten(room int) {
	rest := *q
	rest.TopFlows, rest.ConsumerList = nil, nil
	data, err := json.Marshal(rest)
	if err != nil {
		return
	}
	room -= len(data) + envelope
	flows, consumers := len(q.TopFlows), len(q.ConsumerList)
	var left int
	q.TopFlows, left = shorten(q.TopFlows, room/2)
	q.ConsumerList, _ = shorten(q.ConsumerList, room-room/2+left)
	q.MoreFlows, q.MoreConsumers = flows-len(q.TopFlows), consumers-len(q.ConsumerList)
}
