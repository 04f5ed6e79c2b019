package system

// Name is the name of a system.
type Name string

// Systems.
const (
	Fila          Name = "fila"           // fair order by a header of the message
	FIFO          Name = "fila-fifo"      // fila without a fairness key
	Hops          Name = "hops"           // the same messages, only forwarded
	HopsWire      Name = "hops-wire"      // the same, with fila's headers and ack subjects
	JetStream     Name = "jetstream"      // WorkQueue stream, file storage, default sync
	JetStreamSync Name = "jetstream-sync" // the same, synced before each confirmation

	FilaR3          Name = "fila-r3"           // a cluster of three nodes with one shard, default sync
	FilaR3Sync      Name = "fila-r3-sync"      // the same, synced before each confirmation
	JetStreamR3     Name = "jetstream-r3"      // a stream with three replicas on three servers
	JetStreamR3Sync Name = "jetstream-r3-sync" // the same, synced before each confirmation
)

// Names returns all systems, in the order of tables.
func Names() []string {
	return []string{
		string(Fila), string(FIFO), string(FilaR3), string(FilaR3Sync),
		string(Hops), string(HopsWire), string(JetStream), string(JetStreamSync), string(JetStreamR3), string(JetStreamR3Sync),
	}
}

// IsFila reports whether the server is fila.
func (n Name) IsFila() bool { return n == Fila || n == FIFO || n.IsCluster() }

// IsCluster reports whether the server is a cluster of fila.
func (n Name) IsCluster() bool { return n == FilaR3 || n == FilaR3Sync }

// filas is the number of fila systems, which come first.
const filas = 4

func (n Name) isHops() bool { return n == Hops || n == HopsWire }

func (n Name) isJetStream() bool { return n == JetStream || n == JetStreamSync || n.isReplicated() }

func (n Name) isReplicated() bool { return n == JetStreamR3 || n == JetStreamR3Sync }
