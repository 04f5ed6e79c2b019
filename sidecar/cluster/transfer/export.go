package transfer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/filaq/fila/sidecar/cluster"
	"github.com/filaq/fila/sidecar/cluster/meta"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/replog"
	"github.com/filaq/fila/store/storefile"
)

// Export makes the store of a single node at path to, which must not exist, of a cluster whose
// nodes do not run. It needs JetStream only. The file appears when it is complete.
func Export(ctx context.Context, o Options, to string) (moved Moved, err error) {
	if _, err := os.Lstat(to); err == nil {
		return moved, fmt.Errorf("%s: %w", to, os.ErrExist)
	}
	if err := o.nobody(ctx); err != nil {
		return moved, err
	}
	m, err := meta.Look(ctx, o.meta())
	if err != nil {
		return moved, err
	}
	defer m.Close()
	if m.Making() != "" {
		return moved, fmt.Errorf("cluster %s is not whole: `%s` was interrupted; call that again", o.Cluster, m.Making())
	}
	defer os.RemoveAll(o.Dir) //nolint:errcheck // the next command removes it as well
	if err := errors.Join(os.RemoveAll(o.Dir), o.makeDir()); err != nil {
		return moved, err
	}
	js, snapshots, err := o.snapshots(ctx, m.Incarnation())
	if err != nil {
		return moved, err
	}
	ends := make([]replog.Seen, m.Shards())
	for shard := range ends {
		if ends[shard], err = o.read(ctx, js, snapshots, m.Incarnation(), shard); err == nil {
			err = cluster.CheckLog(m, shard, ends[shard])
		}
		if err != nil {
			return moved, fmt.Errorf("shard %d: %w", shard, err)
		}
	}
	b, err := store.Build(to, m.Secret(), o.store())
	if err != nil {
		return moved, err
	}
	defer func() { err = errors.Join(err, b.Discard()) }() // without effect after Finish
	if err := o.join(b, m, &moved); err != nil {
		return moved, err
	}
	for shard, end := range ends {
		now, err := o.read(ctx, js, snapshots, m.Incarnation(), shard)
		if err == nil && now.Seq != end.Seq {
			err = fmt.Errorf("%w: shard %d was written meanwhile", ErrRuns, shard)
		}
		if err != nil {
			return moved, err
		}
	}
	return moved, b.Finish()
}

// snapshots opens the object store of a cluster.
func (o *Options) snapshots(ctx context.Context, incarnation string) (jetstream.JetStream, jetstream.ObjectStore, error) {
	js, err := jetstream.New(o.Conn)
	if err != nil {
		return nil, nil, err
	}
	var snapshots jetstream.ObjectStore
	err = o.patiently(ctx, func() (err error) {
		snapshots, err = replog.OpenSnapshots(ctx, js, o.Cluster, incarnation, o.Replicas)
		return err
	})
	return js, snapshots, err
}

// look is how often a copy is checked for the end of its log.
const look = 20 * time.Millisecond

// read brings a copy of a shard up to the end of its log and returns what it has seen.
func (o *Options) read(ctx context.Context, js jetstream.JetStream, snapshots jetstream.ObjectStore, incarnation string, shard int) (end replog.Seen, err error) {
	var r *replog.Replica
	err = o.patiently(ctx, func() (err error) {
		r, err = replog.Open(ctx, o.replica(js, snapshots, incarnation, shard, o.file(shard)))
		return err
	})
	if err != nil {
		return end, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		seen := r.Seen()
		switch {
		case seen.Err != nil && !replog.Busy(seen.Err):
			return end, seen.Err
		case seen.Err == nil && seen.Lag == 0:
			return seen, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return end, ctx.Err()
		}
	}
}

// join merges the copies of all shards.
func (o *Options) join(b *store.Builder, m *meta.Meta, moved *Moved) error {
	files := make([]*storefile.File, m.Shards())
	defer func() {
		for _, f := range files {
			if f != nil {
				_ = f.Close() // opened for reading
			}
		}
	}()
	var head store.Batch
	for shard := range files {
		f, err := store.OpenFile(o.file(shard), o.store())
		if err != nil {
			return err
		}
		files[shard] = f
		snap, err := f.Snapshot()
		if err != nil {
			return err
		}
		for _, e := range snap.Config {
			if err := settled(e); err != nil {
				return fmt.Errorf("shard %d: %w", shard, err)
			}
			if isOfShard(e.Key) && !strings.HasPrefix(e.Key, keyMoved) {
				head.PutConfig = append(head.PutConfig, e)
			}
		}
		head.PutQueues, head.PutConsumers = append(head.PutQueues, snap.Queues...), append(head.PutConsumers, snap.Consumers...)
	}
	last, err := m.LastID()
	if err != nil {
		return err
	}
	moved.Queues, moved.Consumers = int64(len(head.PutQueues)), int64(len(head.PutConsumers))
	if !slices.ContainsFunc(head.PutQueues, func(q store.QueueRecord) bool { return q.ID >= last }) && last > 0 {
		// Ids are never used again, so the last one is used and deleted.
		head.PutQueues = append(head.PutQueues, store.QueueRecord{ID: last, Name: "deleted"})
		head.DeleteQueues = []store.QueueID{last}
	}
	if err := b.Add(&head); err != nil {
		return err
	}
	for part := range slices.Chunk(m.Entries(), batchRecords) {
		moved.Entries += int64(len(part))
		if err := b.Add(&store.Batch{PutConfig: part}); err != nil {
			return err
		}
	}
	to := filler{b: b}
	for _, f := range files {
		err := f.Messages(nil, func(m *store.Message, st *store.State, history [][]byte) error {
			moved.Messages++
			return to.message(m, st, history)
		})
		if err == nil {
			err = f.Dedupes(nil, func(d store.Dedupe) error {
				moved.DedupeIDs++
				return to.dedupe(d)
			})
		}
		if err != nil {
			return err
		}
	}
	return to.flush()
}
