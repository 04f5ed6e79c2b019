package meta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"strconv"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Place is the location of a queue: its id, the id of its dead letter queue, and the shard of both.
type Place struct {
	IDs   [2]store.QueueID `json:"ids"`
	Shard int              `json:"shard"`
}

// ErrNoIDs is returned when all queue ids have been used.
var ErrNoIDs = errors.New("there are no ids of queues left")

// Place returns the location of a queue. A queue without one gets ids and a shard, the same from
// every node and at every call until Drop. It waits for JetStream until ctx ends.
func (m *Meta) Place(ctx context.Context, queue string) (Place, error) {
	id := idOf(queuePrefix, wire.Source(queue))
	for {
		m.mu.Lock()
		e, last, moved := m.mu.entries[id], m.mu.entries[idKey], m.mu.moved
		m.mu.Unlock()
		if e.value != nil {
			return readPlace(queue, e.value)
		}
		var before uint64
		if last.value != nil {
			var err error
			if before, err = strconv.ParseUint(string(last.value), 10, 32); err != nil {
				return Place{}, fmt.Errorf("bucket %s: the last id of a queue cannot be read: %w", m.bucket, err)
			}
		}
		if before+2 > math.MaxUint32 {
			return Place{}, ErrNoIDs
		}
		p := Place{[2]store.QueueID{store.QueueID(before + 1), store.QueueID(before + 2)}, shardOf(wire.Source(queue), m.Shards())}
		text, err := json.Marshal(p)
		if err != nil {
			return Place{}, err
		}
		err = <-m.submit(ctx, []put{swap(id, nil, text), swap(idKey, last.value, strconv.AppendUint(nil, before+2, 10))})
		if err == nil {
			return p, nil
		}
		if err := m.again(ctx, err, moved); err != nil {
			return Place{}, err
		}
	}
}

// Drop deletes the location of a queue with these ids. It is no error if there is none. A location
// with other ids stays, since it belongs to a later queue of that name.
func (m *Meta) Drop(ctx context.Context, queue string, ids [2]store.QueueID) error {
	id := idOf(queuePrefix, wire.Source(queue))
	for {
		m.mu.Lock()
		e, moved := m.mu.entries[id], m.mu.moved
		m.mu.Unlock()
		if e.value == nil {
			return nil
		}
		if p, err := readPlace(queue, e.value); err != nil || p.IDs != ids {
			return err
		}
		err := <-m.submit(ctx, []put{swap(id, e.value, nil)})
		if err == nil {
			return nil
		}
		if err := m.again(ctx, err, moved); err != nil {
			return err
		}
	}
}

// Where returns the location of a queue or dead letter queue, as this node knows it. Without one
// it returns the shard that the queue would get.
func (m *Meta) Where(queue string) (Place, bool) {
	m.mu.Lock()
	e := m.mu.entries[idOf(queuePrefix, wire.Source(queue))]
	m.mu.Unlock()
	if e.value != nil {
		if p, err := readPlace(queue, e.value); err == nil {
			return p, true
		}
	}
	return Place{Shard: shardOf(wire.Source(queue), m.Shards())}, false
}

// Queues returns the locations of all queues by name, without dead letter queues.
func (m *Meta) Queues() map[string]Place {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]Place)
	for id, e := range m.mu.entries {
		if name, ok := nameOf(queuePrefix, id); ok && e.value != nil {
			if p, err := readPlace(name, e.value); err == nil {
				all[name] = p
			}
		}
	}
	return all
}

func readPlace(queue string, text []byte) (p Place, err error) {
	if err := json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("where queue %s is cannot be read: %w", queue, err)
	}
	return p, nil
}

// shardOf spreads queues over shards by FNV-1a of the name. It is used for new queues only.
func shardOf(queue string, shards int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(queue)) // never fails
	return int(h.Sum32() % uint32(shards))
}
