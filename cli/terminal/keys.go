package terminal

import (
	"io"
	"os"
	"unicode/utf8"

	"golang.org/x/term"
)

// Control characters.
const (
	KeyInterrupt = '\x03'
	KeyBackspace = '\x7f'
	KeyEnter     = '\r'
	KeyEscape    = '\x1b'
)

// Keys returns the keys pressed on a terminal and a function that restores the terminal. Until
// then an interrupt is a key, too. The channel is nil if in is no terminal, and closed when in
// ends.
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
	return pressed, func() { _ = term.Restore(int(file.Fd()), before) }, nil // an error here has no remedy
}

// readKeys sends the keys of in until it ends. A read of a terminal cannot be interrupted, so
// it may outlive the receiver.
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

// pressedKeys returns the keys in one read of a terminal. It ignores escape sequences, such as
// arrows.
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
