package sandbox

import (
	"cmp"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// Defaults of the limits.
const (
	DefaultTimeout     = 10 * time.Millisecond
	DefaultMemoryBytes = 1 << 20
)

// Limits bound one run. A field that is zero or negative means its default,
// never that there is no limit.
type Limits struct {
	// Timeout is the running time of one run. A run that uses it up ends after
	// less than 1.5 times Timeout of wall time, including its rests. On an
	// overloaded machine, a gap in which the goroutine was not scheduled counts
	// for 1 ms at most, and three times Timeout of wall time ends the run.
	// Default 10 ms.
	Timeout time.Duration
	// MemoryBytes bounds the bytes that one run allocates, garbage included,
	// by a fixed charge per operation, so that a run costs the same on every
	// machine. Default 1 MiB.
	MemoryBytes int64
	// Steps bounds the work units of one run: one per instruction, more for
	// builtins that do more. The default is 100 per nanosecond of Timeout,
	// which only matters when the clock stands still; tests set it to be exact.
	Steps int64
}

func (l Limits) withDefaults() Limits {
	l.Timeout = cmp.Or(max(l.Timeout, 0), DefaultTimeout)
	l.MemoryBytes = cmp.Or(max(l.MemoryBytes, 0), DefaultMemoryBytes)
	l.Steps = cmp.Or(max(l.Steps, 0), max(100*int64(l.Timeout), 1_000_000))
	return l
}

// exec meters one run at a time. Its invariants:
//
//  1. Every instruction passes through Done, and every builtin that may take
//     longer than a few instructions calls chargeWork. So a run checks its time
//     limit in small steps whatever the script does.
//  2. Every allocation whose size the script decides is charged by chargeBytes
//     before it happens, or is bounded by the size of one registry (128 KiB) and
//     charged right after.
//  3. Once killed is set, nothing of the script runs any more: Done panics again
//     at every instruction, caughtValue panics again, and the VM drops the state.
type exec struct {
	context.Context // only Done matters: a killed run stops by panic

	n        int // units left until the next check
	interval int // units between checks
	killed   *RunError
	dirty    bool // the run wrote to something that outlives it
	loading  bool // the top level of the script is running
	volatile bool // the top level read the runtime configuration

	used    int64 // bytes charged since begin
	base    int64 // bytes that the top level charged
	longest int   // bytes of the longest string that this run may hold
	kept    int   // bytes of the longest string that the script or its top level holds
	logged  int   // lines
	steps   int64
	epoch   uint64 // number of the run
	maxStr  int
	lim     Limits

	clock  func() int64 // nanoseconds, monotonic
	start  int64        // -1 before the first check
	last   int64
	active int64 // running time; gaps count for 1 ms at most
	slow   bool  // the run holds a slow slot

	sleep    func(time.Duration) // nil: the run does not rest
	restedAt int64               // active at the last rest
	rested   int64               // ns spent resting

	L           *lua.LState
	globals     *lua.LTable
	outliving   map[*lua.LTable]tableKind
	sharesInner bool        // an outliving closure holds a variable of an inner function that closures assign
	lastSafe    *lua.LTable // not in outliving
	env         Env
}

type tableKind uint8

const (
	outlives tableKind = iota + 1 // writing to it makes the run dirty
	readOnly                      // a library table
)

// Done is called before each instruction. It returns nil, which is the
// cheapest way through the select of the interpreter's loop, or panics.
func (x *exec) Done() <-chan struct{} {
	x.n--
	if x.n < 0 {
		x.checkLimits()
	}
	return nil
}

func (x *exec) begin() {
	x.killed, x.dirty = nil, false
	x.n, x.interval, x.steps = 0, 0, 0
	x.used, x.longest, x.logged = 0, x.kept, 0
	x.start, x.active = -1, 0
	x.lastSafe = nil
	x.epoch++
}

// checkLimits checks the step and time limits and sets the next check.
func (x *exec) checkLimits() {
	if x.killed != nil {
		x.n = -1
		panic(x.killError())
	}
	x.steps += int64(x.interval - x.n)
	x.interval, x.n = 0, 0
	x.checkTime()
	if x.steps > x.lim.Steps {
		x.kill(CauseTimeout, "limit of "+strconv.FormatInt(x.lim.Steps, 10)+" steps exceeded")
	}
	x.interval = int(min(int64(x.pace()), x.lim.Steps-x.steps))
	x.n = x.interval
}

// pace is the number of units between checks: the more a script holds, the
// longer a single instruction can take.
func (x *exec) pace() int {
	size := x.base + x.used
	switch {
	case x.longest >= 64<<10:
		return 1
	case x.longest >= 16<<10, size >= 512<<10:
		return 4
	case x.longest >= 4<<10, size >= 64<<10:
		return 16
	case size >= 4<<10:
		return 32
	}
	return 64
}

// checkTime counts a gap of more than 1 ms between two checks as 1 ms: no step
// takes longer, so the goroutine was not scheduled meanwhile.
func (x *exec) checkTime() {
	now := x.clock()
	if x.start < 0 {
		x.start, x.last = now, now
		x.L.Panic = quietPanic // until PCall restores the old one
		return
	}
	x.active += min(max(now-x.last, 0), int64(time.Millisecond))
	x.last = now
	if limit := int64(x.lim.Timeout); x.active > limit || now-x.start > 3*limit {
		x.kill(CauseTimeout, "time limit of "+x.lim.Timeout.String()+" exceeded")
	}
	switch {
	case !x.slow && x.active > slowAfter:
		x.enterSlow()
	case x.slow && x.active-x.restedAt > restEvery:
		x.rest()
	}
}

// chargeWork accounts for work inside a builtin; a unit is about one instruction.
func (x *exec) chargeWork(units int) {
	x.n -= units
	if x.n < 0 {
		x.checkLimits()
	}
}

// chargeScan accounts for a step whose length grows with the size of a table in
// a way that cannot be seen from outside of the table.
func (x *exec) chargeScan() { x.chargeWork(1 + int(min((x.base+x.used)>>10, 64))) }

// chargeBytes charges n bytes that are about to be allocated.
func (x *exec) chargeBytes(n int) {
	x.used += int64(n)
	if x.used > x.lim.MemoryBytes {
		x.kill(CauseMemory, "memory limit of "+strconv.FormatInt(x.lim.MemoryBytes, 10)+" bytes exceeded")
	}
}

// chargeString charges a string of n bytes and bounds its length.
func (x *exec) chargeString(n int) {
	x.limitString(n)
	x.chargeBytes(n + 32)
	x.noteString(n)
}

// limitString kills a run that is about to make a string of n bytes if that is
// too long.
func (x *exec) limitString(n int) {
	if n > x.maxStr {
		x.kill(CauseMemory, "memory limit exceeded: a string may have "+strconv.Itoa(x.maxStr)+" bytes")
	}
}

// noteString notes that the run holds a string of n bytes. Long strings make
// single instructions slow, so the next check comes sooner.
func (x *exec) noteString(n int) {
	if n > x.longest {
		x.longest = n
		if n >= 4<<10 && x.n > 4 {
			x.steps += int64(x.interval - x.n)
			x.interval, x.n = 4, 4
		}
	}
}

// kill stops the run for good.
func (x *exec) kill(c Cause, msg string) {
	if x.killed == nil {
		x.killed = &RunError{
			Cause: c, Message: msg, Line: currentLine(x.L),
			UsedUp: x.active > int64(x.lim.Timeout) || x.steps > x.lim.Steps,
		}
	}
	x.n, x.interval = -1, 0
	panic(x.killError())
}

// killError has a StackTrace so that PCall does not build one, which costs time
// in proportion to the depth and the number of tail calls.
func (x *exec) killError() *lua.ApiError {
	return &lua.ApiError{Type: lua.ApiErrorRun, Object: lua.LString(x.killed.Message), StackTrace: "-"}
}

func quietPanic(L *lua.LState) {
	panic(&lua.ApiError{Type: lua.ApiErrorRun, Object: L.Get(-1), StackTrace: "-"})
}

// currentLine is the line of the innermost Lua function, 0 if there is none.
func currentLine(L *lua.LState) int {
	for level := range 8 {
		dbg, ok := L.GetStack(level)
		if !ok {
			break
		}
		if _, err := L.GetInfo("l", dbg, nil); err == nil && dbg.CurrentLine > 0 {
			return dbg.CurrentLine
		}
	}
	return 0
}

// pcall calls the function below n arguments on the stack. The script may see
// the error only through caughtValue.
func (x *exec) pcall(n, nret int) error {
	defer func() {
		// PCall's own deferred function panics when the registry overflows
		// while a call frame is half built.
		if r := recover(); r != nil {
			x.kill(CauseMemory, stackOverflow)
		}
	}()
	return x.L.PCall(n, nret, nil)
}

const stackOverflow = "stack overflow (too many nested calls or values)"

// caughtValue returns the value of an error that a script may handle. A script
// may not handle a kill, a crash of the interpreter or a full registry.
func (x *exec) caughtValue(err error) lua.LValue {
	if x.killed != nil {
		x.n = -1
		panic(x.killError())
	}
	if fatal(err) {
		x.kill(CauseMemory, stackOverflow)
	}
	n := 256
	obj := err.(*lua.ApiError).Object //nolint:errorlint // PCall returns it bare
	if s, ok := obj.(lua.LString); ok {
		n += 4 * len(s) // raiseError formats it several times
		x.noteString(len(s))
		obj = withoutAddress(s)
	}
	x.chargeBytes(n)
	x.chargeWork(64) // raising closes upvalues frame by frame
	if obj == nil {
		return lua.LNil
	}
	return obj
}

// fatal reports whether err leaves the state unusable.
func fatal(err error) bool {
	ae, ok := err.(*lua.ApiError) //nolint:errorlint // PCall returns it bare
	if !ok || ae.Type == lua.ApiErrorPanic {
		return true
	}
	s, ok := ae.Object.(lua.LString)
	return ok && strings.HasSuffix(string(s[max(0, len(s)-64):]), "registry overflow")
}

// beforeWrite must be called before a write to t.
func (x *exec) beforeWrite(t *lua.LTable) {
	if t == x.lastSafe {
		return
	}
	switch cmp.Or(x.outliving[t], libraryTables[t]) {
	case readOnly:
		x.L.RaiseError("attempt to change a library table: they are read-only")
	case outlives:
		x.dirty = true
	default:
		x.lastSafe = t
	}
}

// log writes a line of the script to the log, within the bounds of a run.
func (x *exec) log(level slog.Level, line string) {
	const maxLines, maxLine = 10, 1024
	if x.logged++; x.logged > maxLines || x.env.Log == nil {
		return
	}
	if len(line) > maxLine {
		line = line[:maxLine] + "..."
	}
	x.env.Log(level, strings.ToValidUTF8(line, "?"))
}

func execOf(L *lua.LState) *exec { return L.Context().(*exec) }
