package control

import (
	"context"
	"log/slog"

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
	// Settings returns those of all queues, by name.
	Settings() []wire.QueueSettings
}

// Options of a [Control].
type Options struct {
	Log      *slog.Logger
	Now      func() int64 // Unix ns
	KV       KV
	Event    func(typ, tail string, e wire.Event)
	Queues   Queues
	Circuits *circuit.Registry // restored already
	MaxReply func() int        // bytes that the reply of a reload may have
}

// Control is what can change while fila runs. See the package's comment.
type Control struct{ audit audit }

// New takes over what a process before has kept, and writes nothing: a store wants
// to be recovered first. The log names what cannot be read.
func New(o Options, kept store.Snapshot) *Control { panic("todo") }

// Save writes what New has found to be over, the mark of an orderly stop among it,
// and waits for the disk: a crash from now on is recognised as one.
func (c *Control) Save() error { panic("todo") }

// Start puts the rules and the tables of a configuration that is valid in force,
// before the queues start.
func (c *Control) Start(cfg config.Config) error { panic("todo") }

// DeclareQueues brings the queues of the configuration about that Start was given.
func (c *Control) DeclareQueues(ctx context.Context) error { panic("todo") }

// Stop keeps the state of the gates for the next start. The queues have ended, the
// store has not.
func (c *Control) Stop() { panic("todo") }

// What queues ask.

// Gates are those of all throttle keys.
func (c *Control) Gates() *throttle.Gates { panic("todo") }

// Get returns a value of the runtime configuration.
func (c *Control) Get(key string) (string, bool) { panic("todo") }

// Rules are those in force.
func (c *Control) Rules() *rules.Rules { panic("todo") }

// Weights returns the weight overrides of a queue by fairness key, in thousandths.
func (c *Control) Weights(queue string) map[string]uint32 { panic("todo") }

// Pauses returns until when a queue and its fairness keys are paused: Unix ns;
// math.MaxInt64 until they are resumed; 0: the queue is not.
func (c *Control) Pauses(queue string) (until int64, keys map[string]int64) { panic("todo") }

// HoldKey pauses a fairness key that has failed too often, until a time (Unix ns)
// or, with math.MaxInt64, until it is resumed. It never blocks.
func (c *Control) HoldKey(queue, key string, until int64) { panic("todo") }

// ForgetPauses ends the pauses of queues that are deleted, and of their keys.
func (c *Control) ForgetPauses(queues ...string) { panic("todo") }

// LimitsOf returns the limits of a throttle key and who has set them, for
// explanations: "config", "override until <time>", "prefix <prefix>*", or empty if
// there are none.
func (c *Control) LimitsOf(key string) (limits throttle.Limits, setBy string) { panic("todo") }

// InFile reports whether the configuration file declares a queue: the file wins at
// the next start or reload.
func (c *Control) InFile(queue string) bool { panic("todo") }

// Reload.

// Plan is a configuration that can be applied.
type Plan struct{}

// Plan finds whatever would keep a configuration from being applied. It changes
// nothing.
func (c *Control) Plan(next config.Config) (*Plan, error) { panic("todo") }

// Apply puts a plan in force and says what has changed, a line for each. Its
// settings are one write, before which nothing has changed; queues come after it,
// one by one.
func (c *Control) Apply(ctx context.Context, p *Plan) ([]string, *wire.Error) { panic("todo") }

// Reload reads the configuration file again, plans and applies it, and tells what
// has changed: in the log, by an event and in the reply.
func (c *Control) Reload(ctx context.Context) (wire.ReloadReply, *wire.Error) { panic("todo") }

// Verbs.

// ConfigSet sets a key of the runtime configuration.
func (c *Control) ConfigSet(key string, req wire.ConfigSetRequest) (wire.ConfigSetReply, *wire.Error) {
	panic("todo")
}

// ConfigGet returns a key of the runtime configuration.
func (c *Control) ConfigGet(key string) (wire.ConfigEntry, *wire.Error) { panic("todo") }

// ConfigDelete deletes a key of the runtime configuration and returns what it was.
func (c *Control) ConfigDelete(key string) (wire.ConfigEntry, *wire.Error) { panic("todo") }

// ConfigList lists the runtime configuration.
func (c *Control) ConfigList(req wire.ConfigListRequest) wire.ConfigList { panic("todo") }

// ThrottleSet changes limits of a throttle key for good, or by an override for a
// time: all of them as one change, or none.
func (c *Control) ThrottleSet(req wire.ThrottleSetRequest) (wire.ThrottleInfo, *wire.Error) {
	panic("todo")
}

// ThrottleClear removes everything that is set for a throttle key itself.
func (c *Control) ThrottleClear(req wire.ThrottleKeyRequest) (wire.ThrottleInfo, *wire.Error) {
	panic("todo")
}

// ThrottleShow describes a throttle key.
func (c *Control) ThrottleShow(req wire.ThrottleKeyRequest) (wire.ThrottleInfo, *wire.Error) {
	panic("todo")
}

// ThrottleList lists the keys for which anything is set, and those that have a gate
// at this moment.
func (c *Control) ThrottleList(req wire.GateListRequest) wire.ThrottleList { panic("todo") }

// CircuitShow describes a circuit.
func (c *Control) CircuitShow(req wire.CircuitKeyRequest) (wire.CircuitInfo, *wire.Error) {
	panic("todo")
}

// CircuitOpen shuts a circuit, also one of which nothing is known yet. When its
// time is over, probes decide.
func (c *Control) CircuitOpen(req wire.CircuitOpenRequest) (wire.CircuitInfo, *wire.Error) {
	panic("todo")
}

// CircuitClose makes a circuit closed now. If its destination still fails, the next
// failure opens it again; CircuitReset also forgets those before.
func (c *Control) CircuitClose(req wire.CircuitKeyRequest) (wire.CircuitInfo, *wire.Error) {
	panic("todo")
}

// CircuitReset is CircuitClose that forgets failures.
func (c *Control) CircuitReset(req wire.CircuitKeyRequest) (wire.CircuitInfo, *wire.Error) {
	panic("todo")
}

// CircuitList lists circuits.
func (c *Control) CircuitList(req wire.GateListRequest) wire.CircuitList { panic("todo") }

// Pause begins a pause or gives one another end.
func (c *Control) Pause(req wire.PauseRequest) (wire.PauseInfo, *wire.Error) { panic("todo") }

// Resume ends a pause.
func (c *Control) Resume(req wire.PauseRequest) (wire.PauseInfo, *wire.Error) { panic("todo") }

// PauseList lists pauses.
func (c *Control) PauseList(req wire.ListRequest) wire.PauseList { panic("todo") }
