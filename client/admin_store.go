package client

import (
	"context"

	"github.com/filaq/fila/wire"
)

// StoreBackupReply says where a backup of the store is.
type StoreBackupReply = wire.StoreBackupReply

// StoreBackup makes fila write a copy of its store into the directory backups of
// its data directory, and returns when it is on disk. fila goes on meanwhile. It
// takes as long as the disk needs for the whole file: give ctx a deadline that
// allows for it, as otherwise the client's timeout counts.
func (c *Client) StoreBackup(ctx context.Context) (StoreBackupReply, error) {
	var reply StoreBackupReply
	err := c.call(ctx, c.subjects.Admin(wire.VerbStoreBackup, ""), nil, &reply)
	return reply, err
}
