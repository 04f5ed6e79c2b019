package docs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/build"
	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// These tests run the commands of README, docs and examples as they are printed. Each page has
// its own directory and its own fila on free ports.
//
//   - In a block that begins with "$ ", lines after "$ " are commands, and the lines below
//     a command are its output. "..." stands for any text. A command without output lines may
//     print anything. A command must succeed, unless its last output line is an error of fila.
//   - Each line of a block marked sh is a command that must succeed.
//   - A command may run for stepLimit. A command that does not end by itself needs a bound
//     that readers would use (--count, --once, --timeout) or a row in ways.
//   - A block that begins with a comment with only a file name is written to that file.
//
// Ids, times, durations, addresses and column widths are not compared.

var flagBinary = flag.String("fila.bin", "", "fila binary for the commands of the docs; empty builds it")

// bin is the directory of the binaries that the pages use. TestMain creates it.
var bin string

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "nats" {
		os.Exit(natsMain(os.Args[1:]))
	}
	// Pages, and the files that they name, are relative to the root of the module.
	if err := os.Chdir(".."); err != nil {
		panic(err)
	}
	natstest.MoreParallel(8)
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fila-docs-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	bin = dir
	return m.Run()
}

// needBinaries puts fila, and this test binary in the role of the nats CLI, into bin.
func needBinaries(t *testing.T) {
	t.Helper()
	require.NoError(t, binaries())
}

var binaries = sync.OnceValue(func() error {
	target := filepath.Join(bin, "fila")
	if *flagBinary != "" {
		given, err := filepath.Abs(*flagBinary)
		if err != nil {
			return err
		}
		if err := os.Symlink(given, target); err != nil {
			return err
		}
	} else if _, err := build.Binary(bin, false); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return os.Symlink(self, filepath.Join(bin, "nats"))
})

// block is a fenced block of a page.
type block struct {
	page, lang, text string
	line             int
}

var blockFence = regexp.MustCompile("(?m)^( *)```(.*)$")

// blocks returns the fenced blocks of a page in order. Blocks in list items lose their
// indentation.
func blocks(page, text string) []block {
	var found []block
	marks := blockFence.FindAllStringSubmatchIndex(text, -1)
	for i := 0; i+1 < len(marks); i += 2 {
		open, end := marks[i], marks[i+1]
		body := text[min(open[1]+1, end[0]):end[0]]
		if indent := text[open[2]:open[3]]; indent != "" {
			body = strings.ReplaceAll("\n"+body, "\n"+indent, "\n")[1:]
		}
		found = append(found, block{
			page: page, lang: text[open[4]:open[5]], text: body, line: 1 + strings.Count(text[:open[0]], "\n"),
		})
	}
	return found
}

// step is a command with the output that the page shows.
type step struct {
	command string
	want    []string // nil: the page shows no output
	line    int      // in the page
}

func (b block) transcript() bool { return strings.HasPrefix(b.text, "$ ") }

// steps returns the commands of a block.
func (b block) steps() []step {
	var found []step
	more, at := false, b.line
	for line := range strings.Lines(b.text) {
		at++
		line = strings.TrimSuffix(line, "\n")
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case more:
			last := &found[len(found)-1]
			last.command += "\n" + strings.TrimPrefix(line, "> ")
			more = strings.HasSuffix(line, `\`)
		case b.transcript() && !isCommand:
			last := &found[len(found)-1]
			last.want = append(last.want, line)
		case b.transcript(), b.lang == "sh" && line != "" && !strings.HasPrefix(line, "#"):
			found = append(found, step{command: command, line: at})
			more = strings.HasSuffix(line, `\`)
		}
	}
	return found
}

var fileName = regexp.MustCompile(`^(?:--|#|//) ([\w./-]+\.\w+)\n`)

// file returns the name of the file whose text the block is.
func (b block) file() (string, bool) {
	name := fileName.FindStringSubmatch(b.text)
	if name == nil || !filepath.IsLocal(name[1]) {
		return "", false
	}
	return name[1], true
}

// commandPages are the pages with commands.
func commandPages(t *testing.T) []string {
	t.Helper()
	var found []string
	for name, text := range markdown(t) {
		if slices.ContainsFunc(blocks(name, text), func(b block) bool { return len(b.steps()) > 0 }) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

func TestDocsCommands(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the commands are for a POSIX shell")
	}
	needBinaries(t)
	pages := markdown(t)
	names := commandPages(t)
	require.Subset(t, names, []string{"README.md", "docs/tutorial.md", "docs/cli.md", "docs/protocol.md", "docs/hooks.md"})
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runPage(t, name, pages[name])
		})
	}
}

// runPage runs one page. It stops at the first failure, since later steps depend on it.
func runPage(t *testing.T, name, text string) {
	s := newShell(t)
	for _, command := range pageSetup[name] {
		out, code := s.run(command)
		require.Zero(t, code, "%s\n%s", command, out)
	}
	ran := 0
	for _, b := range blocks(name, text) {
		if file, ok := b.file(); ok {
			s.write(file, b.text)
			continue
		}
		for _, step := range b.steps() {
			ran++
			ok := t.Run(step.command, func(t *testing.T) { runStep(t, s, b, step) })
			require.True(t, ok, "%s:%d: stopped after %q", name, step.line, step.command)
		}
	}
	require.Positive(t, ran)
}

// pipe matches the rest of a shell line after its first command.
var pipe = regexp.MustCompile(`\s+(?:[>|#&]|&&)(?:\s.*)?$`)

func runStep(t *testing.T, s *shell, b block, step step) {
	page := s.t
	s.setPlace(t, fmt.Sprintf("%s:%d", b.page, step.line))
	defer s.setPlace(page, b.page)
	way := wayOf(b.page, step.command)
	if way.skip != "" {
		// Check its flags all the same.
		if command := pipe.ReplaceAllString(step.command, ""); strings.HasPrefix(command, "fila ") {
			out, code := s.run(command + " --help")
			require.Zero(t, code, "%s:%d: %s", b.page, step.line, out)
		}
		t.Skip(way.skip)
	}
	if way.before != "" {
		out, code := s.run(way.before)
		require.Zero(t, code, "before it: %s\n%s", way.before, out)
	}
	out, code := s.run(way.rewrite(step.command))
	if way.after != "" {
		more, failed := s.run(way.after)
		require.Zero(t, failed, "after it: %s\n%s\n%s", way.after, out, more)
	}
	fails := way.fails || len(step.want) > 0 && strings.HasPrefix(step.want[len(step.want)-1], "fila: ")
	require.Equal(t, fails, code != 0, "%s:%d: exit code %d\n%s\n%s", b.page, step.line, code, out, s.log())
	if step.want != nil {
		requirePrinted(t, step.want, out)
	}
}

// Commands are only in blocks that the tests run.
func TestDocsCommandsAreInBlocksThatRun(t *testing.T) {
	command := regexp.MustCompile(`(?m)^(?:\$ )?(fila|go|nats|docker|helm|kubectl|systemctl|sudo|curl|pip|python|npm|\.ci/run) `)
	for name, text := range markdown(t) {
		for _, b := range blocks(name, text) {
			if len(b.steps()) > 0 || b.lang != "" && b.lang != "console" && b.lang != "bash" && b.lang != "shell" {
				continue
			}
			require.NotRegexp(t, command, b.text, "%s:%d: mark the block sh, or begin it with \"$ \"", name, b.line)
		}
	}
}
