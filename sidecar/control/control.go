package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/filaq/fila/sidecar/circuit"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Queues is the shard as Control needs it.
type Queues interface {
	// Exists, PauseQueue, PauseKey and Weigh never block, and ignore queues that do
	// not exist. until is Unix ns: math.MaxInt64 until a resume, 0 for a resume.
	// weight is in thousandths; 0 lets the producers set it again. Calls about one
	// queue reach it in order.
	Exists(queue string) bool
	PauseQueue(queue string, until int64)
	PauseKey(queue, key string, until int64)
	Weigh(queue, key string, weight uint32)

	// Check returns what would keep Declare from working.
	Check(settings wire.QueueSettings) error
	// Declare creates a queue, or updates its settings, and returns the ones before;
	// nil for a new queue. It waits for the disk.
	Declare(ctx context.Context, settings wire.QueueSettings) (had *wire.QueueSettings, err *wire.Error)
	// Declared returns what Declare would return, and changes nothing.
	Declared(settings wire.QueueSettings) (had *wire.QueueSettings)
	// Settings returns the settings of all queues, by name.
	Settings() []wire.QueueSettings
}

// Options of a [Control].
type Options struct {
	Log        *slog.Logger
	Now        func() int64 // Unix ns; it does not go back
	KV         KV
	Shared     SharedKV                             // replaces KV in a cluster; it has no state of gates
	Node       string                               // name of this node in a cluster
	Event      func(typ, tail string, e wire.Event) // publishes e
	Queues     Queues
	Circuits   *circuit.Registry // its state is restored
	MaxPayload func() int64      // bytes of the largest NATS message
	// Share gets the gates before they are used, so that a fleet can share limits;
	// nil: limits are local to this process.
	Share func(*throttle.Gates)
	// Sharing describes how the limits of a key are shared; nil if they are not.
	Sharing func(key string) *Sharing
	Budgets SharedBudgets // nil: no budget is shared
}

// Control is the state that can change while fila runs. See the package comment.
type Control struct {
	opt       Options
	values    *values
	throttles throttles
	learned   learned
	pauses    pauses
	calls     calls
	audit     audit
	schedule  schedule       // of overrides and pauses
	opening   Batch          // what New has found to be over, for Save
	telling   sync.WaitGroup // goroutines of whenEnded
	setTimes  setTimes
	hooks     hookVersions

	running  config.Config           // of Start; keys that a reload cannot change keep its values
	applied  atomic.Pointer[applied] // by Start and reloads
	applying sync.Mutex              // one reload at a time
	acting   sync.Mutex              // held from reading what is in force to sending it, so that the newest goes last
}

// New restores what the process before has stored or, in a cluster, what is stored
// now. It writes nothing, since the store has to be recovered first. It logs what it
// cannot read.
func New(o Options, kept store.Snapshot) *Control {
	if o.Shared != nil {
		o.KV = o.Shared
	}
	c := &Control{opt: o}
	c.audit.node = o.Node
	c.applied.Store(&applied{config: config.Default()})
	c.schedule.now, c.schedule.end = o.Now, c.endDue
	c.audit.restore(kept.Config, o.Log)
	c.values = newValues(kept.Config, o.Log)
	c.values.shared, c.values.enforce = o.Shared, c.enforce
	c.audit.owner = c.Owner
	c.setTimes.restore(kept.Config)
	c.hooks.restore(kept.Config)
	now := o.Now()
	c.startThrottles(kept.Config, now)
	c.restorePauses(kept, now)
	c.restoreCalls(kept.Config, now)
	return c
}

// Save writes what New has found to be over, with the mark of an orderly stop, and
// waits for the disk. A crash is recognised from now on. Pauses of throttles and
// circuits apply from now on, and overrides and pauses end at their time.
func (c *Control) Save() error {
	if err := <-c.opt.KV.Write(c.opening); err != nil {
		return fmt.Errorf("the state of the gates: %w", err)
	}
	c.opening = Batch{}
	c.schedule.begin()
	c.sweepBudgets(c.opt.Now())
	c.throttles.mu.Lock()
	for key, o := range c.throttles.mu.overrides {
		c.schedule.set(stateOverride+key, o.Until)
	}
	c.throttles.mu.Unlock()
	c.pauses.mu.Lock()
	defer c.pauses.mu.Unlock()
	for id, p := range c.pauses.mu.all {
		c.schedule.set(id.state(), p.Until)
		if id.kind == api.PauseThrottle || id.kind == api.PauseCircuit { // queues read their own pauses
			c.tellPaused(id, p.Until)
		}
	}
	return nil
}

// Stop stores the state of the gates for the next start. Call it after the queues and
// before the store have stopped.
func (c *Control) Stop() {
	c.schedule.stop()
	c.telling.Wait()
	if c.shared() {
		return
	}
	c.saveBudgets()
	now := c.opt.Now()
	if err := c.learned.save(c); err != nil {
		c.opt.Log.Error("the levels that throttle keys have learned cannot be saved", "error", err)
	}
	if err := saveGates(c.opt.KV, c.throttles.gates.Snapshot(now), now); err != nil {
		c.opt.Log.Error("the state of the gates cannot be saved; they start as after a crash", "error", err)
	}
}

// shared reports whether other nodes change the KV, too.
func (c *Control) shared() bool { return c.opt.Shared != nil }

// begin adds an override or pause to kept, with audit entries by `by`, and schedules
// its end.
func (c *Control) begin(kept *Batch, state string, value any, until int64, by Actor, changes ...change) {
	kept.putJSON(state, value)
	c.audit.record(kept, c.opt.Now(), by, changes...)
	c.schedule.set(state, until)
}

// end adds the end of an override or pause to kept, with an audit entry. value is what
// begin has stored under the key.
func (c *Control) end(kept *Batch, state string, value any, by Actor, ch change) {
	kept.Delete = append(kept.Delete, state)
	kept.wasJSON(state, value)
	c.audit.record(kept, c.opt.Now(), by, ch)
	c.schedule.set(state, 0)
}

// whenEnded calls tell once done shows that this node, and not another one, has ended
// something; without other nodes at once. It is no error if another node was faster.
// whenEnded does not block.
func (c *Control) whenEnded(done <-chan error, tell func()) <-chan error {
	if !c.shared() {
		tell()
		return done
	}
	outcome := make(chan error, 1)
	c.telling.Go(func() {
		err := <-done
		switch {
		case err == nil:
			tell()
		case errors.Is(err, ErrChanged):
			err = nil
		}
		outcome <- err
	})
	return outcome
}

// endDue ends the override or pause that is stored under a key, or lowers the times of
// calls.
func (c *Control) endDue(state string, now int64) {
	switch state {
	case stateCalls:
		c.lowerCalls(now)
		return
	case stateBudget:
		c.sweepBudgets(now)
		return
	}
	if key, ok := strings.CutPrefix(state, stateOverride); ok {
		c.endOverride(key, now)
	} else if id, ok := parsePause(state); ok {
		c.endPauses(byTime, Actor{By: byPauseEnded}, now, id)
	}
}

// Gates returns the gates of all throttle keys.
func (c *Control) Gates() *throttle.Gates { return c.throttles.gates }

// Get returns a value of the runtime configuration.
func (c *Control) Get(key string) (string, bool) { return c.values.Get(key) }

// Routes returns the routes of the configuration by choice. The map is read-only.
func (c *Control) Routes() map[string][]store.Route { return c.applied.Load().routes }

// Rules returns the error rules in force.
func (c *Control) Rules() *rules.Rules { return c.applied.Load().rules }

// Guards returns the guard tables in force.
func (c *Control) Guards() []config.GuardTable { return c.applied.Load().all.Guards }

// ExpiredFails reports whether the expiry of a guard permit with this first key counts
// as a failure of the circuit.
func (c *Control) ExpiredFails(key string) bool { return c.applied.Load().all.ExpiredFails(key) }

// Weights returns the weight overrides of a queue by fairness key, in thousandths. A
// new queue reads them again once Queues.Weigh reaches it.
func (c *Control) Weights(queue string) map[string]uint32 {
	found := make(map[string]uint32)
	for _, e := range c.values.all(kindWeight + ":" + queue + ":") {
		_, key, ok := splitWeight(e.Key)
		if weight, valid := parseWeight(e.Value); ok && valid {
			found[key] = weight
		}
	}
	return found
}

// InFile reports whether the configuration file declares a queue, so that the file
// wins at the next start or reload.
func (c *Control) InFile(queue string) bool {
	return slices.ContainsFunc(c.applied.Load().config.Queues, func(q wire.QueueSettings) bool { return q.Name == queue })
}
