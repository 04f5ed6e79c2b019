package load

import (
	"context"
	"fmt"
	"sync"

	"github.com/filaq/fila/bench/measure"
)

// ledger has every message from its publish to its last ack. Counters alone would miss a loss
// that a duplicate makes up for.
type ledger struct {
	mu struct {
		sync.Mutex
		open map[int64]bool // by number; true: nacked and expected again
		sums ledgerSums
	}
}

// ledgerSums count messages.
type ledgerSums struct {
	opened, nacked int64
	strays         int64 // deliveries of messages that were not open
	open           int64 // still
}

// turn says what a delivery means for its message.
type turn int

const (
	turnStray  turn = iota // unexpected: acked before
	turnOnly               // first and last delivery
	turnToNack             // first delivery; another will follow
	turnNacked             // the expected second delivery
)

// open records a message before its publish.
func (l *ledger) open(number int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.open == nil {
		l.mu.open = map[int64]bool{}
	}
	l.mu.open[number] = false
	l.mu.sums.opened++
}

// delivered records a delivery. Every nackEvery-th message is nacked once; 0 is none.
func (l *ledger) delivered(number, nackEvery int64) turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	nacked, ok := l.mu.open[number]
	switch {
	case !ok:
		l.mu.sums.strays++
		return turnStray
	case nackEvery > 0 && number%nackEvery == 0 && !nacked:
		l.mu.open[number] = true
		l.mu.sums.nacked++
		return turnToNack
	}
	delete(l.mu.open, number)
	if nacked {
		return turnNacked
	}
	return turnOnly
}

func (l *ledger) sums() ledgerSums {
	l.mu.Lock()
	defer l.mu.Unlock()
	sums := l.mu.sums
	sums.open = int64(len(l.mu.open))
	return sums
}

// follow acks or nacks a delivery by the ledger. The latency of a message is the latency of its
// first delivery.
func (a *acker) follow(data []byte, to string) {
	if len(data) < MinPayload {
		a.c.e.note("a delivery that nobody published", fmt.Errorf("%d bytes", len(data)))
		return
	}
	sent, number := stampOf(data)
	turn := a.c.ledger.delivered(number, a.c.p.NackEvery)
	if turn == turnOnly || turn == turnToNack {
		a.record(sent)
	}
	switch turn {
	case turnStray:
		a.c.e.note("a message came again after its ack", fmt.Errorf("number %d", number))
		a.sent(a.conn.Ack(to))
	case turnToNack:
		a.sent(a.conn.Nack(to))
	default:
		a.ack(to)
	}
}

// account closes the ledger once nothing is in flight any more: every message
// that was not refused must have been delivered and acked, and the server must
// know that.
func (c *crew) account(ctx context.Context, refused int64, into measure.Sample) error {
	sums := c.ledger.sums()
	if sums.open != refused {
		return fmt.Errorf("messages: %d, refused: %d, not come to their end: %d", sums.opened, refused, sums.open)
	}
	into[c.p.figure("accounted_messages")] = float64(sums.opened - sums.open)
	into[c.p.figure("nacked_messages")] = float64(sums.nacked)
	into[c.p.figure("stray_deliveries")] = float64(sums.strays)
	return c.e.emptied(ctx)
}

// emptied waits until the server has taken the last acks.
func (e *engine) emptied(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stallAfter)
	defer cancel()
	for {
		rest, err := e.target.Held(ctx)
		if err != nil {
			return fmt.Errorf("see what is left in the queue: %w", err)
		}
		if rest.Messages == 0 {
			return nil
		}
		if err := pause(ctx, 10*glance); err != nil {
			return fmt.Errorf("acked messages that the queue still holds: %d: %w", rest.Messages, err)
		}
	}
}
