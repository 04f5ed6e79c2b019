package bench

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// Measures of the chart, in pixels.
const (
	chartWidth  = 900
	chartMargin = 20
	labelWidth  = 300
	barHeight   = 16
	barStep     = 22
	titleStep   = 34
	barRoom     = chartWidth - 2*chartMargin - labelWidth - 170 // beside it the value
)

// chartColors tell the systems apart, also for people who do not see all
// colours.
var chartColors = map[string]string{
	string(sysFila): "#0072b2", string(sysFIFO): "#56b4e9", string(sysHops): "#999999", string(sysHopsWire): "#bbbbbb",
	string(sysJS): "#e69f00", string(sysJSSynced): "#d55e00",
}

// chartPanel is a group of bars with one scale.
type chartPanel struct {
	title string
	bars  []chartBar
}

type chartBar struct {
	label, system, text string
	value               float64
}

// Chart writes the medians as bars, as an SVG picture: the rates, of latency the
// percentiles of delivery, of memory and recovery what they are about. Of a soak
// it draws the course of its figures over time.
func (r *Report) Chart(out io.Writer) error {
	if l := r.soakLane(); l != nil {
		return r.timeline(l, out)
	}
	var panels []chartPanel
	for i := range r.Workloads {
		panels = append(panels, r.Workloads[i].panels()...)
	}
	height := chartMargin*2 + titleStep
	for _, p := range panels {
		height += titleStep + barStep*len(p.bars)
	}
	c := &canvas{}
	c.begin(height)
	c.printf(`<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", chartWidth, height)
	y := chartMargin + barHeight
	c.text(chartMargin, y, "16", "#000000", r.chartTitle())
	for _, p := range panels {
		y += titleStep
		c.text(chartMargin, y, "13", "#000000", p.title)
		y = c.bars(p.bars, y+8)
	}
	c.printf("</svg>\n")
	_, err := io.WriteString(out, c.b.String())
	return err
}

func (r *Report) chartTitle() string {
	return fmt.Sprintf("fila bench: medians of %s, %s, %s",
		counted(int64(r.Settings.Rounds), "round"), r.Environment.Platform, counted(int64(r.Environment.CPUs), "CPU"))
}

// panels is what the chart shows of a workload: one panel for each column that
// says what the workload is about.
func (w *WorkloadReport) panels() []chartPanel {
	if w.of == nil {
		return nil
	}
	var panels []chartPanel
	for _, c := range w.of.charted() {
		p := chartPanel{title: w.Name + ": " + c.title}
		for _, l := range w.Lanes {
			s, ok := l.Figures[c.metric]
			if !ok {
				continue
			}
			text := c.show(s.Median)
			if l.Ratio != nil && c.metric == "rate" {
				text += " (" + digits3(l.Ratio.Median) + " of " + w.of.baseText + ")"
			}
			p.bars = append(p.bars, chartBar{label: l.Case + " · " + l.System, system: l.System, text: text, value: s.Median})
		}
		if len(p.bars) > 0 {
			panels = append(panels, p)
		}
	}
	return panels
}

// charted are the columns that the chart shows.
func (w *workload) charted() []column {
	switch w.name {
	case "latency":
		return []column{
			{"publish to delivery, p50", "deliver_p50_us", latency},
			{"publish to delivery, p99", "deliver_p99_us", latency},
			{"confirmation, p50", "confirm_p50_us", latency},
		}
	case "backlog", "memory":
		return w.columns[:4]
	case "recovery":
		return w.columns[1:2]
	}
	return w.columns[:1]
}

// canvas collects the lines of the picture.
type canvas struct{ b strings.Builder }

func (c *canvas) begin(height int) {
	c.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		chartWidth, height, chartWidth, height)
}

func (c *canvas) printf(format string, args ...any) { fmt.Fprintf(&c.b, format, args...) }

func (c *canvas) text(x, y int, size, color, text string) {
	c.element("text", fmt.Sprintf(` x="%d" y="%d" font-size="%s" fill="%s"`, x, y, size, color), text)
}

// element writes an element with a text inside.
func (c *canvas) element(name, attributes, text string) {
	c.printf("<%s%s>", name, attributes)
	_ = xml.EscapeText(&c.b, []byte(text)) // a strings.Builder takes everything
	c.printf("</%s>\n", name)
}

// bars draws bars from y on and returns where they end.
func (c *canvas) bars(bars []chartBar, y int) int {
	largest := 0.0
	for _, bar := range bars {
		largest = max(largest, bar.value)
	}
	for _, bar := range bars {
		width := 0.0
		if largest > 0 {
			width = max(bar.value, 0) / largest * barRoom
		}
		color := chartColors[bar.system]
		if color == "" {
			color = "#000000"
		}
		x := chartMargin + labelWidth
		c.text(chartMargin+10, y+barHeight-4, "12", "#333333", bar.label)
		c.printf(`<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", x, y, width, barHeight, color)
		c.text(x+int(width)+6, y+barHeight-4, "12", "#333333", bar.text)
		y += barStep
	}
	return y
}
