package web

import (
	"slices"
	"sync"
	"time"

	"github.com/filaq/fila/wire"
)

// history has the last sample of all queues, and an hour of each, in a ring of points that
// are ten seconds apart. Queues beyond the first maxHistories by name have none.
type history struct {
	mu struct {
		sync.Mutex
		at      time.Time
		took    time.Duration       // by the last sample
		queues  []wire.QueueSummary // by name
		missing []int               // shards that nobody serves
		err     error               // why the last sample failed
		rings   map[string]*ring
		total   *ring
	}
	sampling sync.Mutex // one at a time
}

const (
	historyStep   = 10 * time.Second
	historyPoints = 360 // an hour
	maxHistories  = 2000
	maxQueues     = 20_000 // that are looked at
	// freshFor is how old the last sample may be for a page; where a sample takes long, as
	// old as it is between two samples that nobody waits for.
	freshFor, freshFactor, staleFor = 2 * time.Second, 100, 2 * historyStep
)

// point is how a queue stood at a time, and what happened per second before it.
type point struct {
	at                                 int64 // Unix seconds; 0: nothing is known
	Depth, InFlight                    float32
	Enqueued, Delivered, Acked, Failed float32 // per second
	WaitMedian, WaitHigh               float32 // seconds that messages waited, half of them and 99 of 100; 0: none was delivered
	OldestAge                          float32 // seconds
}

// ring is the points of a queue.
type ring struct {
	points [historyPoints]point
	next   int
	// base is what was counted at the last point, last what was counted last.
	base, last counted
	rate       point // between the last two samples
	seen       time.Time
}

// counted is the counters of a queue at a time.
type counted struct {
	at time.Time
	wire.QueueDetail
}

// all returns the points that there are, the oldest first.
func (r *ring) all() []point {
	var list []point
	for i := range historyPoints {
		if p := r.points[(r.next+i)%historyPoints]; p.at != 0 {
			list = append(list, p)
		}
	}
	return list
}

func (r *ring) add(now time.Time, depth, inFlight, oldest int64, d *wire.QueueDetail) {
	fill := func(p point) point {
		p.at, p.Depth, p.InFlight, p.OldestAge = now.Unix(), float32(depth), float32(inFlight), float32(oldest)/1e3
		return p
	}
	is := counted{now, *d}
	r.rate = fill(r.last.until(&is))
	r.last, r.seen = is, now
	switch {
	case r.base.at.IsZero():
		r.base = is
	case now.Sub(r.base.at) >= historyStep-pace/2:
		r.points[r.next] = fill(r.base.until(&is))
		r.next = (r.next + 1) % historyPoints
		r.base = is
	}
}

// until is what has happened per second between two counts. A counter that has become less
// counts from 0: its owner was started anew.
func (c *counted) until(now *counted) (p point) {
	if c.at.IsZero() || !now.at.After(c.at) {
		return p
	}
	seconds := now.at.Sub(c.at).Seconds()
	rate := func(before, after int64) float32 {
		if after < before {
			before = 0
		}
		return float32(float64(after-before) / seconds)
	}
	p.Enqueued, p.Delivered = rate(c.Enqueued, now.Enqueued), rate(c.Delivered, now.Delivered)
	p.Acked, p.Failed = rate(c.Acked, now.Acked), rate(c.Failed, now.Failed)
	p.WaitMedian, p.WaitHigh = waits(c.Waits, now.Waits)
	return p
}

// waits is for how long half of the messages that were delivered between two counts
// waited, and 99 of 100, in seconds: the upper end of the range that it falls in.
func waits(before, after []int64) (median, high float32) {
	if len(after) != len(wire.WaitBounds)+1 {
		return 0, 0
	}
	n := slices.Clone(after)
	var all int64
	for i := range n {
		if len(before) == len(n) && before[i] <= n[i] {
			n[i] -= before[i]
		}
		all += n[i]
	}
	at := func(part float64) float32 {
		var sum int64
		for i := range n {
			if sum += n[i]; float64(sum) >= part*float64(all) {
				return float32(wire.WaitBounds[min(i, len(wire.WaitBounds)-1)])
			}
		}
		return 0
	}
	if all == 0 {
		return 0, 0
	}
	return at(0.5), at(0.99)
}

// sample asks for all queues and adds to the history.
func (h *history) sample(w *Web) {
	h.sampling.Lock()
	defer h.sampling.Unlock()
	began := time.Now()
	var queues []wire.QueueSummary
	var missing []int
	req := wire.QueueListRequest{ListRequest: wire.ListRequest{Limit: wire.MaxListLimit}, Detail: true}
	for len(queues) < maxQueues {
		var page wire.QueueList
		if err := w.verb("web", wire.VerbQueueList, "", req, &page); err != nil {
			h.mu.Lock()
			h.mu.err = err
			h.mu.Unlock()
			return
		}
		queues, missing = append(queues, page.Queues...), page.Missing
		if req.After = page.Next; req.After == "" {
			break
		}
	}
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.at, h.mu.took, h.mu.queues, h.mu.missing, h.mu.err = now, now.Sub(began), queues, missing, nil
	h.keep(now)
}

// keep adds the sample to the rings, and forgets those of queues that are gone.
func (h *history) keep(now time.Time) {
	if h.mu.rings == nil {
		h.mu.rings, h.mu.total = make(map[string]*ring), new(ring)
	}
	var sum wire.QueueDetail
	var depth, inFlight, oldest int64
	for i := range h.mu.queues {
		q := &h.mu.queues[i]
		d := q.Detail
		if d == nil {
			continue
		}
		depth, inFlight, oldest = depth+depthOf(q), inFlight+q.InFlight, max(oldest, q.OldestAgeMs)
		sum.Enqueued += d.Enqueued
		sum.Delivered += d.Delivered
		sum.Acked += d.Acked
		sum.Failed += d.Failed
		for j, n := range d.Waits {
			if len(sum.Waits) <= j {
				sum.Waits = append(sum.Waits, 0)
			}
			sum.Waits[j] += n
		}
		r := h.mu.rings[q.Name]
		if r == nil {
			if len(h.mu.rings) >= maxHistories {
				continue
			}
			r = new(ring)
			h.mu.rings[q.Name] = r
		}
		r.add(now, depthOf(q), q.InFlight, q.OldestAgeMs, d)
	}
	h.mu.total.add(now, depth, inFlight, oldest, &sum)
	for name, r := range h.mu.rings {
		if now.Sub(r.seen) > time.Hour {
			delete(h.mu.rings, name)
		}
	}
}

func depthOf(q *wire.QueueSummary) int64 { return q.Pending + q.Delayed + q.InFlight }

// fresh takes a sample unless the last one is new enough.
func (h *history) fresh(w *Web) error {
	h.mu.Lock()
	old := time.Since(h.mu.at) > min(max(freshFor, freshFactor*h.mu.took), staleFor)
	h.mu.Unlock()
	if old {
		h.sample(w)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.err
}

// line is what is known of a queue over time.
type line struct {
	Now  point
	Past []point
}

// of returns the history of a queue, that of all of them for "".
func (h *history) of(queue string) line {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.mu.total
	if queue != "" {
		r = h.mu.rings[queue]
	}
	if r == nil {
		return line{}
	}
	return line{Now: r.rate, Past: r.all()}
}

// all returns the queues of the last sample, by name.
func (h *history) all() (queues []wire.QueueSummary, missing []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.queues, h.mu.missing
}

// asOf is when that was.
func (h *history) asOf() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return wire.Timestamp(h.mu.at.Truncate(time.Second).UnixNano())
}
