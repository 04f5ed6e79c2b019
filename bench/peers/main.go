package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/filaq/fila/bench/load"
	"github.com/filaq/fila/bench/system"
)

// peer is a queue of another project.
type peer struct {
	// start starts the server, with its data in a directory, and returns its URL. With sync the
	// server syncs every write; a server without such a setting ignores it.
	start func(s *server, sync bool) (url string, err error)
	// open opens the only queue of a server.
	open func(url string) (system.Target, error)
}

// peers are the queues by the system that they are for.
var peers = map[system.Name]peer{
	system.RabbitMQ:        {startRabbitMQ, func(url string) (system.Target, error) { return openRabbitMQ(url, "quorum") }},
	system.RabbitMQClassic: {startRabbitMQ, func(url string) (system.Target, error) { return openRabbitMQ(url, "classic") }},
	system.Asynq:           {startRedis, openAsynq},
	system.AsynqSync:       {startRedis, openAsynq},
	system.River:           {startPostgreSQL, openRiver},
	system.Beanstalkd:      {startBeanstalkd, openBeanstalkd},
	system.BeanstalkdSync:  {startBeanstalkd, openBeanstalkd},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers: "+err.Error())
		os.Exit(1)
	}
}

// run is a process of a measurement: the arguments are the same as of the hidden commands of fila bench.
func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	switch {
	case len(args) == 2 && args[0] == "bench" && args[1] == "load":
		return load.Run(ctx, in, out, open)
	case len(args) == 4 && args[0] == "bench" && args[1] == "node":
		return runServer(ctx, system.Name(args[2]), args[3], out)
	}
	return errors.New("this program is run by `fila bench --peers FILE --workload peers`")
}

func find(name system.Name) (peer, error) {
	p, ok := peers[name]
	if !ok {
		return p, fmt.Errorf("system %q is not a peer: allowed is one of %v", name, system.Peers())
	}
	return p, nil
}

func open(name system.Name, access *system.Access, _ *system.Queue, _ func(error)) (system.Target, error) {
	p, err := find(name)
	if err != nil {
		return nil, err
	}
	return p.open(access.URL)
}
