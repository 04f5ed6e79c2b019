package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"

	"go.etcd.io/bbolt"

	"github.com/filaq/fila/store/storefile"
)

var errDiffers = errors.New("store: the new file does not hold all of it")

// Builder makes a new store from batches. There is no file at its path until
// [Builder.Finish], and then a complete one. Use its methods from one goroutine at a
// time.
type Builder struct {
	path string
	tmp  storefile.Path
	o    Options
	s    *Bolt
	sum  contents
	last Ref // of the last record of a history
}

// contents are the figures of a store.
type contents struct {
	messages, bytes, states, histories int64
}

// differ returns an error unless c is as wanted.
func (c contents) differ(want contents) error {
	if c == want {
		return nil
	}
	return fmt.Errorf("%w: %d messages of %d, %d bytes of %d, %d states of %d, %d histories of %d",
		errDiffers, c.messages, want.messages, c.bytes, want.bytes, c.states, want.states, c.histories, want.histories)
}

// Build starts a new store at path. If there is a file, the error wraps [fs.ErrExist].
// The new store is path.import until Finish. Build removes what a killed process left
// there, and returns [ErrLocked] if another process is building it. With a nil secret the
// store gets its own; otherwise the secret has 32 bytes.
func Build(path string, secret []byte, o Options) (*Builder, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("store: %s: %w", path, fs.ErrExist)
	}
	return build(path, path+".import", secret, 0, o)
}

func build(path, tmp string, secret []byte, created int64, o Options) (*Builder, error) {
	o = o.withDefaults()
	// It is synced once, at the end. Messages stay in the order in which they are
	// added, since no segments are merged.
	o.NoSync, o.ReadCacheBytes, o.OnCommit, o.KeepConfirmed = true, -1, nil, false
	o.Join = nil // histories are taken as they are
	o.tune.mergeFanIn = math.MaxInt
	if err := storefile.RemoveStale(tmp, o.Timeout); err != nil {
		return nil, err
	}
	b := &Builder{path: path, tmp: storefile.Path(tmp), o: o}
	db, _, err := storefile.OpenDB(b.tmp, o.file(), storefile.Making)
	if err != nil {
		return nil, err
	}
	if err := db.Update(func(tx *bbolt.Tx) error { return storefile.Initialise(tx, secret, created) }); err != nil {
		return nil, errors.Join(err, db.Close(), os.Remove(tmp))
	}
	if b.s, err = serve(newBolt(b.tmp, o, db), nil); err != nil {
		return nil, errors.Join(err, os.Remove(tmp))
	}
	return b, nil
}

// Add adds a batch to the store, without a sync. It does not use Done. After an error
// nothing of the batch was added; see [Batch]. The records of one history must follow
// each other.
func (b *Builder) Add(batch *Batch) error {
	done := make(chan error, 1)
	batch.Done = func(err error) { done <- err }
	b.s.Submit(batch)
	err := <-done
	batch.Done = nil
	if err != nil {
		return err
	}
	b.sum.bytes += addedBytes(batch)
	b.sum.messages += int64(len(batch.Add))
	b.sum.states += int64(len(batch.State))
	for i := range batch.History {
		if batch.History[i].Ref != b.last {
			b.last = batch.History[i].Ref
			b.sum.histories++
		}
	}
	return nil
}

// Discard gives up and removes the temporary file. After Finish it does nothing.
func (b *Builder) Discard() error {
	if b.s == nil {
		return nil
	}
	err := b.s.Close()
	b.s = nil
	return errors.Join(err, os.Remove(string(b.tmp)))
}

// Finish truncates the file to its size, syncs it, checks it completely and renames it.
// After an error nothing has changed at the path.
func (b *Builder) Finish() error {
	err := b.seal()
	if err == nil {
		err = storefile.Publish(string(b.tmp), b.path)
	}
	err = b.removeTemp(err)
	if err != nil {
		return err
	}
	return storefile.SyncDir(filepath.Dir(b.path))
}

// removeTemp removes the temporary name if it exists, and joins the error to err.
func (b *Builder) removeTemp(err error) error {
	if rerr := os.Remove(string(b.tmp)); !storefile.Missing(rerr) {
		err = errors.Join(err, rerr)
	}
	return err
}

// seal makes the file durable under its temporary name.
func (b *Builder) seal() error {
	var size int64
	err := b.s.db.View(func(tx *bbolt.Tx) error { size = tx.Size(); return nil })
	err = errors.Join(err, b.s.Close())
	b.s = nil
	if err == nil {
		err = b.step("written")
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(string(b.tmp), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := b.step("synced"); err != nil {
		return err
	}
	var first *CorruptError
	sum, err := CheckFile(string(b.tmp), b.o, func(e *CorruptError) {
		if first == nil {
			first = e
		}
	})
	if err == nil && first != nil {
		err = first
	}
	if err == nil {
		err = contents{sum.Messages, sum.Bytes, sum.States, sum.Histories}.differ(b.sum)
	}
	if err != nil {
		return err
	}
	return b.step("checked")
}

// step lets tests fail between the steps.
func (b *Builder) step(name string) error {
	if b.o.tune.step == nil {
		return nil
	}
	return b.o.tune.step(name)
}

// Rewritten is the result of [CompactFile].
type Rewritten struct {
	Before, After int64 // bytes of the file
	Messages      int64 // live messages, all of which are in the new file
	Dropped       int64 // finished messages that used space
	TornMeta      bool  // see [storefile.Checked], of the old file
	Lost          *LostError
}

const (
	rewriteRecords = 4096
	rewriteBytes   = 4 << 20
)

// CompactFile replaces the store at path by a new file of the smallest size that holds
// all of it. No process can use the store meanwhile. With a non-empty keep the old file
// keeps that name, which must be free.
//
// The new file is path.compact until it was synced, read again and compared. Then one
// rename replaces the file: whenever the process is killed, the whole old store or the
// whole new one is at path. CompactFile refuses a store with anything broken, as
// [CheckFile] would find it.
func CompactFile(path, keep string, o Options) (Rewritten, error) {
	var r Rewritten
	old, err := storefile.OpenAs(path, o.withDefaults().file(), storefile.Rewriting)
	if err != nil {
		return r, err
	}
	r.TornMeta, r.Lost = old.TornMeta(), old.Lost()
	b, err := rewrite(path, old, o, &r)
	if err == nil {
		err = storefile.KeepOwner(path, string(b.tmp))
	}
	if err == nil && keep != "" {
		if err = os.Link(path, keep); err == nil {
			err = b.step("kept")
		}
	}
	// Windows cannot replace an open file.
	if err == nil && runtime.GOOS == "windows" {
		err = old.Close()
	}
	if err == nil {
		err = os.Rename(string(b.tmp), path)
	}
	if err == nil {
		err = b.step("renamed")
	}
	if err != nil {
		if b != nil {
			err = b.removeTemp(err)
		}
		return r, errors.Join(fmt.Errorf("store: compaction of %s: %w", path, err), old.Close())
	}
	err = storefile.SyncDir(filepath.Dir(path))
	if keep != "" {
		err = errors.Join(err, storefile.SyncDir(filepath.Dir(keep)))
	}
	if fi, err := os.Stat(path); err == nil {
		r.After = fi.Size()
	}
	return r, errors.Join(err, old.Close())
}

// rewrite makes the new file and seals it.
func rewrite(path string, f *storefile.File, o Options, r *Rewritten) (b *Builder, err error) {
	snap, err := f.Snapshot()
	if err != nil {
		return nil, err
	}
	stats, err := f.Stats()
	if err != nil {
		return nil, err
	}
	r.Before, r.Dropped = stats.FileBytes, stats.StoredMessages-stats.Messages
	b, err = build(path, path+".compact", snap.Secret, snap.CreatedAt, o)
	if err != nil {
		return nil, err
	}
	b.s.clock.Shift = f.ClockShift() // before its first commit
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Discard())
		}
	}()
	if err = b.step("begun"); err == nil {
		err = b.addSnapshot(&snap)
	}
	if err == nil {
		err = b.addContents(f)
	}
	if err == nil {
		err = b.addPosition(f)
	}
	if err == nil {
		err = b.setCommits(stats.Commits)
	}
	if err == nil {
		err = b.sum.differ(contents{stats.Messages, stats.Bytes, stats.States, stats.Histories})
	}
	if err != nil {
		return b, err
	}
	r.Messages = b.sum.messages
	return b, b.seal()
}

// addSnapshot adds everything but messages and dedupe ids.
func (b *Builder) addSnapshot(snap *Snapshot) error {
	batch := &Batch{PutQueues: snap.Queues, PutConsumers: snap.Consumers, PutConfig: snap.Config}
	if last := snap.NextQueueID - 1; last > 0 && (len(snap.Queues) == 0 || snap.Queues[len(snap.Queues)-1].ID < last) {
		// Ids are never used again, so the last one is created and deleted.
		batch.PutQueues = append(batch.PutQueues, QueueRecord{ID: last, Name: "deleted"})
		batch.DeleteQueues = []QueueID{last}
	}
	return b.Add(batch)
}

// addPosition adds the position of f in its log, if it has one.
func (b *Builder) addPosition(f *storefile.File) error {
	position, err := f.Position()
	if err != nil || position == nil {
		return err
	}
	return b.s.Apply(nil, position)
}

// setCommits sets the number of the last commit, so that the new file is not newer than the
// one that it replaces, see [storefile.Confirmed].
func (b *Builder) setCommits(n int64) error {
	counts := b.s.counts()
	counts.Commits = uint64(n)
	return b.s.db.Update(func(tx *bbolt.Tx) error {
		return storefile.PutSealed(tx.Bucket(storefile.BucketMeta), storefile.KeyCounts, storefile.AppendCounts(nil, counts))
	})
}

// addContents adds the messages and the dedupe ids of f in batches.
func (b *Builder) addContents(f *storefile.File) error {
	batch, size := &Batch{}, 0
	flush := func() error {
		err := b.Add(batch)
		batch, size = &Batch{Add: batch.Add[:0], State: batch.State[:0], History: batch.History[:0], Dedupe: batch.Dedupe[:0]}, 0
		return err
	}
	flushFull := func() error {
		if len(batch.Add)+len(batch.Dedupe) < rewriteRecords && size <= rewriteBytes {
			return nil
		}
		if err := flush(); err != nil {
			return err
		}
		return b.step("added")
	}
	err := f.Messages(nil, func(m *Message, st *State, history [][]byte) error {
		c := *m // valid during the call, except for headers and payload
		c.Headers, c.Payload = bytes.Clone(m.Headers), bytes.Clone(m.Payload)
		batch.Add = append(batch.Add, c)
		if st != nil {
			batch.State = append(batch.State, *st)
		}
		for _, record := range history {
			batch.History = append(batch.History, Attempt{Ref: m.Ref, Record: bytes.Clone(record)})
		}
		size += len(m.Headers) + len(m.Payload)
		return flushFull()
	})
	if err == nil {
		err = flush()
	}
	if err == nil {
		err = f.Dedupes(nil, func(d Dedupe) error {
			batch.Dedupe = append(batch.Dedupe, d)
			return flushFull()
		})
	}
	if err == nil {
		err = flush()
	}
	return err
}
