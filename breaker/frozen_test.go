package breaker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGiveUp(t *testing.T) {
	m := NewMachine(Config{Threshold: 1, Cooldown: time.Second, HalfOpenMaxCalls: 2})
	p, _ := m.Allow(0)
	m.Done(0, p, Failure)
	for range 2 {
		p, _ = m.Allow(int64(time.Second))
		require.NotZero(t, p)
	}
	n, _ := m.Admits(int64(time.Second))
	require.Zero(t, n)
	m.GiveUp(1)
	n, _ = m.Admits(int64(time.Second))
	require.EqualValues(t, 1, n)
	m.GiveUp(7)
	n, _ = m.Admits(int64(time.Second))
	require.EqualValues(t, 2, n, "never more than the limit")
}
