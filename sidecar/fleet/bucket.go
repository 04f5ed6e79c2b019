package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Entry is the value of a key in a bucket.
type Entry struct {
	Key   string
	Value []byte // nil: deleted
	Rev   uint64
	At    time.Time // time of the write, by the server's clock; zero: not known
}

var (
	// ErrConflict is returned for a write over an old revision.
	ErrConflict = errors.New("the record has changed")
	// ErrUnusable is returned if waiting does not help: there is no JetStream, or no permission.
	ErrUnusable = errors.New("shared gates need JetStream")
)

// Bucket stores records. Its methods may be called from any goroutine and end with their context.
type Bucket interface {
	// Open finds or creates the bucket.
	Open(ctx context.Context) error
	// Watch sends the existing entries, then an Entry without a key, and then newer entries in
	// the order of their revisions. It may leave out entries that a newer one of the same key
	// follows. The channel is closed when the watch ends, with ctx at the latest.
	Watch(ctx context.Context) (<-chan Entry, error)
	// Swap writes over a revision, 0 for none, and returns the new revision or ErrConflict.
	// After any other error the write may or may not have been done.
	Swap(ctx context.Context, key string, value []byte, over uint64) (rev uint64, err error)
	// Set writes over any revision.
	Set(ctx context.Context, key string, value []byte) (rev uint64, err error)
	// Delete leaves a marker that Watch sends. It does nothing if the revision is old.
	Delete(ctx context.Context, key string, over uint64) error
	// Purge removes markers that are older.
	Purge(ctx context.Context, older time.Duration) error
}

// JetStream is a [Bucket] of a NATS server. Use [NewJetStream].
type JetStream struct {
	nc       *nats.Conn
	log      *slog.Logger
	name     string
	replicas int
	js       jetstream.JetStream
	kv       jetstream.KeyValue // set by Open
}

// NewJetStream returns the bucket of a name. replicas is for a new bucket.
func NewJetStream(nc *nats.Conn, log *slog.Logger, name string, replicas int) (*JetStream, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	return &JetStream{nc: nc, log: log, name: name, replicas: replicas, js: js}, nil
}

// Open finds or creates the bucket. No other method may run at the same time.
func (b *JetStream) Open(ctx context.Context) error {
	kv, err := b.js.KeyValue(ctx, b.name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = b.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: b.name, Description: "circuits and limits that filas share", History: 1, Replicas: b.replicas,
		})
		if errors.Is(err, jetstream.ErrBucketExists) { // another instance was faster
			kv, err = b.js.KeyValue(ctx, b.name)
		}
	}
	if err != nil {
		return b.explain(err)
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return b.explain(err)
	}
	if n := status.Config().Replicas; n != b.replicas {
		b.log.Warn("the bucket of shared gates has another number of replicas than shared.replicas; fila does not change it",
			"bucket", b.name, "replicas", n, "configured", b.replicas)
	}
	b.kv = kv
	return nil
}

// explain returns the error of Open, as ErrUnusable if waiting does not help.
func (b *JetStream) explain(err error) error {
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount),
		errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: the NATS server at %s has none for this account; enable it there (nats.embedded.jetstream = true for the embedded server), or set shared.enabled = false",
			ErrUnusable, b.nc.ConnectedUrlRedacted())
	}
	return b.refused(err)
}

// refused translates errors of the bucket. A request without permission gets no answer, so it
// looks for the connection's last error.
func (b *JetStream) refused(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrKeyRevisionMismatch), errors.Is(err, jetstream.ErrKeyExists):
		return ErrConflict
	case errors.Is(err, context.DeadlineExceeded) && errors.Is(b.nc.LastError(), nats.ErrPermissionViolation):
		return fmt.Errorf("%w, and NATS refuses fila's user the bucket %s: %w (docs/security.md has the permissions)", ErrUnusable, b.name, b.nc.LastError())
	}
	return fmt.Errorf("bucket %s: %w", b.name, err)
}

// Watch implements [Bucket].
func (b *JetStream) Watch(ctx context.Context) (<-chan Entry, error) {
	w, err := b.kv.WatchAll(ctx)
	if err != nil {
		return nil, b.refused(err)
	}
	out := make(chan Entry)
	go func() {
		defer close(out)
		defer func() {
			if err := w.Stop(); err != nil {
				b.log.Debug("end of a watch", "bucket", b.name, "error", err)
			}
			for range w.Updates() { // so that its sender is not stuck
			}
		}()
		for {
			select {
			case e, ok := <-w.Updates():
				if !ok {
					return
				}
				select {
				case out <- entryOf(e):
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

func entryOf(e jetstream.KeyValueEntry) Entry {
	if e == nil {
		return Entry{}
	}
	out := Entry{Key: e.Key(), Rev: e.Revision(), At: e.Created()}
	if e.Operation() == jetstream.KeyValuePut {
		out.Value = append([]byte{}, e.Value()...)
	}
	return out
}

// Swap implements [Bucket].
func (b *JetStream) Swap(ctx context.Context, key string, value []byte, over uint64) (uint64, error) {
	rev, err := b.kv.Update(ctx, key, value, over)
	return rev, b.refused(err)
}

// Set implements [Bucket].
func (b *JetStream) Set(ctx context.Context, key string, value []byte) (uint64, error) {
	rev, err := b.kv.Put(ctx, key, value)
	return rev, b.refused(err)
}

// Delete implements [Bucket].
func (b *JetStream) Delete(ctx context.Context, key string, over uint64) error {
	return b.refused(b.kv.Delete(ctx, key, jetstream.LastRevision(over)))
}

// Purge implements [Bucket].
func (b *JetStream) Purge(ctx context.Context, older time.Duration) error {
	return b.kv.PurgeDeletes(ctx, jetstream.DeleteMarkersOlderThan(older))
}
