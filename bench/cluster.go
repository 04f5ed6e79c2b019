package bench

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/filaq/fila/bench/load"
	"github.com/filaq/fila/bench/system"
)

// clusterNodes is the number of nodes, and of NATS servers, of a cluster.
const clusterNodes = 3

// cluster starts a cluster of fila processes with embedded NATS servers. It counts as one
// server, whose process is the node that owns the only shard: CPU and memory are of that node
// alone.
func (r *runner) cluster(ctx context.Context, sys system.Name, dir string, ownGC bool) (*Server, error) {
	begin := time.Now()
	routes, err := FreeAddresses(clusterNodes)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", sys, err)
	}
	cmds := make([]*exec.Cmd, clusterNodes)
	for i := range cmds {
		if cmds[i], err = r.node(ctx, sys, filepath.Join(dir, nodeName(i)), i, routes); err != nil {
			return nil, fmt.Errorf("start %s: %w", sys, err)
		}
	}
	nodes, err := StartServers(string(sys), ownGC, cmds...)
	if err != nil {
		return nil, err
	}
	owner, err := ownerOf(ctx, nodes)
	srv := nodes[owner]
	srv.took, srv.others = time.Since(begin), slices.Delete(nodes, owner, owner+1)
	if err != nil {
		srv.kill()
		return nil, fmt.Errorf("start %s: %w", sys, err)
	}
	return srv, nil
}

// ownerOf waits until the nodes know each other, and returns the owner of the shard.
func ownerOf(ctx context.Context, nodes []*Server) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	name, err := system.OwnerOf(ctx, nodes[0].URL, len(nodes))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(name)
}

func nodeName(i int) string { return strconv.Itoa(i) }

// node returns the command of a cluster node.
func (r *runner) node(ctx context.Context, sys system.Name, dir string, i int, routes []string) (*exec.Cmd, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	syncs := "interval"
	if sys == system.FilaR3Sync {
		syncs = "always"
	}
	file := filepath.Join(dir, "bench.toml")
	text := fmt.Sprintf("[nats.embedded]\njetstream = true\njetstream_sync = %q\n[nats.embedded.cluster]\nname = \"bench\"\nlisten = %q\nroutes = [%q, %q, %q]\n"+
		"[cluster]\nenabled = true\nnode = %q\nshards = 1\n", syncs, routes[i], routes[0], routes[1], routes[2], nodeName(i))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, r.exe, "serve", "--config", file, "--data-dir", filepath.Join(dir, "data"),
		"--port", "-1", "--http", "", "--log-level", "warn")
	cmd.Dir = dir
	return cmd, nil
}

// FreeAddresses returns free addresses of this machine: the servers of a NATS cluster have to
// know each other's addresses before they start.
func FreeAddresses(n int) (addrs []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

// clusterSystems are a standalone fila, a fila cluster, and a stream with as many replicas;
// each cluster with NATS's default sync and with a sync before each ack.
var clusterSystems = []system.Name{system.Fila, system.FilaR3, system.FilaR3Sync, system.JetStreamR3, system.JetStreamR3Sync}

// clusterLanes measure one shard with three replicas.
func clusterLanes(o *Options) []lane {
	lanes := each([]int{fewWindow, window}, clusterSystems, func(inFlight int, sys system.Name) lane {
		return lane{Case: "lives, " + number(inFlight) + " in flight", spec: o.load(sys, o.life(1, inFlight)), quick: inFlight == window}
	})
	lanes = append(lanes, each([]int{window}, clusterSystems, func(inFlight int, sys system.Name) lane {
		p := o.life(1, inFlight)
		p.Mode, p.Consumers, p.MaxBytes = load.ModeEnqueue, 0, enoughBytes
		return lane{Case: "enqueues, " + number(inFlight) + " in flight", spec: o.load(sys, p)}
	})...)
	batched := []system.Name{system.Fila, system.FilaBatch, system.FilaR3, system.FilaR3Batch}
	lanes = append(lanes, each([]int{window}, batched, func(inFlight int, sys system.Name) lane {
		p := o.life(1, inFlight)
		p.Mode, p.Consumers, p.MaxBytes = load.ModeEnqueue, 0, enoughBytes
		spec := o.load(sys, p)
		spec.Random = true
		return lane{Case: "enqueues of random bytes, " + number(inFlight) + " in flight", spec: spec}
	})...)
	return append(lanes, each([]int{200}, clusterSystems, func(rate int, sys system.Name) lane {
		p := o.life(1, window)
		p.Mode, p.Consumers, p.Rate = load.ModeEnqueue, 0, float64(rate)
		return lane{Case: "enqueues, " + number(rate) + "/s", spec: o.load(sys, p)}
	})...)
}
