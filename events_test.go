package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/telemetry"
)

// composedTexts are the log lines whose text a file puts together, by file. A file without
// texts logs texts that another file has.
var composedTexts = map[string][]string{
	"cli/clustercmd/transfer.go":  nil,
	"cli/serve.go":                nil,
	"hooks/log.go":                {"hook log"},
	"sidecar/circuit/announce.go": {"circuit open", "circuit half-open", "circuit closed"},
	"sidecar/cluster/cluster.go":  {"a node has joined the cluster", "a node has left the cluster"},
	"sidecar/control/reload.go":   nil,
	"sidecar/control/throttles.go": {
		"a throttle of the configuration file is changed at run time; the file wins at the next start or reload",
		"a circuit of the configuration file is changed at run time; the file wins at the next start or reload",
	},
	"sidecar/natsio/connect.go":  {"connected", "reconnected"},
	"sidecar/natsio/embedded.go": {"log line of the embedded NATS server", "log line of the embedded NATS server about a client"},
	"sidecar/job/runner.go":      {"job running", "job paused", "job done", "job canceled"},
	"store/replog/writer.go":     {"replog: a record is not in the log; retrying", "replog: the log cannot be read; retrying"},
}

// loggedTexts returns the texts of the lines above level debug that a file can write. composed
// says whether it also puts texts together.
func loggedTexts(t *testing.T, path string) (texts []string, composed bool) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	require.NoError(t, err)
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	logger := regexp.MustCompile(`(?i)(log|logger|limited|With\(.*\)|logAbout\(.*\)|slog\.New\(.*\)|say)$`)
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		text := call.Args[0]
		if f, ok := call.Fun.(*ast.SelectorExpr); ok {
			from := string(source[f.X.Pos()-1 : f.X.End()-1])
			switch {
			case !logger.MatchString(from):
				return true
			case f.Sel.Name == "Log" && len(call.Args) > 2:
				text = call.Args[2]
			case !slices.Contains([]string{"Info", "Warn", "Error"}, f.Sel.Name):
				return true
			}
		} else if f, ok := call.Fun.(*ast.Ident); !ok || f.Name != "say" || path != "sidecar/circuit/announce.go" {
			return true
		}
		if l, ok := text.(*ast.BasicLit); ok {
			text, err := strconv.Unquote(l.Value)
			require.NoError(t, err)
			texts = append(texts, text)
		} else {
			composed = true
		}
		return true
	})
	return texts, composed
}

// Each log line of fila has an event name, each event name has a log line, and docs/log.md lists all.
func TestLogLinesAndEventsMatch(t *testing.T) {
	written := map[string]bool{}
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "client", "examples", "bench", "queuetest", "otlptest"}, d.Name())):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		texts, composed := loggedTexts(t, path)
		for _, text := range texts {
			require.NotEmpty(t, telemetry.Events[text], "%s: %q has no name in sidecar/telemetry/events.go", path, text)
			written[text] = true
		}
		could, known := composedTexts[path]
		require.True(t, !composed || known, "%s puts a text together: add a row to composedTexts in events_test.go", path)
		for _, text := range could {
			require.NotEmpty(t, telemetry.Events[text], "%s: %q has no name in sidecar/telemetry/events.go", path, text)
			written[text] = true
		}
		seen[path] = true
		return nil
	})
	require.NoError(t, err)
	for path := range composedTexts {
		require.True(t, seen[path], path)
	}

	page, err := os.ReadFile("docs/log.md")
	require.NoError(t, err)
	listed := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^- `(fila\\.[a-z_.]+)`: (.*)$").FindAllStringSubmatch(string(page), -1) {
		require.NotContains(t, listed, row[2])
		listed[row[2]] = row[1]
	}
	require.Equal(t, telemetry.Events, listed)
	names := map[string]bool{}
	for text, name := range telemetry.Events {
		require.True(t, written[text], "no code writes %q", text)
		require.False(t, names[name], "%s is the name of two events", name)
		require.Regexp(t, `^fila\.[a-z]+\.[a-z_]+$`, name)
		names[name] = true
	}
}
