package web

import (
	"fmt"
	"math"

	"github.com/filaq/fila/wire/api"
)

// lanesPicture is the queue as it is: a lane for each fairness key, with its backlog on the
// left, and on the right the next deliveries at the places that they have in the order. So
// the right side reads like notes: from left to right in time, and each in its lane.
type lanesPicture struct {
	Height int // px
	Lanes  []laneShape
	Hidden int        // fairness keys with a backlog and without a lane
	Slots  []laneSlot // of the order
}

// laneShape is one lane. Lengths across are percentages, Y is px.
type laneShape struct {
	api.Lane
	Others bool // the lane of all keys without one
	Color  int
	Y      int

	ReadyX, ReadyW, BlockedX, BlockedW string
	DeficitX, DeficitW                 string // the notch below the bar; no width: nothing
	Owes                               bool   // the deficit is negative
	Marks                              []laneMark
}

// laneMark is a delivery in its lane.
type laneMark struct {
	N        int
	X, W, TX string
	api.NextDelivery
}

// Waits says what the delivery waits for: "" a consumer, "gate" a time, "end" another message.
func (m laneMark) Waits() string {
	switch {
	case m.Gate == "":
		return ""
	case m.AdmitsAt == "":
		return "end"
	default:
		return "gate"
	}
}

// laneSlot is a place in the order, with a line through all lanes.
type laneSlot struct{ X string }

const (
	// maxLanes is how many keys have a lane.
	maxLanes = 12
	// laneHeight and laneTop are px.
	laneHeight, laneTop = 44, 24
	// backlogEnd is where backlogs end and the order begins; bars are at most so long.
	backlogEnd, backlogLength = 44.0, 43.0
	orderBegin, orderLength   = 47.0, 52.5
	// deficitLength is the length of the notch of a key that may spend a whole turn.
	deficitLength = 12.0
)

// pictureOf draws lanes. colors has the colors of keys.
func pictureOf(reply *api.LanesReply, colors map[string]int) (p lanesPicture) {
	lanes := make(map[string]int)
	most := 1.0
	for i := range reply.Lanes {
		l := &reply.Lanes[i]
		if len(p.Lanes) == maxLanes || l.Ready+l.Blocked == 0 {
			break
		}
		most = max(most, float64(l.Ready+l.Blocked))
		lanes[l.Key] = len(p.Lanes)
		p.Lanes = append(p.Lanes, laneShape{Lane: *l, Color: colors[l.Key]})
	}
	p.Hidden = reply.Keys - len(p.Lanes)
	for i := range p.Lanes {
		p.Lanes[i].shape(most, reply.Quantum)
	}
	width := orderLength / float64(max(len(reply.Next), api.DefaultLaneForecast))
	for i, next := range reply.Next {
		at, ok := lanes[next.Key]
		if !ok {
			at = len(p.Lanes)
			if at == 0 || !p.Lanes[at-1].Others {
				p.Lanes = append(p.Lanes, laneShape{Others: true})
			} else {
				at--
			}
		}
		x := orderBegin + float64(i)*width
		p.Lanes[at].Marks = append(p.Lanes[at].Marks, laneMark{
			N: i + 1, X: percentOf(x), W: percentOf(width * 0.84), TX: percentOf(x + width*0.42), NextDelivery: next,
		})
		p.Slots = append(p.Slots, laneSlot{percentOf(x + width*0.42)})
	}
	for i := range p.Lanes {
		p.Lanes[i].Y = laneTop + i*laneHeight
	}
	p.Height = laneTop + len(p.Lanes)*laneHeight
	return p
}

// shape computes the bars of a lane. The backlog stands before backlogEnd, ready messages
// first; a bar that is not empty can be seen.
func (l *laneShape) shape(most float64, quantum int64) {
	length := func(n int64) float64 {
		if n == 0 {
			return 0
		}
		return max(backlogLength*float64(n)/most, 0.6)
	}
	ready, blocked := length(l.Ready), length(l.Blocked)
	if over := ready + blocked - backlogLength; over > 0 {
		if ready > blocked {
			ready -= over
		} else {
			blocked -= over
		}
	}
	l.ReadyX, l.ReadyW = percentOf(backlogEnd-ready), percentOf(ready)
	l.BlockedX, l.BlockedW = percentOf(backlogEnd-ready-blocked), percentOf(blocked)
	if turn := l.Weight * float64(quantum); l.Deficit != 0 && turn > 0 {
		w := max(deficitLength*min(math.Abs(l.Deficit)/turn, 1), 0.6)
		l.DeficitX, l.DeficitW, l.Owes = percentOf(backlogEnd-w), percentOf(w), l.Deficit < 0
	}
}

func percentOf(v float64) string { return fmt.Sprintf("%.2f%%", v) }
