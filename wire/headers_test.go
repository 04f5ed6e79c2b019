package wire

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReserved(t *testing.T) {
	for name, want := range map[string]bool{
		"Fila-Id": true, "fila-id": true, "FILA-ANYTHING": true, "Fila-": true, "Nats-Msg-Id": true, "nats-x": true,
		"": false, "Fila": false, "Filas-Id": false, "X-Fila-Id": false, "Natsy": false, "tenant": false, "Status": true, "status": true, "Status-Code": false, "traceparent": false,
	} {
		require.Equal(t, want, Reserved(name), "%q", name)
	}
}

func TestHeaderValue(t *testing.T) {
	require.Equal(t, "plain", HeaderValue("plain"))
	require.Equal(t, "a  b c", HeaderValue("a\r\nb\nc"))
}

func TestEncodeHeadersGolden(t *testing.T) {
	// Version 1 of the stored form: these bytes are on people's disks.
	h := header{"tenant": {"acme"}, "a": {"", "2"}, "Fila-Id": {"forged"}, "nats-msg-id": {"x"}, "none": {}}
	const want = "0161" + "00" + "0161" + "0132" + "0674656e616e74" + "0461636d65"
	got := EncodeHeaders(nil, h)
	require.Equal(t, want, hex.EncodeToString(got))
	back, err := DecodeHeaders(got)
	require.NoError(t, err)
	require.Equal(t, header{"tenant": {"acme"}, "a": {"", "2"}}, back)
}

func TestHeadersRoundTrip(t *testing.T) {
	many := header{}
	for i := range 100 {
		many[fmt.Sprintf("key-%d", i)] = []string{"v", strings.Repeat("x", i), "é\x00\r\n"}
	}
	for _, h := range []header{
		many,
		{"k": {strings.Repeat("v", 127)}},
		{"k": {strings.Repeat("v", 128)}},
		{"k": {strings.Repeat("v", 100_000)}},
		{strings.Repeat("k", 300): {"a", "a", "b", "a"}, "Tenant": {"1"}, "tenant": {"2"}},
	} {
		b := EncodeHeaders([]byte("before"), h)
		require.Equal(t, "before", string(b[:6]))
		got, err := DecodeHeaders(b[6:])
		require.NoError(t, err)
		require.Equal(t, h, got)
		clear(b)
		require.Equal(t, h, got, "shares memory with the input")
	}
	for _, h := range []header{nil, {}, {"a": {}}, {"Fila-Id": {"x"}}, {"": {"x"}}} {
		require.Empty(t, EncodeHeaders(nil, h))
	}
	got, err := DecodeHeaders(nil)
	require.NoError(t, err)
	require.Nil(t, got)
}

// Appending to one header of the result must not write into another.
func TestDecodeHeadersValuesApart(t *testing.T) {
	h, err := DecodeHeaders(EncodeHeaders(nil, header{"a": {"1", "2"}, "b": {"3"}}))
	require.NoError(t, err)
	h["a"] = append(h["a"], "new")
	require.Equal(t, []string{"3"}, h["b"])
}

func TestDecodeHeadersRefused(t *testing.T) {
	for name, in := range map[string]string{
		"empty name":             "0001" + "61",
		"later version":          "00",
		"name cut off":           "0561",
		"no value":               "0161",
		"value cut off":          "0161" + "0562",
		"value length cut off":   "0161" + "80",
		"name length cut off":    "80",
		"length not shortest":    "8100" + "61" + "00",
		"zero not shortest":      "0161" + "8000",
		"length of 11 bytes":     "ffffffffffffffffffff01",
		"length above 64 bits":   "0161" + "ffffffffffffffffff02",
		"largest length":         "0161" + "ffffffffffffffffff01",
		"names out of order":     "0162" + "00" + "0161" + "00",
		"second record cut off":  "0161" + "00" + "0162",
		"name is prefix, behind": "026161" + "00" + "0161" + "00",
	} {
		b, err := hex.DecodeString(in)
		require.NoError(t, err)
		h, err := DecodeHeaders(b)
		require.ErrorIs(t, err, ErrBadHeaders, name)
		require.Nil(t, h)
	}
}

func FuzzDecodeHeaders(f *testing.F) {
	f.Add(EncodeHeaders(nil, header{"tenant": {"acme"}, "a": {"", "2"}}), "k", "v1", "v2")
	f.Add([]byte{1, 'a', 0x80, 0}, "Fila-X", "", "")
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, "", "", "")
	f.Fuzz(func(t *testing.T, b []byte, k, v1, v2 string) {
		in := bytes.Clone(b)
		h, err := DecodeHeaders(b)
		require.Equal(t, in, b)
		if err == nil {
			reserved := false
			for name := range h {
				reserved = reserved || Reserved(name)
			}
			if !reserved {
				require.Equal(t, string(b), string(EncodeHeaders(nil, h)), "one encoding only")
			}
		} else {
			require.ErrorIs(t, err, ErrBadHeaders)
		}
		used, usedErr := DecodeHeadersInto(header{"tenant": {"of another"}, "other": {"x"}}, b)
		require.Equal(t, err, usedErr)
		require.Equal(t, len(h), len(used))
		for name := range h {
			require.Equal(t, h[name], used[name])
		}
		want := header{k: {v1, v2}}
		got, err := DecodeHeaders(EncodeHeaders(nil, want))
		require.NoError(t, err)
		if k == "" || Reserved(k) {
			require.Empty(t, got)
		} else {
			require.Equal(t, want, got)
		}
	})
}
