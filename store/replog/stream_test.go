package replog

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
)

// These tests have a real stream.

func TestStreamIsMadeOnce(t *testing.T) {
	js := jetStream(t)
	o := options(js, t.TempDir(), "a")
	o.Create = false
	_, err := Open(t.Context(), o)
	require.ErrorIs(t, err, ErrGone)
	o.Create, o.MaxBytes = true, 1<<20
	openReplica(t, o)
	other := options(js, t.TempDir(), "b")
	other.Create = false
	openReplica(t, other)
	s, err := js.Stream(t.Context(), "FILA_test_LOG_3")
	require.NoError(t, err)
	c := s.CachedInfo().Config
	require.Equal(t, []string{"fila_log.test.3"}, c.Subjects)
	require.Equal(t, int64(1<<20), c.MaxBytes)
	require.Equal(t, jetstream.DiscardNew, c.Discard)
	require.True(t, c.AllowDirect)
	require.True(t, c.DenyDelete)
	require.Equal(t, "inc", c.Metadata["fila_incarnation"])
}

func TestStreamThatDoesNotFit(t *testing.T) {
	for name, c := range map[string]struct {
		options func(*Options)
		stream  func(*jetstream.StreamConfig)
		want    error
	}{
		"fits":               {func(*Options) {}, func(*jetstream.StreamConfig) {}, nil},
		"other incarnation":  {func(o *Options) { o.Incarnation = "other" }, func(*jetstream.StreamConfig) {}, ErrForeign},
		"nobody's":           {func(*Options) {}, func(c *jetstream.StreamConfig) { c.Metadata = nil }, ErrForeign},
		"other subject":      {func(*Options) {}, func(c *jetstream.StreamConfig) { c.Subjects = []string{"fila_log.>"} }, ErrForeign},
		"forgets":            {func(*Options) {}, func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, ErrForeign},
		"discards old":       {func(*Options) {}, func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }, ErrForeign},
		"too few replicas":   {func(o *Options) { o.Replicas = 3 }, func(*jetstream.StreamConfig) {}, ErrReplicas},
		"in memory":          {func(*Options) {}, func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, ErrForeign},
		"limited in records": {func(*Options) {}, func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 }, ErrForeign},
		"rolls up":           {func(*Options) {}, func(c *jetstream.StreamConfig) { c.AllowRollup = true }, ErrForeign},
		"expires messages":   {func(*Options) {}, func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true }, ErrForeign},
		"acks too early":     {func(*Options) {}, func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode }, ErrForeign},
	} {
		t.Run(name, func(t *testing.T) {
			js := jetStream(t)
			o := options(js, t.TempDir(), "a")
			cfg := jetstream.StreamConfig{
				Name: "FILA_test_LOG_3", Subjects: []string{"fila_log.test.3"}, Discard: jetstream.DiscardNew,
				Metadata: map[string]string{"fila_cluster": "test", "fila_incarnation": "inc", "fila_shard": "3"},
			}
			c.stream(&cfg)
			_, err := js.CreateStream(t.Context(), cfg)
			require.NoError(t, err)
			c.options(&o)
			r, err := Open(t.Context(), o)
			require.ErrorIs(t, err, c.want)
			if err == nil {
				require.NoError(t, r.Close())
			} else {
				require.Contains(t, err.Error(), "FILA_test_LOG_3")
			}
		})
	}
}

// A follower soon notices that its server is gone.
func TestFollowersAskForHeartbeats(t *testing.T) {
	js := jetStream(t)
	asked, err := js.Conn().SubscribeSync("$JS.API.CONSUMER.MSG.NEXT.>")
	require.NoError(t, err)
	openReplica(t, options(js, t.TempDir(), "a"))
	m, err := asked.NextMsgWithContext(deadline(t))
	require.NoError(t, err)
	var request struct {
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}
	require.NoError(t, json.Unmarshal(m.Data, &request))
	require.Equal(t, followBeat, request.Heartbeat)
}

// A file is compared with the record that the leader of the stream has: another replica may lack
// it for a moment, or have one that the stream has lost.
func TestTheLeaderIsAsked(t *testing.T) {
	js := jetStream(t)
	near, err := js.Conn().SubscribeSync("$JS.API.DIRECT.GET.>")
	require.NoError(t, err)
	leader, err := js.Conn().SubscribeSync("$JS.API.STREAM.MSG.GET.FILA_test_LOG_3")
	require.NoError(t, err)
	o := options(js, t.TempDir(), "a")
	a, err := Open(t.Context(), o)
	require.NoError(t, err)
	s := promote(t, a)
	require.NoError(t, put(s, "k", "v"))
	require.NoError(t, s.Close())
	require.NoError(t, a.Close())
	a = openReplica(t, o)
	m, err := leader.NextMsgWithContext(deadline(t))
	require.NoError(t, err)
	require.JSONEq(t, `{"seq":2}`, string(m.Data))
	_, err = a.Verify(t.Context(), nil, 0) // which reads the nearest replica
	require.NoError(t, err)
	m, err = near.NextMsgWithContext(deadline(t))
	require.NoError(t, err)
	require.JSONEq(t, `{"seq":1}`, string(m.Data), "the first direct get is of Verify")
}

// A stream that vanishes, or is created again, ends the owner and stops the followers.
// No file is assigned to the new stream.
func TestStreamGone(t *testing.T) {
	for name, anew := range map[string]bool{"gone": false, "made anew": true} {
		t.Run(name, func(t *testing.T) {
			js := jetStream(t)
			oa, ob := options(js, t.TempDir(), "a"), options(js, t.TempDir(), "b")
			oa.Check, ob.Check, oa.AckTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
			oa.Settle, ob.Settle = 50*time.Millisecond, 50*time.Millisecond
			a, b := openReplica(t, oa), openReplica(t, ob)
			s := promote(t, a)
			require.NoError(t, put(s, "k", "v"))
			caughtUp(t, b)
			require.NoError(t, js.DeleteStream(t.Context(), "FILA_test_LOG_3"))
			want := ErrGone
			if anew {
				c, err := Open(t.Context(), options(js, t.TempDir(), "c"))
				require.NoError(t, err)
				require.NoError(t, c.Close())
			}
			<-s.Failed()
			require.ErrorIs(t, s.Err(), want)
			if anew {
				want = ErrShorter // after another look
			}
			require.NoError(t, s.Close())
			for _, r := range []*Replica{a, b} {
				require.Eventually(t, func() bool { return r.Seen().Err != nil }, 10*time.Second, time.Millisecond)
				require.NoError(t, r.Close())
			}
			again, err := Open(t.Context(), ob)
			require.NoError(t, err, "its file may have the only copies")
			require.Eventually(t, func() bool { return again.Seen().Err != nil }, 10*time.Second, time.Millisecond)
			require.ErrorIs(t, again.Seen().Err, want)
			require.NoError(t, again.Close())
		})
	}
}

// A replica that lost its file, too, does not accept an empty log instead of the lost
// one.
func TestStreamAndFileGone(t *testing.T) {
	js := jetStream(t)
	o := options(js, t.TempDir(), "a")
	o.Check, o.AckTimeout = 50*time.Millisecond, 50*time.Millisecond
	a := openReplica(t, o)
	s := promote(t, a)
	require.NoError(t, put(s, "k", "v"))
	require.NoError(t, js.DeleteStream(t.Context(), "FILA_test_LOG_3"))
	<-s.Failed()
	require.NoError(t, os.Remove(o.Path))
	require.NoError(t, s.Close())
	require.Eventually(t, func() bool { return a.Seen().Err != nil }, 10*time.Second, time.Millisecond)
	require.ErrorIs(t, a.Seen().Err, ErrGone)
	_, err := js.Stream(t.Context(), "FILA_test_LOG_3")
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
}

func TestFileOfSomethingElse(t *testing.T) {
	js := jetStream(t)
	o := options(js, t.TempDir(), "a")
	bolt, err := store.Open(o.Path, store.Options{})
	require.NoError(t, err)
	require.NoError(t, put(bolt, "k", "v"))
	require.NoError(t, bolt.Close())
	_, err = Open(t.Context(), o)
	require.ErrorIs(t, err, ErrForeign, "a node without a cluster")

	o = options(js, t.TempDir(), "a")
	r, err := Open(t.Context(), o)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	o.Shard++
	_, err = Open(t.Context(), o)
	require.ErrorIs(t, err, ErrForeign, "another shard")
}

func TestRealLogFull(t *testing.T) {
	js := jetStream(t)
	o := options(js, t.TempDir(), "a")
	o.MaxBytes, o.Check = 40_000, 10*time.Millisecond
	a := openReplica(t, o)
	s := promote(t, a)
	waits := make(chan error, 1)
	go func() {
		var err error
		for range 13 { // the last one does not fit
			err = errors.Join(err, put(s, "k", strings.Repeat("x", 3000)))
		}
		waits <- err
	}()
	require.Eventually(t, func() bool { return s.Full() && !s.Owns(time.Second) }, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, s.Err())
	require.Empty(t, waits)
	st, err := a.j.state(t.Context())
	require.NoError(t, err)
	require.NoError(t, a.j.purge(t.Context(), st.last))
	require.NoError(t, <-waits)
	require.True(t, s.Owns(time.Minute))
}

// A candidate learns that its epoch is not in the log because the log is full.
func TestNoRoomForAnEpoch(t *testing.T) {
	js := jetStream(t)
	o := options(js, t.TempDir(), "a")
	o.MaxBytes = 4 << 10
	a := openReplica(t, o)
	s := promote(t, a)
	resigned := encode(head{kind: kindResign, epoch: s.Epoch(), n: 2}, putString(nil, ""))
	require.NoError(t, s.Resign(t.Context(), ""))
	require.NoError(t, s.Close())
	var err error
	for err == nil { // what does not count, until nothing more fits
		var st state
		st, err = a.j.state(t.Context())
		require.NoError(t, err)
		_, err = a.j.append(t.Context(), resigned, st.last)
	}
	require.ErrorIs(t, err, errRefused)
	require.ErrorIs(t, err, ErrFull)
	_, err = a.Promote(t.Context(), caughtUp(t, a))
	require.ErrorIs(t, err, ErrFull)
}

// Whatever is committed by any owner, and however followers group it into transactions:
// all copies are equal, and so is one that is made from the log alone.
func TestReplicasAreEqual(t *testing.T) {
	js := jetStream(t)
	rng := rand.New(rand.NewPCG(1, 2))
	var replicas []*Replica
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		o := options(js, dir, name)
		o.recordBytes = 2 << 10
		o.Store.CompactMinBytes, o.Store.CompactRatio = 1, 1.1
		replicas = append(replicas, openReplica(t, o))
	}
	seq := uint64(0)
	for round := range 9 {
		owner := replicas[round%3]
		s := promote(t, owner)
		if round == 0 {
			require.NoError(t, storetest.Do(s, &store.Batch{PutQueues: []store.QueueRecord{{ID: 1, Name: "q"}, {ID: 2, Name: "d"}}}))
		}
		var outcomes []chan error
		for range 60 {
			b := randomBatch(rng, &seq)
			done := make(chan error, 1)
			b.Done = func(err error) { done <- err }
			s.Submit(b)
			outcomes = append(outcomes, done)
		}
		for _, done := range outcomes {
			if err := <-done; err != nil {
				require.ErrorIs(t, err, store.ErrNotFound) // a move of what is gone: refused alone
			}
		}
		want := contentOf(t, s)
		require.NoError(t, s.Close())
		for _, r := range replicas {
			caughtUp(t, r)
		}
		o := options(js, t.TempDir(), "new")
		fresh := openReplica(t, o)
		caughtUp(t, fresh)
		for _, r := range append(replicas, fresh) {
			require.Equal(t, want, contentOf(t, r.bolt))
		}
	}
	require.Greater(t, seq, uint64(100))
}

func randomBatch(rng *rand.Rand, seq *uint64) *store.Batch {
	b := &store.Batch{Queue: 1}
	pick := func(q store.QueueID) store.Ref { return store.Ref{Queue: q, Seq: 1 + rng.Uint64N(*seq+1)} }
	for range rng.IntN(4) {
		*seq++
		m := everything().Add[0]
		m.Ref, m.Payload = store.Ref{Queue: 1, Seq: *seq}, storetest.Payload(1, *seq)
		m.NotBefore, m.ExpiresAt = 0, 0
		b.Add = append(b.Add, m)
	}
	for range rng.IntN(3) {
		ref := pick(1)
		b.State = append(b.State, store.State{Ref: ref, Attempts: uint32(rng.IntN(9)), LastError: "e"})
	}
	for range rng.IntN(4) {
		b.Finish = append(b.Finish, pick(store.QueueID(1+rng.IntN(2))))
	}
	if rng.IntN(3) == 0 {
		*seq++
		b.Move = []store.Move{{From: pick(1), To: store.Message{Ref: store.Ref{Queue: 2, Seq: *seq}, Class: store.Class{Key: "k"}}}}
	}
	if rng.IntN(4) == 0 {
		b.Dedupe = []store.Dedupe{{Queue: 1, DedupeID: "d" + string(rune('a'+rng.IntN(26))), Until: time.Now().Add(time.Hour).UnixNano()}}
	}
	if rng.IntN(5) == 0 {
		b.PutConfig = []store.Entry{{Key: string(rune('a' + rng.IntN(26))), Value: strings.Repeat("v", rng.IntN(3000))}}
		b.DeleteConfig = []string{string(rune('a' + rng.IntN(26)))}
	}
	return b
}
