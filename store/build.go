package store

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
)

var errDiffers = errors.New("store: the new file does not hold all of it")

// Builder makes a new store of batches. Nothing is at its path until
// [Builder.Finish], and then everything is. Its methods may be called from one
// goroutine at a time.
type Builder struct {
	path, tmp string
	o         Options
	s         *Bolt
	added     contents
	past      Ref // whose record was added last
}

// contents sums up what a store holds, or is to hold.
type contents struct {
	messages, bytes, states, histories int64
}

// differ is nil if c is as wanted.
func (c contents) differ(want contents) error {
	if c == want {
		return nil
	}
	return fmt.Errorf("%w: %d messages of %d, %d bytes of %d, %d states of %d, %d histories of %d",
		errDiffers, c.messages, want.messages, c.bytes, want.bytes, c.states, want.states, c.histories, want.histories)
}

// Build begins a new store at path, where nothing must be: otherwise the error
// wraps [fs.ErrExist]. It is made as path.import, and what an earlier Build has
// left there is removed, unless it is under way still: [ErrLocked]. With a nil
// secret the store gets one of its own; otherwise it has 32 bytes.
func Build(path string, secret []byte, o Options) (*Builder, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("store: %s: %w", path, fs.ErrExist)
	}
	return build(path, path+".import", secret, 0, o)
}

func build(path, tmp string, secret []byte, created int64, o Options) (*Builder, error) {
	o = o.withDefaults()
	// It is synced once, in the end. What is added lies in the order in which it
	// was added, since nothing is ever merged.
	o.NoSync, o.ReadCacheBytes, o.OnCommit = true, -1, nil
	o.Join = nil // histories come as they are
	o.tune.mergeFanIn = math.MaxInt
	if err := removeStale(tmp, o); err != nil {
		return nil, err
	}
	db, _, err := openDB(tmp, o, forMaking)
	if err != nil {
		return nil, err
	}
	b := &Builder{path: path, tmp: tmp, o: o, s: newBolt(tmp, o, db)}
	if err := db.Update(func(tx *bbolt.Tx) error { return initialise(tx, secret, created) }); err != nil {
		return nil, errors.Join(err, db.Close(), os.Remove(tmp))
	}
	if _, err := serve(b.s); err != nil {
		return nil, errors.Join(err, os.Remove(tmp))
	}
	return b, nil
}

// removeStale removes what a killed process has left, but not what another one
// has locked. It takes the name away and does not touch the file: that may have
// got its final name already.
func removeStale(tmp string, o Options) error {
	f, err := openLocked(tmp, os.O_RDWR, 0, o.Timeout, false)
	if missing(err) {
		return nil
	}
	if errors.Is(err, ErrLocked) {
		return fmt.Errorf("%w: %s", err, tmp)
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return errors.Join(os.Remove(tmp), f.Close())
}

// Add puts a batch into the store, without a sync. Its Done is not used. An
// error means that nothing of it was taken; see [Batch]. The records of one history
// come one after the other.
func (b *Builder) Add(batch *Batch) error {
	done := make(chan error, 1)
	batch.Done = func(err error) { done <- err }
	b.s.Submit(batch)
	err := <-done
	batch.Done = nil
	if err != nil {
		return err
	}
	for i := range batch.Add {
		b.added.bytes += int64(len(batch.Add[i].Headers) + len(batch.Add[i].Payload))
	}
	b.added.messages += int64(len(batch.Add))
	b.added.states += int64(len(batch.State))
	for i := range batch.History {
		if batch.History[i].Ref != b.past {
			b.past = batch.History[i].Ref
			b.added.histories++
		}
	}
	return nil
}

// Discard gives up and removes what was made. After Finish it does nothing.
func (b *Builder) Discard() error {
	if b.s == nil {
		return nil
	}
	err := b.s.Close()
	b.s = nil
	return errors.Join(err, os.Remove(b.tmp))
}

// Finish cuts the file to its size, syncs it, checks all of it and gives it its
// name. After an error nothing has changed at the path.
func (b *Builder) Finish() error {
	err := b.seal()
	if err == nil {
		err = publish(b.tmp, b.path)
	}
	if rerr := os.Remove(b.tmp); !missing(rerr) {
		err = errors.Join(err, rerr)
	}
	if err != nil {
		return err
	}
	return SyncDir(filepath.Dir(b.path))
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
	f, err := os.OpenFile(b.tmp, os.O_RDWR, 0)
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
	sum, err := CheckFile(b.tmp, b.o, func(e *CorruptError) {
		if first == nil {
			first = e
		}
	})
	if err == nil && first != nil {
		err = first
	}
	if err == nil {
		err = contents{sum.Messages, sum.Bytes, sum.States, sum.Histories}.differ(b.added)
	}
	if err != nil {
		return err
	}
	return b.step("checked")
}

// step is where tests let it fail.
func (b *Builder) step(name string) error {
	if b.o.tune.step == nil {
		return nil
	}
	return b.o.tune.step(name)
}
