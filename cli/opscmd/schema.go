package opscmd

import (
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/schemas"
)

func newSchemaCommand(env *command.Env) *cobra.Command {
	names := func(_ *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return command.Words(schemas.Names(), prefix)
	}
	return command.Group(&cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schemas of the protocol and of fila apply",
		Long: `The binary contains the JSON Schemas (2020-12) of all requests, replies, events, errors
and header sets, of the documents of fila apply, and an AsyncAPI 3 document of all subjects.
No server is needed.`,
	}, &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the names of all schemas",
		Example: `  fila schema list
  fila schema list | grep ^event`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return env.Show(cmd, schemas.Names(), func() string { return strings.Join(schemas.Names(), "\n") + "\n" })
		},
	}, &cobra.Command{
		Use: "show NAME", Short: "Print a schema",
		Example: `  fila schema show queue-create.request
  fila schema show asyncapi
  fila schema show apply > apply.schema.json # for editors`,
		ValidArgsFunction: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			schema, ok := schemas.Get(args[0])
			if !ok {
				return command.UsageError("no schema %q: %sfila schema list has all names", args[0], command.DidYouMean(command.Near(args[0], schemas.Names())))
			}
			return env.Show(cmd, json.RawMessage(schema), func() string { return string(schema) })
		},
	})
}
