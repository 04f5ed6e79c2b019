package replog

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
)

func TestMain(m *testing.M) {
	// nats.go begins it with the first upload, and it never ends if the connection ends
	// before it has begun.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
}

// jetStream runs a NATS server with JetStream until the end of the test.
func jetStream(t testing.TB, change ...func(*server.Options)) jetstream.JetStream {
	t.Helper()
	o := &server.Options{DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir()}
	for _, fn := range change {
		fn(o)
	}
	srv, err := server.NewServer(o)
	require.NoError(t, err)
	srv.Start()
	require.True(t, srv.ReadyForConnections(10*time.Second))
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	require.NoError(t, err)
	t.Cleanup(func() {
		closed := make(chan struct{})
		nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
		nc.Close()
		<-closed
	})
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return js
}

// options returns the options of a replica in a directory.
func options(js jetstream.JetStream, dir, node string) Options {
	return Options{
		JS: js, Cluster: "test", Incarnation: "inc", Shard: 3, Node: node, Path: filepath.Join(dir, node+".db"),
		Store: store.Options{NoSync: true}, Create: true, Replicas: 1,
	}
}

func openReplica(t testing.TB, o Options) *Replica {
	t.Helper()
	r, err := Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// caughtUp waits until a replica has seen all that is in the log.
func caughtUp(t testing.TB, r *Replica) Seen {
	t.Helper()
	st, err := r.j.state(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.Await(t.Context(), st.last))
	return r.Seen()
}

func promote(t testing.TB, r *Replica) *Store {
	t.Helper()
	s, err := r.Promote(t.Context(), caughtUp(t, r))
	require.NoError(t, err)
	return s
}

// ownedStore closes its replica, too.
type ownedStore struct {
	*Store
	r    *Replica
	once sync.Once
}

func (s *ownedStore) Close() error {
	err := s.Store.Close()
	s.once.Do(func() { err = s.r.Close() })
	return err
}

func TestConformance(t *testing.T) {
	js := jetStream(t)
	for name, recordBytes := range map[string]int{"Default": 0, "Split": 1 << 10} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t testing.TB, dir string) store.Store {
				o := options(js, dir, "node")
				o.Cluster = fmt.Sprintf("%x", dir)
				o.recordBytes = recordBytes
				r, err := Open(t.Context(), o)
				require.NoError(t, err)
				return &ownedStore{Store: promote(t, r), r: r}
			})
		})
	}
}

// deadline fails a test that waits too long.
func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// Await waits until the replica has seen a sequence, or ctx ends.
func (r *Replica) Await(ctx context.Context, seq uint64) error {
	for {
		seen, changed := r.seenAndChanged()
		if seen.Seq >= seq {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), seen.Err)
		case <-r.ctx.Done():
			return ErrClosed
		}
	}
}
