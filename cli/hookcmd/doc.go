// Package hookcmd is fila hook: check and run test Lua scripts without a server, and reset
// closes the circuit of the hooks of a queue.
package hookcmd
