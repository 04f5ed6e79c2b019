// Package e2e holds the black-box tests of fila: they build the real binary
// once per run, start it as a child process with a data directory of its own,
// and talk to it as its users do, with raw NATS subjects, JSON and headers, over
// HTTP, and with the command line. Nothing here imports another package of the
// project but store, to make and to read files: what these tests hold is the
// published protocol.
//
// What a package shows by itself is not shown again here. These tests are for what
// needs a process, NATS or a disk: kills, restarts, faults of the disk, connections
// that are lost, logins, signals and the command line, and for one way through each
// feature.
//
// Most tests share one fila process and keep apart by queue names, see shared.
// Tests that stop, kill, restart or misconfigure fila start their own, see
// startFila. Every child is killed at the end: by the test that started it, and,
// if the test binary itself dies, by a reaper process that notices.
//
// Flags of `go test ./sidecar/e2e`:
//
//	-fila.bin PATH    use this binary instead of building one
//	-fila.kills N     rounds of TestCrash, TestCrashWithGates, TestJobsAreKilledOnTheWay,
//	                  TestNATSRestartUnderLoad, TestFleetOutlives* and
//	                  TestClusterOutlivesTrouble (default 3; the long run takes 50 and more)
//	-fila.letters N   messages of TestJobsAreKilledOnTheWay and TestJobsMeasure (default 3000;
//	                  the long run takes 1,000,000)
//	-fila.measure     run TestFleetMeasure and TestJobsMeasure, which print figures (with -v)
//	-fila.trouble T   only rounds of TestClusterOutlivesTrouble whose name has this text
//	-fila.seed N      seed of their choices, as printed by an earlier run
//
// What fails in a fleet has helpers of its own: natsCluster is NATS servers that are
// processes, to be killed and frozen, with the one that leads a stream; link is a network
// between two of them that is cut, late, or half-open.
//
// With -race the child is built with the race detector as well, and a report of
// it fails the test. With -short the large tests shrink.
package e2e
