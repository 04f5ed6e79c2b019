package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
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

// EncodeHeaders appends the stored form of h to dst, without reserved headers.
// A header without values leaves no trace. It does not allocate if dst is
// large enough and h has at most 16 names.
func EncodeHeaders(dst []byte, h map[string][]string) []byte {
	var room [16]string
	keys := room[:0]
	for k := range h {
		if k != "" && !Reserved(k) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
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
func DecodeHeaders(b []byte) (map[string][]string, error) {
	if len(b) == 0 {
		return nil, nil
	}
	n := 0
	if err := VisitHeaders(b, func(_, _ []byte) bool { n++; return true }); err != nil {
		return nil, err
	}
	// One copy of the bytes and one array of values carry all the strings.
	text := string(b)
	values := make([]string, n)
	h := make(map[string][]string, n)
	at := 0
	for i := range values {
		var k string
		k, at = sliceAt(text, at)
		values[i], at = sliceAt(text, at)
		if have := h[k]; have == nil {
			h[k] = values[i : i+1 : i+1]
		} else {
			// Equal keys are neighbours, so their values are, too.
			first := i - len(have)
			h[k] = values[first : i+1 : i+1]
		}
	}
	return h, nil
}

// VisitHeaders calls fn for each name and value of b in order, until fn
// returns false. The slices point into b. An error wraps [ErrBadHeaders] and
// comes after fn has seen the headers before the fault.
func VisitHeaders(b []byte, fn func(k, v []byte) bool) error {
	var last []byte
	for at := 0; at < len(b); {
		k, next, ok := bytesAt(b, at)
		if !ok || len(k) == 0 {
			return fmt.Errorf("%w: name at byte %d", ErrBadHeaders, at)
		}
		if string(k) < string(last) {
			return fmt.Errorf("%w: name out of order at byte %d", ErrBadHeaders, at)
		}
		v, end, ok := bytesAt(b, next)
		if !ok {
			return fmt.Errorf("%w: value at byte %d", ErrBadHeaders, next)
		}
		if !fn(k, v) {
			return nil
		}
		last, at = k, end
	}
	return nil
}

// bytesAt reads one length and that many bytes.
func bytesAt(b []byte, at int) (s []byte, next int, ok bool) {
	n, w := binary.Uvarint(b[at:])
	if w <= 0 || w > 1 && b[at+w-1] == 0 {
		return nil, 0, false // cut off, too long, or not the shortest form
	}
	at += w
	if n > uint64(len(b)-at) {
		return nil, 0, false
	}
	next = at + int(n)
	return b[at:next:next], next, true
}

// sliceAt is bytesAt on bytes that have been checked.
func sliceAt(s string, at int) (string, int) {
	var n, shift int
	for {
		c := s[at]
		at++
		n |= int(c&0x7f) << shift
		if c < 0x80 {
			return s[at : at+n], at + n
		}
		shift += 7
	}
}
