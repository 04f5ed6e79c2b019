package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/filaq/fila/sidecar/e2e/natstest"
	"github.com/filaq/fila/sidecar/fleet"
	"github.com/filaq/fila/sidecar/fleet/fleettest"
)

func TestMain(m *testing.M) {
	natstest.MoreParallel(8)
	goleak.VerifyTestMain(m)
}

// sums is a minimal Kind: its records are numbers to which instances add.
type sums struct {
	sync *fleet.Sync

	mu    sync.Mutex
	by    map[string]*sum
	older int // records that arrived after newer ones
}

type sum struct {
	Total int            `json:"total"`
	Seen  map[string]int `json:"seen"` // number of the last addition by each instance

	rev          uint64
	sent, number int
	open         int
	again        time.Duration
	away         bool
}

func (s *sums) get(key string) *sum {
	if s.by[key] == nil {
		s.by[key] = &sum{}
	}
	return s.by[key]
}

func (s *sums) add(key string, n int) {
	s.mu.Lock()
	s.get(key).open += n
	s.mu.Unlock()
	s.sync.Touch("s", key)
}

func (s *sums) total(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.get(key).Total
}

func (s *sums) Swap(key string) ([]byte, uint64, time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.get(key)
	if c.sent == 0 {
		if c.open == 0 || c.away {
			return nil, 0, c.again, false
		}
		c.sent, c.open = c.open, 0
		c.number++
	}
	next := sum{Total: c.Total + c.sent, Seen: maps.Clone(c.Seen)}
	if next.Seen == nil {
		next.Seen = make(map[string]int)
	}
	next.Seen[s.sync.Me()] = c.number
	data, _ := json.Marshal(next)
	return data, c.rev, c.again, true
}

func (s *sums) Learn(key string, e fleet.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch c := s.get(key); {
	case e.Rev > c.rev:
		s.take(c, e)
	case e.Rev < c.rev:
		s.older++
	}
}

func (s *sums) take(c *sum, e fleet.Entry) {
	c.Total, c.Seen = 0, nil
	if e.Value != nil {
		_ = json.Unmarshal(e.Value, c)
	}
	c.rev = e.Rev
	if c.Seen[s.sync.Me()] >= c.number {
		c.sent = 0
	}
}

func (s *sums) Join(entries map[string]fleet.Entry) {
	s.mu.Lock()
	for key := range entries {
		s.get(key)
	}
	var keys []string
	for key, c := range s.by {
		c.away = false
		s.take(c, entries[key])
		keys = append(keys, key)
	}
	s.mu.Unlock()
	for _, key := range keys {
		s.sync.Touch("s", key)
	}
}

func (s *sums) Away() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.by {
		c.away = true
	}
}

func (s *sums) Idle(_ string, value []byte) bool {
	return strings.HasPrefix(string(value), `{"total":0,`)
}

// node is an instance in a test.
type node struct {
	*fleet.Sync
	sums *sums
	end  *fleettest.End

	mu   sync.Mutex
	told []string
}

func (n *node) story() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	told := n.told
	n.told = nil
	return told
}

func newNode(b *fleettest.Bucket, name string, skew time.Duration) *node {
	n := &node{end: b.Of()}
	n.of(n.end, name, skew)
	return n
}

// of makes b the instance's way to the bucket.
func (n *node) of(b fleet.Bucket, name string, skew time.Duration) {
	n.Sync = fleet.New(fleet.Options{
		Log: slog.New(slog.DiscardHandler), Bucket: b, Instance: name,
		Now: func() int64 { return time.Now().Add(skew).UnixNano() },
		Degraded: func(why error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.told = append(n.told, fmt.Sprint(why))
		},
	})
	n.sums = &sums{sync: n.Sync, by: make(map[string]*sum)}
	n.Register("s", n.sums)
}

// lateBeats is a bucket that performs Set after a while, even if the caller has given up.
type lateBeats struct{ fleet.Bucket }

func (b lateBeats) Set(ctx context.Context, key string, value []byte) (uint64, error) {
	select {
	case <-ctx.Done():
		_, _ = b.Bucket.Set(ctx, key, value)
		return 0, ctx.Err()
	case <-time.After(10 * time.Millisecond):
		return b.Bucket.Set(ctx, key, value)
	}
}

// bubble runs a test with n instances in a bubble.
func bubble(t *testing.T, count int, fn func(t *testing.T, b *fleettest.Bucket, nodes []*node)) {
	synctest.Test(t, func(t *testing.T) {
		b := fleettest.New()
		var nodes []*node
		for i := range count {
			n := newNode(b, string(rune('a'+i)), time.Duration(i)*5*time.Second)
			require.NoError(t, n.Start(t.Context()))
			nodes = append(nodes, n)
		}
		fn(t, b, nodes)
		for _, n := range nodes {
			n.Stop()
		}
		synctest.Wait()
	})
}

// after lets time pass and waits for running goroutines.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Late entries of the watch, after newer own writes, do not set the cache back.
func TestWatchBehindOwnWrites(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *fleettest.Bucket, nodes []*node) {
		n := nodes[0]
		n.end.Hold(true)
		for range 3 {
			n.sums.add("x", 1)
			synctest.Wait()
		}
		n.end.Hold(false)
		synctest.Wait()
		require.Equal(t, 3, n.sums.total("x"))
		require.Zero(t, n.sums.older)
		require.Len(t, b.Entries(), 2)
	})
}

// An instance without any heartbeat counts as alive for a while, since the watch may be behind; then
// it is dead, so that its permits become free.
func TestStrangersAreAliveForAWhile(t *testing.T) {
	bubble(t, 1, func(t *testing.T, _ *fleettest.Bucket, nodes []*node) {
		require.True(t, nodes[0].Live("stranger/1"))
		after(5 * time.Second)
		require.True(t, nodes[0].Live("stranger/1"))
		after(10 * time.Second)
		require.False(t, nodes[0].Live("stranger/1"))
	})
}

func TestAllIsCountedOnce(t *testing.T) {
	bubble(t, 4, func(t *testing.T, b *fleettest.Bucket, nodes []*node) {
		b.Stall(true) // so that the first swaps are under way
		for range 50 {
			for _, n := range nodes {
				for key := range 3 {
					n.sums.add(fmt.Sprint("key ", key), 1)
				}
			}
		}
		synctest.Wait()
		b.Stall(false)
		synctest.Wait()
		for _, n := range nodes {
			for key := range 3 {
				require.Equal(t, 200, n.sums.total(fmt.Sprint("key ", key)))
			}
			require.Nil(t, n.Away())
			require.Equal(t, []string{"<nil>"}, n.story())
		}
		written := int64(0) // how many are refused depends on the order of goroutines
		for _, n := range nodes {
			written += n.Stats().Written
		}
		require.Less(t, written, int64(100), "what comes while a swap is under way is merged")
		require.Len(t, nodes[0].Peers(), 4)
	})
}

// The clocks of the hosts differ by 5 s each, the server's by an hour.
func TestOneClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fleettest.New()
		b.Skew = time.Hour
		for i := range 3 {
			n := newNode(b, "a", time.Duration(i)*5*time.Second)
			require.NoError(t, n.Start(t.Context()))
			require.Equal(t, time.Now().Add(time.Hour).UnixNano(), n.Now())
			after(time.Minute)
			require.Equal(t, time.Now().Add(time.Hour).UnixNano(), n.Now())
			n.Stop()
		}
	})
}

// TestClockIsOffByNoMoreThanItSays for any round trips, and a slow one does not make it worse.
func TestClockIsOffByNoMoreThanItSays(t *testing.T) {
	for begin := time.Duration(0); begin < 6*time.Second; begin += 100 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			b := fleettest.New()
			b.Skew = time.Hour
			skew := 5 * time.Second
			n := newNode(b, "a", skew)
			check := func(most time.Duration) {
				t.Helper()
				now, off := n.Read(time.Now().Add(skew).UnixNano())
				require.InDelta(t, time.Now().Add(b.Skew).UnixNano(), now, float64(off), "stalled after %s", begin)
				require.LessOrEqual(t, off, int64(most), "stalled after %s", begin)
			}
			check(24 * time.Hour)
			go func() {
				time.Sleep(begin)
				b.Stall(true)
				time.Sleep(1800 * time.Millisecond)
				b.Stall(false)
			}()
			require.NoError(t, n.Start(t.Context()))
			for range 100 {
				after(100 * time.Millisecond)
				check(20 * time.Millisecond)
			}
			// The server's clock is set.
			b.SetClock(-3 * time.Second)
			after(3 * time.Second)
			check(20 * time.Millisecond)
			n.Stop()
		})
	}
}

// hiddenBeat is a bucket whose first heartbeat is followed by an earlier one that was given up and
// arrives a second later: the watch brings only that.
type hiddenBeat struct {
	*fleettest.End
	done bool
}

func (b *hiddenBeat) Set(ctx context.Context, key string, value []byte) (uint64, error) {
	if b.done {
		return b.End.Set(ctx, key, value)
	}
	b.done = true
	b.Hold(true)
	go func() {
		time.Sleep(time.Second)
		_, _ = b.End.Set(ctx, key, value)
		b.Merge()
		b.Hold(false)
	}()
	return b.End.Set(ctx, key, value)
}

// TestEchoOfAnotherBeatTellsNoTime: the echo of another heartbeat is not used for the clock.
func TestEchoOfAnotherBeatTellsNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{end: fleettest.New().Of()}
		n.of(&hiddenBeat{End: n.end}, "a", 0)
		require.NoError(t, n.Start(t.Context()))
		require.NoError(t, n.Away())
		require.Equal(t, time.Now().UnixNano(), n.Now())
		n.Stop()
	})
}

func TestWhoIsAlive(t *testing.T) {
	bubble(t, 3, func(t *testing.T, _ *fleettest.Bucket, nodes []*node) {
		a, b, c := nodes[0], nodes[1], nodes[2]
		require.NotEqual(t, a.Me(), b.Me())
		require.Equal(t, "b", fleet.NameOf(b.Me()))
		after(time.Minute)
		require.True(t, a.Live(b.Me()))
		require.True(t, a.Live(a.Me()))
		// A clean stop is announced at once, whether it first ends the watch, a heartbeat or the
		// session.
		b.Stop()
		c.end.Cut(true)
		synctest.Wait()
		require.False(t, a.Live(b.Me()))
		require.True(t, a.Live(c.Me()))
		after(13 * time.Second)
		require.False(t, a.Live(c.Me()))
		require.Equal(t, []string{a.Me()}, a.Peers())
		// It comes back.
		c.end.Cut(false)
		after(5 * time.Second)
		require.True(t, a.Live(c.Me()))
		// A stalled watch kills nobody.
		a.end.Hold(true)
		after(7 * time.Second)
		require.True(t, a.Live(c.Me()))
		a.end.Hold(false)
	})
}

// A clean stop is announced at once, whether it first ends the watch, a
// heartbeat or the session.
func TestStopIsTold(t *testing.T) {
	bubble(t, 1, func(t *testing.T, b *fleettest.Bucket, nodes []*node) {
		for i := range 90 {
			n := &node{}
			n.of(lateBeats{b.Of()}, "b", 0)
			require.NoError(t, n.Start(t.Context()))
			after(2*time.Second + time.Duration(i%3)*5*time.Millisecond) // before, during and after its second heartbeat
			require.True(t, nodes[0].Live(n.Me()))
			n.Stop()
			synctest.Wait()
			require.False(t, nodes[0].Live(n.Me()), "at stop %d", i)
		}
	})
}

func TestAwayAndBack(t *testing.T) {
	bubble(t, 2, func(t *testing.T, _ *fleettest.Bucket, nodes []*node) {
		a, b := nodes[0], nodes[1]
		a.sums.add("k", 1)
		synctest.Wait()
		a.story()
		a.end.Cut(true)
		after(3 * time.Second)
		require.Error(t, a.Away())
		require.NotEmpty(t, a.story())
		a.sums.add("k", 2)
		b.sums.add("k", 4)
		after(time.Minute)
		require.Equal(t, 5, b.sums.total("k"))
		require.Equal(t, 1, a.sums.total("k"))
		a.story()
		a.end.Cut(false)
		after(3 * time.Second)
		require.Equal(t, []string{"<nil>"}, a.story())
		require.Equal(t, 7, a.sums.total("k"))
		require.Equal(t, 7, b.sums.total("k"))
	})
}

// A write whose answer was lost counts once.
func TestLostAnswer(t *testing.T) {
	bubble(t, 2, func(t *testing.T, _ *fleettest.Bucket, nodes []*node) {
		a, b := nodes[0], nodes[1]
		a.end.Mute(true)
		a.sums.add("k", 1)
		synctest.Wait()
		require.Equal(t, 1, b.sums.total("k"))
		b.sums.add("k", 10)
		after(time.Second)
		a.end.Mute(false)
		after(5 * time.Second)
		require.Equal(t, 11, a.sums.total("k"))
		require.Equal(t, 11, b.sums.total("k"))
		require.Positive(t, a.Stats().Failed)
	})
}

// A watch that brings nothing is detected even if everything else works.
func TestStandstill(t *testing.T) {
	bubble(t, 2, func(t *testing.T, _ *fleettest.Bucket, nodes []*node) {
		a, b := nodes[0], nodes[1]
		a.story()
		a.end.Hold(true)
		b.sums.add("k", 1)
		synctest.Wait()
		a.sums.add("k", 2)
		synctest.Wait()
		require.EqualValues(t, 1, a.Stats().Refused)
		after(20 * time.Second)
		story := a.story()
		require.Len(t, story, 2)
		require.Contains(t, story[0], "has brought nothing for")
		require.Equal(t, 3, b.sums.total("k"))
		require.Equal(t, 3, a.sums.total("k"))
	})
}

// A bucket that has lost its newest records gives their revisions out again. The watch does not bring
// these, and nobody must miss them.
func TestBucketGoesBack(t *testing.T) {
	bubble(t, 2, func(t *testing.T, b *fleettest.Bucket, nodes []*node) {
		nodes[0].sums.add("k", 1)
		synctest.Wait()
		goBack := b.Save()
		for range 5 {
			nodes[0].sums.add("lost", 1)
			synctest.Wait()
		}
		goBack()
		nodes[0].story()
		nodes[1].sums.add("k", 2)
		after(20 * time.Second) // until the bucket has more revisions again than before
		require.Equal(t, []string{"beat: the bucket has lost records: it gives revisions out again", "<nil>"}, nodes[0].story())
		for _, n := range nodes {
			require.Equal(t, 3, n.sums.total("k"))
			require.Zero(t, n.sums.total("lost"))
		}
	})
}

// A bucket that was made again has other revisions.
func TestBucketMadeAnew(t *testing.T) {
	bubble(t, 2, func(t *testing.T, b *fleettest.Bucket, nodes []*node) {
		for range 9 {
			nodes[0].sums.add("k", 1)
			synctest.Wait()
		}
		b.Clear()
		after(20 * time.Second)
		require.Zero(t, nodes[1].sums.total("k"))
		nodes[1].sums.add("k", 3)
		synctest.Wait()
		require.Equal(t, 3, nodes[0].sums.total("k"))
	})
}

func TestSweep(t *testing.T) {
	bubble(t, 2, func(t *testing.T, b *fleettest.Bucket, nodes []*node) {
		nodes[0].sums.add("idle", 1)
		nodes[0].sums.add("used", 1)
		synctest.Wait()
		nodes[0].sums.add("idle", -1)
		dead := newNode(b, "dead", 0)
		require.NoError(t, dead.Start(t.Context()))
		dead.end.Cut(true)
		dead.Stop()
		after(time.Minute)
		require.Len(t, b.Entries(), 5)
		after(72 * time.Hour)
		entries := b.Entries()
		require.Len(t, entries, 3, "%v", entries)
		// Its marker has been purged, unknown to the instances.
		nodes[1].sums.add("idle", 5)
		synctest.Wait()
		require.Equal(t, 5, nodes[0].sums.total("idle"))
		require.Nil(t, nodes[1].Away())
	})
}

// A deletion marker is known until the bucket has purged it, so writes over the known revision are
// not refused before or after that.
func TestMarksAreForgotten(t *testing.T) {
	bubble(t, 1, func(t *testing.T, _ *fleettest.Bucket, nodes []*node) {
		n := nodes[0]
		n.story()
		for _, days := range []int{2, 7} {
			n.sums.add("idle", 1)
			synctest.Wait()
			n.sums.add("idle", -1)
			after(time.Duration(days) * 24 * time.Hour)
			e, known := n.Find("s", "idle")
			require.Nil(t, e.Value)
			require.Equal(t, days == 2, known)
			n.sums.mu.Lock()
			n.sums.by["idle"] = &sum{rev: e.Rev, number: n.sums.by["idle"].number} // as at the first use of the key
			n.sums.mu.Unlock()
			n.sums.add("idle", 5)
			after(time.Minute)
			require.Equal(t, 5, n.sums.total("idle"))
			n.sums.add("idle", -5)
			synctest.Wait()
		}
		require.Empty(t, n.story(), "no session has ended")
		require.Zero(t, n.Stats().Refused)
	})
}

// Swap is called again after the time that it asked for.
func TestAskedAgain(t *testing.T) {
	bubble(t, 1, func(t *testing.T, _ *fleettest.Bucket, nodes []*node) {
		s := nodes[0].sums
		s.get("k").again = time.Second
		nodes[0].Touch("s", "k")
		synctest.Wait()
		s.mu.Lock()
		s.get("k").open = 3 // without a touch
		s.get("k").again = 0
		s.mu.Unlock()
		after(time.Second)
		require.Equal(t, 3, s.total("k"))
	})
}

func TestStartWithoutBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fleettest.New()
		n := newNode(b, "a", 0)
		n.end.Cut(true)
		require.NoError(t, n.Start(t.Context()), "it may come")
		require.ErrorIs(t, n.Away(), fleettest.ErrGone)
		_, ok := n.Find("s", "k")
		require.False(t, ok)
		n.end.Cut(false)
		after(time.Minute)
		require.NoError(t, n.Away())
		n.Stop()

		n = newNode(b, "a", 0)
		n.end.Cut(true)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := n.Start(ctx); err != nil { // either may fail first
			require.ErrorIs(t, err, context.Canceled)
		}
		n.Stop()
	})
}
