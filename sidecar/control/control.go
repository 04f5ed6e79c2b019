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
)

// Queues are told what concerns them, and made as the configuration file says.
type Queues interface {
	// Exists, PauseQueue, PauseKey and Weigh never block, and ignore queues that do
	// not exist. until is Unix ns, math.MaxInt64 until it is resumed, 0 is resumed;
	// weight is in thousandths, 0 gives it back to the producers. What is told of one
	// queue reaches it in order.
	Exists(queue string) bool
	PauseQueue(queue string, until int64)
	PauseKey(queue, key string, until int64)
	Weigh(queue, key string, weight uint32)

	// Check says what would keep a queue from being declared.
	Check(settings wire.QueueSettings) error
	// Declare makes a queue, or gives it these settings, and returns those that it
	// had; nil if it is new. It waits for the disk.
	Declare(ctx context.Context, settings wire.QueueSettings) (had *wire.QueueSettings, err *wire.Error)
	// Declared returns the settings of a queue that Declare would replace by these, nil
	// if it would make the queue. It changes nothing.
	Declared(settings wire.QueueSettings) (had *wire.QueueSettings)
	// Settings returns those of all queues, by name.
	Settings() []wire.QueueSettings
}

// Options of a [Control].
type Options struct {
	Log        *slog.Logger
	Now        func() int64 // Unix ns; it does not go back
	KV         KV
	Shared     SharedKV                             // in place of KV, in a cluster; what is in it is of all nodes, the gates keep their state elsewhere
	Node       string                               // of this node in a cluster
	Event      func(typ, tail string, e wire.Event) // publishes e
	Queues     Queues
	Circuits   *circuit.Registry // its state is restored
	MaxPayload func() int64      // bytes of the largest message that NATS takes
	// Share is given the gates before they are used, to have limits hold over a fleet;
	// nil: they are of this process.
	Share func(*throttle.Gates)
	// Sharing says how the limits of a key are shared; nil: they are not, or Share is nil.
	Sharing func(key string) *Sharing
}

// Control is what can change while fila runs. See the package's comment.
type Control struct {
	opt       Options
	values    *values
	throttles throttles
	pauses    pauses
	calls     calls
	audit     audit
	schedule  schedule       // of overrides and pauses
	opening   Batch          // what New has found to be over, for Save
	telling   sync.WaitGroup // those who wait to hear whether this node has ended something
	setTimes  setTimes

	running  config.Config           // that Start was given: its other keys are in force until the end
	applied  atomic.Pointer[applied] // by Start and reloads
	applying sync.Mutex              // one reload at a time
	acting   sync.Mutex              // held while what is in force is read and told, so that the newest is told last
}

// New takes over what a process before has kept or, in a cluster, what is kept now, and
// writes nothing: a store wants to be recovered first. The log names what cannot be read.
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
	c.setTimes.restore(kept.Config)
	now := o.Now()
	c.startThrottles(kept.Config, now)
	c.restorePauses(kept, now)
	c.restoreCalls(kept.Config, now)
	return c
}

// Save writes what New has found to be over, the mark of an orderly stop among it,
// and waits for the disk: a crash from now on is recognised as one. Pauses of
// throttles and circuits hold from now on, and what has an end ends.
func (c *Control) Save() error {
	if err := <-c.opt.KV.Write(c.opening); err != nil {
		return fmt.Errorf("the state of the gates: %w", err)
	}
	c.opening = Batch{}
	c.schedule.begin()
	c.throttles.mu.Lock()
	for key, o := range c.throttles.mu.overrides {
		c.schedule.set(stateOverride+key, o.Until)
	}
	c.throttles.mu.Unlock()
	c.pauses.mu.Lock()
	defer c.pauses.mu.Unlock()
	for id, p := range c.pauses.mu.all {
		c.schedule.set(id.state(), p.Until)
		if id.kind == wire.PauseThrottle || id.kind == wire.PauseCircuit { // queues ask for theirs
			c.tellPaused(id, p.Until)
		}
	}
	return nil
}

// Stop keeps the state of the gates for the next start. The queues have ended, the
// store has not.
func (c *Control) Stop() {
	c.schedule.stop()
	c.telling.Wait()
	if c.shared() {
		return
	}
	now := c.opt.Now()
	if err := saveGates(c.opt.KV, c.throttles.gates.Snapshot(now), now); err != nil {
		c.opt.Log.Error("the state of the gates is not kept; they begin as after a crash", "error", err)
	}
}

// shared reports whether other nodes change what is kept, too.
func (c *Control) shared() bool { return c.opt.Shared != nil }

// begin adds to kept an override or pause under a key from now on, in the log as changes
// by `by`, and has it end at a time.
func (c *Control) begin(kept *Batch, state string, value any, until int64, by string, changes ...change) {
	kept.putJSON(state, value)
	c.audit.record(kept, c.opt.Now(), by, changes...)
	c.schedule.set(state, until)
}

// end adds to kept that what begin has kept under a key, value, has ended.
func (c *Control) end(kept *Batch, state string, value any, by string, ch change) {
	kept.Delete = append(kept.Delete, state)
	kept.wasJSON(state, value)
	c.audit.record(kept, c.opt.Now(), by, ch)
	c.schedule.set(state, 0)
}

// whenEnded calls tell when done says that this node, and no other one, has ended
// something: at once where there are no others. What another one has ended is no error.
// It does not block.
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

// endDue ends the override or pause that is kept under a key, or lowers the times of calls.
func (c *Control) endDue(state string, now int64) {
	if state == stateCalls {
		c.lowerCalls(now)
		return
	}
	if key, ok := strings.CutPrefix(state, stateOverride); ok {
		c.endOverride(key, now)
	} else if id, ok := parsePause(state); ok {
		c.endPauses(byTime, byPauseEnded, now, id)
	}
}

// Gates are those of all throttle keys.
func (c *Control) Gates() *throttle.Gates { return c.throttles.gates }

// Get returns a value of the runtime configuration.
func (c *Control) Get(key string) (string, bool) { return c.values.Get(key) }

// Rules are those in force.
func (c *Control) Rules() *rules.Rules { return c.applied.Load().rules }

// Guards are the [[guard]] tables in force.
func (c *Control) Guards() []config.GuardTable { return c.applied.Load().config.Guards }

// ExpiredFails reports whether a permit of the guard with this first key that ends by itself
// is a failure for the circuit.
func (c *Control) ExpiredFails(key string) bool { return c.applied.Load().config.ExpiredFails(key) }

// Weights returns the weight overrides of a queue by fairness key, in thousandths.
// Whoever makes a queue asks again when Queues.Weigh finds it.
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

// InFile reports whether the configuration file declares a queue: the file wins at
// the next start or reload.
func (c *Control) InFile(queue string) bool {
	return slices.ContainsFunc(c.applied.Load().config.Queues, func(q wire.QueueSettings) bool { return q.Name == queue })
}
