package system

import "slices"

// Name is the name of a system.
type Name string

// Systems.
const (
	Fila          Name = "fila"           // fair order by a header of the message
	FilaMin       Name = "fila-min"       // fila, whose consumers ask for few headers
	FilaBatch     Name = "fila-batch"     // fila, with batches of messages, deliveries and acks
	FIFO          Name = "fila-fifo"      // fila without a fairness key
	Hops          Name = "hops"           // the same messages, only forwarded
	HopsWire      Name = "hops-wire"      // the same, with fila's headers and ack subjects
	JetStream     Name = "jetstream"      // WorkQueue stream, file storage, default sync
	JetStreamSync Name = "jetstream-sync" // the same, synced before each confirmation

	JetStreamFast      Name = "jetstream-fast"       // the same stream, filled by a fast batch, default sync
	JetStreamBatch     Name = "jetstream-batch"      // the same stream, filled by atomic batches, default sync
	JetStreamBatchSync Name = "jetstream-batch-sync" // the same, synced before each batch is confirmed

	FilaR3          Name = "fila-r3"           // a cluster of three nodes with one shard, default sync
	FilaR3Batch     Name = "fila-r3-batch"     // fila-r3, with batches of messages, deliveries and acks
	FilaR3Sync      Name = "fila-r3-sync"      // the same, synced before each confirmation
	JetStreamR3     Name = "jetstream-r3"      // a stream with three replicas on three servers
	JetStreamR3Sync Name = "jetstream-r3-sync" // the same, synced before each confirmation

	RabbitMQ        Name = "rabbitmq"         // quorum queue, one node
	RabbitMQClassic Name = "rabbitmq-classic" // durable classic queue, persistent messages
	Asynq           Name = "redis-asynq"      // asynq, Redis with appendfsync everysec
	AsynqSync       Name = "redis-asynq-sync" // asynq, Redis with appendfsync always
	River           Name = "river"            // River, PostgreSQL with its default sync
	Beanstalkd      Name = "beanstalkd"       // binlog, synced every 50 ms
	BeanstalkdSync  Name = "beanstalkd-sync"  // binlog, synced at every write
)

// kind says what the server of a system is.
type kind int

const (
	kindUnknown kind = iota
	kindFila
	kindCluster
	kindHops
	kindStream
	kindReplicated
	kindPeer
)

// Promises of confirmed publishes.
const (
	promiseFila           = "synced, or already acked: a message that is acked before its commit is never written"
	promiseNothing        = "nothing is stored"
	promiseCached         = "in the page cache, synced every two minutes"
	promiseSynced         = "synced"
	promiseMajority       = "in the page caches of two of three servers"
	promiseMajoritySynced = "synced by two of three servers"
)

// description is what is known about a system.
type description struct {
	name    Name
	kind    kind
	sync    bool   // the server has a setting to sync every write, and it is set
	promise string // of a confirmed publish
}

// systems are all systems, in the order of tables.
var systems = []description{
	{Fila, kindFila, false, promiseFila},
	{FilaMin, kindFila, false, promiseFila},
	{FilaBatch, kindFila, false, promiseFila + "; one confirmation for a batch"},
	{FIFO, kindFila, false, promiseFila},
	{FilaR3, kindCluster, false, promiseMajority + ", or already acked"},
	{FilaR3Batch, kindCluster, false, promiseMajority + ", or already acked; one confirmation for a batch"},
	{FilaR3Sync, kindCluster, true, promiseMajoritySynced + ", or already acked"},
	{Hops, kindHops, false, promiseNothing},
	{HopsWire, kindHops, false, promiseNothing},
	{JetStream, kindStream, false, promiseCached},
	{JetStreamSync, kindStream, true, promiseSynced},
	{JetStreamFast, kindStream, false, promiseCached + "; one confirmation for many messages"},
	{JetStreamBatch, kindStream, false, promiseCached + "; one confirmation for a batch"},
	{JetStreamBatchSync, kindStream, true, promiseSynced + "; one sync and one confirmation for a batch"},
	{JetStreamR3, kindReplicated, false, promiseMajority},
	{JetStreamR3Sync, kindReplicated, true, promiseMajoritySynced},
	{RabbitMQ, kindPeer, false, promiseSynced + ": quorum queue of one node"},
	{RabbitMQClassic, kindPeer, false, promiseSynced + ": durable classic queue, persistent messages"},
	{Asynq, kindPeer, false, "in the page cache, synced every second"},
	{AsynqSync, kindPeer, true, promiseSynced},
	{River, kindPeer, false, promiseSynced + ": a transaction of PostgreSQL"},
	{Beanstalkd, kindPeer, false, "in the page cache, synced every 50 ms"},
	{BeanstalkdSync, kindPeer, true, promiseSynced},
}

// Names returns all systems, in the order of tables.
func Names() []string { return namesOf(func(kind) bool { return true }) }

// Peers returns the systems of other projects, which need their own servers and clients.
func Peers() []string { return namesOf(func(k kind) bool { return k == kindPeer }) }

func namesOf(fits func(kind) bool) (names []string) {
	for i := range systems {
		if fits(systems[i].kind) {
			names = append(names, string(systems[i].name))
		}
	}
	return names
}

// description returns what is known about a system; an unknown one has kindUnknown.
func (n Name) description() description {
	for i := range systems {
		if systems[i].name == n {
			return systems[i]
		}
	}
	return description{}
}

func (n Name) is(kinds ...kind) bool { return slices.Contains(kinds, n.description().kind) }

// Promise returns what a confirmed publish promises.
func (n Name) Promise() string { return n.description().promise }

// Synced reports whether a server is configured to sync every write.
func (n Name) Synced() bool { return n.description().sync }

// IsFila reports whether the server is fila.
func (n Name) IsFila() bool { return n.is(kindFila, kindCluster) }

// IsCluster reports whether the server is a cluster of fila.
func (n Name) IsCluster() bool { return n.is(kindCluster) }

// IsPeer reports whether the server is another project's.
func (n Name) IsPeer() bool { return n.is(kindPeer) }

// hasFilaBatches reports whether messages, deliveries and acks are in batches of fila.
func (n Name) hasFilaBatches() bool { return n == FilaBatch || n == FilaR3Batch }

// isAtomic reports whether producers publish atomic batches.
func (n Name) isAtomic() bool { return n == JetStreamBatch || n == JetStreamBatchSync }
