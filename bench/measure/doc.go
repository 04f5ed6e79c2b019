// Package measure is what a benchmark measures with: [Latencies] of messages,
// the [Usage] of processes, and the arithmetic of [Sample] and [Summary], which
// are figures of one measurement and of all its rounds.
//
// Histograms are those of HdrHistogram, processes are read with procfs on Linux
// and with ps elsewhere (docs/adr/0011).
package measure
