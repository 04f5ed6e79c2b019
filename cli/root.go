package cli

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/cobra"
)

// Main runs the fila command with the arguments after its name and returns the
// exit code. It prints a problem as one line on errOut.
func Main(args []string, in io.Reader, out, errOut io.Writer) int {
	a := &app{newServer: newSidecar}
	return run(context.Background(), a, newRootCommand(a), args, in, out, errOut)
}

func newRootCommand(a *app) *cobra.Command {
	a.readScript, a.conn.contexts = readScript, natsContexts{}
	serve := newServeCommand(a)
	allow(serve, "log-level", "debug", "info", "warn", "error")
	allow(serve, "log-format", "text", "json")
	root := a.root(slices.Concat([]*cobra.Command{serve},
		queueCommands(a), messageCommands(a), gateCommands(a), hookCommands(a), storeCommands(a), opsCommands(a))...)
	root.Short = "A scheduling sidecar for NATS: fair, weighted, durable queues"
	root.Long = `fila decides which message of a queue goes next: fairly between tenants, by
weight, within rate limits, and only to a consumer that can work on it now.

Start one with "fila serve". All other commands talk to a running fila over
NATS and find it like the nats CLI does: --server, --context, NATS_URL, or the
selected context, and nats://127.0.0.1:4222 otherwise.`
	root.Example = `  fila demo
  fila serve
  fila queue create orders --fairness-header tenant
  fila publish orders '{"id":1}' -H tenant=acme
  fila consume orders --count 1
  fila queue inspect orders
  fila top
  fila throttle set stripe --rate 10
  fila explain queue orders`
	return root
}
