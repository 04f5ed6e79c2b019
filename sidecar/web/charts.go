package web

import (
	"encoding/json"
	"math"
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
		data.Marks = append(data.Marks, []any{r.at.Unix(), r.N})
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

// markRow is a mark with its number on the page, which the charts show.
type markRow struct {
	api.Mark
	N  int
	at time.Time
}

// shownMarks is how many marks a chart shows.
const shownMarks = 20

// marksOf returns the marks of an object.
func marksOf(a *ask, req api.MarksRequest, window time.Duration) (m marks, err error) {
	req.Limit, req.WindowMs = shownMarks, window.Milliseconds()
	var reply api.Marks
	if err := a.verb(api.VerbMarks, "", req, &reply); err != nil {
		return m, err
	}
	m.Left, m.Minutes = reply.Total-len(reply.Marks), int(window.Minutes())
	for i := range reply.Marks {
		at, err := time.Parse(time.RFC3339Nano, reply.Marks[i].At)
		if err == nil {
			m.Rows = append(m.Rows, markRow{reply.Marks[i], i + 1, at})
		}
	}
	return m, nil
}

// markLine is a mark in a picture.
type markLine struct {
	N    int
	X    string // percent from the left
	Text string
}

// Until returns the marks as lines of a picture that ends at a time.
func (m marks) Until(end time.Time) (list []markLine) {
	for i := range m.Rows {
		r := &m.Rows[i]
		x := 1 - end.Sub(r.at).Minutes()/float64(m.Minutes)
		if x >= 0 && x <= 1 {
			list = append(list, markLine{r.N, percentOf(100 * x), r.Text})
		}
	}
	return list
}
