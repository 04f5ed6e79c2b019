package system

// Name is that of a system.
type Name string

// Systems.
const (
	Fila          Name = "fila"           // fair order by a header of the message
	FIFO          Name = "fila-fifo"      // fila without a fairness key
	Hops          Name = "hops"           // the same messages, nothing done with them
	HopsWire      Name = "hops-wire"      // the same, delivered with fila's headers and ack subjects
	JetStream     Name = "jetstream"      // WorkQueue stream, file storage, default sync
	JetStreamSync Name = "jetstream-sync" // the same, synced before each confirmation
)

// Names returns all, in the order of tables.
func Names() []string {
	return []string{string(Fila), string(FIFO), string(Hops), string(HopsWire), string(JetStream), string(JetStreamSync)}
}

// IsFila reports whether fila is the server.
func (n Name) IsFila() bool { return n == Fila || n == FIFO }

func (n Name) isHops() bool { return n == Hops || n == HopsWire }

func (n Name) isJetStream() bool { return n == JetStream || n == JetStreamSync }
