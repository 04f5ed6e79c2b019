package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

var rates = []string{
	"10", "0.5", ".5", "1/3", "2/4", "007", "10.000000000", "1000000000", "1/31536000", "0.1234567", "0.25", "999999999.5",
	"1000000000/1", "2000000000/2", "1000000000000000/1000000", "1000000000000001/1000001", "31536000/31536000",
	"", "0", "0.0", "-1", "+1", "1e3", "1.", ".", "/", "1/", "/3", "0/3", "1/0", "1/2/3", "1.5/2", "1 ", " 1", "1_0", "0x1", "ten", "NaN",
	"1000000001", "1000000000.1", "1000000000.000000001", "1/31536001", "0.1234567891", "0.123456789", "0.000000001",
	"99999999999999999999", "1/99999999999999999999", "9223372036854775807", "9223372036854775807/9223372036854775806", "9223372036854775808",
	"3000000000/2", "1999999999/2", "2000000001/2",
}

// wire and throttle accept the same rates. Neither package may import the other, so the
// grammar exists twice.
func TestRateGrammarsAgree(t *testing.T) {
	for _, s := range rates {
		sameRate(t, s)
	}
}

func FuzzRateGrammarsAgree(f *testing.F) {
	for _, s := range rates {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { sameRate(t, s) })
}

func sameRate(t *testing.T, s string) {
	t.Helper()
	_, err := throttle.ParseRate(s)
	require.Equal(t, err == nil, wire.Rate(s).Check() == nil, "%q", s)
}
