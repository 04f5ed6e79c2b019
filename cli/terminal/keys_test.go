package terminal

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeys(t *testing.T) {
	keys, restore, err := Keys(&bytes.Buffer{})
	require.NoError(t, err)
	require.Nil(t, keys, "no terminal")
	restore()

	for sent, want := range map[string]string{
		"": "", "q": "q", "ab": "ab", "\x1b": "\x1b", "\x1b[A": "", "é\n": "é\r", "\b": "\x7f", "\x03": "\x03",
	} {
		require.Equal(t, want, string(pressedKeys([]byte(sent))), "%q", sent)
	}
	read := make(chan rune)
	go readKeys(strings.NewReader("sq"), read)
	require.Equal(t, []rune{'s', 'q'}, []rune{<-read, <-read})
	_, more := <-read
	require.False(t, more)
}
