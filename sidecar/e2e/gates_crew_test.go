package e2e

import (
	"slices"
	"sync"
	"time"
)

// crew is a group of consumers that answer at once or as told, and record their deliveries.
type crew struct {
	c          *client
	visibility time.Duration
	stop       chan struct{}
	once       sync.Once
	done       sync.WaitGroup
	mu         struct {
		sync.Mutex
		flights []flight
	}
}

func (c *client) newCrew(visibility time.Duration) *crew {
	w := &crew{c: c, visibility: visibility, stop: make(chan struct{})}
	c.t.Cleanup(w.end)
	return w
}

// end stops the crew at once. It is safe to repeat.
func (w *crew) end() {
	w.once.Do(func() { close(w.stop) })
	w.done.Wait()
}

// join starts consumers of a queue: hold waits, answer returns the ack payload.
func (w *crew) join(queue string, consumers, credit int, hold func(), answer func(d delivery) string) {
	w.c.t.Helper()
	for range consumers {
		k := w.c.consume(queue, credit)
		w.done.Go(func() {
			for {
				select {
				case <-w.stop:
					return
				case d := <-k.ch:
					w.done.Go(func() { w.handle(d, hold, answer) })
				}
			}
		})
	}
}

func (w *crew) handle(d delivery, hold func(), answer func(d delivery) string) {
	if hold != nil {
		hold()
	}
	payload := ""
	if answer != nil {
		payload = answer(d)
	}
	f := flightOf(w.c.t, d, w.visibility)
	f.end = min(f.end, time.Now().UnixNano())
	w.mu.Lock()
	w.mu.flights = append(w.mu.flights, f)
	w.mu.Unlock()
	if err := d.Respond([]byte(payload)); err != nil {
		w.c.t.Errorf("answer: %v", err)
	}
}

// count returns the number of answered deliveries.
func (w *crew) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mu.flights)
}

// all returns the flights so far in order.
func (w *crew) all() []flight {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := slices.Clone(w.mu.flights)
	sortFlights(out)
	return out
}

// await waits for n answered deliveries in all.
func (w *crew) await(n int) {
	w.c.t.Helper()
	eventually(w.c.t, func() bool { return w.count() >= n }, "%d deliveries must come", n)
}
