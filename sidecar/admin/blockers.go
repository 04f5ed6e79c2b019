package admin

import (
	"strings"
	"sync"
	"time"

	"github.com/filaq/fila/sidecar/attention"
)

// blockers are the throttles and circuits that have blocked messages of queues of this node in the
// last hour, as the samples for attention have seen them.
type blockers struct {
	mu struct {
		sync.Mutex
		waiting map[string]int64                // messages by gate, in the last sample
		queues  map[string]map[string]time.Time // by queue: when a gate blocked its messages last
	}
}

const (
	// maxBlockers is how many gates of a queue are remembered.
	maxBlockers   = 50
	blockersSince = time.Hour
)

// note takes over a sample.
func (b *blockers) note(s *attention.Sample) {
	b.mu.Lock()
	defer b.mu.Unlock()
	queues := make(map[string]map[string]time.Time)
	b.mu.waiting = make(map[string]int64)
	for i := range s.Queues {
		q := &s.Queues[i]
		gates := b.mu.queues[q.Name]
		for gate, last := range gates {
			if s.At.Sub(last) > blockersSince {
				delete(gates, gate)
			}
		}
		for j := range q.Blocked {
			gate := q.Blocked[j].Gate
			if !strings.HasPrefix(gate, "throttle:") && !strings.HasPrefix(gate, "circuit:") {
				continue
			}
			b.mu.waiting[gate] += q.Blocked[j].Messages
			if _, known := gates[gate]; !known && len(gates) >= maxBlockers {
				continue
			}
			if gates == nil {
				gates = make(map[string]time.Time)
			}
			gates[gate] = s.At
		}
		if len(gates) > 0 {
			queues[q.Name] = gates
		}
	}
	b.mu.queues = queues
}

// of returns the gates that have blocked messages of a queue since a time.
func (b *blockers) of(queue string, since time.Time) map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	gates := make(map[string]bool)
	for gate, last := range b.mu.queues[queue] {
		if !last.Before(since) {
			gates[gate] = true
		}
	}
	return gates
}

// at returns how many messages a gate blocked in the last sample.
func (b *blockers) at(gate string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.waiting[gate]
}
