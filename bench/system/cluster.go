package system

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/client"
)

// replicas is the number of replicas in a cluster of NATS servers.
const replicas = 3

// statusEvery is the interval between two status requests to a fila cluster.
const statusEvery = 100 * time.Millisecond

// OwnerOf waits until all nodes of a cluster with one shard know each other and one of them
// owns it. It returns the owner's name.
func OwnerOf(ctx context.Context, url string, nodes int) (string, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return "", fmt.Errorf("connect to NATS: %w", err)
	}
	defer nc.Close()
	c, err := client.New(nc)
	if err != nil {
		return "", err
	}
	for {
		st, err := c.ClusterStatus(ctx)
		if err == nil && len(st.Nodes) == nodes && st.Shards[0].Owner != "" {
			return st.Shards[0].Owner, nil
		}
		select {
		case <-time.After(statusEvery):
		case <-ctx.Done():
			return "", errors.Join(ctx.Err(), err)
		}
	}
}

// startServers starts NATS servers that form a cluster with JetStream.
func startServers(dir string, syncAlways bool) ([]*server.Server, error) {
	var all []*server.Server
	stop := func() {
		for _, srv := range all {
			srv.Shutdown()
		}
	}
	var routes string
	for i := range replicas {
		srv, err := server.NewServer(&server.Options{
			ServerName: "fila-bench-" + strconv.Itoa(i), Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, MaxPending: nodeMaxPending,
			Cluster: server.ClusterOpts{Name: "bench", Host: "127.0.0.1", Port: server.RANDOM_PORT}, Routes: server.RoutesFromStr(routes),
			JetStream: true, StoreDir: filepath.Join(dir, strconv.Itoa(i)), SyncAlways: syncAlways, JetStreamMaxStore: 1 << 40,
		})
		if err != nil {
			stop()
			return nil, err
		}
		all = append(all, srv)
		srv.Start()
		if !srv.ReadyForConnections(time.Minute) {
			stop()
			return nil, errors.New("a NATS server does not get ready")
		}
		if i == 0 {
			routes = "nats://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(srv.ClusterAddr().Port))
		}
	}
	formed := func(srv *server.Server) bool {
		return srv.JetStreamIsLeader() && len(srv.JetStreamClusterPeers()) == replicas
	}
	for deadline := time.Now().Add(time.Minute); !slices.ContainsFunc(all, formed); time.Sleep(statusEvery) {
		if time.Now().After(deadline) {
			stop()
			return nil, errors.New("the NATS servers do not form a cluster")
		}
	}
	return all, nil
}
