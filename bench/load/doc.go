// Package load is the load of a benchmark: producers and consumers in one process, so that one
// clock measures latencies. [Run] is the process; it reads a [Spec] and writes [Result]s. A
// load is a list of phases (engine.go), each with a crew of producers and consumers. sampler.go
// samples long phases by interval, and ledger.go accounts for each message.
package load
