package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/filaq/fila/bench/load"
	"github.com/filaq/fila/bench/measure"
	"github.com/filaq/fila/bench/system"
)

// childRole makes the test binary one of the processes that a run starts.
const childRole = "BENCH_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(childRole) {
	case "broken":
		fmt.Println("first line")
		fmt.Println("no disk")
		os.Exit(3)
	case "talker":
		fmt.Print("a\nb\nc\nd\n\n e \nf\ng") // the last line has no end
		os.Exit(1)
	case "server":
		fmt.Println("fila is ready: nats=nats://127.0.0.1:1 http=off data_dir=x")
		select {}
	case "load":
		say(load.Result{Sample: measure.Sample{"rate": 5}, Notes: []string{"a note"}})
	case "sampled load":
		fmt.Println("a word")
		say(load.Result{Point: measure.Sample{"at_s": 1}}, load.Result{Point: measure.Sample{"at_s": 2}}, load.Result{Sample: measure.Sample{"rate": 5}})
	case "failed load":
		say(load.Result{Error: "no server", Notes: []string{"a note"}})
	case "silent load":
	default:
		goleak.VerifyTestMain(m)
	}
}

func say(results ...load.Result) {
	for _, r := range results {
		if json.NewEncoder(os.Stdout).Encode(r) != nil {
			os.Exit(1)
		}
	}
}

func TestServerProcess(t *testing.T) {
	r := runner{exe: os.Args[0]}
	t.Setenv(childRole, "broken")
	_, err := r.server(t.Context(), system.JetStream, t.TempDir(), false)
	require.ErrorContains(t, err, "the jetstream server ended (exit status 3): first line; no disk")

	t.Setenv(childRole, "server")
	for _, sys := range []system.Name{system.Fila, system.Hops} {
		srv, err := r.server(t.Context(), sys, t.TempDir(), true)
		require.NoError(t, err)
		require.Equal(t, "nats://127.0.0.1:1", srv.URL)
		require.Positive(t, srv.took)
		srv.kill()
		require.NotNil(t, srv.cmd.ProcessState, "it is gone")
	}

	r.exe = filepath.Join(t.TempDir(), "nothing")
	_, err = r.server(t.Context(), system.Hops, t.TempDir(), false)
	require.ErrorContains(t, err, "start hops")
}

func TestLoadProcess(t *testing.T) {
	r := runner{exe: os.Args[0]}
	t.Setenv(childRole, "load")
	result, err := r.load(t.Context(), &load.Spec{}, nil)
	require.NoError(t, err)
	require.Equal(t, measure.Sample{"rate": 5}, result.Sample)

	t.Setenv(childRole, "sampled load")
	var points []measure.Sample
	result, err = r.load(t.Context(), &load.Spec{}, func(p measure.Sample) { points = append(points, p) })
	require.NoError(t, err)
	require.Equal(t, []measure.Sample{{"at_s": 1}, {"at_s": 2}}, points)
	require.Equal(t, measure.Sample{"rate": 5}, result.Sample)

	t.Setenv(childRole, "failed load")
	_, err = r.load(t.Context(), &load.Spec{}, nil)
	require.EqualError(t, err, "no server; a note")

	t.Setenv(childRole, "broken")
	_, err = r.load(t.Context(), &load.Spec{}, nil)
	require.ErrorContains(t, err, "the load process failed: exit status 3")

	t.Setenv(childRole, "silent load")
	_, err = r.load(t.Context(), &load.Spec{}, nil)
	require.EqualError(t, err, "the load process printed no result: it printed nothing")
}

func TestPerMessageBytes(t *testing.T) {
	s := measure.Sample{"tenth_server_anon_mb": 100, "full_server_anon_mb": 200, "full_messages": 1 << 20, "tenth_messages": 1 << 16}
	perMessage(s, 1024)
	require.EqualValues(t, 100, s["per_message_bytes"])
	delete(s, "per_message_bytes")
	perMessage(s, 1023)
	require.NotContains(t, s, "per_message_bytes", "the caches were not full")
	s = measure.Sample{"full_server_anon_mb": 200}
	perMessage(s, 1024)
	require.Len(t, s, 1)
}

func TestReadyURL(t *testing.T) {
	url, ok := readyURL("fila is ready: nats=nats://127.0.0.1:4222 http=off data_dir=/x")
	require.True(t, ok)
	require.Equal(t, "nats://127.0.0.1:4222", url)
	for _, line := range []string{"level=WARN msg=hm nats=nats://x", "fila is ready: http=off"} {
		_, ok := readyURL(line)
		require.False(t, ok, line)
	}
}

func TestEnvironmentOfChildren(t *testing.T) {
	require.Equal(t, []string{"HOME=/x", "GOGC=400"}, environment([]string{"HOME=/x", "FILA_LOG__LEVEL=debug"}, false))
	require.Equal(t, []string{"GOGC=50"}, environment([]string{"GOGC=50"}, false), "who names one gets it")
	require.Empty(t, environment([]string{"FILA_X=1"}, true))
}

func TestLastLines(t *testing.T) {
	r := runner{exe: os.Args[0]}
	t.Setenv(childRole, "talker")
	_, err := r.load(t.Context(), &load.Spec{}, nil)
	require.EqualError(t, err, "the load process failed: exit status 1: c; d; e; f; g")
}

func TestDescribe(t *testing.T) {
	env, err := describe("1.0.0", t.TempDir())
	require.NoError(t, err)
	require.Positive(t, env.SyncUs)
	require.Positive(t, env.CPUs)
	_, err = describe("1.0.0", "/does/not/exist")
	require.ErrorContains(t, err, "data directory")
}
