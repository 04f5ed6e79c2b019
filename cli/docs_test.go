package cli

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/command"
)

var update = flag.Bool("update", false, "write docs/cli.md anew")

const (
	referencePath  = "../docs/cli.md"
	referenceStart = "<!-- From here on written by `go test ./cli -run TestReference -update`. -->\n"
)

// TestReference compares the reference part of docs/cli.md with the commands.
func TestReference(t *testing.T) {
	data, err := os.ReadFile(referencePath)
	require.NoError(t, err)
	head, _, ok := strings.Cut(string(data), referenceStart)
	require.True(t, ok, "docs/cli.md has lost its mark")
	want := head + referenceStart + reference(root())
	if *update {
		require.NoError(t, os.WriteFile(referencePath, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(data), "run go test ./cli -run TestReference -update")
}

// Every exit code that exit.go knows is in the table.
func TestExitCodesAreDocumented(t *testing.T) {
	data, err := os.ReadFile(referencePath)
	require.NoError(t, err)
	for _, code := range []int{command.ExitOK, command.ExitFailed, command.ExitUsage, command.ExitNotFound, command.ExitConflict, command.ExitRefused, command.ExitConnect, command.ExitDenied} {
		require.Contains(t, string(data), fmt.Sprintf("| %d | ", code))
	}
}

// No help names a default that is empty.
func TestHelpNamesDefaults(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		require.NotContains(t, cmd.UsageString(), "(default )", cmd.CommandPath())
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root())
}

func reference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("\n## Flags of every command\n\n")
	writeFlags(&b, root.PersistentFlags())
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if sub.Hidden || sub.Name() == "help" || sub.Name() == "completion" || command.IsTopic(sub) {
				continue
			}
			writeCommand(&b, sub)
			walk(sub)
		}
	}
	walk(root)
	return b.String()
}

func writeCommand(b *strings.Builder, cmd *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n", cmd.CommandPath())
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintln(b, text)
	if cmd.HasAvailableSubCommands() {
		return
	}
	fmt.Fprintf(b, "\n```\n%s\n```\n", cmd.UseLine())
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(b, "\nAlso: `%s`.\n", strings.Join(cmd.Aliases, "`, `"))
	}
	if cmd.Example != "" {
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", strings.ReplaceAll(strings.TrimPrefix(cmd.Example, "  "), "\n  ", "\n"))
	}
	if cmd.LocalNonPersistentFlags().HasAvailableFlags() {
		b.WriteString("\n")
		writeFlags(b, cmd.LocalNonPersistentFlags())
	}
}

func writeFlags(b *strings.Builder, flags *pflag.FlagSet) {
	b.WriteString("| flag | default | meaning |\n|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		placeholder, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if placeholder != "" {
			name += " " + placeholder
		}
		value := ""
		if f.DefValue != "" && f.DefValue != "[]" && f.DefValue != "false" {
			value = "`" + f.DefValue + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, value, strings.ReplaceAll(usage, "|", `\|`))
	})
}
