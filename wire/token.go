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

// The token of a delivery. Integers are big-endian.
//
//	 0       8
//	+-------+-------------+-----------------+---------------+
//	| Lease | uvarint Seq | uvarint Attempt | MAC (8 bytes) |  base64url, no padding:
//	+-------+-------------+-----------------+---------------+  24 to 42 characters
//
// The permit of a guard call, and the token of a fila before that form:
//
//	 0        8         12       20                32
//	+--------+---------+--------+-----------------+
//	| Seq    | Attempt | Lease  | MAC (12 bytes)  |  base64url, no padding:
//	+--------+---------+--------+-----------------+  43 characters
//
// MAC is the beginning of HMAC-SHA256(key, tag | the bytes before it | queue name). A form has
// its own tag, its fields have a fixed length or say where they end, and the queue name comes
// last, so no two inputs run together.
// docs/security.md says why 8 bytes are enough.
const (
	tokenTag  = "fila.token.2"
	tokenMAC  = 8
	tokenMax  = 8 + binary.MaxVarintLen64 + binary.MaxVarintLen32 + tokenMAC
	permitTag = "fila.token.1"
	permitMAC = 12
	permitRaw = 20 + permitMAC
)

const (
	// MaxTokenLen is the length of the longest token of a delivery in characters.
	MaxTokenLen = 42
	// PermitLen is the length of a permit in characters.
	PermitLen = 43
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
			in:  make([]byte, 0, len(tokenTag)+permitRaw+MaxQueueName+len(DLQSuffix)),
		}
	}
	return s, nil
}

// Append appends the token of t in queue to dst. It allocates only if dst is
// too small.
func (s *Signer) Append(dst []byte, queue string, t Token) []byte {
	var room [tokenMax]byte
	raw := binary.BigEndian.AppendUint64(room[:0], t.Lease)
	raw = binary.AppendUvarint(raw, t.Seq)
	raw = binary.AppendUvarint(raw, uint64(t.Attempt))
	m := s.sign(tokenTag, raw, queue)
	raw = append(raw, m.sum[:tokenMAC]...)
	s.pool.Put(m)
	return tokenText.AppendEncode(dst, raw)
}

// AppendPermit appends t in the form of permits, which filas of other versions read.
func (s *Signer) AppendPermit(dst []byte, queue string, t Token) []byte {
	var room [permitRaw]byte
	raw := binary.BigEndian.AppendUint64(room[:0], t.Seq)
	raw = binary.BigEndian.AppendUint32(raw, t.Attempt)
	raw = binary.BigEndian.AppendUint64(raw, t.Lease)
	m := s.sign(permitTag, raw, queue)
	raw = append(raw, m.sum[:permitMAC]...)
	s.pool.Put(m)
	return tokenText.AppendEncode(dst, raw)
}

// Parse is the inverse of [Signer.Append] and [Signer.AppendPermit]; it returns [ErrBadToken] for
// an invalid token. It compares the MAC in constant time and does not allocate.
func (s *Signer) Parse(token, queue string) (Token, error) {
	var room [permitRaw]byte
	raw, short, err := decodeToken(&room, token)
	if err != nil {
		return Token{}, err
	}
	tag, body := permitTag, len(raw)-permitMAC
	if short {
		tag, body = tokenTag, len(raw)-tokenMAC
	}
	m := s.sign(tag, raw[:body], queue)
	ok := hmac.Equal(m.sum[:len(raw)-body], raw[body:])
	s.pool.Put(m)
	if !ok {
		return Token{}, ErrBadToken
	}
	if !short {
		return Token{
			Seq:     binary.BigEndian.Uint64(raw[0:8]),
			Attempt: binary.BigEndian.Uint32(raw[8:12]),
			Lease:   binary.BigEndian.Uint64(raw[12:20]),
		}, nil
	}
	seq, n := binary.Uvarint(raw[8:body])
	attempt, _ := binary.Uvarint(raw[8+n : body])
	return Token{Seq: seq, Attempt: uint32(attempt), Lease: binary.BigEndian.Uint64(raw[0:8])}, nil
}

// decodeToken decodes the text of a token into room; short is the form of deliveries.
func decodeToken(room *[permitRaw]byte, token string) (raw []byte, short bool, err error) {
	var text [PermitLen]byte
	if len(token) > len(text) {
		return nil, false, ErrBadToken
	}
	n, err := tokenText.Decode(room[:], text[:copy(text[:], token)])
	// The decoder skips line breaks; such a token comes out too short.
	if err != nil || tokenText.EncodedLen(n) != len(token) || n < 8+tokenMAC {
		return nil, false, ErrBadToken
	}
	return room[:n], n < permitRaw, nil
}

// LeaseOf returns the lease in a token without checking it. It only tells which fila to ask.
func LeaseOf(token string) (uint64, error) {
	var room [permitRaw]byte
	raw, short, err := decodeToken(&room, token)
	switch {
	case err != nil:
		return 0, err
	case short:
		return binary.BigEndian.Uint64(raw[0:8]), nil
	}
	return binary.BigEndian.Uint64(raw[12:20]), nil
}

// sign returns a state whose sum begins with the MAC. The caller returns it to the pool.
func (s *Signer) sign(tag string, body []byte, queue string) *macState {
	m := s.pool.Get().(*macState)
	m.in = append(m.in[:0], tag...)
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
