package circuit

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/fleet"
	"github.com/filaq/fila/sidecar/fleet/fleettest"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// fila shares the circuits whose keys do not begin with "own:".
type fila struct {
	*rig
	end  *fleettest.End
	sync *fleet.Sync
	skew time.Duration

	resumedMu sync.Mutex
	resumed   []string

	conflictMu sync.Mutex
	conflicts  []Conflict
}

// setAt sets when the limits of a fila were set, by its clock.
func (f *fila) setAt(threshold int, at int64) {
	s := Settings{Breaker: breaker.Config{Threshold: threshold, Cooldown: time.Minute, HalfOpenMaxCalls: 3}}
	f.reg.Configure(s, nil, func(string) int64 { return at })
}

func (f *fila) told() []Conflict {
	f.conflictMu.Lock()
	defer f.conflictMu.Unlock()
	return f.conflicts
}

// newFila starts a fila whose clock is off.
func newFila(t *testing.T, b *fleettest.Bucket, name string, skew time.Duration) *fila {
	f := &fila{rig: newRig(t), end: b.Of(), skew: skew}
	f.disk.auto = true
	f.begin(t, name)
	return f
}

// begin starts the process of a fila, after it has done something, like pauses that a
// restart repeats.
func (f *fila) begin(t *testing.T, name string, first ...func()) {
	f.sync = fleet.New(fleet.Options{
		Log: slog.New(slog.DiscardHandler), Bucket: f.end, Instance: name, Now: f.clock, Degraded: func(error) {},
	})
	f.reg = New(Options{
		Log: slog.New(slog.DiscardHandler), Now: f.clock, Submit: f.disk.Submit,
		Event: func(typ, key string, e wire.Event) { f.event(typ, key, e) },
		Fleet: f.sync, Shares: func(key string) bool { return !strings.HasPrefix(key, "own:") },
		Kin: f.sync.Kin, Conflict: func(c Conflict) {
			f.conflictMu.Lock()
			defer f.conflictMu.Unlock()
			f.conflicts = append(f.conflicts, c)
		},
	})
	f.reg.OnResumed(func(key string) {
		f.resumedMu.Lock()
		defer f.resumedMu.Unlock()
		f.resumed = append(f.resumed, key)
	})
	f.reg.Configure(Settings{Breaker: breaker.Config{Threshold: 5, Cooldown: time.Minute, HalfOpenMaxCalls: 3}}, nil, nil)
	f.reg.Restore(f.disk.stored())
	for _, do := range first {
		do()
	}
	require.NoError(t, f.sync.Start(t.Context()))
}

func (f *fila) clock() int64 { return time.Now().Add(f.skew).UnixNano() }

func (f *fila) use(key string) *Circuit { return f.reg.Use(key, f.clock()).(*Circuit) }

// call lets a message through and end with an outcome. It reports whether one could go.
func (f *fila) call(c *Circuit, o breaker.Outcome) bool {
	pass, pending := c.Allow(f.clock())
	f.announceAny(c, pending)
	if pass == 0 {
		return false
	}
	f.announceAny(c, c.Done(pass, f.clock(), o))
	return true
}

// failures lets n messages fail.
func (f *fila) failures(c *Circuit, n int) {
	for range n {
		f.call(c, breaker.Failure)
	}
}

func (f *fila) info(key string) api.CircuitInfo {
	i, ok := f.reg.Info(key)
	if !ok {
		return api.CircuitInfo{State: "unknown"}
	}
	return i
}

// crew runs a test with several filas whose clocks differ by 5 s each.
func crew(t *testing.T, n int, fn func(t *testing.T, b *fleettest.Bucket, all []*fila)) {
	synctest.Test(t, func(t *testing.T) {
		b := fleettest.New()
		var all []*fila
		for i := range n {
			all = append(all, newFila(t, b, string(rune('a'+i)), time.Duration(i)*5*time.Second))
		}
		fn(t, b, all)
		for _, f := range all {
			f.sync.Stop()
		}
		synctest.Wait()
	})
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestOneOpensForAll(t *testing.T) {
	crew(t, 3, func(t *testing.T, _ *fleettest.Bucket, all []*fila) {
		for round := range 6 { // three filas, one failure after the other
			f := all[round%3]
			f.call(f.use("stripe"), breaker.Failure)
			synctest.Wait()
		}
		opened := time.Now()
		for i, f := range all {
			info := f.info("stripe")
			require.Equal(t, []any{"open", true, "b", "failures", 5}, []any{info.State, info.Shared, info.By, info.Cause, info.ConsecutiveFailures})
			until, err := time.Parse(time.RFC3339, info.OpenUntil)
			require.NoError(t, err)
			require.WithinDuration(t, opened.Add(time.Minute+f.skew), until, 0, "by its own clock")
			require.Equal(t, "closed -> open: failures", f.news(), "fila %d", i)
			require.False(t, f.call(f.use("stripe"), breaker.Success))
		}
		// A circuit that is not shared stays local.
		all[0].failures(all[0].use("own:x"), 5)
		synctest.Wait()
		require.Equal(t, "open", all[0].info("own:x").State)
		require.Equal(t, "unknown", all[1].info("own:x").State)
	})
}

func TestProbesOfAFleet(t *testing.T) {
	crew(t, 4, func(t *testing.T, b *fleettest.Bucket, all []*fila) {
		all[0].failures(all[0].use("stripe"), 5)
		after(time.Minute)
		// Sixteen queues want to probe, and check again when woken.
		var mu sync.Mutex
		under := 0
		var most int
		held := make(map[*fila][]breaker.Pass)
		for _, f := range all {
			c := f.use("stripe")
			look := func(*owner, *Circuit) {
				p, pending := c.Allow(f.clock())
				f.announceAny(c, pending)
				mu.Lock()
				defer mu.Unlock()
				if p != 0 {
					under++
					most = max(most, under)
					held[f] = append(held[f], p)
				}
			}
			f.opened = look
			for i := range 4 {
				f.announceAny(c, c.Wait(f.owner(fmt.Sprint(i)), f.clock()))
			}
		}
		after(100 * time.Millisecond)
		mu.Lock()
		require.Equal(t, 3, under)
		mu.Unlock()
		total := 0
		for name, n := range all[3].info("stripe").ProbesBy {
			require.Contains(t, "abcd", name)
			total += n
		}
		require.Equal(t, 3, total)
		require.Equal(t, 3, all[3].info("stripe").Probes)

		// A holder dies; the others get its permits when that is known.
		var dead *fila
		for f := range held {
			dead = f
		}
		mu.Lock()
		lost := len(held[dead])
		delete(held, dead)
		under -= lost
		mu.Unlock()
		dead.opened = func(*owner, *Circuit) {}
		dead.end.Cut(true)
		after(20 * time.Second)
		mu.Lock()
		require.Equal(t, 3, under, "%d were lost", lost)
		require.Equal(t, 3, most)
		var f *fila
		for f = range held {
			if len(held[f]) > 0 {
				break
			}
		}
		p := held[f][0]
		mu.Unlock()
		f.announceAny(f.use("stripe"), f.use("stripe").Done(p, f.clock(), breaker.Success))
		synctest.Wait()
		for _, f := range all {
			if f != dead {
				require.Equal(t, "closed", f.info("stripe").State)
			}
		}
		require.NotEmpty(t, b.Entries())
	})
}

func (f *fila) announceAny(c *Circuit, pending bool) {
	if pending {
		c.Announce()
	}
}

// Operations by hand at one fila count at all, also where nobody uses the circuit.
func TestByHandEverywhere(t *testing.T) {
	crew(t, 2, func(t *testing.T, _ *fleettest.Bucket, all []*fila) {
		a, b := all[0], all[1]
		_, saved := a.reg.Open("stripe", math.MaxInt64, "")
		require.NoError(t, <-saved)
		require.Equal(t, "open", a.info("stripe").State)
		synctest.Wait()
		require.Equal(t, []any{"open", "closed", "by hand", "a"}, []any{b.info("stripe").State, b.info("stripe").OpenUntil, b.info("stripe").Cause, b.info("stripe").By})
		require.Equal(t, "closed -> open: by hand", b.news())
		require.True(t, b.reg.Held("stripe"))
		_, saved, ok := b.reg.Close("stripe", true)
		require.True(t, ok)
		require.NoError(t, <-saved)
		synctest.Wait()
		require.Equal(t, "unknown", a.info("stripe").State, "closed, and nobody uses it")
		require.Equal(t, "open -> closed: by hand", b.news())
		require.Equal(t, []string{"stripe"}, a.resumed)
		require.Empty(t, b.resumed)

		// A pause that ends by time is closed everywhere, without a write.
		a.reg.Pause("stripe", a.clock(), a.clock()+10*second, "")
		after(time.Second)
		require.Equal(t, "open", b.info("stripe").State)
		after(9 * time.Second)
		require.Equal(t, "closed", b.info("stripe").State)
		require.True(t, b.call(b.use("stripe"), breaker.Success))
	})
}

// A pause restored by a restart counts, unless the fleet has gone on since.
func TestPauseOfBeforeARestart(t *testing.T) {
	crew(t, 2, func(t *testing.T, _ *fleettest.Bucket, all []*fila) {
		a, b := all[0], all[1]
		since := a.clock()
		a.reg.Pause("kept", since, math.MaxInt64, "")
		a.reg.Pause("resumed", since, math.MaxInt64, "")
		after(time.Second)
		a.sync.Stop()
		b.reg.Resume("resumed")
		after(time.Second)
		b.news()
		a.resumed = nil

		a.end = a.end.Again()
		a.begin(t, "a", func() {
			a.reg.Pause("kept", since, math.MaxInt64, "")
			a.reg.Pause("resumed", since, math.MaxInt64, "")
		})
		synctest.Wait()
		require.Equal(t, "open", b.info("kept").State)
		require.NotEqual(t, "open", b.info("resumed").State)
		require.NotEqual(t, "open", a.info("resumed").State)
		require.Equal(t, []string{"resumed"}, a.resumed)
		require.Empty(t, b.news())
	})
}

func TestFailOpen(t *testing.T) {
	crew(t, 2, func(t *testing.T, _ *fleettest.Bucket, all []*fila) {
		a, b := all[0], all[1]
		ca, cb := a.use("stripe"), b.use("stripe")
		a.failures(ca, 3)
		synctest.Wait()
		require.Equal(t, 3, b.info("stripe").ConsecutiveFailures)
		a.end.Cut(true)
		after(5 * time.Second)
		require.True(t, a.info("stripe").Degraded)
		for range 2 {
			require.True(t, a.call(ca, breaker.Failure))
		}
		require.Equal(t, "open", a.info("stripe").State)
		require.Equal(t, "closed -> open: failures", a.news())
		require.Equal(t, "closed", b.info("stripe").State)
		require.True(t, b.call(cb, breaker.Success))
		// The bucket is back, and the local state is newer.
		a.end.Cut(false)
		after(5 * time.Second)
		require.Equal(t, "open", b.info("stripe").State)
		require.False(t, a.info("stripe").Degraded)
		require.Equal(t, "closed -> open: failures", b.news())
		require.Empty(t, a.news(), "it has been told")
		// An opening ends at its time without the bucket, by a local probe.
		a.end.Cut(true)
		b.end.Cut(true)
		after(time.Minute)
		require.True(t, a.call(ca, breaker.Success))
		require.Equal(t, "closed", a.info("stripe").State)
		a.end.Cut(false)
		b.end.Cut(false)
		after(5 * time.Second)
		require.Equal(t, "closed", b.info("stripe").State)
	})
}

// A fila that starts without the bucket uses its disk.
func TestStartWithoutTheBucket(t *testing.T) {
	crew(t, 1, func(t *testing.T, b *fleettest.Bucket, all []*fila) {
		a := all[0]
		a.failures(a.use("stripe"), 5)
		synctest.Wait()
		a.sync.Stop()
		a.end.Cut(true)
		a.begin(t, "a")
		require.Equal(t, []any{"open", "failures", true}, []any{a.info("stripe").State, a.info("stripe").Cause, a.info("stripe").Degraded})
		b.Clear()
		a.end.Cut(false)
		after(time.Minute / 2)
		require.Equal(t, "open", a.info("stripe").State)
		require.False(t, a.info("stripe").Degraded)
		require.Len(t, b.Entries(), 2, "it is in the bucket that was made anew")
	})
}

func TestRetryAfterForAll(t *testing.T) {
	crew(t, 2, func(t *testing.T, _ *fleettest.Bucket, all []*fila) {
		a, b := all[0], all[1]
		ca, cb := a.use("stripe"), b.use("stripe")
		ca.RetryAfter(a.clock(), a.clock()+10*second)
		n, _ := ca.Admits(a.clock())
		require.Zero(t, n, "at once")
		synctest.Wait()
		n, at := cb.Admits(b.clock())
		require.Zero(t, n)
		require.Equal(t, b.clock()+10*second, at)
		after(10 * time.Second)
		n, _ = cb.Admits(b.clock())
		require.EqualValues(t, math.MaxInt64, n)
	})
}

func TestMaxFailuresOfShared(t *testing.T) {
	crew(t, 2, func(t *testing.T, _ *fleettest.Bucket, all []*fila) {
		a, b := all[0], all[1]
		a.reg.Configure(Settings{
			Breaker: breaker.Config{Threshold: 100}, MaxFailures: 2, FailureWindow: time.Minute, FailureHold: time.Hour,
		}, nil, nil)
		a.failures(a.use("stripe"), 3)
		synctest.Wait()
		require.Equal(t, []any{"open", "max_failures"}, []any{b.info("stripe").State, b.info("stripe").Cause})
		require.Equal(t, "held, closed -> open: max_failures", a.news())
		require.Equal(t, "closed -> open: max_failures", b.news())
	})
}

// TestNewestLimitsAreInForce at both filas, whichever was first. The one with older limits reports
// that once.
func TestNewestLimitsAreInForce(t *testing.T) {
	for name, newest := range map[string]int{"of who is first": 0, "of who comes later": 1} {
		t.Run(name, func(t *testing.T) {
			crew(t, 2, func(t *testing.T, _ *fleettest.Bucket, all []*fila) {
				now, old := all[newest], all[1-newest]
				ago := func(f *fila, d time.Duration) int64 { return f.clock() - int64(d) }
				now.setAt(7, ago(now, time.Hour))
				old.setAt(3, ago(old, 2*time.Hour))
				first, second := all[0], all[1]
				first.call(first.use("stripe"), breaker.Failure)
				synctest.Wait()
				second.use("stripe")
				synctest.Wait()
				for range 5 {
					require.True(t, old.call(old.use("stripe"), breaker.Failure))
					synctest.Wait()
				}
				require.Equal(t, "closed", old.info("stripe").State, "six failures are fewer than seven")
				for _, f := range all {
					require.Equal(t, 7, f.info("stripe").Threshold)
				}
				require.Nil(t, now.info("stripe").Own)
				info := old.info("stripe")
				require.Equal(t, &api.CircuitLimits{Threshold: 3, CooldownMs: 60_000, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 1}, info.Own)
				require.Equal(t, string(rune('a'+newest)), info.LimitsBy)
				require.NotEmpty(t, info.LimitsChangedAt)
				require.Empty(t, now.told())
				require.Len(t, old.told(), 1)
				con := old.told()[0]
				require.Equal(t, []any{"stripe", 3, 7, info.LimitsBy}, []any{con.Key, con.Own.Threshold, con.InForce.Threshold, con.By})

				// A fila without the bucket keeps the limits in force.
				old.end.Cut(true)
				after(30 * time.Second)
				require.Equal(t, 7, old.info("stripe").Threshold)
				old.end.Cut(false)
				after(30 * time.Second)

				// New limits are in force without a call.
				old.setAt(2, old.clock())
				synctest.Wait()
				require.Equal(t, 2, now.info("stripe").Threshold)
				require.Nil(t, old.info("stripe").Own)
				require.Len(t, now.told(), 1)
				require.Len(t, old.told(), 1)
				require.True(t, now.call(now.use("stripe"), breaker.Failure))
				synctest.Wait()
				require.Equal(t, "open", old.info("stripe").State)
			})
		})
	}
}

// TestNewerLimitsOfAnUnusedCircuit get into the record of a closed circuit that the fila does not use.
func TestNewerLimitsOfAnUnusedCircuit(t *testing.T) {
	crew(t, 2, func(t *testing.T, _ *fleettest.Bucket, all []*fila) {
		a, b := all[0], all[1]
		b.setAt(7, b.clock())
		a.call(a.use("stripe"), breaker.Failure)
		synctest.Wait()
		require.Equal(t, 7, a.info("stripe").Threshold)
		require.Equal(t, "unknown", b.info("stripe").State, "it is forgotten again")
	})
}

// A record that this fila cannot read is left alone, and its circuit is local.
func TestForeignRecord(t *testing.T) {
	crew(t, 1, func(t *testing.T, b *fleettest.Bucket, all []*fila) {
		a := all[0]
		c := a.use("stripe")
		a.call(c, breaker.Failure)
		synctest.Wait()
		var key string
		for k := range b.Entries() {
			if strings.HasPrefix(k, "c.") {
				key = k
			}
		}
		foreign := []byte(`{"v":99}`)
		_, err := b.Of().Set(t.Context(), key, foreign)
		require.NoError(t, err)
		synctest.Wait()
		require.True(t, a.info("stripe").Degraded)
		a.failures(c, 5)
		after(time.Second)
		require.Equal(t, "open", a.info("stripe").State)
		require.Equal(t, foreign, b.Entries()[key].Value)
		require.NoError(t, b.Of().Delete(t.Context(), key, 0))
		after(time.Second)
		require.False(t, a.info("stripe").Degraded)
		require.NotEqual(t, foreign, b.Entries()[key].Value)
	})
}

// Circuits that only other filas use are forgotten when they are closed, and the sweep deletes their
// records.
func TestNothingIsLeft(t *testing.T) {
	crew(t, 2, func(t *testing.T, b *fleettest.Bucket, all []*fila) {
		a, other := all[0], all[1]
		for i := range 20 {
			key := fmt.Sprint(i)
			c := a.use(key)
			a.failures(c, 5)
			synctest.Wait()
			require.Equal(t, "open", other.info(key).State)
			_, saved, _ := a.reg.Close(key, true)
			require.NoError(t, <-saved)
			a.reg.giveBack(c)
		}
		synctest.Wait()
		for _, f := range all {
			f.reg.mu.Lock()
			require.Empty(t, f.reg.mu.byKey)
			f.reg.mu.Unlock()
		}
		require.Len(t, b.Entries(), 22)
		after(72 * time.Hour)
		require.Len(t, b.Entries(), 2)
	})
}

// The fila that opened a circuit, and the client that did so by hand, are named everywhere until it
// is closed.
func TestWhoHasOpenedIt(t *testing.T) {
	crew(t, 2, func(t *testing.T, _ *fleettest.Bucket, all []*fila) {
		a, b := all[0], all[1]
		opened := func(f *fila, key, by, client string) {
			t.Helper()
			synctest.Wait()
			i := f.info(key)
			require.Equal(t, []any{by, client}, []any{i.OpenedBy, i.OpenedByClient})
		}
		b.use("stripe")
		b.use("own:x")
		a.failures(a.use("stripe"), 5)
		opened(b, "stripe", "a", "")
		after(time.Minute)
		n, _ := b.use("stripe").Admits(b.clock()) // requests a permit
		require.Zero(t, n)
		synctest.Wait()
		require.Equal(t, []any{"half-open", "b", "a"}, []any{a.info("stripe").State, a.info("stripe").By, a.info("stripe").OpenedBy})
		b.reg.Open("stripe", math.MaxInt64, "alice")
		b.reg.Open("own:x", math.MaxInt64, "bob")
		opened(a, "stripe", "b", "alice")
		opened(b, "own:x", "", "bob")
		// Also without the bucket, and after a restart without it.
		a.end.Cut(true)
		after(time.Minute)
		opened(a, "stripe", "b", "alice")
		a.reg.Pause("stripe", a.clock(), a.clock()+1000*second, "carol")
		opened(a, "stripe", "a", "carol")
		a.end.Cut(false)
		after(time.Minute)
		opened(b, "stripe", "a", "carol")
		b.end.Cut(true)
		b.sync.Stop()
		b.end = b.end.Again()
		b.begin(t, "b")
		opened(b, "own:x", "", "bob")
		opened(b, "stripe", "a", "carol")
		_, saved, _ := a.reg.Close("stripe", true)
		require.NoError(t, <-saved)
		opened(b, "stripe", "", "")
	})
}

// Each fila reports each transition of a shared circuit once, with the same version and time, both
// increasing; also a fila whose watch skips records.
func TestTurnsAreToldOnce(t *testing.T) {
	crew(t, 3, func(t *testing.T, b *fleettest.Bucket, all []*fila) {
		type turn struct {
			old, new, cause, by, at string
			version                 uint64
		}
		turns := func(f *fila) (told []turn) {
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, e := range f.events {
				d := e.Data
				told = append(told, turn{
					d["old"].(string), d["new"].(string), d["cause"].(string), d["by"].(string), d["changed_at"].(string), d["version"].(uint64),
				})
			}
			f.events = nil
			return told
		}
		for _, f := range all {
			f.use("stripe")
		}
		var first []turn
		for round := range 3 {
			f := all[round]
			lazy := all[(round+1)%3].end
			lazy.Hold(true)
			f.failures(f.use("stripe"), 5)
			after(time.Second)
			// A write that is no transition.
			f.use("stripe").RetryAfter(f.clock(), f.clock()+90*second)
			f.use("stripe").Announce()
			after(time.Second)
			lazy.Merge()
			lazy.Hold(false)
			after(2 * time.Minute)
			n, _ := f.use("stripe").Admits(f.clock())
			require.Zero(t, n, "it has to ask")
			synctest.Wait()
			require.True(t, f.call(f.use("stripe"), breaker.Success))
			after(time.Second)
			f.use("stripe").RetryAfter(f.clock(), f.clock()+second) // ends by time
			f.use("stripe").Announce()
			after(time.Minute)
			for _, one := range all {
				one.use("stripe").Admits(one.clock())
				one.use("stripe").Announce()
			}
			want := turns(all[0])
			require.Len(t, want, 5, "%v", want)
			for _, other := range all[1:] {
				require.Equal(t, want, turns(other))
			}
			first = append(first, want...)
		}
		for i := 1; i < len(first); i++ {
			was, is := first[i-1], first[i]
			require.Equal(t, was.new, is.old)
			if is.cause == "time" && is.new == "closed" {
				require.Equal(t, was.version, is.version, "nothing is written for it")
			} else {
				require.Greater(t, is.version, was.version)
			}
			require.GreaterOrEqual(t, is.at, was.at)
		}
	})
}
