package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/filaq/fila/bench/measure"
)

// Measures of a chart over time, in pixels.
const (
	axisWidth    = 70 // left margin for the numbers
	plotHeight   = 92
	plotWidth    = chartWidth - chartMargin - axisWidth
	panelTitle   = 24 // above a plot
	panelHeight  = panelTitle + plotHeight + 22
	timeAxis     = 36 // below the last plot
	legendWidth  = 6  // approximate width of a character
	gridLines    = 3  // approximate number
	timeAxisMost = 10
)

// Colours for light and dark backgrounds; the picture has no background. The line colours can
// also be told apart with colour blindness.
const (
	inkColor   = "#7a828a"
	firstColor = "#2f80c8"
	otherColor = "#d9822b"
)

// lineColors are the colours of the lines of a panel, in their order.
var lineColors = []string{firstColor, otherColor, inkColor}

// Timeline is a picture of figures over time: plots below each other over the same time.
type Timeline struct {
	Title  string
	Thirds string // what the dashed lines at the thirds of the time are
	Series []measure.Sample
	Panels []TimePanel
}

// TimePanel is a plot of up to three lines over time. Its scale begins at 0.
type TimePanel struct {
	Title string // with the unit
	Scale float64
	Lines []TimeLine
}

// TimeLine is a figure of the series, times the scale of its panel.
type TimeLine struct{ Label, Metric string }

// soakPanels are the plots of a soak. Missing figures have no line.
var soakPanels = []TimePanel{
	{"rate, messages/s", 1, []TimeLine{{"", "rate"}}},
	{"publish to delivery, ms", 1e-3, []TimeLine{{"p50", "deliver_p50_us"}, {"p99", "deliver_p99_us"}}},
	{"publish to confirmation, ms", 1e-3, []TimeLine{{"p50", "confirm_p50_us"}, {"p99", "confirm_p99_us"}}},
	{"memory of the server, MiB", 1, []TimeLine{{"RSS", "server_rss_mb"}, {"of it not mapped files", "server_anon_mb"}}},
	{"CPUs in use", 1, []TimeLine{{"server", "server_cpus"}, {"other processes", "others_cpus"}}},
	{"files, MiB", 1, []TimeLine{{"", "files_mb"}}},
}

// soakTimeline is the picture of the intervals of a soak.
func (r *Report) soakTimeline(l *Lane) *Timeline {
	title := "fila bench soak: " + l.Case
	if s, ok := l.Figures["target_rate"]; ok {
		title += ", " + Thousands(s.Median) + " messages/s"
	}
	title += ", " + r.Environment.machine()
	return &Timeline{Title: title, Thirds: "the dashed lines part the thirds", Series: l.Series, Panels: plotsOf(l.Series)}
}

// WriteSVG writes the picture.
func (t *Timeline) WriteSVG(out io.Writer) error {
	c := newCanvas(2*chartMargin + titleStep + panelHeight*len(t.Panels) + timeAxis)
	c.printf("<title>%s</title>\n", escaped(t.Title))
	c.text(chartMargin, chartMargin+barHeight, `font-size="16" fill="`+inkColor+`"`, t.Title)
	scale := newTimeScale(t.Series)
	y := chartMargin + titleStep
	for _, p := range t.Panels {
		scale.plot(c, p, y)
		y += panelHeight
	}
	scale.labels(c, y, t.Thirds)
	return c.writeTo(out)
}

// plotsOf returns the panels and lines that have figures.
func plotsOf(series []measure.Sample) []TimePanel {
	var plots []TimePanel
	for _, p := range soakPanels {
		p.Lines = slices.DeleteFunc(slices.Clone(p.Lines), func(line TimeLine) bool { return len(measure.Values(series, line.Metric)) == 0 })
		if len(p.Lines) > 0 {
			plots = append(plots, p)
		}
	}
	return plots
}

// timeScale has what the plots of a picture share.
type timeScale struct {
	series []measure.Sample
	end    float64 // seconds
	unit   float64 // seconds
	name   string  // of the unit
}

func newTimeScale(series []measure.Sample) timeScale {
	t := timeScale{series: series, end: series[len(series)-1]["at_s"], unit: 1, name: "seconds"}
	switch {
	case t.end > 3*3600:
		t.unit, t.name = 3600, "hours"
	case t.end > 3*60:
		t.unit, t.name = 60, "minutes"
	}
	return t
}

func (t timeScale) x(seconds float64) float64 { return axisWidth + seconds/t.end*plotWidth }

// plot draws a panel from y on.
func (t timeScale) plot(c *canvas, p TimePanel, y int) {
	top, bottom := y+panelTitle, y+panelTitle+plotHeight
	c.text(axisWidth, top-8, `font-size="13" fill="`+inkColor+`"`, p.Title)
	largest := 0.0
	for _, line := range p.Lines {
		for _, v := range measure.Values(t.series, line.Metric) {
			largest = max(largest, v*p.Scale)
		}
	}
	step := niceStep(largest, gridLines)
	upper := step * math.Ceil(largest/step)
	at := func(v float64) float64 { return float64(bottom) - v/upper*plotHeight }
	for i := range int(math.Round(upper/step)) + 1 {
		v := step * float64(i)
		c.line(axisWidth, at(v), axisWidth+plotWidth, at(v), `stroke-opacity="0.35"`)
		c.anchored("end", axisWidth-8, int(at(v))+4, inkColor, tickText(v, step))
	}
	for _, third := range []float64{t.end / 3, t.end * 2 / 3} {
		c.line(t.x(third), float64(top), t.x(third), float64(bottom), `stroke-dasharray="4 4" stroke-opacity="0.6"`)
	}
	t.drawLines(c, p, top-8, at)
}

// drawLines draws the figures of a panel and, if there are several, their names
// at the height y.
func (t timeScale) drawLines(c *canvas, p TimePanel, y int, at func(float64) float64) {
	right := axisWidth + plotWidth
	for i := len(p.Lines) - 1; i >= 0; i-- { // the first one on top
		line, color := p.Lines[i], lineColors[i]
		c.printf(`<path d="%s" fill="none" stroke="%s" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round"/>`+"\n",
			t.path(line.Metric, p.Scale, at), color)
		if line.Label == "" {
			continue
		}
		c.anchored("end", right, y, color, line.Label)
		right -= legendWidth*len(line.Label) + 20
	}
}

// path connects the intervals. It breaks where an interval lacks the figure; a single point
// becomes a dot.
func (t timeScale) path(metric string, scale float64, at func(float64) float64) string {
	var b strings.Builder
	pen := "M"
	for _, s := range t.series {
		v, ok := s[metric]
		if !ok {
			pen = "M"
			continue
		}
		fmt.Fprintf(&b, "%s%.1f %.1f", pen, t.x(s["at_s"]), at(v*scale))
		if pen == "M" {
			b.WriteString("h0")
		}
		pen = "L"
	}
	return b.String()
}

// labels writes the times below the last panel.
func (t timeScale) labels(c *canvas, y int, thirds string) {
	step := niceStep(t.end/t.unit, timeAxisMost)
	for i := 0; float64(i)*step*t.unit <= t.end; i++ {
		v := float64(i) * step
		c.anchored("middle", int(t.x(v*t.unit)), y, inkColor, tickText(v, step))
	}
	c.anchored("middle", axisWidth+plotWidth/2, y+20, inkColor, t.name+"; "+thirds)
}

// niceStep divides 0 to largest into about n steps of 1, 2 or 5 times a power of ten.
func niceStep(largest float64, n int) float64 {
	if largest <= 0 {
		return 1
	}
	rough := largest / float64(n)
	power := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, nice := range []float64{1, 2, 5} {
		if rough <= nice*power*(1+1e-9) {
			return nice * power
		}
	}
	return 10 * power
}

// tickText prints a multiple of step with the decimals that it needs.
func tickText(v, step float64) string {
	if step >= 1 {
		return Thousands(v)
	}
	return strconv.FormatFloat(v, 'f', int(math.Ceil(-math.Log10(step)-1e-9)), 64)
}

func (c *canvas) line(x1, y1, x2, y2 float64, style string) {
	c.printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" %s/>`+"\n", x1, y1, x2, y2, inkColor, style)
}

// anchored writes a text with its end or its middle at x.
func (c *canvas) anchored(anchor string, x, y int, color, text string) {
	c.text(x, y, fmt.Sprintf(`fill="%s" text-anchor="%s"`, color, anchor), text)
}
