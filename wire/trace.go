package wire

import (
	"encoding/hex"
	"strings"
)

// HeaderTraceParent is the header of a producer's trace (W3C Trace Context). Its name may be in
// any case, and it is delivered unchanged.
const HeaderTraceParent = "traceparent"

// TraceParent is the span in which a message or request was sent. The zero value is none.
type TraceParent struct {
	Trace   [16]byte
	Span    [8]byte
	Sampled bool
}

// Later versions begin like version 00:
//
//	00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
const (
	traceAt, spanAt, flagsAt = 3, 36, 53
	traceParentLen           = 55
	sampledFlag              = 1
)

// Sampled returns the traceparent in headers if its sampled flag is set.
func Sampled(h map[string][]string) (TraceParent, bool) {
	v := traceParent(h)
	if len(v) < traceParentLen || !sampledDigit(v[flagsAt+1]) {
		return TraceParent{}, false
	}
	return ParseTraceParent(v)
}

// SampledIn is Sampled for the stored form of headers; malformed headers have none. It is
// called for every message, so it is fast and does not allocate.
func SampledIn(headers []byte) (TraceParent, bool) {
	var found []byte
	for at := 0; at < len(headers); {
		from, to, ok := shortField(headers, at)
		if !ok {
			return TraceParent{}, false
		}
		value, end, ok := shortField(headers, to)
		if !ok {
			return TraceParent{}, false
		}
		if to-from == len(HeaderTraceParent) && isTraceParent(headers[from:to]) {
			if found != nil {
				return TraceParent{}, false
			}
			found = headers[value:end]
		}
		at = end
	}
	if len(found) < traceParentLen || !sampledDigit(found[flagsAt+1]) {
		return TraceParent{}, false
	}
	return ParseTraceParent(string(found))
}

// shortField is fieldAt, faster for fields shorter than 128 bytes.
func shortField(b []byte, at int) (from, to int, ok bool) {
	if at < len(b) && b[at] < 0x80 {
		from, to = at+1, at+1+int(b[at])
		return from, to, to <= len(b)
	}
	return fieldAt(b, at)
}

func sampledDigit(c byte) bool {
	digit := strings.IndexByte("0123456789abcdef", c)
	return digit >= 0 && digit&sampledFlag != 0
}

// isTraceParent reports whether a name is the name of the header, in any case.
func isTraceParent[T string | []byte](name T) bool {
	if string(name) == HeaderTraceParent {
		return true
	}
	if len(name) != len(HeaderTraceParent) {
		return false
	}
	for i := range len(name) {
		if name[i]|0x20 != HeaderTraceParent[i] {
			return false
		}
	}
	return true
}

// traceParent returns the value of the header; empty if there is none or more than one.
func traceParent(h map[string][]string) (found string) {
	for name, values := range h {
		if isTraceParent(name) {
			if found != "" || len(values) != 1 {
				return ""
			}
			found = values[0]
		}
	}
	return found
}

// TraceParentOf returns the traceparent in headers, sampled or not.
func TraceParentOf(h map[string][]string) (p TraceParent, ok bool) {
	return ParseTraceParent(traceParent(h))
}

// HasTraceParent reports whether headers have a traceparent, valid or not.
func HasTraceParent(h map[string][]string) bool {
	for name := range h {
		if isTraceParent(name) {
			return true
		}
	}
	return false
}

// ParseTraceParent parses a traceparent; ok is false if it is invalid.
func ParseTraceParent(v string) (p TraceParent, ok bool) {
	if len(v) < traceParentLen || v[2] != '-' || v[spanAt-1] != '-' || v[flagsAt-1] != '-' {
		return TraceParent{}, false
	}
	var version, flags [1]byte
	for _, part := range [...]struct {
		into []byte
		at   int
	}{{version[:], 0}, {p.Trace[:], traceAt}, {p.Span[:], spanAt}, {flags[:], flagsAt}} {
		text := v[part.at : part.at+2*len(part.into)]
		if _, err := hex.Decode(part.into, []byte(text)); err != nil || strings.ContainsAny(text, "ABCDEF") {
			return TraceParent{}, false
		}
	}
	if version[0] == 0xff || version[0] == 0 && len(v) != traceParentLen || len(v) > traceParentLen && v[traceParentLen] != '-' {
		return TraceParent{}, false
	}
	if p.Trace == [16]byte{} || p.Span == [8]byte{} {
		return TraceParent{}, false
	}
	p.Sampled = flags[0]&sampledFlag != 0
	return p, true
}
