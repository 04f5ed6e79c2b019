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

// Options say which log a [Replica] follows.
type Options struct {
	JS  jetstream.JetStream
	Log *slog.Logger // default: none

	Cluster     string // its name: letters, digits, "-" and "_"
	Incarnation string // made with the cluster: another one is another cluster
	Shard       int
	Node        string // what this node is called in epoch records

	// Path is the file of the replica, and Store what it is opened with.
	Path  string
	Store store.Options

	// Create makes the stream if there is none, and no file either.
	// It is for whoever makes a cluster: of one that exists, a stream that is missing
	// is lost.
	Create   bool
	Replicas int   // of the stream, and how many one that exists must have; default 3
	MaxBytes int64 // of a stream that is made; 0: any number

	// Snapshots is where replicas begin when their file is lost or the log has been cut;
	// see OpenSnapshots. An owner makes one when the log behind the newest is longer
	// than 256 MiB and what lives, or takes a third of what the stream may hold. Without
	// it the log is never cut.
	Snapshots jetstream.ObjectStore

	Beat       time.Duration // an idle owner writes so often; default 500 ms
	AckTimeout time.Duration // a record without an answer is looked for in the log; default 2 s
	Linger     time.Duration // how long Close of a Store waits for the stream; default 5 s
	Check      time.Duration // how often the stream is looked at; default 5 s
	Settle     time.Duration // how long a stream that ends before the file is looked at again; default 15 s

	// OnAppend is called for each record that an owner has written, when the log has it:
	// its bytes, and how long that took. It must not block. May be nil.
	OnAppend func(bytes int, took time.Duration)

	// Now is a clock that is monotonic. Default time.Now.
	Now func() time.Time

	recordBytes   int    // a record is no longer
	truncateBytes int64  // so much log there may be behind a snapshot
	boot          string // of the machine; "": not known, and the file is synced at each commit
}

// headroom is what of the largest message that NATS takes is left to its headers.
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
	o.Settle = cmp.Or(o.Settle, 15*time.Second)
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
