package replog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/filaq/fila/store"
)

// Replica is one node's copy of a shard. It follows the log until its node is promoted,
// and again when the [Store] of that time has been closed. Its methods may be called
// from any goroutine.
type Replica struct {
	o      Options
	j      journal
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   sync.WaitGroup

	// Owned by run.
	bolt      *store.Bolt // nil: it is to be opened
	created   time.Time   // of the stream
	seq       uint64      // of the log up to here everything is applied, or in parts
	at        mark
	safe      position // of the last record that counted and ended a commit, or was none
	parts     []byte   // of a commit that goes on
	unwritten int      // records since the file has had its position
	stuck     uint64   // where it could not go on; beyond that it can

	snapshotting sync.Mutex // held while a snapshot is made

	mu struct {
		sync.Mutex
		file    *store.Bolt // bolt, for others; nil: it is not open
		newest  *Snapshot   // nil: not known
		seen    Seen
		changed chan struct{} // closed when seen changes, or try
		try     *attempt      // nil: nobody promotes
		store   *Store        // nil: the node is no owner
		closed  bool
	}
}

// Seen is what a replica knows of its log.
type Seen struct {
	Epoch uint64
	Owner string    // of the epoch
	To    string    // whom the owner asked to follow it, when it resigned; see Ended
	Ended bool      // the owner has resigned
	Seq   uint64    // of the newest record; everything up to it is applied
	At    time.Time // the newest record came, or following began
	Lag   uint64    // records of the stream that are not applied
	Err   error     // why the replica cannot follow; it goes on trying
}

// attempt is a promotion under way.
type attempt struct {
	token string
	sent  time.Time
	taken bool // its epoch record has come; guarded by the replica
	done  chan promoted
}

type promoted struct {
	store *Store
	err   error
}

// Open opens or makes the file of a replica, looks at the stream, and follows it.
// What does not fit together is an error that says what is wrong: [ErrGone],
// [ErrForeign], [ErrReplicas], [ErrShorter], [ErrGap], or one of store.Open.
func Open(ctx context.Context, o Options) (*Replica, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	r := newReplica(o, nil)
	r.j = r.o.journal()
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

func newReplica(o Options, j journal) *Replica {
	r := &Replica{o: o, j: j}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	r.mu.changed = make(chan struct{})
	return r
}

// opener makes or checks the stream. A journal of tests has none.
type opener interface {
	open(ctx context.Context, create bool) (state, error)
}

func (r *Replica) start(ctx context.Context) error {
	if err := r.open(ctx); err != nil {
		r.cancel(ErrClosed)
		return errors.Join(err, r.closeFile())
	}
	r.done.Go(r.run)
	return nil
}

// Close ends following, and the store if there is one.
func (r *Replica) Close() error {
	r.mu.Lock()
	r.mu.closed = true
	s := r.mu.store
	r.mu.Unlock()
	var err error
	if s != nil {
		err = s.Close()
	}
	r.cancel(ErrClosed)
	r.done.Wait()
	return err
}

// Seen returns what is known of the log.
func (r *Replica) Seen() Seen {
	seen, _ := r.look()
	return seen
}

// LogState is how the log of a shard stands, as its owner knows it.
type LogState struct {
	Bytes, MaxBytes int64     // MaxBytes 0: any number
	SnapshotAt      time.Time // of the newest; zero: there is none, or it is not known
}

// LogState reports false while the node is no owner. It does not block.
func (r *Replica) LogState() (LogState, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.store == nil {
		return LogState{}, false
	}
	room := &r.mu.store.w.room
	st := LogState{Bytes: room.used.Load(), MaxBytes: room.most.Load()}
	if r.mu.newest != nil {
		st.SnapshotAt = r.mu.newest.At
	}
	return st, true
}

// look returns what is known, and what is closed when more is.
func (r *Replica) look() (Seen, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.mu.seen
	if s := r.mu.store; s != nil {
		seen.At, seen.Seq = s.w.progress()
	}
	return seen, r.mu.changed
}

// change changes what is known.
func (r *Replica) change(fn func(*Seen)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn(&r.mu.seen)
	close(r.mu.changed)
	r.mu.changed = make(chan struct{})
}

// Await waits until the replica has seen a sequence, or ctx ends.
func (r *Replica) Await(ctx context.Context, seq uint64) error {
	for {
		seen, changed := r.look()
		if seen.Seq >= seq {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), seen.Err)
		case <-r.ctx.Done():
			return ErrClosed
		}
	}
}

// open opens the file and compares it with the stream. A file that is to be made is
// made when the stream is there: a snapshot that it must begin with is older than the
// stream (see Seed).
func (r *Replica) open(ctx context.Context) error {
	fresh := false
	if r.bolt == nil {
		var err error
		if fresh, err = r.findFile(); err != nil {
			return err
		}
	}
	st, err := r.openStream(ctx, fresh)
	if err == nil && fresh {
		err = r.makeFile(ctx)
	}
	if err != nil {
		return err
	}
	if err = r.compare(ctx, st); errors.Is(err, ErrGap) {
		if err = r.jump(ctx, err); err == nil {
			err = r.compare(ctx, st)
		}
	}
	if err != nil {
		return err
	}
	r.created = st.created
	r.o.Create = false // a stream that is missing from here on is lost
	r.seq, r.at, r.parts = r.safe.seq, r.safe.at, nil
	r.change(func(s *Seen) {
		s.Epoch, s.Ended, s.Seq, s.At, s.Lag = r.at.epoch, r.at.ended, r.seq, r.o.Now(), st.last-r.seq
		if st.last < r.stuck {
			s.Err = nil
		}
	})
	return nil
}

// errUnfinished is of a file that was made, and has not become a replica.
var errUnfinished = errors.New("it has no position")

// findFile opens the file, or says that it is to be made: it is not there, or was put
// aside because it is corrupt.
func (r *Replica) findFile() (fresh bool, err error) {
	if _, err := os.Stat(r.o.Path); errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	err = r.openFile()
	switch {
	case errors.Is(err, errUnfinished):
		return true, errors.Join(r.closeFile(), os.Remove(r.o.Path))
	case errors.Is(err, store.ErrCorrupt):
		return true, errors.Join(r.closeFile(), r.putAside(err))
	}
	return false, err
}

// putAside moves a file away that is corrupt, and not open.
func (r *Replica) putAside(cause error) error {
	aside := r.o.Path + ".corrupt"
	r.o.Log.Error("replog: the file is corrupt and put aside; it is made again from snapshot and log",
		"shard", r.o.Shard, "file", r.o.Path, "aside", aside, "error", cause)
	return os.Rename(r.o.Path, aside)
}

// makeFile makes a replica that begins with the newest snapshot, or with nothing.
func (r *Replica) makeFile(ctx context.Context) error {
	if _, err := r.restore(ctx, nil); err != nil {
		return err
	}
	if err := r.openFile(); !errors.Is(err, errUnfinished) {
		return err
	}
	r.safe = position{incarnation: r.o.Incarnation, shard: r.o.Shard}
	return r.bolt.Apply(nil, r.safe.append(nil))
}

// jump lets the file go on with a snapshot behind the gap.
func (r *Replica) jump(ctx context.Context, gap error) error {
	have := r.safe
	if err := r.closeFile(); err != nil {
		return err
	}
	done, err := r.restore(ctx, &have)
	if err = errors.Join(err, r.openFile()); err != nil {
		return err
	}
	if !done {
		return gap
	}
	return nil
}

// setFile notes which file is open.
func (r *Replica) setFile(bolt *store.Bolt) {
	r.bolt = bolt
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.file = bolt
}

// openFile opens the file and reads how far it is.
func (r *Replica) openFile() error {
	bolt, err := store.Open(r.o.Path, r.o.Store)
	if err != nil {
		return err
	}
	r.setFile(bolt)
	raw, err := bolt.Position()
	switch {
	case err != nil:
		return err
	case raw == nil && bolt.Stats().Commits > 0:
		return fmt.Errorf("%w: %s is the store of a node without a cluster", ErrForeign, r.o.Path)
	case raw == nil:
		return errUnfinished
	}
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

// compare refuses a log that does not go on where the file is.
func (r *Replica) compare(ctx context.Context, st state) error {
	switch at := r.safe.seq; {
	case st.last < at:
		return fmt.Errorf("%w: shard %d: %s has applied %d records, the stream has %d", ErrShorter, r.o.Shard, r.o.Path, at, st.last)
	case st.first > at+1:
		return fmt.Errorf("%w: shard %d: %s has applied it up to %d, the stream begins at %d", ErrGap, r.o.Shard, r.o.Path, at, st.first)
	case at == 0 || st.first > at:
		return nil
	}
	data, err := r.j.get(ctx, r.safe.seq)
	if err != nil {
		return fmt.Errorf("replog: reading record %d: %w", r.safe.seq, err)
	}
	h, _, err := decode(data)
	if err != nil || h.epoch != r.safe.at.epoch || h.n != r.safe.at.n {
		return fmt.Errorf("%w: shard %d: record %d is another one than %s has applied", ErrShorter, r.o.Shard, r.safe.seq, r.o.Path)
	}
	return nil
}

func (r *Replica) closeFile() error {
	if r.bolt == nil {
		return nil
	}
	bolt := r.bolt
	r.setFile(nil)
	return bolt.Close()
}

// errPromoted ends following: the epoch record of this node has come.
var errPromoted = errors.New("promoted")

// run follows, owns, and follows again.
func (r *Replica) run() {
	defer func() {
		if err := r.closeFile(); err != nil {
			r.o.Log.Warn("replog: closing", "file", r.o.Path, "error", err)
		}
	}()
	var said string
	for r.ctx.Err() == nil {
		err := r.follow()
		if !errors.Is(err, errPromoted) {
			r.dropAttempt(err)
		}
		switch {
		case r.ctx.Err() != nil:
			return
		case errors.Is(err, errPromoted):
			if r.own(); r.isClosed() {
				return
			}
			said = ""
		default:
			if said != err.Error() {
				said = err.Error()
				r.o.Log.Error("replog: the replica does not follow", "shard", r.o.Shard, "error", err)
			}
			r.change(func(s *Seen) { s.Err, r.stuck = err, r.seq+1 })
			if r.bolt != nil && r.bolt.Err() != nil {
				if err := r.closeFile(); err != nil {
					r.o.Log.Warn("replog: closing", "file", r.o.Path, "error", err)
				}
				r.heal(err)
			}
			r.rest(err)
		}
		for r.ctx.Err() == nil {
			err := r.reopen()
			if err == nil {
				break
			}
			if said != err.Error() {
				said = err.Error()
				r.o.Log.Error("replog: the replica cannot go on", "shard", r.o.Shard, "error", err)
			}
			r.change(func(s *Seen) { s.Err = err })
			r.rest(err)
		}
	}
}

// heal puts the file aside if it is corrupt. It is not open.
func (r *Replica) heal(err error) {
	if !errors.Is(err, store.ErrCorrupt) {
		return
	}
	if err := r.putAside(err); err != nil {
		r.o.Log.Error("replog: a corrupt file cannot be put aside", "file", r.o.Path, "error", err)
	}
}

// isClosed says whether Close has been called.
func (r *Replica) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.closed
}

// dropAttempt ends an attempt whose epoch record has come, and could not be applied.
func (r *Replica) dropAttempt(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.mu.try; a != nil && a.taken {
		r.mu.try = nil
		a.done <- promoted{err: err}
	}
}

// reopen makes the replica ready to follow once more.
func (r *Replica) reopen() error {
	ctx, cancel := context.WithTimeout(r.ctx, r.o.Check)
	defer cancel()
	return r.open(ctx)
}

// rest waits before another attempt: longer if only others can help.
func (r *Replica) rest(err error) {
	wait := lastRetry
	for _, lasting := range []error{ErrGone, ErrForeign, ErrReplicas, ErrShorter, ErrGap, ErrUnknown, ErrBroken} {
		if errors.Is(err, lasting) {
			wait = max(wait, r.o.Check)
		}
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.ctx.Done():
	}
}

// follow applies what comes until that fails, or the node is promoted.
func (r *Replica) follow() error {
	in := newIntake()
	defer in.close()
	stop, ended, err := r.j.follow(r.ctx, r.seq+1, in.put)
	if err != nil {
		return err
	}
	defer stop()
	defer in.close() // before stop, which waits for put
	check := time.NewTicker(r.o.Check)
	defer check.Stop()
	for {
		select {
		case <-in.some:
			entries := in.take()
			if err := r.take(entries); err != nil {
				return err
			}
		case err := <-ended:
			return err
		case <-check.C:
			if err := r.check(); err != nil {
				return err
			}
		case <-r.ctx.Done():
			return ErrClosed
		}
	}
}

// check looks whether the stream is still there, and how far ahead it is.
func (r *Replica) check() error {
	ctx, cancel := context.WithTimeout(r.ctx, r.o.AckTimeout)
	defer cancel()
	st, err := r.j.state(ctx)
	switch {
	case errors.Is(err, ErrGone):
		return err
	case err != nil:
		return nil //nolint:nilerr // it is away, which shows by silence
	case !st.created.Equal(r.created):
		return fmt.Errorf("%w: it was made anew at %v", ErrGone, st.created)
	case st.last < r.safe.seq:
		return fmt.Errorf("%w: shard %d: %d records are applied, the stream has %d", ErrShorter, r.o.Shard, r.safe.seq, st.last)
	}
	r.change(func(s *Seen) { s.Lag = max(st.last, r.seq) - r.seq })
	return nil
}

const (
	groupBytes   = 8 << 20 // records that one transaction applies, about
	writtenEvery = 1024    // records after which the file gets its position, whatever they are
)

// take applies records.
func (r *Replica) take(entries []entry) error {
	var group []*store.Batch
	size := 0
	flush := func() error {
		if len(group) == 0 && r.unwritten < writtenEvery {
			return nil
		}
		if err := r.bolt.Apply(group, r.safe.append(nil)); err != nil {
			return fmt.Errorf("%w: record %d: %w", ErrBroken, r.safe.seq, err)
		}
		group, size, r.unwritten = nil, 0, 0
		return nil
	}
	for i := range entries {
		e := &entries[i]
		if e.seq <= r.seq {
			continue // it has come before
		}
		batches, mine, err := r.read(e)
		if err == nil {
			group = append(group, batches...)
			if size += len(e.record); size >= groupBytes || mine != nil || i == len(entries)-1 {
				err = flush()
			}
		}
		if err != nil {
			return errors.Join(err, flush())
		}
		if mine != nil || i == len(entries)-1 {
			r.change(func(s *Seen) {
				s.Seq, s.At, s.Lag = r.seq, e.at, e.behind
				if r.seq >= r.stuck {
					s.Err = nil
				}
			})
		}
		if mine != nil {
			return errPromoted
		}
	}
	return nil
}

// read judges a record and returns what is to be applied. mine is the attempt to
// promote whose epoch it opens.
func (r *Replica) read(e *entry) (batches []*store.Batch, mine *attempt, err error) {
	if e.seq != r.seq+1 {
		return nil, nil, fmt.Errorf("%w: record %d follows %d", ErrGap, e.seq, r.seq)
	}
	h, body, err := decode(e.record)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: record %d: %w", ErrBroken, e.seq, err)
	}
	next, v := r.at.next(h)
	switch v {
	case unknown:
		return nil, nil, fmt.Errorf("%w: record %d is of kind %d", ErrUnknown, e.seq, h.kind)
	case broken:
		return nil, nil, fmt.Errorf("%w: record %d is %d of epoch %d, after %d of %d", ErrBroken, e.seq, h.n, h.epoch, r.at.n, r.at.epoch)
	case stale:
		r.seq = e.seq
		r.o.Log.Info("replog: passing over a record of an earlier owner", "shard", r.o.Shard, "seq", e.seq, "epoch", h.epoch)
		return nil, nil, nil
	}
	var b beginning
	var to string
	switch h.kind {
	case kindEpoch:
		r.parts = nil
		b, err = decodeBeginning(body)
	case kindResign:
		to, err = decodeResign(body)
	case kindCommit:
		if r.parts != nil || h.more {
			r.parts = append(r.parts, body...)
			body = r.parts
		}
		if !h.more {
			r.parts = nil
			batches, err = decodeBatches(body)
		}
	case kindBeat:
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: record %d: %w", ErrBroken, e.seq, err)
	}
	r.seq, r.at = e.seq, next
	r.unwritten++
	if !next.more {
		r.safe.seq, r.safe.at = e.seq, next
	}
	switch h.kind {
	case kindEpoch:
		mine = r.begun(next.epoch, b)
	case kindResign:
		r.change(func(s *Seen) { s.Ended, s.To = true, to })
	}
	return batches, mine, nil
}

// begun notes a new epoch, and whether this node has asked for it.
func (r *Replica) begun(epoch uint64, b beginning) *attempt {
	var mine *attempt
	r.change(func(s *Seen) {
		s.Epoch, s.Owner, s.Ended, s.To = epoch, b.owner, false, ""
		if a := r.mu.try; a != nil && a.token == b.token {
			a.taken, mine = true, a
		}
	})
	return mine
}

// Promote makes this node the owner of the shard, if the log still stands where the
// caller has seen it: ErrLost, if not. Everything before the new epoch is applied when
// it returns. An error that is not ErrLost leaves open whether the epoch has begun;
// the log shows it in time.
func (r *Replica) Promote(ctx context.Context, seen Seen) (*Store, error) {
	a := &attempt{token: rand.Text(), sent: r.o.Now(), done: make(chan promoted, 1)}
	if err := r.try(a); err != nil {
		return nil, err
	}
	h := head{kind: kindEpoch, epoch: seen.Epoch + 1, n: 1}
	record := encode(h, beginning{owner: r.o.Node, token: a.token}.append(nil))
	again := time.NewTimer(0)
	defer again.Stop()
	wait := firstRetry
	var unsure error // the last append that may have been done: then another one is refused
	for {
		now, changed := r.look()
		if now.Epoch > seen.Epoch || now.Seq > seen.Seq {
			return r.giveUp(a, ErrLost) // something else lies where the record would
		}
		select {
		case <-again.C:
			switch err := r.begin(ctx, record, seen.Seq); {
			case err == nil, errors.Is(err, errMoved) && unsure != nil: // it comes, or what was faster
			case errors.Is(err, errMoved):
				return r.giveUp(a, ErrLost)
			case errors.Is(err, errRefused):
				return r.giveUp(a, err)
			default:
				unsure = err
				again.Reset(wait)
				wait = min(2*wait, lastRetry)
			}
		case p := <-a.done:
			return p.store, p.err
		case <-changed:
		case <-ctx.Done():
			return r.giveUp(a, errors.Join(fmt.Errorf("replog: whether epoch %d has begun is not known: %w", h.epoch, ctx.Err()), unsure))
		case <-r.ctx.Done():
			return r.giveUp(a, ErrClosed)
		}
	}
}

// begin appends a record behind a sequence, once.
func (r *Replica) begin(ctx context.Context, record []byte, behind uint64) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.AckTimeout)
	defer cancel()
	_, err := r.j.append(ctx, record, behind)
	return err
}

// try notes an attempt to promote.
func (r *Replica) try(a *attempt) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.mu.closed:
		return ErrClosed
	case r.mu.store != nil || r.mu.try != nil:
		return fmt.Errorf("%w: this node owns the shard, or tries to", ErrLost)
	}
	r.mu.try = a
	return nil
}

// giveUp ends an attempt with an error, unless it has won meanwhile.
func (r *Replica) giveUp(a *attempt, err error) (*Store, error) {
	r.mu.Lock()
	if taken := a.taken; !taken {
		r.mu.try = nil
		r.mu.Unlock()
		return nil, err
	}
	r.mu.Unlock()
	p := <-a.done
	return p.store, p.err
}

// own hands the file to a store, and waits until that is closed.
func (r *Replica) own() {
	s := r.newStore()
	r.mu.Lock()
	a := r.mu.try
	r.mu.try, r.mu.store, r.mu.newest = nil, s, nil
	closed := r.mu.closed
	r.mu.Unlock()
	a.done <- promoted{store: s}
	if closed {
		_ = s.Close() // it has done nothing yet
	}
	<-s.ended
	r.setFile(nil) // the store has closed it
	r.heal(s.corrupt())
}

// released is told that a store is closed. What is in the file shows when it is open
// again.
func (r *Replica) released(s *Store) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.seen.At, _ = s.w.progress()
	r.mu.seen.Seq, r.mu.store = 0, nil
}

// intake holds what a follower has received and not yet applied: so many bytes, or one
// record.
type intake struct {
	some chan struct{} // has an element when there are entries

	mu      sync.Mutex
	room    sync.Cond // on mu
	entries []entry
	bytes   int
	closed  bool
}

const intakeBytes = 32 << 20

func newIntake() *intake {
	in := &intake{some: make(chan struct{}, 1)}
	in.room.L = &in.mu
	return in
}

// put waits for room.
func (in *intake) put(e entry) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for in.bytes > 0 && in.bytes+len(e.record) > intakeBytes && !in.closed {
		in.room.Wait()
	}
	if in.closed {
		return
	}
	in.entries = append(in.entries, e)
	in.bytes += len(e.record)
	select {
	case in.some <- struct{}{}:
	default:
	}
}

func (in *intake) take() []entry {
	in.mu.Lock()
	defer in.mu.Unlock()
	out := in.entries
	in.entries, in.bytes = nil, 0
	in.room.Broadcast()
	return out
}

func (in *intake) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	in.room.Broadcast()
}
