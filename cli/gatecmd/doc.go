// Package gatecmd is the commands about what lets messages pass: fila throttle,
// circuit, pause and resume, and explain, which says what a message waits for.
package gatecmd
