package attention

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Monitor compares samples with the conditions. Its zero value is ready; it needs a lock of
// its caller.
type Monitor struct {
	since     map[string]span     // of the findings of the last sample, and before it for less than gapOf, by identity
	histories map[string]history  // by queue; queues to which nothing happened have none
	backlogs  map[string]backlogs // by queue and gate
	sampled   time.Time           // the last sample; zero: none
}

// span is the time for which a finding holds.
type span struct{ began, last time.Time }

// gapOf is how long a finding may be away and is still the same one: a circuit that flaps is
// closed for moments.
const gapOf = time.Minute

// view is a sample with what was before.
type view struct {
	*Sample
	now      []point // of each queue of the sample
	before   []history
	backlogs map[string]backlogs // by queue and gate
}

// Find returns the findings of a sample, the worst first.
func (m *Monitor) Find(s *Sample) []api.Finding {
	v := m.remember(s)
	var all []api.Finding
	for i := range Conditions {
		c := &Conditions[i]
		c.find(v, func(f api.Finding) {
			f.Condition, f.Severity, f.Title = c.Name, cmp.Or(f.Severity, c.Severity), cmp.Or(f.Title, c.Title)
			all = append(all, f)
		})
	}
	maps.DeleteFunc(m.since, func(_ string, h span) bool { return h.last.Before(m.sampled) && s.At.Sub(h.last) >= gapOf })
	m.sampled = s.At
	if m.since == nil {
		m.since = make(map[string]span)
	}
	for i := range all {
		f, id := &all[i], identity(&all[i])
		h, ok := m.since[id]
		if !ok || s.At.Before(h.began) { // the clock was set back
			h.began = s.At
		}
		h.last = s.At
		if m.since[id] = h; f.Since == "" {
			f.Since = wire.Timestamp(h.began.UnixNano())
		}
	}
	return Merge(all)
}

// remember adds the sample to the histories.
func (m *Monitor) remember(s *Sample) *view {
	v := &view{Sample: s, now: make([]point, len(s.Queues)), before: make([]history, len(s.Queues))}
	histories := make(map[string]history, len(m.histories))
	for i := range s.Queues {
		q := &s.Queues[i]
		p, h := pointOf(q, s.At), m.histories[q.Name]
		if v.now[i] = p; p.idle() && p.oldest == 0 {
			continue
		}
		if len(h) == 0 && !m.sampled.IsZero() {
			h = history{{at: s.At.Add(-time.Second)}} // it has counted all of this since the sample before
		}
		h = h.add(p)
		histories[q.Name], v.before[i] = h, h
	}
	m.histories = histories // without the queues that were deleted
	v.backlogs = m.backlogsOf(s)
	m.backlogs = v.backlogs
	return v
}

// identity is equal for findings about one object.
func identity(f *api.Finding) string {
	shard := ""
	if f.Shard != nil {
		shard = strconv.Itoa(*f.Shard)
	}
	return strings.Join([]string{f.Condition, f.Queue, f.Key, f.Gate, f.Hook, f.Schedule, shard, f.Node}, "\x00")
}

// Merge joins findings about one object, such as of a circuit whose messages wait at several
// nodes, and sorts them: by severity, by the order of the table, and by how many messages
// they hurt.
func Merge(all []api.Finding) []api.Finding {
	index := make(map[string]int, len(all))
	merged := make([]api.Finding, 0, len(all))
	for _, f := range all {
		id := identity(&f)
		i, ok := index[id]
		if !ok {
			index[id] = len(merged)
			merged = append(merged, f)
			continue
		}
		into := &merged[i]
		into.Messages, into.Tenants = into.Messages+f.Messages, into.Tenants+f.Tenants
		into.Queues = slices.Concat(into.Queues, f.Queues)
		into.Since = min(into.Since, f.Since)
	}
	for i := range merged {
		f := &merged[i]
		setWhom(f)
		slices.SortStableFunc(f.Queues, func(a, b api.WaitingQueue) int {
			return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Queue, b.Queue))
		})
	}
	slices.SortStableFunc(merged, func(a, b api.Finding) int {
		return cmp.Or(
			cmp.Compare(slices.Index(api.Severities, a.Severity), slices.Index(api.Severities, b.Severity)),
			cmp.Compare(rank(&a), rank(&b)), cmp.Compare(b.Messages, a.Messages), cmp.Compare(identity(&a), identity(&b)))
	})
	return merged
}

// setWhom says whom a finding hurts. A newer node may know other conditions.
func setWhom(f *api.Finding) {
	if c := conditionOf(f); c != nil {
		f.Whom = c.whomOf(f)
	}
}

// About returns the findings about a queue, and about gates that block its messages, with the
// messages of this queue.
func About(queue string, all []api.Finding) (about []api.Finding) {
	for _, f := range all {
		i := slices.IndexFunc(f.Queues, func(q api.WaitingQueue) bool { return q.Queue == queue })
		switch {
		case i >= 0:
			f.Messages, f.Tenants, f.Queues = f.Queues[i].Messages, f.Queues[i].Flows, nil
			setWhom(&f)
		case f.Queue != queue:
			continue
		}
		about = append(about, f)
	}
	return about
}

// rank is the place of a finding's condition in the table.
func rank(f *api.Finding) int {
	return slices.IndexFunc(Conditions, func(c Condition) bool { return c.Name == f.Condition })
}

func conditionOf(f *api.Finding) *Condition {
	if i := rank(f); i >= 0 {
		return &Conditions[i]
	}
	return nil
}
