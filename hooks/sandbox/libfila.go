package sandbox

import (
	"log/slog"
	"math"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// filaGet is fila.get(key). If the top level calls it, it runs again for each
// message, because it would keep an old value otherwise.
func filaGet(L *lua.LState) int {
	x := execOf(L)
	key := argStr(L, 1)
	if x.loading {
		x.volatile = true
	}
	x.chargeWork(16)
	if x.env.Get != nil {
		if v, ok := x.env.Get(key); ok {
			x.chargeBytes(32) // the text belongs to the configuration
			x.noteString(len(v))
			return push(L, lua.LString(v))
		}
	}
	return push(L, lua.LNil)
}

// filaBackoff is fila.backoff(attempts, base_ms, max_ms):
// min(base_ms * 2^(attempts-1), max_ms).
func filaBackoff(L *lua.LState) int {
	attempts, base, most := argNum(L, 1), argNum(L, 2), argNum(L, 3)
	if !(base >= 0) || !(most >= 0) {
		L.RaiseError("fila.backoff: base_ms and max_ms must be 0 or more")
	}
	n := math.Min(math.Max(math.Trunc(attempts)-1, 0), 1000)
	if n != n {
		n = 0
	}
	return push(L, lua.LNumber(math.Min(base*math.Pow(2, n), most)))
}

// filaHash is fila.hash(str, n): a bucket from 0 to n-1 (FNV-1a, 64 bits, modulo
// n). It is the same in every process and version.
func filaHash(L *lua.LState) int {
	s, n := argStr(L, 1), argInt(L, 2)
	if n < 1 {
		L.ArgError(2, "the number of buckets must be 1 or more")
	}
	execOf(L).chargeWork(len(s) >> 4)
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return push(L, lua.LNumber(h%uint64(n)))
}

func filaLog(L *lua.LState) int {
	execOf(L).log(slog.LevelInfo, joinArgs(L))
	return 0
}

// osTime is os.time() without arguments: whole seconds since 1970.
func osTime(L *lua.LState) int {
	return push(L, lua.LNumber(time.Now().Unix()))
}

// osClock is os.clock(): seconds since the run started.
func osClock(L *lua.LState) int {
	x := execOf(L)
	return push(L, lua.LNumber(float64(x.clock()-max(x.start, 0))/1e9))
}
