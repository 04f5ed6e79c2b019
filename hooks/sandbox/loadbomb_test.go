package sandbox

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fillSource repeats pieces up to the size limit of a script.
func fillSource(head, tail string, piece func(i int) string) string {
	var b strings.Builder
	b.WriteString(head)
	for i := 0; ; i++ {
		p := piece(i)
		if b.Len()+len(p)+len(tail) > MaxSource {
			break
		}
		b.WriteString(p)
	}
	b.WriteString(tail)
	return b.String()
}

// loadBombs fill the whole source with constructs that are slow or large to load.
func loadBombs() map[string]string {
	constant := func(s string) func(int) string { return func(int) string { return s } }
	return map[string]string{
		"statements":            fillSource("", "", constant("a=1 ")),
		"constants":             fillSource("x={", "}", func(i int) string { return fmt.Sprintf("%d,", i) }),
		"strings":               fillSource("x={", "}", func(i int) string { return fmt.Sprintf("'%x',", i) }),
		"constants by function": fillSource("x={", "}", func(i int) string { return fmt.Sprintf("function()return %d end,", i) }),
		"names":                 fillSource("", "", func(i int) string { return fmt.Sprintf("n%x=1 ", i) }),
		"keys":                  fillSource("x={", "}", func(i int) string { return fmt.Sprintf("k%x=1,", i) }),
		"computed keys":         fillSource("x={", "}", constant("[a]=1,")),
		"tables":                fillSource("x={", "}", constant("{},")),
		"calls":                 fillSource("", "", constant("f() ")),
		"locals":                fillSource("", "", func(i int) string { return fmt.Sprintf("local a%x ", i%180) }),
		"blocks of locals":      fillSource("", "", func(i int) string { return fmt.Sprintf("do local a,b,c,d=%d end ", i) }),
		"uses of locals":        fillSource("local "+params(180)+" ", "", constant("pza=pga ")),
		"assignments":           fillSource("", "", constant("a.b,c.d=1,2 ")),
		"concats":               fillSource("", "", constant("a=b..c..d ")),
		"concats of calls":      fillSource("", "", constant("a=f()..g() ")),
		"gotos":                 fillSource("", "", func(i int) string { return fmt.Sprintf("::a%x:: goto a%x ", i, i) }),
		"ifs":                   fillSource("if a then ", "end", constant("elseif b then ")),
		"semicolons":            fillSource("x=1", "", constant(";")),
		"brackets":              fillSource("x=", "", constant("a[")),
		"comments":              fillSource("--[==[", "", constant("]=]")),
		"escapes":               fillSource("x='", "'", constant("\\u{10FFFF}")),
		"integer divisions":     fillSource("x=1", "", constant("//1")),
		"unary and binary":      fillSource("x=1", "", constant("-#a")),
		"methods":               fillSource("x=a", "", constant(":b()")),
		"strings as arguments":  fillSource("x=a", "", constant("''")),
		"functions":             fillSource("", "", constant("function f()end ")),
		"parameters":            fillSource("function f(", ")end", func(i int) string { return fmt.Sprintf("a%x,", i) }),
		"long name":             "x" + strings.Repeat("y", 60000) + "=1",
		"dots":                  fillSource("x=a", "", constant(".b")),
		"logic":                 fillSource("x=a", "", constant(" and b or c")),
		"comparisons":           fillSource("x=a", "", constant("<b")),
		"varargs":               fillSource("x={", "}", constant("...,")),
		"nuls":                  strings.Repeat("\x00", 60000),
		"line ends":             strings.Repeat("\n", 60000) + "x = = 1",
	}
}

// TestLoadBombs loads the largest sources of each kind: each is loaded or
// refused, by a LoadError, and allocates a bounded amount.
func TestLoadBombs(t *testing.T) {
	for name, text := range loadBombs() {
		t.Run(name, func(t *testing.T) {
			require.LessOrEqual(t, len(text), MaxSource)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := compileHook("bomb.lua", text, Limits{Steps: 1_000_000})
			runtime.ReadMemStats(&after)
			if err != nil {
				var le *LoadError
				require.ErrorAs(t, err, &le)
			}
			allocated := (after.TotalAlloc - before.TotalAlloc) >> 10
			t.Logf("%d KiB: %v", allocated, err)
			if !raceDetector {
				require.Less(t, allocated, uint64(48<<10), "garbage included")
			}
		})
	}
}
