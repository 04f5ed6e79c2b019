package sidecar

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// What fila itself has to remember, beside messages and what operators set, is
// kept among the configuration entries of the store under keys that no operator
// can name:
//
//	\x00circuit/<key>                an open circuit
//	\x00gates                        the gates over a clean stop: JSON {"at", "parts"}
//	\x00gates/<8 digits>             a part of that: JSON []throttle.State
//	\x00log/<20 digits>              an entry of the audit log
//	\x00override/<key>               limits of a throttle key for a time
//	\x00pause/<kind>/<queue>/<name>  a pause; the queue is that of a fairness key
const (
	statePrefix   = "\x00"
	stateGates    = statePrefix + "gates"
	stateLog      = statePrefix + "log/"
	stateOverride = statePrefix + "override/"
	statePause    = statePrefix + "pause/"
)

// isState reports whether a configuration entry is fila's own.
func isState(key string) bool { return strings.HasPrefix(key, statePrefix) }

// savedGates is what a clean stop leaves of the gates, and what the start found
// of it.
type savedGates struct {
	At    int64 `json:"at"` // Unix ns
	Parts int   `json:"parts"`

	states []throttle.State
	keys   []string // entries that are there, to be deleted
	found  bool     // there is a whole one: the last stop was a clean one
}

// gatePartBytes is about how large a part is; the store takes values up to
// store.MaxHeaderBytes, and one gate has at most some 64 KiB.
const gatePartBytes = 256 << 10

// gatePartsPerBatch bounds one commit.
const gatePartsPerBatch = 64

func gatePart(n int) string { return fmt.Sprintf("%s/%08d", stateGates, n) }

// readGates collects what a clean stop has left. What is not whole does not
// count.
func readGates(entries []store.Entry) (savedGates, error) {
	var g savedGates
	parts := make(map[string]string)
	marker := ""
	for _, e := range entries {
		if e.Key == stateGates {
			marker = e.Value
		} else if !strings.HasPrefix(e.Key, stateGates+"/") {
			continue
		} else {
			parts[e.Key] = e.Value
		}
		g.keys = append(g.keys, e.Key)
	}
	if marker == "" {
		return g, nil
	}
	if err := json.Unmarshal([]byte(marker), &g); err != nil {
		return g, fmt.Errorf("the saved state of the gates: %w", err)
	}
	for i := range g.Parts {
		var states []throttle.State
		if err := json.Unmarshal([]byte(parts[gatePart(i)]), &states); err != nil {
			return g, fmt.Errorf("part %d of the saved state of the gates: %w", i, err)
		}
		g.states = append(g.states, states...)
	}
	g.found = true
	return g, nil
}

// gateBatches are the batches that save states, in their order. The last one
// makes the others count.
func gateBatches(states []throttle.State, now int64) ([]*store.Batch, error) {
	b := &store.Batch{}
	batches := []*store.Batch{b}
	parts := 0
	var part []byte
	closePart := func() {
		if len(part) == 0 {
			return
		}
		if len(b.PutConfig) == gatePartsPerBatch {
			b = &store.Batch{}
			batches = append(batches, b)
		}
		b.PutConfig = append(b.PutConfig, store.Entry{Key: gatePart(parts), Value: string(append(part, ']'))})
		parts++
		part = nil
	}
	for i := range states {
		one, err := json.Marshal(&states[i])
		if err != nil {
			return nil, fmt.Errorf("encode the state of gate %s: %w", states[i].Key, err)
		}
		if len(part)+len(one) > gatePartBytes {
			closePart()
		}
		part = append(part, "[,"[min(len(part), 1)])
		part = append(part, one...)
	}
	closePart()
	marker, err := json.Marshal(savedGates{At: now, Parts: parts})
	if err != nil {
		return nil, fmt.Errorf("encode the state of the gates: %w", err)
	}
	b.PutConfig = append(b.PutConfig, store.Entry{Key: stateGates, Value: string(marker)})
	return batches, nil
}

// submit hands b to the store and returns where the outcome will be: nil when it
// is on disk. An empty batch is not written. Whoever need not wait for it may
// leave the outcome alone: after an error the server stops.
func (c *core) submit(b *store.Batch) <-chan error {
	done := make(chan error, 1)
	if len(b.PutConfig)+len(b.DeleteConfig) == 0 {
		done <- nil
		return done
	}
	b.Done = func(err error) { done <- err }
	c.store.Submit(b)
	return done
}

// saveAs saves changes of the runtime configuration, with their entries in the
// audit log, and waits for the disk.
func (s *Server) saveAs(by string) func(*store.Batch, []change) error {
	return func(b *store.Batch, changes []change) error {
		s.throttles.audit.record(b, s.core.clock.Now(), by, changes...)
		return <-s.core.submit(b)
	}
}

// change is a key with its values before and after a change; nil is not set.
type change struct {
	key      string
	old, new *string
}

// outcome turns the error of a commit into an answer.
func (c *core) outcome(err error) *wire.Error {
	if err == nil {
		return nil
	}
	return c.commitError(err)
}
