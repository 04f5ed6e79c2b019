package sidecar

import (
	"context"
	"errors"
	"fmt"

	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/store"
)

// storage is the storage of a node: its own store, or shards of a cluster. Its methods are called in
// this order; kept to join once NATS is connected or about to be.
type storage interface {
	// open opens what is needed before NATS.
	open() error
	// kept returns the data with which the parts are created.
	kept(ctx context.Context) (store.Snapshot, error)
	// completeOptions completes the options of the parts.
	completeOptions(f *partOptions)
	// recover creates the queues that are on this node at the start.
	recover(ctx context.Context, snap store.Snapshot) error
	// join creates missing queues of this node, when acks can arrive.
	join(ctx context.Context) error

	// lost handles a shard whose store has failed. It returns an error if the node cannot go on
	// without it.
	lost(failed *shard.Shard) error
	// over receives another reason why the node cannot go on.
	over() <-chan error
	// health returns why the node cannot serve, or its state for people.
	health() (state string, err error)
	// bytes returns the size of its files.
	bytes() int64

	// leave hands over to other nodes, before anything of the node stops.
	leave(ctx context.Context)
	// close closes what open, kept and recover have opened.
	close() error
}

func newStorage(s *Server) (storage, error) {
	if s.cfg.Cluster.Enabled {
		return newClusterNode(s)
	}
	return &standalone{s: s}, nil
}

// standalone is the storage of a node with one store, its only shard.
type standalone struct {
	s     *Server
	store *store.Bolt // nil: not open
}

func (a *standalone) open() (err error) {
	s := a.s
	o := s.storeOptions()
	o.KeepConfirmed = true
	a.store, err = store.Open(s.cfg.StorePath(), o)
	if lost := new(store.LostError); errors.As(err, &lost) {
		return fmt.Errorf("%w; messages and acks of the commits in between are missing: start with the file that has them, or give them up with `fila store accept-loss %s`", err, lost.File)
	}
	return s.lockedElsewhere(err)
}

// storeOptions returns the options of the node's stores.
func (s *Server) storeOptions() store.Options {
	return store.Options{
		Locked:         s.listen,
		ReadCacheBytes: readCache(s.cfg.Store.ReadCacheBytes),
		Logger:         s.log,
		Now:            s.now,
		Join:           history.Join,
		Keep:           history.IsRedrive,
		OnCommit:       func(c store.CommitStats) { s.metrics.Commit(c.Duration, c.Batches) },
	}
}

func (s *Server) lockedElsewhere(err error) error {
	if errors.Is(err, store.ErrLocked) {
		return fmt.Errorf("data_dir %s is in use by another fila process: stop that one, or give this one a data_dir of its own", s.cfg.DataDir)
	}
	return err
}

func (a *standalone) kept(context.Context) (store.Snapshot, error) { return a.store.Snapshot() }

func (a *standalone) completeOptions(f *partOptions) {
	f.circuits.Submit = a.store.Submit
	f.control.KV = control.StoreKV(a.store.Submit)
	f.admin.Store = a.store
}

func (a *standalone) recover(_ context.Context, snap store.Snapshot) error {
	shards := a.s.parts.shards
	only := shards.New(0, a.store)
	if err := only.Recover(snap); err != nil {
		return err
	}
	return shards.Add(only)
}

func (a *standalone) join(ctx context.Context) error { return a.s.parts.control.DeclareQueues(ctx) }

func (a *standalone) lost(failed *shard.Shard) error { return failed.Err() } // it was the only shard

func (a *standalone) over() <-chan error { return nil }

func (a *standalone) health() (string, error) { return "ready", a.store.Err() }

func (a *standalone) bytes() int64 { return a.store.Stats().FileBytes }

func (a *standalone) leave(context.Context) {}

func (a *standalone) close() error {
	if a.store == nil {
		return nil
	}
	return a.store.Close()
}
