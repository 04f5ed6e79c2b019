package bench

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/client"
)

// system is what a load runs against.
type system string

const (
	sysFila     system = "fila"           // fair order by a header of the message
	sysFIFO     system = "fila-fifo"      // fila without a fairness key
	sysHops     system = "hops"           // the same messages, nothing done with them
	sysHopsWire system = "hops-wire"      // the same, delivered with fila's headers and ack subjects
	sysJS       system = "jetstream"      // WorkQueue stream, file storage, default sync
	sysJSSynced system = "jetstream-sync" // the same, synced before each confirmation
)

// systemNames are all systems, in the order of tables.
var systemNames = []string{string(sysFila), string(sysFIFO), string(sysHops), string(sysHopsWire), string(sysJS), string(sysJSSynced)}

// isHops reports whether nothing is done with messages.
func (s system) isHops() bool { return s == sysHops || s == sysHopsWire }

// isFila reports whether fila is the server.
func (s system) isFila() bool { return s == sysFila || s == sysFIFO }

// Access says where a server is and how to log in. It travels to load processes
// on their standard input, never on a command line.
type Access struct {
	URL         string `json:"url"`
	Creds       string `json:"creds,omitempty"` // file
	NKey        string `json:"nkey,omitempty"`  // file with the seed
	User        string `json:"user,omitempty"`
	Password    string `json:"password,omitempty"`
	Token       string `json:"token,omitempty"`
	CA          string `json:"ca,omitempty"` // PEM files
	Cert        string `json:"cert,omitempty"`
	Key         string `json:"key,omitempty"`
	InboxPrefix string `json:"inbox_prefix,omitempty"`
	TLSFirst    bool   `json:"tls_first,omitempty"`
	Prefix      string `json:"prefix,omitempty"` // of fila's subjects
}

// connect opens a connection that is not repaired: a measurement that loses its
// server has failed.
func (a *Access) connect(name string) (*nats.Conn, error) {
	opts := []nats.Option{nats.Name("fila bench " + name), nats.NoReconnect(), nats.Timeout(10 * time.Second)}
	if a.Creds != "" {
		opts = append(opts, nats.UserCredentials(a.Creds))
	}
	if a.NKey != "" {
		seed, err := nats.NkeyOptionFromSeed(a.NKey)
		if err != nil {
			return nil, fmt.Errorf("nkey %s: %w", a.NKey, err)
		}
		opts = append(opts, seed)
	}
	if a.User != "" {
		opts = append(opts, nats.UserInfo(a.User, a.Password))
	}
	if a.Token != "" {
		opts = append(opts, nats.Token(a.Token))
	}
	if a.CA != "" {
		opts = append(opts, nats.RootCAs(a.CA))
	}
	if a.Cert != "" {
		opts = append(opts, nats.ClientCert(a.Cert, a.Key))
	}
	if a.TLSFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	if a.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(a.InboxPrefix))
	}
	nc, err := nats.Connect(a.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return nc, nil
}

// loadSpec is all that a load process is told.
type loadSpec struct {
	System system `json:"system"`
	Access Access `json:"access"`
	Queue  string `json:"queue"` // name of the queue or stream
	// Keep leaves out creating the queue: it is there already, with messages.
	Keep bool `json:"keep,omitempty"`
	// Remove deletes the queue in the end. Servers of our own are thrown away
	// with all they have.
	Remove bool `json:"remove,omitempty"`
	// ServerPID is the process whose CPU and memory are measured; 0 is none.
	ServerPID int `json:"server_pid,omitempty"`
	// DataDir is the server's directory, whose size is sampled; "" is none.
	DataDir string `json:"data_dir,omitempty"`

	Payload  int                  `json:"payload"` // bytes
	Keys     int                  `json:"keys"`    // fairness keys, used in turn; 0 sends no header
	Gates    int                  `json:"gates"`   // throttle keys of every message
	Settings client.QueueSettings `json:"settings"`
	// Config is set before the start; "%s" in a key is the queue's name.
	Config map[string]string `json:"config,omitempty"`

	Phases []phase `json:"phases"`
}

// mode says what a phase does.
type mode string

const (
	modeLife    mode = "life"    // publish, confirm, deliver, ack
	modeEnqueue mode = "enqueue" // publish and confirm, nobody consumes
	modeFill    mode = "fill"    // enqueue exactly Count messages, without warm-up
)

// phase is a stretch of load with one result. Its figures are named after it:
// phase "fill" makes fill_rate, a phase without a name makes rate.
type phase struct {
	Name string `json:"name,omitempty"`
	Mode mode   `json:"mode"`

	Producers int `json:"producers"`
	Consumers int `json:"consumers"`
	// Window is how many messages are in flight at most, over all producers. In
	// a whole life a message is in flight from its publish until it is confirmed
	// and acked; it is also the credit of all consumers together.
	Window int `json:"window"`
	// AckConfirmed makes acks requests: a message is in flight until the reply.
	AckConfirmed bool `json:"ack_confirmed,omitempty"`
	// Rate is how many messages a second are published; 0 is as many as go.
	Rate float64 `json:"rate,omitempty"`
	// Share makes Rate that share of what the phase before has reached.
	Share float64 `json:"share,omitempty"`
	// Follow keeps account of every message, so that a loss and a message that
	// came twice do not make up for each other.
	Follow bool `json:"follow,omitempty"`
	// NackEvery: of so many messages, one is nacked once. 0 is none.
	NackEvery int64 `json:"nack_every,omitempty"`
	// SampleMs is the length of the intervals whose figures are reported one by
	// one; 0 is none. Such a phase has no warm-up, and no name.
	SampleMs int64 `json:"sample_ms,omitempty"`
	// Slow is how many further consumers wait 5 ms over each message.
	Slow int `json:"slow,omitempty"`

	// The measured part: Count messages, or DurationMs, or MaxBytes of payload,
	// what comes first. 0 is no limit.
	Count      int64 `json:"count,omitempty"`
	DurationMs int64 `json:"duration_ms,omitempty"`
	MaxBytes   int64 `json:"max_bytes,omitempty"`
	// Drain goes on after the measured part until no message is left, and
	// measures that as NAME_drain_rate. Without it the phase ends when its own
	// messages have been finished, or at once on top of a backlog.
	Drain bool `json:"drain,omitempty"`
	// SettleMs is how long to wait before the server's memory is read.
	SettleMs int64 `json:"settle_ms,omitempty"`
}

// Size of the header of a payload, which holds the time of its publish and the
// message's number.
const minPayload = 16

// Warm-up: this part of the measured one, before it.
const warmShare = 0.2

func (s *loadSpec) check() error {
	switch {
	case s.Payload < minPayload:
		return fmt.Errorf("payload of %d bytes: at least %d are needed", s.Payload, minPayload)
	case len(s.Phases) == 0:
		return errors.New("no phases")
	}
	for i := range s.Phases {
		if err := s.Phases[i].check(); err != nil {
			return fmt.Errorf("phase %d: %w", i+1, err)
		}
	}
	if s.Phases[0].Share != 0 {
		return errors.New("phase 1 has none before it whose rate it could share")
	}
	return nil
}

func (p *phase) check() error {
	switch {
	case p.Mode != modeLife && p.Mode != modeEnqueue && p.Mode != modeFill:
		return fmt.Errorf("mode %q is not known", p.Mode)
	case p.Producers < 1:
		return fmt.Errorf("%d producers: at least one is needed", p.Producers)
	case p.Window < p.Producers:
		return fmt.Errorf("a window of %d for %d producers", p.Window, p.Producers)
	case p.Mode == modeLife && p.Consumers < 1:
		return fmt.Errorf("%d consumers: at least one is needed", p.Consumers)
	case p.Follow && (p.Mode != modeLife || p.Slow > 0):
		return errors.New("only whole lives without slow consumers can be followed")
	case p.SampleMs != 0 && p.Name != "":
		return errors.New("figures of intervals have no phase in their names")
	case p.NackEvery != 0 && !p.Follow:
		return errors.New("who nacks must follow the messages")
	case p.Count <= 0 && (p.Mode == modeFill || p.DurationMs <= 0 && p.MaxBytes <= 0):
		return errors.New("it would not end: neither a count nor a duration")
	}
	return nil
}

// share divides n among parts as evenly as it goes, at least 1 for each.
func share(n, parts, i int) int {
	one := n / parts
	if i < n%parts {
		one++
	}
	return max(one, 1)
}
