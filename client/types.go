package client

import "github.com/filaq/fila/wire"

// The types of the protocol, under the names of this package, so that callers
// need not import wire.
type (
	// Error is a refusal by fila.
	Error = wire.Error
	// Receipt confirms a publish: the message is on disk, or finished already.
	Receipt = wire.EnqueueReply
	// QueueSettings are the settings of a queue, with the names of config.toml.
	QueueSettings = wire.QueueSettings
	// QueueSummary is a queue in a list.
	QueueSummary = wire.QueueSummary
	// QueueList is a page of queues.
	QueueList = wire.QueueList
	// QueueInfo is what inspecting a queue tells.
	QueueInfo = wire.QueueInfo
	// ConsumerInfo is a registered consumer.
	ConsumerInfo = wire.ConsumerInfo
	// FlowInfo is a flow with pending messages.
	FlowInfo = wire.FlowInfo
	// HookInfo is the state of a hook and its circuit.
	HookInfo = wire.HookInfo
	// ConfigEntry is a key of the runtime configuration.
	ConfigEntry = wire.ConfigEntry
	// ConfigList is a page of the runtime configuration.
	ConfigList = wire.ConfigList
	// ConfigSetReply tells the previous value, too.
	ConfigSetReply = wire.ConfigSetReply
	// QueueDeleteReply tells how many messages went with the queue.
	QueueDeleteReply = wire.QueueDeleteReply
	// RedriveReply tells how many messages were moved.
	RedriveReply = wire.RedriveReply
	// HookResetReply shows the hooks after their circuits were closed.
	HookResetReply = wire.HookResetReply
)

// DefaultPrefix is the subject prefix of a fila that was not told another.
const DefaultPrefix = wire.DefaultPrefix

// DefaultMaxDeliveries is how often a message is delivered at most when
// max_deliveries is not set and no on_failure hook decides.
const DefaultMaxDeliveries = wire.DefaultMaxDeliveries

// DefaultQueueSettings returns the settings of a queue about which nothing is
// said. Start from it: the zero QueueSettings is not valid.
func DefaultQueueSettings(name string) QueueSettings { return wire.DefaultQueueSettings(name) }
