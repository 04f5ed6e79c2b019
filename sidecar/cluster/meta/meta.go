package meta

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/filaq/fila/sidecar/cluster/ownership"
	"github.com/filaq/fila/wire"
)

// ErrUnusable is returned by Open if waiting does not help.
var ErrUnusable = errors.New("the cluster cannot be used")

const (
	// safeReplicas survive the loss of one server.
	safeReplicas = 3
	// apiLevel is the API level of servers with atomic batches, from version 2.12.
	apiLevel = 2
	// requestTimeout bounds one request. An election takes longer, and is retried.
	requestTimeout = 5 * time.Second
	// askAgain is the wait between attempts while JetStream is not ready.
	askAgain = 250 * time.Millisecond
	// reportEvery is how often the log says what Open waits for.
	reportEvery = 10 * time.Second
	// markTTL is how long the server keeps the marker of a deletion.
	markTTL = 7 * 24 * time.Hour
	// closeTimeout bounds the wait for running writes at the end.
	closeTimeout = 5 * time.Second
	// format is the format of the cluster's record.
	format = 1

	ownerKey = "fila_cluster" // stream metadata with the name of the cluster
)

// Options of a [Meta].
type Options struct {
	Log  *slog.Logger
	Conn *nats.Conn

	Cluster     string   // letters, digits, _ and -
	Shards      int      // of a new cluster; an existing one must have as many
	Replicas    int      // of a new bucket
	AllowR1     bool     // fewer than three replicas are acceptable
	AllowNATS   []string // versions before ownership.MinVersion that are acceptable
	Incarnation string   // of the data of this node; empty: it has none

	checkEvery time.Duration // of tests
}

// record is the record of a cluster.
type record struct {
	Format      int       `json:"v"`
	Incarnation string    `json:"incarnation"`
	Shards      int       `json:"shards"`
	Secret      []byte    `json:"secret"`
	Created     time.Time `json:"created"`

	Making string `json:"making,omitempty"` // the command that fills the cluster, until it is done
	Before string `json:"before,omitempty"` // the incarnation that is being replaced, while Making
}

// Meta is the shared data of a cluster. Its methods may be called from any goroutine.
type Meta struct {
	opt    Options
	look   bool // do not create anything
	js     jetstream.JetStream
	leader nats.JetStreamContext // for reads from the leader; jetstream reads from any replica
	bucket string
	what   record // set by Open

	checkEvery time.Duration
	doubt      time.Time // since when the leader lacks an entry of the sample; zero: it does not. Only follow uses it

	ctx    context.Context // canceled by Close
	cancel context.CancelFunc
	first  chan struct{} // closed when everything has been read once
	failed chan struct{}
	wake   chan struct{} // there are changes for Watch
	work   chan struct{} // there are writes, or Close was called
	ended  sync.WaitGroup
	writer chan struct{} // closed when the writer has ended

	mu struct {
		sync.Mutex
		entries map[string]entry  // by key of the bucket, with markers of deletions
		memory  map[string][]byte // entries of Keep
		sample  []known           // see checkSample
		pending map[string]int    // running writes per key
		news    map[string]bool   // keys of control that may have changed
		told    func(keys []string)
		moved   chan struct{} // closed and replaced when an entry changes
		writes  []write
		closed  bool
		err     error
	}
}

// entry is the value of a key of the bucket.
type entry struct {
	value []byte // nil: deleted
	rev   uint64
	at    time.Time // time of the server, or of this host if local
	local bool      // an own write that the watch has not brought yet
}

// Bucket returns the name of a cluster's bucket.
func Bucket(cluster string) string { return "FILA_" + cluster + "_META" }

// streamName returns the name of the stream of the bucket.
func (m *Meta) streamName() string { return "KV_" + m.bucket }

// Open joins a cluster, or creates it if there is none of that name. It waits for JetStream until
// ctx ends and logs what it waits for. Errors that waiting does not mend wrap [ErrUnusable] and
// are one line with a remedy.
func Open(ctx context.Context, o Options) (*Meta, error) {
	m, err := open(ctx, o, false)
	if err != nil {
		return nil, err
	}
	if err := m.join(ctx); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// open finds the bucket, or creates it unless look is set, and reads it.
func open(ctx context.Context, o Options, look bool) (*Meta, error) {
	js, err := jetstream.New(o.Conn)
	if err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	leader, err := o.Conn.JetStream()
	if err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	m := &Meta{
		opt: o, look: look, js: js, leader: leader, checkEvery: cmp.Or(o.checkEvery, checkEvery), bucket: Bucket(o.Cluster),
		first: make(chan struct{}), failed: make(chan struct{}), writer: make(chan struct{}),
		wake: make(chan struct{}, 1), work: make(chan struct{}, 1),
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.mu.entries, m.mu.pending, m.mu.news = make(map[string]entry), make(map[string]int), make(map[string]bool)
	m.mu.moved, m.mu.memory = make(chan struct{}), make(map[string][]byte)
	if err := m.ready(ctx); err != nil {
		m.cancel()
		return nil, err
	}
	m.ended.Go(m.follow)
	m.ended.Go(m.tell)
	go m.write()
	select {
	case <-m.first:
		return m, nil
	case <-ctx.Done():
		m.Close()
		return nil, fmt.Errorf("cluster %s: the bucket %s cannot be read: %w", o.Cluster, m.bucket, ctx.Err())
	}
}

// ready retries prepare until it succeeds.
func (m *Meta) ready(ctx context.Context) error {
	var reported time.Time
	for {
		err := m.prepare(ctx)
		if err == nil || errors.Is(err, ErrUnusable) {
			return err
		}
		if time.Since(reported) > reportEvery {
			reported = time.Now()
			m.opt.Log.Info("waiting for JetStream", "cluster", m.opt.Cluster, "error", err)
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return fmt.Errorf("cluster %s: JetStream is not ready: %w", m.opt.Cluster, cmp.Or(err, ctx.Err()))
		}
	}
}

// prepare finds or creates the bucket.
func (m *Meta) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if v := m.opt.Conn.ConnectedServerVersion(); v != "" && !ownership.VersionOK(v, m.opt.AllowNATS) {
		return m.unusable("the NATS server %s (%s) has version %s, which can lose confirmed messages; upgrade it to %s or newer, or set cluster.allow_nats = [%q]",
			m.opt.Conn.ConnectedServerName(), m.opt.Conn.ConnectedUrlRedacted(), v, ownership.MinVersion, v)
	}
	info, err := m.js.AccountInfo(ctx)
	if err != nil {
		return m.explain(err)
	}
	if info.API.Level < apiLevel {
		return m.unusable("JetStream at %s is of a server before 2.12, which a cluster needs", m.opt.Conn.ConnectedUrlRedacted())
	}
	name := m.streamName()
	s, err := m.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) && m.look {
		return m.none()
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = m.js.CreateStream(ctx, m.config(name))
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			s, err = m.js.Stream(ctx, name)
		}
	}
	if err != nil {
		return m.explain(err)
	}
	return m.check(s.CachedInfo().Config)
}

// config returns the configuration of a bucket with atomic batches and expiring markers.
func (m *Meta) config(name string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Description: "what a cluster of filas has to know", Subjects: []string{m.subject(">")},
		Storage: jetstream.FileStorage, Replicas: m.opt.Replicas, Discard: jetstream.DiscardNew,
		MaxMsgsPerSubject: 1, MaxMsgs: -1, MaxBytes: -1, AllowDirect: true, DenyDelete: true, AllowRollup: true,
		AllowMsgTTL: true, AllowAtomicPublish: true,
		Metadata: map[string]string{ownerKey: m.opt.Cluster},
	}
}

// check refuses an existing bucket that the cluster cannot use.
func (m *Meta) check(have jetstream.StreamConfig) error {
	switch {
	case have.Metadata[ownerKey] != m.opt.Cluster:
		return m.unusable("the bucket %s is there, and was not made by a cluster of this name; give this one another cluster.name, or delete the bucket", m.bucket)
	case !have.AllowAtomicPublish || !have.AllowMsgTTL || have.MaxMsgsPerSubject != 1:
		return m.unusable("the stream of the bucket %s was changed: it needs allow_atomic, allow_msg_ttl and max_msgs_per_subject = 1", m.bucket)
	case have.MaxAge != 0 || have.MaxMsgs > 0 || have.Discard != jetstream.DiscardNew || have.Retention != jetstream.LimitsPolicy:
		return m.unusable("the stream of the bucket %s was changed: it removes entries, by age, number or interest, or to take new ones; it needs max_age = 0, max_msgs = -1, discard = new and retention = limits", m.bucket)
	case have.Mirror != nil || len(have.Sources) > 0 || have.SubjectTransform != nil || have.NoAck || have.Sealed || have.PersistMode != jetstream.DefaultPersistMode:
		return m.unusable("the stream of the bucket %s was changed: it has a mirror, a source, a transform, no acks, a seal, or acks before entries are written (persist_mode)", m.bucket)
	case have.Replicas < safeReplicas && !m.opt.AllowR1:
		return m.unusable("the bucket %s has %d replica(s), so the loss of a server can lose the cluster; give its stream three, or set cluster.allow_r1 = true", m.bucket, have.Replicas)
	case have.Storage != jetstream.FileStorage:
		return m.unusable("the bucket %s is in memory alone; it needs file storage", m.bucket)
	}
	if have.Replicas != m.opt.Replicas {
		m.opt.Log.Warn("the bucket of the cluster has another number of replicas than cluster.replicas; fila does not change it",
			"bucket", m.bucket, "replicas", have.Replicas, "configured", m.opt.Replicas)
	}
	return nil
}

func (m *Meta) unusable(format string, args ...any) error {
	return fmt.Errorf("%w: cluster %s: %s", ErrUnusable, m.opt.Cluster, fmt.Sprintf(format, args...))
}

// Error codes of JetStream.
const (
	codeReplicas = 10074 // the server is in no NATS cluster
	codeOverlap  = 10065
)

// explain turns errors that waiting does not mend into ErrUnusable.
func (m *Meta) explain(err error) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount),
		errors.Is(err, nats.ErrNoResponders):
		return m.unusable("the NATS server at %s has no JetStream for this account; enable it there (nats.embedded.jetstream = true for the embedded server)",
			m.opt.Conn.ConnectedUrlRedacted())
	case errors.Is(err, context.DeadlineExceeded) && errors.Is(m.opt.Conn.LastError(), nats.ErrPermissionViolation):
		return m.unusable("NATS refuses fila's user: %v (docs/security.md has the permissions)", m.opt.Conn.LastError())
	case errors.As(err, &api) && api.ErrorCode == codeReplicas:
		return m.unusable("the NATS server at %s is in no NATS cluster, so it cannot keep %d replicas; give it two others, or set cluster.replicas = 1 and cluster.allow_r1 = true",
			m.opt.Conn.ConnectedUrlRedacted(), m.opt.Replicas)
	case errors.As(err, &api) && api.ErrorCode == codeOverlap:
		return m.unusable("another stream has the subjects %s", m.subject(">"))
	}
	return err
}

// join reads the record of the cluster, or writes it if there is none.
func (m *Meta) join(ctx context.Context) error {
	for {
		m.mu.Lock()
		e, moved := m.mu.entries[clusterKey], m.mu.moved
		m.mu.Unlock()
		if e.value != nil {
			r, err := m.understand(e.value)
			switch {
			case err != nil:
				return err
			case r.Making != "":
				return m.unusable("`%s` is under way or was interrupted; call it again, and start the nodes when it is done", r.Making)
			}
			m.know(r)
			return nil
		}
		err := <-m.submit(ctx, []put{swap(clusterKey, nil, newRecord(m.opt.Shards).encode())})
		if err == nil {
			m.opt.Log.Info("the cluster has been made", "cluster", m.opt.Cluster, "shards", m.opt.Shards)
			continue
		}
		if err := m.again(ctx, err, moved); err != nil {
			return fmt.Errorf("cluster %s: %w", m.opt.Cluster, err)
		}
	}
}

// know sets the record of the cluster.
func (m *Meta) know(r record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.what = r
}

func newRecord(shards int) record {
	return record{Format: format, Incarnation: rand.Text(), Shards: shards, Secret: NewSecret(), Created: time.Now().UTC()}
}

// NewSecret returns a new secret for signing acks.
func NewSecret() []byte {
	secret := make([]byte, wire.SignerKeyLen)
	_, _ = rand.Read(secret) // never fails
	return secret
}

func (r record) encode() []byte {
	text, err := json.Marshal(r)
	if err != nil {
		panic("meta: " + err.Error())
	}
	return text
}

// understand decodes and checks the record of the cluster.
func (m *Meta) understand(text []byte) (r record, err error) {
	err = json.Unmarshal(text, &r)
	switch {
	case err == nil && r.Format > format:
		return r, m.unusable("it is of a newer fila (format %d, this one knows %d)", r.Format, format)
	case err != nil || r.Incarnation == "" || r.Shards < 1 || len(r.Secret) != wire.SignerKeyLen:
		return r, m.unusable("its entry in the bucket %s cannot be read", m.bucket)
	case r.Shards != m.opt.Shards:
		return r, m.unusable("it has %d shards and cluster.shards = %d: the number is fixed when a cluster is made", r.Shards, m.opt.Shards)
	case m.opt.Incarnation != "" && m.opt.Incarnation != r.Incarnation:
		return r, m.unusable("it was created again (incarnation %s), and this node has data of incarnation %s; move its data_dir away to join with an empty one", r.Incarnation, m.opt.Incarnation)
	}
	return r, nil
}

// Secret returns the secret that signs acks at all nodes.
func (m *Meta) Secret() []byte { return m.what.Secret }

// Incarnation distinguishes the cluster from a later one of the same name.
func (m *Meta) Incarnation() string { return m.what.Incarnation }

// Shards returns the number of shards.
func (m *Meta) Shards() int { return m.what.Shards }

// Failed is closed when the cluster is not the one any more that Open has joined.
func (m *Meta) Failed() <-chan struct{} { return m.failed }

// Err returns the reason once Failed is closed.
func (m *Meta) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.err
}

// fail closes failed. Its caller holds mu.
func (m *Meta) fail(err error) {
	if m.mu.err == nil {
		m.mu.err = err
		close(m.failed)
	}
}

// Close waits for running writes, up to a limit, and stops everything that Open started. The
// connection stays open.
func (m *Meta) Close() {
	m.mu.Lock()
	m.mu.closed = true
	m.mu.Unlock()
	poke(m.work)
	late := time.AfterFunc(closeTimeout, m.cancel)
	<-m.writer
	late.Stop()
	m.cancel()
	m.ended.Wait()
}
