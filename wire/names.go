package wire

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxQueueName is the maximum length of a queue name in bytes, without the suffix of a
	// dead letter queue.
	MaxQueueName = 128
	// MaxConsumerName is the maximum length of a consumer name in bytes.
	MaxConsumerName = 64
	// MaxConfigKey is the maximum length of a runtime configuration key in bytes.
	MaxConfigKey = 512
	// MaxConfigValue is the maximum length of a runtime configuration value in bytes.
	MaxConfigValue = 64 << 10
)

// DLQSuffix is the suffix of the names of dead letter queues, and of no other queue.
const DLQSuffix = ".dlq"

// CheckQueueName returns nil if name may name a queue or a dead letter queue:
// 1 to 128 bytes of A-Za-z0-9_- with dots between non-empty parts. It does not
// refuse the reserved suffix; see [IsDLQ].
func CheckQueueName(name string) error {
	source := Source(name)
	if source == "" || len(source) > MaxQueueName || !nameParts(source) {
		return fmt.Errorf("queue name %s: allowed are 1 to %d bytes of A-Za-z0-9_- with dots between non-empty parts",
			Quote(name), MaxQueueName)
	}
	return nil
}

// CheckConsumerName returns nil if name may name a consumer: 1 to 64 bytes of
// A-Za-z0-9_-.
func CheckConsumerName(name string) error {
	return CheckName("consumer name", name, MaxConsumerName)
}

// CheckPolicyName returns nil if name may name a retry policy or an error rule:
// 1 to 64 bytes of A-Za-z0-9_-.
func CheckPolicyName(name string) error {
	return CheckName("name", name, MaxPolicyName)
}

// CheckName returns nil if name has 1 to limit bytes of A-Za-z0-9_-; what says what it names.
func CheckName(what, name string, limit int) error {
	if name == "" || len(name) > limit || !nameChars(name) {
		return fmt.Errorf("%s %s: allowed are 1 to %d bytes of A-Za-z0-9_-", what, Quote(name), limit)
	}
	return nil
}

// CheckConfigKey returns nil if key may be a key of the runtime configuration:
// 1 to 512 bytes that are legal at the end of a subject, see [EventTail].
func CheckConfigKey(key string) error {
	if len(key) > MaxConfigKey || !legalTail(key) {
		return fmt.Errorf("configuration key %s: allowed are 1 to %d bytes of printable UTF-8 "+
			"without spaces and '>', with dots between non-empty parts, none of which is '*' alone", Quote(key), MaxConfigKey)
	}
	return nil
}

// IsDLQ reports whether queue is the name of a dead letter queue.
func IsDLQ(queue string) bool {
	return len(queue) > len(DLQSuffix) && strings.HasSuffix(queue, DLQSuffix)
}

// DLQ returns the name of the dead letter queue of queue.
func DLQ(queue string) string { return queue + DLQSuffix }

// DeadLetters returns the name of the dead letter queue of queue, which may be a dead letter
// queue itself.
func DeadLetters(queue string) string { return DLQ(Source(queue)) }

// Source returns the name of the queue of a dead letter queue. It returns other names
// unchanged.
func Source(dlq string) string {
	if !IsDLQ(dlq) {
		return dlq
	}
	return dlq[:len(dlq)-len(DLQSuffix)]
}

// EventTail returns key if it is legal at the end of a subject, or "_" if it is not: if it is
// empty, longer than 512 bytes, has a part between dots that is empty or a wildcard, or has
// anything but printable UTF-8 without spaces and '>'. The body of an event always names the
// key.
func EventTail(key string) string {
	if len(key) > MaxConfigKey || !legalTail(key) {
		return "_"
	}
	return key
}

func nameParts(name string) bool {
	for part := range strings.SplitSeq(name, ".") {
		if part == "" || !nameChars(part) {
			return false
		}
	}
	return true
}

func nameChars(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-'
	})
}

// legalTail reports whether s is one or more literal subject tokens. It is stricter than the
// server, for which '>' inside a token is literal, because that is misleading in permissions.
// Keys of prefix throttles end in '*'.
func legalTail(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || part == "*" {
			return false
		}
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r == ' ' || r == '>' || !unicode.IsPrint(r)
	})
}

// maxQuoted is how many bytes of a client's text an error shows.
const maxQuoted = 80

// Quote quotes a client's text for an error description.
func Quote(s string) string {
	if len(s) > maxQuoted {
		return strconv.QuoteToASCII(Cut(s, maxQuoted)) + "..."
	}
	return strconv.QuoteToASCII(s)
}

// tame returns a value for an error description, quoted if it is too long or not printable
// ASCII.
func tame(s string) string {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || i > 4*maxQuoted+8 { // a quoted text may be longer
			return Quote(s)
		}
	}
	return s
}

// Cut returns at most limit bytes of s, without an incomplete rune at the end.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := limit
	for end > 0 && end > limit-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	if !utf8.RuneStart(s[end]) {
		end = limit // not UTF-8: there is no boundary
	}
	return s[:end]
}

// ParseID parses a UUID with hyphens.
func ParseID(text string) (id [16]byte, ok bool) {
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return id, false
	}
	n, err := hex.Decode(id[:], []byte(text[:8]+text[9:13]+text[14:18]+text[19:23]+text[24:]))
	return id, err == nil && n == len(id)
}
