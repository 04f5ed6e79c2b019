package web

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Pictures over time: quantiles of waits, the heatmap of waits, and deliveries by tenant. The
// server draws them as SVG, with coordinates in hundredths of the width and a text or table
// with the same numbers.

// waits returns the p50 and p99 wait of the messages delivered between two counts, in
// seconds. longest is the longest wait that was seen; 0: not known.
func waits(before, after []int64, longest float64) (median, high float32) {
	n := waited(before, after)
	return float32(quantile(n, 0.5, longest)), float32(quantile(n, 0.99, longest))
}

// waited returns the deliveries between two counts, by wait; nil: the counts are not
// comparable. A count that has decreased counts from 0.
func waited(before, after []int64) []int64 {
	if len(after) != len(api.WaitBounds)+1 {
		return nil
	}
	n := slices.Clone(after)
	for i := range n {
		if len(before) == len(n) && before[i] <= n[i] {
			n[i] -= before[i]
		}
	}
	return n
}

// quantile returns the wait (seconds) below which a part of counted deliveries are: 0 if there
// are none. Within a range of waits it assumes that they are spread evenly. It is never above
// longest, unless that is 0: not known.
func quantile(counts []int64, part, longest float64) float64 {
	var all, sum int64
	for _, n := range counts {
		all += n
	}
	if all == 0 {
		return 0
	}
	if longest <= 0 {
		longest = math.Inf(1)
	}
	for i, n := range counts {
		if sum += n; n == 0 || float64(sum) < part*float64(all) {
			continue
		}
		low, high := 0.0, longest
		if i > 0 {
			low = api.WaitBounds[i-1]
		}
		if i < len(api.WaitBounds) {
			high = min(api.WaitBounds[i], longest)
		} else if math.IsInf(longest, 1) {
			high = low
		}
		within := (part*float64(all) - float64(sum-n)) / float64(n)
		return min(low+max(high-low, 0)*within, longest)
	}
	return 0
}

// heat counts deliveries by minute and by wait for an hour: 5 KB.
type heat struct {
	columns [heatColumns]heatColumn // a ring, by minute
}

// heatColumns is how many minutes a heat has, heatLeast how many its picture has at least.
const heatColumns, heatLeast = 60, 10

type heatColumn struct {
	minute  int64 // Unix minutes
	n       [20]uint32
	longest float64 // s: the longest wait; 0: not known
}

// add counts the deliveries between two samples in the minute of the second one. longest is the
// longest wait (s) among the deliveries before it.
func (h *heat) add(now time.Time, before, after []int64, longest float64) {
	minute := now.Unix() / 60
	c := &h.columns[minute%heatColumns]
	if c.minute != minute {
		*c = heatColumn{minute: minute}
	}
	c.longest = max(c.longest, longest)
	for i, n := range waited(before, after) {
		c.n[i] += uint32(min(max(n, 0), math.MaxUint32/heatColumns))
	}
}

// last returns the columns of the last hour that have data, oldest first.
func (h *heat) last(now time.Time) []heatColumn {
	var list []heatColumn
	for _, c := range h.columns {
		if c.minute > now.Unix()/60-heatColumns && c.minute <= now.Unix()/60 {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b heatColumn) int { return cmp.Compare(a.minute, b.minute) })
	return list
}

// heatPicture is the heatmap of a queue: minutes from left to right, waits from below to
// above.
type heatPicture struct {
	Minutes int      // columns: since the first delivery, at most an hour
	Shades  []string // paths of the cells by how many deliveries they have, the fewest first
	Most    int64    // deliveries of the cell with the most
	Rows    []heatRow
	Bounds  []heatBound
	Marks   []markLine
}

// heatRow is a minute as text.
type heatRow struct {
	At               string
	Deliveries       int64
	Median, High     float64 // ms
	WaitsAboveSecond int64
}

// heatBound is a label of the axis of waits.
type heatBound struct {
	Y    string // percent from above
	Text string
}

// heatShades is how many shades cells have; each is a range of a logarithmic scale.
const heatShades = 6

func heatPictureOf(columns []heatColumn, now time.Time) (p heatPicture) {
	for i := range columns {
		for _, n := range columns[i].n {
			p.Most = max(p.Most, int64(n))
		}
	}
	if p.Most == 0 {
		return p
	}
	p.Minutes = int(min(max(now.Unix()/60-columns[0].minute+1, heatLeast), heatColumns))
	shades := make([]strings.Builder, heatShades)
	for i := range columns {
		c := &columns[i]
		x := int64(p.Minutes) - 1 - (now.Unix()/60 - c.minute)
		row := heatRow{At: wire.Timestamp(c.minute * 60 * 1e9)}
		counts := make([]int64, len(c.n))
		for j, n := range c.n {
			counts[j] = int64(n)
			row.Deliveries += int64(n)
			if j > 0 && api.WaitBounds[j-1] >= 1 {
				row.WaitsAboveSecond += int64(n)
			}
			if n > 0 {
				shade := int(float64(heatShades) * math.Log1p(float64(n)) / (math.Log1p(float64(p.Most)) * 1.0001))
				fmt.Fprintf(&shades[shade], "M%d %dh1v1h-1z", x, len(c.n)-1-j)
			}
		}
		row.Median, row.High = quantile(counts, 0.5, c.longest)*1000, quantile(counts, 0.99, c.longest)*1000
		p.Rows = append(p.Rows, row)
	}
	for i := range shades {
		p.Shades = append(p.Shades, shades[i].String())
	}
	slices.Reverse(p.Rows)
	for i, bound := range api.WaitBounds {
		switch bound {
		case .001, .01, .1, 1, 10, 60, 900:
			p.Bounds = append(p.Bounds, heatBound{
				Y: fmt.Sprintf("%.2f%%", 100*float64(len(api.WaitBounds)-i)/float64(len(api.WaitBounds)+1)), Text: wire.Span(time.Duration(bound * 1e9)),
			})
		}
	}
	return p
}

// tenantRing is an hour of deliveries by fairness key: 360 points with the keys of which the
// most deliveries ended, 26 KB and the keys.
type tenantRing struct {
	series[tenantPoint]
	keys   []string       // by number
	number map[string]int // of keys
	base   map[string]int64
	ended  int64 // of all keys
	at     time.Time
}

// tenantPoint is how many deliveries of some keys ended in a second.
type tenantPoint struct {
	at   int64 // Unix seconds
	key  [api.SampledTenants]uint16
	rate [api.SampledTenants]float32 // 0: no key
	all  float32
}

const (
	// maxTenantRings is how many queues have deliveries by fairness key.
	maxTenantRings = 500
	// maxTenantKeys is how many keys a ring remembers; further ones count as others.
	maxTenantKeys = 256
)

// keepTenants adds a point to the deliveries by fairness key of a queue.
func (h *history) keepTenants(r *ring, now time.Time, d *api.QueueDetail) {
	if r.tenants == nil {
		if len(d.Tenants) == 0 || h.mu.withTenants >= maxTenantRings {
			return
		}
		h.mu.withTenants++
		r.tenants = &tenantRing{number: make(map[string]int)}
	}
	r.tenants.add(now, d.Tenants, d.Ended)
}

// dropTenants forgets the deliveries by fairness key of a queue.
func (h *history) dropTenants(r *ring) {
	if r.tenants != nil {
		r.tenants = nil
		h.mu.withTenants--
	}
}

func (t *tenantRing) add(now time.Time, tenants []api.EndedCount, ended int64) {
	base := make(map[string]int64, len(tenants))
	p := tenantPoint{at: now.Unix()}
	seconds := now.Sub(t.at).Seconds()
	rate := func(before, after int64) float32 {
		if after < before {
			before = 0 // the count has begun again
		}
		return float32(float64(after-before) / seconds)
	}
	n := 0
	for _, c := range tenants {
		base[c.Key] = c.Ended
		before, known := t.base[c.Key]
		if t.at.IsZero() || !known || n == api.SampledTenants {
			continue // since when it is counted is not known: it is one of the others
		}
		number, ok := t.numberOf(c.Key)
		if ok {
			p.key[n], p.rate[n] = uint16(number), rate(before, c.Ended)
			n++
		}
	}
	if !t.at.IsZero() {
		p.all = rate(t.ended, ended)
		if t.push(p); t.next == 0 && len(t.points) == historyPoints && len(t.keys) > maxTenantKeys/2 {
			t.forget()
		}
	}
	t.base, t.ended, t.at = base, ended, now
}

// numberOf returns the number of a key. It reports false if the ring remembers no more keys.
func (t *tenantRing) numberOf(key string) (int, bool) {
	n, ok := t.number[key]
	if !ok && len(t.keys) < maxTenantKeys {
		n, ok = len(t.keys), true
		t.keys = append(t.keys, key)
		t.number[key] = n
	}
	return n, ok
}

// forget removes the keys that no point has, once in an hour.
func (t *tenantRing) forget() {
	keys, number := []string(nil), make(map[string]int)
	for i := range t.points {
		p := &t.points[i]
		for j := range p.key {
			if p.rate[j] == 0 {
				p.key[j] = 0
				continue
			}
			key := t.keys[p.key[j]]
			if _, ok := number[key]; !ok {
				number[key] = len(keys)
				keys = append(keys, key)
			}
			p.key[j] = uint16(number[key])
		}
	}
	t.keys, t.number = keys, number
}

// stack is deliveries a second by fairness key over time. Values has the keys, the one with
// the most deliveries first, and last all others.
type stack struct {
	Keys   []string
	At     []int64 // Unix seconds
	Width  int64   // s for which a value holds from its time on; 0: values are joined by lines
	Values [][]float64
	Means  []float64 // of Values
	All    float64   // the mean of all
	Top    float64   // the largest sum at one time
}

// stackKeys is how many keys a stack names.
const stackKeys = 7

// tenants returns the deliveries by fairness key of a queue in the last minutes.
func (h *history) tenants(queue string, now time.Time, minutes int) (s stack) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.mu.rings[queue]
	if r == nil || r.tenants == nil {
		return s
	}
	t := r.tenants
	var points []*tenantPoint
	for i := range t.points {
		if p := &t.points[(t.next+i)%len(t.points)]; p.at > now.Unix()-int64(minutes)*60 {
			points = append(points, p)
		}
	}
	if len(points) == 0 {
		return s
	}
	sums := make([]float64, len(t.keys))
	for _, p := range points {
		for i, rate := range p.rate {
			if rate > 0 {
				sums[p.key[i]] += float64(rate)
			}
		}
	}
	order := make([]int, 0, len(sums))
	for i := range sums {
		if sums[i] > 0 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(t.keys[a], t.keys[b]))
	})
	order = order[:min(len(order), stackKeys)]
	s.Values = make([][]float64, len(order)+1)
	for _, i := range order {
		s.Keys = append(s.Keys, t.keys[i])
	}
	for _, p := range points {
		s.At = append(s.At, p.at)
		rest := float64(p.all)
		for j, i := range order {
			v := 0.0
			for k := range p.rate {
				if int(p.key[k]) == i && p.rate[k] > 0 {
					v = float64(p.rate[k])
				}
			}
			s.Values[j] = append(s.Values[j], v)
			rest -= v
		}
		s.Values[len(order)] = append(s.Values[len(order)], max(rest, 0))
		s.Top, s.All = max(s.Top, float64(p.all)), s.All+float64(p.all)/float64(len(points))
	}
	for _, values := range s.Values {
		sum := 0.0
		for _, v := range values {
			sum += v
		}
		s.Means = append(s.Means, sum/float64(len(points)))
	}
	return s
}

// span is how many minutes a picture needs for the points, at most most.
func (s *stack) span(now time.Time, most int) int {
	if len(s.At) == 0 {
		return most
	}
	return int(min(max((now.Unix()-s.At[0]+59)/60, 1), int64(most)))
}

// areas draws the stack in a square of 1000 by 100: a polygon for each of Values, the first
// at the bottom. The right edge is now, the left one minutes ago.
func (s *stack) areas(now time.Time, minutes int) []string {
	if s.Top == 0 || len(s.At) < 2 && s.Width == 0 {
		return nil
	}
	x := func(at int64) float64 { return 1000 * min(1-float64(now.Unix()-at)/(60*float64(minutes)), 1) }
	y := func(v float64) float64 { return 100 - 100*v/s.Top }
	below := make([]float64, len(s.At))
	list := make([]string, 0, len(s.Values))
	for _, values := range s.Values {
		var b strings.Builder
		point := func(at int64, v float64) { fmt.Fprintf(&b, "%.0f,%.1f ", x(at), y(min(v, s.Top))) }
		for i, v := range values {
			if point(s.At[i], below[i]+v); s.Width > 0 {
				point(s.At[i]+s.Width, below[i]+v)
			}
		}
		for i := len(values) - 1; i >= 0; i-- {
			if s.Width > 0 {
				point(s.At[i]+s.Width, below[i])
			}
			point(s.At[i], below[i])
			below[i] += values[i]
		}
		list = append(list, strings.TrimSpace(b.String()))
	}
	return list
}

// waitText is a wait (ms) as text, short ones with a fraction.
func waitText(ms float64) string {
	switch {
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	case ms < 10_000:
		return fmt.Sprintf("%.1f s", ms/1000)
	}
	return spanMs(int64(ms))
}
