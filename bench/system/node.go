package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// nodeMaxPending is the setting of fila's embedded server.
const nodeMaxPending = 256 << 20

// ServerVersion is the version of the embedded NATS server, which all systems run.
const ServerVersion = server.VERSION

// Node is a running server of a system other than fila.
type Node struct {
	server *server.Server
	others []*server.Server
	middle *nats.Conn // nil: JetStream
}

// RunNode is the server process of a system other than fila. It listens on a free port of
// 127.0.0.1, keeps its files in dir, prints on out that it is ready, and runs until ctx ends.
func RunNode(ctx context.Context, kind, dir string, out io.Writer) error {
	n, err := StartNode(Name(kind), dir)
	if err != nil {
		return err
	}
	defer n.Close()
	if _, err := fmt.Fprintf(out, "node is ready: nats=%s\n", n.URL()); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// StartNode starts the server of [RunNode].
func StartNode(name Name, dir string) (*Node, error) {
	if name.is(kindReplicated) {
		all, err := startServers(dir, name.Synced())
		if err != nil {
			return nil, err
		}
		return &Node{server: all[0], others: all[1:]}, nil
	}
	opts := &server.Options{
		ServerName: "fila-bench", Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true,
		MaxPending: nodeMaxPending,
	}
	switch {
	case name.is(kindHops):
		opts.NoSublistCache = true // as in fila; JetStream gains nothing from it
	case name.is(kindStream):
		opts.JetStream, opts.StoreDir, opts.SyncAlways = true, dir, name.Synced()
		opts.JetStreamMaxStore = 1 << 40 // the disk is the limit
	default:
		nodes := namesOf(func(k kind) bool { return k == kindHops || k == kindStream || k == kindReplicated })
		return nil, fmt.Errorf("node %q is not known: allowed is one of %s", name, strings.Join(nodes, ", "))
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	srv.Start()
	n := &Node{server: srv}
	switch {
	case !srv.ReadyForConnections(time.Minute):
		err = errors.New("the NATS server does not get ready")
	case opts.JetStream && !srv.JetStreamEnabled():
		err = fmt.Errorf("JetStream does not start in %s", dir)
	case name.is(kindHops):
		n.middle, err = startMiddle(srv, name == HopsWire)
	}
	if err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// URL returns the address of the server.
func (n *Node) URL() string { return n.server.ClientURL() }

// Close stops the server and waits for its end.
func (n *Node) Close() {
	if n.middle != nil {
		n.middle.Close()
	}
	for _, srv := range append(n.others, n.server) {
		srv.Shutdown()
		srv.WaitForShutdown()
	}
}
