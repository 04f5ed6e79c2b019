package shard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPiecesOfJobs: pieces are as large as the machine and the disk are soon done with.
func TestPiecesOfJobs(t *testing.T) {
	const ms = time.Millisecond
	disk := func(sync, each time.Duration) func(n int) time.Duration {
		return func(n int) time.Duration { return sync + time.Duration(n)*each }
	}
	steady := func(took time.Duration, wrote func(n int) time.Duration) int {
		w := worker{size: jobPieceFirst}
		for i := range 50 {
			w.adapt(took, wrote(w.size))
			if i < jobFirst-1 && took < jobTurn {
				require.Equal(t, jobPieceFirst, w.size, "the first ones say what the disk is like")
			}
		}
		return w.size
	}
	require.Equal(t, jobPieceMost, steady(ms, disk(ms, 2*time.Microsecond)), "a quick disk")
	require.Equal(t, 2*jobPieceMost, steady(ms, disk(8*ms, 0)), "one that syncs slowly")
	require.Equal(t, jobPieceMost*jobGrowth, steady(ms, disk(50*ms, 2*time.Microsecond)), "one that does so very slowly")
	require.Equal(t, 1, steady(11*ms, disk(ms, 2*time.Microsecond)), "a machine that is slow")

	w := worker{size: jobPieceFirst}
	for range 10 {
		w.adapt(ms, 2*ms)
	}
	for range 10 {
		w.adapt(ms, time.Second)
	}
	require.Equal(t, jobPieceFirst, w.size, "somebody else has the disk")
	for range 10 {
		w.adapt(11*ms, ms)
	}
	require.Equal(t, 1, w.size)
	for range 10 {
		w.adapt(ms, time.Second)
	}
	require.Equal(t, 1, w.size)
	w.adapt(ms, ms)
	require.Equal(t, 2, w.size)
}
