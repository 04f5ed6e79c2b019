// Package bench is `fila bench`: it measures fila, JetStream and bare NATS side by side, on one
// machine and in one run.
//
// [Run] starts processes: the server under test (`fila serve`, or a [system.RunNode] process
// with JetStream or with bare hops) and a load process ([load.Run]) that is producer and
// consumer at once, so that one clock measures latencies. Every measurement has new servers in
// a new directory. In each round the servers take turns, and ratios compare figures of the same
// round, so that other load on the machine affects all of them.
//
// All systems get the same messages from the same code over the same number of connections.
// workloads.go and lanes.go say what is measured, package system has the differences between
// systems, package load runs a load, and package measure has the tools. A soak (soak.go) is a
// workload with figures for each interval that accounts for every message. The result is a
// [report.Report].
package bench
