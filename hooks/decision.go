package hooks

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/filaq/fila/hooks/sandbox"
)

// fieldReader reads the fields of a decision from the table that a script returned.
// An unusable field gets its default and counts as one warning.
type fieldReader struct {
	table    sandbox.Table
	warnings int64
}

func runEnqueue(vm *sandbox.VM, in *EnqueueInput) (d EnqueueDecision, r fieldReader, err *RunError) {
	d = DefaultEnqueueDecision()
	err = vm.Run(in.fill, func(t sandbox.Table) string {
		r.table = t
		d = EnqueueDecision{
			Key:          r.key("fairness_key", DefaultFairnessKey),
			CircuitKey:   r.key("circuit_key", ""),
			Weight:       r.thousandths("weight", 1, DefaultWeight),
			Cost:         r.thousandths("cost", math.SmallestNonzeroFloat64, DefaultCost),
			Priority:     r.priority("priority"),
			ThrottleKeys: r.keys("throttle_keys"),
			Routes:       r.routes("routes"),
		}
		return ""
	})
	return d, r, err
}

func runFailure(vm *sandbox.VM, in *FailureInput) (d FailureDecision, r fieldReader, err *RunError) {
	err = vm.Run(in.fill, func(t sandbox.Table) (want string) {
		r.table = t
		d, want = r.failureDecision()
		return want
	})
	return d, r, err
}

// key reads a string that may be a key.
func (r *fieldReader) key(name, def string) string {
	v := r.table.Field(name)
	if s, ok := validKey(v); ok {
		return s
	}
	if !v.IsNil() {
		r.warnings++
	}
	return def
}

func validKey(v sandbox.Value) (key string, ok bool) {
	key, ok = v.Text()
	return key, ok && len(key) > 0 && len(key) <= MaxKeyBytes
}

// number reads a number of at least low and clips it to high. ok is false for other
// numbers, NaN included, and for other values.
func (r *fieldReader) number(name string, low, high float64) (f float64, ok bool) {
	v := r.table.Field(name)
	f, ok = v.Number()
	switch {
	case v.IsNil():
		return 0, false
	case !ok || !(f >= low):
		r.warnings++
		return 0, false
	case f > high:
		r.warnings++
		return high, true
	}
	return f, true
}

// thousandths reads a number in thousandths, by default def.
func (r *fieldReader) thousandths(name string, low float64, def uint32) uint32 {
	f, ok := r.number(name, low, MaxThousandths/1000)
	if !ok {
		return def
	}
	return max(uint32(math.Round(f*1000)), 1)
}

// priority reads a whole number from 0 to 9. A larger one becomes 9, other values 0.
func (r *fieldReader) priority(name string) uint8 {
	f, _ := r.number(name, 0, MaxPriority)
	if f != math.Trunc(f) {
		r.warnings++
		return 0
	}
	return uint8(f)
}

// keys reads a list of keys and leaves out values that may not be keys.
func (r *fieldReader) keys(name string) []string {
	v := r.table.Field(name)
	list, ok := v.Table()
	if !ok {
		if !v.IsNil() {
			r.warnings++
		}
		return nil
	}
	n := 0
	for n < MaxThrottleKeys && !list.Item(n+1).IsNil() {
		n++
	}
	if n == 0 {
		if !list.IsEmpty() { // not a list
			r.warnings++
		}
		return nil
	}
	bad := !list.Item(n + 1).IsNil()
	keys := make([]string, 0, n)
	for i := 1; i <= n; i++ {
		if s, ok := validKey(list.Item(i)); ok {
			keys = append(keys, s)
		} else {
			bad = true
		}
	}
	if bad {
		r.warnings++
	}
	return keys
}

// routes reads a list of routes and leaves out the ones without a usable name of their own.
func (r *fieldReader) routes(name string) (routes []Route) {
	v := r.table.Field(name)
	list, ok := v.Table()
	if !ok || list.Item(1).IsNil() {
		if !v.IsNil() && !(ok && list.IsEmpty()) { // not a list
			r.warnings++
		}
		return nil
	}
	for i := 1; !list.Item(i).IsNil(); i++ {
		if i > MaxRoutes {
			r.warnings++
			break
		}
		table, ok := list.Item(i).Table()
		if !ok {
			r.warnings++
			continue
		}
		name, ok := validKey(table.Field("name"))
		if !ok || len(name) > MaxRouteName || slices.ContainsFunc(routes, func(o Route) bool { return o.Name == name }) {
			r.warnings++
			continue
		}
		fields := fieldReader{table: table}
		routes = append(routes, Route{
			Name: name, Weight: fields.thousandths("weight", 1, 0),
			ThrottleKeys: fields.keys("throttle_keys"), CircuitKey: fields.key("circuit_key", ""),
		})
		r.warnings += fields.warnings
	}
	return routes
}

// failureDecision reads an action, a delay, or both. A delay without an action is a
// retry. A table with neither, or with an unknown action, decides nothing: then want
// says what the hook must return, and what it returned.
func (r *fieldReader) failureDecision() (d FailureDecision, want string) {
	action := r.table.Field("action")
	text, isText := action.Text()
	if isText && text == DeadLetter.String() {
		return FailureDecision{Decided: true, Action: DeadLetter}, ""
	}
	d.Delay, d.HasDelay = r.delay("delay_ms")
	if isText && text == Retry.String() || action.IsNil() && d.HasDelay {
		d.Decided = true
		return d, ""
	}
	const maxShown = 64
	got := action.Kind()
	if isText {
		got = strconv.Quote(text[:min(len(text), maxShown)])
	}
	return FailureDecision{}, `the action "retry" or "dlq", or delay_ms, it returned ` + got
}

// delay reads a number of milliseconds. ok is false if there is none.
func (r *fieldReader) delay(name string) (delay time.Duration, ok bool) {
	ms, ok := r.number(name, 0, float64(MaxDelay/time.Millisecond))
	return time.Duration(math.Round(ms * float64(time.Millisecond))), ok
}
