package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/filaq/fila/sidecar/policy"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// dlqSettings returns the settings of the dead letter queue of a queue. It has the visibility
// timeout of the queue, no hooks and no limits. A nacked dead letter is available at once,
// since a redrive skips delayed ones.
func dlqSettings(q wire.QueueSettings) wire.QueueSettings {
	d := wire.DefaultQueueSettings(wire.DLQ(q.Name))
	d.VisibilityTimeoutMs = q.VisibilityTimeoutMs
	d.MaxDeliveries = new(int64)
	d.DedupeWindowMs = 0
	d.RetryInitialMs, d.RetryMaxMs, d.RetryJitter = 0, 0, 0
	return d
}

// records returns the stored records of a queue and its dead letter queue.
func records(ids [queue.Roles]store.QueueID, settings wire.QueueSettings) ([]store.QueueRecord, error) {
	recs := make([]store.QueueRecord, queue.Roles)
	for side, of := range [...]wire.QueueSettings{settings, dlqSettings(settings)} {
		data, err := json.Marshal(of)
		if err != nil {
			return nil, fmt.Errorf("encode settings of queue %s: %w", of.Name, err)
		}
		recs[side] = store.QueueRecord{ID: ids[side], Name: of.Name, Settings: data}
	}
	return recs, nil
}

// newQueue returns a queue with its dead letter queue and their machine.
func (s *Shard) newQueue(ids [queue.Roles]store.QueueID, p *policy.Policy) *Queue {
	name := p.Settings.Name
	q := &Queue{shard: s, side: queue.Main, id: ids[queue.Main], name: name, metrics: s.Metrics.Queue(name)}
	dead := wire.DLQ(name)
	q.dlq = &Queue{shard: s, side: queue.Dead, id: ids[queue.Dead], name: dead, metrics: s.Metrics.Queue(dead), source: q}
	q.Schedules, q.dlq.Schedules = s.newSchedules(q), s.newSchedules(q.dlq)
	q.policy.Store(p)
	q.dlq.policy.Store(policy.WithoutHooks(dlqSettings(p.Settings)))
	r := newRunner(s)
	q.run, q.dlq.run = r, r
	r.sides = [queue.Roles]*Queue{q, q.dlq}
	r.rules = s.Control.Rules()
	settings := r.settings()
	r.machine = queue.New(queue.Options{
		Name: name, IDs: ids, Settings: settings, Gates: s.Control.Gates(), Circuits: s.Circuits, Owner: r,
		FirstLease: firstLease(), Pacing: s.Pacing,
	}, s.Now())
	r.publishKeyCounts(&settings)
	return q
}

// Create creates a queue with its dead letter queue and returns when messages can be
// published to it. It does nothing if the queue exists with the same settings.
func (s *Set) Create(settings wire.QueueSettings) (wire.QueueSettings, *wire.Error) {
	sh := s.Shard(s.Home(settings.Name))
	if sh == nil {
		return settings, wire.NoOwner(settings.Name)
	}
	return sh.create(settings)
}

// Home returns the number of the shard that a queue or dead letter queue is in, or would be.
func (s *Set) Home(name string) int {
	if s.Placement == nil {
		return 0
	}
	number, _ := s.Placement.Where(wire.Source(name))
	return number
}

// Find is Queue, or the error for requests to a queue that is not served here.
func (s *Set) Find(name string) (*Queue, *wire.Error) {
	q := s.queues.get(name)
	switch {
	case q != nil && !q.shard.silent():
		return q, nil
	case q == nil && s.isLocal(name):
		return nil, wire.QueueNotFound(name)
	}
	return nil, wire.NoOwner(name)
}

// isLocal reports whether a queue of this name would be on this node if it existed.
func (s *Set) isLocal(name string) bool { return s.Placement == nil || s.Shard(s.Home(name)) != nil }

func (s *Shard) create(settings wire.QueueSettings) (wire.QueueSettings, *wire.Error) {
	s.admin.Lock()
	defer s.admin.Unlock()
	switch {
	case s.set.draining.Load():
		return settings, wire.Draining()
	case s.leaving.Load(), s.silent():
		return settings, wire.NoOwner(settings.Name)
	}
	if q := s.set.queues.get(settings.Name); q != nil {
		have := q.Settings()
		if have.Equal(settings) {
			return have, nil
		}
		return settings, wire.QueueExists(settings.Name, have.Differences(settings))
	}
	p, werr := s.policies.New(settings, nil)
	if werr != nil {
		s.Metrics.Drop(settings.Name) // a hook that was loaded has created some
		return settings, werr
	}
	ids, werr := s.storeNew(settings)
	if werr != nil {
		return settings, werr
	}
	q := s.newQueue(ids, p)
	s.applyControl(q)
	s.applyControl(q.dlq)
	s.set.queues.update(func(m map[string]*Queue) { m[q.name], m[q.dlq.name] = q, q.dlq })
	// Weights may have been set before the queue could be found.
	s.applyWeights(q)
	s.applyWeights(q.dlq)
	s.set.state.Lock()
	s.set.updateDispatch(q)
	s.set.state.Unlock()
	q.run.start()
	for _, q := range q.run.sides {
		if err := s.Front.Attach(q); err != nil {
			s.Log.Error("fila cannot subscribe to a new queue; a restart tries again", "queue", q.name, "error", err)
			return settings, wire.Internal(err.Error())
		}
	}
	if err := s.Front.Flush(); err != nil {
		return settings, wire.Internal(err.Error())
	}
	s.event(wire.EventQueueCreated, q.name, wire.Event{Queue: q.name})
	s.Log.Info("queue created", "queue", q.name)
	return settings, nil
}

// storeNew stores a new queue and returns its ids.
func (s *Shard) storeNew(settings wire.QueueSettings) (ids [queue.Roles]store.QueueID, werr *wire.Error) {
	for again := false; ; again = true {
		if ids, werr = s.placeQueue(settings.Name, ids); werr != nil {
			return ids, werr
		}
		recs, err := records(ids, settings)
		if err != nil {
			return ids, wire.Internal(err.Error())
		}
		err = s.commit(&store.Batch{PutQueues: recs})
		switch {
		case err == nil:
			return ids, nil
		case s.Placement == nil || again || !errors.Is(err, store.ErrInvalid):
			return ids, queue.CommitError(err)
		}
	}
}

// placeTimeout bounds the wait for the Placement of a queue.
const placeTimeout = 5 * time.Second

// placeQueue returns the ids of a new queue. In a cluster, ids that it got before may be used up:
// the store has seen higher ones since, or a queue of that name with these ids was deleted.
// The caller passes these as spent to get other ids; spent is zero otherwise.
func (s *Shard) placeQueue(name string, spent [queue.Roles]store.QueueID) (ids [queue.Roles]store.QueueID, werr *wire.Error) {
	if s.Placement == nil {
		ids = [queue.Roles]store.QueueID{s.nextQueue, s.nextQueue + 1}
		s.nextQueue += 2
		return ids, nil
	}
	ctx, cancel := context.WithTimeout(s.ended, placeTimeout)
	defer cancel()
	var err error
	if spent != ids {
		err = s.Placement.Drop(ctx, name, spent)
	}
	number := s.number
	if err == nil {
		ids, number, err = s.Placement.Place(ctx, name)
	}
	if err != nil {
		s.Log.Error("a queue cannot be assigned to a shard", "queue", name, "error", err)
	}
	if err != nil || number != s.number {
		return ids, wire.NoOwner(name)
	}
	return ids, nil
}

// Update changes the settings of a queue, not a dead letter queue: patch returns the new
// settings for the old ones. They are on disk when Update returns.
func (q *Queue) Update(patch func(wire.QueueSettings) (wire.QueueSettings, *wire.Error)) (wire.QueueSettings, *wire.Error) {
	s := q.shard
	q.admin.Lock()
	defer q.admin.Unlock()
	if q.deleted.Load() {
		return wire.QueueSettings{}, wire.QueueNotFound(q.name)
	}
	old := q.policy.Load()
	settings, werr := patch(old.Settings)
	if werr != nil {
		return old.Settings, werr
	}
	if settings.Equal(old.Settings) && old.Intact() {
		return settings, nil
	}
	p, werr := s.policies.New(settings, old)
	if werr != nil {
		return old.Settings, werr
	}
	recs, err := records([queue.Roles]store.QueueID{q.id, q.dlq.id}, settings)
	if err != nil {
		return old.Settings, wire.Internal(err.Error())
	}
	if err := s.commit(&store.Batch{PutQueues: recs}); err != nil {
		return old.Settings, queue.CommitError(err)
	}
	q.policy.Store(p)
	q.dlq.policy.Store(policy.WithoutHooks(dlqSettings(settings)))
	q.run.renewSettings()
	old.CloseReplaced(p)
	s.event(wire.EventQueueUpdated, q.name, wire.Event{Queue: q.name})
	s.Log.Info("queue updated", "queue", q.name)
	return settings, nil
}

// detachTimeout bounds the wait for messages on their way to a deleted queue.
const detachTimeout = 10 * time.Second

// Delete deletes a queue, not a dead letter queue, with its dead letter queue. It refuses
// queues with messages unless force is set. It returns how many messages it has deleted.
// client is named in the audit log.
func (q *Queue) Delete(client string, force bool) (int64, *wire.Error) {
	s := q.shard
	s.admin.Lock()
	defer s.admin.Unlock()
	q.admin.Lock()
	defer q.admin.Unlock()
	if q.deleted.Load() || s.leaving.Load() {
		return 0, q.Gone()
	}
	if n := q.messages(); n > 0 && !force {
		return 0, wire.QueueNotEmpty(q.name, n)
	}
	// From here on the intake answers 404, and all messages that it has accepted before are
	// counted.
	q.deleted.Store(true)
	if n := q.messages(); n > 0 && !force {
		q.deleted.Store(false)
		s.jobs.Wake(q.name) // a job may have seen the queue as deleted
		return 0, wire.QueueNotEmpty(q.name, n)
	}
	q.dlq.deleted.Store(true)
	s.set.queues.update(func(m map[string]*Queue) { delete(m, q.name); delete(m, q.dlq.name) })
	select {
	case <-s.Front.Detach(q, q.dlq):
	case <-time.After(detachTimeout):
	case <-s.Killed:
	}
	q.run.end()
	deleted := q.messages()
	kept := append(s.jobs.Forget(q.name), q.RemoveSchedules()...)
	kept = append(kept, q.dlq.redrives.Keys(q.name)...)
	if err := s.commit(&store.Batch{Queue: q.id, DeleteConfig: kept, DeleteQueues: []store.QueueID{q.id, q.dlq.id}}); err != nil {
		return 0, queue.CommitError(err)
	}
	s.forgetPlace(q)
	s.Control.ForgetPauses(client, q.name, q.dlq.name)
	q.policy.Load().CloseReplaced(nil)
	s.Metrics.Drop(q.name)
	s.Metrics.Drop(q.dlq.name)
	s.event(wire.EventQueueDeleted, q.name, wire.Event{Queue: q.name, Data: map[string]any{"messages": deleted}})
	s.Log.Info("queue deleted", "queue", q.name, "messages", deleted)
	return deleted, nil
}

// forgetPlace deletes the Placement of a deleted queue. If that fails, the next queue of
// this name finds its ids used up. A queue that another owner of the shard has created
// meanwhile keeps its Placement.
func (s *Shard) forgetPlace(q *Queue) {
	if s.Placement == nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.ended, placeTimeout)
	defer cancel()
	if err := s.Placement.Drop(ctx, q.name, [queue.Roles]store.QueueID{q.id, q.dlq.id}); err != nil {
		s.Log.Warn("the shard of a deleted queue stays recorded", "queue", q.name, "error", err)
	}
}

// messages counts the messages of a queue and its dead letter queue. It never misses one that
// moves between them, see carryOut.
func (q *Queue) messages() int64 { return q.depth.Load() + q.dlq.depth.Load() }

// commit hands b to the store and waits for the disk.
func (s *Shard) commit(b *store.Batch) error {
	done := make(chan error, 1)
	b.Done = func(err error) { done <- err }
	s.store.Submit(b)
	return s.wait(done)
}

// wait waits for the outcome of a commit.
func (s *Shard) wait(done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-s.lost:
		return store.ErrFenced
	}
}

// Check returns an error that Declare is going to return, as far as that can be known.
func (s *Set) Check(settings wire.QueueSettings) error {
	q := s.queues.get(settings.Name)
	switch {
	case q == nil && s.Offline():
		return fmt.Errorf("queue %s cannot be created while NATS is not connected", settings.Name)
	case q != nil && q.Settings().Equal(settings):
		return nil
	}
	return s.Hooks.Check(settings)
}

// Declare creates a queue or gives an existing one these settings. It returns the settings
// before, nil for a new queue. It leaves queues of other nodes alone.
func (s *Set) Declare(ctx context.Context, settings wire.QueueSettings) (had *wire.QueueSettings, werr *wire.Error) {
	if err := ctx.Err(); err != nil {
		return nil, wire.Internal(err.Error())
	}
	q := s.queues.get(settings.Name)
	switch {
	case q == nil && !s.isLocal(settings.Name): // its owner declares it
		return &settings, nil
	case q == nil:
		_, werr = s.Create(settings)
		return nil, werr
	}
	_, werr = q.Update(func(now wire.QueueSettings) (wire.QueueSettings, *wire.Error) {
		had = &now
		return settings, nil
	})
	return had, werr
}

// Declared returns the settings that Declare would replace, nil if it would create the queue.
// For a queue of another node it returns the given settings.
func (s *Set) Declared(settings wire.QueueSettings) *wire.QueueSettings {
	if q := s.queues.get(settings.Name); q != nil {
		settings = q.Settings()
	} else if s.isLocal(settings.Name) {
		return nil
	}
	return &settings
}

// Settings returns the settings of all queues by name, without dead letter queues.
func (s *Set) Settings() []wire.QueueSettings {
	var all []wire.QueueSettings
	for _, q := range s.queues.main() {
		all = append(all, q.Settings())
	}
	return all
}

// Exists reports whether there is a queue or dead letter queue of that name on any node.
func (s *Set) Exists(name string) bool {
	if s.queues.get(name) != nil || s.Placement == nil {
		return s.queues.get(name) != nil
	}
	_, ok := s.Placement.Where(wire.Source(name))
	return ok && !s.isLocal(name)
}

// PauseQueue pauses a queue until a time (Unix ns) or [queue.Forever]; 0 resumes it. Like
// PauseKey and Weigh, it does not block and ignores queues that do not exist.
func (s *Set) PauseQueue(name string, until int64) { s.tell(name, queue.PauseQueue{Until: until}) }

// PauseKey pauses a fairness key of a queue, as PauseQueue pauses the queue.
func (s *Set) PauseKey(name, key string, until int64) {
	s.tell(name, queue.PauseKey{Key: key, Until: until})
}

// Weigh overrides the weight of a fairness key, in thousandths; 0 ends the override.
func (s *Set) Weigh(name, key string, weight uint32) {
	s.tell(name, queue.Weigh{Key: key, Weight: weight})
}

func (s *Set) tell(name string, c queue.Change) {
	if q := s.queues.get(name); q != nil {
		q.Tell(c)
	}
}
