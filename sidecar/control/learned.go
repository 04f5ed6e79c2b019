package control

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/adapt"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// learned announces and stores the levels that throttle keys learn. A cut is stored when it
// happens, growth at a clean stop. Nodes of a cluster have the levels in the shared records
// instead.
type learned struct {
	mu struct {
		sync.Mutex
		cut     map[string]bool // keys to announce
		running bool            // a goroutine announces them
		stored  map[string]bool // keys whose level is in the KV
	}
}

// levelLife is how long (ns) a learned level is of use after the last cut or success.
const levelLife = int64(3600e9)

// start restores the levels of the process before.
func (l *learned) start(c *Control, kept []store.Entry, now int64) {
	l.mu.cut, l.mu.stored = make(map[string]bool), make(map[string]bool)
	levels := make(map[string]adapt.Level)
	for _, e := range kept {
		key, ok := strings.CutPrefix(e.Key, stateLevel)
		if !ok {
			continue
		}
		var level adapt.Level
		if err := json.Unmarshal([]byte(e.Value), &level); err != nil || now-max(level.CutAt, level.GrownAt) > levelLife {
			c.opening.Delete = append(c.opening.Delete, e.Key)
			continue
		}
		levels[key], l.mu.stored[key] = level, true
	}
	c.throttles.gates.RestoreLevels(levels)
	c.throttles.gates.OnCut(func(key string) { l.note(c, key) })
}

// note has a cut announced. It does not block: it is called with the gate locked.
func (l *learned) note(c *Control, key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.cut[key] = true
	if !l.mu.running {
		l.mu.running = true
		c.telling.Go(func() { l.announce(c) })
	}
}

// announce reports and stores cuts until there are none.
func (l *learned) announce(c *Control) {
	for {
		l.mu.Lock()
		keys := slices.Sorted(maps.Keys(l.mu.cut))
		clear(l.mu.cut)
		l.mu.running = len(keys) > 0
		l.mu.Unlock()
		if len(keys) == 0 {
			return
		}
		levels := make(map[string]adapt.Level)
		for _, key := range keys {
			gate, ok := c.throttles.gates.Find(key)
			if !ok {
				continue
			}
			l.report(c, key, gate)
			if level, ok := gate.Level(); ok {
				levels[key] = level
			}
		}
		if err := l.store(c, levels); err != nil {
			c.opt.Log.Warn("learned levels cannot be stored; after a crash their throttle keys begin at the levels stored before", "error", err)
		}
	}
}

// report publishes the last cut of a key.
func (l *learned) report(c *Control, key string, gate *throttle.Gate) {
	info := WireLearned(gate.Info(c.opt.Now()).Learned)
	if info == nil {
		return
	}
	cut := info.LastCut()
	if cut == nil {
		return
	}
	shown := wire.ShowKey(key)
	c.opt.Log.Info("throttle cut", "throttle", shown, "of", info.Of, "from", cut.From, "to", cut.To, "cause", cut.Cause, "cuts", info.Cuts)
	c.opt.Event(wire.EventThrottleCut, key, wire.Event{Key: shown, Data: map[string]any{
		"of": info.Of, "old": cut.From, "new": cut.To, "cause": cut.Cause, "at": cut.At, "cuts": info.Cuts,
	}})
}

// store writes levels.
func (l *learned) store(c *Control, levels map[string]adapt.Level) error {
	if c.shared() {
		return nil
	}
	var kept Batch
	l.mu.Lock()
	for key, level := range levels {
		kept.putJSON(stateLevel+key, level)
		l.mu.stored[key] = true
	}
	l.mu.Unlock()
	return <-c.opt.KV.Write(kept)
}

// save writes all levels below their ceilings, and removes the others.
func (l *learned) save(c *Control) error {
	levels := c.throttles.gates.Levels()
	var gone Batch
	l.mu.Lock()
	for key := range l.mu.stored {
		if _, ok := levels[key]; !ok {
			gone.Delete = append(gone.Delete, stateLevel+key)
		}
	}
	l.mu.Unlock()
	for keys := range slices.Chunk(slices.Sorted(maps.Keys(levels)), levelsPerWrite) {
		some := make(map[string]adapt.Level, len(keys))
		for _, key := range keys {
			some[key] = levels[key]
		}
		if err := l.store(c, some); err != nil {
			return err
		}
	}
	if len(gone.Delete) == 0 {
		return nil
	}
	return <-c.opt.KV.Write(gone)
}

// levelsPerWrite bounds one commit.
const levelsPerWrite = 1000

// release removes the limit level from the override of a key, which ends if that is all of it.
func (c *Control) release(by Actor, key string) *wire.Error {
	t := &c.throttles
	t.mu.Lock()
	o := t.mu.overrides[key]
	if o == nil || o.Set["level"] == "" {
		t.mu.Unlock()
		return nil
	}
	next := &override{Set: maps.Clone(o.Set), Unset: o.Unset, Until: o.Until}
	delete(next.Set, "level")
	var kept Batch
	ch := change{overrideKey(key), o.audited(), nil}
	if len(next.Set)+len(next.Unset) == 0 {
		delete(t.mu.overrides, key)
		c.end(&kept, stateOverride+key, o, by, ch)
	} else {
		ch.new = next.audited()
		t.mu.overrides[key] = next
		c.begin(&kept, stateOverride+key, next, next.Until, by, ch)
	}
	c.noteChanged(&kept, kindThrottle, key)
	done := c.opt.KV.Write(kept)
	wake := c.applyLimits(key)
	t.mu.Unlock()
	Tell(wake)
	if err := outcome(<-done); err != nil {
		return err
	}
	c.changeEvent(ch)
	return nil
}

// WireLearned returns the state of a limit that learns in the form of the protocol.
func WireLearned(l *throttle.Learned) *api.ThrottleLearned {
	if l == nil {
		return nil
	}
	unit := func(thousandths int64) float64 { return float64(thousandths) / throttle.One }
	info := &api.ThrottleLearned{
		Of: api.LearnedConcurrency, Level: unit(l.Level), Ceiling: unit(l.Ceiling), Min: unit(l.Min), Fixed: l.Fixed, Cuts: l.Cuts,
	}
	if l.Rate {
		info.Of = api.LearnedRate
	} else {
		info.Level = float64(l.Level / throttle.One)
	}
	if l.Level < l.Ceiling && !l.Fixed {
		info.Next = unit(min(l.Ceiling, (l.Level/throttle.One+1)*throttle.One))
	}
	for _, s := range l.Steps {
		info.Steps = append(info.Steps, api.ThrottleStep{
			From: unit(s.From), To: unit(s.To), Began: wire.Timestamp(s.Began), At: wire.Timestamp(s.At), Cause: s.Cause,
		})
	}
	return info
}

// LearnedLevels returns the levels of throttle keys with limits of their own that learn, for at
// most `most` keys.
func (c *Control) LearnedLevels(most int) map[string]*api.ThrottleLearned {
	levels := make(map[string]*api.ThrottleLearned)
	for key, l := range c.throttles.gates.LearnedOf(most, c.opt.Now()) {
		levels[key] = WireLearned(l)
	}
	return levels
}
