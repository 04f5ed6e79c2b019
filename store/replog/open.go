package replog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/filaq/fila/store"
)

// opener creates or checks the stream. Journals of tests do not implement it.
type opener interface {
	open(ctx context.Context, create bool) (state, error)
}

// open opens the file and compares it with the stream. It creates a new file after the stream,
// because the first snapshot of a seed is older than the stream (see Seed).
func (r *Replica) open(ctx context.Context) error {
	found := whole
	if r.bolt == nil {
		var err error
		if found, err = r.findFile(); err != nil {
			return err
		}
	}
	st, err := r.openStream(ctx, found == missing)
	if err == nil && found == suspect {
		err = r.checkSuspect(ctx, st)
	}
	if err == nil && found != whole {
		err = r.makeFile(ctx, st)
	}
	if err != nil {
		return err
	}
	r.end = st.last
	if err = r.compare(ctx, st); errors.Is(err, ErrShorter) && r.superseded(ctx, st) {
		if err = r.dropFile(err); err == nil {
			err = r.makeFile(ctx, st)
		}
		if err == nil {
			err = r.compare(ctx, st)
		}
	}
	if errors.Is(err, ErrGap) || err == nil && r.unread > r.safe.seq {
		if err = r.continueFromSnapshot(ctx, st, err); err == nil {
			err = r.compare(ctx, st)
		}
	}
	if err != nil {
		return err
	}
	r.created = st.created
	r.o.Create = false // from here on a missing stream is lost
	r.seq, r.tail, r.at, r.parts = r.safe.seq, r.safe.at.chain, r.safe.at, nil
	r.change(func(s *Seen) {
		s.Epoch, s.Ended, s.Seq, s.At, s.Lag = r.at.epoch, r.at.ended, r.seq, r.o.Now(), st.last-r.seq
		s.N, s.Chain, s.Data, s.Torn, s.tail = r.at.n, r.at.chain, r.safe.data, false, r.tail
		if r.stuck == 0 || st.last < r.stuck || r.seq >= r.stuck {
			s.Err = nil
		}
	})
	return nil
}

// errUnfinished is the error for a file that was created and did not become a replica.
var errUnfinished = errors.New("it has no position")

// condition is the condition of the file of a replica.
type condition byte

const (
	whole   condition = iota // open
	missing                  // absent, or moved aside because it is corrupt
	suspect                  // parts may be missing, see torn
)

// findFile opens the file if it is whole.
func (r *Replica) findFile() (condition, error) {
	if _, err := os.Stat(r.o.Path); errors.Is(err, fs.ErrNotExist) {
		return missing, nil
	}
	if torn, err := torn(r.o.Path, r.o.boot); err != nil || torn {
		return suspect, err
	}
	err := r.openFile()
	switch {
	case errors.Is(err, errUnfinished):
		return missing, errors.Join(r.closeFile(), os.Remove(r.o.Path))
	case errors.Is(err, store.ErrCorrupt):
		return missing, r.moveAside(err)
	}
	return whole, err
}

// checkSuspect returns an error if a suspect file must not be replaced. Its position can
// usually be read. Then the log must not be shorter, because the copies may have the only
// rest of the lost records, unless a verdict is about this copy.
func (r *Replica) checkSuspect(ctx context.Context, st state) error {
	raw, err := positionOf(r.o.Path, r.o.Store)
	switch {
	case errors.Is(err, store.ErrLocked):
		return err
	case err == nil && raw != nil:
		if err := r.takePosition(raw); err != nil {
			return err
		}
		switch err := r.compare(ctx, st); {
		case errors.Is(err, ErrShorter) && r.superseded(ctx, st):
			return r.dropFile(err)
		case err != nil && !errors.Is(err, ErrGap):
			return err
		}
	}
	r.o.Log.Warn("replog: the machine or its disk has failed while the file was open; it is made again from snapshot and log",
		"shard", r.o.Shard, "file", r.o.Path)
	return nil
}

// positionOf reads the position of a file that is not open.
func positionOf(path string, o store.Options) ([]byte, error) {
	f, err := store.OpenFile(path, o)
	if err != nil {
		return nil, err
	}
	raw, err := f.Position()
	return raw, errors.Join(err, f.Close())
}

// moveAside renames a corrupt file, which is not open.
func (r *Replica) moveAside(cause error) error {
	aside := r.o.Path + ".corrupt"
	r.o.Log.Error("replog: the file is corrupt and put aside; it is made again from snapshot and log",
		"shard", r.o.Shard, "file", r.o.Path, "aside", aside, "error", cause)
	return os.Rename(r.o.Path, aside)
}

// dropFile closes and renames a file that is superseded. It may have the only copies of what
// an operator has given up.
func (r *Replica) dropFile(cause error) error {
	aside := fmt.Sprintf("%s.lost-%d-%d", r.o.Path, r.safe.data.Epoch, r.safe.data.N)
	r.o.Log.Warn("replog: the file has records that the log lacks, and is put aside: an operator has repaired the log, or accepted the loss; it is made again from snapshot and log",
		"shard", r.o.Shard, "file", r.o.Path, "aside", aside, "error", cause)
	return errors.Join(r.closeFile(), os.Rename(r.o.Path, aside))
}

// makeFile creates a replica from the newest snapshot, or an empty one. A suspect file remains
// until there is another one.
func (r *Replica) makeFile(ctx context.Context, st state) error {
	nothing := position{incarnation: r.o.Incarnation, shard: r.o.Shard}
	done, err := r.restore(ctx, st, nil)
	if err == nil && !done {
		r.safe = nothing
		if err = r.compare(ctx, st); err == nil {
			err = remove(r.o.Path)
		}
	}
	if err != nil {
		return err
	}
	if err := r.openFile(); !errors.Is(err, errUnfinished) {
		return err
	}
	r.safe = nothing
	return r.bolt.Apply(nil, r.safe.append(nil))
}

// continueFromSnapshot replaces the file by a snapshot behind a gap of the log: its beginning
// was cut, it was repaired, or a record does not continue the one before.
func (r *Replica) continueFromSnapshot(ctx context.Context, st state, gap error) error {
	have := r.safe
	if err := r.closeFile(); err != nil {
		return err
	}
	done, err := r.restore(ctx, st, &have)
	if gap == nil {
		err = nil // another replica of the stream may have what continues the file
	}
	if err = errors.Join(err, r.openFile()); err != nil {
		return err
	}
	if !done {
		return gap
	}
	return nil
}

// setFile sets the open file.
func (r *Replica) setFile(bolt *store.Bolt) {
	r.bolt = bolt
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.file = bolt
}

// openFile opens the file and reads its position. After an error the file is closed, except
// for errUnfinished.
func (r *Replica) openFile() error {
	bolt, err := store.Open(r.o.Path, r.o.Store)
	if err != nil {
		return err
	}
	r.setFile(bolt)
	if err = r.opened(bolt); err != nil && !errors.Is(err, errUnfinished) {
		err = errors.Join(err, r.closeFile())
	}
	return err
}

// opened writes the note of an opened file, and reads its position.
func (r *Replica) opened(bolt *store.Bolt) (err error) {
	if r.o.boot != "" {
		if r.unsynced, err = openUnsynced(r.o.Path, r.o.boot, r.o.Now()); err != nil {
			return err
		}
	}
	raw, err := bolt.Position()
	switch {
	case err != nil:
		return err
	case raw == nil && bolt.Stats().Commits > 0:
		return fmt.Errorf("%w: %s is the store of a node without a cluster", ErrForeign, r.o.Path)
	case raw == nil:
		return errUnfinished
	}
	return r.takePosition(raw)
}

// takePosition sets the position of the file.
func (r *Replica) takePosition(raw []byte) (err error) {
	if r.safe, err = decodePosition(raw); err != nil {
		return fmt.Errorf("replog: %s: position: %w", r.o.Path, err)
	}
	if r.safe.incarnation != r.o.Incarnation || r.safe.shard != r.o.Shard {
		return fmt.Errorf("%w: %s is of shard %d of incarnation %q, not of shard %d of %q",
			ErrForeign, r.o.Path, r.safe.shard, r.safe.incarnation, r.o.Shard, r.o.Incarnation)
	}
	return nil
}

func (r *Replica) openStream(ctx context.Context, fresh bool) (state, error) {
	if j, ok := r.j.(opener); ok {
		return j.open(ctx, r.o.Create && fresh)
	}
	return r.j.state(ctx)
}

// compare refuses a log that does not continue at the position of the file. A file whose
// log lacks nothing but records without data goes back to its newest commit.
func (r *Replica) compare(ctx context.Context, st state) error {
	err := r.compareAt(ctx, st, r.safe.mark())
	if data := r.safe.data; errors.Is(err, ErrShorter) && data.Seq < r.safe.seq && r.compareAt(ctx, st, data) == nil {
		r.safe.seq, r.safe.at = data.Seq, mark{epoch: data.Epoch, n: data.N, chain: data.Chain}
		return nil
	}
	return err
}

func (r *Replica) compareAt(ctx context.Context, st state, have Mark) error {
	at := have.Seq
	switch {
	case st.last < at:
		return fmt.Errorf("%w: shard %d: %s has applied %d records, the stream has %d", ErrShorter, r.o.Shard, r.o.Path, at, st.last)
	case st.first > at+1:
		return fmt.Errorf("%w: shard %d: %s has applied it up to %d, the stream begins at %d", ErrGap, r.o.Shard, r.o.Path, at, st.first)
	case at == 0 || st.first > at:
		return nil
	}
	data, err := r.j.get(ctx, at)
	if err != nil {
		return fmt.Errorf("replog: reading record %d: %w", at, err)
	}
	h, _, err := decode(data)
	chain := chainOf(h, data)
	if err != nil || h.epoch != have.Epoch || h.n != have.N || chain != 0 && have.Chain != 0 && chain != have.Chain {
		return fmt.Errorf("%w: shard %d: record %d is another one than %s has applied", ErrShorter, r.o.Shard, at, r.o.Path)
	}
	return nil
}

func (r *Replica) closeFile() error {
	if r.bolt == nil {
		return nil
	}
	bolt := r.bolt
	r.setFile(nil)
	return errors.Join(bolt.Close(), r.endUnsynced())
}

// endUnsynced syncs a closed file and removes its note.
func (r *Replica) endUnsynced() error {
	u := r.unsynced
	r.unsynced = nil
	return u.close()
}

// heal moves the file, which is not open, aside if it is corrupt.
func (r *Replica) heal(err error) {
	if !errors.Is(err, store.ErrCorrupt) {
		return
	}
	if err := r.moveAside(err); err != nil {
		r.o.Log.Error("replog: a corrupt file cannot be put aside", "file", r.o.Path, "error", err)
	}
}
