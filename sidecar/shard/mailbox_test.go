package shard

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMailboxLosesNothing: many posters, one taker that sleeps on wake, and a
// close in the end. Everything arrives once, each poster's in order.
func TestMailboxLosesNothing(t *testing.T) {
	const posters, each = 8, 5000
	m := newMailbox[[2]int]()
	var posting sync.WaitGroup
	for p := range posters {
		posting.Go(func() {
			for i := range each {
				if !m.post([2]int{p, i}) {
					panic("refused before the close")
				}
			}
		})
	}
	go func() { posting.Wait(); m.close() }()
	var next [posters]int
	var buf [][2]int
	for range m.wake {
		buf = m.take(buf)
		for _, v := range buf {
			require.Equal(t, next[v[0]], v[1], "order of poster %d", v[0])
			next[v[0]]++
		}
		buf = recycle(buf)
		if m.ended() {
			break
		}
	}
	for p, n := range next {
		require.Equal(t, each, n, "poster %d", p)
	}
	require.False(t, m.post([2]int{}), "a closed mailbox takes nothing")
	require.Empty(t, m.take(nil))
}

func TestMailboxClosedKeepsWhatCame(t *testing.T) {
	m := newMailbox[int]()
	require.True(t, m.post(1))
	m.close()
	require.False(t, m.ended())
	require.Equal(t, []int{1}, m.take(nil))
	require.True(t, m.ended())
}

func TestRecycleKeepsNothingAlive(t *testing.T) {
	v := new(int)
	buf := recycle([]*int{v})
	require.Empty(t, buf)
	require.Nil(t, buf[:1][0])
	require.Nil(t, recycle(make([]*int, 10_000)), "the buffer of a burst is let go")
}
