package api

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/filaq/fila/wire"
)

// QueueWantedRequest asks for [QueueWanted].
type QueueWantedRequest struct {
	HorizonMs int64 `json:"horizon_ms"` // 0, 30000, 60000 or 300000, default 60000
}

func (r *QueueWantedRequest) check() *wire.Error {
	if wire.HorizonIndex(r.Horizon()) < 0 {
		return wire.BadField("horizon_ms", fmt.Sprint(r.HorizonMs), "allowed are 0, 30000, 60000 and 300000")
	}
	return nil
}

// Bounds implements [wire.Bounded].
func (r *QueueWantedRequest) Bounds() []wire.Bound {
	return []wire.Bound{{Field: "horizon_ms", Value: r.HorizonMs, Max: wire.WantedHorizons[len(wire.WantedHorizons)-1].Milliseconds()}}
}

// Horizon returns the horizon as a duration.
func (r *QueueWantedRequest) Horizon() time.Duration {
	return time.Duration(min(max(r.HorizonMs, -1), math.MaxInt64/1_000_000)) * time.Millisecond
}

// QueueWanted says how many messages of a queue could be worked on within a horizon.
type QueueWanted struct {
	Queue    string `json:"queue"`
	Wanted   int64  `json:"wanted"`    // in flight, and as many of the pending ones as the gates admit
	Pending  int64  `json:"pending"`   // ready or blocked
	InFlight int64  `json:"in_flight"` // with consumers
	// AttemptMs is the mean time from a delivery to its end, of the deliveries that ended in
	// the last one to two minutes; 0: none has.
	AttemptMs float64 `json:"attempt_ms"`
}

// ScaleOptions are how [Scale] counts workers.
type ScaleOptions struct {
	PerWorker  int           // messages that a worker works on at a time
	TargetWait time.Duration // in which workers should finish what is wanted
	Horizon    time.Duration
}

// DefaultScaleOptions count a worker for each message.
func DefaultScaleOptions() ScaleOptions {
	return ScaleOptions{PerWorker: 1, TargetWait: 30 * time.Second, Horizon: wire.DefaultHorizon}
}

// MaxPerWorker and MaxTargetWait bound [ScaleOptions].
const (
	MaxPerWorker  = 1_000_000
	MaxTargetWait = 24 * time.Hour
)

// Check returns an error that names the option and what is allowed.
func (o *ScaleOptions) Check() error {
	switch {
	case o.PerWorker < 1 || o.PerWorker > MaxPerWorker:
		return fmt.Errorf("per_worker is %d: allowed are 1 to %d", o.PerWorker, MaxPerWorker)
	case o.TargetWait < time.Second || o.TargetWait > MaxTargetWait:
		return fmt.Errorf("target_wait is %v: allowed are 1s to 24h", o.TargetWait)
	case wire.HorizonIndex(o.Horizon) < 0:
		return fmt.Errorf("horizon is %v: allowed are %s", o.Horizon, wire.HorizonsText())
	}
	return nil
}

// Scale is how many workers some queues need, answered at /scale.
type Scale struct {
	Wanted  int64  `json:"wanted"`  // of all queues
	Workers int64  `json:"workers"` // that finish it in the target wait, with per_worker messages at a time each
	Active  bool   `json:"active"`  // there is something to work on
	Why     string `json:"why"`
}

// Scale returns how many workers the queues need together. A message that takes less than the
// target wait needs only a part of a place: workers = ceil(wanted * min(1, attempt / target_wait)
// / per_worker). While no attempt has ended, each wanted message needs a place.
func (o *ScaleOptions) Scale(queues []QueueWanted) (s Scale) {
	places, why := 0., make([]string, len(queues))
	for i := range queues {
		q := &queues[i]
		part, takes := 1., "no attempt has ended lately"
		if q.AttemptMs > 0 {
			part = min(1, q.AttemptMs/float64(o.TargetWait.Milliseconds()))
			takes = fmt.Sprintf("an attempt takes %s", wire.FormatMs(int64(math.Ceil(q.AttemptMs))))
		}
		s.Wanted += q.Wanted
		places += float64(q.Wanted) * part
		why[i] = fmt.Sprintf("%s: %d in flight and %d of %d pending can be worked on within %s; %s",
			q.Queue, q.InFlight, max(q.Wanted-q.InFlight, 0), q.Pending, wire.FormatMs(o.Horizon.Milliseconds()), takes)
	}
	s.Workers = int64(math.Ceil(places / float64(o.PerWorker)))
	s.Active = s.Wanted > 0
	s.Why = strings.Join(why, "; ")
	return s
}
