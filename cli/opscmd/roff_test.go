package opscmd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRoff(t *testing.T) {
	for in, want := range map[string]string{
		"a-b": `a\-b`, `\n`: `\en`, ".x": `\&.x`, "'x'": `\(aqx\(aq`, "a.b": "a.b",
	} {
		require.Equal(t, want, roff(in))
	}
}
