package sidecar

import (
	"flag"
	"runtime"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain fails when a test leaves a goroutine behind. More tests run at a time than there
// are cores, unless the command line says how many: those that are parallel wait for owners
// that are silent.
func TestMain(m *testing.M) {
	flag.Parse()
	f := flag.Lookup("test.parallel")
	if n := max(32, 2*runtime.GOMAXPROCS(0)); f.Value.String() == f.DefValue {
		_ = flag.Set("test.parallel", strconv.Itoa(n))
	}
	lastExport = time.Minute // a loaded machine may take its time
	setPasswords()           // of the whole process: tests with them are parallel
	// nats.go leaves it behind when a connection goes just as the first record is published.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
}
