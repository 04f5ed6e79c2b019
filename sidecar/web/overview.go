package web

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/filaq/fila/wire"
)

// perPage is how many rows a list has on a page.
const perPage = 50

// overviewData is what the first page shows.
type overviewData struct {
	Find, Sort string
	Queues     []queueRow
	Pager      pager
	Total      line
	All, Idle  int
	Depth      int64
	InFlight   int64
	Node       Node
	Missing    []int
	AsOf       string
	Noise      []noise
	MoreNoise  int
	Circuits   []wire.CircuitInfo

	MoreCircuits int
	Pauses       []wire.PauseInfo
	MorePauses   int
}

type queueRow struct {
	wire.QueueSummary
	Depth int64
	Line  line
}

// noise is a queue in which some flows keep others waiting.
type noise struct {
	Queue string
	wire.NoisyReply
}

const (
	maxNoise  = 5 // queues whose flows are named
	maxPauses = 10
	// maxCircuits is how many circuits that are not closed are named.
	maxCircuits = 10
	// starved is how long a quiet flow may wait beside noisy ones before it is worth a line.
	starved = 1000 // ms
)

func overview(a *ask) (any, error) {
	h := &a.web.history
	if err := h.fresh(a.web); err != nil {
		return nil, err
	}
	all, missing := h.all()
	d := overviewData{
		Find: a.query("find"), Sort: cmp.Or(a.query("sort"), "depth"), All: len(all), Total: h.of(""), Node: a.web.Here(), Missing: missing, AsOf: h.asOf(),
	}
	find := strings.ToLower(d.Find)
	var noisy []wire.QueueSummary
	rows := make([]queueRow, 0, len(all))
	for i := range all {
		q := &all[i]
		d.Depth, d.InFlight = d.Depth+depthOf(q), d.InFlight+q.InFlight
		if n := q.Detail; n != nil && n.NoisyFlows > 0 && n.QuietPending > 0 && n.QuietOldestAgeMs >= starved {
			noisy = append(noisy, *q)
		}
		if strings.Contains(strings.ToLower(q.Name), find) {
			rows = append(rows, queueRow{QueueSummary: *q, Depth: depthOf(q)})
		}
	}
	sortQueues(rows, d.Sort)
	rows, d.Pager = paged(a, rows)
	for i := range rows {
		rows[i].Line = h.of(rows[i].Name)
	}
	d.Queues = rows
	if err := d.noise(a, noisy); err != nil {
		return nil, err
	}
	var circuits wire.CircuitList
	if err := a.verb(wire.VerbCircuitList, "", wire.CircuitListRequest{KeyListRequest: wire.KeyListRequest{Limit: maxCircuits}, NotClosed: true}, &circuits); err != nil {
		return nil, err
	}
	d.Circuits, d.MoreCircuits = circuits.Circuits, circuits.Total-len(circuits.Circuits)
	var pauses wire.PauseList
	if err := a.verb(wire.VerbPauseList, "", wire.ListRequest{Limit: maxPauses}, &pauses); err != nil {
		return nil, err
	}
	d.Pauses, d.MorePauses = pauses.Pauses, pauses.Total-len(pauses.Pauses)
	return d, nil
}

// noise asks who is noisy in the queues where others have waited longest.
func (d *overviewData) noise(a *ask, noisy []wire.QueueSummary) error {
	slices.SortStableFunc(noisy, func(a, b wire.QueueSummary) int {
		return cmp.Compare(b.Detail.QuietOldestAgeMs, a.Detail.QuietOldestAgeMs)
	})
	d.MoreNoise = max(len(noisy)-maxNoise, 0)
	for _, q := range noisy[:min(len(noisy), maxNoise)] {
		n := noise{Queue: q.Name}
		err := a.verb(wire.VerbNoisy, q.Name, wire.NoisyRequest{Limit: 3}, &n.NoisyReply)
		switch {
		case refusedWith(err, wire.CodeQueueNotFound):
		case err != nil:
			return err
		case len(n.Noisy) > 0 && len(n.Waiting) > 0:
			d.Noise = append(d.Noise, n)
		}
	}
	return nil
}

func sortQueues(rows []queueRow, by string) {
	value := func(r *queueRow) int64 {
		switch by {
		case "in_flight":
			return r.InFlight
		case "parked":
			return r.Parked
		case "delayed":
			return r.Delayed
		case "age":
			return r.OldestAgeMs
		case "consumers":
			return int64(r.Consumers)
		}
		return r.Depth
	}
	if by == "name" {
		return // as they come
	}
	slices.SortStableFunc(rows, func(a, b queueRow) int { return cmp.Compare(value(&b), value(&a)) })
}

// pager says which part of a list a page shows, and where the others are.
type pager struct {
	From, To, Total int    // from 1
	Before, Next    string // addresses; "": there is none
}

// paged takes the part of rows that the query asks for by page, from 1.
func paged[T any](a *ask, rows []T) ([]T, pager) { return pagedBy(a, rows, perPage) }

// pagedBy takes a part of so many rows.
func pagedBy[T any](a *ask, rows []T, perPage int) ([]T, pager) {
	number, _ := strconv.Atoi(a.query("page")) // what is no number is the first page
	last := max((len(rows)+perPage-1)/perPage, 1)
	number = min(max(number, 1), last)
	from := (number - 1) * perPage
	to := min(from+perPage, len(rows))
	p := pager{From: min(from+1, len(rows)), To: to, Total: len(rows)}
	at := func(n int) string {
		q := a.r.URL.Query()
		q.Set("page", strconv.Itoa(n))
		return a.path() + "?" + q.Encode()
	}
	if number > 1 {
		p.Before = at(number - 1)
	}
	if number < last {
		p.Next = at(number + 1)
	}
	return rows[from:to], p
}

// path is the path of the page that somebody looks at, also where only its changing part
// is made.
func (a *ask) path() string {
	base := a.web.base
	return base + strings.TrimPrefix(strings.TrimPrefix(a.r.URL.Path, base), "/live")
}

// here is path with the query.
func (a *ask) here() string {
	if q := a.r.URL.RawQuery; q != "" {
		return a.path() + "?" + q
	}
	return a.path()
}
