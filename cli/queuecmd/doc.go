// Package queuecmd is fila queue: it creates, changes, shows and deletes queues. flags.go has
// the flags of settings; a command sends only the given ones.
package queuecmd
