package sidecar

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// TestMain fails when a test leaves a goroutine behind. It runs more tests in parallel than there are
// cores, unless the command line sets a number: parallel tests mostly wait for silent owners.
func TestMain(m *testing.M) {
	natstest.MoreParallel(32)
	lastExport = time.Minute // a loaded machine may take its time
	setPasswords()           // for the whole process, since tests that use them are parallel
	// nats.go leaves it behind when a connection closes just as its first message is published.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
}
