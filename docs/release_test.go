package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/cluster/ownership"
)

// Releases are built with the command of docs/deploy.md, for the systems that it names.
func TestReleasesAreTheDocumentedBuild(t *testing.T) {
	t.Parallel()
	config := readYAML(t, readText(t, ".goreleaser.yaml"))[0]
	builds := at(config, "builds").([]any)
	require.Len(t, builds, 1)
	words := func(key string) string {
		var all []string
		for _, word := range at(builds[0], key).([]any) {
			all = append(all, word.(string))
		}
		return strings.Join(all, " ")
	}
	require.Equal(t, releaseBuild, words("env")+" go build "+words("flags")+" -ldflags="+words("ldflags")+" -o fila .")
	require.Equal(t, "linux darwin windows", words("goos"))
	require.Equal(t, "amd64 arm64", words("goarch"))
	require.Contains(t, readText(t, "docs/deploy.md"), "Linux, macOS and Windows, each for amd64 and arm64")
	for _, file := range at(config, "archives", 0, "files").([]any) {
		require.FileExists(t, file.(string))
	}
}

// The workflows use the Go version of go.mod, and name actions by commit: a tag can be moved.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	version := goVersion.FindStringSubmatch(readText(t, "go.mod"))[1]
	require.Contains(t, readText(t, ".github/workflows/release.yml"), `go-version: "`+version+`.x"`)
	require.Contains(t, readText(t, ".github/workflows/ci.yml"), "image: golang:"+version+"-")

	pinned := regexp.MustCompile(`^(\./\.github/workflows/[\w.]+|[\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+)$`)
	files, err := filepath.Glob(".github/workflows/*.yml")
	require.NoError(t, err)
	actions := 0
	for _, file := range files {
		for _, use := range regexp.MustCompile(`(?m)uses: (.+)$`).FindAllStringSubmatch(readText(t, file), -1) {
			actions++
			require.Regexp(t, pinned, use[1], file)
		}
	}
	require.Greater(t, actions, 5)
}

// docs/versions.md names the versions that the module and the code need.
func TestVersionsPage(t *testing.T) {
	t.Parallel()
	page, module := readText(t, "docs/versions.md"), readText(t, "go.mod")
	require.Contains(t, page, "| Go | "+goVersion.FindStringSubmatch(module)[1]+" or newer")
	require.Contains(t, page, "nats-server "+regexp.MustCompile(`nats-server/v2 v(\S+)`).FindStringSubmatch(module)[1]+" |")
	require.Contains(t, page, "["+ownership.MinVersion+" or newer]")
}

// The forms for issues ask for the output of commands that exist.
func TestIssueFormsNameCommands(t *testing.T) {
	t.Parallel()
	reference := readText(t, "docs/cli.md")
	forms, err := filepath.Glob(".github/ISSUE_TEMPLATE/*.yml")
	require.NoError(t, err)
	commands := 0
	for _, form := range forms {
		text := readText(t, form)
		require.Len(t, readYAML(t, text), 1, form)
		for _, command := range regexp.MustCompile("`(fila[a-z A-Z]*)`").FindAllStringSubmatch(text, -1) {
			commands++
			require.Contains(t, reference, "\n## "+command[1], form)
		}
	}
	require.Greater(t, commands, 4)
}

// .ci/check-tag accepts a tag if binary, chart and changelog have its version, and names what
// differs.
func TestTagOfARelease(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds two clones")
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	clone := filepath.Join(t.TempDir(), "clone")
	if out, err := exec.Command("git", "clone", "-q", ".", clone).CombinedOutput(); err != nil {
		t.Skipf("needs a git clone: %s", out)
	}
	check := func(tag string) (string, error) {
		command := exec.Command(".ci/check-tag", tag)
		command.Dir = clone
		out, err := command.CombinedOutput()
		return string(out), err
	}
	git := func(args ...string) {
		command := exec.Command("git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...)
		command.Dir = clone
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}

	const tag = "v0.98.7"
	out, err := check(tag)
	require.Error(t, err)
	require.Contains(t, out, `not "fila v0.98.7"`)
	require.Contains(t, out, "Chart.yaml does not have the line: version: 0.98.7")
	require.Contains(t, out, "CHANGELOG.md has no section ## [0.98.7]")

	for file, lines := range map[string][2]string{
		"CHANGELOG.md":                {`## \[Unreleased\]`, "## [Unreleased]\n\n## [0.98.7] - 2026-01-02"},
		"deploy/helm/fila/Chart.yaml": {`(ersion: "?)[\d.]+`, "${1}0.98.7"},
	} {
		path := filepath.Join(clone, file)
		text := regexp.MustCompile(lines[0]).ReplaceAllString(readText(t, path), lines[1])
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	git("commit", "-qam", "release")
	git("tag", tag)
	out, err = check(tag)
	require.NoError(t, err, out)
	require.Empty(t, out)
}
