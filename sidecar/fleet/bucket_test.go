package fleet_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/natstest"
	"github.com/filaq/fila/sidecar/fleet"
)

func connect(t *testing.T, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append(opts, nats.ReconnectBufSize(-1), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func newBucket(t *testing.T, nc *nats.Conn, name string) *fleet.JetStream {
	t.Helper()
	b, err := fleet.NewJetStream(nc, slog.New(slog.DiscardHandler), name, 1)
	require.NoError(t, err)
	return b
}

func next(t *testing.T, watch <-chan fleet.Entry) fleet.Entry {
	t.Helper()
	select {
	case e := <-watch:
		return e
	case <-time.After(10 * time.Second):
		require.FailNow(t, "the watch brings nothing")
		return fleet.Entry{}
	}
}

func TestJetStreamIsABucket(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t, natstest.JetStream)
	nc := connect(t, srv.ClientURL())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := newBucket(t, nc, "GATES")
	require.NoError(t, b.Open(ctx))
	require.NoError(t, newBucket(t, nc, "GATES").Open(ctx), "it is there")

	watch, err := b.Watch(ctx)
	require.NoError(t, err)
	require.Zero(t, next(t, watch), "nothing is there")
	rev, err := b.Swap(ctx, "c.a", []byte("1"), 0)
	require.NoError(t, err)
	e := next(t, watch)
	require.Equal(t, []any{"c.a", "1", rev}, []any{e.Key, string(e.Value), e.Rev})
	require.WithinDuration(t, time.Now(), e.At, time.Minute)
	_, err = b.Swap(ctx, "c.a", []byte("2"), 0)
	require.ErrorIs(t, err, fleet.ErrConflict)
	_, err = b.Swap(ctx, "c.a", []byte("2"), rev+7)
	require.ErrorIs(t, err, fleet.ErrConflict)
	rev2, err := b.Swap(ctx, "c.a", []byte("2"), rev)
	require.NoError(t, err)
	require.Equal(t, rev2, next(t, watch).Rev)
	require.ErrorIs(t, b.Delete(ctx, "c.a", rev), fleet.ErrConflict)
	require.NoError(t, b.Delete(ctx, "c.a", rev2))
	mark := next(t, watch)
	require.Nil(t, mark.Value)
	require.Greater(t, mark.Rev, rev2)
	rev, err = b.Swap(ctx, "c.a", []byte("3"), mark.Rev)
	require.NoError(t, err)
	require.Equal(t, rev, next(t, watch).Rev)

	_, err = b.Set(ctx, "i.x", []byte("{}"))
	require.NoError(t, err)
	require.NoError(t, b.Delete(ctx, "i.x", 0))
	require.NoError(t, b.Purge(ctx, time.Nanosecond))
	again, err := b.Watch(ctx)
	require.NoError(t, err)
	require.Equal(t, "c.a", next(t, again).Key)
	require.Zero(t, next(t, again))
	_, err = b.Swap(ctx, "i.x", []byte("{}"), 0)
	require.NoError(t, err, "there is no mark any more")
	cancel()
	for range again { // until it is closed
	}
}

// real is an instance with its own connection.
func real(t *testing.T, url, name string) *node {
	t.Helper()
	n := &node{}
	n.Sync = fleet.New(fleet.Options{
		Log: slog.New(slog.DiscardHandler), Bucket: newBucket(t, connect(t, url), "FILA_GATES"), Instance: name,
		Now:       func() int64 { return time.Now().UnixNano() },
		BeatEvery: 100 * time.Millisecond, Timeout: 500 * time.Millisecond,
		Degraded: func(why error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.told = append(n.told, fmt.Sprint(why))
		},
	})
	n.sums = &sums{sync: n.Sync, by: make(map[string]*sum)}
	n.Register("s", n.sums)
	require.NoError(t, n.Start(t.Context()))
	t.Cleanup(n.Stop)
	return n
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, 20*time.Second, 5*time.Millisecond, what)
}

func TestInstancesOnJetStream(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t, natstest.JetStream)
	var nodes []*node
	for i := range 4 {
		nodes = append(nodes, real(t, srv.ClientURL(), string(rune('a'+i))))
	}
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() {
			for i := range 2000 {
				n.sums.add(fmt.Sprint(i%5), 1)
			}
		})
	}
	wg.Wait()
	for _, n := range nodes {
		for key := range 5 {
			eventually(t, "all is counted", func() bool { return n.sums.total(fmt.Sprint(key)) == 1600 })
		}
	}
	require.Len(t, nodes[0].Peers(), 4)
}

// The server stops and comes back with its data on the same address.
func TestServerComesBack(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t, natstest.JetStream)
	a, b := real(t, srv.ClientURL(), "a"), real(t, srv.ClientURL(), "b")
	a.sums.add("k", 1)
	eventually(t, "b knows", func() bool { return b.sums.total("k") == 1 })
	srv.Stop()
	eventually(t, "away", func() bool { return a.Away() != nil && b.Away() != nil })
	a.sums.add("k", 2)
	b.sums.add("k", 4)
	srv.Again()
	eventually(t, "back", func() bool { return a.Away() == nil && b.Away() == nil })
	eventually(t, "all is counted", func() bool { return a.sums.total("k") == 7 && b.sums.total("k") == 7 })
}

// The bucket is deleted while it is used.
func TestBucketIsDeleted(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t, natstest.JetStream)
	a, b := real(t, srv.ClientURL(), "a"), real(t, srv.ClientURL(), "b")
	a.sums.add("k", 1)
	eventually(t, "b knows", func() bool { return b.sums.total("k") == 1 })
	js, err := connect(t, srv.ClientURL()).JetStream()
	require.NoError(t, err)
	require.NoError(t, js.DeleteKeyValue("FILA_GATES"))
	eventually(t, "they have made it anew", func() bool {
		return a.Away() == nil && b.Away() == nil && a.sums.total("k") == 0 && b.sums.total("k") == 0
	})
	b.sums.add("k", 5)
	eventually(t, "a knows", func() bool { return a.sums.total("k") == 5 })
}

func TestNoJetStream(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t)
	n := fleet.New(fleet.Options{
		Log: slog.New(slog.DiscardHandler), Bucket: newBucket(t, connect(t, srv.ClientURL()), "GATES"), Instance: "a",
		Now: func() int64 { return time.Now().UnixNano() }, Degraded: func(error) {},
	})
	err := n.Start(t.Context())
	require.ErrorIs(t, err, fleet.ErrUnusable)
	require.ErrorContains(t, err, "nats.embedded.jetstream = true")
	require.NotContains(t, err.Error(), "\n")
}

// Missing permissions stop the start with an error that names what is missing.
func TestNoPermission(t *testing.T) {
	for _, missing := range []string{"$JS.API.>", "$JS.API.STREAM.CREATE.>", "$JS.API.CONSUMER.CREATE.>", "$KV.>"} {
		t.Run(missing, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Start(t, natstest.JetStream, func(o *server.Options) {
				o.Users = []*server.User{{Username: "u", Password: "p", Permissions: &server.Permissions{
					Publish: &server.SubjectPermission{Deny: []string{missing}},
				}}}
			})
			b := newBucket(t, connect(t, srv.ClientURL(), nats.UserInfo("u", "p")), "GATES")
			n := fleet.New(fleet.Options{
				Log: slog.New(slog.DiscardHandler), Bucket: b, Instance: "a", Timeout: 300 * time.Millisecond, StartTimeout: 600 * time.Millisecond,
				Now: func() int64 { return time.Now().UnixNano() }, Degraded: func(error) {},
			})
			err := n.Start(t.Context())
			require.ErrorIs(t, err, fleet.ErrUnusable)
			require.ErrorContains(t, err, "docs/security.md")
		})
	}
}
