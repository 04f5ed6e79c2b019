package client

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

func TestStoreBackup(t *testing.T) {
	srv := startNATS(t)
	f, c := startFake(t, srv), newClient(t, srv)
	var answer any = StoreBackupReply{Path: "/data/backups/x.db", Bytes: 5, DurationMs: 6}
	got := make(chan *nats.Msg, 2)
	_, err := f.nc.Subscribe("fila.admin.store-backup", func(msg *nats.Msg) {
		got <- msg
		f.reply(msg, answer)
	})
	require.NoError(t, err)
	require.NoError(t, f.nc.Flush())
	reply, err := c.StoreBackup(t.Context())
	require.NoError(t, err)
	require.Equal(t, answer, reply)
	require.Empty(t, (<-got).Data)
	answer = wire.BackupFailed("no room")
	_, err = c.StoreBackup(t.Context())
	var refused *Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, wire.CodeBackupFailed, refused.ErrCode)
}
