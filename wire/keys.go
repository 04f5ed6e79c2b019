package wire

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxKeyBytes is the length in bytes of the longest fairness, throttle or
// circuit key.
const MaxKeyBytes = 256

// allowedKey is what a key that a message brings may be.
const allowedKey = "allowed are 1 to 256 bytes of UTF-8 without control characters"

// CheckKey returns nil if a message may bring key as a fairness, throttle or
// circuit key: 1 to 256 bytes of UTF-8 without control characters. Messages from
// before that rule may have others, see [ShowKey].
func CheckKey(key string) error {
	if key == "" || len(key) > MaxKeyBytes || !plain(key) {
		return fmt.Errorf("key %s: %s", quote(key), allowedKey)
	}
	return nil
}

// plain reports whether s is UTF-8 without control characters.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' {
			return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
		}
	}
	return true
}

// ShowKey returns the form in which replies, events and requests name a key: the
// key itself, with \xNN for each byte that is not UTF-8 or belongs to a control
// character, and for a backslash that would read as the beginning of that. Two
// keys never have the same form. [NamedKey] is its opposite.
func ShowKey(key string) string {
	if plain(key) && !strings.Contains(key, `\x`) {
		return key
	}
	return escape(key, unicode.IsControl)
}

// ShowText returns text in the form of [ShowKey], but with its control characters:
// it is what JSON can say, and no two texts have the same form.
func ShowText(text string) string {
	if utf8.ValidString(text) && !strings.Contains(text, `\x`) {
		return text
	}
	return escape(text, func(rune) bool { return false })
}

// ShowHeaders returns headers with the values in the form of [ShowText]. It keeps h
// if that is what they are.
func ShowHeaders(h map[string][]string) map[string][]string {
	shown, same := make(map[string][]string, len(h)), true
	for name, values := range h {
		for _, value := range values {
			text := ShowText(value)
			same = same && text == value
			shown[name] = append(shown[name], text)
		}
	}
	if same {
		return h
	}
	return shown
}

// escape writes \xNN for each byte of s that is not UTF-8 or belongs to a character
// that is left out, and for a backslash that would read as the beginning of that.
func escape(s string, left func(rune) bool) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if _, ok := escaped(s[i:]); ok || left(r) || r == utf8.RuneError && n == 1 {
			for _, c := range []byte(s[i : i+n]) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// NamedKey returns the key that a request names by text, the opposite of
// [ShowKey] and [ShowText].
func NamedKey(text string) string {
	if !strings.Contains(text, `\x`) {
		return text
	}
	key := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		c, ok := escaped(text[i:])
		if !ok {
			key = append(key, text[i])
			i++
			continue
		}
		key = append(key, c)
		i += len(`\xNN`)
	}
	return string(key)
}

// escaped returns the byte that s begins with in the form of [ShowKey].
func escaped(s string) (c byte, ok bool) {
	if len(s) < len(`\xNN`) || s[:2] != `\x` {
		return 0, false
	}
	n, err := strconv.ParseUint(s[2:4], 16, 8)
	return byte(n), err == nil
}

// CheckNamedKey returns nil if text may name a key in a request: UTF-8, which is
// what JSON can say, for a key of 1 to 256 bytes.
func CheckNamedKey(text string) error {
	if key := NamedKey(text); key == "" || len(key) > MaxKeyBytes || !utf8.ValidString(text) {
		return fmt.Errorf("key %s: allowed are 1 to %d bytes of UTF-8", quote(text), MaxKeyBytes)
	}
	return nil
}

// nameKey makes of the text in a request's field the key that it names.
func nameKey(field string, text *string) *Error {
	if CheckNamedKey(*text) != nil {
		return badGateKey(field, *text)
	}
	*text = NamedKey(*text)
	return nil
}
