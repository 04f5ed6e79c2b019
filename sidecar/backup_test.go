package sidecar

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// TestStoreBackupVerb makes a backup over NATS and starts from it.
func TestStoreBackupVerb(t *testing.T) {
	dir, second := t.TempDir(), t.TempDir()
	var first string
	inBubble(t, func(t *testing.T) {
		x := startSite(t, dir, nil)
		x.must("fila.admin.queue-create.orders", ``, nil)
		first = x.enqueue("kept", nil)
		var r api.StoreBackupReply
		x.must("fila.admin.store-backup", ``, &r)
		x.enqueue("too late", nil)
		require.Equal(t, filepath.Join(dir, "backups"), filepath.Dir(r.Path))
		var log api.ConfigLog
		x.must("fila.admin.config-log", ``, &log)
		e := log.Entries[0]
		require.Equal(t, "store-backup store", e.By+" "+e.Key, "a copy holds payloads and the key of tokens")
		require.Contains(t, *e.New, r.Path)
		x.end()
		data, err := os.ReadFile(r.Path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(second, "fila.db"), data, 0o600))
	})
	inBubble(t, func(t *testing.T) {
		x := startSite(t, second, nil)
		ch, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
		m := <-ch
		require.Equal(t, first, m.Header.Get(wire.HeaderID))
		require.Equal(t, "kept", string(m.Data))
		x.none(ch)
		require.Nil(t, x.ack(m, ""))
		x.end()
	})
}
