package web

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/filaq/fila/wire"
)

// eventLog keeps the newest events. It subscribes at the first view and unsubscribes when
// nobody has viewed it for a while.
type eventLog struct {
	mu struct {
		sync.Mutex
		heard  []wire.Event // the oldest first
		missed int          // dropped for lack of space
		since  time.Time    // start of the subscription
		asked  time.Time    // time of the last view
		stop   func()       // nil: not subscribed
		// refused is the refusal of NATS, and turn counts subscriptions, since a refusal
		// may come late.
		refused error
		turn    int
		closed  bool
	}
}

const (
	maxEvents  = 1000
	eventsIdle = 15 * time.Minute
	// eventsAgain is the time between subscriptions that NATS refuses.
	eventsAgain = 10 * time.Second
	// refusalTime is how long a refusal may take to arrive.
	refusalTime = 3 * time.Second
)

// listen subscribes unless it has subscribed.
func (l *eventLog) listen(w *Web) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.mu.asked = now
	if l.mu.stop != nil || l.mu.closed || l.mu.refused != nil && now.Sub(l.mu.since) < eventsAgain {
		return nil
	}
	l.mu.turn++
	turn := l.mu.turn
	stop, err := w.Events(l.hear, func(err error) { l.refuse(turn, err) })
	if err != nil {
		return err
	}
	l.mu.stop, l.mu.since, l.mu.heard, l.mu.missed = stop, now, nil, 0
	return nil
}

// refuse stores a refusal. The next view subscribes again.
func (l *eventLog) refuse(turn int, err error) {
	l.mu.Lock()
	if turn != l.mu.turn || l.mu.stop == nil {
		l.mu.Unlock()
		return
	}
	stop := l.mu.stop
	l.mu.refused, l.mu.stop = err, nil
	l.mu.Unlock()
	stop()
}

func (l *eventLog) hear(data []byte) {
	var e wire.Event
	if json.Unmarshal(data, &e) != nil {
		return // a newer format, or no event of fila
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.refused = nil
	if len(l.mu.heard) == maxEvents {
		n := maxEvents / 10
		l.mu.heard, l.mu.missed = slices.Delete(l.mu.heard, 0, n), l.mu.missed+n
	}
	l.mu.heard = append(l.mu.heard, e)
}

// rest unsubscribes after a time without views, or at once.
func (l *eventLog) rest(atOnce bool) {
	l.mu.Lock()
	stop := l.mu.stop
	if !atOnce && time.Since(l.mu.asked) < eventsIdle {
		stop = nil
	}
	if stop != nil {
		l.mu.stop = nil
	}
	l.mu.closed = l.mu.closed || atOnce
	l.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// eventsData is the data of the page of events.
type eventsData struct {
	Find   string
	Paused bool
	Since  string
	Events []eventRow // the newest first
	Missed int
	Here   string // address of this page, live or paused
	// Refused is the refusal of NATS, Needs the refused subject.
	Refused, Needs string
}

type eventRow struct {
	wire.Event
	Data string
}

// shownEvents is how many events a page has.
const shownEvents = 200

func eventsPage(a *ask) (any, error) {
	l := &a.web.events
	if err := l.listen(a.web); err != nil {
		return nil, err
	}
	d := eventsData{Find: a.query("find"), Paused: a.query("paused") != ""}
	other := "yes"
	if d.Paused {
		other = ""
	}
	d.Here = href(a.web.base, "/activity", "find", d.Find, "paused", other)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.refused != nil && (l.mu.stop == nil || time.Since(l.mu.since) < refusalTime) {
		d.Refused, d.Needs = l.mu.refused.Error(), a.web.Needs
	}
	d.Since, d.Missed = wire.Timestamp(l.mu.since.UnixNano()), l.mu.missed
	for _, e := range slices.Backward(l.mu.heard) {
		row := eventRow{Event: e}
		if len(e.Data) > 0 {
			text, err := json.Marshal(e.Data)
			if err != nil {
				return nil, err
			}
			row.Data = string(text)
		}
		if !row.has(strings.ToLower(d.Find)) {
			continue
		}
		if d.Events = append(d.Events, row); len(d.Events) == shownEvents {
			break
		}
	}
	return d, nil
}

func (r *eventRow) has(text string) bool {
	return slices.ContainsFunc([]string{r.Type, r.Queue, r.Key, r.Data}, func(s string) bool {
		return strings.Contains(strings.ToLower(s), text)
	})
}

// Still reports that the page is paused and has no live part.
func (d eventsData) Still() bool { return d.Paused }
