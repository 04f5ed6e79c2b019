package web

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// perPage is how many rows a list has on a page.
const perPage = 50

// overviewData is the data of the first page.
type overviewData struct {
	Queues     []queueRow // the ones with the most messages
	Total      line
	All        int
	Depth      int64
	InFlight   int64
	Node       Node
	Missing    []int
	AsOf       string
	Noise      []noise
	MoreNoise  int
	Deserted   []string // queues with ready messages and without consumers
	MoreDesert int
	Dead       int64
	Circuits   []api.CircuitInfo

	MoreCircuits int
	Pauses       []api.PauseInfo
	MorePauses   int
	First        *firstSteps // nil: this fila is in use
}

// firstSteps says which of the first three commands have taken effect.
type firstSteps struct {
	Queue                        string // that the commands name
	Created, Published, Consumed bool
}

// firstStepsOf returns the first steps while there is at most one queue and no delivery has ended.
func firstStepsOf(queues []api.QueueSummary) *firstSteps {
	f := firstSteps{Queue: "orders"}
	for i := range queues {
		q := &queues[i]
		if wire.IsDLQ(q.Name) {
			if depthOf(q) > 0 {
				return nil
			}
			continue
		}
		var d api.QueueDetail
		if q.Detail != nil {
			d = *q.Detail
		}
		if f.Created || d.Acked+d.Failed+d.DeadLettered > 0 {
			return nil
		}
		f = firstSteps{q.Name, true, depthOf(q) > 0 || d.Enqueued > 0, q.InFlight > 0}
	}
	return &f
}

// queuesData is the data of the list of queues.
type queuesData struct {
	Find, Sort string
	Queues     []queueRow
	Pager      pager
	Missing    []int
	AsOf       string
}

type queueRow struct {
	api.QueueSummary
	Depth int64
	Dead  int64 // messages of its dead letter queue
	Line  line
}

// Well reports whether there are no known problems.
func (d overviewData) Well() bool {
	return d.Node.Ready && !d.Node.DiskLow && len(d.Missing)+len(d.Noise)+len(d.Deserted)+len(d.Circuits)+len(d.Pauses) == 0
}

// noise is a queue with noisy or starved flows.
type noise struct {
	Queue string
	api.NoisyReply
}

const (
	topQueues  = 10 // queues on the overview
	maxNoise   = 5  // queues whose flows are named
	maxWaiting = 3  // waiting flows of each queue, and starved ones
	maxPauses  = 10
	// maxDeserted is how many queues without consumers are named.
	maxDeserted = 10
	// maxCircuits is how many open circuits are named.
	maxCircuits = 10
	// starved is the wait of a quiet flow beside noisy ones from which on it is shown.
	starved = 1000 // ms
)

// queueList serves the list of queues. Dead letters are a column of it.
func queueList(a *ask) (any, error) {
	h := &a.web.history
	s, err := h.fresh(a.web)
	if err != nil {
		return nil, err
	}
	d := queuesData{Find: a.query("find"), Sort: cmp.Or(a.query("sort"), "depth"), Missing: s.missing, AsOf: h.asOf()}
	find := strings.ToLower(d.Find)
	rows, pager := paged(a, s.pick(d.Sort, func(q *api.QueueSummary) bool {
		return !wire.IsDLQ(q.Name) && strings.Contains(strings.ToLower(q.Name), find)
	}))
	d.Queues, d.Pager = h.rows(s, rows), pager
	return d, nil
}

func overview(a *ask) (any, error) {
	h := &a.web.history
	s, err := h.fresh(a.web)
	if err != nil {
		return nil, err
	}
	d := overviewData{
		Total: h.of("", sparkPoints), Depth: s.depth - s.deadDepth, Dead: s.deadDepth, InFlight: s.inFlight,
		Node: a.web.Here(), Missing: s.missing, AsOf: h.asOf(), First: firstStepsOf(s.queues),
	}
	top := s.pick("depth", func(q *api.QueueSummary) bool { return !wire.IsDLQ(q.Name) })
	d.Queues = h.rows(s, top[:min(len(top), topQueues)])
	var noisy []api.QueueSummary
	for i := range s.queues {
		q := &s.queues[i]
		if wire.IsDLQ(q.Name) {
			continue
		}
		d.All++
		if n := q.Detail; n != nil && (n.StarvedFlows > 0 || n.NoisyFlows > 0 && n.QuietPending > 0 && n.QuietOldestAgeMs >= starved) {
			noisy = append(noisy, *q)
		}
		if q.Consumers > 0 || q.Pending <= q.Parked {
			continue
		}
		if len(d.Deserted) == maxDeserted {
			d.MoreDesert++
			continue
		}
		d.Deserted = append(d.Deserted, q.Name)
	}
	if err := d.noise(a, noisy); err != nil {
		return nil, err
	}
	var circuits api.CircuitList
	if err := a.verb(api.VerbCircuitList, "", api.CircuitListRequest{KeyListRequest: api.KeyListRequest{Limit: maxCircuits}, NotClosed: true}, &circuits); err != nil {
		return nil, err
	}
	d.Circuits, d.MoreCircuits = circuits.Circuits, circuits.Total-len(circuits.Circuits)
	var pauses api.PauseList
	if err := a.verb(api.VerbPauseList, "", api.ListRequest{Limit: maxPauses}, &pauses); err != nil {
		return nil, err
	}
	d.Pauses, d.MorePauses = pauses.Pauses, pauses.Total-len(pauses.Pauses)
	return d, nil
}

// noise returns the noisy flows of the queues where others have waited longest.
func (d *overviewData) noise(a *ask, noisy []api.QueueSummary) error {
	slices.SortStableFunc(noisy, func(a, b api.QueueSummary) int {
		return cmp.Or(cmp.Compare(b.Detail.StarvedFlows, a.Detail.StarvedFlows), cmp.Compare(b.Detail.QuietOldestAgeMs, a.Detail.QuietOldestAgeMs))
	})
	d.MoreNoise = max(len(noisy)-maxNoise, 0)
	for _, q := range noisy[:min(len(noisy), maxNoise)] {
		n := noise{Queue: q.Name}
		err := a.verb(api.VerbNoisy, q.Name, api.NoisyRequest{Limit: maxWaiting}, &n.NoisyReply)
		if err == nil {
			err = n.unpaused(a)
		}
		switch {
		case refusedWith(err, wire.CodeQueueNotFound):
		case err != nil:
			return err
		case len(n.Starved) > 0 || len(n.Noisy) > 0 && len(n.Waiting) > 0:
			d.Noise = append(d.Noise, n)
		}
	}
	return nil
}

// unpaused removes paused keys: the pause blocks them, not other flows.
func (n *noise) unpaused(a *ask) error {
	paused, err := keyPauses(a, n.Queue)
	if err != nil || len(paused) == 0 {
		return err
	}
	is := func(f api.WaitingFlow) bool {
		return slices.ContainsFunc(paused, func(p api.PauseInfo) bool { return p.Name == f.Key })
	}
	n.Waiting, n.Starved = slices.DeleteFunc(n.Waiting, is), slices.DeleteFunc(n.Starved, is)
	return nil
}

// rows are the rows of the table of queues.
func (h *history) rows(s *snapshot, queues []*api.QueueSummary) []queueRow {
	rows := make([]queueRow, len(queues))
	for i, q := range queues {
		rows[i] = queueRow{QueueSummary: *q, Depth: depthOf(q), Dead: s.dead[q.DLQ], Line: h.of(q.Name, sparkPoints)}
	}
	return rows
}

// pager is the position of a page in a list, with links to the pages before and after.
type pager struct {
	From, To, Total int    // from 1
	Before, Next    string // addresses; "": there is none
}

// paged returns the rows of the page in the query, from 1.
func paged[T any](a *ask, rows []T) ([]T, pager) { return pagedBy(a, rows, perPage) }

// pagedBy is paged with a page size.
func pagedBy[T any](a *ask, rows []T, perPage int) ([]T, pager) {
	number, _ := strconv.Atoi(a.query("page")) // an invalid number means the first page
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

// path is the path of the viewed page, also when only its live part is rendered.
func (a *ask) path() string {
	base := a.web.base
	return base + strings.TrimPrefix(strings.TrimPrefix(a.r.URL.Path, base), "/live")
}

// here is the path with the query.
func (a *ask) here() string {
	if q := a.r.URL.RawQuery; q != "" {
		return a.path() + "?" + q
	}
	return a.path()
}
