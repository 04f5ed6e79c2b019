package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// JSON logs have the names of OpenTelemetry, and slog's own names for the fields of every line.
func TestLogOfJSON(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: LogAttr}))
	p, ok := wire.ParseTraceParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	require.True(t, ok)
	log.With("component", "judge").With(TraceAttrs(p)...).Warn("attempt failed",
		"queue", "orders", "id", "7", "consumer", "w", "error", errors.New("boom"), "error_code", "E7", "attempts", 2)
	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line))
	require.NotEmpty(t, line["time"])
	delete(line, "time")
	require.Equal(t, map[string]any{
		"level": "WARN", "msg": "attempt failed", "messaging.destination.name": "orders", "messaging.message.id": "7",
		"messaging.consumer.group.name": "w", "exception.message": "boom", "error.type": "E7", "fila.attempts": 2.0, "fila.component": "judge",
		"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331",
	}, line)
	require.Empty(t, TraceAttrs(wire.TraceParent{}))
}

// loggers maps the methods that write a line to the index of the message among their arguments;
// keys and values follow.
var loggers = map[string]int{"Debug": 0, "Info": 0, "Warn": 0, "Error": 0, "Log": 2}

// The keys of log lines have one form, and no key is a synonym of one with an OpenTelemetry
// name. docs/operations.md lists the names.
func TestOneVocabulary(t *testing.T) {
	synonyms := []string{"err", "message", "message_id", "msg_id", "queue_name", "destination", "consumer_name", "code", "trace", "span", "traceparent"}
	form := regexp.MustCompile(`^[a-z][a-z_]*$`)
	lines := 0
	for _, root := range []string{"..", "../../store", "../../hooks"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				method, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				at, ok := loggers[method.Sel.Name]
				if !ok || !isLog(method.X) || len(call.Args) <= at {
					return true
				}
				lines++
				for i := at + 1; i < len(call.Args); i += 2 {
					literal, ok := call.Args[i].(*ast.BasicLit)
					if !ok {
						break // a list that was made before
					}
					key, err := strconv.Unquote(literal.Value)
					require.NoError(t, err)
					require.Regexp(t, form, key, path)
					require.NotContains(t, synonyms, key, path)
				}
				return true
			})
			return nil
		})
		require.NoError(t, err)
	}
	require.Greater(t, lines, 100, "the test looks for log lines where there are none")
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	for key, name := range attrNames {
		require.Contains(t, string(text), "| `"+key+"` | `"+name+"` |")
	}
}

// isLog reports whether an expression is a logger, judged by its name.
func isLog(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return slices.Contains([]string{"log", "logger"}, x.Name)
	case *ast.SelectorExpr:
		return slices.Contains([]string{"Log", "log", "limited", "logger", "Logger"}, x.Sel.Name)
	case *ast.CallExpr: // log.With(...)
		if f, ok := x.Fun.(*ast.SelectorExpr); ok {
			return f.Sel.Name == "With" || f.Sel.Name == "Unlimited"
		}
	}
	return false
}

// A line of a JSON log names its event. A line at level debug has none, and the event of a line
// with free text is a notice.
func TestEventLog(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(EventLog(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: LogAttr})))
	line := func() map[string]any {
		var m map[string]any
		require.NoError(t, json.Unmarshal(out.Bytes(), &m), out.String())
		out.Reset()
		delete(m, "time")
		return m
	}
	LimitLog(log, func() int64 { return 0 }).With("component", "x").Info("queue created", "queue", "orders")
	require.Equal(t, map[string]any{
		"level": "INFO", "msg": "queue created", "event.name": "fila.queue.created", "fila.component": "x", "messaging.destination.name": "orders",
	}, line())
	log.Warn("http.addr: differs, but needs a restart; not applied")
	require.Equal(t, "fila.notice", line()["event.name"])
	log.Debug("flush")
	require.NotContains(t, line(), "event.name")
}
