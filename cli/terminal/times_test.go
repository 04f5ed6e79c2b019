package terminal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1500 * time.Microsecond: "1ms", 900 * time.Millisecond: "900ms", 1540 * time.Millisecond: "1.5s", 59*time.Second + 999*time.Millisecond: "1m",
		time.Minute: "1m", 90*time.Second + 1: "1m30s", time.Hour: "1h", 10*time.Minute - 20*time.Millisecond: "10m", 90*time.Minute + 29*time.Second: "1h30m", 47 * time.Hour: "47h",
		time.Hour - 1:  "1h",
		49 * time.Hour: "2d1h",
	} {
		require.Equal(t, want, Span(d))
	}
	a := Clock(func() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) })
	require.Equal(t, "2026-01-02T12:00:00Z (now)", a.When("2026-01-02T12:00:00.0001Z"))
	require.Equal(t, "2026-01-02T11:59:58Z (2s ago)", a.When("2026-01-02T13:59:58+02:00"))
	require.Equal(t, "-", a.When(""))
	require.Equal(t, "soon", a.When("soon"))
	require.Equal(t, "in 1h", a.Soon("2026-01-02T13:00:00Z"))
}
