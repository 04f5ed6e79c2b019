package natsio

import (
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

const (
	// maxKeptEvents bounds the bytes of kept events. The oldest are lost beyond it.
	maxKeptEvents = 1 << 20
	// keptEventBytes is about what an event takes besides its body and subject.
	keptEventBytes = 128
	// eventsWait is how long events wait after a reconnect. Subscribers were disconnected as
	// well, and most clients reconnect every two seconds.
	eventsWait = 2500 * time.Millisecond
	// eventsConfirmEvery is the least time between two checks that the server has the events.
	eventsConfirmEvery = 100 * time.Millisecond
	eventsPollEvery    = 50 * time.Millisecond
)

// Events returns the function that publishes an event under the name of its queue or key. It
// sets type and time. Events are not reliable: nobody waits for them. While NATS is away they
// are kept, up to a limit, and published in order when it is back. Events that the server may
// not have received before are published again and can arrive twice.
func Events(nc *nats.Conn, subjects wire.Subjects, now func() int64, log *slog.Logger) func(typ, tail string, e wire.Event) {
	p := &eventPublisher{nc: nc, log: log}
	return func(typ, tail string, e wire.Event) {
		e.Type, e.Time, e.Key = typ, wire.Timestamp(now()), wire.ShowKey(e.Key)
		data, err := json.Marshal(e)
		if err != nil {
			log.Error("an event cannot be encoded", "type", typ, "error", err)
			return
		}
		p.publish(keptEvent{subjects.Event(typ, tail), data})
	}
}

type keptEvent struct {
	subject string
	data    []byte
}

func (e *keptEvent) bytes() int { return keptEventBytes + len(e.subject) + len(e.data) }

// eventPublisher publishes events in order and keeps each until the server has it.
type eventPublisher struct {
	nc  *nats.Conn
	log *slog.Logger

	mu      sync.Mutex
	kept    []keptEvent // in order
	bytes   int         // of kept
	dropped int         // number of events that have left kept
	sent    int         // the first events of kept are published, but the server may not have them
	link    uint64      // reconnects of nc when the first of sent was published
	away    bool        // kept waits for the connection
	lost    int         // events lost since the last that was published
	working bool        // work is running
}

func (p *eventPublisher) publish(e keptEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nc.IsClosed() {
		p.log.Debug("an event could not be published", "subject", e.subject)
		return
	}
	p.kept = append(p.kept, e)
	p.bytes += e.bytes()
	if !p.away {
		p.send()
	}
	for p.bytes > maxKeptEvents {
		if p.sent == 0 {
			p.lost++
		}
		p.drop(1)
	}
	if !p.working && len(p.kept) > 0 {
		p.working = true
		go p.work()
	}
}

// send publishes the rest of kept. Its caller holds mu.
func (p *eventPublisher) send() {
	for p.sent < len(p.kept) {
		if p.sent == 0 {
			p.link = p.nc.Stats().Reconnects
		}
		e := &p.kept[p.sent]
		switch err := p.nc.Publish(e.subject, e.data); {
		case err == nil:
			p.sent++
		case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject): // it can never be published
			p.log.Error("an event cannot be published", "subject", e.subject, "bytes", len(e.data), "error", err)
			p.bytes -= e.bytes()
			p.kept = slices.Delete(p.kept, p.sent, p.sent+1)
		default:
			p.away, p.sent = true, 0
			return
		}
	}
	if p.lost > 0 {
		p.log.Warn("events are lost: NATS was away for too long", "events", p.lost)
		p.lost = 0
	}
}

// drop removes the first n of kept. Its caller holds mu.
func (p *eventPublisher) drop(n int) {
	for i := range n {
		p.bytes -= p.kept[i].bytes()
		p.kept[i] = keptEvent{}
	}
	p.kept = p.kept[n:]
	p.dropped += n
	p.sent = max(p.sent-n, 0)
}

// work runs while events are kept: it confirms or republishes them.
func (p *eventPublisher) work() {
	for p.keeps() {
		p.mu.Lock()
		away, end := p.away, p.dropped+p.sent
		p.mu.Unlock()
		if !away {
			p.confirm(end)
			time.Sleep(eventsConfirmEvery)
			continue
		}
		if p.awaitConnection() {
			p.mu.Lock()
			p.away = false
			p.send()
			p.mu.Unlock()
		}
	}
}

// keeps reports whether events are kept and can still be published. Otherwise work ends.
func (p *eventPublisher) keeps() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nc.IsClosed() {
		p.drop(len(p.kept))
	}
	p.working = len(p.kept) > 0
	return p.working
}

// confirm waits until the server has the events published up to end, counted like dropped, and
// removes them. If the connection was lost meanwhile, all kept events have to be published again.
func (p *eventPublisher) confirm(end int) {
	err := p.nc.FlushTimeout(natsDialTimeout)
	connected := p.nc.IsConnected()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !connected || p.nc.Stats().Reconnects != p.link:
		p.away, p.sent = true, 0
	case err == nil:
		p.drop(max(end-p.dropped, 0))
	}
}

// awaitConnection waits until the connection has been up for a while. It reports false if it is
// closed for good.
func (p *eventPublisher) awaitConnection() bool {
	for up := time.Duration(0); up < eventsWait; up += eventsPollEvery {
		if p.nc.IsClosed() {
			return false
		}
		if !p.nc.IsConnected() {
			up = 0
		}
		time.Sleep(eventsPollEvery)
	}
	return true
}
