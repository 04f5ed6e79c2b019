package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every file and directory that the pages for newcomers name is there.
func TestNewcomersFindTheFiles(t *testing.T) {
	name := regexp.MustCompile("`([\\w.-]+(?:/[\\w.-]+)*/?)`")
	named := 0
	for _, page := range []string{"docs/architecture.md", "CONTRIBUTING.md"} {
		for _, m := range name.FindAllStringSubmatch(fence.ReplaceAllString(readText(t, page), ""), -1) {
			path := m[1]
			switch {
			case path == "testing/synctest": // of the standard library
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

// docs/architecture.md says of the rooms of the sidecar who may import whom as the
// table of imports_test.go does.
func TestArchitectureSaysWhoMayImportWhom(t *testing.T) {
	said := make(map[string][]string)
	for _, row := range regexp.MustCompile(`(?m)^(sidecar\S*) +-> (.+)$`).FindAllStringSubmatch(readText(t, "docs/architecture.md"), -1) {
		for _, room := range strings.Fields(row[2]) {
			if _, below := ownImports["sidecar/"+room]; below {
				room = "sidecar/" + room
			}
			said[row[1]] = append(said[row[1]], room)
		}
	}
	for room, own := range ownImports {
		if strings.HasPrefix(room, "sidecar") && room != "sidecar/e2e" && room != "sidecar/queue/queuetest" {
			require.ElementsMatch(t, own, said[room], room)
			delete(said, room)
		}
	}
	require.Empty(t, said)
}
