package e2e

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
)

// natsServer is an external NATS server in the test's process. It can stop and restart on its
// port.
type natsServer struct {
	URL  string
	opts server.Options
	s    *server.Server
}

// startNATS starts a server on a free port and stops it at the end of the test.
func startNATS(t testing.TB, change func(*server.Options)) *natsServer {
	t.Helper()
	n := &natsServer{opts: server.Options{Host: "127.0.0.1", Port: freePort(), NoSigs: true, NoLog: true}}
	if change != nil {
		change(&n.opts)
	}
	n.URL = fmt.Sprintf("nats://127.0.0.1:%d", n.opts.Port)
	n.start(t)
	t.Cleanup(n.stop)
	return n
}

func (n *natsServer) start(t testing.TB) {
	t.Helper()
	opts := n.opts
	s, err := server.NewServer(&opts)
	require.NoError(t, err)
	go s.Start()
	n.s = s
	require.True(t, s.ReadyForConnections(patience), "nats-server must start")
}

func (n *natsServer) stop() {
	n.s.Shutdown()
	n.s.WaitForShutdown()
}
