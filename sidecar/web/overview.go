package web

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// perPage is how many rows a list has on a page.
const perPage = 50

// overviewData is the data of the first page.
type overviewData struct {
	Queues    []queueRow // the ones with the most messages
	Total     line
	All       int
	Depth     int64
	InFlight  int64
	Node      Node
	Missing   []int
	AsOf      string
	Dead      int64
	Attention api.Attention
	First     *firstSteps // nil: this fila is in use
}

// firstSteps says which of the first three commands have taken effect.
type firstSteps struct {
	Queue                        string // that the commands name
	Created, Published, Consumed bool
}

// firstDepth is how many messages the queue may have while the first steps are shown.
const firstDepth = 10

// firstStepsOf returns the first steps while there is at most one queue with at most firstDepth
// messages, and no delivery has ended.
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
		if f.Created || depthOf(q) > firstDepth || d.Acked+d.Failed+d.DeadLettered > 0 {
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

// Well reports whether nothing needs attention, as far as all nodes know.
func (d overviewData) Well() bool {
	return d.Node.Ready && len(d.Missing) == 0 && d.Attention.Total == 0 && len(d.Attention.Unanswered) == 0
}

// topQueues is how many queues the overview has.
const topQueues = 10

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
	for i := range s.queues {
		if !wire.IsDLQ(s.queues[i].Name) {
			d.All++
		}
	}
	d.Attention, err = attentionOf(a, "")
	return d, err
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

// with is the address of the page with another query value, or without it if it is "".
func (a *ask) with(name, value string) string {
	q := a.r.URL.Query()
	q.Set(name, value)
	if value == "" {
		q.Del(name)
	}
	if len(q) == 0 {
		return a.path()
	}
	return a.path() + "?" + q.Encode()
}
