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
	Shards   *shard.Set
	Control  *control.Control
	Circuits *circuit.Registry
	Permits  Permits     // of the guard
	Peers    Peers       // nil: this fila is alone
	Store    store.Store // for backups
	DataDir  string      // they go to a directory in it
	Cluster  Cluster     // nil: this fila is alone
	Node     string      // of a cluster, what this one is called
}

// Admin carries out the verbs. Its methods may be called from any goroutine.
type Admin struct {
	log     *slog.Logger
	shards  *shard.Set
	control *control.Control
	permits Permits
	cluster Cluster // nil: this fila is alone
	peers   Peers   // nil: this fila is alone
	node    string  // "": this fila is alone
	gates   gates
	backups *backups
	table   []Verb
	piece   int // slots of a queue that are read at a time, so that it goes on in between
}

// New returns an Admin. The queues need not be there yet.
func New(o Options) *Admin {
	a := &Admin{
		log: o.Log, shards: o.Shards, control: o.Control, permits: o.Permits, cluster: o.Cluster, peers: o.Peers, node: o.Node, piece: 16_384,
		gates:   gates{now: o.Shards.Now, limits: o.Control.LimitsOf, circuit: o.Control.CircuitInfo},
		backups: newBackups(o.Log, o.DataDir, o.Store),
	}
	a.table = a.newTable()
	return a
}
