package control

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// savedGates is what a clean stop leaves of the gates, and what the start found of
// it.
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

// gatePartsPerWrite bounds one commit.
const gatePartsPerWrite = 64

func gatePart(n int) string { return fmt.Sprintf("%s/%08d", stateGates, n) }

// readGates collects what a clean stop has left. What is not whole does not count.
func readGates(kept []store.Entry) (savedGates, error) {
	var g savedGates
	texts := make(map[string]string)
	for _, e := range kept {
		if e.Key == stateGates || strings.HasPrefix(e.Key, stateGates+"/") {
			texts[e.Key] = e.Value
			g.keys = append(g.keys, e.Key)
		}
	}
	if texts[stateGates] == "" {
		return g, nil
	}
	if err := json.Unmarshal([]byte(texts[stateGates]), &g); err != nil {
		return g, fmt.Errorf("the saved state of the gates: %w", err)
	}
	for i := range g.Parts {
		var states []throttle.State
		if err := json.Unmarshal([]byte(texts[gatePart(i)]), &states); err != nil {
			return g, fmt.Errorf("part %d of the saved state of the gates: %w", i, err)
		}
		for i := range states {
			states[i].Key = wire.NamedKey(states[i].Key)
		}
		g.states = append(g.states, states...)
	}
	g.found = true
	return g, nil
}

// saveGates keeps the states of gates in several writes, the last of which makes the
// others count.
func saveGates(kv KV, states []throttle.State, now int64) error {
	var kept Batch
	var part []json.RawMessage
	parts, size := 0, 0
	closePart := func() {
		kept.putJSON(gatePart(parts), part)
		part, size = nil, 0
		parts++
	}
	for i := range states {
		states[i].Key = wire.ShowKey(states[i].Key) // JSON is UTF-8
		state, err := json.Marshal(&states[i])
		if err != nil {
			return fmt.Errorf("encode the state of gate %s: %w", states[i].Key, err)
		}
		if size > 0 && size+len(state) > gatePartBytes {
			closePart()
		}
		if len(kept.Put) == gatePartsPerWrite {
			if err := <-kv.Write(kept); err != nil {
				return err
			}
			kept = Batch{}
		}
		part = append(part, state)
		size += len(state)
	}
	if size > 0 {
		closePart()
	}
	kept.putJSON(stateGates, savedGates{At: now, Parts: parts})
	return <-kv.Write(kept)
}
