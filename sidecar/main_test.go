package sidecar

import (
	"flag"
	"runtime"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain fails when a test leaves a goroutine behind. It runs more tests in parallel than there are
// cores, unless the command line sets a number: parallel tests mostly wait for silent owners.
func TestMain(m *testing.M) {
	flag.Parse()
	f := flag.Lookup("test.parallel")
	if n := max(32, 2*runtime.GOMAXPROCS(0)); f.Value.String() == f.DefValue {
		_ = flag.Set("test.parallel", strconv.Itoa(n))
	}
	lastExport = time.Minute // a loaded machine may take its time
	setPasswords()           // for the whole process, since tests that use them are parallel
	// nats.go leaves it behind when a connection closes just as its first message is published.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
}
