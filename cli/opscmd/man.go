package opscmd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
)

func newManCommand(*command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages into a directory",
		Long: `Write the help of every command as a manual page, such as fila-publish.1, into a
directory. The command creates a missing directory.`,
		Example: `  fila man /usr/local/share/man/man1
  fila man man && man -l man/fila-publish.1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("%s: %w", args[0], command.PathReason(err))
			}
			pages := 0
			for _, c := range commandTree(cmd.Root()) {
				path := filepath.Join(args[0], manName(c)+".1")
				if err := os.WriteFile(path, []byte(manPage(c, command.ReadBuildInfo().Version)), 0o644); err != nil {
					return fmt.Errorf("%s: %w", path, command.PathReason(err))
				}
				pages++
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s written to %s\n", terminal.Plural(int64(pages), "manual page"), args[0])
			return err
		},
	}
}

// commandTree returns a command and all visible commands below it.
func commandTree(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range shown(cmd) {
		all = append(all, commandTree(sub)...)
	}
	return all
}

// shown returns the commands below one that have a page.
func shown(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(sub *cobra.Command) bool { return sub.Hidden || sub.Name() == "help" || command.IsTopic(sub) })
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage returns a manual page in man(7) format. It has no date, so that the same source makes
// the same pages.
func manPage(cmd *cobra.Command, version string) string {
	var b strings.Builder
	section := func(title string) { fmt.Fprintf(&b, ".SH %s\n", title) }
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"fila %s\" \"fila manual\"\n", roffQuote(strings.ToUpper(manName(cmd))), roff(version))
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", roff(manName(cmd)), roff(cmd.Short))
	section("SYNOPSIS")
	fmt.Fprintf(&b, ".B %s\n", roff(cmd.UseLine()))
	section("DESCRIPTION")
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	roffText(&b, text)
	if cmd.LocalNonPersistentFlags().HasAvailableFlags() {
		section("OPTIONS")
		roffFlags(&b, cmd.LocalNonPersistentFlags())
	}
	section("OPTIONS OF EVERY COMMAND")
	if cmd.HasParent() {
		b.WriteString("They are in\n.BR fila (1).\n")
	} else {
		roffFlags(&b, cmd.PersistentFlags())
	}
	if cmd.Example != "" {
		section("EXAMPLES")
		fmt.Fprintf(&b, ".EX\n%s\n.EE\n", roffLines(cmd.Example))
	}
	var also []string
	if cmd.HasParent() {
		also = append(also, manName(cmd.Parent()))
	}
	for _, sub := range shown(cmd) {
		also = append(also, manName(sub))
	}
	if len(also) > 0 {
		section("SEE ALSO")
		for i, name := range also {
			also[i] = ".BR " + roff(name) + " (1)"
		}
		b.WriteString(strings.Join(also, ",\n") + "\n")
	}
	return b.String()
}

func roffFlags(b *strings.Builder, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		placeholder, usage := pflag.UnquoteUsage(f)
		names := "\\fB" + roff("--"+f.Name) + "\\fR"
		if f.Shorthand != "" {
			names = "\\fB" + roff("-"+f.Shorthand) + "\\fR, " + names
		}
		if placeholder != "" {
			names += " \\fI" + roff(placeholder) + "\\fR"
		}
		if d := f.DefValue; d != "" && d != "[]" && d != "false" && d != "0" && d != "0s" {
			usage += " (default " + d + ")"
		}
		fmt.Fprintf(b, ".TP\n%s\n%s\n", names, roffLines(usage))
	})
}

// roffText writes paragraphs; indented text stays as it is.
func roffText(b *strings.Builder, text string) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if strings.HasPrefix(paragraph, " ") {
			fmt.Fprintf(b, ".PP\n.EX\n%s\n.EE\n", roffLines(paragraph))
			continue
		}
		fmt.Fprintf(b, ".PP\n%s\n", roffLines(paragraph))
	}
}

func roffLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = roff(lines[i])
	}
	return strings.Join(lines, "\n")
}

// roff escapes a line: backslashes, hyphens (so that they can be copied), and a dot or quote at
// the beginning.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", "\\`", "^", `\(ha`, "~", `\(ti`).Replace(line)
	if strings.HasPrefix(line, ".") {
		line = `\&` + line
	}
	return line
}

func roffQuote(text string) string { return `"` + roff(text) + `"` }
