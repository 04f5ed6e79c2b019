package docs

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds, in seconds, each wait of a page: it only turns a hang into a failure that
// says what did not happen.
const patience = 120

// stepLimit bounds one command: it only turns a command that never ends into a failure that
// names it.
const stepLimit = 3 * time.Minute

// prelude defines the functions of a page's shell. fila_serve replaces `fila serve`: it takes
// free ports of LISTEN, by default 127.0.0.1, runs in the background, prints the ready line, and ends the server before it.
const prelude = `
# await WHAT COMMAND...: waits until the command succeeds, at most for the patience.
await() {
  local what=$1 until=$((SECONDS + patience))
  shift
  until "$@"; do
    [ $SECONDS -lt $until ] || { echo "timed out waiting for $what"; return 1; }
    sleep 0.05
  done
}
server=
stop_server() {
  [ -n "$server" ] || return 0
  kill -TERM "$server" 2>/dev/null
  wait "$server"
  server=
}
fila_serve() {
  stop_server
  : >serve.log
  FILA_DRAIN_TIMEOUT_MS=${FILA_DRAIN_TIMEOUT_MS-200} FILA_NATS__EMBEDDED__PORT=-1 FILA_HTTP__ADDR=${LISTEN-127.0.0.1}:0 fila serve "$@" 2>serve.log &
  server=$!
  await 'the line that fila is ready' serve_started || { cat serve.log; return 1; }
  grep -E 'fila is ready|^pages: ' serve.log || { cat serve.log; return 1; }
  export NATS_URL=$(grep -om1 'nats://[0-9.:]*' serve.log)
}
# fila_demo starts a demo that runs until it is stopped, and ends the server before it.
fila_demo() {
  stop_server
  : >serve.log
  fila demo "$@" >serve.log 2>&1 &
  server=$!
  await 'the incident' demo_started || { cat serve.log; return 1; }
  cat serve.log
  export NATS_URL=$(grep -om1 'nats://[0-9.:]*' serve.log)
}
demo_started() { grep -q '^An interrupt ends it' serve.log || ended "$server"; }
# Succeeds when the server is ready or has ended.
serve_started() { grep -q 'fila is ready' serve.log || ended "$server"; }
ended() { ! kill -0 "$1" 2>/dev/null; }
# fila_serve_node NAME ARGUMENTS...: starts a cluster node on free ports; node_ports changes
# the ports in the files.
declare -A nodes
fila_serve_node() {
  local name=$1
  shift
  : >"$name.log"
  FILA_NATS__EMBEDDED__PORT=-1 FILA_HTTP__ADDR=127.0.0.1:0 fila serve "$@" >"$name.log" 2>&1 &
  nodes[$name]=$!
}
kill_node() {
  kill -KILL "${nodes[$1]}"
  wait "${nodes[$1]}" 2>/dev/null
  : >"$1.log"
}
# Waits until all nodes are ready; commands then connect to any of them.
nodes_ready() {
  local name urls=
  for name in "${!nodes[@]}"; do
    await "node $name" grep -q 'fila is ready' "$name.log" || { cat "$name.log"; return 1; }
    urls+=,$(grep -om1 'nats://[0-9.:]*' "$name.log")
  done
  export NATS_URL=${urls#,}
}
# node_ports PORT...: replaces ports by free ones in all files.
node_ports() {
  local port free
  for port in "$@"; do
    free=$((20000 + RANDOM % 12000))
    while (exec 3<>"/dev/tcp/127.0.0.1/$free") 2>/dev/null; do free=$((20000 + RANDOM % 12000)); done
    sed -i "s/:$port\"/:$free\"/g" *.toml
  done
}
# first_line COMMAND...: runs a command that does not end by itself until it prints a line.
first_line() {
  : >first_line.out
  "$@" >>first_line.out 2>&1 &
  local pid=$!
  await "a line of $*" first_line_printed "$pid"
  kill -INT "$pid" 2>/dev/null
  await "the end of $*" ended "$pid" || kill -KILL "$pid"
  wait "$pid"
  local rc=$?
  cat first_line.out
  return $rc
}
first_line_printed() { [ -s first_line.out ] || ended "$1"; }
# Succeeds when orders has dead letters.
orders_died() { fila queue inspect orders.dlq --json | grep -q '"pending": *[1-9]'; }
# Without jq its examples print its input.
command -v jq >/dev/null || jq() { cat; }
# Without arguments wait would wait for every process of the page.
kill_nodes() {
  [ ${#nodes[@]} -gt 0 ] || return 0
  kill -KILL "${nodes[@]}"
  wait "${nodes[@]}"
}
trap 'stop_server; kill_nodes 2>/dev/null; kill $(jobs -p) 2>/dev/null' EXIT
`

// shell is a bash in a directory of its own that keeps its variables from one
// command to the next.
type shell struct {
	t     *testing.T
	dir   string
	in    io.Writer
	lines chan string // its output; closed when it has ended
	end   func()      // kills it and all its children
	runs  int

	where string        // page and line of the running command, if it is from a page
	limit time.Duration // for each run
}

func newShell(t *testing.T) *shell {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	dir := t.TempDir()
	repository, err := os.Getwd()
	require.NoError(t, err)
	cmd := exec.Command(bash, "--norc", "--noprofile")
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "TMPDIR=" + dir, "REPOSITORY=" + repository}
	ownGroup(cmd)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	s := &shell{t: t, dir: dir, in: in, lines: make(chan string), end: func() { killGroup(cmd) }, limit: stepLimit}
	go func() {
		defer close(s.lines)
		for from := bufio.NewReader(out); ; {
			line, err := from.ReadString('\n')
			if err != nil {
				return
			}
			s.lines <- line
		}
	}()
	t.Cleanup(func() {
		hung := time.AfterFunc(stepLimit, s.end)
		defer hung.Stop()
		_ = in.Close() // it may have been killed
		for range s.lines {
		}
		_ = cmd.Wait() // the exit code of the last command says nothing
	})
	_, code := s.run(fmt.Sprintf("patience=%d\n", patience) + prelude)
	require.Zero(t, code)
	return s
}

// setPlace names the test and the place in a page that the next commands belong to.
func (s *shell) setPlace(t *testing.T, where string) { s.t, s.where = t, where }

// run runs commands and returns what they print and their exit code.
func (s *shell) run(commands string) (string, int) {
	s.t.Helper()
	s.runs++
	script := filepath.Join(s.dir, ".step")
	require.NoError(s.t, os.WriteFile(script, []byte(commands+"\n"), 0o600))
	mark := fmt.Sprintf("=== step %d ended: ", s.runs)
	_, err := fmt.Fprintf(s.in, ". ./.step </dev/null 2>&1; printf '\\n%%s%%d\\n' '%s' $?\n", mark)
	require.NoError(s.t, err)
	var printed strings.Builder
	late := time.NewTimer(s.limit)
	defer late.Stop()
	for {
		select {
		case line, ok := <-s.lines:
			require.True(s.t, ok, "%s: the shell ended after: %s\n%s", s.where, commands, &printed)
			if code, ok := strings.CutPrefix(line, mark); ok {
				n, err := strconv.Atoi(strings.TrimSpace(code))
				require.NoError(s.t, err)
				return strings.TrimSuffix(printed.String(), "\n"), n
			}
			printed.WriteString(line)
		case <-late.C:
			s.end()
			require.FailNow(s.t, "a command does not end", "%s: %q runs for longer than %s. Bound it as readers would (--count, --once, --timeout), "+
				"or have a row of ways run it with first_line. It printed:\n%s", s.where, commands, s.limit, &printed)
		}
	}
}

func (s *shell) write(name, text string) {
	path := filepath.Join(s.dir, name)
	require.NoError(s.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(s.t, os.WriteFile(path, []byte(text), 0o600))
}

// log returns the end of the server's log.
func (s *shell) log() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "serve.log"))
	return string(text[max(0, len(text)-4000):])
}

// blurs replace what differs between runs, in the page and in the output.
var blurs = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\b[0-9a-f]{8}-(?:(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|\.\.\.)`), "ID"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`), "CLOCK"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`data_dir=\S+`), "data_dir=DIR"},
	{regexp.MustCompile(`\b(?:\d+(?:\.\d+)?(?:ms|µs|us|ns|s|m|h))+\b`), "DURATION"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

func blur(line string) string {
	for _, b := range blurs {
		line = b.what.ReplaceAllString(line, b.with)
	}
	return strings.TrimSpace(line)
}

// requirePrinted compares the output in a page with the real output. A line "..." stands for
// any number of lines, "..." in a line for any text.
func requirePrinted(t *testing.T, want []string, got string) {
	t.Helper()
	var printed strings.Builder
	for line := range strings.Lines(got) {
		printed.WriteString(blur(line) + "\n")
	}
	var pattern strings.Builder
	for _, line := range want {
		if strings.TrimSpace(line) == "..." {
			pattern.WriteString(`(?:.*\n)*`)
			continue
		}
		parts := strings.Split(blur(line), "...")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		pattern.WriteString(strings.Join(parts, ".*") + "\n")
	}
	require.Regexp(t, `\A`+pattern.String()+`\n*\z`, printed.String(), "the page shows:\n%s\nit printed:\n%s", strings.Join(want, "\n"), got)
}

// Waits of a page end after the patience, with a message, and a command that never ends is
// killed with all its children.
func TestPagesDoNotWaitForever(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	_, code := s.run("patience=0")
	require.Zero(t, code)
	out, code := s.run("fila() { exec sleep 600; }; fila_serve; failed=$?; kill -KILL $server; server=; (exit $failed)")
	require.Equal(t, 1, code)
	require.Contains(t, out, "timed out waiting for the line that fila is ready")
	out, code = s.run("first_line sleep 600")
	require.NotZero(t, code)
	require.Contains(t, out, "timed out waiting for a line of sleep 600")

	s = newShell(t)
	inner := &testing.T{}
	s.setPlace(inner, "docs/some.md:12")
	s.limit = 100 * time.Millisecond
	failed := make(chan bool)
	go func() { // FailNow ends its goroutine
		defer func() { failed <- inner.Failed() }()
		s.run("sleep 600 & sleep 600")
	}()
	require.True(t, <-failed)
	for range s.lines { // until no process is left that could print
	}
}

func TestRequirePrintedCanFail(t *testing.T) {
	want := []string{"...", "acme  1  0  5.4s", `{"id":"01981c2e-..."}`}
	pattern := func(got string) bool {
		inner := &testing.T{}
		done := make(chan bool)
		go func() { // FailNow ends its goroutine
			defer func() { done <- !inner.Failed() }()
			requirePrinted(inner, want, got)
		}()
		return <-done
	}
	require.True(t, pattern("FLOW\nacme 1   0 12s\n{\"id\":\"01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80\"}\n"))
	require.False(t, pattern("FLOW\nacme 2   0 12s\n{\"id\":\"01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80\"}\n"))
	require.False(t, pattern("FLOW\nacme 1   0 12s\n"))
	require.False(t, pattern("FLOW\nacme 1   0 12s\n{\"id\":\"01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80\"}\nmore\n"))
}
