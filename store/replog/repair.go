package replog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"github.com/filaq/fila/store"
)

// A log that has lost confirmed records is repaired from the file of the most advanced copy.
// The lost records cannot be written again, so the log goes on behind a gap: an epoch record
// names a snapshot, which has the state of that file. A replica that reads the record and
// lacks what is before it replaces its file by the snapshot. A replica whose file has records
// that the log lacks asks for a [Verdict]: if its records are in the snapshot, or an operator
// has given them up, its file is put aside and made again.

// Verdict is what an operator has decided about copies that have records which the log of a
// shard lacks.
type Verdict struct {
	// Copy is the newest commit of the most advanced copy. The verdict is about copies up to
	// it.
	Copy Mark `json:"copy"`
	// GivenUp: the records that the log lacks are lost. Nodes without them may become owners,
	// and from their first epoch on the copies are put aside.
	GivenUp bool `json:"given_up,omitempty"`
	// Seq and Chain are of the epoch record of a repair, if they are not given up.
	Seq   uint64 `json:"seq,omitempty"`
	Chain uint64 `json:"chain,omitempty"`
}

// Covers reports whether a verdict is about a copy with this newest commit.
func (v Verdict) Covers(copied Mark) bool {
	return place{copied.Epoch, copied.N}.compare(place{v.Copy.Epoch, v.Copy.N}) <= 0
}

// ErrNotLost is returned by Repair if the log lacks nothing of the file.
var ErrNotLost = errors.New("replog: the log lacks nothing of this copy")

// ErrBranched is returned by Repair if the log goes on in a later epoch without the records of
// the file: they cannot be put into it any more.
var ErrBranched = errors.New("replog: the log goes on without the records of this copy")

// repair is a request to repair the log.
type repair struct {
	ctx    context.Context
	newest Mark
	decide func(Verdict) error
	done   chan repairedAt
}

type repairedAt struct {
	mark Mark
	err  error
}

// Repair lets the log go on from the file of this replica, which must be the most advanced
// copy that can be asked. newest is the newest commit that any copy is known to have; what this
// copy lacks of it is given up. decide is called before the record is written that does it, and
// must store the verdict durably. Repair can be repeated after an error. It returns the epoch
// record; then the shard has no owner until a node is promoted.
func (r *Replica) Repair(ctx context.Context, newest Mark, decide func(Verdict) error) (Mark, error) {
	ask := repair{ctx, newest, decide, make(chan repairedAt, 1)}
	for {
		seen, changed := r.seenAndChanged()
		if !lacks(seen.Err) {
			return Mark{}, ErrNotLost
		}
		select {
		case r.repairs <- ask:
			at := <-ask.done
			return at.mark, at.err
		case <-changed: // the log may lack nothing any more
		case <-ctx.Done():
			return Mark{}, ctx.Err()
		case <-r.ctx.Done():
			return Mark{}, ErrClosed
		}
	}
}

// repair repairs the log. Its caller is run, while the replica does not follow.
func (r *Replica) repair(ask repair) (Mark, error) {
	ctx := ask.ctx
	switch {
	case r.bolt == nil:
		return Mark{}, errors.New("replog: the file of this copy is not open")
	case r.format.Load() < chains:
		return Mark{}, errors.New("replog: a node of an older version cannot read a repaired log: upgrade all nodes first")
	case r.o.Snapshots == nil:
		return Mark{}, errors.New("replog: there is no object store for snapshots")
	}
	st, err := r.streamToRepair(ctx)
	if err != nil {
		return Mark{}, err
	}
	if err := r.compare(ctx, st); !lacks(err) {
		return Mark{}, errors.Join(ErrNotLost, err)
	}
	last, err := r.lastPlace(ctx, st)
	if err != nil {
		return Mark{}, err
	}
	if last.compare(r.safe.at.place()) > 0 {
		return Mark{}, fmt.Errorf("%w: it ends with record %d of epoch %d, the copy with %d of %d", ErrBranched, last.n, last.epoch, r.safe.at.n, r.safe.at.epoch)
	}
	v := Verdict{Copy: r.safe.data}
	if !v.Covers(ask.newest) {
		v.Copy = ask.newest
	}
	token := rand.Text()
	name := r.o.repairs() + token // another repair keeps its snapshot: the log may still have it, or come back to it
	h := head{kind: kindEpoch, epoch: max(r.safe.at.epoch, v.Copy.Epoch) + 1, n: 1, chained: true, before: r.safe.at.chain}
	record := encode(h, beginning{owner: r.o.Node, token: token, after: r.safe.at.place(), snapshot: name}.append(nil, true))
	p := r.safe
	p.seq, p.at = st.last+1, mark{epoch: h.epoch, n: 1, chain: chainOf(h, record)}
	p.data = p.mark() // a log that loses this record loses all that the snapshot has
	if err := r.uploadRepair(ctx, name, p); err != nil {
		return Mark{}, fmt.Errorf("replog: snapshot of shard %d: %w", r.o.Shard, err)
	}
	v.Seq, v.Chain = p.seq, p.at.chain
	if err := ask.decide(v); err != nil {
		return Mark{}, fmt.Errorf("replog: the verdict is not stored: %w", err)
	}
	if err := r.begin(ctx, record, st.last); err != nil {
		return Mark{}, fmt.Errorf("replog: the repair of shard %d is not in the log: %w", r.o.Shard, err)
	}
	r.o.Log.Warn("replog: the log was repaired from this copy", "shard", r.o.Shard, "seq", p.seq, "epoch", h.epoch, "log_had", st.last, "copy_had", r.safe.seq)
	r.safe = p
	return p.mark(), r.bolt.Apply(nil, p.append(nil))
}

// streamToRepair returns the state of the stream. A missing one is created; it begins behind
// the records of this copy, with a gap, so that no file takes it for its log.
func (r *Replica) streamToRepair(ctx context.Context) (state, error) {
	st, err := r.openStream(ctx, false)
	j, ok := r.j.(*streamJournal)
	if !errors.Is(err, ErrGone) || !ok {
		return st, err
	}
	s, err := j.create(ctx, r.safe.seq+2)
	if err != nil {
		return state{}, fmt.Errorf("replog: stream %s: %w", j.name, err)
	}
	return stateOf(s.CachedInfo()), nil
}

// lastPlace returns the place of the newest record that counts, zero if there is none. Records
// of earlier owners may be behind it, but never many.
func (r *Replica) lastPlace(ctx context.Context, st state) (newest place, err error) {
	const looked = 16
	for seq := st.last; seq >= st.first && seq > 0 && st.last-seq < looked; seq-- {
		data, err := r.j.get(ctx, seq)
		if err != nil {
			return newest, fmt.Errorf("replog: reading record %d: %w", seq, err)
		}
		h, _, err := decode(data)
		if err != nil {
			return newest, fmt.Errorf("%w: record %d: %w", ErrBroken, seq, err)
		}
		if at := (place{h.epoch, h.n}); at.compare(newest) > 0 {
			newest = at
		}
	}
	return newest, nil
}

// uploadRepair puts a copy of the file with another position into the object store.
func (r *Replica) uploadRepair(ctx context.Context, name string, p position) error {
	tmp := r.o.Path + ".repair"
	defer os.Remove(tmp) //nolint:errcheck // the next one removes it, too
	if err := remove(tmp); err != nil {
		return err
	}
	if _, err := r.bolt.BackupTo(ctx, tmp); err != nil {
		return err
	}
	if err := r.o.place(tmp, p); err != nil {
		return err
	}
	_, err := r.o.upload(ctx, tmp, name, p.mark())
	return err
}

// place sets the position of a file that is not open, and compacts it.
func (o *Options) place(path string, p position) error {
	s, err := store.Open(path, o.Store)
	if err != nil {
		return err
	}
	err = s.Apply(nil, p.append(nil))
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	_, err = compacted(path, o.Store)
	return err
}

// superseded reports whether the verdict about this copy is in force.
func (r *Replica) superseded(ctx context.Context, st state) bool {
	if r.o.Verdict == nil {
		return false
	}
	v, ok := r.o.Verdict()
	if !ok || !v.Covers(r.safe.data) {
		return false
	}
	if v.GivenUp && r.bolt == nil {
		return true // the log cannot be repaired from a file that is not whole
	}
	if v.GivenUp {
		last, err := r.lastPlace(ctx, st)
		return err == nil && last.epoch > v.Copy.Epoch
	}
	if v.Seq < st.first {
		return st.first > 1 // the log was cut behind the repair
	}
	data, err := r.j.get(ctx, v.Seq)
	if err != nil {
		return false
	}
	h, _, err := decode(data)
	return err == nil && chainOf(h, data) == v.Chain
}
