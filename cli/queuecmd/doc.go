// Package queuecmd is fila queue: it creates, changes, shows and deletes queues.
// The flags of settings are in flags.go; only those that were given are sent.
package queuecmd
