package cli

import (
	"flag"
	"fmt"
	"os"
	"slices"
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

// shared are the groups of flags that several commands have. The reference has each
// group once, and only the names if another page explains it.
var shared = []struct {
	title, intro string
	explained    bool
	commands     []string
}{
	{"Flags that select messages", "[The workbench](workbench.md#which-messages) explains them.", true, []string{"fila dead list", "fila job create", "fila peek"}},
	{"Flags that set a queue", "The keys of [`[[queue]]`](configuration.md#queue), with their defaults, explain them.", true, []string{"fila queue create", "fila queue update"}},
	{"Flags that end a pause", "Without them, a pause lasts until it is resumed.", false, []string{"fila pause circuit", "fila pause key", "fila pause queue", "fila pause throttle"}},
}

func reference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("\n## Flags of every command\n\n")
	writeFlags(&b, flagLines(root.PersistentFlags()))
	groups := map[string]string{} // title of the group, by command
	common := map[string][]string{}
	for _, group := range shared {
		for i, path := range group.commands {
			cmd, _, err := root.Find(strings.Fields(path)[1:])
			if err != nil {
				panic(err)
			}
			groups[path] = group.title
			lines := flagLines(cmd.LocalNonPersistentFlags())
			if i == 0 {
				common[group.title] = lines
			}
			common[group.title] = slices.DeleteFunc(common[group.title], func(line string) bool { return !slices.Contains(lines, line) })
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", group.title, group.intro)
		if group.explained {
			names := slices.Clone(common[group.title])
			for i, line := range names {
				names[i], _, _ = strings.Cut(line, ":")
			}
			fmt.Fprintf(&b, "%s\n", strings.Join(names, ", "))
		} else {
			writeFlags(&b, common[group.title])
		}
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if sub.Hidden || sub.Name() == "help" || sub.Name() == "completion" || command.IsTopic(sub) {
				continue
			}
			title := groups[sub.CommandPath()]
			writeCommand(&b, sub, title, common[title])
			walk(sub)
		}
	}
	walk(root)
	return b.String()
}

// writeCommand writes the section of a command. group is the title of the shared flags
// that it has, and common are their lines.
func writeCommand(b *strings.Builder, cmd *cobra.Command, group string, common []string) {
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	title := cmd.CommandPath()
	if !cmd.HasAvailableSubCommands() {
		title = strings.TrimSuffix(cmd.UseLine(), " [flags]")
	}
	if from, to := strings.Index(text, "The systems:\n"), strings.Index(text, "The workloads:\n"); cmd.Name() == "bench" && from >= 0 && to > from {
		text = text[:from] + "[Benchmarks](benchmarks.md#systems) explains the systems.\n\n" + text[to:]
	}
	text = strings.ReplaceAll("\n"+text, "\n  ", "\n    ") // a table in columns is a block of code
	fmt.Fprintf(b, "\n## %s\n%s\n", title, text)
	if cmd.HasAvailableSubCommands() {
		return
	}
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(b, "\nAlso `%s`.\n", strings.Join(cmd.Aliases, "`, `"))
	}
	if cmd.Example != "" {
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", strings.ReplaceAll(strings.TrimPrefix(cmd.Example, "  "), "\n  ", "\n"))
	}
	own := slices.DeleteFunc(flagLines(cmd.LocalNonPersistentFlags()), func(line string) bool { return slices.Contains(common, line) })
	if group != "" {
		own = append(own, fmt.Sprintf("[%s](#%s)", strings.ToLower(group[:1])+group[1:], strings.ReplaceAll(strings.ToLower(group), " ", "-")))
	}
	if len(own) > 0 {
		b.WriteString("\n")
		writeFlags(b, own)
	}
}

func writeFlags(b *strings.Builder, lines []string) {
	for _, line := range lines {
		fmt.Fprintf(b, "- %s\n", line)
	}
}

// flagLines has one line for each flag. It names a default unless that is the zero value.
func flagLines(flags *pflag.FlagSet) []string {
	var lines []string
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
		if !slices.Contains([]string{"", "[]", "false", "0", "0s"}, f.DefValue) {
			usage += fmt.Sprintf(" (default `%s`)", f.DefValue)
		}
		lines = append(lines, fmt.Sprintf("`%s`: %s", name, usage))
	})
	return lines
}
