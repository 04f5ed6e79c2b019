package queue

// Priority with ageing. A message of priority p that has waited for t counts as one of
// priority p + t/age. Of two that wait, both grow alike, so which one counts more does not
// depend on when it is asked: it is the one for which
//
//	(time from which it waits) - p * age
//
// is smaller. That is the stamp by which the messages of a flow are sorted in any case, so
// priorities cost nothing where there are none, and a place in one of ten lists where there
// are some (container.Ranks). A message is overtaken only by those that came less than
// age times the difference of their priorities after it, and by reserved ones. These go
// by the same rule among themselves.

// defaultPriorityAge is 0 of priority_age_ms.
const defaultPriorityAge = int64(60e9)

// nextStamp is the place of a message that begins to wait.
func (q *side) nextStamp(s *slot) int64 {
	q.stamp = max(q.stamp+1, min(s.readyAt, q.m.now))
	if s.priority == 0 {
		return q.stamp
	}
	settings, p := &q.m.settings, int64(s.priority)
	age := settings.PriorityAgeMs * 1e6
	if age == 0 {
		age = defaultPriorityAge
	}
	stamp := max(q.stamp-p*age, 1)
	if r := settings.PriorityReserved; r != 0 && p >= r {
		return stamp >> 2 // before all others of the last decades
	}
	return stamp
}
