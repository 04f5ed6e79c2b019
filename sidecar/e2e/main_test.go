package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/filaq/fila/sidecar/e2e/build"
	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// roleEnv makes the test binary act as a helper process instead of running tests.
const roleEnv = "FILA_E2E_ROLE"

var (
	flagBin      = flag.String("fila.bin", "", "fila binary to test; empty builds it")
	flagOld      = flag.String("fila.old", "", "an older binary, for TestRollingUpgrade")
	flagKills    = flag.Int("fila.kills", 1, "rounds of the tests that kill fila and restart NATS")
	flagKind     = flag.String("fila.trouble", "", "only rounds of TestClusterOutlivesTrouble whose name has this text")
	flagMessages = flag.Int("fila.messages", 3000, "messages of the tests of jobs that kill fila or print figures")
	flagMeasure  = flag.Bool("fila.measure", false, "run what prints figures")
	flagSeed     = flag.Uint64("fila.seed", 0, "seed of the crash test; 0 takes a new one")
)

// binary is the path of the fila binary under test. TestMain sets it.
var binary string

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleEnv); role {
	case "":
		natstest.MoreParallel(6)
		os.Exit(runTests(m))
	case "consumer":
		childConsumer()
	case "nats":
		natsProcess()
	default:
		fmt.Fprintf(os.Stderr, "unknown %s %q\n", roleEnv, role)
		os.Exit(2)
	}
}

func runTests(m *testing.M) int {
	work, err := os.MkdirTemp("", "fila-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(work) }()
	if binary, err = buildFila(work); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// buildFila puts the binary into dir, unless a flag names one.
func buildFila(dir string) (string, error) {
	if *flagBin != "" {
		return filepath.Abs(*flagBin)
	}
	return build.Binary(dir, raceEnabled)
}
