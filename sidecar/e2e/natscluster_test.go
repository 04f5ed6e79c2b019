//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/build"
	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// natsCluster is several NATS server processes with JetStream. They do not advertise each
// other, so a client uses only its own addresses and cannot bypass a [link].
type natsCluster struct {
	t       testing.TB
	servers []*natsNode
}

// natsNode is one server of a cluster.
type natsNode struct {
	name   string
	addr   string // for clients
	status string // base URL for monitoring
	config string
	log    *logBuffer
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has been waited for
	frozen bool
}

// startCluster starts n servers, waits until they have a leader, and kills them at the end of
// the test.
func startCluster(t testing.TB, n int) *natsCluster {
	t.Helper()
	c := &natsCluster{t: t}
	dir := t.TempDir()
	var routes []string
	for range n {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", natstest.FreePort()))
	}
	for i, route := range routes {
		s := &natsNode{name: fmt.Sprint("n", i), addr: fmt.Sprintf("127.0.0.1:%d", natstest.FreePort()), log: &logBuffer{}}
		status := fmt.Sprintf("127.0.0.1:%d", natstest.FreePort())
		s.status, s.config = "http://"+status, filepath.Join(dir, s.name+".conf")
		text := fmt.Sprintf("server_name: %s\nlisten: %q\nhttp: %q\njetstream { store_dir: %q }\ncluster { name: c, listen: %q, no_advertise: true, routes: [%s] }\n",
			s.name, s.addr, status, filepath.Join(dir, s.name), strings.TrimPrefix(route, "nats://"), strings.Join(routes, ", "))
		require.NoError(t, os.WriteFile(s.config, []byte(text), 0o600))
		c.servers = append(c.servers, s)
	}
	t.Cleanup(func() {
		for i, s := range c.servers {
			c.Kill(i)
			if t.Failed() {
				t.Logf("log of NATS server %s:\n%s", s.name, s.log.warnings(30))
			}
		}
	})
	for i := range c.servers {
		c.start(i)
	}
	c.WaitHealthy()
	return c
}

// URL returns the addresses of all servers.
func (c *natsCluster) URL() string {
	var urls []string
	for _, s := range c.servers {
		urls = append(urls, "nats://"+s.addr)
	}
	return strings.Join(urls, ",")
}

func (c *natsCluster) start(i int) {
	c.t.Helper()
	s := c.servers[i]
	s.cmd, s.exited = exec.Command(os.Args[0]), make(chan struct{})
	s.cmd.Env = append(cleanEnv(), roleEnv+"=nats", natsConfigEnv+"="+s.config)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	wait, err := build.Start(s.cmd)
	require.NoError(c.t, err)
	go func() {
		wait()
		close(s.exited)
	}()
}

// Kill ends server i with SIGKILL. It is safe to repeat.
func (c *natsCluster) Kill(i int) {
	s := c.servers[i]
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.exited
	s.frozen = false
}

// Restart starts server i on its stored data, killing it first if it runs.
func (c *natsCluster) Restart(i int) {
	c.t.Helper()
	c.Kill(i)
	c.start(i)
}

// Freeze stops server i with SIGSTOP: its connections stay open and nothing answers.
func (c *natsCluster) Freeze(i int) {
	c.t.Helper()
	freeze(c.t, c.servers[i].cmd.Process)
	c.servers[i].frozen = true
}

// Thaw continues a frozen server.
func (c *natsCluster) Thaw(i int) {
	c.t.Helper()
	require.NoError(c.t, c.servers[i].cmd.Process.Signal(syscall.SIGCONT))
	c.servers[i].frozen = false
}

// jetStream is a part of the monitoring reply about JetStream.
type jetStream struct {
	Meta struct {
		Leader string `json:"leader"`
	} `json:"meta_cluster"`
	Accounts []struct {
		Streams []struct {
			Name    string `json:"name"`
			Cluster struct {
				Leader string `json:"leader"`
			} `json:"cluster"`
		} `json:"stream_detail"`
	} `json:"account_details"`
}

// ask gets a monitoring page of server i; ok is false unless it answers 200.
func (c *natsCluster) ask(i int, path string, reply any) (ok bool) {
	s := c.servers[i]
	if s.frozen {
		return false
	}
	web := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := web.Get(s.status + path)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode == http.StatusOK && (reply == nil || json.NewDecoder(resp.Body).Decode(reply) == nil)
}

// leads returns the server that reports itself as the leader that find returns, or -1.
func (c *natsCluster) leads(find func(jetStream) string) int {
	for i, s := range c.servers {
		var js jetStream
		if c.ask(i, "/jsz?accounts=true&streams=true", &js) && find(js) == s.name {
			return i
		}
	}
	return -1
}

// leaderNow returns the server that leads a stream, or -1. It asks no frozen server.
func (c *natsCluster) leaderNow(stream string) int {
	return c.leads(func(js jetStream) string {
		for _, a := range js.Accounts {
			for _, s := range a.Streams {
				if s.Name == stream {
					return s.Cluster.Leader
				}
			}
		}
		return ""
	})
}

// Leader waits until a running server leads a stream, and returns it.
func (c *natsCluster) Leader(stream string) int {
	c.t.Helper()
	return c.await(func() int { return c.leaderNow(stream) }, "no server leads the stream "+stream)
}

// MetaLeader waits until a running server leads the cluster, and returns it.
func (c *natsCluster) MetaLeader() int {
	c.t.Helper()
	return c.await(func() int { return c.leads(func(js jetStream) string { return js.Meta.Leader }) }, "no server leads the cluster")
}

func (c *natsCluster) await(find func() int, msg string) int {
	c.t.Helper()
	leader := -1
	eventually(c.t, func() bool { leader = find(); return leader >= 0 }, msg)
	return leader
}

// healthy reports whether all servers are up and in sync.
func (c *natsCluster) healthy() bool {
	for i := range c.servers {
		if !c.ask(i, "/healthz", nil) {
			return false
		}
	}
	return true
}

// WaitHealthy waits until all servers are up, have a leader, and are in sync.
func (c *natsCluster) WaitHealthy() {
	c.t.Helper()
	c.MetaLeader()
	eventually(c.t, c.healthy, "the servers are not healthy")
}
