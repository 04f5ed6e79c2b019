package load

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/filaq/fila/bench/system"
)

// Spec is the input of a load process.
type Spec struct {
	System system.Name   `json:"system"`
	Access system.Access `json:"access"`
	Queue  system.Queue  `json:"queue"`
	// Keep skips the creation of the queue: it exists already, with messages.
	Keep bool `json:"keep,omitempty"`
	// Remove deletes the queue at the end. bench discards its own servers with their data
	// anyway.
	Remove bool `json:"remove,omitempty"`
	// ServerPID is the process whose CPU and memory are measured; 0 is none.
	ServerPID int `json:"server_pid,omitempty"`
	// DataDir is the server's directory, whose size is sampled; "" is none.
	DataDir string `json:"data_dir,omitempty"`

	Payload int `json:"payload"` // bytes
	// Random makes each payload of random bytes, which cannot be compressed.
	Random bool `json:"random,omitempty"`
	Keys   int  `json:"keys"`  // fairness keys, used in turn; 0 sends no header
	Gates  int  `json:"gates"` // throttle keys of every message

	Phases []Phase `json:"phases"`
}

// Mode is the kind of a phase.
type Mode string

// Modes.
const (
	ModeLife    Mode = "life"    // publish, confirm, deliver, ack
	ModeEnqueue Mode = "enqueue" // publish and confirm, without consumers
	ModeFill    Mode = "fill"    // enqueue exactly Count messages, without warm-up
)

// Phase is a part of a load with its own result. Its name prefixes its figures: phase "fill"
// has fill_rate, a phase without a name has rate.
type Phase struct {
	Name string `json:"name,omitempty"`
	Mode Mode   `json:"mode"`

	Producers int `json:"producers"`
	Consumers int `json:"consumers"`
	// Window is the largest number of messages in flight, over all producers. In mode life a
	// message is in flight from its publish until it is confirmed and acked; Window is also the
	// credit of all consumers together.
	Window int `json:"window"`
	// AckConfirmed makes acks requests: a message is in flight until the reply.
	AckConfirmed bool `json:"ack_confirmed,omitempty"`
	// Rate is the number of messages published a second; 0 is as many as possible.
	Rate float64 `json:"rate,omitempty"`
	// Share sets Rate to this share of the rate of the phase before.
	Share float64 `json:"share,omitempty"`
	// Follow accounts for every message, so that a loss and a duplicate do not cancel out.
	Follow bool `json:"follow,omitempty"`
	// NackEvery nacks one of this many messages once. 0 is none.
	NackEvery int64 `json:"nack_every,omitempty"`
	// SampleMs is the length of the intervals whose figures are reported one by
	// one; 0 is none. Such a phase has no warm-up, and no name.
	SampleMs int64 `json:"sample_ms,omitempty"`
	// Slow is the number of additional consumers that take 5 ms for each message.
	Slow int `json:"slow,omitempty"`

	// The measured part ends at Count messages, DurationMs, or MaxBytes of payload, whichever
	// comes first. 0 is no limit.
	Count      int64 `json:"count,omitempty"`
	DurationMs int64 `json:"duration_ms,omitempty"`
	MaxBytes   int64 `json:"max_bytes,omitempty"`
	// Drain continues after the measured part until the queue is empty, as NAME_drain_rate.
	// Without it the phase ends when its own messages are finished, or at once on top of a
	// backlog.
	Drain bool `json:"drain,omitempty"`
	// SettleMs is the wait before the server's memory is read.
	SettleMs int64 `json:"settle_ms,omitempty"`
}

// MinPayload is the size of the header of a payload, which holds the time of its
// publish and the message's number.
const MinPayload = 16

// Check returns the reason why the load cannot run, or nil.
func (s *Spec) Check() error {
	switch {
	case s.Payload < MinPayload:
		return fmt.Errorf("payload of %d bytes: at least %d are needed", s.Payload, MinPayload)
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

func (p *Phase) check() error {
	switch {
	case p.Mode != ModeLife && p.Mode != ModeEnqueue && p.Mode != ModeFill:
		return fmt.Errorf("mode %q is not known", p.Mode)
	case p.Producers < 1:
		return fmt.Errorf("%d producers: at least one is needed", p.Producers)
	case p.Window < p.Producers:
		return fmt.Errorf("a window of %d for %d producers", p.Window, p.Producers)
	case p.Mode == ModeLife && p.Consumers < 1:
		return fmt.Errorf("%d consumers: at least one is needed", p.Consumers)
	case p.Follow && (p.Mode != ModeLife || p.Slow > 0):
		return errors.New("only whole lives without slow consumers can be followed")
	case p.SampleMs != 0 && p.Name != "":
		return errors.New("figures of intervals have no phase in their names")
	case p.NackEvery != 0 && !p.Follow:
		return errors.New("a phase with nacks must follow the messages")
	case p.Count <= 0 && (p.Mode == ModeFill || p.DurationMs <= 0 && p.MaxBytes <= 0):
		return errors.New("it would not end: neither a count nor a duration")
	}
	return nil
}

// Headers of messages: the fairness key, and the throttle keys gate-1, gate-2.
const (
	KeyHeader  = "key"
	gateHeader = "gate-"
)

// GateHeader returns the header of a throttle key, counted from 1.
func GateHeader(n int) string { return gateHeader + strconv.Itoa(n) }

// Gate returns the n-th throttle key of a queue's messages.
func Gate(queue string, n int) string { return queue + "-" + GateHeader(n) }

// share returns the i-th of parts nearly equal parts of n, at least 1.
func share(n, parts, i int) int {
	one := n / parts
	if i < n%parts {
		one++
	}
	return max(one, 1)
}
