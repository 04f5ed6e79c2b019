package shard

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMailboxLosesNothing: there are many posters, a taker that sleeps on wake, and a close at
// the end. Everything arrives once, in the order of each poster.
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
	for last := false; !last; {
		<-m.wake
		m.mu.Lock()
		last = m.mu.closed
		m.mu.Unlock()
		buf = m.take(buf)
		for _, v := range buf {
			require.Equal(t, next[v[0]], v[1], "order of poster %d", v[0])
			next[v[0]]++
		}
		buf = recycle(buf)
	}
	for p, n := range next {
		require.Equal(t, each, n, "poster %d", p)
	}
	require.False(t, m.post([2]int{}), "a closed mailbox takes nothing")
	require.Empty(t, m.take(nil))
}

// TestRelayLosesNothing: there are many posters, and a goroutine that is started whenever there
// is something to take. Everything arrives once, in the order of each poster, and only one
// goroutine runs at a time.
func TestRelayLosesNothing(t *testing.T) {
	const posters, each = 8, 5000
	var (
		r     relay[[2]int]
		ended sync.WaitGroup
		next  [posters]int
	)
	take := func() {
		for work := r.take(nil); len(work) > 0; work = r.take(recycle(work)) {
			for _, v := range work {
				if next[v[0]] != v[1] {
					panic("out of order")
				}
				next[v[0]]++
			}
		}
	}
	for p := range posters {
		ended.Go(func() {
			for i := range each {
				if r.post([][2]int{{p, i}}) {
					ended.Go(take)
				}
			}
		})
	}
	ended.Wait()
	for p, n := range next {
		require.Equal(t, each, n, "poster %d", p)
	}
	require.True(t, r.empty())
	require.False(t, r.post(nil), "nothing needs no goroutine")
}

func TestRecycleKeepsNothingAlive(t *testing.T) {
	v := new(int)
	buf := recycle([]*int{v})
	require.Empty(t, buf)
	require.Nil(t, buf[:1][0])
	require.Nil(t, recycle(make([]*int, 10_000)), "the buffer of a burst is let go")
}
