package terminal

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDraw(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, Draw(&out, []string{"a", "b", "c"}, 24))
	require.Equal(t, "\x1b[Ha\x1b[K\r\nb\x1b[K\r\nc\x1b[K\x1b[J", out.String())
	out.Reset()
	require.NoError(t, Draw(&out, []string{"a", "b", "c"}, 2))
	require.Equal(t, "\x1b[Ha\x1b[K\x1b[J", out.String(), "the last line stays free, so that nothing scrolls")
}

func TestTerminals(t *testing.T) {
	require.False(t, IsTerminal(&bytes.Buffer{}))
	file, err := os.Create(filepath.Join(t.TempDir(), "f"))
	require.NoError(t, err)
	require.False(t, IsTerminal(file))
	require.NoError(t, file.Close())
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	require.False(t, IsTerminal(null))
	require.False(t, StyleFor(null).On)
	defer null.Close()
	t.Setenv("COLUMNS", "101")
	t.Setenv("LINES", "33")
	width, height := ScreenSize(&bytes.Buffer{})
	require.Equal(t, []int{101, 33}, []int{width, height})
	t.Setenv("COLUMNS", "")
	t.Setenv("LINES", "no number")
	width, height = ScreenSize(null)
	require.Equal(t, []int{80, 24}, []int{width, height}, "no terminal")
	require.Equal(t, "x", Style{}.Red("x"))
	require.Equal(t, "\x1b[31mx\x1b[0m", Style{true}.Red("x"))
}
