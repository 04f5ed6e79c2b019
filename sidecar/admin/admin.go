package admin

import (
	"log/slog"

	"github.com/filaq/fila/sidecar/attention"
	"github.com/filaq/fila/sidecar/circuit"
	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/sidecar/queue/inspect"
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
	Peers    Peers       // nil: no cluster
	Store    store.Store // for backups
	DataDir  string      // backups go to a directory in it
	Cluster  Cluster     // nil: no cluster
	Node     string      // the name of this node in the cluster; "": no cluster
	// Limits returns the use of the limits of the process; nil: not known.
	Limits func() []attention.Limit
	// SharedAway returns why the bucket of shared circuits and limits cannot be reached, nil
	// if it can; nil: nothing is shared.
	SharedAway func() error
	// Shares says what filas share; nil: nothing is shared.
	Shares Shares
}

// Shares says which keys filas share.
type Shares interface {
	SharesThrottle(key string) bool
	SharesCircuit(key string) bool
}

// Admin carries out the verbs. Its methods may be called from any goroutine.
type Admin struct {
	log     *slog.Logger
	shards  *shard.Set
	control *control.Control
	permits Permits
	cluster Cluster // nil: no cluster
	peers   Peers   // nil: no cluster
	node    string  // "": no cluster
	gates   gateStates
	backups *backups
	sampler sampler
	blocked blockers
	meters  wantedMeters
	objects objects
	table   []Verb
	piece   int // how many slots of a queue are read at a time, so that the queue works in between
}

// New returns an Admin. The queues need not be there yet.
func New(o Options) *Admin {
	a := &Admin{
		log: o.Log, shards: o.Shards, control: o.Control, permits: o.Permits, cluster: o.Cluster, peers: o.Peers, node: o.Node, piece: 16_384,
		gates:   gateStates{now: o.Shards.Now, limits: o.Control.LimitsOf, circuit: o.Control.CircuitInfo},
		backups: newBackups(o.Log, o.DataDir, o.Store),
		sampler: sampler{limits: o.Limits, sharedAway: o.SharedAway, shares: o.Shares},
		meters:  wantedMeters{of: make(map[*shard.Queue]*inspect.WantedMeter)},
	}
	a.table = a.newTable()
	return a
}
