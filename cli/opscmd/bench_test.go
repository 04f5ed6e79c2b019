package opscmd_test

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/bench"
	"github.com/filaq/fila/bench/report"
	"github.com/filaq/fila/bench/system"
	"github.com/filaq/fila/cli"
	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/opscmd"
	"github.com/filaq/fila/wire/api"
)

// actAsFila makes the test binary behave as fila, for the processes that fila
// bench starts.
const actAsFila = "TEST_ACT_AS_FILA"

var program = clitest.Program(opscmd.Commands)

func TestMain(m *testing.M) {
	if os.Getenv(actAsFila) != "" {
		os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func TestBenchMistakes(t *testing.T) {
	clitest.Isolate(t)
	program.Mistakes(t, map[string]string{
		"bench --workload lief":                 `workload "lief" is not known: allowed is enqueue, life`,
		"bench --system kafka":                  `system "kafka" is not known: allowed is fila, fila-min`,
		"bench --system rabbitmq":               `system "rabbitmq" needs the program with the clients`,
		"bench --peers no/such/program":         `--peers: exec: "no/such/program": stat no/such/program: no such file`,
		"bench --rounds 0":                      "--rounds 0: allowed is more than 0",
		"bench --count 0":                       "--count 0: allowed is more than 0",
		"bench --duration 0s":                   "--duration 0: allowed is more than 0",
		"bench --duration 1s --count 5":         "both a duration (1s) and a count (5) are given",
		"bench --size 3":                        "size is 3: allowed is 16 to",
		"bench --workload soak --rounds 3":      "a soak is one long round: allowed is 1",
		"bench --workload soak --workload life": "workload soak takes the machine to itself",
		"bench --url=":                          "--url is empty",
		"bench --url a --server b":              "--url and --server say the same",
		"bench life":                            `unexpected argument "life"`,
	})
}

func TestBenchOfARunningFilaThatIsNotThere(t *testing.T) {
	clitest.Isolate(t)
	clitest.Complains(t, program.Run(t, "", "bench", "--url", "nats://127.0.0.1:1"), command.ExitConnect, "no NATS server answers at nats://127.0.0.1:1")

	url := clitest.StartNATS(t, nil).ClientURL()
	clitest.Complains(t, program.Run(t, "", "bench", "--url", url), command.ExitConnect, "no fila listens")
}

func TestBenchOfARunningFilaRefusesWhatItCannotDo(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer(f.Subjects.Admin(api.VerbQueueList.Name, ""), api.QueueList{})
	for want, args := range map[string][]string{
		`workload "recovery" needs a server of its own`: {"--workload", "recovery"},
		`workload "soak" needs a server of its own`:     {"--workload", "soak"},
		`system "jetstream" cannot be measured on a`:    {"--system", "jetstream"},
		"--dir is for servers that fila bench starts":   {"--dir", t.TempDir()},
	} {
		clitest.Complains(t, program.Run(t, "", append([]string{"bench", "--url", f.NC.ConnectedUrl()}, args...)...), command.ExitUsage, want)
	}
}

func TestBenchHelpNamesEveryWorkloadAndSystem(t *testing.T) {
	r := clitest.OK(t, program.Run(t, "", "bench", "--help"))
	for _, w := range bench.Workloads() {
		require.Contains(t, r.Out, "  "+w.Name+" ")
	}
	for _, name := range system.Names() {
		require.Contains(t, r.Out, "  "+name+" ")
	}
	require.NotContains(t, r.Out, "node")
}

func TestBenchInternalCommands(t *testing.T) {
	r := program.Run(t, "", "bench", "node", "abacus", t.TempDir())
	require.Contains(t, r.Err, `node "abacus" is not known`)
	clitest.Complains(t, program.Run(t, "{", "bench", "load"), command.ExitFailed, "the load's instructions")
}

// Every measurement with few messages: all processes start, all systems work, and no file is
// left.
func TestBenchSmoke(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	clitest.Isolate(t)
	t.Setenv(actAsFila, "1")
	dir := t.TempDir()
	chart := filepath.Join(t.TempDir(), "chart.svg")
	report := clitest.JSON[report.Report](t, program.Run(t, "", "bench", "--quick", "--count", "40", "--backlog", "100", "--json", "--dir", dir, "--chart", chart))
	require.Zero(t, report.Failures())
	require.True(t, report.Settings.Quick)
	measured := map[string]bool{}
	for _, w := range report.Workloads {
		require.NotEmpty(t, w.Lanes, w.Name)
		for _, l := range w.Lanes {
			measured[w.Name], measured[l.System] = true, true
			require.Len(t, l.Rounds, 1, w.Name)
			require.NotEmpty(t, l.Figures, w.Name)
			require.Empty(t, l.Notes, w.Name)
		}
	}
	for _, name := range []string{
		"enqueue", "life", "life-confirmed", "latency", "keys", "hook", "throttle", "consumers", "slow", "backlog", "memory", "recovery",
		"fila", "fila-min", "fila-batch", "fila-fifo", "hops", "hops-wire", "jetstream", "jetstream-sync",
	} {
		require.True(t, measured[name], name)
	}
	require.NotEmpty(t, report.Goals)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "the data is gone")

	requireXML(t, chart)
}

// The processes of a cluster start, find each other, and end.
func TestBenchCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	clitest.Isolate(t)
	t.Setenv(actAsFila, "1")
	dir := t.TempDir()
	report := clitest.JSON[report.Report](t, program.Run(t, "", "bench", "--quick", "--count", "40", "--workload", "cluster",
		"--system", "fila", "--system", "fila-r3", "--system", "jetstream-r3", "--json", "--dir", dir))
	require.Zero(t, report.Failures())
	require.Len(t, report.Workloads[0].Lanes, 3)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "the data is gone")
}

func requireXML(t *testing.T, file string) {
	t.Helper()
	data, err := os.Open(file)
	require.NoError(t, err)
	defer func() { require.NoError(t, data.Close()) }()
	dec := xml.NewDecoder(data)
	for err == nil {
		_, err = dec.Token()
	}
	require.True(t, errors.Is(err, io.EOF), err)
}

// A soak of a second accounts for every message, and its report and chart have the intervals.
func TestBenchSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	clitest.Isolate(t)
	t.Setenv(actAsFila, "1")
	chart := filepath.Join(t.TempDir(), "soak.svg")
	r := program.Run(t, "", "bench", "--workload", "soak", "--quick", "--duration", "1s", "--json", "--dir", t.TempDir(), "--chart", chart)
	report := clitest.JSON[report.Report](t, r)
	require.Contains(t, r.Err, "soak: ", "it says how it goes")
	require.True(t, report.Settings.Soak)
	require.Len(t, report.Workloads, 1)
	require.Len(t, report.Workloads[0].Lanes, 1)
	soak := report.Workloads[0].Lanes[0]
	require.Empty(t, soak.Errors)
	require.Empty(t, soak.Notes)
	require.NotEmpty(t, soak.Series)
	require.Positive(t, soak.Figures["accounted_messages"].Median)
	require.Positive(t, soak.Figures["nacked_messages"].Median)
	require.Zero(t, soak.Figures["stray_deliveries"].Median)
	require.Positive(t, soak.Series[0]["files_mb"])
	requireXML(t, chart)
}
