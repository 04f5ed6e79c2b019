// Package measure has the measuring tools of a benchmark: [Latencies] of messages, the [Usage]
// of processes, and the arithmetic of [Sample] and [Summary], the figures of one measurement
// and of all its rounds. It uses HdrHistogram, and reads processes with procfs on Linux and
// with ps elsewhere (docs/adr/0011).
package measure
