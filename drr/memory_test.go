package drr

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestNothingIsAllocatedInSteadyState(t *testing.T) {
	cases := map[string]func(s *items, i int){
		"standing backlog": func(s *items, i int) {
			it, _ := s.Next()
			s.Push(it.Flow, one, 0, one)
		},
		"flows come and go": func(s *items, i int) {
			s.Push(Flow(1000+i%5000), one, 0, one)
			s.Next()
		},
		"dear items": func(s *items, i int) {
			it, _ := s.Next()
			s.Push(it.Flow, one, 0, int64(1+i%100)*100*one)
		},
		"returned": func(s *items, i int) {
			it, _ := s.Next()
			s.Return(it.Flow, one, it.Value, it.Cost)
		},
		"removed": func(s *items, i int) { s.Remove(s.Push(Flow(i%2000), one, 0, one)) },
		"held back": func(s *items, i int) {
			it, h, _ := s.Peek()
			s.Remove(h)
			s.EndTurn()
			s.PushFront(it.Flow, one, it.Value, it.Cost)
		},
		"weights": func(s *items, i int) { s.SetWeight(Flow(i%1000), int64(1+i%7)*one/3) },
	}
	for name, op := range cases {
		t.Run(name, func(t *testing.T) {
			s := newItems(1)
			for f := range Flow(1000) {
				fill(s, f, one, one, 3)
			}
			i := 0
			step := func() {
				for range 1000 {
					op(s, i)
					i++
				}
			}
			for range 100 {
				step()
			}
			require.Zero(t, testing.AllocsPerRun(100, step))
		})
	}
}

func TestRecordsAreSmall(t *testing.T) {
	require.Equal(t, uintptr(64), unsafe.Sizeof(flow{}), "a flow is one cache line")
	require.Equal(t, uintptr(72), unsafe.Sizeof(Line{}))
	require.Equal(t, uintptr(48), unsafe.Sizeof(lineFlow{}))
	require.Equal(t, uintptr(20), unsafe.Sizeof(lineLane{}))
}

func TestLineAllocatesNothingInSteadyState(t *testing.T) {
	for _, flows := range []int{1, 12, 1000} {
		var l Line
		for f := range Flow(flows) {
			l.Add(f, one, uint32(2*f), one)
			l.Add(f, one, uint32(2*f+1), one)
		}
		step := func() {
			lane, f, _ := l.Peek()
			l.Take(one, true)
			l.SetCost(lane, 2*one)
			l.PutBack(f, one, lane, one)
			l.SetWeight(f, 2*one)
			lane, f, _ = l.Peek()
			l.Take(0, false)
			l.Add(f, one, lane, one)
		}
		for range 1000 {
			step()
		}
		require.Zero(t, testing.AllocsPerRun(1000, step), "%d flows", flows)
	}
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestMemoryPerFlow(t *testing.T) {
	const flows = 100_000
	base := heapInUse()
	s := New(1)
	for f := range Flow(flows) {
		s.Join(f, one, one)
	}
	full := heapInUse() - base
	t.Logf("%.1f B/flow", float64(full)/flows)
	require.Less(t, float64(full)/flows, 66.0)

	for s.Active() > 0 {
		s.Peek()
		s.Take(0)
	}
	checkInvariants(t, s)
	require.LessOrEqual(t, len(s.flows.spares), spareFlowChunks)
	remains := heapInUse() - base
	t.Logf("%d KB remain of %d KB", remains>>10, full>>10)
	require.Less(t, remains, full/20)

	for f := range Flow(flows) {
		s.Join(f, one, one)
	}
	for f := range Flow(flows) {
		got, ok := s.Peek()
		require.True(t, ok)
		require.Equal(t, f, got)
		s.Take(0)
	}
	runtime.KeepAlive(s)
}

func TestMemoryOfLines(t *testing.T) {
	const n = 100_000
	lines := make([]Line, n)
	base := heapInUse()
	for i := range lines {
		lines[i].Add(Flow(i), one, uint32(i), one)
	}
	single := float64(heapInUse()-base) / n
	runtime.KeepAlive(lines)

	base = heapInUse()
	var l Line
	for i := range uint32(n) {
		l.Add(Flow(i), one, i, one)
	}
	long := float64(heapInUse()-base) / n
	base = heapInUse()
	for i := range uint32(n) {
		l.Add(Flow(0), one, n+i, one)
	}
	further := float64(heapInUse()-base) / n
	t.Logf("%.1f B for a line of one flow without the %d of Line itself, %.1f B/flow of a long line, %.1f B for a further lane",
		single, unsafe.Sizeof(Line{}), long, further)
	require.Less(t, single, 49.0)
	require.Less(t, long, 140.0)
	require.Less(t, further, 90.0)

	full := heapInUse()
	for l.Len() > 100 {
		l.Take(0, false)
	}
	checkLine(t, &l)
	require.Greater(t, full-heapInUse(), int64(0.9*n*(long+further)), "memory is given back")
	runtime.KeepAlive(&l)
}
