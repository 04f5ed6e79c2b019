package messagecmd

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/filaq/fila/cli/terminal"
)

// publishSummary is what --json prints about many messages.
type publishSummary struct {
	Queue      string  `json:"queue"`
	Sent       int64   `json:"sent"`
	Confirmed  int64   `json:"confirmed"`
	Duplicates int64   `json:"duplicates"`
	ElapsedMs  int64   `json:"elapsed_ms"`
	PerSecond  float64 `json:"per_second"`
	Error      string  `json:"error,omitempty"`
}

func (p *pipeline) summary(failed error) error {
	elapsed := time.Since(p.begin)
	rate := float64(p.done()) / max(elapsed.Seconds(), 1e-6)
	if p.env.JSON {
		s := publishSummary{p.queue, p.sent, p.confirmed, p.duplicate, elapsed.Milliseconds(), math.Round(rate*10) / 10, ""}
		if failed != nil {
			s.Error = failed.Error()
		}
		return terminal.PrintJSON(p.out, s)
	}
	if p.f.quiet {
		return nil
	}
	text := terminal.Grouped(p.done()) + " message"
	if p.done() != 1 {
		text += "s"
	}
	text += " published to " + p.queue
	if p.f.noConfirm {
		text += ", not confirmed,"
	}
	text += fmt.Sprintf(" in %s (%s/s)", terminal.Span(elapsed), terminal.Short(rate))
	if p.duplicate > 0 {
		text += ", " + terminal.Plural(p.duplicate, "duplicate") + " among them"
	}
	if left := p.sent - p.confirmed; left > 0 && !p.f.noConfirm {
		text += fmt.Sprintf("; %s more were sent and refused, or not confirmed", terminal.Grouped(left))
	}
	_, err := fmt.Fprintln(p.out, text)
	return err
}

// progressBar shows how far it has come, on one line of a terminal. A nil one
// shows nothing.
type progressBar struct {
	w     io.Writer
	total int64 // 0: not known
	last  time.Duration
	drawn bool
}

// barEvery is how often the bar is drawn at most.
const barEvery = 100 * time.Millisecond

func (b *progressBar) draw(done int64, elapsed time.Duration) {
	if b == nil || b.drawn && elapsed-b.last < barEvery && done != b.total {
		return
	}
	b.last, b.drawn = elapsed, true
	_, _ = fmt.Fprint(b.w, "\r"+b.text(done, elapsed)+terminal.EraseLine) // nobody to tell
}

func (b *progressBar) text(done int64, elapsed time.Duration) string {
	rate := float64(done) / max(elapsed.Seconds(), 1e-3)
	if b.total == 0 {
		return fmt.Sprintf("%s published, %s/s", terminal.Grouped(done), terminal.Short(rate))
	}
	const width = 30
	full := int(width * done / b.total)
	text := "[" + strings.Repeat("=", full) + strings.Repeat(" ", width-full) + "] " + terminal.Grouped(done) + " of " + terminal.Grouped(b.total) + ", " + terminal.Short(rate) + "/s"
	if left := b.total - done; left > 0 && rate > 0 {
		text += ", " + terminal.Span(time.Duration(min(float64(left)/rate*1e9, math.MaxInt64/4))) + " left"
	}
	return text
}

// end takes the bar away.
func (b *progressBar) end() {
	if b != nil && b.drawn {
		_, _ = fmt.Fprint(b.w, "\r"+terminal.EraseLine)
	}
}
