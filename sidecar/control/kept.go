package control

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Keys under which fila stores its own state, beside messages and the settings of
// operators. No operator can name them:
//
//	\x00budget/<key>                 what a budget has used: budget.Record as JSON
//	\x00calls/<key>                  until when calls of the guard may go on: Unix ns
//	\x00changed/<kind>:<key>         when settings of a shared key were changed: Unix ns
//	                                 for circuit_defaults the key is <node>/<limits>
//	\x00circuit/<key>                an open circuit (package circuit)
//	\x00hook/<queue>/<hook>          the script in force and the one before: JSON {"now", "before"}
//	\x00gates                        the gates over a clean stop: JSON {"at", "parts"}
//	\x00gates/<8 digits>             a part of that: see gatePartV1
//	\x00level/<key>                  the level that a throttle key has learned: JSON of adapt.Level
//	\x00log/<20 digits>              an entry of the audit log
//	\x00override/<key>               limits of a throttle key for a time
//	\x00pause/<kind>/<queue>/<name>  a pause; <queue> is set for fairness keys
const (
	statePrefix   = "\x00"
	stateBudget   = statePrefix + "budget/"
	stateCalls    = statePrefix + "calls/"
	stateChanged  = statePrefix + "changed/"
	stateHook     = statePrefix + "hook/"
	stateGates    = statePrefix + "gates"
	stateLevel    = statePrefix + "level/"
	stateLog      = statePrefix + "log/"
	stateOverride = statePrefix + "override/"
	statePause    = statePrefix + "pause/"
)

// isState reports whether a key is one of fila's own.
func isState(key string) bool { return strings.HasPrefix(key, statePrefix) }

// newest is [SharedKV.Newest].
type newest func(key string) (value string, ok, settled bool)

// KV stores entries by key. The latest write wins.
type KV interface {
	// Write makes changes durable, all of them or none, after the changes of earlier
	// calls. It does not block: the channel gets the outcome, once.
	Write(b Batch) <-chan error
}

// SharedKV is a KV that other nodes of a cluster write, too. Its methods may be called
// with locks of Control held, and do not call Control.
type SharedKV interface {
	KV
	// Newest returns what is kept under a key, as far as it is known here; ok is false if
	// that is nothing. It is settled unless a Write of it from here is under way.
	// Whenever there may be something newer that is settled, Control.Changed is called.
	Newest(key string) (value string, ok, settled bool)
	// Refresh reads keys anew, so that Newest returns at least what was kept when it was called.
	Refresh(keys []string) error
}

// ErrChanged is the outcome of a Write whose Was does not hold, since another node was
// faster. Nothing has been written.
var ErrChanged = errors.New("another node has changed it meanwhile")

// Batch is a set of changes: entries to put, keys to delete.
type Batch struct {
	Put    []store.Entry
	Delete []string
	Was    []Was // what must be kept for that; a KV that nobody else writes need not look
}

// Was is an expected value under a key; nil: no entry.
type Was struct {
	Key   string
	Value *string
}

func (b *Batch) put(key, value string) {
	b.Put = append(b.Put, store.Entry{Key: key, Value: value})
}

// putJSON puts a value as JSON. It panics if the value cannot be encoded.
func (b *Batch) putJSON(key string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic("control: " + key[1:] + ": " + err.Error())
	}
	b.put(key, string(text))
}

// wasJSON makes the write depend on this value still being stored under a key.
func (b *Batch) wasJSON(key string, value any) {
	var before Batch
	before.putJSON(key, value)
	b.Was = append(b.Was, Was{key, &before.Put[0].Value})
}

// StoreKV stores entries in the configuration of a store.
type StoreKV func(*store.Batch)

// Write implements [KV].
func (submit StoreKV) Write(b Batch) <-chan error {
	done := make(chan error, 1)
	if len(b.Put)+len(b.Delete) == 0 {
		done <- nil
		return done
	}
	submit(&store.Batch{PutConfig: b.Put, DeleteConfig: b.Delete, Done: func(err error) { done <- err }})
	return done
}

// outcome converts the error of a write to an error of the protocol.
func outcome(err error) *wire.Error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrClosed):
		return wire.Draining()
	}
	return wire.OutcomeUnknown()
}
