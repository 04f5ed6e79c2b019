package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
)

func TestManPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	var out, errOut clitest.Buffer
	require.Zero(t, Main([]string{"man", dir}, nil, &out, &errOut), errOut.String())
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	require.NoError(t, err)
	require.Contains(t, out.String(), fmt.Sprintf("%d manual pages written to %s", len(pages), dir))
	root := root()
	root.InitDefaultCompletionCmd()
	var all []string
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "help" || command.IsTopic(cmd) {
			return
		}
		all = append(all, strings.ReplaceAll(cmd.CommandPath(), " ", "-"))
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	require.Len(t, pages, len(all))
	request := regexp.MustCompile(`^\.(TH|SH|TP|PP|EX|EE|B|BR)( |$)`)
	for _, name := range all {
		data, err := os.ReadFile(filepath.Join(dir, name+".1"))
		require.NoError(t, err)
		page := string(data)
		require.Equal(t, name == "fila", strings.Contains(page, `\-\-tlscert`), "options of every command are on one page")
		require.Contains(t, page, ".SH NAME\n"+strings.ReplaceAll(name, "-", `\-`)+` \- `)
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, ".") {
				require.Regexp(t, request, strings.TrimSuffix(line, "\n"), "a line of text would be taken as a command")
			}
			require.NotContains(t, line, "'", "it would be a command at the beginning, and a quote elsewhere")
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "fila-publish.1"))
	require.NoError(t, err)
	require.Contains(t, string(data), `\fB\-H\fR, \fB\-\-header\fR \fIname=value\fR`)
	require.Contains(t, string(data), ".SH SEE ALSO\n.BR fila (1)\n")

	if groff, err := exec.LookPath("groff"); err == nil {
		out, err := exec.Command(groff, append([]string{"-man", "-ww", "-z", "-Tutf8"}, pages...)...).CombinedOutput()
		require.NoError(t, err)
		require.Empty(t, string(out), "groff has nothing to complain about")
	}

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Contains(t, program.Run(t, "", "man", file).Err, "fila: "+file+": not a directory")
}
