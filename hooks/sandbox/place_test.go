package sandbox

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const maxLocated = 4 << 10 // of package source

// requireMark checks that an error begins with a place and quotes a line. The mark is
// under the character after §; without § there is no mark.
func requireMark(t *testing.T, err error, place, marked string) {
	t.Helper()
	before, after, found := strings.Cut(marked, "§")
	want := "    " + before + after
	if len(want) > maxLocated {
		want = want[:4+maxQuote] + "..."
	}
	if found {
		want += "\n" + strings.Repeat(" ", cells.StringWidth("    "+before)) + "^"
	}
	first, rest, _ := strings.Cut(err.Error(), "\n")
	require.True(t, strings.HasPrefix(first, place), first)
	require.Equal(t, want, rest)
}

// TestMarkOfARunError: the mark is under the word that the error is about. If that is
// not certain, there is no mark.
func TestMarkOfARunError(t *testing.T) {
	for name, line := range map[string]string{
		"a field of nothing":         "local a = m.headers.x.§y",
		"behind wide characters":     `local s = "日本語" local a = m.foo.§bar`,
		"a key in brackets":          `local a = m.nothing[§"at all"]`,
		"a method of nothing":        "local a = m.nothing .§x:go()",
		"a field that is set":        "m.nothing.§x = 1",
		"a call of nothing":          "return { weight = §foo(tonumber(1)) }",
		"a call of a missing method": `local a = ("x"):§bad "y"`,
		"arithmetic":                 "local a = 1 * 2 §- m.nothing",
		"a division":                 "local a = 1 §// m.nothing",
		"a comparison":               "if m.queue ~= 1 and m.nothing §>= 3 then end",
		"a concatenation":            `local a = "x" §.. m.nothing -- ..`,
		"a length":                   "local a = §#m.nothing",
		"a sign":                     "local a = §-m.nothing",
		"a loop":                     "§for i = 1, m.nothing do end",
		"an argument":                `local a = string.§upper(m.nothing) .. string.rep("x", 2)`,
		"a format":                   `local a = ("%y"):§format(1)`,
		"raised":                     `if not m.x then §error("no x") end`,
		"behind a string":            `local a = "m.nothing.y" local b = m.nothing.§y`,
		"behind a comment":           `local a --[[ m.nothing.y ]] = m.nothing.§y -- .y`,

		"twice in the line":  "local a = m.headers.x, m.nothing.x.x",
		"a key of a table":   "local a = m.nothing[{}]",
		"two calls":          "local a = foo(bar(1)) local b = zap()",
		"no word of its own": `string.x = 1`,
		"a very long line":   "local a = m.nothing.x" + strings.Repeat(" ", maxLocated),
	} {
		t.Run(name, func(t *testing.T) {
			for _, indent := range []string{"", "  "} {
				// The hook's line begins within a long string.
				h := newHook(t, onEnqueue, "function on_enqueue(m) local s = [[\n .y .x\n"+indent+".y .. error() ]] "+strings.Replace(line, "§", "", 1)+"\nend", Limits{})
				err := h.run(&message{Queue: "q"}).Err
				require.NotNil(t, err)
				requireMark(t, err, "error: s:3:", indent+".y .. error() ]] "+line)
				require.Equal(t, strings.Contains(line, "§"), err.Column > 0)
			}
		})
	}
}

// TestMarkOfALoadError: the mark is at the position in the original script, behind
// tabs, wide characters and rewritten constructs.
func TestMarkOfALoadError(t *testing.T) {
	for name, tc := range map[string]struct{ text, place, marked string }{
		"tabs":                   {"x = 1\n\t\ty = = 2", "s:2:7: syntax error near '='", "        y = §= 2"},
		"wide characters":        {`local a = "日本語" & 2`, "s:1:23: hooks are Lua 5.1", `local a = "日本語" §& 2`},
		"divisions":              {"local a = 7 // 2 // 3 local y = ) 2", "s:1:33: syntax error near ')'", "local a = 7 // 2 // 3 local y = §) 2"},
		"on a division":          {"local a = // 2", "s:1:11: syntax error", "local a = §// 2"},
		"escapes":                {`local a, b = "\u{20AC}\x41\u{1}" ) 2`, "s:1:34: syntax error", `local a, b = "\u{20AC}\x41\u{1}" §) 2`},
		"an attribute":           {"local a <const> = 1 b = = 2", "s:1:25: syntax error", "local a <const> = 1 b = §= 2"},
		"a string over lines":    {"local a = \"x\\z\n\n  y\" b = = 2", "s:3:10: syntax error", `  y" b = §= 2`},
		"lines that end in CRLF": {"x = 1\r\n\ty = = 2\r", "s:2:6: syntax error", "    y = §= 2"},
		"a control character":    {"local a = '\x01' b = = 2", "s:1:19: syntax error", "local a = '?' b = §= 2"},
		"an open string":         {"x = 1\nlocal a = \"abc", "s:2:11: unterminated string", `local a = §"abc`},
		"an open long string":    {"x = 1\nlocal a = [==[abc ]]", "s:2:11: a string that begins here has no end", `local a = §[==[abc ]]`},
		"an open comment":        {"x = 1 --[[ abc", "s:1:7: a comment that begins here has no end", "x = 1 §--[[ abc"},
		"an open function":       {"x = 1\n local function f() if x then end", "s:2:8: the 'function' here is not closed", " local §function f() if x then end"},
		"an open bracket":        {"x = { 1, ( 2", "s:1:10: the '(' here is not closed", "x = { 1, §( 2"},
		"another alphabet":       {"local été = 1", "s:1:7: a character that is not ASCII", "local §été = 1"},
		"a goto":                 {"if x then goto nowhere end", "s:1:16: no visible label", "if x then goto §nowhere end"},
		"a break":                {"if x then break end", "s:1:11: no loop to break", "if x then §break end"},
		"the top level":          {"local x = {} x.y.z = 1", "s:1:18: the top level of the script fails", "local x = {} x.y.§z = 1"},
		"far to the right":       {"x = 1 " + strings.Repeat(" ", 200) + "y = = 2", "s:1:211: ", "..." + strings.Repeat(" ", 113) + "y = §= 2"},
		"much to the right":      {"y = = 2" + strings.Repeat(" ", 200), "s:1:5: ", "y = §= 2" + strings.Repeat(" ", 113) + "..."},
		"the end of the script":  {"x =", "s: syntax error at the end of the script", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := compileHook("s", tc.text, Limits{Timeout: time.Minute})
			require.Error(t, err)
			if tc.marked == "" {
				require.Equal(t, tc.place, err.Error())
				return
			}
			requireMark(t, err, tc.place, tc.marked)
		})
	}
}

// TestBrief: the error is one line.
func TestBrief(t *testing.T) {
	_, err := compileHook("s", "x = 1\n\ty = = 2", Limits{})
	var le *LoadError
	require.ErrorAs(t, err, &le)
	require.Equal(t, "s:2:6: syntax error near '=', in: y = = 2", le.Brief())
}
