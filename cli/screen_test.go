package cli

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDraw(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, draw(&out, []string{"a", "b", "c"}, 24))
	require.Equal(t, "\x1b[Ha\x1b[K\r\nb\x1b[K\r\nc\x1b[K\x1b[J", out.String())
	out.Reset()
	require.NoError(t, draw(&out, []string{"a", "b", "c"}, 2))
	require.Equal(t, "\x1b[Ha\x1b[K\x1b[J", out.String(), "the last line stays free, so that nothing scrolls")
}

func TestTerminals(t *testing.T) {
	require.False(t, isTerminal(&bytes.Buffer{}))
	file, err := os.Create(writeFile(t, "f", ""))
	require.NoError(t, err)
	require.False(t, isTerminal(file))
	require.NoError(t, file.Close())
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	require.False(t, isTerminal(null))
	require.False(t, styleFor(null).on)
	defer null.Close()
	t.Setenv("COLUMNS", "101")
	t.Setenv("LINES", "33")
	width, height := terminalSize(&bytes.Buffer{})
	require.Equal(t, []int{101, 33}, []int{width, height})
	t.Setenv("COLUMNS", "")
	t.Setenv("LINES", "no number")
	width, height = terminalSize(null)
	require.Equal(t, []int{80, 24}, []int{width, height}, "no terminal")
	require.Equal(t, "x", style{}.red("x"))
	require.Equal(t, "\x1b[31mx\x1b[0m", style{true}.red("x"))
}
