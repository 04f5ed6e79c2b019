package control

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// savedGates is the state of the gates that a clean stop stores and the next start reads.
type savedGates struct {
	At    int64 `json:"at"` // Unix ns
	Parts int   `json:"parts"`

	states []throttle.State
	keys   []string // entries that are there, to be deleted
	found  bool     // there is a whole one: the last stop was a clean one
}

// gatePartBytes is the approximate size of a part. The store takes values up to
// store.MaxHeaderBytes, and one gate has at most some 64 KiB.
const gatePartBytes = 256 << 10

// gatePartV1 begins a part; states in the format of throttle.AppendState follow. A part of
// an older version is JSON, an array of throttle.State.
const gatePartV1 = 1

// gatePartsPerWrite bounds one commit.
const gatePartsPerWrite = 64

func gatePart(n int) string { return fmt.Sprintf("%s/%08d", stateGates, n) }

// readGates reads the state that a clean stop has stored. An incomplete one does not count.
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
		var err error
		if g.states, err = readGatePart(g.states, texts[gatePart(i)], g.At); err != nil {
			return g, fmt.Errorf("part %d of the saved state of the gates: %w", i, err)
		}
	}
	g.found = true
	return g, nil
}

// readGatePart appends the states of a part that was saved at a time.
func readGatePart(states []throttle.State, text string, at int64) ([]throttle.State, error) {
	if strings.HasPrefix(text, string(rune(gatePartV1))) {
		return throttle.ReadStates(states, text[1:], at)
	}
	var part []throttle.State
	if err := json.Unmarshal([]byte(text), &part); err != nil {
		return states, err
	}
	for i := range part {
		part[i].Key = wire.NamedKey(part[i].Key)
	}
	return append(states, part...), nil
}

// saveGates stores the states of gates in several writes. The last write makes them valid.
func saveGates(kv KV, states []throttle.State, now int64) error {
	var kept Batch
	part, parts := []byte{gatePartV1}, 0
	closePart := func() {
		kept.put(gatePart(parts), string(part))
		part = part[:1]
		parts++
	}
	for i := range states {
		before := len(part)
		part = throttle.AppendState(part, &states[i], now)
		if len(part) <= gatePartBytes || before == 1 {
			continue
		}
		last := slices.Clone(part[before:])
		part = part[:before]
		closePart()
		part = append(part, last...)
		if len(kept.Put) == gatePartsPerWrite {
			if err := <-kv.Write(kept); err != nil {
				return err
			}
			kept = Batch{}
		}
	}
	if len(part) > 1 {
		closePart()
	}
	kept.putJSON(stateGates, savedGates{At: now, Parts: parts})
	return <-kv.Write(kept)
}
