package web

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func diffText(list []diffLine) string {
	var b strings.Builder
	for _, l := range list {
		b.WriteString(l.Sign + l.Text + "\n")
	}
	return b.String()
}

func TestDiff(t *testing.T) {
	for _, tc := range []struct{ name, before, after, want string }{
		{"nothing", "", "", ""},
		{"equal", "a\nb\n", "a\nb", "a\nb\n"},
		{"new", "", "a\nb\n", "+a\n+b\n"},
		{"removed", "a\nb\n", "", "-a\n-b\n"},
		{"one line", "a\nb\nc\n", "a\nB\nc\n", "a\n-b\n+B\nc\n"},
		{"moved", "a\nb\nc\nd\n", "b\nc\na\nd\n", "-a\nb\nc\n+a\nd\n"},
		{"repeated", "x\nx\n", "x\nx\nx\n", "x\nx\n+x\n"},
	} {
		require.Equal(t, tc.want, diffText(diffOf(tc.before, tc.after)), tc.name)
	}
	long := strings.Repeat("a\n", 2000)
	require.Len(t, diffOf("b\n"+long+"c\n", "d\n"+long+"e\n"), 2*2002, "too long for a search")
}

// TestDiffHasBothTexts: without the lines of one sign it is the other text.
func TestDiffHasBothTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", ""}), 0, 12), func(l []string) string { return strings.Join(l, "\n") })
		before, after := text.Draw(t, "before"), text.Draw(t, "after")
		var was, is []string
		for _, l := range diffOf(before, after) {
			if l.Sign != "+" {
				was = append(was, l.Text)
			}
			if l.Sign != "-" {
				is = append(is, l.Text)
			}
		}
		require.Equal(t, linesOf(before), was)
		require.Equal(t, linesOf(after), is)
	})
}
