package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/applycmd"
	"github.com/filaq/fila/cli/clustercmd"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/gatecmd"
	"github.com/filaq/fila/cli/hookcmd"
	"github.com/filaq/fila/cli/messagecmd"
	"github.com/filaq/fila/cli/opscmd"
	"github.com/filaq/fila/cli/queuecmd"
	"github.com/filaq/fila/cli/storecmd"
)

// app is one invocation of the program.
type app struct {
	*command.Env
	newServer serverFactory
}

// Main runs the fila command with the arguments after its name and returns the exit code. It
// prints a problem as one line on errOut.
func Main(args []string, in io.Reader, out, errOut io.Writer) int {
	return run(context.Background(), &app{&command.Env{}, newSidecar}, args, in, out, errOut)
}

func run(ctx context.Context, a *app, args []string, in io.Reader, out, errOut io.Writer) int {
	return command.Run(ctx, a.Env, newRootCommand(a), args, in, out, errOut)
}

// commands returns all commands of fila.
func (a *app) commands() []*cobra.Command {
	all := []*cobra.Command{newServeCommand(a), newRulesCommand(a)}
	for _, group := range []func(*command.Env) []*cobra.Command{
		queuecmd.Commands, applycmd.Commands, messagecmd.Commands, gatecmd.Commands, hookcmd.Commands, storecmd.Commands, clustercmd.Commands, opscmd.Commands,
	} {
		all = append(all, group(a.Env)...)
	}
	return all
}

func newRootCommand(a *app) *cobra.Command {
	root := a.Root(a.commands()...)
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
