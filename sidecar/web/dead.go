package web

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// deadListData has all dead letter queues with messages.
type deadListData struct {
	Queues []queueRow
	Pager  pager
	Rates  deadRates
}

func deadList(a *ask) (any, error) {
	h := &a.web.history
	s, err := h.fresh(a.web)
	if err != nil {
		return nil, err
	}
	rows, pager := paged(a, s.pick("depth", func(q *api.QueueSummary) bool { return wire.IsDLQ(q.Name) && depthOf(q) > 0 }))
	d := &deadListData{Queues: h.rows(s, rows), Pager: pager}
	d.Rates, err = deadRatesOf(a, "")
	return d, err
}

// Source returns the queue whose dead letters a queue holds.
func (r *queueRow) Source() string { return wire.Source(r.Name) }

// dead serves the dead letters of the queue in the path.
func dead(a *ask) (any, error) {
	name := a.r.PathValue("queue")
	d, err := listMessages(a, name+wire.DLQSuffix)
	if err != nil {
		return nil, err
	}
	return d, d.groups(a)
}

// deadPart is the part of it that changes.
func deadPart(a *ask) (any, error) {
	name := a.r.PathValue("queue")
	d := &messagesData{Queue: name + wire.DLQSuffix, Source: name, Filter: filterForm{ErrorGroup: a.query("error_group")}}
	return d, d.groups(a)
}

// deadGroups is the error groups of the dead letters of a queue.
type deadGroups struct {
	api.DeadGroups
	Rows []deadGroup
}

// deadGroup is a group with its part of the picture.
type deadGroup struct {
	api.DeadGroup
	Color      int   // of its area; 0: none
	LastMinute int64 // messages of the present minute
}

// LastChange is the change before the first dead letter that can be set back, or else the newest one;
// nil: there is none.
func (g *deadGroup) LastChange() *api.Mark {
	for i := range g.Before {
		if g.Before[i].Undo != nil {
			return &g.Before[i]
		}
	}
	if len(g.Before) > 0 {
		return &g.Before[0]
	}
	return nil
}

// groups adds the error groups of dead letters and their picture.
func (d *messagesData) groups(a *ask) error {
	rates, err := deadRatesOf(a, d.Source)
	if err != nil {
		return err
	}
	d.Rates = &rates
	d.Groups, err = groupsOf(a, d.Queue, rates.Areas)
	return err
}

// groupsOf returns the error groups of dead letters with the colours of their areas in a picture.
func groupsOf(a *ask, dlq string, areas []deadArea) (*deadGroups, error) {
	g := new(deadGroups)
	err := a.verb(api.VerbDeadGroups, dlq, api.DeadGroupsRequest{Limit: maxGroups}, &g.DeadGroups)
	g.colour(areas)
	return g, err
}

// colour gives the groups the colours of their areas. An area whose dead letters are all gone gets a
// row, too, so that the table explains the whole picture.
func (g *deadGroups) colour(areas []deadArea) {
	drawn := make(map[string]*deadArea)
	for i := range areas {
		drawn[areas[i].Group] = &areas[i]
	}
	for i := range g.Groups {
		row := deadGroup{DeadGroup: g.Groups[i]}
		if area := drawn[row.Group]; area != nil {
			row.Color, row.LastMinute = area.Color, area.Last
			delete(drawn, row.Group)
		}
		g.Rows = append(g.Rows, row)
	}
	for i := range areas {
		if area := &areas[i]; area.Group != "" && drawn[area.Group] != nil {
			g.Rows = append(g.Rows, deadGroup{
				DeadGroup: api.DeadGroup{Group: area.Group, SourceQueue: area.SourceQueue, ErrorCode: area.ErrorCode, Error: area.Error}, Color: area.Color, LastMinute: area.Last,
			})
		}
	}
}

// Shown returns the value of a field of the filter for people: of an error group its error.
func (g *deadGroups) Shown(f field) string {
	if g != nil && f.Name == "error_group" {
		for i := range g.Rows {
			if row := &g.Rows[i]; row.Group == f.Value {
				return strings.TrimSpace(row.ErrorCode + " " + row.Error)
			}
		}
	}
	return f.Value
}

// Others is the area of the groups without a colour; nil: there is none.
func (d *deadRates) Others() *deadArea {
	if n := len(d.Areas); n > 0 && d.Areas[n-1].Group == "" {
		return &d.Areas[n-1]
	}
	return nil
}

// deadRates is the picture of the messages that became dead letters, by minute and group.
type deadRates struct {
	api.DeadRates
	Minutes int
	Ranges  []timeRange
	Top     int64 // messages of the minute with the most
	Areas   []deadArea

	Marks     marks
	MarkLines []markLine
}

// deadArea is a group in the picture.
type deadArea struct {
	api.DeadRate     // of all others only Messages
	Color        int // 0: all others
	Points       string
	Last         int64 // messages of the present minute
}

// deadRatesOf asks for the dead letters of a queue, or of all for "", in the time that the query
// says.
func deadRatesOf(a *ask, queue string) (d deadRates, err error) {
	d.Minutes, d.Ranges = timeRanges(a)
	req := api.DeadRatesRequest{Queue: queue, Minutes: d.Minutes, Limit: stackKeys}
	if err := a.verb(api.VerbDeadRates, "", req, &d.DeadRates); err != nil {
		return d, err
	}
	about := api.MarksRequest{}
	if queue != "" {
		about.Queue = wire.Source(queue)
	}
	if d.Marks, err = marksOf(a, about, time.Duration(d.Minutes)*time.Minute); err != nil {
		return d, err
	}
	now := time.Now()
	d.MarkLines = d.Marks.Until(now, d.Minutes)
	return d, d.draw(now)
}

// draw draws the picture: a step for each minute.
func (d *deadRates) draw(now time.Time) error {
	if d.Messages == 0 {
		return nil
	}
	from, err := time.Parse(time.RFC3339, d.From)
	if err != nil {
		return err
	}
	s := stack{Width: 60}
	for i := range d.Other {
		s.At = append(s.At, from.Unix()+60*int64(i))
	}
	others := api.DeadRate{Messages: d.Messages, Minutes: d.Other}
	for i, g := range d.Groups {
		d.Areas = append(d.Areas, deadArea{DeadRate: g, Color: i + 1})
		others.Messages -= g.Messages
	}
	if others.Messages > 0 {
		d.Areas = append(d.Areas, deadArea{DeadRate: others})
	}
	for i := range s.At {
		sum := int64(0)
		for j := range d.Areas {
			sum += d.Areas[j].Minutes[i]
		}
		d.Top = max(d.Top, sum)
	}
	s.Top = float64(d.Top)
	for i := range d.Areas {
		g := &d.Areas[i]
		values := make([]float64, len(g.Minutes))
		for j, n := range g.Minutes {
			values[j] = float64(n)
		}
		s.Values = append(s.Values, values)
		g.Last = g.Minutes[len(g.Minutes)-1]
	}
	for i, points := range s.areas(now, d.Minutes) {
		d.Areas[i].Points = points
	}
	return nil
}

// timeRange is a link to a length of time.
type timeRange struct {
	Minutes int
	Href    string
}

// timeRanges returns the length of time in the query, 10 minutes or 60, and links to both.
func timeRanges(a *ask) (minutes int, ranges []timeRange) {
	if minutes = 10; a.query("minutes") == "60" {
		minutes = 60
	}
	for _, m := range []int{10, 60} {
		q := a.r.URL.Query()
		if q.Del("minutes"); m != 10 {
			q.Set("minutes", strconv.Itoa(m))
		}
		u := url.URL{Path: a.path(), RawQuery: q.Encode()}
		ranges = append(ranges, timeRange{m, u.RequestURI()})
	}
	return minutes, ranges
}
