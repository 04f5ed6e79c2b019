package replog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// journal is the interface to the stream of a log. Its methods are safe for concurrent use
// and end with their context.
type journal interface {
	// append writes a record behind a sequence and returns its own. errMoved, errRefused and
	// errNobody mean that it was not written; after other errors it may have been.
	append(ctx context.Context, record []byte, behind uint64) (seq uint64, err error)
	// state returns the state of the stream, from its leader.
	state(ctx context.Context) (state, error)
	// get reads a record from the leader of the stream. Other replicas may lack it for a
	// moment, and after the stream has lost records they may have another one.
	get(ctx context.Context, seq uint64) ([]byte, error)
	// getNear reads a record from any replica, preferably at the connected server.
	getNear(ctx context.Context, seq uint64) ([]byte, error)
	// follow calls fn with the records from a sequence on, in order, until stop is called
	// or ended returns an error. A record may come twice.
	follow(ctx context.Context, from uint64, fn func(entry)) (stop func(), ended <-chan error, err error)
	// purge removes the records below a sequence.
	purge(ctx context.Context, below uint64) error
}

// entry is a received record.
type entry struct {
	seq    uint64
	record []byte
	behind uint64 // records that follow it in the stream
	at     time.Time
}

// state is the state of a stream.
type state struct {
	first, last uint64
	bytes, most int64 // size and limit; most 0: no limit
	created     time.Time
}

var (
	errMoved   = errors.New("the log has another end")
	errRefused = errors.New("the stream takes no record")
	errNobody  = errors.New("the stream has no leader")
)

// streamOf and subjectOf return names in JetStream. The name of a cluster consists of
// letters, digits, "-" and "_".
func streamOf(cluster string, shard int) string {
	return "FILA_" + cluster + "_LOG_" + strconv.Itoa(shard)
}

func subjectOf(cluster string, shard int) string {
	return "fila_log." + cluster + "." + strconv.Itoa(shard)
}

// Keys of a stream's metadata.
const (
	metaCluster     = "fila_cluster"
	metaIncarnation = "fila_incarnation"
	metaShard       = "fila_shard"
)

// streamJournal is the journal of a JetStream stream.
type streamJournal struct {
	o       *Options
	name    string
	subject string
	stream  atomic.Pointer[jetstream.Stream] // for getNear, which needs nothing of it that changes
}

func (o *Options) journal() *streamJournal {
	return &streamJournal{o: o, name: streamOf(o.Cluster, o.Shard), subject: subjectOf(o.Cluster, o.Shard)}
}

func (j *streamJournal) metadata() map[string]string {
	return map[string]string{metaCluster: j.o.Cluster, metaIncarnation: j.o.Incarnation, metaShard: strconv.Itoa(j.o.Shard)}
}

// open finds or creates the stream, and refuses one that is not suitable for a log.
func (j *streamJournal) open(ctx context.Context, create bool) (state, error) {
	s, err := j.o.JS.Stream(ctx, j.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) && create {
		s, err = j.create(ctx, 0)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another node was faster
			s, err = j.o.JS.Stream(ctx, j.name)
			err = beingMade(err)
		}
	}
	switch {
	case errors.Is(err, errBeingMade):
		return state{}, fmt.Errorf("replog: stream %s: %w", j.name, err)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return state{}, fmt.Errorf("%w: %s", ErrGone, j.name)
	case err != nil:
		return state{}, fmt.Errorf("replog: stream %s: %w", j.name, err)
	}
	info := s.CachedInfo()
	return stateOf(info), j.check(&info.Config)
}

// errBeingMade means that another node is creating the stream or bucket: it was seen, but
// another server may not know it yet.
var errBeingMade = errors.New("it is being made")

// beingMade marks a not-found error of something that another node created.
func beingMade(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrBucketNotFound) {
		return fmt.Errorf("%w: %w", errBeingMade, err)
	}
	return err
}

// create creates the stream. first is the sequence of its first record, 0 for 1.
func (j *streamJournal) create(ctx context.Context, first uint64) (jetstream.Stream, error) {
	return j.o.JS.CreateStream(ctx, jetstream.StreamConfig{
		Name: j.name, Subjects: []string{j.subject}, Description: "commit log of a shard of fila; only fila may write here",
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, Storage: jetstream.FileStorage, FirstSeq: first,
		MaxBytes: j.o.MaxBytes, Replicas: j.o.Replicas, AllowDirect: true, DenyDelete: true, Metadata: j.metadata(),
	})
}

// check refuses a stream of another owner, and one that drops or changes records.
func (j *streamJournal) check(c *jetstream.StreamConfig) error {
	for key, want := range j.metadata() {
		if got := c.Metadata[key]; got != want {
			return fmt.Errorf("%w: stream %s has %s %q, not %q", ErrForeign, j.name, key, got, want)
		}
	}
	var wrong string
	switch {
	case len(c.Subjects) != 1 || c.Subjects[0] != j.subject:
		wrong = "other subjects than " + j.subject
	case c.Retention != jetstream.LimitsPolicy || c.Discard != jetstream.DiscardNew:
		wrong = "another retention than limits, or does not discard new messages when it is full"
	case c.Storage != jetstream.FileStorage:
		wrong = "its messages in memory"
	case c.MaxAge != 0 || c.MaxMsgs > 0 || c.MaxMsgsPerSubject > 0 || c.MaxMsgSize > 0:
		wrong = "a limit by age, number or size of messages"
	case c.AllowRollup || c.AllowMsgTTL:
		wrong = "messages that expire or remove others (allow_msg_ttl or allow_rollup_hdrs)"
	case c.PersistMode != jetstream.DefaultPersistMode:
		wrong = "acks before messages are written (persist_mode)"
	case c.Mirror != nil || len(c.Sources) > 0 || c.SubjectTransform != nil || c.NoAck || c.Sealed:
		wrong = "a source, a mirror, a transform, no acks or a seal"
	}
	if wrong != "" {
		return fmt.Errorf("%w: stream %s has %s", ErrForeign, j.name, wrong)
	}
	if c.Replicas < j.o.Replicas {
		return fmt.Errorf("%w: stream %s has %d, at least %d are required", ErrReplicas, j.name, c.Replicas, j.o.Replicas)
	}
	return nil
}

func stateOf(info *jetstream.StreamInfo) state {
	return state{
		first: info.State.FirstSeq, last: info.State.LastSeq, created: info.Created,
		bytes: int64(info.State.Bytes), most: max(info.Config.MaxBytes, 0),
	}
}

// append implements [journal].
func (j *streamJournal) append(ctx context.Context, record []byte, behind uint64) (uint64, error) {
	ack, err := j.o.JS.Publish(ctx, j.subject, record,
		jetstream.WithExpectStream(j.name), jetstream.WithExpectLastSequence(behind), jetstream.WithRetryAttempts(0))
	var refused *jetstream.APIError
	switch {
	case err == nil:
		return ack.Sequence, nil
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return 0, fmt.Errorf("%w: %w", errNobody, err)
	case !errors.As(err, &refused):
		return 0, err
	case refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence,
		refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant:
		return 0, fmt.Errorf("%w: %w", errMoved, err)
	case refused.ErrorCode == codeStoreFailed && strings.Contains(refused.Description, "maximum bytes"), refused.ErrorCode == codeNoStorage:
		return 0, fmt.Errorf("%w: %w: %w", errRefused, ErrFull, err)
	}
	return 0, fmt.Errorf("%w: %w", errRefused, err)
}

// Errors of JetStream that have no name in its client.
const (
	codeNoStorage   jetstream.ErrorCode = 10047 // of the account, or of the server
	codeStoreFailed jetstream.ErrorCode = 10077 // max_bytes of the stream, among others
)

// state implements [journal].
func (j *streamJournal) state(ctx context.Context) (state, error) {
	s, err := j.o.JS.Stream(ctx, j.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return state{}, fmt.Errorf("%w: %s", ErrGone, j.name)
	}
	if err != nil {
		return state{}, err
	}
	return stateOf(s.CachedInfo()), nil
}

// get implements [journal]. The client's newer interface has no request to the leader for
// streams that allow direct gets.
func (j *streamJournal) get(ctx context.Context, seq uint64) ([]byte, error) {
	js, err := j.o.JS.Conn().JetStream()
	if err != nil {
		return nil, err
	}
	m, err := js.GetMsg(j.name, seq, nats.Context(ctx))
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

// getNear implements [journal].
func (j *streamJournal) getNear(ctx context.Context, seq uint64) ([]byte, error) {
	known := j.stream.Load()
	if known == nil {
		s, err := j.o.JS.Stream(ctx, j.name)
		if err != nil {
			return nil, err
		}
		known = &s
		j.stream.Store(known)
	}
	m, err := (*known).GetMsg(ctx, seq)
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

const (
	followBytes = 32 << 20 // bytes that a follower requests at once
	// followBeat is the interval of heartbeats of the server while there are no records.
	// After two missing ones the follower asks another server.
	followBeat = time.Second
)

// follow implements [journal].
func (j *streamJournal) follow(ctx context.Context, from uint64, fn func(entry)) (func(), <-chan error, error) {
	c, err := j.o.JS.OrderedConsumer(ctx, j.name, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(from, 1),
	})
	if err != nil {
		return nil, nil, err
	}
	ended := make(chan error, 1)
	cc, err := c.Consume(func(m jetstream.Msg) {
		at := j.o.Now()
		md, err := m.Metadata()
		if err != nil {
			return // not a message of a stream
		}
		fn(entry{seq: md.Sequence.Stream, record: m.Data(), behind: md.NumPending, at: at})
	}, jetstream.PullMaxBytes(followBytes), jetstream.PullHeartbeat(followBeat), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		j.o.Log.Debug("replog: following", "stream", j.name, "error", err)
	}))
	if err != nil {
		return nil, nil, err
	}
	go func() {
		<-cc.Closed()
		ended <- errors.New("the consumer has ended")
	}()
	return func() {
		cc.Stop()
		<-cc.Closed()
	}, ended, nil
}

// purge implements [journal].
func (j *streamJournal) purge(ctx context.Context, below uint64) error {
	s, err := j.o.JS.Stream(ctx, j.name)
	if err != nil {
		return err
	}
	return s.Purge(ctx, jetstream.WithPurgeSequence(below))
}

// Servers returns the names of the servers that have replicas of the log of a shard.
func Servers(ctx context.Context, js jetstream.JetStream, cluster string, shard int) ([]string, error) {
	s, err := js.Stream(ctx, streamOf(cluster, shard))
	if err != nil {
		return nil, err
	}
	c := s.CachedInfo().Cluster
	if c == nil {
		return nil, nil
	}
	var names []string
	if c.Leader != "" {
		names = append(names, c.Leader)
	}
	for _, p := range c.Replicas {
		names = append(names, p.Name)
	}
	return names, nil
}
