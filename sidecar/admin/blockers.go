package admin

import (
	"strings"
	"sync"
	"time"

	"github.com/filaq/fila/sidecar/attention"
	"github.com/filaq/fila/wire/api"
)

// blockers are the throttles and circuits that have blocked messages of queues of this node in the
// last hour, as the samples for attention have seen them.
type blockers struct {
	mu struct {
		sync.Mutex
		waiting map[string]*waitingAt           // by gate, in the last sample
		queues  map[string]map[string]time.Time // by queue: when a gate blocked its messages last
	}
}

// waitingAt is what a gate blocks.
type waitingAt struct {
	setBy    string // as in api.GateState
	messages int64
	queues   []api.WaitingQueue
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
	b.mu.waiting = make(map[string]*waitingAt)
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
			b.add(q.Name, &q.Blocked[j])
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

// add adds what a gate blocks of a queue. It needs mu.
func (b *blockers) add(queue string, of *attention.Blocked) {
	w := b.mu.waiting[of.Gate]
	if w == nil {
		w = &waitingAt{setBy: of.SetBy}
		b.mu.waiting[of.Gate] = w
	}
	w.messages += of.Messages
	w.queues = append(w.queues, api.WaitingQueue{Queue: queue, Messages: of.Messages, Flows: of.Tenants})
}

// at returns how many messages a gate blocked in the last sample.
func (b *blockers) at(gate string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.mu.waiting[gate]; w != nil {
		return w.messages
	}
	return 0
}

// under adds to a prefix, as ShowKey shows it, what the throttles with its limits blocked in the last
// sample.
func (b *blockers) under(info *api.ThrottleInfo) {
	b.mu.Lock()
	defer b.mu.Unlock()
	queues := make(map[string]*api.WaitingQueue)
	for gate, w := range b.mu.waiting {
		key, ok := strings.CutPrefix(gate, "throttle:")
		if !ok || !strings.HasPrefix(w.setBy, "prefix "+info.Key+", ") {
			continue
		}
		info.WaitingMessages += w.messages
		info.WaitingKeys = append(info.WaitingKeys, api.WaitingKey{Key: key, Messages: w.messages})
		for _, q := range w.queues {
			if queues[q.Queue] == nil {
				queues[q.Queue] = &api.WaitingQueue{Queue: q.Queue}
			}
			queues[q.Queue].Messages += q.Messages
			queues[q.Queue].Flows += q.Flows
		}
	}
	info.WaitingKeys = mostWaitingKeys(info.WaitingKeys)
	info.Waiting = len(queues)
	for _, q := range queues {
		info.WaitingQueues = append(info.WaitingQueues, *q)
	}
	info.WaitingQueues = mostWaiting(info.WaitingQueues)
}
