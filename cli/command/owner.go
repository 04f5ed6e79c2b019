package command

import (
	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire/api"
)

// Owned adds --owner, --reason and --force to a command that changes values with an owner. Flags that
// it has already count as well. Call it when its PreRunE is set.
func Owned(cmd *cobra.Command) *cobra.Command {
	flags := cmd.Flags()
	flags.String("owner", "", "`name` of who owns the value from now on, such as a team or service")
	if flags.Lookup("reason") == nil {
		flags.String("reason", "", "`text` for the audit log, kept beside the owner")
	}
	if flags.Lookup("force") == nil {
		flags.Bool("force", false, "also change what belongs to another owner")
	}
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		text := func(name string) string { return cmd.Flag(name).Value.String() }
		cmd.SetContext(client.As(cmd.Context(), api.Sender{Owner: text("owner"), Reason: text("reason"), Force: text("force") == "true"}))
		if before != nil {
			return before(cmd, args)
		}
		return nil
	}
	return cmd
}

// Warnings returns the warnings of a reply, one per line.
func Warnings(all []string) (text string) {
	for _, warning := range all {
		text += "warning: " + terminal.Clean(warning) + "\n"
	}
	return text
}
