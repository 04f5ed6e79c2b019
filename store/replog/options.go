package replog

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/filaq/fila/store"
)

// Options configure a [Replica].
type Options struct {
	JS  jetstream.JetStream
	Log *slog.Logger // default: none

	Cluster     string // its name: letters, digits, "-" and "_"
	Incarnation string // created with the cluster: another one is another cluster
	Shard       int
	Node        string // name of this node in epoch records

	// Path is the file of the replica, and Store the options to open it.
	Path  string
	Store store.Options

	// Create creates the stream if there is neither a stream nor a file. It is for the
	// creation of a cluster: in an existing cluster a missing stream is lost.
	Create   bool
	Replicas int   // of a new stream, and the minimum of an existing one; default 3
	MaxBytes int64 // of a new stream; 0: no limit

	// Snapshots is the object store for snapshots, from which replicas start when their
	// file is lost or the log was cut; see OpenSnapshots. An owner makes one when the log
	// behind the newest is longer than 256 MiB and the live messages, or takes a third of
	// the limit of the stream. Without it the log is never cut.
	Snapshots jetstream.ObjectStore

	Beat       time.Duration // interval of writes of an idle owner; default 500 ms
	AckTimeout time.Duration // wait for an answer before reading the log; default 2 s
	Linger     time.Duration // how long Close of a Store waits for the stream; default 5 s
	Check      time.Duration // interval of checks of the stream; default 5 s
	Settle     time.Duration // how long an owner waits for a stream that lacks acked records, as a new leader may for a moment; default 5 s

	// Verdict returns the newest verdict about copies that the log lacks. May be nil.
	Verdict func() (Verdict, bool)

	// OnAppend is called for each record of an owner when the log has it, with its bytes
	// and the duration. It must not block. May be nil.
	OnAppend func(bytes int, took time.Duration)

	// Now is a monotonic clock. Default time.Now.
	Now func() time.Time

	recordBytes   int    // maximum size of a record
	truncateBytes int64  // see truncateBytes
	boot          string // of the machine; "": not known, so the file is synced at each commit
}

// headroom is the part of the largest NATS message that is left for headers.
const headroom = 64 << 10

func (o *Options) defaults() {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Store.Logger = cmp.Or(o.Store.Logger, o.Log)
	o.Replicas = cmp.Or(o.Replicas, 3)
	if o.MaxBytes <= 0 {
		o.MaxBytes = -1
	}
	o.Beat = cmp.Or(o.Beat, 500*time.Millisecond)
	o.AckTimeout = cmp.Or(o.AckTimeout, 2*time.Second)
	o.Linger = cmp.Or(o.Linger, 5*time.Second)
	o.Check = cmp.Or(o.Check, 5*time.Second)
	o.Settle = cmp.Or(o.Settle, 5*time.Second)
	o.truncateBytes = cmp.Or(o.truncateBytes, truncateBytes)
	o.boot = cmp.Or(o.boot, bootID())
	o.Store.NoSync = o.Store.NoSync || o.boot != ""
	if o.Now == nil {
		o.Now = time.Now
	}
}

func (o Options) withDefaults() (Options, error) {
	o.defaults()
	switch {
	case o.JS == nil:
		return o, errors.New("replog: Options.JS is nil")
	case o.Cluster == "" || o.Incarnation == "" || o.Node == "" || o.Path == "":
		return o, errors.New("replog: Options.Cluster, Incarnation, Node and Path must be set")
	case o.Shard < 0:
		return o, fmt.Errorf("replog: shard %d", o.Shard)
	}
	most := int(o.JS.Conn().MaxPayload())
	if o.recordBytes == 0 {
		o.recordBytes = max(most-headroom, most/2)
	}
	if o.recordBytes < 1<<10 {
		return o, fmt.Errorf("replog: NATS takes messages of %d bytes: raise max_payload", most)
	}
	return o, nil
}
