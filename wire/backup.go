package wire

// VerbStoreBackup makes fila write a copy of its store into the directory
// backups of its data directory. It has no tail and no fields: nobody names a
// path over NATS.
const VerbStoreBackup = "store-backup"

// CodeBackupFailed is the number of [BackupFailed].
const CodeBackupFailed = 12500

// StoreBackupReply says what a backup has written. Path is absolute, on the
// machine of fila.
type StoreBackupReply struct {
	Path       string `json:"path"`
	Bytes      int64  `json:"bytes"`
	DurationMs int64  `json:"duration_ms"`
}

// BackupFailed answers when a backup could not be written. The store is not
// affected.
func BackupFailed(detail string) *Error {
	return newError(CodeBackupFailed, "no backup was made: %s", detail)
}
