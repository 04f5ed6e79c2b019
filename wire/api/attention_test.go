package api_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire/api"
)

// A backlog that shrinks too slowly has no forecast, however long it would take.
func TestDrainTime(t *testing.T) {
	for _, c := range []struct {
		before, now int64
		since, want time.Duration // want 0: none
	}{
		{80, 60, time.Minute, 3 * time.Minute},
		{80, 0, time.Minute, 0},
		{80, 80, time.Minute, 0},
		{60, 80, time.Minute, 0},
		{1441, 1440, time.Minute, 0},
		{1440, 1439, time.Minute, 1439 * time.Minute},
		{math.MaxInt64, math.MaxInt64 - 1, time.Minute, 0},
		{80, 60, 0, 0},
	} {
		rest, ok := api.DrainTime(c.before, c.now, c.since)
		require.Equal(t, c.want, rest, "%+v", c)
		require.Equal(t, c.want > 0 || c.now == 0, ok, "%+v", c)
	}
}
