// Package gatecmd has the commands about flow control: fila throttle, circuit, pause and
// resume; explain, which shows what a message waits for; and guard, for calls that are not
// messages.
package gatecmd
