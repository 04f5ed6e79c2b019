package backlog

import (
	"fmt"
	"slices"

	"github.com/filaq/fila/sidecar/queue/container"
)

// Check returns the first broken invariant of the tables, or nil. Tests call it after
// each step.
func (t *Tables) Check() (err error) {
	check := func(ok bool, format string, args ...any) {
		if !ok && err == nil {
			err = fmt.Errorf(format, args...)
		}
	}
	refs, leased := make(map[string]int32), make(map[*Consumer]int)
	for seq, s := range t.Slots.From(0) {
		refs[t.Name(s.Flow)]++
		check(s.ttl == (t.ends[seq] != 0), "message %d: TTL", seq)
		waits := s.State == Waiting || s.State == Delayed || s.State == Ordered
		check(!s.ttl || !waits || hasTimer(&t.TTLs, t.ends[seq], seq), "message %d: no timer for its TTL", seq)
		check(s.State != Delayed || hasTimer(&t.Delays, s.ReadyAt, seq), "message %d: no timer for its delay", seq)
	}
	for key, f := range t.Keys.IDs {
		e := &t.Keys.Entries[f]
		check(e.Name == key && e.Refs == refs[key] && e.Refs > 0, "key %q: %d messages, counted %d", key, refs[key], e.Refs)
	}
	check(len(t.Keys.IDs) == len(refs) && len(refs)+len(t.Keys.free) == len(t.Keys.Entries), "%d keys in use", len(refs))
	n, last, prev := 0, int64(0), uint32(0)
	for i := t.Leases.head; i != 0; i = t.Leases.Items[i-1].next {
		le := &t.Leases.Items[i-1]
		check(le.Deadline >= last && le.prev == prev, "lease %d is out of order", le.ID)
		check(le.Stored || slices.ContainsFunc(t.Leases.unstored[t.Leases.unstoredHead:], func(u unstoredLease) bool {
			return u.index == i-1 && u.id == le.ID
		}), "lease %d will never be stored", le.ID)
		last, prev = le.Deadline, i
		leased[le.Consumer]++
		n++
	}
	check(t.Leases.Live == n && t.Leases.tail == prev && len(t.Leases.free) == len(t.Leases.Items)-n, "%d leases", n)
	if err == nil {
		err = t.Consumers.check(leased)
	}
	for _, key := range t.Deficits.order {
		f, live := t.Keys.IDs[key]
		check(!live || !t.Keys.Entries[f].Active || t.Deficits.byKey[key].rest(t.Sched.Round()) == 0, "key %q is in the schedule and has a carried deficit", key)
	}
	check(len(t.Deficits.byKey) == len(t.Deficits.order) && (len(t.Deficits.byKey) == 0 || t.Sched.Active() > 0), "%d carried deficits", len(t.Deficits.order))
	return err
}

func (s *Consumers) check(leased map[*Consumer]int) (err error) {
	check := func(c *Consumer, ok bool) {
		if !ok && err == nil {
			err = fmt.Errorf("consumer %s: %+v", c.Name, *c)
		}
	}
	ring := make(map[*Consumer]bool)
	for c := s.ring; c != nil && !ring[c]; c = c.next {
		ring[c] = true
		check(c, c.next.prev == c)
	}
	ends, inRing, wanted, owners := 0, 0, 0, make(map[string]int)
	known := func(c *Consumer) {
		check(c, leased[c] == c.InFlight && ring[c] == (c.Credit() > 0))
		delete(leased, c)
		if ring[c] {
			inRing++
		}
		if !c.Gone && c.ExpiresAt != 0 {
			ends++
			check(c, s.byReg[c.Reg] == c && hasTimer(&s.Expiring, c.ExpiresAt, c.Reg))
		}
	}
	for name, c := range s.ByName {
		check(c, name == c.Name && !(c.Gone && c.InFlight == 0))
		known(c)
	}
	for c := range s.Fetches {
		check(c, !c.Gone)
		known(c)
		if wanted += c.Credit(); c.Owner != "" {
			owners[c.Owner]++
		}
	}
	for c, n := range leased {
		check(c, c.Fetch && c.Gone && c.InFlight == n)
	}
	for owner, n := range s.Owners {
		if owners[owner] != n {
			return fmt.Errorf("%d fetches of %s, counted %d", owners[owner], owner, n)
		}
	}
	if err == nil && (inRing != len(ring) || wanted != s.Wanted || ends != len(s.byReg)) {
		return fmt.Errorf("%d consumers with credit, %d messages wanted, %d ends", inRing, wanted, ends)
	}
	return err
}

func hasTimer(timers *container.Timers, at int64, id uint64) bool {
	for it := range timers.All() {
		if it == (container.Timer{At: at, ID: id}) {
			return true
		}
	}
	return false
}

// Empty reports whether nothing is left of what there was.
func (t *Tables) Empty() bool {
	return t.Slots.Len()+t.Links.Len() == 0 && len(t.Arriving)+len(t.ends)+len(t.Keys.IDs)+len(t.Order.Keys)+t.Sched.Active()+t.Deficits.Len() == 0
}
