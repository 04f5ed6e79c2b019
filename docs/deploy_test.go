package docs

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/filaq/fila/sidecar/e2e/natstest"
)

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// readYAML decodes every document of the text.
func readYAML(t *testing.T, text string) []any {
	t.Helper()
	var found []any
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		var document any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err, text)
		if document != nil {
			found = append(found, document)
		}
	}
}

// at follows a path of map keys and list indexes into value. It returns nil if there is no value.
func at(value any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := value.(map[string]any)
			value = m[step]
		case int:
			list, _ := value.([]any)
			if step >= len(list) {
				return nil
			}
			value = list[step]
		}
	}
	return value
}

// Other tools accept the files of deploy/, as far as the tools are installed.
func TestDeployCheck(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	out, err := exec.Command("deploy/check").CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}

// Builds of one commit in two directories are equal, static, and know their commit. They share
// the build cache; `deploy/check build` compiles everything twice.
func TestReproducibleBuild(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds two clones")
	}
	head, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		t.Skip("needs a git clone")
	}
	require.Contains(t, readText(t, "docs/deploy.md"), releaseBuild)
	var sums [2][sha256.Size]byte
	for i := range sums {
		dir := filepath.Join(t.TempDir(), strings.Repeat("deeper/", i), "clone")
		out, err := exec.Command("git", "clone", "-q", ".", dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
		out, err = exec.Command("git", "-C", dir, "checkout", "-q", strings.TrimSpace(string(head))).CombinedOutput()
		require.NoError(t, err, "%s", out)
		build := exec.Command("sh", "-c", releaseBuild)
		build.Dir = dir
		out, err = build.CombinedOutput()
		require.NoError(t, err, "%s", out)
		binary := filepath.Join(dir, "fila")
		sums[i] = sha256.Sum256([]byte(readText(t, binary)))

		out, err = exec.Command(binary, "version", "--json").Output()
		require.NoError(t, err)
		var info struct {
			Revision string
			Modified bool
		}
		require.NoError(t, json.Unmarshal(out, &info))
		require.Equal(t, strings.TrimSpace(string(head)), info.Revision)
		require.False(t, info.Modified)
		requireStatic(t, binary)
	}
	require.Equal(t, sums[0], sums[1])
}

const releaseBuild = "CGO_ENABLED=0 go build -trimpath -buildvcs=true -ldflags=-s -o fila ."

func requireStatic(t *testing.T, binary string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return
	}
	file, err := elf.Open(binary)
	require.NoError(t, err)
	defer file.Close()
	for _, p := range file.Progs {
		require.NotEqual(t, elf.PT_INTERP, p.Type, "dynamically linked")
	}
	libraries, err := file.ImportedLibraries()
	require.NoError(t, err)
	require.Empty(t, libraries)
}

var goVersion = regexp.MustCompile(`(?m)^go (\d+\.\d+)`)

func TestDockerfile(t *testing.T) {
	t.Parallel()
	stages := strings.Split("\n"+strings.ReplaceAll(readText(t, "deploy/Dockerfile"), "\\\n", ""), "\nFROM ")
	require.Len(t, stages, 3)
	build, image := stages[1], stages[2]
	require.Contains(t, build, "golang:"+goVersion.FindStringSubmatch(readText(t, "go.mod"))[1]+"-", "go.mod needs another Go")
	flags := strings.TrimSuffix(strings.TrimPrefix(releaseBuild, "CGO_ENABLED=0 "), " -o fila .")
	require.Contains(t, build, "CGO_ENABLED=0 ")
	require.Contains(t, build, flags, "docs/deploy.md has another build command")

	require.True(t, strings.HasPrefix(image, "scratch\n"))
	require.Regexp(t, `(?m)^USER [1-9]\d*:[1-9]\d*$`, image)
	require.NotRegexp(t, `(?m)^(RUN|SHELL|HEALTHCHECK) `, image, "the image has no shell")
	for _, line := range []string{"VOLUME /data", `ENTRYPOINT ["/fila"]`, `CMD ["serve"]`} {
		require.Contains(t, image, "\n"+line+"\n")
	}

	// fila knows the variables that the image sets.
	needBinaries(t)
	s := newShell(t)
	env := regexp.MustCompile(`(?m)^ENV (.+)$`).FindStringSubmatch(image)
	require.NotNil(t, env)
	require.Contains(t, env[1], "FILA_DATA_DIR=/data ")
	out, code := s.run("export " + strings.ReplaceAll(env[1], "=/data ", "=./data ") + "; fila_serve")
	require.Zero(t, code, out)
	require.NotContains(t, s.log(), "WARN")

	// An ignored file that git tracks would make the version "modified".
	ignored, err := exec.Command("git", "ls-files", "-ci", "-X", "deploy/Dockerfile.dockerignore").Output()
	if err == nil {
		require.Empty(t, string(ignored))
	}
}

// TestPagesOfAContainer: with the image's environment and the documented command a browser sees the
// pages with the token, and without the settings of the token it sees none.
func TestPagesOfAContainer(t *testing.T) {
	t.Parallel()
	needBinaries(t)
	page := readText(t, "docs/deploy.md")
	run := regexp.MustCompile(`(?m)^docker run .*$`).FindString(page)
	require.NotEmpty(t, run)
	require.Contains(t, page, "base64 >operator.token\n")
	require.Contains(t, run, " -v ./operator.token:/etc/fila/operator.token:ro ")
	require.Contains(t, run, " -p 127.0.0.1:8222:8222 ")
	require.Contains(t, readText(t, "deploy/Dockerfile"), " FILA_HTTP__ADDR=0.0.0.0:8222\n")
	setting := regexp.MustCompile(` -e (FILA_HTTP__\S+)`).FindStringSubmatch(run)
	require.NotNil(t, setting)

	s := newShell(t)
	s.write("operator.token", someToken)
	serve := func(setting string) string {
		out, code := s.run("export LISTEN=0.0.0.0; " + strings.Replace(setting, "/etc/fila/", "./", 1) + " fila_serve")
		require.Zero(t, code, out)
		return "http://127.0.0.1" + regexp.MustCompile(`http=\S*(:\d+)`).FindStringSubmatch(out)[1]
	}
	requirePages(t, serve("")+"/", "", http.StatusForbidden)
	address := serve(setting[1])
	requirePages(t, address+"/", "", http.StatusSeeOther)
	requirePages(t, address+"/", strings.TrimSpace(someToken), http.StatusOK)
}

// requirePages asks for a page with a token, which may be empty.
func requirePages(t *testing.T, url, token string, status int) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, status, response.StatusCode)
}

// expandEnvironment returns a function that replaces ${NAME:?...} by the values of env.example.
func expandEnvironment(t *testing.T) func(text string) string {
	t.Helper()
	passwords := map[string]string{}
	for line := range strings.Lines(readText(t, "deploy/compose/env.example")) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		require.True(t, ok, line)
		passwords[name] = value
	}
	return func(text string) string {
		return regexp.MustCompile(`\$\{(\w+):\?[^}]*\}`).ReplaceAllStringFunc(text, func(use string) string {
			name := use[2:strings.Index(use, ":?")]
			require.Contains(t, passwords, name)
			return passwords[name]
		})
	}
}

// The compose file, as far as possible without Docker: NATS runs with its nats.conf, fila with
// its environment, and the health check tells whether fila runs.
func TestComposeRuns(t *testing.T) {
	needBinaries(t)
	compose := readYAML(t, readText(t, "deploy/compose/compose.yaml"))[0]
	require.Equal(t, "deploy/Dockerfile", at(compose, "services", "fila", "build", "dockerfile"))
	require.FileExists(t, filepath.Join("deploy/compose", at(compose, "services", "fila", "build", "context").(string), "deploy/Dockerfile"))
	require.Equal(t, []any{"data:/data"}, at(compose, "services", "fila", "volumes"))
	require.Contains(t, at(compose, "volumes"), "data")

	expand := expandEnvironment(t)
	for name, value := range at(compose, "services", "nats", "environment").(map[string]any) {
		t.Setenv(name, expand(value.(string)))
	}
	options, err := server.ProcessConfigFile("deploy/compose/nats.conf")
	require.NoError(t, err)
	require.Len(t, options.Users, 6)
	nats := natstest.Start(t, func(o *server.Options) {
		options.Host, options.Port, options.NoSigs, options.NoLog = o.Host, o.Port, true, true
		*o = *options
	})

	s := newShell(t)
	var export strings.Builder
	for name, value := range at(compose, "services", "fila", "environment").(map[string]any) {
		here := strings.NewReplacer("nats://nats:4222", nats.URL, secretsDir, "./").Replace(expand(value.(string)))
		export.WriteString("export " + name + "='" + here + "'\n")
	}
	requireComposeToken(t, compose)
	s.write("operator_token", someToken)
	out, code := s.run(export.String() + "fila_serve")
	require.Zero(t, code, out)
	require.Contains(t, out, nats.URL)

	var health []string
	for _, word := range at(compose, "services", "fila", "healthcheck", "test").([]any)[1:] {
		health = append(health, strings.Replace(word.(string), "/fila", "fila", 1))
	}
	out, code = s.run(strings.Join(health, " "))
	require.Zero(t, code, out)
	_, code = s.run("stop_server; " + strings.Join(health, " "))
	require.NotZero(t, code, "healthy without fila")
}

// secretsDir is where Compose mounts secrets.
const secretsDir = "/run/secrets/"

// someToken is the content of a file with a token.
const someToken = "a-token-of-a-test\n"

// requireComposeToken checks that all filas have the token of operators.
func requireComposeToken(t *testing.T, compose any) {
	t.Helper()
	require.Equal(t, "./operator.token", at(compose, "secrets", "operator_token", "file"))
	for name, service := range at(compose, "services").(map[string]any) {
		if at(service, "image") == "fila" {
			require.Equal(t, []any{"operator_token"}, at(service, "secrets"), name)
			require.Equal(t, secretsDir+"operator_token", at(service, "environment", "FILA_HTTP__OPERATOR_TOKEN"), name)
		}
	}
}

// Three filas with the environments of the cluster's compose file form a healthy cluster.
func TestComposeClusterRuns(t *testing.T) {
	t.Parallel()
	needBinaries(t)
	compose := readYAML(t, readText(t, "deploy/compose/cluster.yaml"))[0]
	expand := expandEnvironment(t)
	nodes := map[string]map[string]string{}
	ports := map[any]bool{}
	for host, service := range at(compose, "services").(map[string]any) {
		require.FileExists(t, filepath.Join("deploy/compose", at(service, "build", "context").(string), at(service, "build", "dockerfile").(string)))
		volume, path, _ := strings.Cut(at(service, "volumes", 0).(string), ":")
		require.Contains(t, at(compose, "volumes"), volume)
		require.Equal(t, "/data", path)
		for _, port := range at(service, "ports").([]any) {
			require.False(t, ports[port], port)
			ports[port] = true
		}
		require.Equal(t, []any{"CMD", "/fila", "cluster", "status", "--timeout", "4s"}, at(service, "healthcheck", "test"))
		env := map[string]string{}
		for name, value := range at(service, "environment").(map[string]any) {
			env[name] = expand(value.(string))
		}
		require.Equal(t, volume, env["FILA_CLUSTER__NODE"])
		require.Equal(t, env["FILA_NATS__EMBEDDED__TOKEN"], env["NATS_TOKEN"], "its health check needs the token")
		nodes[host] = env
	}
	requireComposeToken(t, compose)
	status := serveCluster(t, nodes)
	for _, node := range []string{"a", "b", "c"} {
		require.Contains(t, status, `"node": "`+node+`"`)
	}
}

// deploy/compose/nats.conf is the sample in docs/security.md.
func TestComposePermissionsAreDocumented(t *testing.T) {
	for _, b := range blocks("docs/security.md", readText(t, "docs/security.md")) {
		if b.lang == "nats" {
			_, conf, _ := strings.Cut(readText(t, "deploy/compose/nats.conf"), "\n")
			require.Equal(t, b.text, conf)
			return
		}
	}
	require.Fail(t, "docs/security.md has no sample")
}

// fila accepts the command of the systemd unit.
func TestUnit(t *testing.T) {
	t.Parallel()
	needBinaries(t)
	unit := readText(t, "deploy/systemd/fila.service")
	start := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/(fila .+)$`).FindStringSubmatch(unit)
	require.NotNil(t, start)
	s := newShell(t)
	out, code := s.run(start[1] + " --help")
	require.Zero(t, code, out)
	require.Contains(t, unit, "\nExecReload=/bin/kill -HUP $MAINPID\n")
	require.Contains(t, unit, "\nStateDirectory=fila\n")
	require.Contains(t, start[1], "--data-dir /var/lib/fila")
}

// TestApplyExamples: the examples of fila apply have flags that the command has.
func TestApplyExamples(t *testing.T) {
	var lines []string
	workflow := readYAML(t, readText(t, "deploy/apply/github-actions.yaml"))[0]
	for _, step := range at(workflow, "jobs", "apply", "steps").([]any) {
		if run, ok := at(step, "run").(string); ok {
			lines = append(lines, run)
		}
	}
	job := readYAML(t, readText(t, "deploy/apply/job.yaml"))[0]
	args := "fila"
	for _, arg := range at(job, "spec", "template", "spec", "containers", 0, "args").([]any) {
		args += " " + arg.(string)
	}
	reference, found := readText(t, "docs/cli.md"), 0
	for _, line := range append(lines, args) {
		command := regexp.MustCompile(`^fila (apply|diff) `).FindString(line)
		if command == "" {
			continue
		}
		found++
		_, section, ok := strings.Cut(reference, "\n## "+strings.TrimSpace(command)+"\n")
		require.True(t, ok, command)
		section, _, _ = strings.Cut(section, "\n## ")
		for _, flag := range regexp.MustCompile(` (--[a-z-]+)`).FindAllStringSubmatch(line, -1) {
			require.Contains(t, section, flag[1], line)
		}
	}
	require.Equal(t, 3, found)
}
