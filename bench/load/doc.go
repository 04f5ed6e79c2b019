// Package load is the load of a benchmark: producers and consumers in one
// process, so that latencies are taken with one clock. A [Spec] tells it what to
// do, [Run] is the process, and its answers are [Result]s.
//
// A load is a list of phases (engine.go), each with a crew of producers and
// consumers. Long phases are sampled interval by interval (sampler.go), and each
// of their messages can be accounted for (ledger.go).
package load
