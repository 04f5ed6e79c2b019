package fingerprint

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// MaxText is how many bytes of a text count.
const MaxText = 1024

// The placeholders of varying parts in a normalised text.
const (
	number = "#"
	id     = "<id>"
	path   = "<path>"
	quoted = "<text>"
)

// Of returns the name of an error: 16 hexadecimal digits, made of its source, its code and its
// normalised text. Equal errors have equal names. Among 2^32 different errors two are expected
// to share a name.
func Of(source, code, normalised string) string {
	text := make([]byte, 0, 256)
	for _, part := range [...]string{source, code, normalised} {
		text = append(append(text, part...), 0)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Normalise returns text with one placeholder for each of these:
//
//	"..." '...' `...`                            <text>
//	/a/b  C:\a  a/b/c  a/b.go:7  https://a/b     <path>
//	a UUID, a hash, a mail address, a token      <id>
//	a number, with its unit or a name before it  #, ms# of ms42
//
// A status stays: three digits from 100 to 599 that stand first in the text, or behind
// HTTP, status or code, as in "HTTP 404", "HTTP/1.1 503", "statusCode=503" and "code: 429".
// Different statuses are different errors.
//
// A list of equal placeholders becomes one, and white space becomes one space. A word ends at
// white space, or at punctuation that does not belong to a number or a name.
func Normalise(text string) string {
	if len(text) > MaxText {
		text = text[:MaxText]
	}
	n := normaliser{text: text, out: make([]byte, 0, len(text))}
	for n.at < len(text) {
		n.step()
	}
	return strings.TrimSpace(string(n.out))
}

// normaliser is the state of one call of Normalise.
type normaliser struct {
	text string
	at   int
	out  []byte
	sign string // the last one that was written
	end  int    // of out after it
}

// step copies or replaces the next part of the text.
func (n *normaliser) step() {
	c := n.text[n.at]
	switch {
	case c <= ' ':
		if n.at++; len(n.out) > 0 && n.out[len(n.out)-1] != ' ' {
			n.out = append(n.out, ' ')
		}
	case c == '"' || c == '`' || c == '\'':
		if end := n.quoteEnd(c); end > 0 {
			n.at = end
			n.put(quoted)
			return
		}
		n.keep()
	case isWord(c) || strings.IndexByte(`/\~.`, c) >= 0:
		n.word()
	default:
		n.keep()
	}
}

// keep copies the next byte.
func (n *normaliser) keep() {
	n.out = append(n.out, n.text[n.at])
	n.at++
}

// quoteEnd returns the end of the quoted part that begins with quote c, or 0 if c begins none. A
// quote inside a word, as in "can't", neither begins nor ends anything.
func (n *normaliser) quoteEnd(c byte) int {
	if n.at > 0 && isWord(n.text[n.at-1]) {
		return 0
	}
	for i := n.at + 1; i < len(n.text); i++ {
		switch {
		case n.text[i] == '\\':
			i++
		case n.text[i] == c && (i+1 == len(n.text) || !isWord(n.text[i+1])):
			return i + 1
		}
	}
	return 0
}

// put writes a placeholder, unless it follows the same placeholder in a list.
func (n *normaliser) put(sign string) {
	if n.sign == sign && n.end > 0 && onlyBetween(n.out[n.end:]) {
		n.out = n.out[:n.end]
		return
	}
	n.out = append(n.out, sign...)
	n.sign, n.end = sign, len(n.out)
}

// onlyBetween reports whether out has only separators of a list.
func onlyBetween(out []byte) bool {
	for _, c := range out {
		if c != ' ' && c != ',' && c != ';' && c != '|' {
			return false
		}
	}
	return true
}

// word copies the next word, or replaces it by a placeholder if it is a path or an id.
func (n *normaliser) word() {
	end, has := n.at, byte(0)
	for end < len(n.text) && classes[n.text[end]]&ends == 0 {
		has |= classes[n.text[end]]
		end++
	}
	if has&(digit|slash|at) == 0 && (has&other != 0 || end-n.at < hash) { // as most are
		n.out = append(n.out, n.text[n.at:end]...)
		n.at = end
		return
	}
	whole := strings.TrimRight(n.text[n.at:end], ".:!?")
	if whole == "" { // dots
		n.keep()
		return
	}
	if has&slash != 0 && isPath(whole) {
		n.at += len(whole)
		n.put(path)
		return
	}
	length := 0 // of a word with what joins its parts
	for length < len(whole) && (isWord(whole[length]) || joins(whole, length)) {
		length++
	}
	if length == 0 {
		n.keep()
		return
	}
	word := whole[:length]
	n.at += length
	if isID(word) {
		n.put(id)
		return
	}
	n.parts(word, n.at-length)
}

// joins reports whether the byte at i of s joins two parts of one word.
func joins(s string, i int) bool {
	return i > 0 && i+1 < len(s) && classes[s[i]]&(hyphen|sign|at) != 0 && isWord(s[i-1]) && isWord(s[i+1])
}

// parts copies a word that is no id as a whole. It replaces numbers, with the signs that join their
// parts, by placeholders; a status stays. place is where the word begins in the text.
func (n *normaliser) parts(word string, place int) {
	for i := 0; i < len(word); {
		end := i
		for end < len(word) && isWord(word[end]) {
			end++
		}
		part := word[i:end]
		if !hasDigit(part) {
			for ; end < len(word) && !isWord(word[end]); end++ { // signs that join it to the next part
			}
			n.out = append(n.out, word[i:end]...)
			i = end
			continue
		}
		for end < len(word) { // the rest of a time, an address, a version
			next := end + 1
			for next < len(word) && isWord(word[next]) {
				next++
			}
			if !hasDigit(word[end+1 : next]) {
				break
			}
			end = next
		}
		name := strings.TrimRight(part, "0123456789")
		if end == i+len(part) && (isStatus(part) && n.announcesStatus(place+i) || isStatus(part[len(name):]) && endsInStatusWord(name)) {
			n.out = append(n.out, part...)
			n.sign = ""
			i = end
			continue
		}
		if !hasDigit(name) && name != "" && len(name) < len(part) {
			n.out = append(n.out, name...)
			n.sign = "" // it continues no list
		}
		n.put(number)
		for i = end; i < len(word) && !isWord(word[i]); i++ {
			n.out = append(n.out, word[i])
		}
	}
}

// isStatus reports whether a word is an HTTP status.
func isStatus(word string) bool {
	return len(word) == 3 && word[0] >= '1' && word[0] <= '5' && strings.Trim(word, "0123456789") == ""
}

// announcesStatus reports whether the text before place announces a status: it is empty, or ends in
// HTTP, status or code with a few signs behind.
func (n *normaliser) announcesStatus(place int) bool {
	if len(n.out) == 0 {
		return true
	}
	const maxSigns = 3 // as in "code": 503
	end := place
	for end > max(0, place-maxSigns) && strings.IndexByte(` :="'#([-_/`, n.text[end-1]) >= 0 {
		end--
	}
	return endsInStatusWord(n.text[:end])
}

// endsInStatusWord reports whether the last word of a text, or its last part as in
// statusCode and http_status, is HTTP, status or code.
func endsInStatusWord(text string) bool {
	if http := strings.TrimRight(text, "0123456789."); len(http) < len(text) && strings.HasSuffix(http, "/") {
		text = http[:len(http)-1] // HTTP/1.1
	}
	for _, word := range [...]string{"http", "status", "code"} {
		begin := len(text) - len(word)
		if begin < 0 || !strings.EqualFold(text[begin:], word) {
			continue
		}
		if begin == 0 || classes[text[begin-1]]&(hexLetter|other) == 0 || isUpper(text[begin]) && !isUpper(text[begin-1]) {
			return true
		}
	}
	return false
}

func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }

// isPath reports whether a word is the name of a file or a place in a network.
func isPath(word string) bool {
	slashes := strings.Count(word, "/") + strings.Count(word, `\`)
	switch {
	case slashes == 0:
		return false
	case strings.Contains(word, "://"), len(word) > 1 && strings.IndexByte(`/\~`, word[0]) >= 0, slashes > 1:
		return true
	case strings.HasPrefix(word, "./"), len(word) > 2 && word[1] == ':' && word[2] == '\\':
		return true
	}
	return strings.IndexByte(word, '.') > 0
}

// Hexadecimal words of at least hash bytes are ids, and words with digits of at least long bytes.
const (
	hash = 8
	long = 16
)

// isID reports whether a word is an id: a UUID, a hash, a mail address, or long and of
// letters and digits.
func isID(word string) bool {
	var digits, letters, hexes, hyphens int
	var has byte
	for i := range len(word) {
		c := classes[word[i]]
		has |= c
		switch {
		case c&digit != 0:
			digits++
			hexes++
		case c&hyphen != 0:
			hyphens++
		case c&hexLetter != 0:
			letters++
			hexes++
		default:
			letters++
		}
	}
	switch {
	case has&at != 0:
		return true
	case has&sign != 0, letters == 0: // a number, or several words
		return false
	case hexes >= hash && hexes+hyphens == len(word):
		return digits > 0 || hyphens == 0
	case strings.HasPrefix(word, "0x"):
		return true
	}
	return len(word) >= long && digits >= 2 && (hyphens == 0 || digits*4 >= len(word) || mixed(word))
}

// mixed reports whether a word has letters of both cases beside digits, as tokens do.
func mixed(word string) bool {
	return strings.ToLower(word) != word && strings.ToUpper(word) != word
}

func hasDigit(s string) bool {
	for i := range len(s) {
		if classes[s[i]]&digit != 0 {
			return true
		}
	}
	return false
}

// Classes of bytes.
const (
	digit     = 1 << iota
	hexLetter // a letter from a to f
	other     // any other letter, or part of a rune that is not ASCII
	hyphen    // - or _
	sign      // others that may join the parts of a word
	slash     // / or \, which are signs as well
	at        // @
	ends      // it ends a word
)

var classes = func() (of [256]byte) {
	for i := range of {
		c := byte(i)
		switch low := c | 0x20; {
		case c >= '0' && c <= '9':
			of[i] = digit
		case low >= 'a' && low <= 'f':
			of[i] = hexLetter
		case low >= 'g' && low <= 'z', c >= 0x80:
			of[i] = other
		case c <= ' ', strings.IndexByte("\"'`()[]{}<>,;|=", c) >= 0:
			of[i] = ends
		}
	}
	of['-'], of['_'], of['@'], of['/'], of['\\'] = hyphen, hyphen, at, slash|sign, slash|sign
	for _, c := range []byte(".:+%") {
		of[c] = sign
	}
	return of
}()

// isWord reports whether a byte is part of a word: a letter or a digit.
func isWord(c byte) bool { return classes[c]&(digit|hexLetter|other) != 0 }
