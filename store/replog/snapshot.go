package replog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storefile"
)

// The snapshots of all shards of a cluster are in one object store. A shard has two names
// there, <shard>/0 and <shard>/1, and a new snapshot replaces the older one. So the newest
// is always complete. The log is purged up to the older one, so that a replica can start from
// both. Each repair of the log leaves another one, <shard>/repair-<token>, until the log is
// purged behind it.
//
// A snapshot is a compacted copy of the file of a replica. Its position is in the metadata
// and, as in every replica, in the file.

// Snapshot is a copy of a shard from which a replica can start.
type Snapshot struct {
	Seq   uint64    // of the last applied record of the log
	Bytes int64     // of the file
	At    time.Time // by the server's clock
	name  string
	last  Mark // that record; only Seq is known of snapshots of older versions
}

// truncateBytes is the minimum length of the log behind the newest snapshot before the next
// one.
const truncateBytes = 256 << 20

// due reports whether a snapshot is due: the log behind the newest snapshot is longer than the
// live messages. A stream with a limit must hold two such stretches, and a third while a
// snapshot is made. The length of a stretch is estimated from the number of its records. If
// some records are much larger, a snapshot is due when the stream is two thirds full, and
// then another one, which allows to cut the log.
func due(st state, newest uint64, live, least int64) bool {
	if st.last <= newest || st.last < st.first {
		return false
	}
	records := st.last - st.first + 1
	behind := min(st.last-newest, records)
	size := int64(float64(st.bytes) * float64(behind) / float64(records))
	most := max(least, live)
	if third := st.most / 3; third > 0 {
		return st.bytes > 2*third || size > min(most, third)
	}
	return size > most
}

// snapshotsOf names the object store of a cluster.
func snapshotsOf(cluster string) string { return "FILA_" + cluster + "_SNAP" }

// OpenSnapshots opens the object store for the snapshots of a cluster, or creates it with the
// given number of replicas. It refuses one of another cluster.
func OpenSnapshots(ctx context.Context, js jetstream.JetStream, cluster, incarnation string, replicas int) (jetstream.ObjectStore, error) {
	bucket := snapshotsOf(cluster)
	want := map[string]string{metaCluster: cluster, metaIncarnation: incarnation}
	obs, err := js.ObjectStore(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		obs, err = js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: bucket, Description: "snapshots of the shards of fila", Replicas: replicas, Metadata: want,
		})
		if errors.Is(err, jetstream.ErrBucketExists) { // another node was faster
			obs, err = js.ObjectStore(ctx, bucket)
		}
	}
	var status jetstream.ObjectStoreStatus
	if err == nil {
		status, err = obs.Status(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("replog: object store %s: %w", bucket, beingMade(err))
	}
	for key, value := range want {
		if got := status.Metadata()[key]; got != value {
			return nil, fmt.Errorf("%w: object store %s has %s %q, not %q", ErrForeign, bucket, key, got, value)
		}
	}
	if status.Replicas() < replicas {
		return nil, fmt.Errorf("%w: object store %s has %d, at least %d are required", ErrReplicas, bucket, status.Replicas(), replicas)
	}
	s, err := js.Stream(ctx, "OBJ_"+bucket)
	if err != nil {
		return nil, fmt.Errorf("replog: object store %s: %w", bucket, beingMade(err))
	}
	switch c := &s.CachedInfo().Config; {
	case c.Storage != jetstream.FileStorage || c.PersistMode != jetstream.DefaultPersistMode:
		return nil, fmt.Errorf("%w: object store %s has its objects in memory, or acks before they are written", ErrForeign, bucket)
	case c.MaxAge != 0 || c.MaxMsgs > 0 || c.MaxMsgsPerSubject > 0 || c.Discard != jetstream.DiscardNew || c.Retention != jetstream.LimitsPolicy || c.AllowMsgTTL:
		return nil, fmt.Errorf("%w: object store %s removes objects: by age, number, TTL or interest, or to take new ones", ErrForeign, bucket)
	}
	return obs, nil
}

// Keys of the metadata of a snapshot, besides metaIncarnation.
const (
	metaSeq  = "fila_seq"
	metaLast = "fila_last" // the record metaSeq: its epoch, number and chain
)

// list returns the snapshots of a shard, the newest first.
func (o *Options) list(ctx context.Context) ([]Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	infos, err := o.Snapshots.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil, fmt.Errorf("replog: snapshots of shard %d: %w", o.Shard, err)
	}
	var all []Snapshot
	for _, info := range infos {
		if !strings.HasPrefix(info.Name, o.prefix()) {
			continue
		}
		s, err := o.snapshotOf(info)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Snapshot) int { return cmp.Compare(b.Seq, a.Seq) })
	return all, nil
}

func (o *Options) snapshotOf(info *jetstream.ObjectInfo) (Snapshot, error) {
	name := info.Name
	seq, err := strconv.ParseUint(info.Metadata[metaSeq], 10, 64)
	if err != nil || info.Metadata[metaIncarnation] != o.Incarnation {
		return Snapshot{}, fmt.Errorf("%w: snapshot %s is of incarnation %q and goes up to %q", ErrForeign, name, info.Metadata[metaIncarnation], info.Metadata[metaSeq])
	}
	s := Snapshot{Seq: seq, Bytes: int64(info.Size), At: info.ModTime, name: name, last: Mark{Seq: seq}}
	if last := info.Metadata[metaLast]; last != "" {
		if err := json.Unmarshal([]byte(last), &s.last); err != nil {
			return Snapshot{}, fmt.Errorf("replog: snapshot %s: its last record: %w", name, err)
		}
	}
	return s, nil
}

// usable returns the snapshots of the shard, the newest first, without those from before a loss
// that have records which the log lacks. st is the state of the stream; nil: usable reads it.
func (r *Replica) usable(ctx context.Context, st *state) ([]Snapshot, error) {
	all, err := r.o.list(ctx)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	if st == nil {
		now, err := r.j.state(ctx)
		if err != nil {
			return nil, err
		}
		st = &now
	}
	return slices.DeleteFunc(all, func(s Snapshot) bool {
		known := s.last.N > 0
		return s.Seq > st.last || known && errors.Is(r.compareAt(ctx, *st, s.last), ErrShorter)
	}), nil
}

// prefix begins the names of the snapshots of the shard.
func (o *Options) prefix() string { return strconv.Itoa(o.Shard) + "/" }

func (o *Options) slot(n int) string { return o.prefix() + strconv.Itoa(n) }

// repairs begins the names of the snapshots of repairs.
func (o *Options) repairs() string { return o.prefix() + "repair-" }

// free returns the name for the next snapshot: an unused one of the two, or the one of the older
// snapshot. have is sorted.
func (o *Options) free(have []Snapshot) string {
	oldest, at := "", -1
	for slot := range 2 {
		name := o.slot(slot)
		i := slices.IndexFunc(have, func(s Snapshot) bool { return s.name == name })
		if i < 0 {
			return name
		}
		if i > at {
			oldest, at = name, i
		}
	}
	return oldest
}

// upload puts a file into the object store.
func (o *Options) upload(ctx context.Context, path, name string, last Mark) (Snapshot, error) {
	f, err := os.Open(path)
	if err != nil {
		return Snapshot{}, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	record, err := json.Marshal(last)
	if err != nil {
		return Snapshot{}, err
	}
	info, err := o.Snapshots.Put(ctx, jetstream.ObjectMeta{
		Name: name, Metadata: map[string]string{metaSeq: strconv.FormatUint(last.Seq, 10), metaLast: string(record), metaIncarnation: o.Incarnation},
	}, &paced{r: f, pace: func() error { return o.pace(ctx) }, left: paceBytes})
	if err != nil {
		return Snapshot{}, err
	}
	return Snapshot{Seq: last.Seq, Bytes: int64(info.Size), At: info.ModTime, name: name, last: last}, nil
}

// paceBytes is how much of a snapshot is in flight. The client library sends 500 MB, which it
// keeps in memory, before it waits for the first answer. A server refuses data when more
// than 128 MB are not written yet.
const paceBytes = 8 << 20

// paced is a reader that calls pace after each paceBytes.
type paced struct {
	r    io.Reader
	pace func() error // called after each paceBytes
	left int
}

// Read implements io.Reader.
func (p *paced) Read(b []byte) (int, error) {
	if p.left <= 0 {
		if err := p.pace(); err != nil {
			return 0, err
		}
		p.left = paceBytes
	}
	n, err := p.r.Read(b)
	p.left -= n
	return n, err
}

// pace returns when the object store has the data that was sent before, because its stream has
// one order. It leaves one message there, which is not part of an object.
func (o *Options) pace(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, paceTimeout)
	defer cancel()
	bucket := snapshotsOf(o.Cluster)
	m := nats.NewMsg("$O." + bucket + ".C.pace." + strconv.Itoa(o.Shard))
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	_, err := o.JS.PublishMsg(ctx, m, jetstream.WithExpectStream("OBJ_"+bucket))
	return err
}

// paceTimeout bounds the time of paceBytes.
const paceTimeout = time.Minute

// Snapshots returns the snapshots of the shard, the newest first.
func (r *Replica) Snapshots(ctx context.Context) ([]Snapshot, error) {
	if r.o.Snapshots == nil {
		return nil, nil
	}
	return r.usable(ctx, nil)
}

// Snapshot puts a compacted copy of the replica into the object store, and purges the log up
// to the previous snapshot. An owner calls it by itself, see [Options]. One call runs at a
// time. It needs twice the space of the file on disk.
func (r *Replica) Snapshot(ctx context.Context) (Snapshot, error) {
	r.snapshotting.Lock()
	defer r.snapshotting.Unlock()
	if r.o.Snapshots == nil {
		return Snapshot{}, errors.New("replog: there is no object store for snapshots")
	}
	have, err := r.usable(ctx, nil)
	if err != nil {
		return Snapshot{}, err
	}
	tmp := r.o.Path + ".snapshot"
	p, err := r.copyTo(ctx, tmp)
	defer os.Remove(tmp) //nolint:errcheck // the next one removes it, too
	if err != nil {
		return Snapshot{}, fmt.Errorf("replog: snapshot of shard %d: %w", r.o.Shard, err)
	}
	if len(have) > 0 && have[0].Seq >= p.seq {
		return have[0], nil
	}
	made, err := r.o.upload(ctx, tmp, r.o.free(have), p.mark())
	if err != nil {
		return Snapshot{}, fmt.Errorf("replog: snapshot of shard %d: %w", r.o.Shard, err)
	}
	r.mu.Lock()
	r.mu.newest = &made
	r.mu.Unlock()
	r.o.Log.Info("replog: a snapshot was made", "shard", r.o.Shard, "seq", made.Seq, "bytes", made.Bytes)
	if len(have) == 0 {
		return made, nil
	}
	// The newest of the earlier snapshots is the older one now.
	if err := r.j.purge(ctx, have[0].Seq+1); err != nil {
		return made, fmt.Errorf("replog: the log of shard %d is not cut: %w", r.o.Shard, err)
	}
	return made, r.o.dropRepairs(ctx, have[0].Seq)
}

// dropRepairs deletes the snapshots of repairs, also of interrupted ones, that are older than the
// snapshot behind which the log was cut.
func (o *Options) dropRepairs(ctx context.Context, cut uint64) error {
	all, err := o.list(ctx)
	for _, s := range all {
		if s.Seq < cut && strings.HasPrefix(s.name, o.repairs()) {
			err = errors.Join(err, o.Snapshots.Delete(ctx, s.name))
		}
	}
	return err
}

// copyTo makes a compacted copy of the file and returns its position.
func (r *Replica) copyTo(ctx context.Context, path string) (position, error) {
	if err := remove(path); err != nil {
		return position{}, err
	}
	r.mu.Lock()
	file := r.mu.file
	r.mu.Unlock()
	if file == nil {
		return position{}, errors.New("its file is not open")
	}
	if _, err := file.BackupTo(ctx, path); err != nil {
		return position{}, err
	}
	return compacted(path, r.o.Store)
}

// compacted compacts a copy and returns its position.
func compacted(path string, o store.Options) (position, error) {
	if _, err := store.CompactFile(path, "", o); err != nil {
		return position{}, err
	}
	raw, err := positionOf(path, o)
	if err != nil {
		return position{}, err
	}
	return decodePosition(raw)
}

// restore replaces the file, which is not open, by the newest readable snapshot, if that is
// newer than the position of the file.
func (r *Replica) restore(ctx context.Context, st state, have *position) (done bool, err error) {
	if r.o.Snapshots == nil {
		return false, nil
	}
	all, err := r.usable(ctx, &st)
	if err != nil {
		return false, err
	}
	var failed error
	for _, s := range all {
		if have != nil && s.Seq <= have.seq {
			break
		}
		if err := r.adopt(ctx, s); err != nil {
			r.o.Log.Warn("replog: a snapshot cannot be read", "shard", r.o.Shard, "seq", s.Seq, "error", err)
			failed = errors.Join(failed, err)
			continue
		}
		return true, nil
	}
	return false, failed
}

// adopt replaces the file, which is not open, by a snapshot.
func (r *Replica) adopt(ctx context.Context, s Snapshot) error {
	r.o.Log.Info("replog: starting from a snapshot", "shard", r.o.Shard, "seq", s.Seq, "bytes", s.Bytes)
	tmp := r.o.Path + ".restore"
	defer os.Remove(tmp) //nolint:errcheck // after a rename it is gone already
	err := r.download(ctx, s, tmp)
	if err == nil {
		err = os.Rename(tmp, r.o.Path)
	}
	if err == nil {
		err = storefile.SyncDir(filepath.Dir(r.o.Path))
	}
	if err != nil {
		return fmt.Errorf("replog: snapshot %s: %w", s.name, err)
	}
	return nil
}

// A download may take downloadTimeout plus a second per downloadRate bytes. Without a deadline
// JetStream allows five seconds, whatever its size.
const (
	downloadTimeout = 30 * time.Second
	downloadRate    = 1 << 20
)

// download writes a snapshot into a new file; its digest is checked on the way.
func (r *Replica) download(ctx context.Context, s Snapshot, path string) error {
	reading, cancel := context.WithTimeout(ctx, downloadTimeout+time.Duration(s.Bytes/downloadRate)*time.Second)
	defer cancel()
	object, err := r.o.Snapshots.Get(reading, s.name)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return errors.Join(err, object.Close())
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(f, object)
		if err == nil {
			err = f.Sync()
		}
		copied <- errors.Join(err, f.Close(), object.Close())
	}()
	select {
	case err = <-copied:
	case <-ctx.Done(): // a read ends with its deadline, not with its context
		err = ctx.Err()
	}
	return err
}

// seedSeq is the position of the snapshot of a seed. The log starts behind it, like a log that
// was cut, so no replica can start without the snapshot.
const seedSeq = 1

// Seed makes the first snapshot of a new log from a file: the store of a node without a
// cluster, or a replica of another incarnation. It only reads the file, which no process may
// serve. At the end it creates the stream; then replicas start from the snapshot. After an
// error [Discard] removes what Seed created.
func Seed(ctx context.Context, o Options, path string) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	if o.Snapshots == nil {
		return errors.New("replog: there is no object store for snapshots")
	}
	j := o.journal()
	if _, err := j.state(ctx); !errors.Is(err, ErrGone) {
		if err == nil {
			err = fmt.Errorf("%w: stream %s is there already", ErrForeign, j.name)
		}
		return err
	}
	have, err := o.list(ctx)
	if err != nil {
		return err
	}
	if len(have) > 0 && have[0].Seq > seedSeq {
		return fmt.Errorf("%w: there is a snapshot of shard %d up to %d, and no stream", ErrForeign, o.Shard, have[0].Seq)
	}
	tmp := o.Path + ".seed"
	defer os.Remove(tmp) //nolint:errcheck // the next one removes it, too
	if err := o.seed(ctx, path, tmp); err != nil {
		return fmt.Errorf("replog: seed of shard %d from %s: %w", o.Shard, path, err)
	}
	if _, err = j.create(ctx, seedSeq+1); err != nil {
		return fmt.Errorf("replog: stream %s: %w", j.name, err)
	}
	return nil
}

func (o *Options) seed(ctx context.Context, path, tmp string) error {
	if err := remove(tmp); err != nil {
		return err
	}
	f, err := store.OpenFile(path, o.Store)
	if err != nil {
		return err
	}
	_, err = f.BackupTo(ctx, tmp)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := o.place(tmp, position{seq: seedSeq, incarnation: o.Incarnation, shard: o.Shard}); err != nil {
		return err
	}
	_, err = o.upload(ctx, tmp, o.slot(0), Mark{Seq: seedSeq})
	return err
}

// remove removes a file if it exists.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
