package fleettest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/filaq/fila/sidecar/fleet"
)

// ErrGone is the error of a bucket that is cut off.
var ErrGone = errors.New("the bucket is gone")

// Bucket holds records in memory. Its clock is the host's, ahead by Skew.
type Bucket struct {
	Skew time.Duration

	mu struct {
		sync.Mutex
		entries map[string]fleet.Entry
		rev     uint64
		ends    []*End
		swaps   int
		stalled chan struct{} // closed when the stall ends; nil: not stalled
	}
}

// New returns an empty bucket.
func New() *Bucket {
	b := &Bucket{}
	b.mu.entries = make(map[string]fleet.Entry)
	return b
}

// End is one instance's way to a bucket.
type End struct {
	b *Bucket

	// Guarded by the bucket's mutex.
	gone    bool // nothing gets through
	mute    bool // writes are done, but answered by an error
	watches []*watch
}

type watch struct {
	after uint64 // no revision up to this one comes
	queue []fleet.Entry
	wake  chan struct{}
	held  bool
}

// SetClock moves the server's clock by d.
func (b *Bucket) SetClock(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Skew += d
}

// Of returns a way to the bucket for one instance.
func (b *Bucket) Of() *End {
	e := &End{b: b}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.ends = append(b.mu.ends, e)
	return e
}

// Cut cuts the instance off, or restores its way.
func (e *End) Cut(gone bool) {
	e.b.mu.Lock()
	defer e.b.mu.Unlock()
	e.gone = gone
	if gone {
		for _, w := range e.watches {
			close(w.wake)
		}
		e.watches = nil
	}
}

// Mute makes the bucket perform writes but lose their answers.
func (e *End) Mute(mute bool) {
	e.b.mu.Lock()
	defer e.b.mu.Unlock()
	e.mute = mute
}

// Hold keeps the entries of the instance's watch back, or releases them.
func (e *End) Hold(held bool) {
	e.b.mu.Lock()
	defer e.b.mu.Unlock()
	for _, w := range e.watches {
		w.held = held
		w.poke()
	}
}

// Merge removes, from what the watch has not brought yet, entries that a newer one follows.
func (e *End) Merge() {
	e.b.mu.Lock()
	defer e.b.mu.Unlock()
	for _, w := range e.watches {
		var kept []fleet.Entry
		for i, entry := range w.queue {
			if !slices.ContainsFunc(w.queue[i+1:], func(newer fleet.Entry) bool { return newer.Key == entry.Key }) {
				kept = append(kept, entry)
			}
		}
		w.queue = kept
	}
}

// Stall freezes the bucket: requests wait and are done afterwards, even if their callers have given
// up, and watches bring nothing.
func (b *Bucket) Stall(stalled bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case stalled && b.mu.stalled == nil:
		b.mu.stalled = make(chan struct{})
	case !stalled && b.mu.stalled != nil:
		close(b.mu.stalled)
		b.mu.stalled = nil
	}
	for _, e := range b.mu.ends {
		for _, w := range e.watches {
			w.poke()
		}
	}
}

// await waits for the end of a stall, or for ctx.
func (b *Bucket) await(ctx context.Context) error {
	b.mu.Lock()
	stalled := b.mu.stalled
	b.mu.Unlock()
	if stalled == nil {
		return nil
	}
	select {
	case <-stalled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Clear makes the bucket again: it is empty, and revisions begin again.
func (b *Bucket) Clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.entries, b.mu.rev = make(map[string]fleet.Entry), 0
	for _, e := range b.mu.ends {
		e.watches = nil // like consumers of a deleted stream
	}
}

// Save returns a function that lets the bucket go back to what it is now. Watches go on behind the
// revisions that they have sent, like consumers of a stream that has lost its newest messages.
func (b *Bucket) Save() (goBack func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	entries, rev := maps.Clone(b.mu.entries), b.mu.rev
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, e := range b.mu.ends {
			for _, w := range e.watches {
				w.after = b.mu.rev
			}
		}
		b.mu.entries, b.mu.rev = maps.Clone(entries), rev
	}
}

// Entries returns the records by key.
func (b *Bucket) Entries() map[string]fleet.Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[string]fleet.Entry)
	for key, e := range b.mu.entries {
		if e.Value != nil {
			all[key] = e
		}
	}
	return all
}

// Swaps counts the requested swaps.
func (b *Bucket) Swaps() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.swaps
}

func (w *watch) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Open implements fleet.Bucket.
func (e *End) Open(ctx context.Context) error {
	if err := e.b.await(ctx); err != nil {
		return err
	}
	e.b.mu.Lock()
	defer e.b.mu.Unlock()
	if e.gone {
		return ErrGone
	}
	return nil
}

// Watch implements fleet.Bucket.
func (e *End) Watch(ctx context.Context) (<-chan fleet.Entry, error) {
	if err := e.b.await(ctx); err != nil {
		return nil, err
	}
	e.b.mu.Lock()
	defer e.b.mu.Unlock()
	if e.gone {
		return nil, ErrGone
	}
	w := &watch{wake: make(chan struct{}, 1)}
	for _, entry := range e.b.mu.entries {
		w.queue = append(w.queue, entry)
	}
	slices.SortFunc(w.queue, func(a, b fleet.Entry) int { return int(a.Rev) - int(b.Rev) })
	w.queue = append(w.queue, fleet.Entry{})
	e.watches = append(e.watches, w)
	w.poke()
	out := make(chan fleet.Entry)
	go func() {
		defer close(out)
		for {
			select {
			case _, ok := <-w.wake:
				if !ok {
					return
				}
			case <-ctx.Done():
				return
			}
			for {
				e.b.mu.Lock()
				if len(w.queue) == 0 || w.held || e.b.mu.stalled != nil {
					e.b.mu.Unlock()
					break
				}
				next := w.queue[0]
				w.queue = w.queue[1:]
				e.b.mu.Unlock()
				select {
				case out <- next:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return out, nil
}

// put writes. Its caller holds mu.
func (b *Bucket) put(key string, value []byte) uint64 {
	b.mu.rev++
	entry := fleet.Entry{Key: key, Value: value, Rev: b.mu.rev, At: time.Now().Add(b.Skew)}
	b.mu.entries[key] = entry
	for _, e := range b.mu.ends {
		for _, w := range e.watches {
			if entry.Rev > w.after {
				w.queue = append(w.queue, entry)
				w.poke()
			}
		}
	}
	return b.mu.rev
}

// write performs a request: it waits for the end of a stall, and is then done in any case.
func (e *End) write(ctx context.Context, key string, value []byte, over *uint64) (uint64, error) {
	if err := e.b.await(ctx); err != nil {
		go func() {
			_ = e.b.await(context.Background())
			_, _ = e.writeNow(key, value, over)
		}()
		return 0, err
	}
	return e.writeNow(key, value, over)
}

func (e *End) writeNow(key string, value []byte, over *uint64) (uint64, error) {
	b := e.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.gone {
		return 0, ErrGone
	}
	if over != nil && b.mu.entries[key].Rev != *over {
		return 0, fleet.ErrConflict
	}
	rev := b.put(key, value)
	if e.mute {
		return 0, ErrGone
	}
	return rev, nil
}

// Swap implements fleet.Bucket.
func (e *End) Swap(ctx context.Context, key string, value []byte, over uint64) (uint64, error) {
	e.b.mu.Lock()
	e.b.mu.swaps++
	e.b.mu.Unlock()
	return e.write(ctx, key, slices.Clone(value), &over)
}

// Set implements fleet.Bucket.
func (e *End) Set(ctx context.Context, key string, value []byte) (uint64, error) {
	return e.write(ctx, key, slices.Clone(value), nil)
}

// Delete implements fleet.Bucket.
func (e *End) Delete(ctx context.Context, key string, over uint64) error {
	if over == 0 {
		_, err := e.write(ctx, key, nil, nil)
		return err
	}
	_, err := e.write(ctx, key, nil, &over)
	return err
}

// Purge implements fleet.Bucket.
func (e *End) Purge(_ context.Context, older time.Duration) error {
	b := e.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, entry := range b.mu.entries {
		if entry.Value == nil && time.Now().Add(b.Skew).Sub(entry.At) > older {
			delete(b.mu.entries, key)
		}
	}
	return nil
}

// Again returns another way to the same bucket, for an instance that restarts.
func (e *End) Again() *End { return e.b.Of() }
