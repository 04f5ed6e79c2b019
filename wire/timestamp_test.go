package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTimestamp(t *testing.T) {
	for at, want := range map[int64]string{
		0:                         "1970-01-01T00:00:00Z",
		1_700_000_000_000_000_001: "2023-11-14T22:13:20.000000001Z",
		-1:                        "1969-12-31T23:59:59.999999999Z",
	} {
		require.Equal(t, want, Timestamp(at))
		require.Equal(t, "at "+want, string(AppendTimestamp([]byte("at "), at)))
	}
}
