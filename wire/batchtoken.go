package wire

import (
	"crypto/hmac"
	"encoding/binary"
)

// The token of a batch of deliveries. Its text begins with [batchMark], which no other token has.
//
//	+---+---------------------------------------------+----------------+
//	| n | n times: difference of Seq, Attempt,        | MAC (8 bytes)  |  base64url, no padding
//	|   | difference of Lease                         |                |
//	+---+---------------------------------------------+----------------+
//
// Numbers are varints, and differences are to the delivery before. MAC is the first 8 bytes of
// HMAC-SHA256(key, "fila.batch.1" | the bytes before it | queue name). The bytes before it say where
// they end, so no two inputs run together.
const (
	batchMark = '~'
	batchTag  = "fila.batch.1"
	// MaxBatchToken is the maximum length of the token of a batch in bytes, before base64url.
	// With it a subject stays below half of NATS's limit for a line of its protocol (4 KiB).
	MaxBatchToken = 1400
)

// BatchToken is the token of a batch that is being made.
type BatchToken struct {
	raw  []byte
	n    int
	last Token
}

// Add adds a delivery. It reports false, without effect, if there is no room for it.
func (b *BatchToken) Add(t Token) bool {
	raw := binary.AppendVarint(b.raw, int64(t.Seq-b.last.Seq))
	raw = binary.AppendUvarint(raw, uint64(t.Attempt))
	raw = binary.AppendVarint(raw, int64(t.Lease-b.last.Lease))
	if b.n == MaxBatchMessages || len(raw) > MaxBatchToken-tokenMAC-2 {
		return false
	}
	b.raw, b.last = raw, t
	b.n++
	return true
}

// AppendBatch appends the token of a batch in queue to dst.
func (s *Signer) AppendBatch(dst []byte, queue string, b *BatchToken) []byte {
	raw := binary.AppendUvarint(nil, uint64(b.n))
	raw = append(raw, b.raw...)
	m := s.sign(batchTag, raw, queue)
	raw = append(raw, m.sum[:tokenMAC]...)
	s.pool.Put(m)
	return tokenText.AppendEncode(append(dst, batchMark), raw)
}

// IsBatch reports whether a token is the token of a batch.
func IsBatch(token string) bool { return token != "" && token[0] == batchMark }

// ParseBatch is the inverse of [Signer.AppendBatch]; it returns [ErrBadToken] for an invalid token.
func (s *Signer) ParseBatch(token, queue string) ([]Token, error) {
	if !IsBatch(token) || len(token) > tokenText.EncodedLen(MaxBatchToken)+1 {
		return nil, ErrBadToken
	}
	raw, err := tokenText.DecodeString(token[1:])
	if err != nil || len(raw) < tokenMAC {
		return nil, ErrBadToken
	}
	body, mac := raw[:len(raw)-tokenMAC], raw[len(raw)-tokenMAC:]
	m := s.sign(batchTag, body, queue)
	ok := hmac.Equal(m.sum[:tokenMAC], mac)
	s.pool.Put(m)
	if !ok {
		return nil, ErrBadToken
	}
	n, body, ok := cutUvarint(body)
	if !ok || n > MaxBatchMessages {
		return nil, ErrBadToken
	}
	all := make([]Token, 0, n)
	var t Token
	for range n {
		seq, rest, ok1 := cutVarint(body)
		attempt, rest, ok2 := cutUvarint(rest)
		lease, rest, ok3 := cutVarint(rest)
		if !ok1 || !ok2 || !ok3 {
			return nil, ErrBadToken
		}
		body = rest
		t = Token{Seq: t.Seq + uint64(seq), Attempt: uint32(attempt), Lease: t.Lease + uint64(lease)}
		all = append(all, t)
	}
	if len(body) > 0 {
		return nil, ErrBadToken
	}
	return all, nil
}

func cutUvarint(b []byte) (n uint64, rest []byte, ok bool) {
	n, w := binary.Uvarint(b)
	return n, b[max(w, 0):], w > 0
}

func cutVarint(b []byte) (n int64, rest []byte, ok bool) {
	n, w := binary.Varint(b)
	return n, b[max(w, 0):], w > 0
}
