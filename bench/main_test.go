package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// childRole makes the test binary one of the processes that a run starts.
const childRole = "BENCH_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(childRole) {
	case "broken":
		fmt.Println("first line")
		fmt.Println("no disk")
		os.Exit(3)
	case "server":
		fmt.Println("fila is ready: nats=nats://127.0.0.1:1 http=off data_dir=x")
		select {}
	case "load":
		if err := json.NewEncoder(os.Stdout).Encode(loadResult{Sample: Sample{"rate": 5}, Notes: []string{"a note"}}); err != nil {
			os.Exit(1)
		}
	case "sampled load":
		answers := json.NewEncoder(os.Stdout)
		for _, r := range []loadResult{{Point: Sample{"at_s": 1}}, {Point: Sample{"at_s": 2}}, {Sample: Sample{"rate": 5}}} {
			if err := answers.Encode(r); err != nil {
				os.Exit(1)
			}
		}
	case "failed load":
		if err := json.NewEncoder(os.Stdout).Encode(loadResult{Error: "no server", Notes: []string{"a note"}}); err != nil {
			os.Exit(1)
		}
	default:
		goleak.VerifyTestMain(m)
	}
}

func TestServerProcess(t *testing.T) {
	r := runner{exe: os.Args[0]}
	t.Setenv(childRole, "broken")
	_, err := r.server(t.Context(), sysJS, t.TempDir(), false)
	require.ErrorContains(t, err, "the jetstream server ended (exit status 3): first line; no disk")

	t.Setenv(childRole, "server")
	for _, sys := range []system{sysFila, sysHops} {
		srv, err := r.server(t.Context(), sys, t.TempDir(), true)
		require.NoError(t, err)
		require.Equal(t, "nats://127.0.0.1:1", srv.url)
		require.Positive(t, srv.took)
		srv.kill()
		require.NotNil(t, srv.cmd.ProcessState, "it is gone")
	}

	r.exe = filepath.Join(t.TempDir(), "nothing")
	_, err = r.server(t.Context(), sysHops, t.TempDir(), false)
	require.ErrorContains(t, err, "start hops")
}

func TestLoadProcess(t *testing.T) {
	r := runner{exe: os.Args[0]}
	t.Setenv(childRole, "load")
	result, err := r.load(t.Context(), &loadSpec{}, nil)
	require.NoError(t, err)
	require.Equal(t, Sample{"rate": 5}, result.Sample)

	t.Setenv(childRole, "sampled load")
	var points []Sample
	result, err = r.load(t.Context(), &loadSpec{}, func(p Sample) { points = append(points, p) })
	require.NoError(t, err)
	require.Equal(t, []Sample{{"at_s": 1}, {"at_s": 2}}, points)
	require.Equal(t, Sample{"rate": 5}, result.Sample)

	t.Setenv(childRole, "failed load")
	_, err = r.load(t.Context(), &loadSpec{}, nil)
	require.EqualError(t, err, "no server; a note")

	t.Setenv(childRole, "broken")
	_, err = r.load(t.Context(), &loadSpec{}, nil)
	require.ErrorContains(t, err, "the load process failed: exit status 3")
}

// startNode runs a node in this process and returns its URL.
func startNode(t *testing.T, kind system) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	read, write := io.Pipe()
	ended := make(chan error, 1)
	dir := t.TempDir()
	go func() {
		err := RunNode(ctx, string(kind), dir, write)
		ended <- err
		_ = write.CloseWithError(err)
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	line, err := bufio.NewReader(read).ReadString('\n')
	require.NoError(t, err)
	url, ok := readyURL(line)
	require.True(t, ok, line)
	return url
}
