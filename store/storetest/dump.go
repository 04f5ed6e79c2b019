package storetest

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/filaq/fila/store"
)

// Content is everything that a store holds.
type Content struct {
	Queues    []store.QueueRecord
	Consumers []store.ConsumerRecord
	Config    []store.Entry
	NextQueue store.QueueID
	Messages  []Stored // in the order of recovery
	Dedupes   map[string]store.Dedupe
}

// Stored is a live message with its state.
type Stored struct {
	store.Message
	State *store.State
}

// Dump reads everything from a store that has just been opened. The dedupe ids
// are told apart by queue and id.
func Dump(s store.Store) (*Content, error) {
	snap, err := s.Snapshot()
	if err != nil {
		return nil, err
	}
	c := &Content{
		Queues: snap.Queues, Consumers: snap.Consumers, Config: snap.Config, NextQueue: snap.NextQueueID,
		Dedupes: make(map[string]store.Dedupe),
	}
	var refs []store.Ref
	var sizes []int
	_, err = s.Recover(store.Visitor{
		Message: func(m *store.Message, size int, st *store.State) error {
			x := Stored{Message: *m}
			if m.Dead != nil {
				d := *m.Dead
				x.Dead = &d
			}
			if st != nil {
				y := *st
				x.State = &y
			}
			c.Messages = append(c.Messages, x)
			refs = append(refs, m.Ref)
			sizes = append(sizes, size)
			return nil
		},
		Dedupe: func(d store.Dedupe) error {
			c.Dedupes[fmt.Sprintf("%d/%s", d.Queue, d.DedupeID)] = d
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	err = s.Read(refs, func(i int, headers, payload []byte) {
		c.Messages[i].Headers = bytes.Clone(headers)
		c.Messages[i].Payload = bytes.Clone(payload)
		sizes[i] -= len(headers) + len(payload)
	})
	if err != nil {
		return nil, err
	}
	err = s.Dead(refs, func(i int, d *store.Dead) {
		if !reflect.DeepEqual(d, c.Messages[i].Dead) {
			c.Messages[i].Dead = d // whoever compares will see
		}
	})
	if err != nil {
		return nil, err
	}
	for i, n := range sizes {
		if n != 0 {
			return nil, fmt.Errorf("size of %v is %d off", refs[i], n)
		}
	}
	return c, nil
}

// Normalise makes contents comparable that mean the same: empty slices become
// nil ones.
func (c *Content) Normalise() *Content {
	for i := range c.Messages {
		m := &c.Messages[i]
		if len(m.Headers) == 0 {
			m.Headers = nil
		}
		if len(m.Payload) == 0 {
			m.Payload = nil
		}
		if len(m.ThrottleKeys) == 0 {
			m.ThrottleKeys = nil
		}
	}
	for i := range c.Queues {
		if len(c.Queues[i].Settings) == 0 {
			c.Queues[i].Settings = nil
		}
	}
	return c
}
