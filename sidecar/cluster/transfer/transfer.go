package transfer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/filaq/fila/sidecar/cluster"
	"github.com/filaq/fila/sidecar/cluster/meta"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/replog"
)

// Options describe the cluster.
type Options struct {
	Log  *slog.Logger
	Conn *nats.Conn

	Cluster   string
	Shards    int
	Replicas  int
	AllowR1   bool
	AllowNATS []string
	LogBytes  int64

	// Listen is how long to listen for nodes that still run; 0 is long enough.
	Listen time.Duration

	// Dir is a temporary directory, which is created and removed.
	Dir string

	// Store are the options of all files; Log is the Logger.
	Store store.Options
}

// Moved counts converted records.
type Moved struct {
	Queues    int64 `json:"queues"`
	Messages  int64 `json:"messages"`
	Consumers int64 `json:"consumers"`
	DedupeIDs int64 `json:"dedupe_ids"`
	Entries   int64 `json:"entries"` // of configuration, pauses, overrides, audit log
}

// ErrRuns is returned while nodes of the cluster run.
var ErrRuns = errors.New("the cluster runs")

// Names of the commands, as the cluster records them while they run.
const (
	byImport  = "fila cluster import"
	byRebuild = "fila cluster rebuild"
)

func (o *Options) meta() meta.Options {
	return meta.Options{
		Log: o.Log, Conn: o.Conn, Cluster: o.Cluster, Shards: o.Shards, Replicas: o.Replicas, AllowR1: o.AllowR1, AllowNATS: o.AllowNATS,
	}
}

func (o *Options) store() store.Options {
	st := o.Store
	st.Logger = o.Log
	return st
}

// replica returns the options of a shard's copy at path.
func (o *Options) replica(js jetstream.JetStream, snapshots jetstream.ObjectStore, incarnation string, shard int, path string) replog.Options {
	return replog.Options{
		JS: js, Log: o.Log, Cluster: o.Cluster, Incarnation: incarnation, Shard: shard, Node: "transfer",
		Path: path, Store: o.store(), Replicas: o.Replicas, MaxBytes: o.LogBytes, Snapshots: snapshots,
	}
}

func (o *Options) file(shard int) string { return filepath.Join(o.Dir, strconv.Itoa(shard)+".db") }

// nobody returns an error if nodes run.
func (o *Options) nobody(ctx context.Context) error {
	nodes, err := cluster.Present(ctx, o.Conn, o.Cluster, o.Listen)
	if err == nil && len(nodes) > 0 {
		err = fmt.Errorf("%w: stop all nodes of cluster %s first; those that are there: %s", ErrRuns, o.Cluster, strings.Join(nodes, ", "))
	}
	return err
}

// again is the wait after an attempt while JetStream is not ready.
const again = 250 * time.Millisecond

// patiently retries until JetStream is ready. A request without permission gets no answer either:
// then it returns the refusal as an error.
func (o *Options) patiently(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil || !replog.Busy(err) {
			return err
		}
		if refused := o.Conn.LastError(); errors.Is(refused, nats.ErrPermissionViolation) {
			return fmt.Errorf("NATS refuses the user of the configuration what this needs: %w", refused)
		}
		if ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return err
		}
	}
}

// fill makes the logs of a cluster from one file per shard and lets nodes join. It first deletes
// the logs of the incarnations, including the cluster's own.
func (o *Options) fill(ctx context.Context, m *meta.Meta, files []string, incarnations ...string) error {
	js, err := jetstream.New(o.Conn)
	if err != nil {
		return err
	}
	err = o.patiently(ctx, func() error { return replog.Discard(ctx, js, o.Cluster, m.Shards(), incarnations...) })
	if err != nil {
		return err
	}
	var snapshots jetstream.ObjectStore
	err = o.patiently(ctx, func() (err error) {
		snapshots, err = replog.OpenSnapshots(ctx, js, o.Cluster, m.Incarnation(), o.Replicas)
		return err
	})
	if err != nil {
		return err
	}
	for shard, path := range files {
		r := o.replica(js, snapshots, m.Incarnation(), shard, o.file(shard))
		err := o.patiently(ctx, func() error {
			err := replog.Seed(ctx, r, path)
			if err == nil || !replog.Busy(err) {
				return err
			}
			// The stream may or may not have been made.
			return errors.Join(err, replog.DiscardLog(ctx, r))
		})
		if err != nil {
			return err
		}
		o.Log.Info("the log of a shard begins", "cluster", o.Cluster, "shard", shard)
	}
	return m.Finish(ctx)
}

// Limits of a batch.
const (
	batchRecords = 4096
	batchBytes   = 4 << 20
)

// filler adds messages and dedupe ids to a new store in batches.
type filler struct {
	b     *store.Builder
	batch store.Batch
	size  int
}

func (f *filler) message(m *store.Message, st *store.State, history [][]byte) error {
	c := *m // headers and payload are valid during the call only
	c.Headers, c.Payload = append([]byte(nil), m.Headers...), append([]byte(nil), m.Payload...)
	f.batch.Add = append(f.batch.Add, c)
	if st != nil {
		f.batch.State = append(f.batch.State, *st)
	}
	for _, record := range history {
		f.batch.History = append(f.batch.History, store.Attempt{Ref: m.Ref, Record: append([]byte(nil), record...)})
	}
	f.size += len(c.Headers) + len(c.Payload)
	return f.full()
}

func (f *filler) dedupe(d store.Dedupe) error {
	f.batch.Dedupe = append(f.batch.Dedupe, d)
	return f.full()
}

func (f *filler) full() error {
	if len(f.batch.Add)+len(f.batch.Dedupe) < batchRecords && f.size < batchBytes {
		return nil
	}
	return f.flush()
}

func (f *filler) flush() error {
	batch := f.batch
	f.batch, f.size = store.Batch{}, 0
	return f.b.Add(&batch)
}

// makeDir creates the temporary directory.
func (o *Options) makeDir() error { return os.MkdirAll(o.Dir, 0o750) }
