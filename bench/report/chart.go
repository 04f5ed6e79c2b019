package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/filaq/fila/bench/system"
)

// Measures of the chart, in pixels.
const (
	chartWidth  = 900
	chartMargin = 20
	labelWidth  = 300
	barHeight   = 16
	barStep     = 22
	titleStep   = 34
	barRoom     = chartWidth - 2*chartMargin - labelWidth - 170 // the value is beside it
)

// chartColors can also be told apart by people with colour blindness.
var chartColors = map[system.Name]string{
	system.Fila: "#0072b2", system.FilaMin: "#009e73", system.FilaBatch: "#cc79a7", system.FIFO: "#56b4e9", system.Hops: "#999999", system.HopsWire: "#bbbbbb",
	system.JetStream: "#e69f00", system.JetStreamSync: "#d55e00",
}

// panel is a group of bars with one scale.
type panel struct {
	title string
	bars  []bar
}

type bar struct {
	label, color, text string
	value              float64
}

// Chart writes an SVG picture with the medians as bars, or the Timeline, or for a soak its figures
// over time. Latency shows the percentiles of delivery.
func (r *Report) Chart(out io.Writer) error {
	if r.Timeline != nil {
		return r.Timeline.WriteSVG(out)
	}
	for _, l := range r.lanes() {
		if len(l.Series) > 0 {
			return r.soakTimeline(&l).WriteSVG(out)
		}
	}
	var panels []panel
	height := chartMargin*2 + titleStep
	for i := range r.Workloads {
		for _, p := range r.Workloads[i].panels() {
			panels = append(panels, p)
			height += titleStep + barStep*len(p.bars)
		}
	}
	c := newCanvas(height)
	c.printf(`<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", chartWidth, height)
	y := chartMargin + barHeight
	c.text(chartMargin, y, `font-size="16" fill="#000000"`, fmt.Sprintf("fila bench: medians of %s, %s",
		Counted(int64(r.Settings.Rounds), "round"), r.Environment.machine()))
	for _, p := range panels {
		y += titleStep
		c.text(chartMargin, y, `font-size="13" fill="#000000"`, p.title)
		y = c.bars(p.bars, y+8)
	}
	return c.writeTo(out)
}

func (e *Environment) machine() string {
	return e.Platform + ", " + Counted(int64(e.CPUs), "CPU")
}

// panels returns a panel for each charted column of a workload.
func (w *Group) panels() []panel {
	if w.of == nil {
		return nil
	}
	charted := w.of.Charted
	if charted == nil {
		charted = w.of.Columns[:1]
	}
	var panels []panel
	for _, c := range charted {
		p := panel{title: w.Name + ": " + c.Title}
		for _, l := range w.Lanes {
			s, ok := l.Figures[c.Metric]
			if !ok {
				continue
			}
			text := c.Show(s.Median)
			if l.Ratio != nil && c.Metric == "rate" {
				text += " (" + digits3(l.Ratio.Median) + " of " + w.of.Base.Text + ")"
			}
			p.bars = append(p.bars, bar{l.Case + " · " + l.System, chartColors[system.Name(l.System)], text, s.Median})
		}
		if len(p.bars) > 0 {
			panels = append(panels, p)
		}
	}
	return panels
}

// canvas collects the lines of a picture.
type canvas struct{ b strings.Builder }

func newCanvas(height int) *canvas {
	c := &canvas{}
	c.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		chartWidth, height, chartWidth, height)
	return c
}

func (c *canvas) writeTo(out io.Writer) error {
	_, err := io.WriteString(out, c.b.String()+"</svg>\n")
	return err
}

func (c *canvas) printf(format string, args ...any) { fmt.Fprintf(&c.b, format, args...) }

func (c *canvas) text(x, y int, attributes, text string) {
	c.printf(`<text x="%d" y="%d" %s>%s</text>`+"\n", x, y, attributes, escaped(text))
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a strings.Builder never fails
	return b.String()
}

// bars draws bars from y on and returns their lower end.
func (c *canvas) bars(bars []bar, y int) int {
	largest := 0.0
	for _, bar := range bars {
		largest = max(largest, bar.value)
	}
	for _, bar := range bars {
		width := 0.0
		if largest > 0 {
			width = max(bar.value, 0) / largest * barRoom
		}
		const x, style = chartMargin + labelWidth, `font-size="12" fill="#333333"`
		c.text(chartMargin+10, y+barHeight-4, style, bar.label)
		c.printf(`<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", x, y, width, barHeight, bar.color)
		c.text(x+int(width)+6, y+barHeight-4, style, bar.text)
		y += barStep
	}
	return y
}
