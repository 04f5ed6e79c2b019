// Package bench is `fila bench`: it measures fila side by side with JetStream
// and with bare NATS, on one machine and in one run.
//
// [Run] starts everything it needs as processes of its own: the server under
// test (`fila serve`, or a [system.RunNode] process with JetStream or with bare
// hops) and a load process ([load.Run]) that is producer and consumer at once, so
// that latencies are taken with one clock. Every measurement gets fresh servers in
// a fresh directory. The servers take turns within each round, and ratios are made
// of figures of the same round: what else the machine does hits all of them.
//
// All systems get the same messages from the same code over the same number of
// connections. What is measured is in workloads.go and lanes.go; what differs
// between systems is in package system, how a load runs in package load, what with
// in package measure. A soak (soak.go) is a workload whose figures are reported
// interval by interval, and each of whose messages is accounted for. The result is
// a [report.Report].
package bench
