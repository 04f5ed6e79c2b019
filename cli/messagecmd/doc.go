// Package messagecmd has the commands that move or show messages: fila publish, consume, peek,
// message, dead, redrive, job and schedule.
//
// publish reads messages from a source and sends many of them through a pipeline, which waits
// for their confirmations in order. consume is a consumption: it prints each message or runs a
// command for it, and counts.
package messagecmd
