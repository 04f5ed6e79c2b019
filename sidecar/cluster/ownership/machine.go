package ownership

import (
	"errors"
	"fmt"
	"time"
)

// Times of the Machine.
const (
	// Patience is how long the log must have been silent before an owner is replaced that
	// answers but cannot write. An election among NATS servers takes 4 to 9 s, and another
	// owner would not help.
	Patience = int64(12 * time.Second)
	// RankStep is how much longer each candidate waits than the one before it.
	RankStep = int64(300 * time.Millisecond)
	// DefaultSilence is how long the log must have been silent before an owner is replaced that
	// does not answer.
	DefaultSilence = int64(2500 * time.Millisecond)

	// retryAfter is the time between questions or attempts of a candidate.
	retryAfter = int64(500 * time.Millisecond)
	// retryFull is the longest wait, doubling from retryAfter, while the log has no room for an
	// epoch record. A heartbeat of an owner shows at once that there is room again.
	retryFull = int64(8 * time.Second)
	// firstWait is how long a node waits before it campaigns for a shard without any owner yet,
	// so that nodes that start together learn of each other.
	firstWait = int64(time.Second)
	// restartWait is how long the log must have been silent before a restarted node takes over
	// its own shard again: two heartbeats, so that it does not fence another process of the same
	// name.
	restartWait = int64(time.Second)
	// failedWait is how long a node leaves a shard to others after failing to serve it.
	failedWait = Patience
)

// Config of a Machine.
type Config struct {
	Node    string
	Silence int64 // of the log, before an owner that does not answer is replaced
}

// Fence is how long ago the last acked write of an owner may have been sent.
func (c Config) Fence() int64 { return c.Silence / 5 * 4 }

// Seen is what a node has read of the log of a shard. At is when it read the newest record.
type Seen struct {
	Epoch    uint64
	Owner    string // of the epoch; "" if there has been none
	Resigned bool   // the owner has resigned
	To       string // successor that it has named; "": any node
	Seq      uint64
	At       int64
	Err      error // the log cannot be followed any further
}

// State of a Machine.
type State uint8

// The states. From Promoting to Losing, except in Owning, the machine waits for the outcome of an
// action.
const (
	Following State = iota // following the log
	Asking                 // asking the owner whether it is there
	Promoting              // writing the epoch record and applying what is before it
	Starting               // owner; the queues are being started
	Owning                 // serving
	Draining               // a handover has started
	Resigning              // writing the last record
	Losing                 // the queues are being stopped
)

func (s State) String() string {
	return [...]string{"following", "asking", "promoting", "starting", "owning", "draining", "resigning", "losing"}[s]
}

// Answer is the answer of a node to a candidate's question about a shard.
type Answer uint8

// The answers.
const (
	Silent Answer = iota // there was no answer
	Free                 // it does not own the shard
	Well                 // it owns the shard, and its writes are acked
	Stuck                // it owns the shard, and its writes are not acked, or it is about to own it
)

// Do is the kind of an action.
type Do uint8

// All actions but Fence and Unfence have an outcome, which comes back as [Input.Done]. Until then
// the machine returns only these two.
const (
	Ask     Do = iota // ask To whether it is well
	Promote           // promote this node over Seen
	Own               // start the queues of the shard
	Fence             // stop deliveries and answers
	Unfence           // resume them
	Drain             // prepare the handover
	Resign            // resign to To
	Lose              // stop the queues without writing and close the store, because of Why
)

// Action is an action to carry out for a shard.
type Action struct {
	Do      Do
	To      string
	Seen    Seen
	Why     error
	Started bool // for Lose: Own has succeeded
}

// Done is the outcome of an action.
type Done struct {
	Err    error
	Answer Answer // of Ask
	Full   bool   // Err means that the log has no room
	Epoch  uint64 // of Promote
}

// Input is the state of a shard as the node knows it now.
type Input struct {
	Seen    Seen
	Rank    int   // how many candidates come before this one
	Leaving bool  // this node stops and takes over nothing
	Lacking bool  // another node has, or may have, commits that the log lacks
	Done    *Done // outcome of the running action

	// For an owner.
	Owns   bool  // the last acked write was sent within [Config.Fence]
	Failed error // why its store has failed
	Fenced bool  // Failed means that another node owns the shard

	// Hand requests a handover to To, "" for any node. It may be repeated.
	Hand bool
	To   string
}

// Reasons of [Lose] that are not failures.
var (
	// ErrHandedOver is the reason for losing a shard that was handed over.
	ErrHandedOver = errors.New("the shard was handed over")
	errNotFenced  = errors.New("the store of the shard has failed")
)

// Machine is a shard at a node.
//
// A node promotes itself over what it has seen, and the log refuses that if there is anything
// newer. So a machine may be wrong about others, late or slow without harm.
type Machine struct {
	cfg       Config
	state     State
	began     int64 // silence counts from here at the earliest
	notBefore int64 // earliest time of the next question or attempt
	retry     int64 // last wait for room in the log; 0: none
	decided   Seen  // what the campaign is based on
	epoch     uint64
	fenced    bool
	started   bool
	to        string // target of the handover
	why       error  // reason of the coming Lose
}

// NewMachine returns a machine that follows since now.
func NewMachine(cfg Config, now int64) *Machine { return &Machine{cfg: cfg, began: now} }

// State returns the state.
func (m *Machine) State() State { return m.state }

// Epoch returns the epoch of the last promotion of this node, 0 if there was none.
func (m *Machine) Epoch() uint64 { return m.epoch }

// Fenced reports whether the owner neither delivers nor answers.
func (m *Machine) Fenced() bool { return m.fenced }

// To returns the target of a running handover.
func (m *Machine) To() string { return m.to }

// Over returns what the last promotion was based on.
func (m *Machine) Over() Seen { return m.decided }

// Started reports whether the queues of the shard run here.
func (m *Machine) Started() bool { return m.started }

// HasStore reports whether this node has been promoted and has not lost the shard.
func (m *Machine) HasStore() bool { return m.state >= Starting }

// Answer returns the answer to a candidate's question.
func (m *Machine) Answer(owns bool) Answer {
	switch {
	case m.state < Promoting || m.state == Losing:
		return Free
	case m.state > Promoting && owns:
		return Well
	default:
		return Stuck
	}
}

// Step handles an input and appends the actions that follow.
func (m *Machine) Step(now int64, in Input, out []Action) []Action {
	if in.Done != nil {
		return m.done(now, in, out)
	}
	switch m.state {
	case Following:
		return m.follow(now, in, out)
	case Owning:
		if in.Failed != nil {
			return m.failed(in, out)
		}
		out = m.fence(in, out)
		if in.Hand {
			m.state, m.to = Draining, in.To
			out = append(out, Action{Do: Drain, To: in.To})
		}
	case Draining:
		out = m.fence(in, out)
	}
	return out
}

// follow campaigns if it is time to.
func (m *Machine) follow(now int64, in Input, out []Action) []Action {
	seen := in.Seen
	if in.Leaving || in.Lacking || seen.Err != nil || now < m.notBefore {
		return out
	}
	chosen := seen.Resigned && seen.To == m.cfg.Node
	if !chosen && m.silence(now, seen) < m.wait(seen, in.Rank) {
		return out
	}
	m.decided = seen
	if seen.Epoch == 0 || seen.Resigned || seen.Owner == m.cfg.Node {
		return m.promote(out)
	}
	m.state = Asking
	return append(out, Action{Do: Ask, To: seen.Owner, Seen: seen})
}

func (m *Machine) silence(now int64, seen Seen) int64 { return now - max(seen.At, m.began) }

// wait returns how long the log must have been silent.
func (m *Machine) wait(seen Seen, rank int) int64 {
	turn := int64(rank) * RankStep
	switch {
	case seen.Epoch == 0:
		return firstWait + turn
	case seen.Resigned && seen.To == "":
		return turn
	case !seen.Resigned && seen.Owner == m.cfg.Node:
		return restartWait
	default:
		return m.cfg.Silence + turn
	}
}

func (m *Machine) promote(out []Action) []Action {
	m.state = Promoting
	return append(out, Action{Do: Promote, Seen: m.decided})
}

// fence fences or unfences, depending on the owner's writes.
func (m *Machine) fence(in Input, out []Action) []Action {
	if in.Owns == m.fenced {
		m.fenced = !in.Owns
		do := Unfence
		if m.fenced {
			do = Fence
		}
		out = append(out, Action{Do: do})
	}
	return out
}

// done handles the outcome of the running action.
func (m *Machine) done(now int64, in Input, out []Action) []Action {
	err := in.Done.Err
	switch m.state {
	case Asking:
		return m.answered(now, in, out)
	case Promoting:
		if err != nil {
			wait := retryAfter
			if in.Done.Full {
				wait = min(max(2*m.retry, retryAfter), retryFull)
				m.retry = wait
			} else {
				m.retry = 0
			}
			m.state, m.notBefore = Following, now+wait
			return out
		}
		m.retry = 0
		m.epoch, m.started, m.fenced, m.to, m.why = in.Done.Epoch, false, false, "", nil
		if in.Leaving {
			return m.resign("", ErrHandedOver, out)
		}
		m.state = Starting
		return append(out, Action{Do: Own})
	case Starting:
		if err != nil {
			m.notBefore = now + failedWait
			return m.resign("", fmt.Errorf("the shard does not start: %w", err), out)
		}
		m.state, m.started = Owning, true
		in.Done = nil
		return m.Step(now, in, out)
	case Draining:
		if in.Failed != nil {
			return m.failed(in, out)
		}
		return m.resign(m.to, ErrHandedOver, out)
	case Resigning:
		if err != nil {
			m.why = fmt.Errorf("%w, and the resignation may not have been written: %w", m.why, err)
		}
		return m.lose(out)
	case Losing:
		m.state, m.began, m.fenced, m.started, m.to = Following, now, false, false, ""
		if errors.Is(m.why, errNotFenced) {
			m.notBefore = now + failedWait
		}
	}
	return out
}

// answered continues after the owner's answer. The log may have moved meanwhile.
func (m *Machine) answered(now int64, in Input, out []Action) []Action {
	m.state = Following
	seen := in.Seen
	if in.Leaving || in.Lacking || seen.Err != nil || seen.Epoch != m.decided.Epoch || seen.Seq != m.decided.Seq {
		return out
	}
	tooLong := m.silence(now, seen) >= Patience+int64(in.Rank)*RankStep
	if a := in.Done.Answer; a == Well || a == Stuck && !tooLong {
		m.notBefore = now + retryAfter
		return out
	}
	return m.promote(out)
}

func (m *Machine) failed(in Input, out []Action) []Action {
	m.why = in.Failed
	if !in.Fenced {
		m.why = fmt.Errorf("%w: %w", errNotFenced, in.Failed)
	}
	return m.lose(out)
}

// resign begins to give the shard away. From here on another node may own it.
func (m *Machine) resign(to string, why error, out []Action) []Action {
	m.state, m.to, m.why = Resigning, to, why
	if m.started && !m.fenced {
		m.fenced = true
		out = append(out, Action{Do: Fence})
	}
	return append(out, Action{Do: Resign, To: to})
}

func (m *Machine) lose(out []Action) []Action {
	m.state = Losing
	return append(out, Action{Do: Lose, Why: m.why, Started: m.started})
}
