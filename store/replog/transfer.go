package replog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/filaq/fila/store/storefile"
)

// Copy is the position of the file of a replica.
type Copy struct {
	Incarnation string
	Shard       int
	Mark
}

// Mark is a record of a log.
type Mark struct {
	Epoch uint64 `json:"epoch"`
	N     uint64 `json:"n"`               // within the epoch
	Seq   uint64 `json:"seq"`             // in the stream
	Chain uint64 `json:"chain,omitempty"` // hash over the record and all before; 0: not known
}

func (p position) mark() Mark { return Mark{p.at.epoch, p.at.n, p.seq, p.at.chain} }

// CopyOf reads the position of a file; ok is false if it is no replica.
func CopyOf(f *storefile.File) (c Copy, ok bool, err error) {
	raw, err := f.Position()
	if err != nil || raw == nil {
		return c, false, err
	}
	p, err := decodePosition(raw)
	return Copy{p.incarnation, p.shard, p.mark()}, err == nil, err
}

// Compare orders records of one log by progress. A later epoch is larger, since its owner had
// everything that was confirmed before.
func (m Mark) Compare(o Mark) int {
	return cmp.Or(cmp.Compare(m.Epoch, o.Epoch), cmp.Compare(m.N, o.N), cmp.Compare(m.Seq, o.Seq))
}

// Discard deletes the logs and snapshots of a cluster if all of them are of one of the
// incarnations, and nothing otherwise. Absent ones are no error.
func Discard(ctx context.Context, js jetstream.JetStream, cluster string, shards int, incarnations ...string) error {
	snapshots := "OBJ_" + snapshotsOf(cluster)
	names := []string{snapshots}
	for s := range shards {
		names = append(names, streamOf(cluster, s))
	}
	var there []string
	for _, name := range names {
		s, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("replog: stream %s: %w", name, err)
		}
		md := s.CachedInfo().Config.Metadata
		if md[metaCluster] != cluster || !slices.Contains(incarnations, md[metaIncarnation]) {
			return fmt.Errorf("%w: stream %s is of incarnation %q of cluster %q", ErrForeign, name, md[metaIncarnation], md[metaCluster])
		}
		there = append(there, name)
	}
	for _, name := range there {
		if err := js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("replog: deleting stream %s: %w", name, err)
		}
	}
	return nil
}

// DiscardLog deletes the log of the options, if it exists and belongs to their cluster.
func DiscardLog(ctx context.Context, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	if _, err := o.journal().open(ctx, false); errors.Is(err, ErrGone) {
		return nil
	} else if err != nil {
		return err
	}
	return o.JS.DeleteStream(ctx, streamOf(o.Cluster, o.Shard))
}

// Busy reports whether a retry of a request to JetStream may succeed: it may have no leader at
// the moment, or not all servers yet.
func Busy(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, errBeingMade) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, nats.ErrDisconnected) || errors.As(err, &api) && (api.Code >= 500 || api.Code == http.StatusTooManyRequests)
}
