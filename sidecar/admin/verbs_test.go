package admin

import (
	"go/ast"
	"go/parser"
	"go/token"
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

// verbTable is the table, for those who look and do not ask.
func verbTable() []Verb { return new(Admin).newTable() }

// TestVerbsAreThoseOfThePackageWire, each of them once, with a tail or without.
func TestVerbsAreThoseOfThePackageWire(t *testing.T) {
	var names []string
	for _, v := range verbTable() {
		names = append(names, v.Name)
		require.Equal(t, wire.VerbHasTail(v.Name), v.Tail != NoTail, v.Name)
	}
	var constants []string
	for _, name := range wireVerbs(t) {
		constants = append(constants, name)
	}
	require.ElementsMatch(t, constants, names)
}

// TestVerbsAreDocumented in docs/protocol.md: exactly these, with their tails.
func TestVerbsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## Admin\n")
	require.True(t, found)
	section, _, found = strings.Cut(section, "\n## ")
	require.True(t, found)
	var documented []string
	subject := regexp.MustCompile("`(?:fila\\.admin\\.)?([a-z-]+(?:\\.<[a-z]+>)*(?:\\.dlq)?)`")
	for line := range strings.Lines(section) {
		if cell, ok := strings.CutPrefix(line, "| `fila.admin."); ok {
			cell, _, _ = strings.Cut("`fila.admin."+cell, " | ")
			for _, m := range subject.FindAllStringSubmatch(cell, -1) {
				documented = append(documented, m[1])
			}
		}
	}
	tails := map[Tail]string{NewQueue: ".<queue>", AnyQueue: ".<queue>", Ordinary: ".<queue>", DeadLetters: ".<queue>.dlq", Key: ".<key>", OpAndQueue: ".<op>.<queue>"}
	var table []string
	for _, v := range verbTable() {
		table = append(table, v.Name+tails[v.Tail])
	}
	require.ElementsMatch(t, table, documented)
}

// TestVerbsAreUsedByTheClient: who has the command line can do all of it.
func TestVerbsAreUsedByTheClient(t *testing.T) {
	constants := wireVerbs(t)
	used := make(map[string]bool)
	for _, file := range sources(t, "../../client", "../../cli", "../../cli/*") {
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "wire" && constants[s.Sel.Name] != "" {
					used[constants[s.Sel.Name]] = true
				}
			}
			return true
		})
	}
	for _, v := range verbTable() {
		require.True(t, used[v.Name], "neither client nor cli uses %s", v.Name)
	}
}

// wireVerbs are the constants of package wire that name verbs, with their values.
func wireVerbs(t *testing.T) map[string]string {
	verbs := make(map[string]string)
	for _, file := range sources(t, "../../wire") {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "Verb") {
				return true
			}
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			verbs[spec.Names[0].Name] = value
			return true
		})
	}
	require.NotEmpty(t, verbs)
	return verbs
}

// sources parses the Go files of directories, tests left out.
func sources(t *testing.T, dirs ...string) []*ast.File {
	var files []*ast.File
	for _, dir := range dirs {
		paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, paths, dir)
		for _, path := range slices.DeleteFunc(paths, func(p string) bool { return strings.HasSuffix(p, "_test.go") }) {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			require.NoError(t, err)
			files = append(files, file)
		}
	}
	return files
}

// TestVerbsRefuse what they cannot do and what they cannot read, in which they are
// strict, before anything has changed.
func TestVerbsRefuse(t *testing.T) {
	inHouse(t, nil, func(t *testing.T, h *house) {
		h.must(wire.VerbQueueCreate, "orders", `{"on_failure":"function on_failure(msg) return {} end"}`, nil)
		h.must(wire.VerbThrottleSet, "k", `{"rate":1}`, nil)
		state := func() (all [6]any) {
			for i, verb := range []string{
				wire.VerbQueueList, wire.VerbConfigList, wire.VerbConfigLog, wire.VerbThrottleList, wire.VerbCircuitList, wire.VerbPauseList,
			} {
				h.must(verb, "", ``, &all[i])
			}
			return all
		}
		before := state()
		for _, tc := range []struct {
			verb, tail, body string
			code             int
			names            string // what the description must name
		}{
			{wire.VerbQueueCreate, "a$b", ``, wire.CodeBadQueueName, ""},
			{wire.VerbQueueCreate, "orders.dlq", ``, wire.CodeReservedName, ""},
			{wire.VerbQueueCreate, "new", `{`, wire.CodeBadJSON, ""},
			{wire.VerbQueueCreate, "new", `{"retry_policy":"none"}`, wire.CodeBadQueueSettings, ""},
			{wire.VerbQueueCreate, "new", `{"on_enqueue":"function"}`, wire.CodeHookLoad, ""},
			{wire.VerbQueueCreate, "orders", `{"quantum":7}`, wire.CodeQueueExists, ""},
			{wire.VerbQueueUpdate, "orders", `{"retry_policy":"none"}`, wire.CodeBadQueueSettings, ""},
			{wire.VerbQueueUpdate, "orders", `{"max_depth":-1}`, wire.CodeBadQueueSettings, ""},
			{wire.VerbQueueUpdate, "orders", `{"nothing":1}`, wire.CodeUnknownField, ""},

			{wire.VerbHookReset, "orders", `{"hook":"on_enqueue"}`, wire.CodeHookNotFound, ""},
			{wire.VerbPeek, "orders", `{"limit":0}`, wire.CodeBadField, ""},
			{wire.VerbExplain, "", `{"kind":"message","id":"x"}`, wire.CodeBadField, ""},
			{wire.VerbExplain, "", `{"kind":"message","id":"x","queue":"new"}`, wire.CodeQueueNotFound, ""},
			{wire.VerbExplain, "", `{"kind":"key","key":"a","queue":"new"}`, wire.CodeQueueNotFound, ""},
			{wire.VerbExplain, "", `{"kind":"queue","queue":"a$b"}`, wire.CodeBadQueueName, ""},
			{wire.VerbConfigSet, "a b", `{"value":"1"}`, wire.CodeBadConfigKey, ""},
			{wire.VerbConfigSet, "a", ``, wire.CodeBadField, ""},
			{wire.VerbConfigGet, "a b", ``, wire.CodeBadConfigKey, ""},
			{wire.VerbConfigGet, "a", ``, wire.CodeConfigKeyNotFound, ""},
			{wire.VerbConfigDelete, "a", `{"value":"1"}`, wire.CodeUnknownField, ""},
			{wire.VerbThrottleSet, "stripe", `{"rate":"x"}`, wire.CodeBadThrottle, ""},
			{wire.VerbThrottleShow, "_", `{"key":"two words"}`, wire.CodeThrottleNotFound, ""},
			{wire.VerbConfigLog, "", `{"limit":0}`, wire.CodeBadField, "limit"},
			{wire.VerbConfigLog, "", `{"limit":1001}`, wire.CodeBadField, "limit"},
			{wire.VerbConfigLog, "", `{"offset":-1}`, wire.CodeBadField, "offset"},
			{wire.VerbConfigLog, "", `{"before":1}`, wire.CodeUnknownField, "before"},
			{wire.VerbConfigLog, "", `[]`, wire.CodeBadJSON, "JSON"},
			{wire.VerbThrottleShow, "k", `{"x":1}`, wire.CodeUnknownField, "x"},
			{wire.VerbThrottleClear, "k", `{"x":1}`, wire.CodeUnknownField, "x"},
			{wire.VerbThrottleClear, "_", ``, wire.CodeBadField, "key"},
			{wire.VerbThrottleList, "", `{"limit":0}`, wire.CodeBadField, "limit"},
			{wire.VerbCircuitShow, "_", ``, wire.CodeBadField, "key"},
			{wire.VerbCircuitShow, "nobody", ``, wire.CodeCircuitNotFound, "nobody"},
			{wire.VerbCircuitClose, "nobody", ``, wire.CodeCircuitNotFound, "nobody"},
			{wire.VerbCircuitClose, "x", `{"key":"y"}`, wire.CodeBadField, "key"},
			{wire.VerbCircuitReset, "nobody", ``, wire.CodeCircuitNotFound, "nobody"},
			{wire.VerbCircuitOpen, "x", `{"for_ms":-1}`, wire.CodeBadField, "for_ms"},
			{wire.VerbCircuitOpen, "x", `{"for":1}`, wire.CodeUnknownField, "for"},
			{wire.VerbCircuitList, "", `{"limit":0}`, wire.CodeBadField, "limit"},
			{wire.VerbReload, "", `{"force":true}`, wire.CodeUnknownField, "force"},
			{wire.VerbPause, "", `{"kind":"queue","name":"new"}`, wire.CodeQueueNotFound, ""},
			{wire.VerbResume, "", `{"kind":"queue","name":"orders"}`, wire.CodePauseNotFound, ""},
			{wire.VerbReload, "", ``, wire.CodeReloadFailed, ""},
			{wire.VerbStoreBackup, "", `{"path":"/etc/passwd"}`, wire.CodeUnknownField, ""},
			{wire.VerbStoreBackup, "", ``, wire.CodeBackupFailed, ""}, // this store cannot be copied
		} {
			werr := h.ask(tc.verb, tc.tail, tc.body, nil)
			require.NotNil(t, werr, tc)
			require.Equal(t, tc.code, werr.ErrCode, "%v: %v", tc, werr)
			require.Contains(t, werr.Description, tc.names, tc)
		}
		require.Equal(t, before, state())
	})
}

// TestVerbsKnowTheirQueues: each refuses bad names, queues that are not there and
// those of the other kind.
func TestVerbsKnowTheirQueues(t *testing.T) {
	inHouse(t, nil, func(t *testing.T, h *house) {
		h.must(wire.VerbQueueCreate, "orders", ``, nil)
		refused := func(v Verb, tail string) int {
			if werr := h.ask(v.Name, tail, ``, nil); werr != nil {
				return werr.ErrCode
			}
			return 0
		}
		looked := 0
		for _, v := range h.verbs {
			switch v.Tail {
			case AnyQueue, Ordinary, DeadLetters:
			default:
				continue
			}
			looked++
			require.Equal(t, wire.CodeBadQueueName, refused(v, "a$b"), v.Name)
			require.Equal(t, wire.CodeQueueNotFound, refused(v, "nosuch"), v.Name)
			if v.Tail == Ordinary {
				require.Equal(t, wire.CodeNotForDLQ, refused(v, "orders.dlq"), v.Name)
			}
			if v.Tail == DeadLetters {
				require.Zero(t, refused(v, "orders"), v.Name)
				require.Zero(t, refused(v, "orders.dlq"), v.Name)
				require.Equal(t, "orders.dlq", v.request("", "orders", nil).tail, "a node of an older version knows no other name")
			}
		}
		require.Equal(t, 14, looked)
	})
}

// TestKeysFromBeforeAreShownAndNamedEscaped: verbs reach a key that is not UTF-8, and
// replies say it so that it can be said again.
func TestKeysFromBeforeAreShownAndNamedEscaped(t *testing.T) {
	const shown, key = `a\xff`, "a\xff"
	inHouse(t, nil, func(t *testing.T, h *house) {
		h.must(wire.VerbQueueCreate, "orders", "{}", nil)
		var circuit wire.CircuitInfo
		h.must(wire.VerbCircuitOpen, shown, "", &circuit)
		require.Equal(t, shown, circuit.Key)
		_, known := h.gates.circuit(key)
		require.True(t, known)
		h.must(wire.VerbCircuitClose, shown, "", &circuit)

		var throttle wire.ThrottleInfo
		h.must(wire.VerbThrottleSet, shown, `{"concurrency":1}`, &throttle)
		require.Equal(t, shown, throttle.Key)
		require.EqualValues(t, 1, h.control.Gates().Limits(key).Concurrency)
		var throttles wire.ThrottleList
		h.must(wire.VerbThrottleList, "", `{"prefix":"a\\xff"}`, &throttles)
		require.Len(t, throttles.Throttles, 1)
		require.Equal(t, shown, throttles.Throttles[0].Key)
		var log wire.ConfigLog
		h.must(wire.VerbConfigLog, "", `{"prefix":"throttle:a\\xff"}`, &log)
		require.Equal(t, "throttle:"+shown+":concurrency", log.Entries[0].Key)
		var config wire.ConfigList
		h.must(wire.VerbConfigList, "", "", &config)
		require.Equal(t, "throttle:"+shown+":concurrency", config.Entries[0].Key)
		h.must(wire.VerbConfigDelete, "throttle:"+shown+":concurrency", "", nil)

		var pause wire.PauseInfo
		h.must(wire.VerbPause, "", `{"kind":"key","queue":"orders","name":"a\\xff"}`, &pause)
		require.Equal(t, shown, pause.Name)
		_, paused := h.control.Pauses("orders")
		require.Contains(t, paused, key)
		var why wire.ExplainKey
		h.must(wire.VerbExplain, "", `{"kind":"key","queue":"orders","key":"a\\xff"}`, &why)
		require.Equal(t, shown, why.Key)
		require.Equal(t, `Key "a\xff" is paused until it is resumed.`, why.Reason)
		h.must(wire.VerbResume, "", `{"kind":"key","queue":"orders","name":"a\\xff"}`, &pause)
	})
}
