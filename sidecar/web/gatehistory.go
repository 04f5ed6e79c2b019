package web

import (
	"math"
	"strings"
	"time"

	"github.com/filaq/fila/wire/api"
)

// gatePoint is the state of a throttle at one time, with the rates before it. It is of the part
// of this fila if several share the throttle.
type gatePoint struct {
	at                int64   // Unix seconds
	Admitted, Blocked float32 // per second, as [api.ThrottleInfo] counts
	Limit             float32 // per second, of messages of cost 1; NaN: none
	Waiting, InFlight float32 // messages
	Concurrency       float32 // limit of InFlight; NaN: none
	Ceiling           float32 // of a Concurrency that is learned; NaN: it is not
	RateCeiling       float32 // of a Limit that is learned; NaN: it is not
}

func (p *gatePoint) time() int64 { return p.at }

// gateRing is an hour of a throttle: 14 KB.
type gateRing struct {
	series[gatePoint]
	last, before gateCounts // of the last sample, and of the one before it
}

// gateCounts are the counters of a throttle at one time.
type gateCounts struct {
	at                time.Time
	admitted, blocked int64
}

// until returns the rates between two readings; 0: there is none before.
func (c gateCounts) until(now gateCounts) (admitted, blocked float32) {
	seconds := now.at.Sub(c.at).Seconds()
	if c.at.IsZero() || seconds <= 0 {
		return 0, 0
	}
	perSecond := func(before, after int64) float32 {
		if after < before {
			before = 0 // the counts have begun anew
		}
		return float32(float64(after-before) / seconds)
	}
	return perSecond(c.admitted, now.admitted), perSecond(c.blocked, now.blocked)
}

// maxGateHistories is how many throttles have a history.
const maxGateHistories = 1000

// gateLines are the curves of a throttle.
var (
	gateRates = []curve[gatePoint]{
		{"admitted", func(p *gatePoint) float32 { return p.Admitted }},
		{"newly blocked", func(p *gatePoint) float32 { return p.Blocked }},
		{"limit", func(p *gatePoint) float32 { return p.Limit }},
		{"ceiling", func(p *gatePoint) float32 { return p.RateCeiling }},
	}
	gateDepths = []curve[gatePoint]{
		{"in flight", func(p *gatePoint) float32 { return p.InFlight }},
		{"waiting", func(p *gatePoint) float32 { return p.Waiting }},
		{"limit in flight", func(p *gatePoint) float32 { return p.Concurrency }},
		{"ceiling", func(p *gatePoint) float32 { return p.Ceiling }},
	}
)

// throttles returns the first maxGateHistories throttles by key when a point of them is due, and
// otherwise nil.
func (h *history) throttles(w *Web) (list []api.ThrottleInfo) {
	h.mu.Lock()
	due := time.Since(h.mu.gatesAt) >= historyStep-pace/2
	h.mu.Unlock()
	if !due {
		return nil
	}
	list = []api.ThrottleInfo{}
	for req := (api.KeyListRequest{Limit: api.MaxListLimit}); len(list) < maxGateHistories; {
		var page api.ThrottleList
		if err := w.verb(api.Sender{Client: "web"}, api.VerbThrottleList, "", req, &page); err != nil {
			w.Log.Debug("throttles have no point", "error", err)
			return nil
		}
		list = append(list, page.Throttles...)
		if req.After = page.Next; req.After == "" {
			break
		}
	}
	return list[:min(len(list), maxGateHistories)]
}

// keepGates adds a point to the history of each throttle, unless list is nil. It needs mu.
func (h *history) keepGates(now time.Time, list []api.ThrottleInfo) {
	if list == nil {
		return
	}
	if h.mu.gatesAt = now; h.mu.gates == nil {
		h.mu.gates = make(map[string]*gateRing)
	}
	for i := range list {
		t := &list[i]
		r := h.mu.gates[t.Key]
		if r == nil {
			if strings.HasSuffix(t.Key, "*") || len(h.mu.gates) >= maxGateHistories {
				continue
			}
			r = new(gateRing)
			h.mu.gates[t.Key] = r
		}
		r.add(now, t)
	}
	for key, r := range h.mu.gates {
		if now.Sub(r.last.at) > time.Hour {
			delete(h.mu.gates, key)
		}
	}
}

// add adds a sample. The first one makes no point.
func (r *gateRing) add(now time.Time, t *api.ThrottleInfo) {
	is := gateCounts{now, t.Admitted, t.Blocked}
	if none := float32(math.NaN()); now.After(r.last.at) && !r.last.at.IsZero() {
		p := gatePoint{
			at: now.Unix(), Limit: limitPerSecond(t.ThrottleLimits), Waiting: float32(t.WaitingMessages), InFlight: float32(t.InFlight), Concurrency: none,
		}
		p.Admitted, p.Blocked = r.last.until(is)
		if t.Concurrency != nil {
			p.Concurrency = float32(*t.Concurrency)
		}
		if p.Ceiling, p.RateCeiling = none, none; t.Learned != nil {
			if l := t.Learned; l.Of == api.LearnedRate {
				p.Limit, p.RateCeiling = min(p.Limit, float32(l.Level)), float32(l.Ceiling)
			} else {
				p.Concurrency, p.Ceiling = float32(l.Level), float32(l.Ceiling)
			}
		}
		r.push(p)
	}
	r.last, r.before = is, r.last
}

// gateRates returns what a throttle has admitted and blocked a second since the last sample but
// one, or since the first. The gate of a key without limits of its own comes and goes, and may be
// missing in samples.
func (h *history) gateRates(now time.Time, t *api.ThrottleInfo) (admitted, blocked float32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.mu.gates[t.Key]
	if r == nil {
		return 0, 0
	}
	from := r.before
	if from.at.IsZero() {
		from = r.last
	}
	return from.until(gateCounts{now, t.Admitted, t.Blocked})
}

// drainTime returns how long the backlog of a throttle needs until it is empty, by the points of the
// last half minute; 0: it does not shrink, or that is not known.
func drainTime(points []gatePoint, now time.Time, waiting int64) time.Duration {
	for i := range points {
		since := now.Sub(time.Unix(points[i].at, 0))
		if since > 3*historyStep+historyStep/2 {
			continue
		}
		if rest, ok := api.DrainTime(int64(points[i].Waiting), waiting, since); ok && since >= historyStep {
			return rest
		}
		return 0
	}
	return 0
}

// limitPerSecond returns how many messages of cost 1 limits admit in a second over a long time: by
// rate or by window, whichever is less; NaN: neither is limited.
func limitPerSecond(l api.ThrottleLimits) float32 {
	limit := math.Inf(1)
	if l.Rate != nil {
		limit = l.Rate.PerSecond()
	}
	if l.Limit != nil && l.WindowMs != nil {
		limit = min(limit, 1000*float64(*l.Limit)/float64(*l.WindowMs))
	}
	if math.IsInf(limit, 1) {
		return float32(math.NaN())
	}
	return float32(limit)
}

// gate returns the points of a throttle in the last minutes, the oldest first.
func (h *history) gate(key string, now time.Time, minutes int) []gatePoint {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.mu.gates[key]
	if r == nil {
		return nil
	}
	points := r.recent(minutes * int(time.Minute/historyStep))
	for len(points) > 0 && points[0].at <= now.Unix()-int64(minutes)*60 {
		points = points[1:]
	}
	return points
}
