package drr

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestNothingIsAllocatedInSteadyState(t *testing.T) {
	cases := map[string]func(s *Scheduler, i int){
		"standing backlog": func(s *Scheduler, i int) {
			it, _ := s.Next()
			s.Push(it.Flow, one, 0, one)
		},
		"flows come and go": func(s *Scheduler, i int) {
			s.Push(Flow(1000+i%5000), one, 0, one)
			s.Next()
		},
		"dear items": func(s *Scheduler, i int) {
			it, _ := s.Next()
			s.Push(it.Flow, one, 0, int64(1+i%100)*100*one)
		},
		"returned": func(s *Scheduler, i int) {
			it, _ := s.Next()
			s.Return(it.Flow, one, it.Value, it.Cost)
		},
		"removed": func(s *Scheduler, i int) { s.Remove(s.Push(Flow(i%2000), one, 0, one)) },
		"held back": func(s *Scheduler, i int) {
			it, h, _ := s.Peek()
			s.Remove(h)
			s.EndTurn()
			s.PushFront(it.Flow, one, it.Value, it.Cost)
		},
		"weights": func(s *Scheduler, i int) { s.SetWeight(Flow(i%1000), int64(1+i%7)*one/3) },
	}
	for name, op := range cases {
		t.Run(name, func(t *testing.T) {
			s := New(1)
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
	require.Equal(t, uintptr(24), unsafe.Sizeof(item{}))
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

func TestMemoryPerFlowAndItemAndWhatRemains(t *testing.T) {
	const flows, each = 100_000, 10
	base := heapInUse()
	s := New(1)
	for f := range Flow(flows) {
		s.Push(f, one, 0, one)
	}
	first := heapInUse()
	for f := range Flow(flows) {
		fill(s, f, one, one, each)
	}
	second := heapInUse()
	perItem := float64(second-first) / (flows * each)
	perFlow := float64(first-base)/flows - perItem
	t.Logf("%.1f B/flow, %.1f B/item", perFlow, perItem)
	require.Less(t, perFlow, 70.0)
	require.Less(t, perItem, 26.0)

	for s.Len() > 0 {
		s.Next()
	}
	checkInvariants(t, s)
	require.LessOrEqual(t, len(s.items.spares), spareItemChunks)
	require.LessOrEqual(t, len(s.flows.spares), spareFlowChunks)
	remains := heapInUse() - base
	t.Logf("%d KB remain of %d KB", remains>>10, (second-base)>>10)
	require.Less(t, remains, (second-base)/20)

	for f := range Flow(flows) {
		s.Push(f, one, uint64(f), one)
	}
	checkInvariants(t, s)
	for f := range Flow(flows) {
		require.Equal(t, uint64(f), take(t, s).Value)
	}
	runtime.KeepAlive(s)
}

// A chunk of items that is pinned by one of them leaves the others usable.
func TestScatteredItemsAreUsedAgain(t *testing.T) {
	s := New(1)
	var pinned []Handle
	for i := range 100 * itemChunkSize {
		h := s.Push(0, one, uint64(i), one)
		if i%itemChunkSize == 7 {
			pinned = append(pinned, h)
		}
	}
	for it, i := s.flows.at(0).items.head, 0; it != 0; i++ {
		next := s.items.at(it).next
		if i%itemChunkSize != 7 {
			require.Equal(t, uint64(i), s.Remove(Handle(it)))
		}
		it = next
	}
	require.Equal(t, len(pinned), s.Len())
	fill(s, 1, one, one, 90*itemChunkSize)
	require.LessOrEqual(t, len(s.items.chunks), 102)
	for i, h := range pinned {
		require.Equal(t, uint64(i*itemChunkSize+7), s.Remove(h))
	}
	checkInvariants(t, s)
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
