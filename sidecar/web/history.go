package web

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// history has the last sample of all queues, and an hour of points, ten seconds apart, of
// each queue that ever had messages, and of throttles. Queues beyond maxHistories and throttles beyond
// maxGateHistories have none.
type history struct {
	mu struct {
		sync.Mutex
		at      time.Time
		took    time.Duration // by the last sample
		last    *snapshot     // nil: there was none
		err     error         // error of the last sample
		rings   map[string]*ring
		total   *ring
		gates   map[string]*gateRing // by throttle key
		gatesAt time.Time            // of their last points
		// withTenants is the number of rings with tenants.
		withTenants int
	}
	sampling sync.Mutex // one at a time
}

const (
	historyStep   = 10 * time.Second
	historyPoints = 360 // an hour
	maxHistories  = 4000
	maxQueues     = 20_000 // sampled
	// freshFor is how old the last sample may be for a page; if a sample takes long, twice
	// as long as that.
	freshFor, freshFactor, staleFor = 2 * time.Second, 100, 2 * historyStep
)

// snapshot has all queues at one time. Pages share it, so it is immutable.
type snapshot struct {
	queues          []api.QueueSummary // by name
	missing         []int              // shards without an owner
	depth, inFlight int64              // of all queues
	dead            map[string]int64   // depth of dead letter queues that are not empty
	deadDepth       int64              // of all of them

	mu struct {
		sync.Mutex
		orders map[string][]*api.QueueSummary // by sort column, filled on demand
	}
}

// sorted returns the queues by one of their figures, the largest first, or by name. The
// list is read-only.
func (s *snapshot) sorted(by string) []*api.QueueSummary {
	value := figures[by]
	if by == "dead" {
		value = func(q *api.QueueSummary) int64 { return s.dead[q.DLQ] }
	}
	if value == nil && by != "name" {
		by, value = "depth", depthOf
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if list, ok := s.mu.orders[by]; ok {
		return list
	}
	list := make([]*api.QueueSummary, len(s.queues))
	for i := range list {
		list[i] = &s.queues[i]
	}
	if value != nil {
		slices.SortStableFunc(list, func(a, b *api.QueueSummary) int { return cmp.Compare(value(b), value(a)) })
	}
	if s.mu.orders == nil {
		s.mu.orders = make(map[string][]*api.QueueSummary)
	}
	s.mu.orders[by] = list
	return list
}

// pick returns the sorted queues for which want is true.
func (s *snapshot) pick(by string, ok func(*api.QueueSummary) bool) (list []*api.QueueSummary) {
	for _, q := range s.sorted(by) {
		if ok(q) {
			list = append(list, q)
		}
	}
	return list
}

// figures are the columns that sort queues.
var figures = map[string]func(*api.QueueSummary) int64{
	"depth":     depthOf,
	"in_flight": func(q *api.QueueSummary) int64 { return q.InFlight },
	"blocked":   func(q *api.QueueSummary) int64 { return q.Blocked },
	"age":       func(q *api.QueueSummary) int64 { return q.OldestAgeMs },
	"consumers": func(q *api.QueueSummary) int64 { return int64(q.Consumers) },
}

// point is the state of a queue at one time, with the rates before it.
type point struct {
	at                      int64 // Unix seconds
	Depth                   float32
	Enqueued, Acked, Failed float32 // per second
	Terminated, Dead        float32 // per second: by +TERM, and all that became dead letters
	WaitMedian, WaitHigh    float32 // p50 and p99 wait in seconds; 0: no deliveries

	Ready, Blocked, Delayed, InFlight float32
}

// series is the newest historyPoints points.
type series[P any] struct {
	points []P
	next   int // index of the next point once it is full
}

// recent returns the newest n points, oldest first.
func (s *series[P]) recent(n int) []P {
	n = min(n, len(s.points))
	list := make([]P, n)
	for i := range list {
		list[i] = s.points[(s.next+len(s.points)-n+i)%len(s.points)]
	}
	return list
}

func (s *series[P]) push(p P) {
	if len(s.points) < historyPoints {
		s.points = append(s.points, p)
		return
	}
	s.points[s.next] = p
	s.next = (s.next + 1) % historyPoints
}

func (p *point) time() int64 { return p.at }

// ring is the points of a queue.
type ring struct {
	series[point]
	// base has the counters at the last point, last the latest ones.
	base, last counted
	rate       point // rates between the last two samples
	seen       time.Time
	heat       heat
	tenants    *tenantRing // nil: no deliveries, or too many queues have one
}

// counted has the counters of a queue at one time of its owner.
type counted struct {
	at time.Time
	api.QueueDetail
}

// add adds a sample of a queue, and reports whether it has made a point. A sample that it has
// already changes nothing.
func (r *ring) add(now time.Time, q *api.QueueSummary) (pushed bool) {
	r.seen = now
	is := counted{now, *q.Detail}
	if is.AtMs != 0 { // an older node of a cluster does not say it
		is.at = time.UnixMilli(is.AtMs)
	}
	if is.at.Equal(r.last.at) {
		return false
	}
	fill := func(p point) point {
		p.at, p.Depth = now.Unix(), float32(depthOf(q))
		p.Ready, p.Blocked, p.Delayed, p.InFlight = float32(q.Ready), float32(q.Blocked), float32(q.Delayed), float32(q.InFlight)
		return p
	}
	r.rate = fill(r.last.until(&is))
	r.last = is
	switch {
	case r.base.at.IsZero() || is.at.Before(r.base.at): // the clock was set back
		r.base = is
	case is.at.Sub(r.base.at) >= historyStep-pace/2:
		r.push(fill(r.base.until(&is)))
		r.heat.add(now, r.base.Waits, is.Waits, is.MaxWaitMs/1000)
		r.base, pushed = is, true
	}
	return pushed
}

// until returns the rates between two counts. A counter that has decreased counts from 0,
// since its owner has restarted.
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
	p.Enqueued, p.Acked, p.Failed = rate(c.Enqueued, now.Enqueued), rate(c.Acked, now.Acked), rate(c.Failed, now.Failed)
	p.Terminated, p.Dead = rate(c.Terminated, now.Terminated), rate(c.DeadLettered, now.DeadLettered)
	p.WaitMedian, p.WaitHigh = waits(c.Waits, now.Waits, now.MaxWaitMs/1000)
	return p
}

// sample gets the last sample of all queues and adds it to the history.
func (h *history) sample(w *Web) {
	h.sampling.Lock()
	defer h.sampling.Unlock()
	began := time.Now()
	s := &snapshot{dead: make(map[string]int64)}
	req := api.QueueListRequest{ListRequest: api.ListRequest{Limit: api.MaxListLimit}, Sampled: true}
	for len(s.queues) < maxQueues {
		page, refused := w.Queues(req)
		if refused != nil {
			h.mu.Lock()
			h.mu.err = refused
			h.mu.Unlock()
			return
		}
		if s.queues == nil {
			s.queues = make([]api.QueueSummary, 0, page.Total)
		}
		s.queues, s.missing = append(s.queues, page.Queues...), page.Missing
		if req.After = page.Next; req.After == "" {
			break
		}
	}
	for i := range s.queues {
		q := &s.queues[i]
		s.depth, s.inFlight = s.depth+depthOf(q), s.inFlight+q.InFlight
		if n := depthOf(q); n > 0 && wire.IsDLQ(q.Name) {
			s.dead[q.Name], s.deadDepth = n, s.deadDepth+n
		}
	}
	throttles := h.throttles(w)
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.at, h.mu.took, h.mu.last, h.mu.err = now, now.Sub(began), s, nil
	h.keep(now)
	h.keepGates(now, throttles)
}

// keep adds the sample to the rings, and removes the rings of deleted queues.
func (h *history) keep(now time.Time) {
	if h.mu.rings == nil {
		h.mu.rings, h.mu.total = make(map[string]*ring), new(ring)
	}
	sum := api.QueueDetail{Waits: make([]int64, len(api.WaitBounds)+1)}
	all := api.QueueSummary{Detail: &sum}
	for i := range h.mu.last.queues {
		q := &h.mu.last.queues[i]
		d := q.Detail
		if d == nil {
			continue
		}
		sum.AtMs = max(sum.AtMs, d.AtMs) // the total has a new sample when a queue has one
		sum.Enqueued += d.Enqueued
		sum.Acked += d.Acked
		sum.Failed += d.Failed
		sum.Terminated += d.Terminated
		sum.DeadLettered += d.DeadLettered
		sum.MaxWaitMs = max(sum.MaxWaitMs, d.MaxWaitMs)
		all.Pending, all.Ready, all.Blocked, all.Delayed = all.Pending+q.Pending, all.Ready+q.Ready, all.Blocked+q.Blocked, all.Delayed+q.Delayed
		all.InFlight, all.Moving = all.InFlight+q.InFlight, all.Moving+q.Moving
		for j := range min(len(d.Waits), len(sum.Waits)) {
			sum.Waits[j] += d.Waits[j]
		}
		r := h.mu.rings[q.Name]
		if r == nil {
			if len(h.mu.rings) >= maxHistories || depthOf(q) == 0 && d.Enqueued == 0 && d.Delivered == 0 {
				continue
			}
			r = new(ring)
			h.mu.rings[q.Name] = r
		}
		if r.add(now, q) {
			h.keepTenants(r, r.base.at, d)
		}
	}
	h.mu.total.add(now, &all)
	for name, r := range h.mu.rings {
		if now.Sub(r.seen) > time.Hour {
			h.dropTenants(r)
			delete(h.mu.rings, name)
		}
	}
}

func depthOf(q *api.QueueSummary) int64 { return q.Pending + q.Delayed + q.InFlight + q.Moving }

// fresh returns the last sample if it is fresh, or a new one.
func (h *history) fresh(w *Web) (*snapshot, error) {
	h.mu.Lock()
	old := h.mu.last == nil || time.Since(h.mu.at) > min(max(freshFor, freshFactor*h.mu.took), staleFor)
	h.mu.Unlock()
	if old {
		h.sample(w)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.last, h.mu.err
}

// rest is the pause after a sample that took this long.
func (h *history) rest(took time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.err != nil || h.mu.last != nil && len(h.mu.last.missing) > 0 {
		return 0
	}
	return restFactor * took
}

// line is the history of a queue.
type line struct {
	Now  point
	Past []point
}

// of returns the last n points of a queue, or of the sum of all for "".
func (h *history) of(queue string, n int) line {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.mu.total
	if queue != "" {
		r = h.mu.rings[queue]
	}
	if r == nil {
		return line{}
	}
	return line{Now: r.rate, Past: r.recent(n)}
}

// heat returns the deliveries of a queue by minute and wait in the last hour.
func (h *history) heat(queue string, now time.Time) []heatColumn {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.mu.rings[queue]; r != nil {
		return r.heat.last(now)
	}
	return nil
}

// asOf is the time of the last sample.
func (h *history) asOf() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return wire.Timestamp(h.mu.at.Truncate(time.Second).UnixNano())
}
