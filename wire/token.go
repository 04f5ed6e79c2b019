package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"sync"
)

// A delivery token, version 1. Integers are big-endian.
//
//	 0        8         12       20                32
//	+--------+---------+--------+-----------------+
//	| Seq    | Attempt | Lease  | MAC (12 bytes)  |  base64url, no padding:
//	+--------+---------+--------+-----------------+  43 characters
//
// MAC is the first 12 bytes of HMAC-SHA256(key, "fila.token.1" | the 20 bytes
// before it | queue name). Only the queue name varies in length and it comes
// last, so no two inputs run together.
const (
	tokenBody = 20
	tokenMAC  = 12
	tokenRaw  = tokenBody + tokenMAC
	tokenTag  = "fila.token.1"
)

const (
	// TokenLen is the length of a token in characters.
	TokenLen = 43
	// SignerKeyLen is the length of a [Signer]'s key in bytes.
	SignerKeyLen = 32
)

// ErrBadToken is returned for a token that no [Signer] with this key made for this queue.
var ErrBadToken = errors.New("wire: malformed or forged token")

// Strict refuses trailing bits that are not zero: otherwise four tokens would
// pass for one.
var tokenText = base64.RawURLEncoding.Strict()

// Token names one delivery of one message of a queue.
type Token struct {
	Seq     uint64 // the message's sequence in its queue
	Attempt uint32 // 1 on the first delivery
	Lease   uint64 // unique to this lease, also across restarts
}

// Signer makes tokens and checks them. It is safe for concurrent use.
type Signer struct {
	key  [SignerKeyLen]byte
	pool sync.Pool // of *macState
}

// macState is an HMAC with its buffers. They are here because arguments of an interface's
// methods escape to the heap.
type macState struct {
	mac hash.Hash
	in  []byte
	sum [sha256.Size]byte
}

// NewSigner returns a signer for a key of 32 random bytes, which it copies.
func NewSigner(key []byte) (*Signer, error) {
	if len(key) != SignerKeyLen {
		return nil, fmt.Errorf("wire: token key has %d bytes, want %d", len(key), SignerKeyLen)
	}
	s := &Signer{}
	copy(s.key[:], key)
	s.pool.New = func() any {
		return &macState{
			mac: hmac.New(sha256.New, s.key[:]),
			in:  make([]byte, 0, len(tokenTag)+tokenBody+MaxQueueName+len(DLQSuffix)),
		}
	}
	return s, nil
}

// Append appends the token of t in queue to dst. It allocates only if dst is
// too small.
func (s *Signer) Append(dst []byte, queue string, t Token) []byte {
	var raw [tokenRaw]byte
	binary.BigEndian.PutUint64(raw[0:8], t.Seq)
	binary.BigEndian.PutUint32(raw[8:12], t.Attempt)
	binary.BigEndian.PutUint64(raw[12:20], t.Lease)
	m := s.sign(raw[:tokenBody], queue)
	copy(raw[tokenBody:], m.sum[:tokenMAC])
	s.pool.Put(m)
	return tokenText.AppendEncode(dst, raw[:])
}

// Parse is the inverse of [Signer.Append]; it returns [ErrBadToken] for an invalid token. It
// compares the MAC in constant time and does not allocate.
func (s *Signer) Parse(token, queue string) (Token, error) {
	if len(token) != TokenLen {
		return Token{}, ErrBadToken
	}
	var text [TokenLen]byte
	copy(text[:], token)
	var raw [tokenRaw]byte
	// The decoder skips line breaks; such a token comes out too short.
	if n, err := tokenText.Decode(raw[:], text[:]); err != nil || n != tokenRaw {
		return Token{}, ErrBadToken
	}
	m := s.sign(raw[:tokenBody], queue)
	ok := hmac.Equal(m.sum[:tokenMAC], raw[tokenBody:])
	s.pool.Put(m)
	if !ok {
		return Token{}, ErrBadToken
	}
	return Token{
		Seq:     binary.BigEndian.Uint64(raw[0:8]),
		Attempt: binary.BigEndian.Uint32(raw[8:12]),
		Lease:   binary.BigEndian.Uint64(raw[12:20]),
	}, nil
}

// LeaseOf returns the lease in a token without checking it. It only tells which fila to ask.
func LeaseOf(token string) (uint64, error) {
	raw, err := tokenText.DecodeString(token)
	if err != nil || len(raw) != tokenRaw {
		return 0, ErrBadToken
	}
	return binary.BigEndian.Uint64(raw[12:20]), nil
}

// sign returns a state whose sum is the MAC. The caller returns it to the pool.
func (s *Signer) sign(body []byte, queue string) *macState {
	m := s.pool.Get().(*macState)
	m.in = append(m.in[:0], tokenTag...)
	m.in = append(m.in, body...)
	m.in = append(m.in, queue...)
	m.mac.Reset()
	m.mac.Write(m.in)
	m.mac.Sum(m.sum[:0])
	return m
}

// Sum returns a MAC of parts and their lengths under a tag. The sum of one tag is never valid
// for another tag, or as a token.
func (s *Signer) Sum(tag string, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, s.key[:])
	mac.Write([]byte("fila.sum.1"))
	for _, p := range append([][]byte{[]byte(tag)}, parts...) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		mac.Write(n[:])
		mac.Write(p)
	}
	return mac.Sum(nil)
}
