package sidecar

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// gateList is the gates of a lane.
type gateList struct {
	throttles []*throttle.Gate
	circuit   *circuit
}

func gatesOf(ln *lane) gateList { return gateList{throttles: ln.set.Gates(), circuit: ln.circuit} }

// gateStates asks gates how they stand.
func (s *Server) gateStates(g gateList, now int64) []wire.GateState {
	var states []wire.GateState
	for _, t := range g.throttles {
		states = append(states, s.throttleState(t, now))
	}
	if g.circuit != nil {
		states = append(states, explainCircuit(g.circuit, now))
	}
	return states
}

func (s *Server) throttleState(g *throttle.Gate, now int64) wire.GateState {
	i := g.Info(now)
	limits, setBy := s.limitsOf(i.Key)
	return wire.GateState{
		Kind: throttleBlock(i.Kind).String(), Gate: "throttle:" + i.Key, Open: i.Kind == throttle.Open,
		OpensAt: opensAt(i.At, now), Limits: limitsText(limits), SetBy: setBy, InUse: useText(&i),
	}
}

func explainCircuit(ci *circuit, now int64) wire.GateState {
	i := ci.info(now)
	n, at := ci.admits(now)
	st := wire.GateState{
		Kind: byCircuit.String(), Gate: "circuit:" + i.Key, Open: n > 0,
		Limits: fmt.Sprintf("opens after %d failures in a row for %s", i.Threshold, time.Duration(i.CooldownMs)*time.Millisecond),
		InUse:  i.State,
		SetBy:  i.Cause,
	}
	if i.ConsecutiveFailures > 0 {
		st.InUse += fmt.Sprintf(", %d failures in a row", i.ConsecutiveFailures)
	}
	if n <= 0 {
		st.OpensAt = opensAt(at, now)
	}
	return st
}

func pausedGate(gate string, until int64) *wire.GateState {
	return &wire.GateState{Kind: byPause.String(), Gate: gate, OpensAt: opensAt(until, 0)}
}

// opensAt is a time as text, empty if it is not known or over.
func opensAt(at, now int64) string {
	if at <= now || at == byHand {
		return ""
	}
	return timestamp(at)
}

func untilText(until int64) string {
	if until == byHand {
		return " until it is resumed"
	}
	return " until " + timestamp(until)
}

// limitsText puts limits into words.
func limitsText(l throttle.Limits) string {
	var parts []string
	if l.Rate != (throttle.Rate{}) {
		text := "rate " + l.Rate.String() + " per second"
		if l.Burst > 0 {
			text += ", burst " + thousandths(l.Burst)
		}
		parts = append(parts, text)
	}
	if l.Limit > 0 {
		parts = append(parts, fmt.Sprintf("%d in %s", l.Limit, time.Duration(l.Window)))
	}
	if l.Concurrency > 0 {
		parts = append(parts, fmt.Sprintf("%d in flight", l.Concurrency))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, "; ")
}

// useText says how much of its limits a gate has used.
func useText(i *throttle.Info) string {
	var parts []string
	if i.Limits.Rate != (throttle.Rate{}) {
		parts = append(parts, thousandths(i.Tokens)+" tokens")
	}
	if i.Limits.Limit > 0 {
		parts = append(parts, fmt.Sprintf("%d in the window", i.InWindow))
	}
	parts = append(parts, fmt.Sprintf("%d in flight", i.InFlight))
	return strings.Join(parts, ", ")
}

func thousandths(n int64) string {
	return strconv.FormatFloat(float64(n)/thousand, 'f', -1, 64)
}

// siteState is the gate of a site, where kind has held a lane back. A site that is
// none, or a pause, is named by gate.
func (s *Server) siteState(at *site, kind blockKind, gate string, now int64) wire.GateState {
	switch at.kind {
	case siteThrottle:
		st := s.throttleState(at.gate, now)
		if st.Open {
			st.Kind = kind.String() // it has opened since, or others come first
		}
		return st
	case siteCircuit:
		return explainCircuit(at.circuit, now)
	case sitePause:
		return *pausedGate(gate, at.at)
	}
	return wire.GateState{Kind: kind.String(), Gate: gate, SetBy: "ordering"}
}

// opens is when the gate of a site may admit a message, math.MaxInt64 if no time is
// known.
func (st *site) opens(now int64) int64 {
	switch st.kind {
	case siteThrottle:
		return st.gate.Info(now).At
	case siteCircuit:
		_, at := st.circuit.admits(now)
		return at
	case sitePause:
		return st.at
	}
	return math.MaxInt64
}

// blockedText names a gate for a sentence.
func blockedText(st *wire.GateState) string {
	var b strings.Builder
	switch st.Kind {
	case "paused":
		fmt.Fprintf(&b, "a pause of %s", st.Gate)
	case "turn":
		fmt.Fprintf(&b, "%s, where others have waited for longer", st.Gate)
	case "reserved":
		fmt.Fprintf(&b, "%s, which another message is collecting", st.Gate)
	default:
		fmt.Fprintf(&b, "%s (%s)", st.Gate, st.Kind)
	}
	if st.Limits != "" && st.Limits != "none" {
		fmt.Fprintf(&b, ", %s", st.Limits)
	}
	if st.SetBy != "" {
		fmt.Fprintf(&b, " [%s]", st.SetBy)
	}
	if st.OpensAt != "" {
		fmt.Fprintf(&b, "; it may open at %s", st.OpensAt)
	}
	return b.String()
}
