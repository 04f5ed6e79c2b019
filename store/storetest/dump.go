package storetest

import (
	"bytes"
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
)

// Content is the content of a store.
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
	State   *store.State
	History [][]byte
}

// Keep copies the data that is valid during a call only, headers and payload too.
func Keep(m *store.Message, st *store.State, history [][]byte) Stored {
	x := Stored{Message: *m}
	x.Headers, x.Payload = bytes.Clone(m.Headers), bytes.Clone(m.Payload)
	for _, record := range history {
		x.History = append(x.History, bytes.Clone(record))
	}
	if m.Dead != nil {
		d := *m.Dead
		x.Dead = &d
	}
	if st != nil {
		y := *st
		x.State = &y
	}
	return x
}

// Dump reads everything from a store that was just opened, normalised. It identifies
// dedupe ids by queue and id.
func Dump(t require.TestingT, s store.Store) *Content {
	snap, err := s.Snapshot()
	require.NoError(t, err)
	c := &Content{
		Queues: snap.Queues, Consumers: snap.Consumers, Config: snap.Config, NextQueue: snap.NextQueueID,
		Dedupes: make(map[string]store.Dedupe),
	}
	var refs []store.Ref
	var sizes []int
	_, err = s.Recover(store.Visitor{
		Message: func(m *store.Message, size int, st *store.State) error {
			c.Messages = append(c.Messages, Keep(m, st, nil))
			refs = append(refs, m.Ref)
			sizes = append(sizes, size)
			return nil
		},
		Dedupe: func(d store.Dedupe) error {
			c.Dedupes[fmt.Sprintf("%d/%s", d.Queue, d.DedupeID)] = d
			return nil
		},
	})
	require.NoError(t, err)
	require.NoError(t, s.Read(refs, func(i int, headers, payload []byte) {
		c.Messages[i].Headers = bytes.Clone(headers)
		c.Messages[i].Payload = bytes.Clone(payload)
		require.Equal(t, sizes[i], len(headers)+len(payload), "size of %v", refs[i])
	}))
	require.NoError(t, s.Dead(refs, func(i int, d *store.Dead) { require.Equal(t, c.Messages[i].Dead, d, "%v", refs[i]) }))
	require.NoError(t, s.History(refs, func(i int, records [][]byte) {
		for _, r := range records {
			c.Messages[i].History = append(c.Messages[i].History, bytes.Clone(r))
		}
	}))
	return c.Normalise()
}

// Normalise makes equivalent contents equal: empty slices become nil.
func (c *Content) Normalise() *Content {
	for i := range c.Messages {
		m := &c.Messages[i]
		m.Headers, m.Payload, m.ThrottleKeys = orNil(m.Headers), orNil(m.Payload), orNil(m.ThrottleKeys)
	}
	for i := range c.Queues {
		c.Queues[i].Settings = orNil(c.Queues[i].Settings)
	}
	return c
}

func orNil[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}
