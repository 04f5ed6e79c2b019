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

// base is what a node stands on: a store of its own, or a cluster. Its methods are
// called in this order, kept to join once NATS is connected or about to be.
type base interface {
	// open takes what is needed before NATS.
	open() error
	// kept is what the rooms begin with.
	kept(ctx context.Context) (store.Snapshot, error)
	// furnish completes the options of the rooms.
	furnish(f *furniture)
	// recover brings the queues about that are here from the start.
	recover(ctx context.Context, snap store.Snapshot) error
	// join has queues be made that should be here, once acks are heard.
	join(ctx context.Context) error

	// lost is told of a shard whose store has failed, and returns why the node cannot go
	// on without it; nil: it can.
	lost(failed *shard.Shard) error
	// over gets what else keeps the node from going on.
	over() <-chan error
	// health says why the node cannot serve; nil: it can. The state is for people.
	health() (state string, err error)
	// bytes is the size of its files.
	bytes() int64

	// leave gives up what others go on with, before anything of the node stops.
	leave(ctx context.Context)
	// close ends what open, kept and recover have opened.
	close() error
}

func newBase(s *Server) (base, error) {
	if s.cfg.Cluster.Enabled {
		return newMember(s)
	}
	return &alone{s: s}, nil
}

// alone is a node with one store, which is its only shard.
type alone struct {
	s     *Server
	store *store.Bolt // nil: not open
}

func (a *alone) open() (err error) {
	s := a.s
	a.store, err = store.Open(s.cfg.StorePath(), s.storeOptions())
	return s.lockedElsewhere(err)
}

// storeOptions are those of a store of the node.
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

func (a *alone) kept(context.Context) (store.Snapshot, error) { return a.store.Snapshot() }

func (a *alone) furnish(f *furniture) {
	f.circuits.Submit = a.store.Submit
	f.control.KV = control.StoreKV(a.store.Submit)
	f.admin.Store = a.store
}

func (a *alone) recover(_ context.Context, snap store.Snapshot) error {
	shards := a.s.rooms.shards
	only := shards.New(0, a.store)
	if err := only.Recover(snap); err != nil {
		return err
	}
	return shards.Add(only)
}

func (a *alone) join(ctx context.Context) error { return a.s.rooms.control.DeclareQueues(ctx) }

func (a *alone) lost(failed *shard.Shard) error { return failed.Err() } // it was the only one

func (a *alone) over() <-chan error { return nil }

func (a *alone) health() (string, error) { return "ready", a.store.Err() }

func (a *alone) bytes() int64 { return a.store.Stats().FileBytes }

func (a *alone) leave(context.Context) {}

func (a *alone) close() error {
	if a.store == nil {
		return nil
	}
	return a.store.Close()
}
