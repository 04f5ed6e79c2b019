package wire

import (
	"slices"
	"strings"
	"time"
)

// WantedHorizons are the times for which fila computes how many messages of a queue are wanted,
// in their order. DefaultHorizon is the one that metrics and queue-inspect show.
var WantedHorizons = [...]time.Duration{0, 30 * time.Second, DefaultHorizon, 5 * time.Minute}

// DefaultHorizon is one of the WantedHorizons.
const DefaultHorizon = time.Minute

// HorizonIndex returns the index of a horizon, -1 if it is none of them.
func HorizonIndex(h time.Duration) int { return slices.Index(WantedHorizons[:], h) }

// HorizonsText lists the WantedHorizons for a message to users.
func HorizonsText() string {
	var all []string
	for _, h := range WantedHorizons {
		all = append(all, FormatMs(h.Milliseconds()))
	}
	return strings.Join(all, ", ")
}
