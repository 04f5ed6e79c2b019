package ownership

import (
	"errors"
	"fmt"
	"time"
)

// Times that need no setting.
const (
	// Patience is how long the log must have been silent before an owner that answers
	// but cannot write is replaced: an election among NATS servers takes 4 to 9 s, and
	// helps more than another owner.
	Patience = int64(12 * time.Second)
	// RankStep is how much longer each candidate waits than the one before it.
	RankStep = int64(300 * time.Millisecond)
	// DefaultSilence is how long the log is silent before an owner that does not answer
	// is replaced.
	DefaultSilence = int64(2500 * time.Millisecond)

	// retryAfter lies between two questions or attempts of one candidate.
	retryAfter = int64(500 * time.Millisecond)
	// retryFull is how long that gets, twice as long each time, while the log has no
	// room for an epoch: somebody has to make room, and a beat of the owner that has got
	// some shows at once.
	retryFull = int64(8 * time.Second)
	// firstWait is how long a node waits before it campaigns for a shard that nobody
	// has owned: nodes that start together hear of each other in that time.
	firstWait = int64(time.Second)
	// restartWait is how long the log must have been silent before a node takes up again
	// what it owned before it was started anew: two beats, so another process under the
	// same name is not fenced.
	restartWait = int64(time.Second)
	// failedWait is how long a node leaves a shard to others that it could not serve.
	failedWait = Patience
)

// Config of a Machine.
type Config struct {
	Node    string
	Silence int64 // of the log, before an owner that does not answer is replaced
}

// Fence is how far back the sending of an owner's last acked write may lie.
func (c Config) Fence() int64 { return c.Silence / 5 * 4 }

// Seen is what a node has read of the log of a shard. At is when its newest record was
// read.
type Seen struct {
	Epoch    uint64
	Owner    string // of the epoch; "" if there was none yet
	Resigned bool   // the owner has
	To       string // whom it has resigned to; "": to anybody
	Seq      uint64
	At       int64
	Err      error // the log cannot be followed any further
}

// State of a Machine.
type State uint8

// The states. Those from Promoting to Losing wait for the outcome of an action, but for
// Owning.
const (
	Following State = iota // the log
	Asking                 // the owner whether it is there
	Promoting              // writing the epoch record, applying what is before it
	Starting               // owns; the machines are being started
	Owning                 // serves
	Draining               // a handover has begun
	Resigning              // the last record is being written
	Losing                 // the machines are being stopped
)

func (s State) String() string {
	return [...]string{"following", "asking", "promoting", "starting", "owning", "draining", "resigning", "losing"}[s]
}

// Answer is what a node says of a shard to a candidate who asks.
type Answer uint8

// The answers.
const (
	Silent Answer = iota // none came
	Free                 // it does not own the shard
	Well                 // it owns the shard, and its writes are acked
	Stuck                // it owns the shard, and its writes are not acked, or it is about to own it
)

// Do is what a Machine wants done.
type Do uint8

// All but Fence and Unfence have an outcome, which comes back as [Input.Done]; until
// then the machine wants nothing else but those two.
const (
	Ask     Do = iota // To whether it is well
	Promote           // this node, over what Seen says
	Own               // start the machines of the shard
	Fence             // neither deliver nor answer
	Unfence           // go on
	Drain             // before a handover
	Resign            // to To
	Lose              // stop the machines without writing, and close the store; Why says why
)

// Action is something to do about a shard.
type Action struct {
	Do      Do
	To      string
	Seen    Seen
	Why     error
	Started bool // of Lose: Own has succeeded
}

// Done is the outcome of an action.
type Done struct {
	Err    error
	Answer Answer // of Ask
	Full   bool   // Err is that the log has no room
	Epoch  uint64 // of Promote
}

// Input is what a node knows about a shard now.
type Input struct {
	Seen    Seen
	Rank    int   // how many candidates come before this one
	Leaving bool  // this node ends, and takes nothing over
	Done    *Done // of the action that was under way

	// Of an owner.
	Owns   bool  // the last acked write was sent within [Config.Fence]
	Failed error // what has ended its store
	Fenced bool  // Failed is that another node owns the shard

	// Hand asks for a handover to To; "" is anybody. It may be asked for again and again.
	Hand bool
	To   string
}

// Reasons of [Lose] that are no failures.
var (
	// ErrHandedOver is why a shard is lost that was handed over.
	ErrHandedOver = errors.New("the shard was handed over")
	errNotFenced  = errors.New("the store of the shard has failed")
)

// Machine is a shard at a node.
//
// A node promotes itself over what it has seen, and the log refuses that if there is
// anything newer. So a machine may be wrong about others, late or slow without harm.
type Machine struct {
	cfg       Config
	state     State
	began     int64 // silence counts from here at the earliest
	notBefore int64 // of the next question or attempt
	retry     int64 // how long the last wait for room in the log was; 0: there was none
	decided   Seen  // what the campaign is about
	epoch     uint64
	fenced    bool
	started   bool
	to        string // whom it is handed over to
	why       error  // what it will be lost for
}

// NewMachine returns a machine that follows since now.
func NewMachine(cfg Config, now int64) *Machine { return &Machine{cfg: cfg, began: now} }

// State returns the state.
func (m *Machine) State() State { return m.state }

// Epoch is that of the last promotion of this node, 0 if there was none.
func (m *Machine) Epoch() uint64 { return m.epoch }

// Fenced reports whether the owner neither delivers nor answers.
func (m *Machine) Fenced() bool { return m.fenced }

// To is whom a handover under way is to.
func (m *Machine) To() string { return m.to }

// Over is what the last promotion was decided on.
func (m *Machine) Over() Seen { return m.decided }

// Started reports whether the machines of the shard run here.
func (m *Machine) Started() bool { return m.started }

// HasStore reports whether this node has been promoted and has not lost the shard.
func (m *Machine) HasStore() bool { return m.state >= Starting }

// Answer is what a candidate is told that asks.
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

// Step takes in what has happened and appends what has to be done.
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

// follow campaigns if it is time.
func (m *Machine) follow(now int64, in Input, out []Action) []Action {
	seen := in.Seen
	if in.Leaving || seen.Err != nil || now < m.notBefore {
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

// wait is how long the log must have been silent.
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

// fence follows what the log says of the owner's writes.
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

// done takes the outcome of the action that the state waits for.
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

// answered goes on after the owner was asked. Meanwhile the log may have moved.
func (m *Machine) answered(now int64, in Input, out []Action) []Action {
	m.state = Following
	seen := in.Seen
	if in.Leaving || seen.Err != nil || seen.Epoch != m.decided.Epoch || seen.Seq != m.decided.Seq {
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

// resign gives the shard away. From here on another one may own it.
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
