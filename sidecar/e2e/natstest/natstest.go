// Package natstest runs NATS servers in the process of a test.
package natstest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
)

// Server is a NATS server that can stop and start again on its port.
type Server struct {
	*server.Server
	URL  string
	t    testing.TB
	opts server.Options
}

// Start runs a server on a free port of 127.0.0.1 until the end of the test. Each change may set
// options; a server with JetStream has its files in a directory of the test.
func Start(t testing.TB, change ...func(*server.Options)) *Server {
	t.Helper()
	s := &Server{t: t, opts: server.Options{Host: "127.0.0.1", Port: FreePort(), NoSigs: true, NoLog: true}}
	for _, c := range change {
		c(&s.opts)
	}
	if s.opts.JetStream && s.opts.StoreDir == "" {
		s.opts.StoreDir = t.TempDir()
	}
	s.URL = fmt.Sprintf("nats://127.0.0.1:%d", s.opts.Port)
	s.Again()
	t.Cleanup(s.Stop)
	return s
}

// JetStream makes Start run a server with JetStream.
func JetStream(o *server.Options) { o.JetStream = true }

// Again starts a server that was stopped, on its port and files.
func (s *Server) Again() {
	s.t.Helper()
	opts := s.opts
	srv, err := server.NewServer(&opts)
	require.NoError(s.t, err)
	srv.Start()
	s.Server = srv
	require.True(s.t, srv.ReadyForConnections(time.Minute), "the NATS server does not start")
}

// Stop stops the server. It is safe to repeat.
func (s *Server) Stop() {
	s.Shutdown()
	s.WaitForShutdown()
}

var ports struct {
	sync.Mutex
	taken []net.PacketConn
}

// FreePort returns a free TCP port of 127.0.0.1 that no test has got before, in this process or in
// another that still runs: the process keeps the UDP port of the same number, as the sign that it
// has taken it. The port is below the usual range of ephemeral ports, so no outgoing connection
// takes it while a server restarts.
func FreePort() int {
	ports.Lock()
	defer ports.Unlock()
	for {
		port := 12_000 + rand.IntN(20_000)
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		taken, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			_ = taken.Close()
			continue
		}
		_ = l.Close()
		ports.taken = append(ports.taken, taken)
		return port
	}
}

// MoreParallel runs more tests in parallel than there are cores, unless the command line sets the
// number: tests with servers mostly wait. A TestMain calls it.
func MoreParallel(least int) {
	flag.Parse()
	f := flag.Lookup("test.parallel")
	if n := max(least, 2*runtime.GOMAXPROCS(0)); f.Value.String() == f.DefValue {
		_ = flag.Set("test.parallel", strconv.Itoa(n))
	}
}
