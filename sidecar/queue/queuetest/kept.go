package queuetest

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle/adapt"
	"github.com/filaq/fila/throttle/budget"
)

// Keys on the disk of a fleet: for bookings of budgets, and for learned levels, which the fleet
// writes after a cut and at an orderly stop.
const (
	keptBudget = "\x00budget/"
	keptLevel  = "\x00level/"
)

// KeepBooking implements [throttle.Bank].
func (f *Fleet) KeepBooking(key string, b budget.Booking) {
	f.keep(keptBudget+key, b.Record, func(err error) { wake(f.Gates.Booked(key, b.Number, err == nil, f.Now, nil)) })
}

// Warn implements [throttle.Bank].
func (f *Fleet) Warn(string, int16, budget.State) {}

func (f *Fleet) keep(key string, value any, done func(error)) {
	f.Disk.Submit(&store.Batch{PutConfig: []store.Entry{f.entry(key, value)}, Done: done})
}

func (f *Fleet) entry(key string, value any) store.Entry {
	text, err := json.Marshal(value)
	require.NoError(f.T, err)
	return store.Entry{Key: key, Value: string(text)}
}

// openGates gives the gates what the disk has, before they get limits.
func (f *Fleet) openGates(config []store.Entry) {
	levels, ledgers := make(map[string]adapt.Level), make(map[string]budget.Record)
	for _, e := range config {
		if key, ok := strings.CutPrefix(e.Key, keptLevel); ok {
			readKept(f, e, key, levels)
		}
		if key, ok := strings.CutPrefix(e.Key, keptBudget); ok {
			readKept(f, e, key, ledgers)
		}
	}
	f.Gates.Bank(f, ledgers)
	f.Gates.RestoreLevels(levels)
	f.cut = make(map[string]bool)
	f.Gates.OnCut(func(key string) { f.cut[key] = true })
}

func readKept[V any](f *Fleet, e store.Entry, key string, into map[string]V) {
	var v V
	require.NoError(f.T, json.Unmarshal([]byte(e.Value), &v))
	into[key] = v
}

// keepCuts writes the levels that were cut.
func (f *Fleet) keepCuts() {
	for _, key := range slices.Sorted(maps.Keys(f.cut)) {
		if gate, ok := f.Gates.Find(key); ok {
			if level, ok := gate.Level(); ok {
				f.keep(keptLevel+key, level, nil)
			}
		}
	}
	clear(f.cut)
}

// keepGates writes what an orderly stop writes of the gates.
func (f *Fleet) keepGates() {
	var put []store.Entry
	var gone []string
	ledgers, levels := f.Gates.LedgersToKeep(), f.Gates.Levels()
	for _, key := range slices.Sorted(maps.Keys(ledgers)) {
		put = append(put, f.entry(keptBudget+key, ledgers[key]))
	}
	for _, key := range slices.Sorted(maps.Keys(levels)) {
		put = append(put, f.entry(keptLevel+key, levels[key]))
	}
	snap, err := f.Disk.Snapshot()
	require.NoError(f.T, err)
	for _, e := range snap.Config {
		if key, ok := strings.CutPrefix(e.Key, keptLevel); ok {
			if _, ok := levels[key]; !ok {
				gone = append(gone, e.Key)
			}
		}
	}
	require.NoError(f.T, f.Disk.Apply(&store.Batch{PutConfig: put, DeleteConfig: gone}))
}
