package hooks

import (
	"math"
	"strconv"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// warner counts what a decision had to correct. One warning per field.
type warner struct{ n int64 }

func (w *warner) add() { w.n++ }

// enqueueDecision reads the fields that it knows from a result, raw: a result
// may be cyclic, huge or carry metatables.
func enqueueDecision(t *lua.LTable, w *warner) EnqueueDecision {
	d := DefaultEnqueueDecision()
	d.FairnessKey = keyField(t, "fairness_key", DefaultFairnessKey, w)
	d.CircuitKey = keyField(t, "circuit_key", "", w)
	d.Weight = thousandths(t.RawGetString("weight"), 1, DefaultWeight, w)
	d.Cost = thousandths(t.RawGetString("cost"), math.SmallestNonzeroFloat64, DefaultCost, w)
	d.Priority = priority(t.RawGetString("priority"), w)
	d.ThrottleKeys = throttleKeys(t.RawGetString("throttle_keys"), w)
	return d
}

func keyField(t *lua.LTable, name, def string, w *warner) string {
	v := t.RawGetString(name)
	if s, ok := key(v); ok {
		return s
	}
	if v != lua.LNil {
		w.add()
	}
	return def
}

// key is a string that may be a key.
func key(v lua.LValue) (s string, ok bool) {
	k, ok := v.(lua.LString)
	return string(k), ok && len(k) > 0 && len(k) <= MaxKeyBytes
}

// thousandths converts a number of at least low to thousandths. Numbers beyond
// the bounds are cut to them, what is not a usable number is def.
func thousandths(v lua.LValue, low float64, def uint32, w *warner) uint32 {
	n, ok := v.(lua.LNumber)
	if !ok {
		if v != lua.LNil {
			w.add()
		}
		return def
	}
	f := float64(n)
	switch {
	case !(f >= low): // also NaN; a weight below 1 is 1, a cost of 0 is none
		w.add()
		return def
	case f > MaxThousandths/1000:
		w.add()
		return MaxThousandths
	}
	return max(uint32(math.Round(f*1000)), 1)
}

// priority is a whole number from 0 to 9; a larger one is cut to 9, anything else is 0.
func priority(v lua.LValue, w *warner) uint8 {
	n, ok := v.(lua.LNumber)
	switch f := float64(n); {
	case v == lua.LNil:
		return 0
	case !ok || !(f >= 0) || f != math.Trunc(f) && f < MaxPriority:
		w.add()
		return 0
	case f > MaxPriority:
		w.add()
		return MaxPriority
	default:
		return uint8(f)
	}
}

func throttleKeys(v lua.LValue, w *warner) []string {
	if v == lua.LNil {
		return nil
	}
	t, ok := v.(*lua.LTable)
	if !ok {
		w.add()
		return nil
	}
	n := 0
	for n < MaxThrottleKeys && t.RawGetInt(n+1) != lua.LNil {
		n++
	}
	bad := t.RawGetInt(n+1) != lua.LNil
	if n == 0 {
		if k, _ := t.Next(lua.LNil); k != lua.LNil {
			w.add() // not a list
		}
		return nil
	}
	keys := make([]string, 0, n)
	for i := 1; i <= n; i++ {
		if s, ok := key(t.RawGetInt(i)); ok {
			keys = append(keys, s)
		} else {
			bad = true
		}
	}
	if bad {
		w.add()
	}
	return keys
}

// failureDecision reads the result of on_failure: an action, a delay, or both. A
// delay without an action is a retry. A result with neither, or with an unknown
// action, decides nothing: wrong says what it must return, and what it did.
func failureDecision(t *lua.LTable, w *warner) (d FailureDecision, wrong string) {
	action := t.RawGetString("action")
	if action == lua.LString("dlq") {
		return FailureDecision{Decided: true, Action: DeadLetter}, ""
	}
	d.Delay, d.HasDelay = retryDelay(t.RawGetString("delay_ms"), w)
	if action == lua.LString("retry") || action == lua.LNil && d.HasDelay {
		d.Decided = true
		return d, ""
	}
	const maxShown = 64
	got := article(action.Type().String())
	if text, ok := action.(lua.LString); ok {
		got = strconv.Quote(string(text[:min(len(text), maxShown)]))
	}
	return FailureDecision{}, `the action "retry" or "dlq", or delay_ms, it returned ` + got
}

// retryDelay reads delay_ms; ok is false where it names no delay.
func retryDelay(v lua.LValue, w *warner) (delay time.Duration, ok bool) {
	ms, isNumber := v.(lua.LNumber)
	switch {
	case v == lua.LNil:
		return 0, false
	case !isNumber || !(ms >= 0):
		w.add()
		return 0, false
	case float64(ms) > float64(MaxDelay/time.Millisecond):
		w.add()
		return MaxDelay, true
	}
	return time.Duration(math.Round(float64(ms) * float64(time.Millisecond))), true
}
