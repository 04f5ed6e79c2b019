package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// Rewritten says what [CompactFile] has done.
type Rewritten struct {
	Before, After int64 // bytes of the file
	Messages      int64 // live ones, all of which are in the new file
	Dropped       int64 // finished ones that still had space
	TornMeta      bool  // as in [Checked], of the old file
}

const (
	rewriteRecords = 4096
	rewriteBytes   = 4 << 20
)

// CompactFile writes the store at path into a new file of the smallest size that
// holds all of it, and puts that in its place. Nobody can use the store
// meanwhile. With a non-empty keep the old file stays under that name, which
// must be free.
//
// The new file is written as path.compact, synced, read again and compared
// before it gets the name, in one rename: whenever the process is killed, the
// whole old store or the whole new one is at path. A store that has anything
// broken is refused, as [CheckFile] would find it.
func CompactFile(path, keep string, o Options) (Rewritten, error) {
	var r Rewritten
	old, err := openFile(path, o, forRewrite)
	if err != nil {
		return r, err
	}
	r.TornMeta = old.TornMeta()
	b, err := old.rewrite(&r)
	if err == nil {
		err = keepOwner(path, b.tmp)
	}
	if err == nil && keep != "" {
		if err = os.Link(path, keep); err == nil {
			err = b.step("kept")
		}
	}
	// Windows replaces no file that is open.
	if err == nil && runtime.GOOS == "windows" {
		err = old.Close()
	}
	if err == nil {
		err = os.Rename(b.tmp, path)
	}
	if err == nil {
		err = b.step("renamed")
	}
	if err != nil {
		if b != nil {
			if rerr := os.Remove(b.tmp); !missing(rerr) {
				err = errors.Join(err, rerr)
			}
		}
		return r, errors.Join(fmt.Errorf("store: compaction of %s: %w", path, err), old.Close())
	}
	err = SyncDir(filepath.Dir(path))
	if keep != "" {
		err = errors.Join(err, SyncDir(filepath.Dir(keep)))
	}
	if fi, err := os.Stat(path); err == nil {
		r.After = fi.Size()
	}
	return r, errors.Join(err, old.Close())
}

// rewrite makes the new file and seals it.
func (f *File) rewrite(r *Rewritten) (b *Builder, err error) {
	r.Before = f.pages.size
	snap, err := f.Snapshot()
	if err != nil {
		return nil, err
	}
	stats, err := f.Stats()
	if err != nil {
		return nil, err
	}
	r.Dropped = stats.StoredMessages - stats.Messages
	b, err = build(f.s.path, f.s.path+".compact", snap.Secret, snap.CreatedAt, f.s.o)
	if err != nil {
		return nil, err
	}
	b.s.clock.shift = f.s.clock.shift // before its first commit
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
		err = b.added.differ(contents{stats.Messages, stats.Bytes, stats.States, stats.Histories})
	}
	if err != nil {
		return b, err
	}
	r.Messages = b.added.messages
	return b, b.seal()
}

// addSnapshot adds everything but messages and dedupe ids.
func (b *Builder) addSnapshot(snap *Snapshot) error {
	batch := &Batch{PutQueues: snap.Queues, PutConsumers: snap.Consumers, PutConfig: snap.Config}
	if last := snap.NextQueueID - 1; last > 0 && (len(snap.Queues) == 0 || snap.Queues[len(snap.Queues)-1].ID < last) {
		// Ids are never used again: the last one was, so it is made and deleted.
		batch.PutQueues = append(batch.PutQueues, QueueRecord{ID: last, Name: "deleted"})
		batch.DeleteQueues = []QueueID{last}
	}
	return b.Add(batch)
}

// addPosition adds how far f has its log, if it has one.
func (b *Builder) addPosition(f *File) error {
	position, err := f.Position()
	if err != nil || position == nil {
		return err
	}
	return b.s.Apply(nil, position)
}

// addContents adds the messages and the dedupe ids of f, some at a time.
func (b *Builder) addContents(f *File) error {
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
		// Headers and payload are good until the call returns, so they are copied.
		c := *m
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
