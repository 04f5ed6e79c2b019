package wire

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestBatchToken(t *testing.T) {
	s, err := NewSigner(make([]byte, SignerKeyLen))
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		var b BatchToken
		var want []Token
		for range rapid.IntRange(0, 40).Draw(t, "n") {
			token := Token{
				Seq: rapid.Uint64().Draw(t, "seq"), Attempt: rapid.Uint32().Draw(t, "attempt"), Lease: rapid.Uint64().Draw(t, "lease"),
			}
			require.True(t, b.Add(token))
			want = append(want, token)
		}
		text := string(s.AppendBatch(nil, "orders", &b))
		require.True(t, IsBatch(text))
		got, err := s.ParseBatch(text, "orders")
		require.NoError(t, err)
		require.Equal(t, len(want), len(got))
		if len(want) > 0 {
			require.Equal(t, want, got)
		}
		_, err = s.ParseBatch(text, "order")
		require.ErrorIs(t, err, ErrBadToken)
		at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
		changed := []byte(text)
		changed[at] ^= 1
		_, err = s.ParseBatch(string(changed), "orders")
		require.ErrorIs(t, err, ErrBadToken)
		_, err = s.Parse(text, "orders")
		require.ErrorIs(t, err, ErrBadToken)
	})
}

// A batch of the usual numbers is full by its number, one of the largest numbers by its size.
func TestRoomOfABatchToken(t *testing.T) {
	s, err := NewSigner(make([]byte, SignerKeyLen))
	require.NoError(t, err)
	var small, large BatchToken
	n := 0
	for small.Add(Token{Seq: uint64(1_000_000 + n), Attempt: 1, Lease: 1<<40 + uint64(n)}) {
		n++
	}
	require.Greater(t, n, 400)
	all, err := s.ParseBatch(string(s.AppendBatch(nil, "q", &small)), "q")
	require.NoError(t, err)
	require.Len(t, all, n)
	n = 0
	for large.Add(Token{Seq: math.MaxUint64 / 3 * uint64(n%3), Attempt: math.MaxUint32, Lease: math.MaxUint64 / 3 * uint64(n%2)}) {
		n++
	}
	require.Greater(t, n, 50)
	text := s.AppendBatch(nil, "q", &large)
	require.LessOrEqual(t, len(text), 1+tokenText.EncodedLen(MaxBatchToken))
	_, err = s.ParseBatch(string(text), "q")
	require.NoError(t, err)
}

func FuzzParseBatchAck(f *testing.F) {
	f.Add([]byte("0-1 +ACK\n2 -NAK {}"), 3)
	f.Add([]byte("+TERM"), 1)
	f.Fuzz(func(t *testing.T, payload []byte, n int) {
		if n < 1 || n > MaxBatchMessages {
			return
		}
		acks, err := ParseBatchAck(payload, nil, n, ParseAck)
		if err != nil {
			require.Equal(t, CodeBadAckPayload, err.ErrCode)
			return
		}
		seen := make(map[int]bool)
		for _, a := range acks {
			require.False(t, seen[a.Index])
			require.True(t, a.Index >= 0 && a.Index < n)
			seen[a.Index] = true
		}
	})
}

func FuzzParseDelivered(f *testing.F) {
	f.Add(AppendDelivered(nil, &Delivered{Attempt: 1, Data: []byte("x")}, nil, []byte("A: 1\r\n")), 1)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		all, err := ParseDelivered(b, n)
		if err != nil {
			return
		}
		var again []byte
		for i := range all {
			h, err := all[i].Header.Parse(nil, HeaderLimits{})
			if err != nil {
				return
			}
			again = AppendDelivered(again, &all[i], EncodeHeaders(nil, h), nil)
		}
		_, err = ParseDelivered(again, n)
		require.Nil(t, err)
	})
}
