package wire

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxKeyBytes is the maximum length of a fairness, throttle or circuit key in bytes.
const MaxKeyBytes = 256

// AllowedKey describes the keys that a message may have.
const AllowedKey = "allowed are 1 to 256 bytes of UTF-8 without control characters"

// CheckKey returns nil if key is a legal fairness, throttle or circuit key of a new message:
// 1 to 256 bytes of UTF-8 without control characters. Old messages may have other keys, see
// [ShowKey].
func CheckKey(key string) error {
	if key == "" || len(key) > MaxKeyBytes || !Plain(key) {
		return fmt.Errorf("key %s: %s", Quote(key), AllowedKey)
	}
	return nil
}

// Plain reports whether s is UTF-8 without control characters.
func Plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' {
			return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
		}
	}
	return true
}

// ShowKey returns the form of a key in replies, events and requests: \xNN replaces each byte
// that is not UTF-8 or belongs to a control character, and a backslash that would begin such
// an escape. Different keys have different forms. [NamedKey] is its inverse.
func ShowKey(key string) string {
	if Plain(key) && !strings.Contains(key, `\x`) {
		return key
	}
	return escape(key, unicode.IsControl)
}

// ShowText is ShowKey for a text that may have control characters. JSON can represent the
// form, and different texts have different forms.
func ShowText(text string) string {
	if utf8.ValidString(text) && !strings.Contains(text, `\x`) {
		return text
	}
	return escape(text, func(rune) bool { return false })
}

// ShowHeaders returns headers with the values in the form of [ShowText]; h itself if nothing
// differs.
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

// escape writes \xNN for each byte of s that is not UTF-8 or belongs to a rune for which left
// is true, and for a backslash that would begin such an escape.
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

// NamedKey returns the key for its form in a request. It is the inverse of [ShowKey] and
// [ShowText].
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

// escaped returns the byte of the escape that s begins with.
func escaped(s string) (c byte, ok bool) {
	if len(s) < len(`\xNN`) || s[:2] != `\x` {
		return 0, false
	}
	n, err := strconv.ParseUint(s[2:4], 16, 8)
	return byte(n), err == nil
}

// CheckNamedKey returns nil if text is the form of a key of 1 to 256 bytes in a request.
func CheckNamedKey(text string) error {
	if key := NamedKey(text); key == "" || len(key) > MaxKeyBytes || !utf8.ValidString(text) {
		return fmt.Errorf("key %s: allowed are 1 to %d bytes of UTF-8", Quote(text), MaxKeyBytes)
	}
	return nil
}

// NameKey replaces the text in a request's field by the key that it names.
func NameKey(field string, text *string) *Error {
	if CheckNamedKey(*text) != nil {
		return BadKey(field, *text)
	}
	*text = NamedKey(*text)
	return nil
}
