package replog

import (
	"context"
	"errors"
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
	unsynced  *unsynced   // of the file that is open; nil: it is synced at each commit
	created   time.Time   // of the stream
	seq       uint64      // of the log up to here everything is applied, or in parts
	at        mark
	safe      position // of the last record that counted and ended a commit, or was none
	to        string   // whom the owner asked to follow it, when it resigned last
	parts     []byte   // of a commit that goes on
	unwritten int      // records since the file has had its position
	stuck     uint64   // where following has failed, beyond that it can go on; 0: nowhere since it was promoted

	ended        chan struct{} // see Ended
	snapshotting sync.Mutex    // held while a snapshot is made

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
	r := &Replica{o: o, j: j, ended: make(chan struct{}, 1)}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	r.mu.changed = make(chan struct{})
	return r
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

// Ended has an element when an owner has resigned since the last one was taken, as Seen
// says it. It is for one listener.
func (r *Replica) Ended() <-chan struct{} { return r.ended }

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

// isClosed says whether Close has been called.
func (r *Replica) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.closed
}
