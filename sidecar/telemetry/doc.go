// Package telemetry has the tools to observe fila: [Metrics] is its own Prometheus registry,
// and [HTTP] is the listener that serves metrics, health checks and profiles. [LimitLog] makes
// a log that clients cannot flood. The package knows nothing of messages.
//
// Counting costs an atomic addition without a lookup, because callers keep the [Queue] that
// they count in. Values that other packages keep are read at a scrape ([Metrics.SetGauges],
// [Metrics.SetSync]). Labels name queues, hooks, severities and error codes, and the circuits
// that the configuration names, but never values that producers choose freely, such as fairness
// keys. docs/metrics.md lists every metric.
//
// Everything is safe for concurrent use.
package telemetry
