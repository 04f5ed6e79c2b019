package terminal

import (
	"io"
	"os"
	"unicode/utf8"

	"golang.org/x/term"
)

// Keys that are no characters to be shown.
const (
	KeyInterrupt = '\x03'
	KeyBackspace = '\x7f'
	KeyEnter     = '\r'
	KeyEscape    = '\x1b'
)

// Keys returns what is typed on the terminal in, each key as it is pressed, and what
// gives the terminal back. Until then an interrupt is a key, too. What is no terminal
// has no keys. The channel is closed when in has ended.
func Keys(in io.Reader) (keys <-chan rune, restore func(), err error) {
	file, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil, func() {}, nil
	}
	before, err := term.MakeRaw(int(file.Fd()))
	if err != nil {
		return nil, nil, err
	}
	pressed := make(chan rune)
	go readKeys(file, pressed)
	return pressed, func() { _ = term.Restore(int(file.Fd()), before) }, nil // nobody to tell
}

// readKeys sends what in yields until it ends. Nothing interrupts a read of a terminal,
// so it may outlive who listens.
func readKeys(in io.Reader, keys chan<- rune) {
	defer close(keys)
	chunk := make([]byte, 256)
	for {
		n, err := in.Read(chunk)
		for _, key := range pressedKeys(chunk[:n]) {
			keys <- key
		}
		if err != nil {
			return
		}
	}
}

// pressedKeys are the keys of what a terminal sent at once. Arrows and the like, which are
// an escape and more, mean nothing here.
func pressedKeys(sent []byte) (keys []rune) {
	if len(sent) > 1 && sent[0] == KeyEscape {
		return nil
	}
	for len(sent) > 0 {
		key, n := utf8.DecodeRune(sent)
		sent = sent[n:]
		switch key {
		case '\b':
			key = KeyBackspace
		case '\n':
			key = KeyEnter
		}
		keys = append(keys, key)
	}
	return keys
}
