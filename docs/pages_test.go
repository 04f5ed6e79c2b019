package docs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/filaq/fila/wire"
	"github.com/stretchr/testify/require"
)

// docs/errors.md has the error numbers and texts of the catalogue, in its order.
func TestErrorsDocumented(t *testing.T) {
	var documented []wire.Entry
	for _, line := range regexp.MustCompile("(?m)^- ([0-9]+) `([a-z_]+)`: (.+)$").FindAllStringSubmatch(readText(t, "docs/errors.md"), -1) {
		errCode, err := strconv.Atoi(line[1])
		require.NoError(t, err)
		documented = append(documented, wire.Entry{ErrCode: errCode, Code: errCode % 1000, Name: line[2], Meaning: line[3]})
	}
	require.Equal(t, wire.Catalog(), documented)
}

// Every file and directory that the pages for contributors name exists.
func TestFilesOfContributorPagesExist(t *testing.T) {
	name := regexp.MustCompile("`([\\w.-]+(?:/[\\w.-]+)*/?)`")
	named := 0
	for _, page := range []string{"docs/architecture.md", "CONTRIBUTING.md"} {
		for _, m := range name.FindAllStringSubmatch(fence.ReplaceAllString(readText(t, page), ""), -1) {
			path := m[1]
			switch {
			case path == "testing/synctest": // in the standard library
				continue
			case !strings.Contains(path, "/") && !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".md"):
				continue
			}
			named++
			_, err := os.Stat(path)
			if errors.Is(err, fs.ErrNotExist) {
				_, err = os.Stat(filepath.Join("sidecar", path))
			}
			require.NoError(t, err, "%s names %s", page, path)
		}
	}
	require.Greater(t, named, 100, "the names were not found")
}

// markdown returns the pages of the project by path.
func markdown(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return fs.SkipDir
		case strings.HasSuffix(p, ".md"):
			text, err := os.ReadFile(p)
			pages[p] = string(text)
			return err
		}
		return nil
	})
	require.NoError(t, err)
	return pages
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fence   = regexp.MustCompile("(?s)```.*?```")
)

// anchors returns the link fragments of a page.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		found[anchor(h[1])] = true
	}
	return found
}

func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z':
			return r
		}
		return -1
	}, strings.ToLower(heading))
}

// Every link to a file of the project has a target, including its fragment.
func TestDocsLinksHaveTargets(t *testing.T) {
	pages := markdown(t)
	require.Contains(t, pages, "README.md")
	checked := 0
	for from, text := range pages {
		for _, l := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			file, fragment, _ := strings.Cut(l[1], "#")
			target := from
			if file != "" {
				target = filepath.Join(filepath.Dir(from), file)
			}
			checked++
			_, err := os.Stat(target)
			require.NoError(t, err, "%s links to %s", from, l[1])
			if fragment != "" {
				require.True(t, anchors(pages[target])[fragment], "%s links to %s: no such heading", from, l[1])
			}
		}
	}
	require.Greater(t, checked, 20, "the links were not found")
}

// The README links every page, and the index of the ADRs every ADR.
func TestEveryPageIsLinked(t *testing.T) {
	pages := markdown(t)
	for _, dir := range []struct{ index, pages string }{
		{"README.md", "docs/*.md"},
		{"docs/adr/README.md", "docs/adr/0*.md"},
	} {
		found, err := filepath.Glob(dir.pages)
		require.NoError(t, err)
		require.NotEmpty(t, found)
		for _, page := range found {
			target, err := filepath.Rel(filepath.Dir(dir.index), page)
			require.NoError(t, err)
			require.Contains(t, pages[dir.index], "]("+target+")", "%s does not link to %s", dir.index, page)
		}
	}
}

func TestAnchor(t *testing.T) {
	require.Equal(t, "what-is-durable-when", anchor("What is durable when"))
	require.Equal(t, "ack-nack-and-the-rest", anchor("Ack, nack and the rest"))
	require.Equal(t, map[string]bool{"a": true}, anchors("# A\n```\n# b\n```\n"))
}
