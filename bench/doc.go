// Package bench is `fila bench`: it measures fila side by side with JetStream
// and with bare NATS, on one machine and in one run.
//
// [Run] starts everything it needs as processes of its own: the server under
// test (`fila serve`, or a [RunNode] process with JetStream or with bare hops)
// and a load process ([RunLoad]) that is producer and consumer at once, so that
// latencies are taken with one clock. Every measurement gets fresh servers in a
// fresh directory. The servers take turns within each round, and ratios are made
// of figures of the same round: what else the machine does hits all of them.
//
// All systems get the same messages from the same code over the same number of
// connections. What differs is in target.go: which subjects, and how a consumer
// is set up.
//
// What is measured is in catalog.go, how in engine.go. A soak (soak.go) is a
// workload whose figures are reported interval by interval (sampler.go), and each
// of whose messages is accounted for (ledger.go). A [Report] is the
// result: a table with [Report.WriteTable], JSON as it is, a chart with
// [Report.Chart].
package bench
