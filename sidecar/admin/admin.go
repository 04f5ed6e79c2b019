package admin

import (
	"log/slog"

	"github.com/filaq/fila/sidecar/circuit"
	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/store"
)

// Options of an [Admin].
type Options struct {
	Log      *slog.Logger
	Shard    *shard.Shard
	Control  *control.Control
	Circuits *circuit.Registry
	DataDir  string // backups go to a directory in it
}

// Admin carries out the verbs. Its methods may be called from any goroutine.
type Admin struct {
	log     *slog.Logger
	shard   *shard.Shard
	control *control.Control
	store   store.Store // of shard
	gates   gates
	backups *backups
	piece   int // slots of a queue that are read at a time, so that it goes on in between
}

// New returns an Admin. The queues need not be there yet.
func New(o Options) *Admin {
	return &Admin{
		log: o.Log, shard: o.Shard, control: o.Control, store: o.Shard.Store, piece: 16_384,
		gates:   gates{now: o.Shard.Now, limits: o.Control.LimitsOf, circuit: o.Circuits.Info},
		backups: newBackups(o.Log, o.DataDir, o.Shard.Store),
	}
}
