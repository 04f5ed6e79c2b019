package gates

import (
	"slices"

	"github.com/filaq/fila/throttle"
)

// BlockKind is what blocks a message.
type BlockKind uint8

// The kinds, in the order in which metrics list them.
const (
	ByNothing BlockKind = iota
	ByRate
	ByWindow
	ByInFlight
	ByReserved
	ByTurn
	ByCircuit
	ByPause
	ByOrder
	ByBudget
	BlockKinds // the number of kinds that block
)

// A message that nothing blocks may still wait for these.
const (
	ByNoConsumer = BlockKinds + iota
	ByNoCredit
)

var blockNames = [...]string{
	"open", "rate", "window", "concurrency", "reserved", "turn", "circuit", "paused", "order", "budget", "no consumer", "no credit",
}

func (k BlockKind) String() string { return blockNames[k] }

var throttleKinds = [BlockKinds]throttle.Kind{
	ByRate: throttle.ByRate, ByWindow: throttle.ByWindow, ByInFlight: throttle.ByInFlight, ByReserved: throttle.ByReserved,
	ByTurn: throttle.ByTurn, ByPause: throttle.ByPause, ByBudget: throttle.ByBudget,
}

// BlockOf translates the answer of a throttle key.
func BlockOf(k throttle.Kind) BlockKind {
	if k == throttle.Open {
		return ByNothing
	}
	return BlockKind(slices.Index(throttleKinds[:], k))
}

// Place is where messages wait: at a throttle key, at a circuit, for the end of a
// pause, or, if it is zero, nowhere in particular.
type Place struct {
	Throttle *throttle.Gate
	Circuit  Circuit
	Paused   bool
	Queue    bool  // the whole queue is paused, not one key
	Until    int64 // Unix ns: end of the pause
}
