// Package messagecmd is the commands that move messages, or look at them: fila
// publish, consume, peek, message, dead and redrive.
//
// publish takes its messages from a source and sends many of them through a
// pipeline, which waits for their confirmations in order. consume is a
// consumption: it prints each message or runs a command for it, and counts.
package messagecmd
