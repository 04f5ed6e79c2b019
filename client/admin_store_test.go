package client

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

func TestStoreBackupIsRefused(t *testing.T) {
	srv := startNATS(t)
	f, c := startFake(t, srv), newClient(t, srv)
	f.handle("fila.admin.store-backup", func(msg *nats.Msg) { f.reply(msg, wire.BackupFailed("no room")) })
	_, err := c.StoreBackup(t.Context())
	var refused *Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, wire.CodeBackupFailed, refused.ErrCode)
}
