// Package hooks runs the Lua hooks of queues, on_enqueue and on_failure, in the
// sandbox of package hooks/sandbox.
//
// Compile checks a source and returns a Script. A Runner is one hook of one queue:
// a Script, a VM, a circuit breaker (package breaker) and counters. It answers
// every message with a decision: the decision of the script, within bounds, or the
// safe defaults if the script fails or the circuit is open. A Tester runs a Script
// by hand and reports the details.
//
// The names of headers are case-sensitive.
package hooks
