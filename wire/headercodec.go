package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The stored form of a message's headers, version 1: one record per value,
// nothing before and nothing after. No headers are no bytes.
//
//	+----------------+-----------+------------------+-------------+
//	| uvarint len(k) | k (bytes) | uvarint len(v)   | v (bytes)   |  ...
//	+----------------+-----------+------------------+-------------+
//
// len(k) >= 1; a first byte of 0 is free for a later version. Keys ascend
// bytewise; equal keys keep the order of their values. Uvarints are the
// shortest possible. So each set of headers has exactly one encoding.

// ErrBadHeaders is returned when bytes are not an encoding of headers.
var ErrBadHeaders = errors.New("wire: malformed stored headers")

// EncodeHeaders appends the stored form of h to dst. It leaves out reserved headers, except
// the headers of a schedule's run, which [ParseEnqueueHeaders] refuses from producers, and headers
// without values. It does not allocate if dst is large enough and h has at most 16 names.
func EncodeHeaders(dst []byte, h map[string][]string) []byte {
	var room [16]string
	keys, size := room[:0], 0
	for k, values := range h {
		if k != "" && kept(k) {
			keys = append(keys, k)
			for _, v := range values {
				size += 2*binary.MaxVarintLen16 + len(k) + len(v)
			}
		}
	}
	slices.Sort(keys)
	dst = slices.Grow(dst, size)
	for _, k := range keys {
		for _, v := range h[k] {
			dst = binary.AppendUvarint(dst, uint64(len(k)))
			dst = append(dst, k...)
			dst = binary.AppendUvarint(dst, uint64(len(v)))
			dst = append(dst, v...)
		}
	}
	return dst
}

// DecodeHeaders is the inverse of [EncodeHeaders]. The result shares no memory
// with b, and is nil if b is empty. Errors wrap [ErrBadHeaders].
func DecodeHeaders(b []byte) (map[string][]string, error) { return DecodeHeadersInto(nil, b) }

// DecodeHeadersInto is [DecodeHeaders] into h, which it clears first; nil: a new map.
func DecodeHeadersInto(h map[string][]string, b []byte) (map[string][]string, error) {
	clear(h)
	if len(b) == 0 {
		return h, nil
	}
	n, err := countHeaders(b)
	if err != nil {
		return h, err
	}
	if h == nil {
		h = make(map[string][]string, n)
	}
	// One copy of the bytes and one array of values carry all the strings.
	text := string(b)
	values := make([]string, n)
	at := 0
	for i := range values {
		from, to, _ := fieldAt(b, at)
		k := text[from:to]
		from, at, _ = fieldAt(b, to)
		values[i] = text[from:at]
		// Equal keys are neighbours, so their values are, too.
		first := i - len(h[k])
		h[k] = values[first : i+1 : i+1]
	}
	return h, nil
}

// countHeaders returns the number of values in b. An error wraps [ErrBadHeaders].
func countHeaders(b []byte) (n int, err error) {
	var last []byte
	for at := 0; at < len(b); n++ {
		from, to, ok := fieldAt(b, at)
		if !ok || from == to {
			return 0, fmt.Errorf("%w: name at byte %d", ErrBadHeaders, at)
		}
		name := b[from:to]
		if bytes.Compare(name, last) < 0 {
			return 0, fmt.Errorf("%w: name out of order at byte %d", ErrBadHeaders, at)
		}
		last = name
		if _, at, ok = fieldAt(b, to); !ok {
			return 0, fmt.Errorf("%w: value at byte %d", ErrBadHeaders, to)
		}
	}
	return n, nil
}

// fieldAt returns the bounds of the field whose length is at a byte of b.
func fieldAt(b []byte, at int) (from, to int, ok bool) {
	n, w := binary.Uvarint(b[at:])
	if w <= 0 || w > 1 && b[at+w-1] == 0 {
		return 0, 0, false // cut off, too long, or not the shortest form
	}
	from = at + w
	if n > uint64(len(b)-from) {
		return 0, 0, false
	}
	return from, from + int(n), true
}

// HasHeader reports whether headers in their stored form have a name, in any case, with a
// value. It ignores everything after malformed bytes.
func HasHeader(encoded []byte, name, value string) bool {
	for at := 0; at < len(encoded); {
		from, to, ok := fieldAt(encoded, at)
		if !ok {
			return false
		}
		same := to-from == len(name) && strings.EqualFold(string(encoded[from:to]), name)
		if from, at, ok = fieldAt(encoded, to); !ok {
			return false
		}
		if same && string(encoded[from:at]) == value {
			return true
		}
	}
	return false
}
