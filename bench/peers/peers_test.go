package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/bench/load"
	"github.com/filaq/fila/bench/system"
)

// serve runs the server of a peer until the end of the test, and returns its URL. It skips the
// test where the server is not installed.
func serve(t *testing.T, name system.Name) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	ended := make(chan error, 1)
	dir := t.TempDir()
	go func() {
		err := runServer(ctx, name, dir, write)
		_ = write.CloseWithError(err)
		ended <- err
	}()
	line, err := io.ReadAll(io.LimitReader(read, int64(len(string(name)+" is ready: nats="))))
	if err != nil {
		cancel()
		if strings.Contains(err.Error(), exec.ErrNotFound.Error()) {
			t.Skip("the server is not installed: ", err)
		}
		t.Fatal(err)
	}
	require.Equal(t, string(name)+" is ready: nats=", string(line))
	url := make([]byte, 200)
	n, err := read.Read(url)
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return strings.TrimSpace(string(url[:n]))
}

// Every system that fila bench leaves to this program is here.
func TestPeersAreAllPeers(t *testing.T) {
	require.Len(t, peers, len(system.Peers()))
	for _, name := range system.Peers() {
		require.Contains(t, peers, system.Name(name))
	}
}

// A peer delivers every message, and confirms and keeps messages that nobody reads.
func TestPeer(t *testing.T) {
	for _, name := range system.Peers() {
		t.Run(name, func(t *testing.T) {
			url := serve(t, system.Name(name))
			for _, mode := range []load.Mode{load.ModeLife, load.ModeEnqueue} {
				result := runLoad(t, &load.Spec{
					System: system.Name(name), Access: system.Access{URL: url}, Payload: 64, Keys: 3,
					Phases: []load.Phase{{Mode: mode, Producers: 2, Consumers: 2, Window: 16, Count: 100}},
				})
				require.Empty(t, result.Error)
				require.Empty(t, result.Notes)
				require.GreaterOrEqual(t, result.Sample["messages"], 100.0)
				require.Positive(t, result.Sample["confirm_p50_us"])
				require.Equal(t, mode == load.ModeLife, result.Sample["deliver_p50_us"] > 0)
			}
			refused := runLoad(t, &load.Spec{
				System: system.Name(name), Access: system.Access{URL: url}, Payload: 64,
				Phases: []load.Phase{{Mode: load.ModeLife, Producers: 1, Consumers: 1, Window: 1, Count: 1, AckConfirmed: true}},
			})
			require.Contains(t, refused.Error, "confirmed acks: unsupported operation")
		})
	}
}

func runLoad(t *testing.T, spec *load.Spec) (result load.Result) {
	t.Helper()
	instructions, err := json.Marshal(spec)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"bench", "load"}, bytes.NewReader(instructions), &out))
	require.NoError(t, json.Unmarshal(out.Bytes(), &result))
	return result
}

func TestMistakes(t *testing.T) {
	require.ErrorContains(t, run(t.Context(), nil, nil, nil), "fila bench --peers FILE")
	require.ErrorContains(t, run(t.Context(), []string{"bench", "node", "kafka", t.TempDir()}, nil, nil), `"kafka" is not a peer: allowed is one of [rabbitmq`)
	_, err := open("kafka", &system.Access{}, nil, nil)
	require.ErrorContains(t, err, `"kafka" is not a peer`)

	s := &server{ctx: t.Context(), dir: t.TempDir(), ended: make(chan error, 1)}
	_, err = s.command([]string{"no-such-server", "/no/such/*/server"})
	require.ErrorIs(t, err, exec.ErrNotFound)
	require.ErrorContains(t, err, "no-such-server or /no/such/*/server")
}

// A server that ends while it is waited for says why.
func TestServerThatEnds(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken"), []byte("#!/bin/sh\necho the disk is full\nexit 3\n"), 0o700))
	s := &server{ctx: t.Context(), dir: t.TempDir(), ended: make(chan error, 1)}
	cmd, err := s.command([]string{filepath.Join(dir, "brok*")})
	require.NoError(t, err)
	require.NoError(t, s.start(cmd))
	err = s.wait(func() error { return io.EOF })
	require.ErrorContains(t, err, "exit status 3: the disk is full")
	require.ErrorIs(t, err, io.EOF)
}
