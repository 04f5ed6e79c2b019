// Package hookcmd is fila hook: check and run try Lua scripts without a server,
// reset closes the circuit of the hooks of a queue.
package hookcmd
