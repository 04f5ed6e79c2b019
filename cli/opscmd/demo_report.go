package opscmd

import (
	"fmt"
	"slices"
	"time"

	"github.com/filaq/fila/cli/terminal"
)

// demoReport is what fila demo --json prints.
type demoReport struct {
	Provider int          `json:"provider_rate"` // calls a second that it takes
	Runs     []demoResult `json:"runs"`
	Result   string       `json:"result"` // in words
}

// demoResult is one run.
type demoResult struct {
	Name    string        `json:"name"` // fifo or fair
	Seconds float64       `json:"seconds"`
	Calls   int           `json:"calls"`   // that the provider has taken
	Refused int           `json:"refused"` // that it has not
	Tenants []demoFigures `json:"tenants"`
	title   string
}

// demoFigures is a tenant in a run. Waits are from the enqueue to the call, of
// the messages that were handled.
type demoFigures struct {
	Tenant    string  `json:"tenant"`
	Sent      int     `json:"sent"`
	Done      int     `json:"done"`
	Waiting   int     `json:"waiting"`
	Share     float64 `json:"share"` // of what was handled, 0 to 1
	WaitP50Ms float64 `json:"wait_p50_ms"`
	WaitP99Ms float64 `json:"wait_p99_ms"`
}

// lines is the table of a run, always as many lines.
func (r demoResult) lines(paint terminal.Style) []string {
	lines := []string{
		paint.Bold(r.title),
		paint.Dim(fmt.Sprintf("%-10s %7s %7s %8s %7s %11s %11s", "TENANT", "SENT", "DONE", "WAITING", "SHARE", "WAIT P50", "WAIT P99")),
	}
	for _, t := range r.Tenants {
		lines = append(lines, fmt.Sprintf("%-10s %7d %7d %8d %6.1f%% %11s %11s",
			t.Tenant, t.Sent, t.Done, t.Waiting, 100*t.Share, waitText(t.WaitP50Ms, t.Done), waitText(t.WaitP99Ms, t.Done)))
	}
	rate := float64(r.Calls) / max(r.Seconds, 1e-3)
	return append(lines, paint.Dim(fmt.Sprintf("%.1f s, %.0f calls a second of the %d that the provider takes, %d refused by it", r.Seconds, rate, demoRate, r.Refused)), "")
}

func waitText(ms float64, done int) string {
	if done == 0 {
		return "-"
	}
	d := time.Duration(ms * float64(time.Millisecond))
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", ms)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// quiet is what the quiet tenants have in common: the middle of their waits, the
// worst of them, and how much of theirs was handled.
func (r demoResult) quiet() (p50, p99 float64, done, sent int) {
	var middles []float64
	for _, t := range r.Tenants[1:] {
		done, sent = done+t.Done, sent+t.Sent
		if t.Done > 0 {
			middles, p99 = append(middles, t.WaitP50Ms), max(p99, t.WaitP99Ms)
		}
	}
	if len(middles) > 0 {
		slices.Sort(middles)
		p50 = middles[len(middles)/2]
	}
	return p50, p99, done, sent
}

// words is the result in a paragraph, from the figures alone.
func (r demoReport) words() string {
	fifo, fair := r.Runs[0], r.Runs[1]
	p50, p99, done, sent := fifo.quiet()
	fairP50, fairP99, fairDone, fairSent := fair.quiet()
	text := fmt.Sprintf("In one line, half of the quiet tenants' messages waited %s or more behind the noisy tenant's backlog (p99 %s), and %d of %d were handled.",
		waitText(p50, done), waitText(p99, done), done, sent)
	text += fmt.Sprintf(" With a fair share for each tenant they waited %s (p99 %s), and %d of %d were handled", waitText(fairP50, fairDone), waitText(fairP99, fairDone), fairDone, fairSent)
	if fairP50 > 0 && p50 >= 2*fairP50 {
		text += fmt.Sprintf(": %.0f times faster", p50/fairP50)
	}
	return text + fmt.Sprintf(". The provider took %.0f and %.0f calls a second, of %d that it allows: the noisy tenant still gets all that the others leave, %.0f%%, and waits in a line of its own. The difference is one line of Lua, fairness_key = msg.headers[\"tenant\"].",
		float64(fifo.Calls)/max(fifo.Seconds, 1e-3), float64(fair.Calls)/max(fair.Seconds, 1e-3), r.Provider, 100*fair.Tenants[0].Share)
}
