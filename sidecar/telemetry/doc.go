// Package telemetry is what is for those who watch fila: [Metrics], a registry of
// Prometheus of its own, and [HTTP], the listener that serves them beside health
// checks and profiles. [LimitLog] makes a log that clients cannot flood. It knows
// nothing of messages.
//
// Counting costs an atomic addition and no look-up: whoever counts for a queue
// keeps its [Queue]. What others count or know at any moment is read at a scrape
// ([Metrics.SetGauges], [Metrics.SetSync]). Labels name queues, hooks, severities
// and error codes, and circuits as far as the configuration names them: never
// fairness keys, consumers or anything else that producers choose freely.
// docs/metrics.md lists every name.
//
// Everything is safe for concurrent use.
package telemetry
