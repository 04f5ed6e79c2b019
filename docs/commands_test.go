package docs

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// The commands of README, docs and examples are run as they stand there, page by
// page, each page in a directory of its own with a fila of its own on free ports.
//
//   - In a block that begins with "$ ", lines after "$ " are commands and the
//     lines below them what they print. "..." stands for anything. A command
//     without printed lines may print what it likes. It must succeed, unless the
//     last line printed is an error of fila.
//   - Each line of a block marked sh is a command that must succeed.
//   - A command may run for stepLimit. One that does not end by itself is bounded as
//     readers would do it (--count, --once, --timeout), or has a row in ways.
//   - A block that begins with a comment that is nothing but a file name is
//     written to that file.
//
// Ids, times, durations, addresses and the width of columns are not compared.

var flagBinary = flag.String("fila.bin", "", "fila binary for the commands of the docs; empty builds it")

// bin is the directory of the binaries that the pages use. TestMain makes it.
var bin string

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "nats" {
		os.Exit(natsMain(os.Args[1:]))
	}
	// The pages and what they name are told from the root of the module.
	if err := os.Chdir(".."); err != nil {
		panic(err)
	}
	flag.Parse()
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

// needBinaries puts fila, and this test in the role of the nats CLI, into bin.
func needBinaries(t *testing.T) {
	t.Helper()
	require.NoError(t, binaries())
}

var binaries = sync.OnceValue(func() error {
	target := filepath.Join(bin, "fila")
	if *flagBinary != "" {
		binary, err := filepath.Abs(*flagBinary)
		if err != nil {
			return err
		}
		if err := os.Symlink(binary, target); err != nil {
			return err
		}
	} else if out, err := exec.Command("go", "build", "-o", target, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
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

// blocks returns the fenced blocks of a page in their order. Those in list items
// lose their indentation.
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

// step is a command with what the page says that it prints.
type step struct {
	command string
	want    []string // nil: nothing is said
	line    int      // of the page
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

// file returns the name of the file that the block is the text of.
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

// runPage runs one page. After a failure the rest of it would only fail, too.
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

// pipe is what a shell line does with the output of its first command.
var pipe = regexp.MustCompile(`\s+(?:[>|#&]|&&)(?:\s.*)?$`)

func runStep(t *testing.T, s *shell, b block, step step) {
	page := s.t
	s.of(t, fmt.Sprintf("%s:%d", b.page, step.line))
	defer s.of(page, b.page)
	way := wayOf(b.page, step.command)
	if way.skip != "" {
		// Its flags are looked at all the same.
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

// What looks like a command stands in a block that is run.
func TestDocsCommandsAreMarked(t *testing.T) {
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
