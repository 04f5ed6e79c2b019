package shard

import (
	"slices"
	"sync"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// maxDepartures is how many departures of a queue are remembered.
const maxDepartures = 16

// departures are the consumers that have left a queue and are not back. They are in memory only.
type departures struct {
	mu   sync.Mutex
	list []departure // the oldest first
}

type departure struct {
	consumer, reason string // reason: "" if it left by itself
	at               int64  // Unix ns
}

func (d *departures) add(consumer, reason string, at int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(consumer)
	if len(d.list) >= maxDepartures {
		d.list = slices.Delete(d.list, 0, len(d.list)-maxDepartures+1)
	}
	d.list = append(d.list, departure{consumer, reason, at})
}

// forget forgets a consumer that is back.
func (d *departures) forget(consumer string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(consumer)
}

func (d *departures) remove(consumer string) {
	d.list = slices.DeleteFunc(d.list, func(one departure) bool { return one.consumer == consumer })
}

// since returns the departures since a time (Unix ns), the last one first.
func (d *departures) since(at int64) (list []api.Departure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range slices.Backward(d.list) {
		if one.at >= at {
			list = append(list, api.Departure{Consumer: one.consumer, At: wire.Timestamp(one.at), Reason: one.reason})
		}
	}
	return list
}
