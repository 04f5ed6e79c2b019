package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/filaq/fila/sidecar/cluster/meta"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storefile"
	"github.com/filaq/fila/wire"
)

// Import makes a cluster, which must not exist, of the store of a single node that does not run.
// It only reads the store. After an error, no node joins the cluster before another Import
// succeeds.
func Import(ctx context.Context, o Options, path string) (moved Moved, err error) {
	f, err := store.OpenFile(path, o.store())
	if err != nil {
		return moved, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if lost := f.Lost(); lost != nil {
		return moved, lost
	}
	if position, err := f.Position(); err != nil {
		return moved, err
	} else if position != nil {
		return moved, fmt.Errorf("%w: %s is the copy of a shard of a cluster, not the store of a fila without one", store.ErrNotStore, path)
	}
	snap, err := f.Snapshot()
	if err != nil {
		return moved, err
	}
	for _, e := range snap.Config {
		if err := settled(e); err != nil {
			return moved, err
		}
	}
	if err := o.nobody(ctx); err != nil {
		return moved, err
	}
	b := o.beginning(&snap)
	m, err := meta.Begin(ctx, o.meta(), b)
	if err != nil {
		return moved, err
	}
	defer m.Close()
	defer os.RemoveAll(o.Dir) //nolint:errcheck // the next command removes it as well
	if err := errors.Join(os.RemoveAll(o.Dir), o.makeDir()); err != nil {
		return moved, err
	}
	files, err := o.split(f, &snap, b.Queues, &moved)
	if err != nil {
		return moved, err
	}
	moved.Queues, moved.Consumers, moved.Entries = int64(len(snap.Queues)), int64(len(snap.Consumers)), int64(len(b.Entries))
	return moved, o.fill(ctx, m, files, m.Incarnation())
}

// ownStates are the keys of a single node's gates and circuits, which a cluster shares in another
// form.
var ownStates = []string{"\x00calls/", "\x00changed/", "\x00circuit/", "\x00gates"}

// Keys of entries that belong to queues.
const (
	keySchedule = "\x00schedule/" // \x00schedule/<queue>/...
	keyRedriven = "\x00redriven/" // \x00redriven/<queue>/...
	keyJob      = "\x00job/"      // \x00job/<id>: JSON with its queue; \x00job/<id>/...
	keyJobOut   = "/out"          // \x00job/<id>/out: JSON, with the messages that are under way
	keyMoved    = "\x00moved/"    // results for jobs of other shards; nobody asks, since no transfer is under way
)

// ErrUnderWay is returned while messages of a job are on their way to another shard: both stores
// have them, and the nodes have to settle that.
var ErrUnderWay = errors.New("messages are on their way between two shards")

// settled refuses the entry of a job with messages on their way.
func settled(e store.Entry) error {
	name, isJob := strings.CutPrefix(e.Key, keyJob)
	id, isOut := strings.CutSuffix(name, keyJobOut)
	if !isJob || !isOut {
		return nil
	}
	var out struct{ Items []json.RawMessage }
	if err := json.Unmarshal([]byte(e.Value), &out); err != nil {
		return fmt.Errorf("what job %s has under way cannot be read: %w", id, err)
	}
	if n := len(out.Items); n > 0 {
		return fmt.Errorf("%w: up to %d of job %s; start the nodes, and pause, cancel or resume it (fila job show %[3]s) until none is under way", ErrUnderWay, n, id)
	}
	return nil
}

// jobQueues returns the queues of jobs by job id.
func jobQueues(entries []store.Entry) map[string]string {
	queues := make(map[string]string)
	for _, e := range entries {
		if id, ok := strings.CutPrefix(e.Key, keyJob); ok && !strings.Contains(id, "/") {
			var spec struct{ Queue string }
			_ = json.Unmarshal([]byte(e.Value), &spec) // without effect if it cannot be read
			queues[id] = spec.Queue
		}
	}
	return queues
}

// queueOf returns the queue that an entry belongs to, or "".
func queueOf(e store.Entry, jobs map[string]string) string {
	for _, prefix := range []string{keySchedule, keyRedriven} {
		if of, ok := strings.CutPrefix(e.Key, prefix); ok {
			name, _, _ := strings.Cut(of, "/")
			return name
		}
	}
	if of, ok := strings.CutPrefix(e.Key, keyJob); ok {
		id, _, _ := strings.Cut(of, "/")
		return wire.Source(jobs[id])
	}
	return ""
}

// isOfShard reports whether an entry belongs into the store of a shard.
func isOfShard(key string) bool {
	for _, prefix := range []string{keySchedule, keyRedriven, keyJob, keyMoved} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

func isOwnState(key string) bool {
	for _, prefix := range ownStates {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// beginning returns the shared data of a cluster made of a store.
func (o *Options) beginning(snap *store.Snapshot) meta.Beginning {
	b := meta.Beginning{By: byImport, Secret: snap.Secret, LastID: snap.NextQueueID - 1}
	b.Queues = placesOf(snap.Queues, &b.LastID, func(name string) int { return meta.ShardOf(name, o.Shards) })
	for _, e := range snap.Config {
		if !isOwnState(e.Key) && !isOfShard(e.Key) {
			b.Entries = append(b.Entries, e)
		}
	}
	return b
}

// placesOf returns the locations of queues by name, without dead letter queues. A missing id of a
// pair is assigned.
func placesOf(queues []store.QueueRecord, last *store.QueueID, shardOf func(name string) int) map[string]meta.Place {
	places := make(map[string]meta.Place)
	for _, q := range queues {
		name := wire.Source(q.Name)
		p, ok := places[name]
		if !ok {
			p.Shard = shardOf(name)
		}
		side := 0
		if wire.IsDLQ(q.Name) {
			side = 1
		}
		p.IDs[side] = q.ID
		places[name] = p
	}
	for name, p := range places {
		for side, id := range p.IDs {
			if id == 0 {
				*last++
				p.IDs[side] = *last
			}
		}
		places[name] = p
	}
	return places
}

// split makes one store of the queues of each shard.
func (o *Options) split(f *storefile.File, snap *store.Snapshot, places map[string]meta.Place, moved *Moved) (files []string, err error) {
	shards := make([]filler, o.Shards)
	defer func() {
		for i := range shards {
			if shards[i].b != nil {
				err = errors.Join(err, shards[i].b.Discard())
			}
		}
	}()
	heads := make([]store.Batch, o.Shards)
	of := make(map[store.QueueID]*filler)
	numbers := make(map[store.QueueID]int)
	for _, q := range snap.Queues {
		n := places[wire.Source(q.Name)].Shard
		of[q.ID], numbers[q.ID] = &shards[n], n
		heads[n].PutQueues = append(heads[n].PutQueues, q)
	}
	for _, c := range snap.Consumers {
		n := numbers[c.Queue]
		heads[n].PutConsumers = append(heads[n].PutConsumers, c)
	}
	jobs := jobQueues(snap.Config)
	for _, e := range snap.Config {
		if place, ok := places[queueOf(e, jobs)]; ok {
			heads[place.Shard].PutConfig = append(heads[place.Shard].PutConfig, e)
		}
	}
	for n := range shards {
		path := o.file(n)
		if shards[n].b, err = store.Build(path, nil, o.store()); err != nil {
			return nil, err
		}
		if err := shards[n].b.Add(&heads[n]); err != nil {
			return nil, err
		}
		files = append(files, path)
	}
	err = f.Messages(nil, func(m *store.Message, st *store.State, history [][]byte) error {
		s := of[m.Queue]
		if s == nil {
			return fmt.Errorf("message %d is of queue %d, which does not exist", m.Seq, m.Queue)
		}
		moved.Messages++
		return s.message(m, st, history)
	})
	if err == nil {
		err = f.Dedupes(nil, func(d store.Dedupe) error {
			moved.DedupeIDs++
			return of[d.Queue].dedupe(d)
		})
	}
	for n := range shards {
		if err == nil {
			err = shards[n].flush()
		}
		if err == nil {
			err = shards[n].b.Finish()
			shards[n].b = nil
		}
	}
	return files, err
}
