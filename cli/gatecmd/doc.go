// Package gatecmd is the commands about what lets messages pass: fila throttle,
// circuit, pause and resume, explain, which says what a message waits for, and guard, for
// calls that are no messages.
package gatecmd
