package web

import (
	"cmp"
	"hash/fnv"
	"slices"
	"time"

	"github.com/filaq/fila/wire/api"
)

// tenantsData is the data of the tab of a queue's fairness keys.
type tenantsData struct {
	api.LanesReply
	Noise     api.NoisyReply
	Rows      []tenantRow
	Picture   lanesPicture
	Stack     stack
	Areas     []tenantArea
	Minutes   int
	Span      int // minutes of the picture: since the first point, at most Minutes
	Sort      string
	Columns   []tenantColumn
	Ranges    []timeRange
	Marks     marks
	MarkLines []markLine
	Paused    []api.PauseInfo // fairness keys
}

// tenantRow is a fairness key in the table.
type tenantRow struct {
	api.Lane
	Color        int     // of the key in all pictures of the page; 0: it is one of the others
	Served       float64 // its part of the deliveries that ended in the last one to two minutes
	Median, High float64 // ms: p50 and p99 of the waits before these
	Noisy        bool
}

// tenantArea is a fairness key in the picture of deliveries over time.
type tenantArea struct {
	Key    string // empty: all others
	Color  int
	Points string
	Mean   float64 // deliveries a second
	Part   float64 // of all deliveries
	Share  float64 // by weight; 0: not known
}

// tenantColumn is the head of a column that sorts.
type tenantColumn struct {
	By, Title, Href string
	N               bool // numbers
}

// tenantSorts are the columns that sort fairness keys, the largest first.
var tenantSorts = []struct {
	by, title string
	value     func(*tenantRow) float64
}{
	{"key", "Fairness key", nil},
	{"weight", "Weight", func(r *tenantRow) float64 { return r.Weight }},
	{"share", "Entitled", func(r *tenantRow) float64 { return r.Share }},
	{"served", "Served", func(r *tenantRow) float64 { return r.Served }},
	{"ready", "Ready", func(r *tenantRow) float64 { return float64(r.Ready) }},
	{"blocked", "Blocked", func(r *tenantRow) float64 { return float64(r.Blocked) }},
	{"in_flight", "In flight", func(r *tenantRow) float64 { return float64(r.InFlight) }},
	{"oldest", "Oldest wait", func(r *tenantRow) float64 { return float64(r.OldestMs) }},
	{"p50", "p50 wait", func(r *tenantRow) float64 { return r.Median }},
	{"p99", "p99 wait", func(r *tenantRow) float64 { return r.High }},
}

const (
	// shownTenants is how many fairness keys the table has.
	shownTenants = 50
	// maxWaiting is how many waiting keys are named beside noisy ones.
	maxWaiting = 3
)

func tenantsPage(a *ask) (any, error) {
	name := a.r.PathValue("queue")
	d := tenantsData{Sort: a.query("sort")}
	d.Minutes, d.Ranges = timeRanges(a)
	req := api.LanesRequest{Limit: shownTenants, Next: api.DefaultLaneForecast}
	if err := a.verb(api.VerbLanes, name, req, &d.LanesReply); err != nil {
		return nil, err
	}
	if err := a.verb(api.VerbNoisy, name, api.NoisyRequest{Limit: maxWaiting}, &d.Noise); err != nil {
		return nil, err
	}
	if _, err := a.web.history.fresh(a.web); err != nil {
		return nil, err
	}
	d.entitle()
	now := time.Now()
	d.Stack = a.web.history.tenants(name, now, d.Minutes)
	d.Span = d.Stack.span(now, d.Minutes)
	colors := d.colors()
	d.Picture = pictureOf(&d.LanesReply, colors)
	d.rows(colors)
	d.areas(colors, now)
	for _, s := range tenantSorts {
		d.Columns = append(d.Columns, tenantColumn{By: s.by, Title: s.title, Href: a.with("sort", s.by), N: s.value != nil})
	}
	var err error
	if d.Marks, err = marksOf(a, api.MarksRequest{Queue: name}, time.Duration(d.Minutes)*time.Minute); err != nil {
		return nil, err
	}
	d.MarkLines = d.Marks.Until(now, d.Span)
	d.Paused, err = keyPauses(a, name)
	return d, err
}

// tenantColors is how many keys have a color of their own.
const tenantColors = 7

// colors gives the keys that were served most, and then the largest backlogs, a color each: the one
// of its name or, if another key has it, the next that is free. So a key mostly keeps its color.
func (d *tenantsData) colors() map[string]int {
	colors, taken := make(map[string]int), [tenantColors]bool{}
	add := func(key string) {
		if _, ok := colors[key]; !ok && len(colors) < tenantColors {
			sum := fnv.New32a()
			sum.Write([]byte(key)) // it never fails
			color := int(sum.Sum32() % tenantColors)
			for taken[color] {
				color = (color + 1) % tenantColors
			}
			colors[key], taken[color] = color+1, true
		}
	}
	for _, key := range d.Stack.Keys {
		add(key)
	}
	for i := range d.Lanes {
		add(d.Lanes[i].Key)
	}
	return colors
}

// entitle makes the shares add up: the backlogs share by weight with the keys that have messages in
// flight or deliveries that ended lately. Others, and paused keys, are entitled to nothing now.
func (d *tenantsData) entitle() {
	backlog, others := 0.0, 0.0 // weights
	for i := range d.Lanes {
		switch l := &d.Lanes[i]; {
		case l.Share == 0:
		case l.Ready+l.Blocked > 0:
			backlog = max(backlog, l.Weight/l.Share)
		case l.InFlight > 0 || l.All() > 0:
			others += l.Weight
		default:
			l.Share = 0
		}
	}
	for i := range d.Lanes {
		if l := &d.Lanes[i]; l.Share > 0 {
			l.Share = l.Weight / (backlog + others)
		}
	}
}

func (d *tenantsData) rows(colors map[string]int) {
	all := d.All()
	inFlight := 0.0
	for i := range d.Lanes {
		inFlight += float64(d.Lanes[i].InFlight)
	}
	for _, l := range d.Lanes {
		r := tenantRow{Lane: l, Color: colors[l.Key]}
		if all > 0 {
			r.Served = float64(r.All()) / float64(all)
		}
		r.Median, r.High = 1000*quantile(l.Waits, 0.5, l.MaxWaitMs/1000), 1000*quantile(l.Waits, 0.99, l.MaxWaitMs/1000)
		more := r.Served > l.Share || float64(l.InFlight) > l.Share*inFlight
		r.Noisy = more && slices.ContainsFunc(d.Noise.Noisy, func(n api.NoisyFlow) bool { return n.Key == l.Key })
		d.Rows = append(d.Rows, r)
	}
	for _, s := range tenantSorts {
		switch {
		case s.by != d.Sort:
		case s.value == nil:
			slices.SortStableFunc(d.Rows, func(a, b tenantRow) int { return cmp.Compare(a.Key, b.Key) })
		default:
			slices.SortStableFunc(d.Rows, func(a, b tenantRow) int { return cmp.Compare(s.value(&b), s.value(&a)) })
		}
	}
}

func (d *tenantsData) areas(colors map[string]int, now time.Time) {
	areas := d.Stack.areas(now, d.Span)
	for i, mean := range d.Stack.Means {
		area := tenantArea{Mean: mean}
		if i < len(areas) {
			area.Points = areas[i]
		}
		if d.Stack.All > 0 {
			area.Part = mean / d.Stack.All
		}
		if i < len(d.Stack.Keys) {
			area.Key, area.Color = d.Stack.Keys[i], colors[d.Stack.Keys[i]]
			for j := range d.Lanes {
				if d.Lanes[j].Key == area.Key {
					area.Share = d.Lanes[j].Share
				}
			}
		}
		d.Areas = append(d.Areas, area)
	}
}
