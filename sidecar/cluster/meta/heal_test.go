package meta

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/sidecar/e2e/natstest"
	"github.com/filaq/fila/store"
)

// watchful returns a node that checks its sample often.
func watchful(t *testing.T, srv *natstest.Server) *Meta {
	t.Helper()
	o := options(connect(t, srv))
	o.checkEvery = 200 * time.Millisecond
	m, err := Open(patiently(t), o)
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m
}

func set(key, value string) control.Batch {
	return control.Batch{Put: []store.Entry{{Key: key, Value: value}}}
}

// sampled waits until the newest entries that nodes know are in their samples.
func sampled(t *testing.T, nodes ...*Meta) {
	t.Helper()
	for _, m := range nodes {
		eventually(t, "the sample is new", func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, e := range m.mu.entries {
				if e.local || len(m.mu.sample) == 0 || e.rev > m.mu.sample[0].rev {
					return false
				}
			}
			return true
		})
	}
}

// The server comes back with the disk of an earlier time. The nodes write what they know again,
// values, deletions and the last id, unless there is a younger value, and new entries are seen.
func TestABucketThatGoesBack(t *testing.T) {
	for name, noise := range map[string]int{"and stays there": 0, "and passes its old end": 40} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, old := t.TempDir(), t.TempDir()
			srv := natstest.Start(t, natstest.JetStream, func(o *server.Options) { o.StoreDir = disk })
			a, b := watchful(t, srv), watchful(t, srv)
			require.NoError(t, <-a.Write(set("changed", "1")))
			require.NoError(t, <-a.Write(set("deleted", "1")))
			require.NoError(t, <-a.Write(set("stays", "1")))
			srv.Stop()
			require.NoError(t, os.CopyFS(old, os.DirFS(disk)))
			srv.Again()
			require.NoError(t, <-a.Write(set("changed", "2")))
			require.NoError(t, <-a.Write(control.Batch{Delete: []string{"deleted"}}))
			require.NoError(t, a.Keep(t.Context(), "verdict.0", []byte("v")))
			place, err := a.Place(t.Context(), "orders")
			require.NoError(t, err)
			require.NoError(t, <-a.Write(set("both", "before")))
			eventually(t, "b knows", func() bool { v, _, _ := b.Newest("both"); return v == "before" })
			sampled(t, a, b)

			srv.Stop()
			require.NoError(t, os.RemoveAll(disk))
			require.NoError(t, os.CopyFS(disk, os.DirFS(old)))
			srv.Again()
			require.NoError(t, <-b.Write(set("both", "after")))
			for i := range noise {
				require.NoError(t, <-b.Write(set(fmt.Sprint("noise", i), "x")))
			}
			require.NoError(t, a.Keep(t.Context(), "node.a", []byte("n")))

			for _, m := range []*Meta{a, b} {
				eventually(t, "the younger value stays", func() bool { v, _, _ := m.Newest("both"); return v == "after" })
				eventually(t, "new entries are seen", func() bool { return m.Kept("node.")["node.a"] != nil })
			}
			var c *Meta
			eventually(t, "a node that starts finds everything", func() bool {
				c = join(t, srv)
				defer c.Close()
				changed, _, _ := c.Newest("changed")
				_, deleted, _ := c.Newest("deleted")
				where, _ := c.Where("orders")
				return changed == "2" && !deleted && where == place && c.Kept("")["verdict.0"] != nil
			})
			require.Len(t, c.Entries(), 3+noise)
			last, err := c.LastID()
			require.NoError(t, err)
			require.Equal(t, place.IDs[1], last, "ids are not given out again")
			for _, m := range []*Meta{a, b} {
				require.NoError(t, m.Err())
				eventually(t, "all have the same", func() bool { return len(m.Entries()) == 3+noise })
			}
			require.NoError(t, <-b.Write(control.Batch{
				Put: []store.Entry{{Key: "changed", Value: "3"}}, Was: []control.Was{{Key: "changed", Value: text("2")}},
			}), "a comparison uses the new revision")
			eventually(t, "a sees it", func() bool { v, _, _ := a.Newest("changed"); return v == "3" })
		})
	}
}

// The stream goes back while all nodes stay connected: the watch waits for a sequence that does
// not come.
func TestABucketThatGoesBackUnderAWatch(t *testing.T) {
	srv := alone(t)
	a, b := watchful(t, srv), watchful(t, srv)
	require.NoError(t, <-a.Write(set("k", "1")))
	s, err := a.js.Stream(t.Context(), a.streamName())
	require.NoError(t, err)
	var old []*jetstream.RawStreamMsg
	for seq := uint64(1); seq <= s.CachedInfo().State.LastSeq; seq++ {
		msg, err := s.GetMsg(t.Context(), seq)
		require.NoError(t, err)
		old = append(old, msg)
	}
	for i := range 20 {
		require.NoError(t, <-a.Write(set(fmt.Sprint("k", i), "1")))
	}
	sampled(t, a, b)
	require.NoError(t, a.js.DeleteStream(t.Context(), a.streamName()))
	_, err = a.js.CreateStream(t.Context(), s.CachedInfo().Config)
	require.NoError(t, err)
	for _, msg := range old {
		_, err := a.js.Publish(t.Context(), msg.Subject, msg.Data)
		require.NoError(t, err)
	}
	require.NoError(t, <-b.Write(set("new", "1")))
	for _, m := range []*Meta{a, b, join(t, srv)} {
		eventually(t, "everything is there", func() bool { return len(m.Entries()) == 22 })
	}
}

// In a bucket where another cluster was made, nothing is written, and the node ends.
func TestAnotherClusterInTheBucketIsNotHealed(t *testing.T) {
	srv := alone(t)
	a := watchful(t, srv)
	require.NoError(t, <-a.Write(set("k", "1")))
	sampled(t, a)
	config := a.config(a.streamName())
	require.NoError(t, a.js.DeleteStream(t.Context(), a.streamName()))
	_, err := a.js.CreateStream(t.Context(), config)
	require.NoError(t, err)
	_, err = a.js.Publish(t.Context(), a.subject(clusterKey), newRecord(8).encode())
	require.NoError(t, err)
	select {
	case <-a.Failed():
	case <-time.After(time.Minute):
		require.FailNow(t, "it goes on")
	}
	s, err := a.js.Stream(t.Context(), a.streamName())
	require.NoError(t, err)
	require.Equal(t, uint64(1), s.CachedInfo().State.LastSeq)
}
