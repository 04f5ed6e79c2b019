package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/filaq/fila"

// ownImports says which packages of this module a package may import. A new package
// needs a row here. .golangci.yml has the same rules for editors; this test enforces them.
var ownImports = map[string][]string{
	".": {"cli"},

	"cli": {
		"sidecar", "sidecar/config", "sidecar/rules", "sidecar/telemetry", "wire", "cli/command", "cli/terminal",
		"cli/queuecmd", "cli/applycmd", "cli/messagecmd", "cli/gatecmd", "cli/hookcmd", "cli/storecmd", "cli/clustercmd", "cli/opscmd",
	},
	"cli/queuecmd":   {"client", "sidecar/config", "wire", "wire/api", "cli/command", "cli/terminal"},
	"cli/messagecmd": {"client", "wire", "wire/api", "cli/command", "cli/terminal"},
	"cli/applycmd":   {"client", "sidecar/config", "sidecar/rules", "wire", "wire/api", "cli/command", "cli/terminal"},
	"cli/gatecmd":    {"client", "wire", "wire/api", "cli/command", "cli/terminal"},
	"cli/hookcmd":    {"client", "hooks", "wire", "wire/api", "cli/command", "cli/terminal"},
	"cli/storecmd":   {"client", "sidecar/config", "store", "store/storefile", "wire", "wire/api", "cli/command", "cli/terminal"},
	"cli/clustercmd": {"client", "sidecar", "sidecar/cluster/meta", "sidecar/cluster/transfer", "sidecar/config", "store", "store/replog", "wire", "wire/api", "cli/command", "cli/terminal"},
	"cli/opscmd":     {"bench", "bench/load", "bench/system", "client", "schemas", "sidecar", "sidecar/config", "wire", "wire/api", "cli/command", "cli/terminal"},
	"cli/command":    {"client", "sidecar/config", "wire", "wire/api", "cli/terminal"},
	"cli/terminal":   {"wire"},
	"cli/clitest":    {"wire", "cli/command"},

	"bench":         {"bench/load", "bench/measure", "bench/report", "bench/system", "client", "throttle/adapt/provider"},
	"bench/load":    {"bench/measure", "bench/system"},
	"bench/measure": {},
	"bench/report":  {"bench/measure", "bench/system"},
	"bench/system":  {"client", "wire"},

	// The packages of the sidecar, from the top down (docs/architecture.md).
	"sidecar": {
		"sidecar/admin", "sidecar/attention", "sidecar/natsio", "sidecar/guard", "sidecar/control", "sidecar/shard", "sidecar/policy", "sidecar/circuit", "sidecar/limit", "sidecar/fleet", "sidecar/queue", "sidecar/queue/history",
		"sidecar/cluster", "sidecar/cluster/meta", "sidecar/cluster/transfer", "sidecar/config", "sidecar/otlp", "sidecar/telemetry", "sidecar/web", "hooks", "breaker", "store", "store/replog", "throttle", "wire", "wire/api",
	},
	"sidecar/attention":         {"wire", "wire/api"},
	"sidecar/admin":             {"sidecar/attention", "sidecar/control", "sidecar/circuit", "sidecar/deadletter", "sidecar/finder", "sidecar/shard", "sidecar/queue", "sidecar/queue/gates", "sidecar/queue/history", "sidecar/queue/inspect", "sidecar/telemetry", "store", "store/storefile", "throttle", "wire", "wire/api"},
	"sidecar/natsio":            {"sidecar/shard", "sidecar/queue", "sidecar/config", "sidecar/telemetry", "wire", "wire/api"},
	"sidecar/guard":             {"sidecar/queue", "sidecar/queue/gates", "sidecar/config", "sidecar/rules", "sidecar/telemetry", "breaker", "throttle", "wire", "wire/api"},
	"sidecar/control":           {"sidecar/circuit", "sidecar/config", "sidecar/rules", "breaker", "ordered", "store", "throttle", "throttle/adapt", "throttle/budget", "wire", "wire/api"},
	"sidecar/shard":             {"sidecar/deadletter", "sidecar/finder", "sidecar/job", "sidecar/policy", "sidecar/queue", "sidecar/queue/gates", "sidecar/schedule", "sidecar/rules", "sidecar/telemetry", "hooks", "breaker", "store", "throttle", "wire", "wire/api"},
	"sidecar/finder":            {"sidecar/deadletter", "sidecar/queue", "sidecar/queue/history", "sidecar/queue/inspect", "store", "wire", "wire/api"},
	"sidecar/policy":            {"sidecar/telemetry", "hooks", "breaker", "store", "wire", "wire/api"},
	"sidecar/job":               {"sidecar/deadletter", "sidecar/finder", "sidecar/queue", "sidecar/queue/history", "sidecar/queue/inspect", "sidecar/telemetry", "store", "wire", "wire/api"},
	"sidecar/deadletter":        {"fingerprint", "sidecar/queue", "sidecar/queue/history", "sidecar/queue/inspect", "store", "wire", "wire/api"},
	"sidecar/circuit":           {"sidecar/fleet", "sidecar/fleet/record", "sidecar/queue", "sidecar/queue/gates", "breaker", "ordered", "store", "wire", "wire/api"},
	"sidecar/limit":             {"sidecar/fleet", "sidecar/fleet/record", "throttle", "throttle/adapt", "throttle/budget"},
	"sidecar/fleet":             {},
	"sidecar/fleet/fleettest":   {"sidecar/fleet"},
	"sidecar/fleet/record":      {"breaker", "throttle", "throttle/adapt", "throttle/budget"},
	"sidecar/web":               {"sidecar/config", "hooks", "wire", "wire/api"},
	"sidecar/otlp":              {"sidecar/telemetry"},
	"sidecar/otlp/otlptest":     {},
	"sidecar/telemetry":         {"sidecar/queue", "sidecar/queue/gates", "sidecar/queue/inspect", "sidecar/rules", "store", "wire", "wire/api"},
	"sidecar/config":            {"sidecar/rules", "throttle", "throttle/adapt", "throttle/budget", "wire"},
	"sidecar/rules":             {"wire"},
	"sidecar/schedule":          {"sidecar/schedule/calendar", "sidecar/queue", "store", "wire", "wire/api"},
	"sidecar/schedule/calendar": {},
	"sidecar/queue":             {"sidecar/queue/inspect", "sidecar/queue/backlog", "sidecar/queue/gates", "sidecar/queue/history", "sidecar/queue/container", "breaker", "drr", "store", "throttle", "wire"},
	"sidecar/queue/inspect":     {"sidecar/queue/backlog", "sidecar/queue/container", "sidecar/queue/gates", "drr", "store", "throttle", "wire"},
	"sidecar/queue/backlog":     {"sidecar/queue/gates", "sidecar/queue/history", "sidecar/queue/container", "breaker", "drr", "store", "throttle"},
	"sidecar/queue/gates":       {"sidecar/queue/history", "sidecar/queue/container", "breaker", "drr", "store", "throttle"},
	"sidecar/queue/history":     {"wire"},
	"sidecar/queue/container":   {},
	"sidecar/queue/queuetest":   {"sidecar/queue", "sidecar/queue/gates", "sidecar/queue/history", "sidecar/queue/inspect", "sidecar/circuit", "sidecar/fleet", "sidecar/fleet/record", "breaker", "store", "store/storetest", "throttle", "throttle/adapt", "throttle/budget", "wire", "wire/api"},
	"sidecar/e2e":               {},
	"sidecar/e2e/build":         {},
	"sidecar/e2e/natstest":      {},
	"sidecar/web/browser":       {},

	"sidecar/cluster":           {"sidecar/cluster/ownership", "store", "store/replog", "wire", "wire/api"},
	"sidecar/cluster/meta":      {"sidecar/cluster/ownership", "sidecar/control", "store", "wire"},
	"sidecar/cluster/ownership": {},
	"sidecar/cluster/transfer":  {"sidecar/cluster", "sidecar/cluster/meta", "store", "store/storefile", "store/replog", "wire"},

	"client":                  {"wire", "wire/api"},
	"client/filatest":         {"client", "sidecar", "sidecar/config"},
	"hooks":                   {"hooks/sandbox", "breaker"},
	"hooks/sandbox":           {"hooks/sandbox/source"},
	"hooks/sandbox/source":    {},
	"store":                   {"store/storefile"},
	"store/replog":            {"store", "store/storefile"},
	"store/storefile":         {},
	"store/storetest":         {"store"},
	"drr":                     {},
	"fingerprint":             {},
	"ordered":                 {},
	"throttle":                {"ordered", "throttle/adapt", "throttle/budget", "throttle/rate"},
	"throttle/adapt":          {},
	"throttle/adapt/provider": {"throttle/adapt"},
	"throttle/budget":         {},
	"throttle/rate":           {},
	"breaker":                 {},
	"wire":                    {"throttle/rate"},
	"wire/api":                {"throttle/adapt", "wire"},
	"schemas/generator":       {"cli/applycmd", "wire", "wire/api"},
	"schemas/schematest":      {"schemas", "wire"},
	"schemas":                 {},
	"docs":                    {},

	"examples/go/consumer": {},
	"examples/go/producer": {},
	"examples/llm":         {"client"},
}

// moduleImports says which packages may use a module from outside. Modules that are not
// listed are refused. Test files may import anything.
var moduleImports = map[string][]string{
	"github.com/nats-io/nats.go": {
		"sidecar", "sidecar/natsio", "sidecar/shard", "sidecar/fleet", "sidecar/cluster", "sidecar/cluster/meta", "sidecar/cluster/transfer", "store/replog", "client", "client/filatest", "bench/system",
		"cli/command", "cli/opscmd", "cli/clitest", "examples/go/consumer", "examples/go/producer",
	},
	"github.com/cespare/xxhash/v2":        {"store/replog", "store/storefile"},
	"github.com/klauspost/compress":       {"store/replog"},
	"github.com/nats-io/nkeys":            {"sidecar/natsio"},
	"github.com/nats-io/nats-server/v2":   {"sidecar/natsio", "bench/system", "cli/clitest", "sidecar/e2e/natstest"},
	"github.com/yuin/gopher-lua":          {"hooks/sandbox", "hooks/sandbox/source"},
	"go.etcd.io/bbolt":                    {"store", "store/storefile"},
	"golang.org/x/sys":                    {"store/storefile", "cli/clitest"},
	"github.com/google/uuid":              {"sidecar/admin", "sidecar/circuit", "sidecar/deadletter", "sidecar/job", "sidecar/schedule", "sidecar/shard", "sidecar/telemetry", "client"},
	"github.com/prometheus/client_golang": {"sidecar/telemetry"},
	"github.com/prometheus/client_model":  {"sidecar/telemetry", "sidecar/otlp"},
	"go.opentelemetry.io/otel":            {"sidecar/otlp", "client"},
	"go.opentelemetry.io/proto/otlp":      {"sidecar/otlp", "sidecar/otlp/otlptest"},
	"google.golang.org/protobuf":          {"sidecar/otlp", "sidecar/otlp/otlptest", "sidecar/telemetry"},
	"github.com/prometheus/procfs":        {"bench/measure"},
	"github.com/HdrHistogram":             {"bench/measure"},
	"github.com/spf13/cobra": {
		"cli", "cli/command", "cli/queuecmd", "cli/applycmd", "cli/messagecmd", "cli/gatecmd", "cli/hookcmd", "cli/storecmd", "cli/clustercmd", "cli/opscmd", "cli/clitest",
	},
	"go.yaml.in/yaml/v3":                       {"cli/applycmd"},
	"github.com/spf13/pflag":                   {"cli", "cli/command", "cli/gatecmd", "cli/hookcmd", "cli/opscmd"},
	"github.com/mattn/go-runewidth":            {"cli/terminal", "hooks/sandbox"},
	"golang.org/x/term":                        {"cli/terminal"},
	"github.com/knadh/koanf":                   {"sidecar/config"},
	"github.com/pelletier/go-toml/v2":          {"sidecar/config"},
	"github.com/go-viper/mapstructure/v2":      {"sidecar/config"},
	"github.com/stretchr/testify":              {"store/storetest", "sidecar/queue/queuetest", "cli/clitest", "sidecar/e2e/natstest", "schemas/schematest"}, // helpers for tests of other packages
	"github.com/santhosh-tekuri/jsonschema/v6": {"schemas/schematest"},
	"go.uber.org/goleak":                       {"store/storetest"},
	"pgregory.net/rapid":                       {"sidecar/queue/queuetest"},
}

// purePackages only compute: time is an argument, and they start no goroutine, log nothing
// and do no I/O.
var purePackages = []string{"drr", "fingerprint", "ordered", "throttle", "throttle/budget", "breaker", "wire", "wire/api", "sidecar/rules", "sidecar/attention", "sidecar/schedule/calendar", "sidecar/fleet/record", "sidecar/cluster/ownership", "sidecar/queue", "sidecar/queue/inspect", "sidecar/queue/backlog", "sidecar/queue/gates", "sidecar/queue/history", "sidecar/queue/container"}

// machinePackages are pure and deterministic: they have no lock, channel or random source
// either, so equal inputs give equal effects.
var machinePackages = []string{"drr", "ordered", "sidecar/fleet/record", "sidecar/cluster/ownership", "sidecar/queue", "sidecar/queue/inspect", "sidecar/queue/backlog", "sidecar/queue/gates", "sidecar/queue/history", "sidecar/queue/container"}

var machineForbids = []string{"sync", "math/rand", "crypto", "github.com/google/uuid"}

// pureForbids are packages that log, keep a clock or do I/O. time is allowed for its types;
// clockAndWait are its functions that are not.
var (
	pureForbids  = []string{"os", "net", "log", "syscall", "runtime", "context", "io/fs", "io/ioutil", "path/filepath", "testing"}
	clockAndWait = []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"}
)

// vagueNames are directory names that say nothing about their contents.
var vagueNames = []string{"util", "utils", "common", "helper", "helpers", "misc", "internal", "pkg", "shared"}

func TestImportRules(t *testing.T) {
	seen := map[string]bool{}
	walkGo(t, func(dir, file string, src []byte) {
		seen[dir] = true
		for _, broken := range checkFile(dir, file, src) {
			t.Error(broken)
		}
	})
	for _, dir := range []string{".", "cli", "sidecar", "hooks", "store", "drr", "breaker", "wire", "client"} {
		require.True(t, seen[dir], "no code in %s: the test reads the wrong directory", dir)
	}
}

// walkGo calls fn for every Go file of the product; dir is relative to the root,
// with slashes.
func walkGo(t *testing.T, fn func(dir, file string, src []byte)) {
	t.Helper()
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if p != "." && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil && p != "." {
				return fs.SkipDir // another module
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		fn(filepath.ToSlash(filepath.Dir(p)), filepath.ToSlash(p), src)
		return nil
	})
	require.NoError(t, err)
}

// checkFile returns the rules that a file of the package in dir breaks.
func checkFile(dir, file string, src []byte) (broken []string) {
	complain := func(format string, args ...any) {
		broken = append(broken, file+": "+fmt.Sprintf(format, args...))
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, src, parser.ParseComments)
	if err != nil {
		complain("%v", err)
		return broken
	}
	own, known := ownImports[dir]
	if !known {
		complain("the package %s is not in the table of imports_test.go", dir)
		return broken
	}
	for part := range strings.SplitSeq(dir, "/") {
		if slices.Contains(vagueNames, part) {
			complain("%q says nothing: name the package after what it does", part)
		}
	}
	pure := slices.Contains(purePackages, dir)
	for _, spec := range parsed.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
		if why := refuseImport(dir, imported, own, pure); why != "" {
			complain("imports %s: %s", imported, why)
		}
	}
	for _, group := range parsed.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:linkname") {
				complain("uses go:linkname")
			}
		}
	}
	if pure {
		broken = append(broken, checkPure(file, parsed)...)
	}
	if slices.Contains(machinePackages, dir) {
		broken = append(broken, checkMachine(file, parsed)...)
	}
	return broken
}

// checkMachine finds locks, channels and random sources: a machine depends on its inputs only.
func checkMachine(file string, parsed *ast.File) (broken []string) {
	for _, spec := range parsed.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		for _, forbidden := range machineForbids {
			if imported == forbidden || strings.HasPrefix(imported, forbidden+"/") {
				broken = append(broken, fmt.Sprintf("%s: imports %s: a machine has no lock and no random source", file, imported))
			}
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
			broken = append(broken, file+": a machine has no channel")
		}
		return true
	})
	return broken
}

// refuseImport returns why a package in dir may not import the path, or "".
func refuseImport(dir, imported string, own []string, pure bool) string {
	switch {
	case imported == "unsafe" || imported == "C":
		return "no unsafe and no cgo in this project"
	case imported == modulePath || strings.HasPrefix(imported, modulePath+"/"):
		if !slices.Contains(own, strings.TrimPrefix(imported, modulePath+"/")) {
			return fmt.Sprintf("%s may import %v of this module", dir, own)
		}
	case strings.Contains(strings.SplitN(imported, "/", 2)[0], "."):
		for module, users := range moduleImports {
			if imported == module || strings.HasPrefix(imported, module+"/") {
				if !slices.Contains(users, dir) {
					return fmt.Sprintf("only %v may use it", users)
				}
				return ""
			}
		}
		return "the module is not in the table of imports_test.go"
	case pure:
		for _, forbidden := range pureForbids {
			if imported == forbidden || strings.HasPrefix(imported, forbidden+"/") {
				return "a pure package does no I/O, keeps no clock and logs nothing"
			}
		}
	}
	return ""
}

// checkPure finds goroutines and clocks in a pure package.
func checkPure(file string, parsed *ast.File) (broken []string) {
	timeName := importName(parsed, "time")
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			broken = append(broken, file+": a pure package starts no goroutine")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && timeName != "" && x.Name == timeName && slices.Contains(clockAndWait, n.Sel.Name) {
				broken = append(broken, fmt.Sprintf("%s: time.%s: in a pure package time is an argument", file, n.Sel.Name))
			}
		}
		return true
	})
	return broken
}

// importName is the name under which a file knows an import, "" if it does not.
func importName(parsed *ast.File, imported string) string {
	for _, spec := range parsed.Imports {
		if p, _ := strconv.Unquote(spec.Path.Value); p != imported {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(imported)
	}
	return ""
}

// TestImportRulesRefuse applies the rules to files that break them, so that a mistake in the
// test does not pass as order.
func TestImportRulesRefuse(t *testing.T) {
	for name, tc := range map[string]struct{ dir, src, want string }{
		"sibling":          {"store", `import "github.com/filaq/fila/drr"`, "store may import [store/storefile]"},
		"upwards":          {"hooks", `import "github.com/filaq/fila/sidecar"`, "hooks may import [hooks/sandbox breaker]"},
		"main":             {".", `import "github.com/filaq/fila/sidecar"`, "may import [cli]"},
		"nats in hooks":    {"hooks", `import "github.com/nats-io/nats.go"`, "only [sidecar sidecar/natsio "},
		"nats micro":       {"store", `import "github.com/nats-io/nats.go/micro"`, "only [sidecar sidecar/natsio "},
		"lua in sidecar":   {"sidecar", `import "github.com/yuin/gopher-lua/parse"`, "only [hooks/sandbox hooks/sandbox/source]"},
		"bbolt in sidecar": {"sidecar", `import bolt "go.etcd.io/bbolt"`, "only [store store/storefile]"},
		"testify in code":  {"sidecar", `import "github.com/stretchr/testify/require"`, "only [store/storetest "},
		"unknown module":   {"sidecar", `import "github.com/pkg/errors"`, "not in the table"},
		"module in pure":   {"wire", `import "github.com/google/uuid"`, "only [sidecar/admin "},
		"unsafe":           {"hooks", `import "unsafe"`, "no unsafe"},
		"linkname":         {"hooks", "//go:linkname a b\nfunc a()", "go:linkname"},
		"os in pure":       {"wire", `import "os/exec"`, "does no I/O"},
		"slog in pure":     {"breaker", `import "log/slog"`, "logs nothing"},
		"now in pure":      {"breaker", "import \"time\"\nvar _ = time.Now()", "time is an argument"},
		"renamed time":     {"drr", "import clock \"time\"\nvar _ = clock.Since", "time is an argument"},
		"goroutine":        {"drr", "func f() { go f() }", "starts no goroutine"},
		"lock in machine":  {"sidecar/queue", `import "sync"`, "no lock"},
		"atomic":           {"sidecar/queue", `import "sync/atomic"`, "no lock"},
		"random":           {"sidecar/queue", `import "math/rand/v2"`, "no random source"},
		"channel":          {"sidecar/queue", "var c chan int", "no channel"},
		"nats in queue":    {"sidecar/queue", `import "github.com/nats-io/nats.go"`, "only"},
		"clock in queue":   {"sidecar/queue", "import \"time\"\nvar _ = time.Now()", "time is an argument"},
		"log in queue":     {"sidecar/queue", `import "log/slog"`, "logs nothing"},
		"queue to shard":   {"sidecar/queue", `import "github.com/filaq/fila/sidecar/shard"`, "may import"},
		"control to shard": {"sidecar/control", `import "github.com/filaq/fila/sidecar/shard"`, "may import"},
		"unknown package":  {"queue", "", "not in the table"},
		"broken file":      {"drr", "func", "expected"},
	} {
		t.Run(name, func(t *testing.T) {
			broken := checkFile(tc.dir, "x.go", []byte("package x\n"+tc.src))
			require.Len(t, broken, 1)
			require.Contains(t, broken[0], tc.want)
		})
	}
	for name, tc := range map[string]struct{ dir, src string }{
		"duration in pure": {"wire", "import \"time\"\nconst d = time.Second"},
		"now elsewhere":    {"sidecar", "import \"time\"\nvar _ = time.Now()"},
		"wire in sidecar":  {"sidecar", `import "github.com/filaq/fila/wire"`},
		"nats in client":   {"client", `import "github.com/nats-io/nats.go"`},
	} {
		t.Run(name, func(t *testing.T) {
			require.Empty(t, checkFile(tc.dir, "x.go", []byte("package x\n"+tc.src)))
		})
	}
}

// TestLayers logs the packages of the product in layers, the top one first, and finds import
// cycles and layers in the wrong order.
func TestLayers(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", ".").Output()
	require.NoError(t, err)
	imports := make(map[string][]string)
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		pkg, ok := strings.CutPrefix(fields[0], modulePath+"/")
		if !ok {
			continue // another module, or main
		}
		imports[pkg] = nil
		for _, path := range fields[1:] {
			if below, ok := strings.CutPrefix(path, modulePath+"/"); ok {
				imports[pkg] = append(imports[pkg], below)
			}
		}
	}
	require.Greater(t, len(imports), 15, "the packages are not found")
	layers := make(map[string]int) // one above the highest layer that the package imports
	var layer func(pkg string, path []string) int
	layer = func(pkg string, path []string) int {
		require.NotContains(t, path, pkg, "an import cycle: %v", append(path, pkg))
		if n, ok := layers[pkg]; ok {
			return n
		}
		n := 0
		for _, below := range imports[pkg] {
			n = max(n, layer(below, append(path, pkg))+1)
		}
		layers[pkg] = n
		return n
	}
	top := 0
	for pkg := range imports {
		top = max(top, layer(pkg, nil))
	}
	for n := top; n >= 0; n-- {
		for _, pkg := range slices.Sorted(maps.Keys(imports)) {
			if layers[pkg] == n {
				t.Logf("%2d  %-24s -> %s", n, pkg, strings.Join(imports[pkg], " "))
			}
		}
	}
	for _, arrow := range [][2]string{
		{"sidecar", "sidecar/admin"},
		{"sidecar/admin", "sidecar/control"},
		{"sidecar/control", "sidecar/circuit"},
		{"sidecar/control", "sidecar/config"},
		{"sidecar/natsio", "sidecar/shard"},
		{"sidecar/shard", "sidecar/queue"},
		{"sidecar/circuit", "sidecar/queue/gates"},
		{"sidecar/queue", "sidecar/queue/inspect"},
		{"cli", "sidecar"},
	} {
		require.Greater(t, layers[arrow[0]], layers[arrow[1]], "%s is not above %s", arrow[0], arrow[1])
	}
}
