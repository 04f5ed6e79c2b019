package storefile

import (
	"math"
	"math/bits"
	"slices"
)

// ID is a message id, a UUIDv7 in its 16 byte form.
type ID [16]byte

// QueueID identifies a queue within one store. The caller assigns ids, starting with
// [Snapshot].NextQueueID. They are never used again.
type QueueID uint32

// Ref identifies a message: its queue and its sequence number there. The caller
// assigns the numbers, dense and increasing within a queue. The number of a finished
// message may be used again.
type Ref struct {
	Queue QueueID
	Seq   uint64
}

// Limits of a record. They keep every offset within 32 bits and every value within
// what bbolt can hold.
const (
	MaxPriority = 9
	MaxRoutes   = 8
	MaxSeq      = 1 << 62 // numbers after it must not start again at 0

	MaxAttemptBytes = 2 << 10 // one record of a history
	MaxHistoryBytes = 8 << 10 // all records of a history
	MaxHistory      = 16      // records of a history
)

// Message is the stored form of a message. It does not change until the message is
// finished; the part that changes is its [State].
type Message struct {
	Ref
	ID         ID
	EnqueuedAt int64 // Unix nanoseconds
	NotBefore  int64 // Unix nanoseconds, 0 = at once
	ExpiresAt  int64 // Unix nanoseconds, 0 = never
	Class
	Delayed  bool // NotBefore is the end of a delay, not a requested time of day
	Attempts uint32
	Dead     *Dead  // set in a dead letter queue
	Headers  []byte // opaque
	Payload  []byte // opaque
}

// Class is what on_enqueue, headers or a job have decided about a message: the flow that
// it belongs to, what it costs, and which gates it has to pass.
type Class struct {
	Key          string // fairness key
	Weight       uint32 // of the flow, thousandths
	Cost         uint32 // thousandths
	ThrottleKeys []string
	CircuitKey   string  // empty: none
	Priority     uint8   // 0 to MaxPriority
	Routes       []Route // the message goes by one of them; at most MaxRoutes; nil: it has no choice
}

// Route is one of several ways through gates that a message may go.
type Route struct {
	Name         string
	Weight       uint32   // thousandths; 0: the routes of the message have an order, and no weights
	ThrottleKeys []string // besides the message's own
	CircuitKey   string   // in the place of the message's own; empty: the message's own counts
}

// Gates returns the throttle keys and the circuit key of a message of this class that goes by
// route r. The slice is read-only.
func (c *Class) Gates(r *Route) (throttleKeys []string, circuitKey string) {
	throttleKeys, circuitKey = c.ThrottleKeys, c.CircuitKey
	switch {
	case len(throttleKeys) == 0:
		throttleKeys = r.ThrottleKeys
	case len(r.ThrottleKeys) > 0:
		throttleKeys = slices.Concat(throttleKeys, r.ThrottleKeys)
		slices.Sort(throttleKeys)
		throttleKeys = slices.Compact(throttleKeys)
	}
	if r.CircuitKey != "" {
		circuitKey = r.CircuitKey
	}
	return throttleKeys, circuitKey
}

// KeepFirstRoute gives a message with routes the gates of its first one, and no choice.
func (c *Class) KeepFirstRoute() {
	if len(c.Routes) > 0 {
		c.ThrottleKeys, c.CircuitKey = c.Gates(&c.Routes[0])
		c.Routes = nil
	}
}

// Dead is why and from where a message came to its dead letter queue.
type Dead struct {
	Reason      string
	Error       string
	ErrorCode   string
	SourceQueue string
	At          int64 // Unix nanoseconds
	Attempts    uint32
}

// Lease is the right of one consumer to work on a message. ID 0 is no lease.
type Lease struct {
	ID          uint64
	Consumer    string
	Deadline    int64  // Unix nanoseconds
	DeliveredAt int64  // Unix nanoseconds; 0: not known
	Held        string // opaque: what blocked the message before the delivery, and its route
}

// State is the part of a message that changes. It replaces the previous State of
// the message as a whole.
type State struct {
	Ref
	Attempts  uint32
	ReadyAt   int64 // Unix nanoseconds, 0 = at once
	Lease     Lease
	LastError string
}

// Dedupe records that a queue has seen a dedupe id, and in which message, until a
// time in Unix nanoseconds. It outlives its message. If the id comes again before
// that time, there are two records.
type Dedupe struct {
	Queue    QueueID
	DedupeID string
	ID       ID
	Until    int64
}

// QueueRecord is a queue. Its settings are opaque here.
type QueueRecord struct {
	ID       QueueID
	Name     string
	Settings []byte
}

// ConsumerRecord is a consumer registered with a queue. Queue and name are its key.
type ConsumerRecord struct {
	Queue       QueueID
	Name        string
	MaxInFlight uint32 // at most 131,071 with another Form than the zero value
	ExpiresAt   int64  // Unix nanoseconds, 0: never
	Reg         uint64
	Form        DeliveryForm
}

// DeliveryForm is how a consumer wants its deliveries. The zero value means one message in each,
// with all headers.
type DeliveryForm struct {
	MinHeaders  bool   // few headers
	Batch       uint16 // most messages in a delivery, at most 1,000; 0: deliveries are no batches
	BatchBytes  uint32 // most bytes of a batch: a power of two from 4 KiB to 64 MiB; 0: what NATS allows
	BatchWaitMs uint16 // how long a batch that is not full waits; it is not stored
}

// A registration with a form is stored with the form in the high bits of MaxInFlight and a
// negative ExpiresAt. A fila that knows no forms takes it for one that has expired, and the consumer
// registers again.
//
//	bits 0-16  17-26  27-30                        31
//	MaxInFlight  Batch  log2(BatchBytes) - 11, or 0  MinHeaders
const (
	batchShift, batchMask = 17, 1<<10 - 1
	bytesShift, bytesMask = 27, 1<<4 - 1
	minHeadersBit         = 1 << 31
	leastBytesLog         = 11
)

// Packed returns MaxInFlight, ExpiresAt and Form as they are stored.
func (c *ConsumerRecord) Packed() (maxInFlight uint32, expiresAt int64) {
	f := c.Form
	f.BatchWaitMs = 0
	if f == (DeliveryForm{}) {
		return c.MaxInFlight, c.ExpiresAt
	}
	maxInFlight = c.MaxInFlight | uint32(f.Batch)<<batchShift
	if f.BatchBytes > 0 {
		maxInFlight |= uint32(bits.Len32(f.BatchBytes)-1-leastBytesLog) << bytesShift
	}
	if f.MinHeaders {
		maxInFlight |= minHeadersBit
	}
	if c.ExpiresAt == 0 {
		return maxInFlight, math.MinInt64
	}
	return maxInFlight, -c.ExpiresAt
}

// SetPacked sets what [ConsumerRecord.Packed] returns.
func (c *ConsumerRecord) SetPacked(maxInFlight uint32, expiresAt int64) {
	c.MaxInFlight, c.ExpiresAt = maxInFlight, expiresAt
	if expiresAt >= 0 || maxInFlight>>batchShift == 0 {
		return
	}
	c.MaxInFlight &= 1<<batchShift - 1
	c.Form = DeliveryForm{MinHeaders: maxInFlight&minHeadersBit != 0, Batch: uint16(maxInFlight >> batchShift & batchMask)}
	if log := maxInFlight >> bytesShift & bytesMask; log > 0 {
		c.Form.BatchBytes = 1 << (log + leastBytesLog)
	}
	if c.ExpiresAt = -expiresAt; expiresAt == math.MinInt64 {
		c.ExpiresAt = 0
	}
}

// Entry is one key of the runtime configuration.
type Entry struct {
	Key, Value string
}

// Snapshot is everything in a store but messages and dedupe ids.
type Snapshot struct {
	Queues      []QueueRecord    // by id
	Consumers   []ConsumerRecord // by queue and name
	Config      []Entry          // by key
	Secret      []byte           // 32 random bytes, made with the store
	NextQueueID QueueID          // no queue had this id or a higher one
	CreatedAt   int64            // Unix nanoseconds
}
