package opscmd

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
)

// topSort is an order of queues; equal ones are sorted by name.
type topSort struct {
	name    string
	compare func(a, b *topQueue) int
}

// most orders by descending value.
func most[T cmp.Ordered](name string, of func(q *topQueue) T) topSort {
	return topSort{name, func(a, b *topQueue) int { return cmp.Compare(of(b), of(a)) }}
}

var topSorts = []topSort{
	most("messages", (*topQueue).messages),
	{"name", func(*topQueue, *topQueue) int { return 0 }},
	most("ready", func(q *topQueue) int64 { return q.Ready }),
	most("blocked", func(q *topQueue) int64 { return q.Blocked }),
	most("delayed", func(q *topQueue) int64 { return q.Delayed }),
	most("flight", func(q *topQueue) int64 { return q.InFlight }),
	most("in", func(q *topQueue) float64 { return q.In }),
	most("out", func(q *topQueue) float64 { return q.Out }),
	most("acked", func(q *topQueue) float64 { return q.Acked }),
	most("failed", func(q *topQueue) float64 { return q.Failed }),
	most("terminated", func(q *topQueue) float64 { return q.Terminated }),
	most("dead", func(q *topQueue) float64 { return q.Dead }),
	most("oldest", func(q *topQueue) int64 { return q.OldestAgeMs }),
}

func topSortNames() []string {
	var names []string
	for _, s := range topSorts {
		names = append(names, s.name)
	}
	return names
}

// topColumn is a column after the name of a queue. If there is no space for all, columns with
// the lowest rank are left out.
type topColumn struct {
	title string // as wide as the column
	rank  int
	text  func(q *topQueue) string
	paint func(p terminal.Style, q *topQueue, text string) string // colours the text; nil leaves it
}

func countColumn(title string, rank int, of func(q *topQueue) float64) topColumn {
	return topColumn{title, rank, func(q *topQueue) string { return terminal.Short(of(q)) }, nil}
}

// alarmColumn is a countColumn with a colour unless the count is 0.
func alarmColumn(title string, rank int, colour func(terminal.Style, string) string, of func(q *topQueue) float64) topColumn {
	c := countColumn(title, rank, of)
	c.paint = func(p terminal.Style, q *topQueue, text string) string {
		if of(q) > 0 {
			return colour(p, text)
		}
		return text
	}
	return c
}

var topColumns = []topColumn{
	countColumn(" READY", 9, func(q *topQueue) float64 { return float64(q.Ready) }),
	alarmColumn("BLOCK", 6, terminal.Style.Yellow, func(q *topQueue) float64 { return float64(q.Blocked) }),
	countColumn(" DELAY", 1, func(q *topQueue) float64 { return float64(q.Delayed) }),
	countColumn("FLIGHT", 4, func(q *topQueue) float64 { return float64(q.InFlight) }),
	countColumn("   IN", 3, func(q *topQueue) float64 { return q.In }),
	countColumn("  OUT", 2, func(q *topQueue) float64 { return q.Out }),
	countColumn("ACKED", 8, func(q *topQueue) float64 { return q.Acked }),
	alarmColumn(" FAIL", 5, terminal.Style.Red, func(q *topQueue) float64 { return q.Failed }),
	alarmColumn(" TERM", 0, terminal.Style.Red, func(q *topQueue) float64 { return q.Terminated }),
	alarmColumn(" DEAD", 5, terminal.Style.Red, func(q *topQueue) float64 { return q.Dead }),
	{"  OLDEST", 7, func(q *topQueue) string { return coarse(q.OldestAgeMs) }, nil},
}

// Bounds of the layout, in columns.
const (
	topNarrowest = 40 // smallest layout width
	topName      = 24 // longer names are cut before a column is left out
	topSpark     = 8  // shortest useful sparkline
	topHistory   = 60 // maximum intervals of the sparklines
)

// topLayout is the layout of a line.
type topLayout struct {
	width, name int
	columns     []topColumn
	spark       int // 0 for none
}

func layOut(width int, queues []topQueue) topLayout {
	l := topLayout{width: max(width, topNarrowest), columns: slices.Clone(topColumns)}
	longest := len("QUEUE")
	for i := range queues {
		longest = max(longest, terminal.Width(terminal.Clean(queues[i].Name)))
	}
	for l.rest() < min(longest, topName) && len(l.columns) > 1 {
		least := slices.MinFunc(l.columns, func(a, b topColumn) int { return cmp.Compare(a.rank, b.rank) })
		l.columns = slices.DeleteFunc(l.columns, func(c topColumn) bool { return c.rank == least.rank })
	}
	rest := l.rest()
	l.name = min(longest, rest)
	if left := rest - l.name - 2; left >= topSpark {
		l.spark = min(left, topHistory)
	}
	return l
}

// rest returns the columns left for the name and the sparkline.
func (l *topLayout) rest() int {
	rest := l.width
	for _, c := range l.columns {
		rest -= 1 + len(c.title)
	}
	return rest
}

// topScreen draws frames and handles keys. Only the goroutine of topView uses it.
type topScreen struct {
	env      *command.Env
	paint    terminal.Style
	interval time.Duration
	live     bool // keys are available

	sort    int // in topSorts
	filter  string
	all     bool // show idle queues, too
	brief   bool // show no details below queues
	typing  bool // keys go to the filter
	help    bool
	paused  bool
	problem string // why there is no new frame

	topPicture            // the shown picture
	next       topPicture // the latest picture, different while the display is frozen
}

// topPicture is a frame and the rates of the intervals before it.
type topPicture struct {
	frame   topFrame
	history map[string][]float64 // acked messages by queue
	totals  [3][]float64         // in, acked, and failed or terminated, of all queues
}

func newTopScreen(env *command.Env, f topFlags, order int, paint terminal.Style) *topScreen {
	return &topScreen{
		env: env, paint: paint, interval: f.interval.Duration(), sort: order, all: f.all || f.queue != "",
	}
}

// take records the rates of a frame, and shows it unless the display is frozen.
func (t *topScreen) take(f topFrame) {
	var in, acked, failed float64
	history := make(map[string][]float64, len(f.Queues))
	for i := range f.Queues {
		q := &f.Queues[i]
		history[q.Name] = remember(t.next.history[q.Name], q.Acked)
		in, acked, failed = in+max(q.In, 0), acked+max(q.Acked, 0), failed+max(q.Failed, 0)+max(q.Terminated, 0)
	}
	t.next.frame, t.next.history = f, history // drops deleted queues
	if f.Seconds > 0 {
		for i, total := range []float64{in, acked, failed} {
			t.next.totals[i] = remember(t.next.totals[i], total)
		}
	}
	if !t.paused {
		t.topPicture = t.next
	}
}

// hasHistory reports whether there are enough values for sparklines.
func (p *topPicture) hasHistory() bool { return len(p.totals[0]) > 1 }

// remember returns the last values and a new one. It copies, because a shown picture may use
// the old ones.
func remember(values []float64, v float64) []float64 {
	values = append(values, v)
	return values[max(len(values)-topHistory, 0):]
}

// press handles a key, and reports whether it ends fila top.
func (t *topScreen) press(key rune) (end bool) {
	switch {
	case key == terminal.KeyInterrupt:
		return true
	case t.typing:
		t.typeFilter(key)
		return false
	case t.help:
		t.help = false // any key closes the help
		return false
	}
	switch key {
	case 'q':
		return true
	case 's':
		t.sort = (t.sort + 1) % len(topSorts)
	case 'S':
		t.sort = (t.sort + len(topSorts) - 1) % len(topSorts)
	case 'f', '/':
		t.typing = true
	case 'a':
		t.all = !t.all
	case 'd':
		t.brief = !t.brief
	case 'p', ' ':
		if t.paused = !t.paused; !t.paused {
			t.topPicture = t.next
		}
	case '?', 'h':
		t.help = true
	case terminal.KeyEscape:
		t.filter = ""
	}
	return false
}

func (t *topScreen) typeFilter(key rune) {
	switch {
	case key == terminal.KeyEnter:
		t.typing = false
	case key == terminal.KeyEscape:
		t.typing, t.filter = false, ""
	case key == terminal.KeyBackspace:
		if text := []rune(t.filter); len(text) > 0 {
			t.filter = string(text[:len(text)-1])
		}
	case unicode.IsPrint(key):
		t.filter += string(key)
	}
}

// visible returns the shown queues in their order.
func (t *topScreen) visible(queues []topQueue) []topQueue {
	shown := []topQueue{}
	for _, q := range queues {
		if (t.all || !q.idle()) && strings.Contains(strings.ToLower(q.Name), strings.ToLower(t.filter)) {
			shown = append(shown, q)
		}
	}
	slices.SortStableFunc(shown, func(a, b topQueue) int {
		return cmp.Or(topSorts[t.sort].compare(&a, &b), cmp.Compare(a.Name, b.Name))
	})
	return shown
}

// draw draws the frame over the previous one.
func (t *topScreen) draw(out io.Writer) error {
	width, height := terminal.ScreenSize(out)
	return terminal.Draw(out, t.lines(width), height)
}

// lines returns the frame in width columns.
func (t *topScreen) lines(width int) []string {
	queues := t.visible(t.frame.Queues)
	l := layOut(width, queues)
	if !t.hasHistory() {
		l.spark = 0
	}
	lines := append([]string{t.title(&l, len(queues)), t.total(&l)}, t.wrong(&l)...)
	lines = append(lines, t.status(&l)...)
	if t.help {
		for _, line := range topHelp {
			lines = append(lines, terminal.Fit(line, l.width))
		}
		return lines
	}
	lines = append(lines, t.header(&l))
	if len(queues) == 0 {
		return append(lines, t.nothing(&l))
	}
	for i := range queues {
		lines = append(lines, t.queue(&l, &queues[i])...)
	}
	return lines
}

func (t *topScreen) title(l *topLayout, shown int) string {
	at, _ := time.Parse(time.RFC3339, t.frame.Time)
	text := at.Format(time.TimeOnly) + " UTC  " + terminal.Plural(int64(t.frame.Total), "queue")
	if shown < t.frame.Total {
		text += fmt.Sprintf(", %d shown", shown)
	}
	return t.paint.Bold(terminal.Fit(terminal.Clean(text+"  fila at "+t.frame.Server), l.width))
}

// total returns a line with the rates of all queues.
func (t *topScreen) total(l *topLayout) string {
	const each = len("acked 12.3k ")
	spark := min((l.width-3*each-4)/3, topHistory/2)
	if !t.hasHistory() {
		spark = 0
	}
	var parts []string
	for i, name := range []string{"in", "acked", "failed"} {
		text := "-"
		if n := len(t.totals[i]); n > 0 {
			text = terminal.Short(t.totals[i][n-1])
		}
		parts = append(parts, strings.TrimRight(fmt.Sprintf("%s %5s %s", name, text, terminal.Sparkline(t.totals[i], spark)), " "))
	}
	return terminal.Fit(strings.TrimRight(strings.Join(parts, "  "), " "), l.width)
}

// wrong returns a line for each of the worst findings.
func (t *topScreen) wrong(l *topLayout) (lines []string) {
	a := &t.frame.Attention
	for i := range a.Findings {
		text := terminal.Fit(findingTitle(terminal.Style{}, &a.Findings[i]), l.width)
		if a.Findings[i].Severity == "critical" {
			text = t.paint.Red(text)
		} else {
			text = t.paint.Yellow(text)
		}
		lines = append(lines, text)
	}
	if a.Truncated > 0 {
		lines = append(lines, t.paint.Dim(terminal.Fit(fmt.Sprintf("%s more: fila status", terminal.Plural(int64(a.Truncated), "finding")), l.width)))
	}
	return lines
}

// status returns the line with the state and the keys.
func (t *topScreen) status(l *topLayout) []string {
	var lines []string
	if t.problem != "" {
		lines = append(lines, t.paint.Red(terminal.Fit(terminal.Clean(t.problem), l.width)))
	}
	if !t.live {
		return lines
	}
	var parts []string
	if t.paused {
		parts = append(parts, "PAUSED: p goes on")
	}
	switch {
	case t.typing:
		parts = append(parts, "filter: "+t.filter+"_ (enter; esc for all)")
	case t.filter != "":
		parts = append(parts, "filter: "+t.filter+" (esc for all)")
	}
	parts = append(parts, "s sort: "+topSorts[t.sort].name, "f filter", "p pause", "a idle", "? help", "q quit")
	return append(lines, t.paint.Dim(terminal.Fit(terminal.Clean(strings.Join(parts, "  ")), l.width)))
}

var topHelp = []string{
	"",
	"s, S   sort by the next or previous column",
	"f, /   filter by a part of the name; esc shows all",
	"a      show or hide idle queues",
	"d      show or hide flows, gates and consumers",
	"p      pause and resume the display",
	"?, h   this help; any key ends it",
	"q      end, as an interrupt does",
	"",
	"READY  not blocked  BLOCK   by a gate, pause or order",
	"DELAY  delayed      FLIGHT  in flight",
	"Per second: IN enqueued, OUT delivered, ACKED finished,",
	"            FAIL nacks and expired leases,",
	"            TERM ended by +TERM, DEAD became dead letters",
	"OLDEST age of the oldest message",
}

func (t *topScreen) header(l *topLayout) string {
	titles := []string{terminal.Pad("QUEUE", l.name)}
	for _, c := range l.columns {
		titles = append(titles, c.title)
	}
	text := strings.Join(titles, " ")
	last := "LAST " + terminal.Span(time.Duration(l.spark)*t.interval)
	for _, title := range []string{"ACKED, " + last, last, "ACKED"} {
		if len(title) <= l.spark {
			text += "  " + title
			break
		}
	}
	return t.paint.Bold(terminal.Fit(text, l.width))
}

// nothing says why no queue is shown.
func (t *topScreen) nothing(l *topLayout) string {
	switch {
	case t.frame.Total == 0:
		return "(no queues)"
	case t.filter != "":
		return terminal.Fit("(no queue with "+terminal.Clean(t.filter)+" in its name is active)", l.width)
	case t.live:
		return terminal.Fit("(nothing to see; a shows idle queues, too)", l.width)
	}
	return terminal.Fit("(nothing to see; --all shows idle queues, too)", l.width)
}

// queue returns the lines of a queue and its details.
func (t *topScreen) queue(l *topLayout, q *topQueue) []string {
	cells := []string{t.paint.Bold(terminal.Pad(terminal.Fit(terminal.Clean(q.Name), l.name), l.name))}
	for _, c := range l.columns {
		text := fmt.Sprintf("%*s", len(c.title), c.text(q))
		if c.paint != nil {
			text = c.paint(t.paint, q, text)
		}
		cells = append(cells, text)
	}
	line := strings.Join(cells, " ")
	if l.spark > 0 {
		line += strings.TrimRight("  "+terminal.Sparkline(t.history[q.Name], l.spark), " ")
	}
	lines := []string{line}
	if t.brief {
		return lines
	}
	for _, text := range t.details(q) {
		lines = append(lines, t.paint.Dim(terminal.Fit("  "+terminal.Clean(text), l.width)))
	}
	return lines
}

// details returns the lines below a queue.
func (t *topScreen) details(q *topQueue) (lines []string) {
	detail := func(label string, parts ...string) {
		lines = append(lines, fmt.Sprintf("%-11s", label)+strings.Join(parts, ", "))
	}
	if q.Active > 0 {
		var parts []string
		for _, flow := range q.Flows {
			parts = append(parts, fmt.Sprintf("%s %s (%.0f%%)", flow.Key, terminal.Short(float64(flow.Ready)), flow.Share*100))
		}
		detail(terminal.Plural(int64(q.Active), "flow"), parts...)
	}
	if len(q.Noisy) > 0 {
		detail("noisy", q.Noisy...)
	}
	if q.Starved > 0 {
		detail("starved", terminal.Plural(int64(q.Starved), "flow")+": fila noisy "+q.Name)
	}
	for _, g := range q.BlockedBy[:min(len(q.BlockedBy), 3)] {
		text := fmt.Sprintf("%s by %s (%s)", terminal.Short(float64(g.Messages)), g.Gate, g.Kind)
		switch {
		case g.DeadLetters:
			text += ", which become dead letters"
		case g.AdmitsAt != "":
			text += ", admits " + t.env.Soon(g.AdmitsAt)
		}
		if g.Limits != "" && g.Limits != "none" {
			text += "; " + g.Limits
		}
		detail("blocked", text)
	}
	if len(q.Consumers) > 0 {
		var parts []string
		for _, c := range q.Consumers {
			name := c.Name
			if c.Fetch {
				name = strings.TrimSpace(name + " fetch")
			}
			parts = append(parts, fmt.Sprintf("%s %d/%d", name, c.InFlight, c.MaxInFlight))
		}
		detail(terminal.Plural(int64(len(parts)), "worker"), parts...)
	}
	return lines
}

// coarse formats an age in eight columns at most.
func coarse(ms int64) string {
	switch {
	case ms <= 0:
		return "-"
	case ms < 100:
		return fmt.Sprintf("%dms", ms)
	case ms < 60_000:
		return fmt.Sprintf("%.1fs", float64(ms)/1000)
	}
	return terminal.Span(time.Duration(ms/1000) * time.Second)
}
