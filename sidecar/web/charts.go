package web

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/filaq/fila/wire/api"
)

// chart is the data of a chart, which the script draws.
type chart struct{ JSON string }

// curve is a line of a chart.
type curve[P any] struct {
	name  string
	value func(*P) float32 // NaN: none
}

// queueLines returns curves of points of queues: pairs of a figure and the name of its curve.
func queueLines(pairs ...string) (list []curve[point]) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, curve[point]{pairs[i+1], pointFigures[pairs[i]]})
	}
	return list
}

// figure is a value of a chart. NaN is a gap.
type figure float32

// MarshalJSON implements [json.Marshaler].
func (f figure) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(f)) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(f), 'g', -1, 32), nil
}

// chartOf returns a chart of points, the oldest first, with marks.
func chartOf[P any, At interface {
	*P
	time() int64
}](points []P, m marks, curves ...curve[P]) chart {
	data := struct {
		Names []string `json:"names"`
		Rows  []any    `json:"rows"` // times in Unix seconds, then the values of each curve
		Marks []any    `json:"marks,omitempty"`
	}{}
	times := make([]int64, len(points))
	for i := range points {
		times[i] = At(&points[i]).time()
	}
	data.Rows = append(data.Rows, times)
	for _, c := range curves {
		values := make([]figure, len(points))
		for i := range points {
			values[i] = figure(c.value(&points[i]))
		}
		data.Names, data.Rows = append(data.Names, c.name), append(data.Rows, values)
	}
	for i := range m.Rows {
		r := &m.Rows[i]
		for _, at := range r.ats {
			data.Marks = append(data.Marks, []any{at.Unix(), r.N})
		}
	}
	text, err := json.Marshal(data)
	if err != nil { // impossible: it has only numbers and names
		return chart{}
	}
	return chart{string(text)}
}

// marks are what happened to the object of a page, for its charts and the list below them.
type marks struct {
	Rows    []markRow // the newest first
	Left    int       // older marks that are left out
	Minutes int       // length of the charts
}

// markRow is a mark with its number on the page, which the charts show. Openings of a circuit for the
// same cause are one row.
type markRow struct {
	api.Mark
	N    int
	From string // RFC 3339: the first of several; "": it is one
	ats  []time.Time
}

const (
	// shownMarks is how many rows the list of marks has, of the newest readMarks marks.
	shownMarks, readMarks = 20, 500
	// markRoom is the least distance (percent of a picture) of two marks with numbers of their own.
	markRoom = 2.5
)

// marksOf returns the marks of an object.
func marksOf(a *ask, req api.MarksRequest, window time.Duration) (m marks, err error) {
	req.Limit, req.WindowMs = readMarks, window.Milliseconds()
	var reply api.Marks
	if err := a.verb(api.VerbMarks, "", req, &reply); err != nil {
		return m, err
	}
	m.Left, m.Minutes = reply.Total, int(window.Minutes())
	opened := make(map[string]int) // the row of a circuit and cause
	for _, one := range reply.Marks {
		at, err := time.Parse(time.RFC3339Nano, one.At)
		if err != nil {
			continue
		}
		id := one.Object + " " + one.Text
		i, again := opened[id]
		switch {
		case one.Kind == api.MarkCircuit && again:
			r := &m.Rows[i]
			r.From, r.Count, r.ats = one.At, max(r.Count, 1)+max(one.Count, 1), append(r.ats, at)
		case len(m.Rows) == shownMarks:
			continue
		default:
			opened[id] = len(m.Rows)
			m.Rows = append(m.Rows, markRow{Mark: one, N: len(m.Rows) + 1, ats: []time.Time{at}})
		}
		m.Left--
	}
	return m, nil
}

// markLine is a mark in a picture, or several that stand too near to each other.
type markLine struct {
	Label string // the number, or the first and last number
	X     string // percent from the left
	AtEnd bool   // there is no room for the label on its right
	Text  string
}

// Until returns the marks as lines of a picture of some minutes that ends at a time.
func (m marks) Until(end time.Time, minutes int) (list []markLine) {
	type place struct {
		x   float64 // percent
		row *markRow
	}
	var places []place
	for i := range m.Rows {
		for _, at := range m.Rows[i].ats {
			if x := 100 * (1 - end.Sub(at).Minutes()/float64(minutes)); x >= 0 && x <= 100 {
				places = append(places, place{x, &m.Rows[i]})
			}
		}
	}
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(a.x, b.x) })
	for i := 0; i < len(places); {
		first, least, most := i, places[i].row.N, places[i].row.N
		for i < len(places) && places[i].x-places[first].x < markRoom {
			least, most, i = min(least, places[i].row.N), max(most, places[i].row.N), i+1
		}
		line := markLine{strconv.Itoa(least), percentOf(places[first].x), places[first].x > 90, places[first].row.Text}
		if most > least {
			line.Label += "–" + strconv.Itoa(most)
		}
		list = append(list, line)
	}
	return list
}
