package hooks

import (
	"cmp"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// Invariants of a run:
//
//  1. Every VM instruction passes through Done, and every builtin that may
//     take longer than some instructions calls burn; so the time limit is
//     looked at in small steps whatever the script does.
//  2. Everything that allocates in proportion to what the script says is
//     charged by need before it is allocated, or is bounded by the size of one
//     registry (128 KiB) and charged right after.
//  3. Once killed is set nothing of the script runs any more: Done panics
//     again at every instruction, caught re-raises, and the vm drops the state.
type exec struct {
	context.Context // of which only Done matters: a killed run stops by panic

	n        int // units left until the next look at the clock
	interval int // units between looks
	killed   *RunError
	dirty    bool // the run wrote to something that outlives it
	loading  bool // the top level of the script is running
	volatile bool // the top level read the runtime configuration

	used    int64 // bytes charged since begin
	base    int64 // bytes that the top level had charged
	longest int   // the longest string that this run may hold
	kept    int   // the longest one that the script or its top level holds
	logged  int   // lines
	steps   int64
	epoch   uint64 // counts begins
	maxStr  int
	lim     Limits

	clock  func() int64 // nanoseconds, monotonic
	start  int64        // -1 before the first look
	last   int64
	active int64 // running time; gaps count for 1 ms at most
	slow   bool  // the run holds a slow place

	sleep    func(time.Duration) // nil: the run does not rest
	restedAt int64               // active at the last rest
	rested   int64               // ns spent resting

	L        *lua.LState
	globals  *lua.LTable
	guard    map[*lua.LTable]guardKind // tables that outlive the run
	shared1  bool                      // an outliving closure holds a variable of an inner function that closures assign
	lastSafe *lua.LTable               // not in guard
	lib      map[*lua.LTable]guardKind
	env      env
}

type guardKind uint8

const (
	outlives guardKind = iota + 1 // writing to it makes the run dirty
	readOnly                      // a library table
)

// Done is called before each instruction. It returns nil, which is the
// cheapest way through the select of the main loop, or panics.
func (x *exec) Done() <-chan struct{} {
	x.n--
	if x.n < 0 {
		x.look()
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

// look checks the step and time limits and sets the pace to the next look.
func (x *exec) look() {
	if x.killed != nil {
		x.n = -1
		panic(x.sentinel())
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

// pace is the number of units between looks: the more a script holds, the
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

// checkTime counts a gap of more than 1 ms between two looks as 1 ms: no step
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
		x.goSlow()
	case x.slow && x.active-x.restedAt > restEvery:
		x.rest()
	}
}

// burn accounts for work inside a builtin; a unit is about one instruction.
func (x *exec) burn(units int) {
	x.n -= units
	if x.n < 0 {
		x.look()
	}
}

// burnHeld accounts for a step whose length grows with what the script holds,
// by an amount that cannot be seen from outside of a table.
func (x *exec) burnHeld() { x.burn(1 + int(min((x.base+x.used)>>10, 64))) }

// need charges n bytes that are about to be allocated.
func (x *exec) need(n int) {
	x.used += int64(n)
	if x.used > x.lim.MemoryBytes {
		x.kill(CauseMemory, "memory limit of "+strconv.FormatInt(x.lim.MemoryBytes, 10)+" bytes exceeded")
	}
}

// needStr charges a string of n bytes and bounds its length.
func (x *exec) needStr(n int) {
	x.boundStr(n)
	x.need(n + 32)
	x.saw(n)
}

// boundStr stops a run that is about to make a string of n bytes, if it may not.
func (x *exec) boundStr(n int) {
	if n > x.maxStr {
		x.kill(CauseMemory, "memory limit exceeded: a string may have "+strconv.Itoa(x.maxStr)+" bytes")
	}
}

// saw notes a string of n bytes, which makes single instructions slow.
func (x *exec) saw(n int) {
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
			usedUp: x.active > int64(x.lim.Timeout) || x.steps > x.lim.Steps,
		}
	}
	x.n, x.interval = -1, 0
	panic(x.sentinel())
}

// sentinel has a StackTrace so that PCall does not build one, which costs time
// in proportion to the depth and the number of tail calls.
func (x *exec) sentinel() *lua.ApiError {
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

// pcall calls the function below n arguments on the stack. Its error may be
// shown to the script only if caught allows it.
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

// caught returns the value of an error that a script may handle. A kill, a
// crash of the VM and a full registry are none.
func (x *exec) caught(err error) lua.LValue {
	if x.killed != nil {
		x.n = -1
		panic(x.sentinel())
	}
	if fatal(err) {
		x.kill(CauseMemory, stackOverflow)
	}
	n := 256
	obj := err.(*lua.ApiError).Object //nolint:errorlint // PCall returns it bare
	if s, ok := obj.(lua.LString); ok {
		n += 4 * len(s) // raiseError formats it several times
		x.saw(len(s))
		obj = withoutAddress(s)
	}
	x.need(n)
	x.burn(64) // raising closes upvalues frame by frame
	if obj == nil {
		return lua.LNil
	}
	return obj
}

// fatal tells whether err leaves the state unusable.
func fatal(err error) bool {
	ae, ok := err.(*lua.ApiError) //nolint:errorlint // PCall returns it bare
	if !ok || ae.Type == lua.ApiErrorPanic {
		return true
	}
	s, ok := ae.Object.(lua.LString)
	return ok && strings.HasSuffix(string(s[max(0, len(s)-64):]), "registry overflow")
}

// touch is called before t is written to.
func (x *exec) touch(t *lua.LTable) {
	if t == x.lastSafe {
		return
	}
	switch cmp.Or(x.guard[t], x.lib[t]) {
	case readOnly:
		x.L.RaiseError("attempt to change a library table: they are read-only")
	case outlives:
		x.dirty = true
	default:
		x.lastSafe = t
	}
}

// say writes a line of a script to the log, bounded per run.
func (x *exec) say(level slog.Level, line string) {
	const maxLines, maxLine = 10, 1024
	if x.logged++; x.logged > maxLines || x.env.log == nil {
		return
	}
	if len(line) > maxLine {
		line = line[:maxLine] + "..."
	}
	x.env.log(level, strings.ToValidUTF8(line, "?"))
}

func ctx(L *lua.LState) *exec { return L.Context().(*exec) }
