package container

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// checkLinks walks lists and holds the slab against them.
func checkLinks(t *testing.T, x *Lists, lists ...*List) {
	t.Helper()
	n := 1 // link 0 is none
	for _, l := range lists {
		prev, inList := uint32(0), int32(0)
		for id := l.head; id != 0; id = x.at(id).next {
			require.Equal(t, prev, x.at(id).prev)
			if prev != 0 {
				require.LessOrEqual(t, x.at(prev).stamp, x.at(id).stamp)
			}
			prev = id
			inList++
		}
		require.Equal(t, prev, l.tail)
		require.Equal(t, l.n, inList)
		n += int(inList)
	}
	used, room := 0, 0
	for c, st := range x.states {
		if x.chunks[c] != nil {
			used += int(st.used)
			if st.used < linkChunkSize {
				room++
			}
		}
	}
	require.Equal(t, n, used)
	require.EqualValues(t, n-1, x.Len())
	for c := x.room; c != 0; c = x.states[c-1].next {
		room--
	}
	require.Zero(t, room, "list of the chunks with room")
}

// drainLinks takes the first n of a list out and returns their sequences.
func drainLinks(x *Lists, l *List, n int) (seqs []uint64) {
	for range n {
		seqs = append(seqs, x.Seq(l.head))
		x.Remove(l, l.head)
	}
	return seqs
}

func TestLinksAreInOrderOfTheirStamps(t *testing.T) {
	x, l := Lists{}, List{}
	for seq, stamp := range []int64{10, 20, 20, -5, 15, 20, -5, 30, -9} {
		id := x.Insert(&l, uint64(seq), stamp)
		require.NotZero(t, id)
		require.Equal(t, uint64(seq), x.Seq(id))
		checkLinks(t, &x, &l)
	}
	x.Remove(&l, l.tail)
	checkLinks(t, &x, &l)
	require.Equal(t, []uint64{8, 3, 6, 0, 4, 1, 2, 5}, drainLinks(&x, &l, 8))
	require.Equal(t, List{}, l)
	checkLinks(t, &x, &l)
}

// Links that come back in order find their places at once, however many have come back before.
func TestLinksThatComeBackInOrderAreNotWalkedOver(t *testing.T) {
	x, l := Lists{}, List{}
	for seq := range uint64(100) {
		x.Insert(&l, seq, int64(seq))
	}
	for seq := range uint64(1000) {
		require.Equal(t, l.back, x.lastUpTo(&l, int64(seq)-1000))
		require.Equal(t, x.Insert(&l, 100+seq, int64(seq)-1000), l.back)
	}
	checkLinks(t, &x, &l)
	for range 500 { // half of them are picked and come back
		x.Remove(&l, l.head)
	}
	for seq := range uint64(500) {
		x.Insert(&l, 100+seq, int64(seq)-1000)
		require.Equal(t, 100+seq, x.Seq(l.back))
	}
	checkLinks(t, &x, &l)
	x.Insert(&l, 1, -5000)
	require.Equal(t, l.head, l.back)
	require.EqualValues(t, 1, drainLinks(&x, &l, 1)[0])
	require.Zero(t, l.back)
	x.Insert(&l, 2000, -1)
	require.Equal(t, uint64(1099), x.Seq(x.at(l.back).prev))
	checkLinks(t, &x, &l)
}

func TestMemoryOfLinksAndWhatRemains(t *testing.T) {
	require.Equal(t, uintptr(24), unsafe.Sizeof(link{}))
	heapInUse := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const n = 1_000_000
	base := heapInUse()
	x, l := Lists{}, List{}
	for seq := range uint64(n) {
		x.Insert(&l, seq, int64(seq))
	}
	full := heapInUse() - base
	t.Logf("%.1f B/link", float64(full)/n)
	require.Less(t, float64(full)/n, 26.0)

	for l.n > 0 {
		x.Remove(&l, l.head)
	}
	checkLinks(t, &x, &l)
	require.LessOrEqual(t, len(x.spares), spareLinkChunks)
	remains := heapInUse() - base
	t.Logf("%d KB remain of %d KB", remains>>10, full>>10)
	require.Less(t, remains, full/20)
	runtime.KeepAlive(&x)
}

func TestLinksAllocateNothingInSteadyState(t *testing.T) {
	x := Lists{}
	lists := make([]List, 100)
	for seq := range uint64(3000) {
		x.Insert(&lists[seq%100], seq, int64(seq))
	}
	stamp := int64(3000)
	step := func() {
		for i := range 1000 {
			l := &lists[i%100]
			stamp++
			x.Insert(l, uint64(stamp), stamp)
			x.Remove(l, l.head)
		}
	}
	for range 100 {
		step()
	}
	require.Zero(t, testing.AllocsPerRun(100, step))
}

// A chunk of links that is pinned by one of them leaves the others usable.
func TestScatteredLinksAreUsedAgain(t *testing.T) {
	x, l, other := Lists{}, List{}, List{}
	for i := range 100 * linkChunkSize {
		x.Insert(&l, uint64(i), int64(i))
	}
	for i, id := 0, l.head; id != 0; i++ {
		next := x.at(id).next
		if i%linkChunkSize != 7 {
			x.Remove(&l, id)
		}
		id = next
	}
	require.EqualValues(t, 100, l.n)
	for i := range 90 * linkChunkSize {
		x.Insert(&other, uint64(i), int64(i))
	}
	require.LessOrEqual(t, len(x.chunks), 102)
	checkLinks(t, &x, &l, &other)
	for i, seq := range drainLinks(&x, &l, 100) {
		require.Equal(t, uint64(i*linkChunkSize+7), seq)
	}
	checkLinks(t, &x, &l, &other)
}

func TestRandomLinks(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	x := Lists{}
	lists := make([]*List, 5)
	for i := range lists {
		lists[i] = &List{}
	}
	var ids [5][]uint32
	for step := range 20_000 {
		i := rnd.IntN(5)
		if n := len(ids[i]); n > 0 && rnd.IntN(4000) < step/10+n {
			j := rnd.IntN(n)
			x.Remove(lists[i], ids[i][j])
			ids[i][j] = ids[i][n-1]
			ids[i] = ids[i][:n-1]
		} else {
			ids[i] = append(ids[i], x.Insert(lists[i], uint64(step), rnd.Int64N(1000)-500))
		}
		if step%1000 == 0 {
			checkLinks(t, &x, lists...)
		}
	}
	checkLinks(t, &x, lists...)
}
