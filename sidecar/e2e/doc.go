// Package e2e has the black-box tests of fila. They start the real binary as a child process
// with its own data directory and use it as users do: raw NATS subjects, JSON and headers,
// HTTP, and the command line. Apart from store, which makes and reads files, the tests import
// no other package of the project, so they hold the published protocol.
//
// The tests cover what needs a process, NATS or a disk: kills, restarts, disk faults, lost
// connections, logins, signals, the command line, and one way through each feature. Other
// packages test their own rules.
//
// Most tests share one fila process and use different queues, see shared. Tests that stop,
// kill, restart or misconfigure fila start their own, see startFila. The test that starts a
// child kills it; if the test binary dies, build.Start kills it.
//
// Flags of `go test ./sidecar/e2e`:
//
//	-fila.bin PATH    use this binary instead of building one
//	-fila.kills N     rounds of TestCrash, TestCrashWithGates, TestJobsAreKilledOnTheWay,
//	                  TestNATSRestartUnderLoad, TestFleetOutlivesServers and
//	                  TestClusterOutlivesTrouble (default 1; .ci/run --all takes 18)
//	-fila.messages N   messages of TestJobsAreKilledOnTheWay and TestJobsMeasure (default 3000)
//	-fila.measure     run the tests that print figures (with -v)
//	-fila.trouble T   only rounds of TestClusterOutlivesTrouble whose name contains T
//	-fila.seed N      seed of random choices, as printed by an earlier run
//
// natsCluster runs NATS servers as processes, which tests kill and freeze. link is a network
// link between two processes that tests cut, delay, or open in one direction only.
//
// With -race the child has the race detector, too, and its reports fail the test. With -short
// the large tests shrink.
package e2e
