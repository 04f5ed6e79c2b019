package wire

import (
	"bytes"
	"encoding/base64"
	"maps"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func testKey(seed byte) []byte {
	key := make([]byte, SignerKeyLen)
	for i := range key {
		key[i] = seed + byte(i)
	}
	return key
}

func newTestSigner(t testing.TB, seed byte) *Signer {
	t.Helper()
	s, err := NewSigner(testKey(seed))
	require.NoError(t, err)
	return s
}

// forms are the forms of tokens.
var forms = map[string]func(*Signer, []byte, string, Token) []byte{"token": (*Signer).Append, "permit": (*Signer).AppendPermit}

func TestTokenGolden(t *testing.T) {
	// Tokens outlive the process that made them: these must stay valid. They
	// were computed apart, with Python's hmac.
	tok := Token{Seq: 0x0102030405060708, Attempt: 3, Lease: 0x1112131415161718}
	s := newTestSigner(t, 1)
	for form, want := range map[string]string{
		"token":  "ERITFBUWFxiIjpiowOCAgQEDX05x9SLw7VQ",
		"permit": "AQIDBAUGBwgAAAADERITFBUWFxgtv1CTy4F_gkmCKws",
	} {
		require.Equal(t, "x"+want, string(forms[form](s, []byte("x"), "orders", tok)))
		got, err := s.Parse(want, "orders")
		require.NoError(t, err)
		require.Equal(t, tok, got)
		lease, err := LeaseOf(want)
		require.NoError(t, err)
		require.Equal(t, tok.Lease, lease)
	}
}

func TestTokenRoundTrip(t *testing.T) {
	s := newTestSigner(t, 3)
	for _, tok := range []Token{
		{},
		{Seq: 1, Attempt: 1, Lease: 1},
		{Seq: math.MaxUint64, Attempt: math.MaxUint32, Lease: math.MaxUint64},
	} {
		for _, queue := range []string{"q", "orders", "a.b.dlq", strings.Repeat("q", MaxQueueName) + DLQSuffix} {
			require.LessOrEqual(t, len(s.Append(nil, queue, tok)), MaxTokenLen)
			require.Len(t, s.AppendPermit(nil, queue, tok), PermitLen)
			for _, form := range forms {
				got, err := s.Parse(string(form(s, nil, queue, tok)), queue)
				require.NoError(t, err)
				require.Equal(t, tok, got)
			}
		}
	}
	require.Len(t, s.Append(nil, "q", Token{Seq: math.MaxUint64, Attempt: math.MaxUint32}), MaxTokenLen)
	require.Len(t, s.Append(nil, "q", Token{Seq: 1e6, Attempt: 1, Lease: math.MaxUint64}), 27)
}

func TestTokenRefused(t *testing.T) {
	s, tok := newTestSigner(t, 3), Token{Seq: 5, Attempt: 1, Lease: 77}
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			testRefused(t, s, string(form(s, nil, "orders", tok)), map[string]string{
				"token of another key":     string(form(newTestSigner(t, 4), nil, "orders", tok)),
				"MAC over another queue":   string(form(s, nil, "orders2", tok)),
				"MAC of the source's name": string(form(s, nil, "orders.dlq", tok)),
			})
		})
	}
}

// testRefused checks that nothing but good is a token of the queue orders.
func testRefused(t *testing.T, s *Signer, good string, bad map[string]string) {
	raw, err := base64.RawURLEncoding.DecodeString(good)
	require.NoError(t, err)
	maps.Copy(bad, map[string]string{
		"empty":                   "",
		"one short":               good[:len(good)-1],
		"one long":                good + "A",
		"padding":                 good[:len(good)-1] + "=",
		"padded":                  good + "=",
		"line break inside":       good[:10] + "\n" + good[11:],
		"line break more":         good[:10] + "\n" + good[10:],
		"two line breaks":         good[:10] + "\r\n" + good[12:],
		"line break added":        good + "\n",
		"character of base64std":  "+" + good[1:],
		"other alphabet":          "/" + good[1:],
		"not base64":              "*" + good[1:],
		"non-ASCII":               "é" + good[2:],
		"zero token":              strings.Repeat("A", len(good)),
		"a MAC alone":             good[:11],
		"as long as the shortest": good[:22],
	})
	for name, tok := range bad {
		_, err := s.Parse(tok, "orders")
		require.ErrorIs(t, err, ErrBadToken, name)
	}
	_, err = s.Parse(good, "orders.dlq")
	require.ErrorIs(t, err, ErrBadToken)
	_, err = s.Parse(good, "")
	require.ErrorIs(t, err, ErrBadToken)

	// Every bit counts, in the fields and in the MAC.
	for bit := range 8 * len(raw) {
		forged := bytes.Clone(raw)
		forged[bit/8] ^= 1 << (bit % 8)
		_, err := s.Parse(base64.RawURLEncoding.EncodeToString(forged), "orders")
		require.ErrorIs(t, err, ErrBadToken, "bit %d", bit)
	}
	// Unused bits of the last character must be zero.
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	accepted := 0
	for _, c := range alphabet {
		if _, err := s.Parse(good[:len(good)-1]+string(c), "orders"); err == nil {
			accepted++
		}
	}
	require.Equal(t, 1, accepted)
}

// Bytes of the fields and of the queue are kept apart under the MAC: the end of one cannot pass
// for the start of the other.
func TestTokenNoRunningTogether(t *testing.T) {
	s := newTestSigner(t, 3)
	a := s.AppendPermit(nil, "ab", Token{Seq: 1, Attempt: 1, Lease: 0x6161616161616161})
	b := s.AppendPermit(nil, "b", Token{Seq: 1, Attempt: 1, Lease: 0x6161616161616161})
	require.NotEqual(t, a[27:], b[27:])
}

func TestNewSignerKey(t *testing.T) {
	for _, n := range []int{0, 16, 31, 33, 64} {
		_, err := NewSigner(make([]byte, n))
		require.Error(t, err, "%d bytes", n)
	}
	key := testKey(1)
	s, err := NewSigner(key)
	require.NoError(t, err)
	clear(key)
	want := newTestSigner(t, 1).Append(nil, "q", Token{Seq: 1})
	require.Equal(t, want, s.Append(nil, "q", Token{Seq: 1}), "the key is copied")
}

func TestSignerConcurrent(t *testing.T) {
	s := newTestSigner(t, 3)
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for g := range 8 {
		wg.Go(func() {
			var buf [MaxTokenLen]byte
			for i := range 500 {
				tok := Token{Seq: uint64(i), Attempt: uint32(g), Lease: uint64(i * g)}
				got, err := s.Parse(string(s.Append(buf[:0], "orders", tok)), "orders")
				if err != nil || got != tok {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	require.Empty(t, errs)
}

func FuzzTokenParse(f *testing.F) {
	s := newTestSigner(f, 3)
	f.Add(string(s.Append(nil, "orders", Token{Seq: 5, Attempt: 1, Lease: 77})), "orders", uint64(5), uint32(1), uint64(77))
	f.Add(string(s.AppendPermit(nil, "orders", Token{Seq: 5, Attempt: 1, Lease: 77})), "orders", uint64(5), uint32(1), uint64(77))
	f.Add(strings.Repeat("A", PermitLen), "", uint64(0), uint32(0), uint64(0))
	f.Add(strings.Repeat("\n", MaxTokenLen), "orders", uint64(1), uint32(2), uint64(3))
	f.Fuzz(func(t *testing.T, text, queue string, seq uint64, attempt uint32, lease uint64) {
		// Parse accepts only what the signer makes.
		if tok, err := s.Parse(text, queue); err == nil {
			require.Contains(t, []string{string(s.Append(nil, queue, tok)), string(s.AppendPermit(nil, queue, tok))}, text)
		} else {
			require.ErrorIs(t, err, ErrBadToken)
		}
		tok := Token{Seq: seq, Attempt: attempt, Lease: lease}
		made := string(s.Append(nil, queue, tok))
		got, err := s.Parse(made, queue)
		require.NoError(t, err)
		require.Equal(t, tok, got)
		if text != queue {
			_, err = s.Parse(made, text)
			require.ErrorIs(t, err, ErrBadToken)
		}
	})
}
