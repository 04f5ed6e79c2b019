package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// flagsTopic is the help topic with the common flags. Help texts refer to it instead of
// repeating them.
func flagsTopic(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "flags",
		Short: "Flags of every command: the NATS server, the login and the output",
		Long:  "Flags of every command, with their environment variables:\n\n" + strings.TrimRight(root.PersistentFlags().FlagUsages(), "\n"),
	}
}

// usage writes the part of a command's help after its description.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s [command]\n", cmd.CommandPath())
	} else {
		fmt.Fprintf(&b, "  %s\n", cmd.UseLine())
	}
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(&b, "\nAliases:\n  %s\n", cmd.NameAndAliases())
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	commands(&b, cmd)
	if flags := cmd.LocalNonPersistentFlags(); flags.HasAvailableFlags() {
		fmt.Fprintf(&b, "\nFlags:\n%s", flags.FlagUsages())
	}
	b.WriteString("\nFlags of every command, such as --server, --timeout and --json: fila help flags\n")
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "More about a command: %s [command] --help\n", cmd.CommandPath())
	}
	_, err := cmd.OutOrStderr().Write([]byte(b.String()))
	return err
}

// commands lists the subcommands of a command.
func commands(b *strings.Builder, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	b.WriteString("\nCommands:\n")
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			fmt.Fprintf(b, "  %-*s %s\n", cmd.Commands()[0].NamePadding(), sub.Name(), sub.Short)
		}
	}
}

// IsTopic reports whether a command is only a help text.
func IsTopic(cmd *cobra.Command) bool { return cmd.IsAdditionalHelpTopicCommand() }
