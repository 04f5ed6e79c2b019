package opscmd

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/filaq/fila/bench"
)

// Processes of the cluster demo: three times `fila serve`, whose NATS servers form one cluster.
const (
	nodesPatience = time.Minute // time for the cluster to form
	nodeTail      = 5           // last lines of output to keep of a node
)

// clusterNodes are the names of the nodes.
var clusterNodes = []string{"a", "b", "c"}

// demoNode is a node's process.
type demoNode struct {
	name  string
	cmd   *exec.Cmd
	ready chan string   // receives the URL of its NATS server
	ended chan struct{} // closed when it has ended
	tail  []string      // last lines of output; read after ended
	dead  atomic.Bool   // the demo killed it
}

// startNodes starts all nodes with their data in dir, and waits until they serve. After an
// error none of them runs.
func startNodes(ctx context.Context, dir string, queues []string) (nodes []*demoNode, urls []string, err error) {
	defer func() {
		if err != nil {
			killNodes(nodes)
		}
	}()
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("find this program to start it again: %w", err)
	}
	routes, err := bench.FreeAddresses(len(clusterNodes))
	if err != nil {
		return nil, nil, err
	}
	for i, name := range clusterNodes {
		n, err := startNode(exe, filepath.Join(dir, name), name, nodeConfig(i, routes, queues))
		if err != nil {
			return nodes, nil, err
		}
		nodes = append(nodes, n)
	}
	late := time.NewTimer(nodesPatience)
	defer late.Stop()
	for _, n := range nodes {
		select {
		case url := <-n.ready:
			urls = append(urls, url)
		case <-n.ended:
			return nodes, nil, fmt.Errorf("node %s has ended: %s", n.name, strings.Join(n.tail, "; "))
		case <-late.C:
			return nodes, nil, fmt.Errorf("node %s is not ready after %s: this machine is too busy for the demo", n.name, nodesPatience)
		case <-ctx.Done():
			return nodes, nil, ctx.Err()
		}
	}
	return nodes, urls, nil
}

// nodeConfig returns the configuration file of a node. There are as many shards as queues.
func nodeConfig(i int, routes, queues []string) string {
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
`, routes[i], strings.Join(routes, `", "`), clusterNodes[i], len(queues))
	for _, queue := range queues {
		fmt.Fprintf(&b, "[[queue]]\nname = %q\nvisibility_timeout_ms = %d\n", queue, clusterVisibility.Milliseconds())
	}
	return b.String()
}

func startNode(exe, dir, name, config string) (*demoNode, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	n := &demoNode{name: name, cmd: exec.Command(exe, "serve", "--config", file), ready: make(chan string, 1), ended: make(chan struct{})}
	bench.DieWithParent(n.cmd)
	n.cmd.Dir = dir
	n.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "FILA_") })
	read, write := io.Pipe()
	n.cmd.Stdout, n.cmd.Stderr = write, write
	if err := n.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start node %s: %w", name, err)
	}
	go func() {
		_ = n.cmd.Wait() // its output says why it ended
		_ = write.Close()
	}()
	go n.listen(read)
	return n, nil
}

// listen reads the output of the node until it ends.
func (n *demoNode) listen(read io.Reader) {
	defer close(n.ended)
	for lines := bufio.NewReader(read); ; {
		line, err := lines.ReadBytes('\n')
		if text := string(bytes.TrimSpace(line)); text != "" {
			n.tail = append(n.tail[max(len(n.tail)-nodeTail+1, 0):], text)
			if _, rest, ok := strings.Cut(text, "fila is ready: nats="); ok {
				url, _, _ := strings.Cut(rest, " ")
				n.ready <- url
			}
		}
		if err != nil {
			return
		}
	}
}

// kill ends the node as a crash would, and returns when it is gone.
func (n *demoNode) kill() {
	n.dead.Store(true)
	_ = n.cmd.Process.Kill() // the process may have ended already
	<-n.ended
}

func killNodes(nodes []*demoNode) {
	for _, n := range nodes {
		n.kill()
	}
}

// fell returns an error if a node ended without being killed.
func fell(nodes []*demoNode) error {
	for _, n := range nodes {
		select {
		case <-n.ended:
			if !n.dead.Load() {
				return fmt.Errorf("node %s has ended: %s", n.name, strings.Join(n.tail, "; "))
			}
		default:
		}
	}
	return nil
}
