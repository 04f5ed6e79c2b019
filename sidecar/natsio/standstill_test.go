package natsio

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAStandstill: requests handled after a standstill may be as old, until they are known to be new.
func TestAStandstill(t *testing.T) {
	var s standstill
	now := time.Unix(1e9, 0).UnixNano()
	ask := func(ago time.Duration, want bool) {
		t.Helper()
		sent, sure := s.since(now)
		require.Equal(t, want, sure)
		require.Equal(t, ago, time.Duration(now-sent))
	}
	ask(0, true) // nothing watches
	require.False(t, s.beat(now))
	now += int64(beatEvery)
	ask(0, true)
	require.False(t, s.beat(now))
	now += int64(3 * time.Second)
	ask(3*time.Second, false) // before beat has noticed
	require.True(t, s.beat(now))
	now += int64(beatEvery)
	ask(3*time.Second+beatEvery, false)
	require.False(t, s.beat(now))
	now += int64(2 * time.Second) // a second one before the first is over
	require.True(t, s.beat(now))
	ask(5*time.Second+beatEvery, false)
	s.unsure.Store(0)
	ask(0, true)
	now -= int64(time.Hour) // the clock was set back
	require.False(t, s.beat(now))
	ask(0, true)
}
