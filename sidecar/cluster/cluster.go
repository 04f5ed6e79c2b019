package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/cluster/ownership"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/replog"
	"github.com/filaq/fila/wire"
)

var (
	// ErrSameName is sent by [Cluster.Conflict] when an older process runs under the name of
	// this node.
	ErrSameName = errors.New("another process is this node of the cluster")
	// ErrHandedOver is the reason for losing a shard that was handed over.
	ErrHandedOver = ownership.ErrHandedOver
)

// Seen is what a replica has seen of its log.
type Seen = replog.Seen

// Replica is this node's copy of a shard. It follows the log, except while a Store of it is
// open. [Replog] makes one.
type Replica interface {
	// Seen does not block.
	Seen() Seen
	// Ended receives a value when an owner has resigned since the last receive. Only the
	// Cluster receives from it.
	Ended() <-chan struct{}
	// Promote makes this node the owner if nothing has come after seen, and returns when
	// everything before is applied. Then the caller has to close the store.
	Promote(ctx context.Context, seen Seen) (Store, error)
	// SetFormat sets the format of records that all nodes read, at most replog.Format.
	SetFormat(format int)
	// Verify reads the log, see [replog.Replica.Verify].
	Verify(ctx context.Context, copies []replog.Mark, rate int) (replog.Report, error)
	// Repair lets the log go on from this copy, see [replog.Replica.Repair].
	Repair(ctx context.Context, newest replog.Mark, decide func(replog.Verdict) error) (replog.Mark, error)
}

// Store is the store of an owned shard, a [*replog.Store] for a replica of Replog.
type Store interface {
	Epoch() uint64
	// Owns reports whether the last acked write was sent within d. It does not block.
	Owns(d time.Duration) bool
	// SnapshotBehind has a snapshot made soon, unless one covers the record. It does not block.
	SnapshotBehind(seq uint64)
	// Resign writes the last record of the epoch.
	Resign(ctx context.Context, to string) error
	// Failed is closed when the store has failed, with the error Err.
	Failed() <-chan struct{}
	Err() error
	// Close closes the store. Its replica follows the log again.
	Close() error
}

// Replog makes a Replica of a replog.Replica.
func Replog(r *replog.Replica) Replica { return replica{r} }

type replica struct{ *replog.Replica }

// Promote implements Replica.
func (r replica) Promote(ctx context.Context, seen Seen) (Store, error) {
	st, err := r.Replica.Promote(ctx, seen)
	if err != nil {
		return nil, err // a nil *replog.Store would not be a nil Store
	}
	return st, nil
}

// Shards serves the shards that this node owns.
type Shards interface {
	// Own starts the machines of a shard and serves it. After an error nothing of it runs.
	Own(shard int, st Store) error
	// Fence stops or resumes the deliveries and answers of a shard. It does not block.
	Fence(shard int, on bool)
	// Drain prepares a shard for a handover: it accepts nothing new and writes everything. It
	// ends with ctx; the handover goes on after an error, too.
	Drain(ctx context.Context, shard int) error
	// Lose stops the machines of a shard without writing. Own has started them.
	Lose(shard int, why error)
}

// Detail is what the status shows of the log of an owned shard.
type Detail struct {
	LogBytes   int64
	SnapshotAt time.Time // zero: there is no snapshot
}

// Options of a [Cluster].
type Options struct {
	Log      *slog.Logger
	Conn     *nats.Conn
	Name     string // of the cluster
	Node     string
	Version  string
	Shards   int
	Failover time.Duration // an owner whose log has been silent for so long is replaced; 0: 2.5 s
	Serve    Shards
	Replicas []Replica // by shard
	Event    func(typ, tail string, e wire.Event)
	Detail   func(shard int) Detail // it does not block; may be nil
	Memory   Memory                 // may be nil
	Evidence Evidence
}

// MinFailover is the shortest failover: a healthy owner writes every 500 ms and is fenced after
// four fifths of the failover.
const MinFailover = 1500 * time.Millisecond

// Intervals and timeouts.
const (
	stepInterval  = 25 * time.Millisecond
	checkInterval = int64(250 * time.Millisecond) // for members and balance
	pingTimeout   = 300 * time.Millisecond
	orderTimeout  = 2 * time.Second
	flushTimeout  = 5 * time.Second
	drainTimeout  = 5 * time.Second
	resignTimeout = 2 * time.Second
	// promoteTimeout includes applying what lies in the log before the epoch record.
	promoteTimeout = time.Minute
)

// localShard is a shard at this node. Only the stepping goroutine changes it, under the mutex of the
// Cluster.
type localShard struct {
	number  int
	machine *ownership.Machine
	replica Replica
	store   Store // nil: this node has not been promoted
	behind  ownership.Behind
	late    int64           // how far behind the replica is, in ns
	rank    int             // candidates that campaign before this node
	hand    *ownership.Move // requested handover
	leaving time.Time       // start of the handover; used by actions
	abandon func()          // ends the last campaign; nil: there was none
	lost    loss
}

// outcome is the outcome of an action.
type outcome struct {
	p    *localShard
	done ownership.Done
	st   Store // of Promote
}

// Cluster is a node of a cluster.
type Cluster struct {
	Options
	subjects subjects
	config   ownership.Config
	self     string // incarnation
	began    time.Time

	ctx      context.Context // canceled when actions must not wait any more
	cancel   context.CancelFunc
	outcomes chan outcome // has room for one outcome per shard
	wake     chan struct{}
	conflict chan error
	stop     chan struct{}  // closed by Shutdown
	ended    chan struct{}  // closed when run ends
	actions  sync.WaitGroup // actions and listeners
	subs     []*nats.Subscription
	counts   struct{ takeovers, planned, fenced, handovers, handoverNs atomic.Int64 }

	mu struct {
		sync.Mutex
		local     []*localShard
		members   *ownership.Members
		mover     *ownership.Mover
		draining  bool
		leaving   bool
		checked   int64                    // last check of members and balance
		complete  bool                     // all nodes that were here have been heard, or waited for
		kept      map[int]ownership.Commit // as Memory has them of this node
		keptAt    int64                    // last look
		wrote     int64                    // last time that it was stored
		keeping   bool
		format    int             // of records, read by all members
		announced int64           // last announcement
		news      bool            // announce at once
		moving    *ownership.Move // announced move
		servers   []string        // NATS servers with replicas of the logs; nil: not known yet
		sightings []ownership.Sighting
		lookedAt  int64 // when they were made
	}
}

// New returns a node that has not joined the cluster.
func New(o Options) (*Cluster, error) {
	if o.Failover == 0 {
		o.Failover = time.Duration(ownership.DefaultSilence)
	}
	if o.Failover < MinFailover {
		return nil, fmt.Errorf("cluster: a failover of %v is too short: allowed is %v or more", o.Failover, MinFailover)
	}
	subjects, err := newSubjects(o.Name, o.Node)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		Options: o, subjects: subjects, config: ownership.Config{Node: o.Node, Silence: int64(o.Failover)},
		self: rand.Text(), began: time.Now(),
		outcomes: make(chan outcome, o.Shards), wake: make(chan struct{}, 1), conflict: make(chan error, 1),
		stop: make(chan struct{}), ended: make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.mu.news, c.mu.format = true, replog.Format
	c.mu.members, c.mu.mover = ownership.NewMembers(o.Node, c.self), ownership.NewMover(o.Node)
	return c, nil
}

// FenceAfter is how long ago the last acked write of an owner may have been sent. A shard for
// which [Store.Owns] returns false neither delivers nor answers.
func (c *Cluster) FenceAfter() time.Duration { return time.Duration(c.config.Fence()) }

// Conflict sends [ErrSameName]: this process has to end.
func (c *Cluster) Conflict() <-chan error { return c.conflict }

// now is the clock of package ownership.
func (c *Cluster) now() int64 { return int64(time.Since(c.began)) }

// Start joins the cluster. From now on this node takes over shards.
func (c *Cluster) Start(ctx context.Context) error {
	now := c.now()
	for number, r := range c.Replicas { // c is not shared yet, so no lock is needed
		c.mu.local = append(c.mu.local, &localShard{number: number, replica: r, machine: ownership.NewMachine(c.config, now)})
	}
	for subject, handle := range map[string]nats.MsgHandler{
		c.subjects.members(): c.onNews, c.subjects.ping(c.Node): c.onPing, c.subjects.order(c.Node): c.onOrder,
		c.subjects.repair(c.Node): c.onRepair,
	} {
		sub, err := c.Conn.Subscribe(subject, handle)
		if err != nil {
			return fmt.Errorf("subscribe to %s: %w", subject, err)
		}
		c.subs = append(c.subs, sub)
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := c.Conn.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("flush to NATS: %w", err)
	}
	go c.run()
	c.actions.Go(c.scrub)
	if c.Evidence.Servers != nil {
		c.actions.Go(c.observe)
	}
	for _, r := range c.Replicas {
		c.actions.Go(func() { c.listen(r) })
	}
	return nil
}

// Shutdown hands over all shards and leaves the cluster. When ctx ends, shards that are left are
// released to any other node. It is called once, after Start.
func (c *Cluster) Shutdown(ctx context.Context) {
	c.mu.Lock()
	c.mu.leaving, c.mu.news = true, true
	c.mu.Unlock()
	c.nudge()
	for c.busy() && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(stepInterval):
		}
	}
	c.cancel()
	c.releaseAll()
}

// busy reports whether a shard is owned, being promoted or being lost.
func (c *Cluster) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.mu.local {
		if p.machine.State() >= ownership.Promoting {
			return true
		}
	}
	return false
}

// releaseAll stops stepping, waits for all actions, and releases shards that are still owned.
func (c *Cluster) releaseAll() {
	close(c.stop)
	<-c.ended
	c.actions.Wait()
	over := make(map[*localShard]outcome)
	for len(c.outcomes) > 0 {
		o := <-c.outcomes
		over[o.p] = o
	}
	for _, p := range c.mu.local {
		o, last := over[p]
		st, started := p.store, p.machine.Started()
		switch p.machine.State() {
		case ownership.Promoting:
			st = o.st
		case ownership.Starting:
			started = last && o.done.Err == nil
		case ownership.Losing:
			continue // the action has lost it
		}
		c.actions.Go(func() { // closing a store may wait for its log
			if started {
				c.Serve.Lose(p.number, errEnds)
			}
			if st != nil {
				c.resignToAny(p.number, st)
				c.close(p.number, st)
			}
		})
	}
	c.actions.Wait()
	c.announce(true)
	for _, sub := range c.subs {
		if err := sub.Unsubscribe(); err != nil {
			c.Log.Debug("unsubscribe", "subject", sub.Subject, "error", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := c.Conn.FlushWithContext(ctx); err != nil {
		c.Log.Debug("flush to NATS", "error", err)
	}
}

// errEnds is the reason for losing shards that could not be handed over in time.
var errEnds = errors.New("this node ends")

// resignToAny lets any other node take over a shard at once. It is no error if the shard has another
// owner or has been resigned already.
func (c *Cluster) resignToAny(shard int, st Store) {
	ctx, cancel := context.WithTimeout(context.Background(), resignTimeout)
	defer cancel()
	if err := st.Resign(ctx, ""); err != nil && !errors.Is(err, store.ErrFenced) {
		c.Log.Warn("this node gives up the shard; another node takes it over when its log has been silent for a while", "shard", shard, "error", err)
	}
}

func (c *Cluster) close(shard int, st Store) {
	if err := st.Close(); err != nil {
		c.Log.Warn("the store of a shard does not close", "shard", shard, "error", err)
	}
}

// nudge lets run make a step now.
func (c *Cluster) nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// listen lets run make a step when the owner of a shard has resigned.
func (c *Cluster) listen(r Replica) {
	for {
		select {
		case <-r.Ended():
			c.nudge()
		case <-c.stop:
			return
		}
	}
}

// run makes the steps.
func (c *Cluster) run() {
	defer close(c.ended)
	tick := time.NewTicker(stepInterval)
	defer tick.Stop()
	for {
		var o *outcome
		select {
		case <-c.stop:
			return
		case <-tick.C:
		case <-c.wake:
		case over := <-c.outcomes:
			o = &over
		}
		c.step(o)
	}
}

// todo is an action of a shard.
type todo struct {
	p *localShard
	ownership.Action
}

// step steps all machines, checks the members, and starts the actions.
func (c *Cluster) step(o *outcome) {
	c.mu.Lock()
	now := c.now()
	var all []todo
	for _, p := range c.mu.local {
		var done *ownership.Done
		if o != nil && o.p == p {
			done = &o.done
			if o.st != nil {
				p.store = o.st
			}
		}
		before := p.machine.State()
		for _, a := range p.machine.Step(now, c.input(now, p, done), nil) {
			all = append(all, todo{p, a})
		}
		c.changed(p, before)
	}
	var changes []ownership.Change
	var findings []finding
	if now-c.mu.checked >= checkInterval || c.mu.news || o != nil {
		c.mu.checked = now
		changes, findings = c.checkMembers(now)
	}
	speak := c.mu.news || now-c.mu.announced >= ownership.AnnounceEvery
	if speak {
		c.mu.announced, c.mu.news = now, false
	}
	c.mu.Unlock()
	for _, a := range all {
		c.do(a)
	}
	if speak {
		c.announce(false)
	}
	c.report(changes)
	for _, f := range findings {
		c.reportLoss(f)
	}
}

// input returns the input of a machine. Its caller holds mu.
func (c *Cluster) input(now int64, p *localShard, done *ownership.Done) ownership.Input {
	in := ownership.Input{Rank: p.rank, Leaving: c.mu.leaving, Done: done}
	if p.store == nil {
		seen := p.replica.Seen()
		in.Seen = ownership.Seen{
			Epoch: seen.Epoch, Owner: seen.Owner, Resigned: seen.Ended, To: seen.To, Seq: seen.Seq,
			At: int64(seen.At.Sub(c.began)), Err: seen.Err,
		}
		p.late = p.behind.Sample(now, seen.Seq+seen.Lag, seen.Seq, in.Seen.At)
		in.Lacking = !c.mu.complete || c.lacks(p, seen)
		if in.Lacking && p.abandon != nil {
			p.abandon() // it may have lost records, and end again where it ended for the campaign
		}
		return in
	}
	in.Owns = p.store.Owns(c.FenceAfter())
	select {
	case <-p.store.Failed():
		in.Failed = p.store.Err()
		in.Fenced = errors.Is(in.Failed, store.ErrFenced)
	default:
	}
	if p.hand != nil {
		in.Hand, in.To = true, p.hand.To
	}
	return in
}

// changed handles a state change of a machine. Its caller holds mu.
func (c *Cluster) changed(p *localShard, before ownership.State) {
	after := p.machine.State()
	if after == before {
		return
	}
	if after >= ownership.Draining || after == ownership.Following {
		p.hand = nil
	}
	if before == ownership.Losing {
		p.store, p.behind = nil, ownership.Behind{}
	}
	if after == ownership.Owning || before == ownership.Owning {
		c.mu.news = true
	}
}

// checkMembers updates the members, looks for losses, and starts the next handover. Its caller holds mu.
func (c *Cluster) checkMembers(now int64) (changes []ownership.Change, findings []finding) {
	changes = c.mu.members.Tick(now)
	if format := c.mu.members.Format(replog.Format); format != c.mu.format {
		c.mu.format = format
		c.Log.Info("the nodes of the cluster read another format of records than before", "format", format, "newest", replog.Format)
	}
	c.remember(now)
	here := ownership.Here{Owned: make([]bool, c.Shards), Draining: c.mu.draining, Leaving: c.mu.leaving}
	for _, p := range c.mu.local {
		p.replica.SetFormat(c.mu.format)
		if f, report := c.checkLoss(now, p); report {
			findings = append(findings, f)
		}
		seen := p.machine.Over()
		if p.store == nil {
			seen = ownership.Seen{Owner: p.replica.Seen().Owner}
		} else if record := c.mu.members.Unread(now, p.number); record > 0 {
			p.store.SnapshotBehind(record)
		}
		p.rank = c.mu.members.Rank(now, p.number, seen.Owner)
		switch p.machine.State() {
		case ownership.Owning:
			here.Owned[p.number] = p.hand == nil && (c.mu.leaving || !p.machine.Fenced())
			here.Busy = here.Busy || p.hand != nil
		case ownership.Draining, ownership.Resigning, ownership.Losing:
			here.Busy = true
		}
	}
	if move, ok := c.mu.mover.Next(now, c.mu.members, here); ok {
		c.mu.local[move.Shard].hand = &move
		c.nudge()
	}
	if announced := c.mu.mover.Telling(); (announced == nil) != (c.mu.moving == nil) || announced != nil && *announced != *c.mu.moving {
		c.mu.moving, c.mu.news = announced, true
	}
	return changes, findings
}

// do carries out an action, in a goroutine if it may take long.
func (c *Cluster) do(a todo) {
	shard, log := a.p.number, c.Log.With("shard", a.p.number)
	switch a.Do {
	case ownership.Fence:
		c.Serve.Fence(shard, true)
		if c.stateOf(a.p) == ownership.Owning || c.stateOf(a.p) == ownership.Draining {
			log.Warn("writes are not acked; the shard neither delivers nor answers until they are", "epoch", a.p.store.Epoch())
			c.counts.fenced.Add(1)
			c.event(wire.EventFenced, shard, map[string]any{"epoch": a.p.store.Epoch()})
		}
	case ownership.Unfence:
		log.Info("writes are acked again; the shard continues", "epoch", a.p.store.Epoch())
		c.Serve.Fence(shard, false)
	default:
		c.actions.Go(func() {
			o := outcome{p: a.p}
			o.done, o.st = c.carryOut(a, log)
			c.outcomes <- o
		})
	}
}

func (c *Cluster) stateOf(p *localShard) ownership.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return p.machine.State()
}

// carryOut carries out an action that may take long. The store of the shard does not change
// meanwhile.
func (c *Cluster) carryOut(a todo, log *slog.Logger) (done ownership.Done, st Store) {
	shard := a.p.number
	switch a.Do {
	case ownership.Ask:
		done.Answer = c.ask(a.To, shard)
		log.Debug("the log is silent", "owner", a.To, "answer", done.Answer)
	case ownership.Promote:
		log.Info("campaign", "epoch", a.Seen.Epoch+1, "owner_before", a.Seen.Owner, "resigned", a.Seen.Resigned)
		st, done.Err = c.promote(a)
		if done.Err != nil {
			done.Full = errors.Is(done.Err, replog.ErrFull)
			log.Info("not promoted", "epoch", a.Seen.Epoch+1, "error", done.Err)
			break
		}
		done.Epoch = st.Epoch()
	case ownership.Own:
		begin := time.Now()
		if done.Err = c.Serve.Own(shard, a.p.store); done.Err != nil {
			log.Error("the shard does not start at this node", "error", done.Err)
			break
		}
		over := a.p.machine.Over()
		if over.Resigned {
			c.counts.planned.Add(1)
		} else {
			c.counts.takeovers.Add(1)
		}
		log.Info("this node owns the shard", "epoch", a.p.store.Epoch(), "started_ms", time.Since(begin).Milliseconds())
		c.event(wire.EventOwnerChanged, shard, map[string]any{
			"owner": c.Node, "epoch": a.p.store.Epoch(), "previous": over.Owner, "planned": over.Resigned,
		})
	case ownership.Drain:
		log.Info("handover", "to", a.To)
		a.p.leaving = time.Now()
		ctx, cancel := context.WithTimeout(c.ctx, drainTimeout)
		defer cancel()
		if done.Err = c.Serve.Drain(ctx, shard); done.Err != nil {
			log.Warn("the shard could not be drained; it is handed over with its leases", "error", done.Err)
		}
	case ownership.Resign:
		ctx, cancel := context.WithTimeout(c.ctx, resignTimeout)
		defer cancel()
		if done.Err = a.p.store.Resign(ctx, a.To); done.Err == nil {
			c.counts.handovers.Add(1)
			c.counts.handoverNs.Add(int64(time.Since(a.p.leaving)))
		}
	case ownership.Lose:
		log.Info("this node does not own the shard any more", "epoch", a.p.store.Epoch(), "why", a.Why)
		if a.Started {
			c.Serve.Lose(shard, a.Why)
		}
		c.close(shard, a.p.store)
	}
	return done, st
}

func (c *Cluster) promote(a todo) (Store, error) {
	ctx, cancel := context.WithTimeout(c.ctx, promoteTimeout)
	defer cancel()
	c.mu.Lock()
	a.p.abandon = cancel
	c.mu.Unlock()
	s := a.Seen
	return a.p.replica.Promote(ctx, Seen{
		Epoch: s.Epoch, Owner: s.Owner, Ended: s.Resigned, To: s.To, Seq: s.Seq, At: c.began.Add(time.Duration(s.At)),
	})
}

func (c *Cluster) event(typ string, shard int, data map[string]any) {
	data["shard"], data["node"] = shard, c.Node
	c.Event(typ, strconv.Itoa(shard), wire.Event{Data: data})
}

// report reports members that have come or gone.
func (c *Cluster) report(changes []ownership.Change) {
	for _, ch := range changes {
		if ch.Member.Node == c.Node {
			continue
		}
		typ, text := wire.EventMemberLeft, "a node has left the cluster"
		if ch.Joined {
			typ, text = wire.EventMemberJoined, "a node has joined the cluster"
		}
		c.Log.Info(text, "node", ch.Member.Node, "version", ch.Member.Version)
		if ch.Tell {
			c.Event(typ, ch.Member.Node, wire.Event{Data: map[string]any{"node": ch.Member.Node, "version": ch.Member.Version}})
		}
	}
}
