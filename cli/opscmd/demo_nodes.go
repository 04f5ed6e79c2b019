package opscmd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/filaq/fila/bench"
)

// clusterNodes are the names of the nodes of the cluster demo: three times `fila serve`, whose
// NATS servers form one cluster.
var clusterNodes = []string{"a", "b", "c"}

// startNodes starts all nodes, which run until the demo is over, and waits until they serve. It
// returns the URLs of their NATS servers. A node that ends by itself ends the demo.
func (d *clusterPlay) startNodes(ctx context.Context) (urls []string, err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program to start it again: %w", err)
	}
	routes, err := bench.FreeAddresses(len(clusterNodes))
	if err != nil {
		return nil, err
	}
	running, kill := context.WithCancel(context.WithoutCancel(ctx))
	d.atEnd(func() error {
		kill()
		return nil
	})
	var cmds []*exec.Cmd
	for i, name := range clusterNodes {
		dir := filepath.Join(d.dir, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		file := filepath.Join(dir, "config.toml")
		if err := os.WriteFile(file, []byte(nodeConfig(i, routes)), 0o600); err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(running, exe, "serve", "--config", file)
		cmd.Dir = dir
		cmds = append(cmds, cmd)
	}
	started := context.AfterFunc(ctx, kill) // later an interrupt stops the clients first
	nodes, err := bench.StartServers("demo", true, cmds...)
	if err != nil {
		return nil, err
	}
	started()
	d.nodes = map[string]*bench.Server{}
	for i, n := range nodes {
		name := clusterNodes[i]
		d.nodes[name], urls = n, append(urls, n.URL)
		d.atEnd(func() error {
			n.Kill()
			return nil
		})
		go func() {
			<-n.Ended()
			if name != d.victim() {
				_ = d.failed(fmt.Errorf("node %s has ended: %s", name, n.LastLines()))
			}
		}()
	}
	return urls, nil
}

// nodeConfig returns the configuration file of a node. There are as many shards as queues.
func nodeConfig(i int, routes []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `data_dir = "data"
[http]
addr = ""
[log]
level = "warn"
[nats.embedded]
port = -1
jetstream = true
[nats.embedded.cluster]
name = "demo"
listen = %q
routes = ["%s"]
[cluster]
enabled = true
name = "demo"
node = %q
shards = %d
`, routes[i], strings.Join(routes, `", "`), clusterNodes[i], len(clusterQueues))
	for _, queue := range clusterQueues {
		fmt.Fprintf(&b, "[[queue]]\nname = %q\nvisibility_timeout_ms = %d\n", queue, clusterVisibility.Milliseconds())
	}
	return b.String()
}
