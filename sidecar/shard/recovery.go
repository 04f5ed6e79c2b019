package shard

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/filaq/fila/sidecar/deadletter"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/schedule"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// recovering is a queue whose machine is being filled by recovery.
type recovering struct {
	*Queue
	from *queue.Recovery // shared by both roles
}

// Recover creates the queues of the store with their messages, jobs and schedules. It is
// called once, before [Set.Add].
func (s *Shard) Recover(snap store.Snapshot) error {
	s.nextQueue = snap.NextQueueID
	byID, err := s.recoverQueues(snap.Queues)
	if err != nil {
		return err
	}
	if err := s.recoverMessages(byID); err != nil {
		return err
	}
	now := s.Now()
	for _, rec := range snap.Queues {
		if r := byID[rec.ID]; !r.IsDLQ() {
			r.from.Done(now)
		}
	}
	for _, rec := range snap.Consumers {
		if r, ok := byID[rec.Queue]; ok {
			r.from.Consumer(rec, s.Subjects.Deliver(rec.Name, r.name))
		}
	}
	byName := make(map[string]recovering, len(snap.Queues))
	for _, rec := range snap.Queues {
		r := byID[rec.ID]
		byName[rec.Name] = r
		if !r.IsDLQ() {
			s.recovered = append(s.recovered, r.Queue)
		}
	}
	s.schedules.Recover(snap.Config, func(name string) *schedule.Schedules {
		if r, ok := byName[name]; ok {
			return r.Schedules
		}
		return nil
	})
	deadletter.Recover(snap.Config, func(dlq string) *deadletter.Redrives {
		if r, ok := byName[dlq]; ok {
			return &r.redrives
		}
		return nil
	}, s.Log)
	return s.recoverJobs(snap.Config, byName)
}

// recoverQueues creates queues of their records, without messages.
func (s *Shard) recoverQueues(recs []store.QueueRecord) (map[store.QueueID]recovering, error) {
	ids := make(map[string]store.QueueID, len(recs))
	for _, rec := range recs {
		ids[rec.Name] = rec.ID
	}
	byID := make(map[store.QueueID]recovering, len(recs))
	for _, rec := range recs {
		if wire.IsDLQ(rec.Name) {
			continue
		}
		settings := wire.DefaultQueueSettings(rec.Name)
		if err := json.Unmarshal(rec.Settings, &settings); err != nil {
			return nil, fmt.Errorf("settings of queue %s in the store: %w", rec.Name, err)
		}
		dead, ok := ids[wire.DLQ(rec.Name)]
		if !ok {
			return nil, fmt.Errorf("queue %s has no dead letter queue in the store", rec.Name)
		}
		q := s.newQueue([queue.Roles]store.QueueID{rec.ID, dead}, s.policies.Recovered(settings))
		from := q.run.machine.Recover()
		byID[rec.ID], byID[dead] = recovering{q, from}, recovering{q.dlq, from}
	}
	for _, rec := range recs {
		if _, ok := byID[rec.ID]; !ok {
			return nil, fmt.Errorf("dead letter queue %s has no queue in the store", rec.Name)
		}
	}
	return byID, nil
}

func (s *Shard) recoverMessages(byID map[store.QueueID]recovering) error {
	start, now := time.Now(), s.Now()
	next := 2 * time.Second
	stats, err := s.store.Recover(store.Visitor{
		Message: func(m *store.Message, size int, st *store.State) error {
			r, ok := byID[m.Queue]
			if !ok {
				return fmt.Errorf("message %s belongs to queue %d, which the store does not have", formatID(m.ID), m.Queue)
			}
			r.depth.Add(1)
			r.bytes.Add(int64(size))
			r.from.Message(m, size, st, now)
			return nil
		},
		Dedupe: func(d store.Dedupe) error {
			if r, ok := byID[d.Queue]; ok {
				r.intake.seen.add(d.DedupeID, d.ID, d.Until)
			}
			return nil
		},
		Progress: func(done, total int64) {
			if spent := time.Since(start); spent >= next {
				s.Log.Info("recovering", "messages", done, "of", total)
				next = spent + 2*time.Second
			}
		},
	})
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	s.Log.Info("recovered", "queues", len(byID), "messages", stats.Messages, "bytes", stats.Bytes,
		"states", stats.States, "dedupe_ids", stats.Dedupes, "took", stats.Duration.Round(time.Millisecond))
	return nil
}
