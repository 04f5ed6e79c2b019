package replog

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filaq/fila/store"
)

// Replica is the copy of a shard at one node. It follows the log until its node is promoted,
// and again after the [Store] of the promotion was closed. Its methods are safe for
// concurrent use.
type Replica struct {
	o      Options
	j      journal
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   sync.WaitGroup

	// Owned by run.
	bolt      *store.Bolt // nil: not open
	unsynced  *unsynced   // of the open file; nil: it is synced at each commit
	created   time.Time   // of the stream
	seq       uint64      // all records of the log up to here are applied, or in parts
	tail      uint64      // hash of that record; 0: not known
	at        mark
	safe      position // of the last counted record that left no commit incomplete
	to        string   // successor named by the last resignation
	parts     []byte   // of an incomplete commit
	unwritten int      // records since the file wrote its position
	end       uint64   // of the stream, when it was last compared with the file
	stuck     uint64   // record at which following failed; 0: none since the promotion
	unread    uint64   // a record that does not continue what was read before it; 0: none

	format       atomic.Int32  // see Format
	ended        chan struct{} // see Ended
	repairs      chan repair   // for run, while it does not follow
	snapshotting sync.Mutex    // held while a snapshot is made

	mu struct {
		sync.Mutex
		file    *store.Bolt // bolt, for other goroutines; nil: not open
		newest  *Snapshot   // nil: not known
		seen    Seen
		changed chan struct{} // closed when seen changes, or try
		try     *attempt      // nil: no promotion is running
		store   *Store        // nil: the node is not the owner
		closed  bool
	}
}

// Seen is the knowledge of a replica about its log.
type Seen struct {
	Epoch uint64
	Owner string    // of the epoch
	To    string    // successor named by a resigned owner; see Ended
	Ended bool      // the owner resigned
	Seq   uint64    // of the newest record; all records up to it are applied
	N     uint64    // of the newest record that counts, within the epoch
	Chain uint64    // of that record; 0: not known
	Data  Mark      // the newest commit that the file has or, of an owner, that is acked
	At    time.Time // when the newest record arrived, or following started
	Lag   uint64    // records of the stream that are not applied
	End   uint64    // of the stream, if Err is [ErrShorter]
	Torn  bool      // the machine has failed while the file was open: the log cannot be repaired from it
	Err   error     // why the replica cannot follow; it keeps trying
	// Unread is a record that does not continue what this replica has read before it: NATS servers
	// may have other records there after they have lost some. Only a snapshot leads on. 0: none.
	Unread uint64
	tail   uint64 // hash of the record Seq; 0: not known
}

// Open opens or creates the file of a replica, checks the stream, and follows it. The errors
// are [ErrGone], [ErrForeign], [ErrReplicas], [ErrGap], and the errors of store.Open. A file
// with records that the log lacks is no error, since its records may be the only copies: the
// replica does not follow, and Seen().Err is [ErrShorter] or [ErrGone].
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
	r := &Replica{o: o, j: j, ended: make(chan struct{}, 1), repairs: make(chan repair)}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	r.mu.changed = make(chan struct{})
	r.format.Store(Format)
	return r
}

func (r *Replica) start(ctx context.Context) error {
	err := r.open(ctx)
	if err != nil && (r.safe.seq == 0 || !lacks(err)) {
		r.cancel(ErrClosed)
		return errors.Join(err, r.closeFile())
	}
	r.done.Go(func() { r.run(err) })
	return nil
}

// Close stops following and closes the store, if there is one.
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

// Seen returns the knowledge about the log.
func (r *Replica) Seen() Seen {
	seen, _ := r.seenAndChanged()
	return seen
}

// Ended has an element if an owner resigned since the last element was received. It is for
// one listener.
func (r *Replica) Ended() <-chan struct{} { return r.ended }

// LogState is the state of the log of a shard, known to its owner.
type LogState struct {
	Bytes, MaxBytes int64     // MaxBytes 0: no limit
	SnapshotAt      time.Time // of the newest snapshot; zero: none, or not known
}

// LogState returns the state, and false while the node is not the owner. It does not block.
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

// seenAndChanged returns the knowledge and a channel that is closed when it changes.
func (r *Replica) seenAndChanged() (Seen, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.mu.seen
	if s := r.mu.store; s != nil {
		s.w.progress(&seen)
	}
	return seen, r.mu.changed
}

// change changes the knowledge.
func (r *Replica) change(fn func(*Seen)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn(&r.mu.seen)
	close(r.mu.changed)
	r.mu.changed = make(chan struct{})
}

// isClosed reports whether Close was called.
func (r *Replica) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.closed
}
