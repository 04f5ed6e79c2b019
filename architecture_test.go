package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/architecture.md shows the same imports between packages of the sidecar as the table of
// imports_test.go allows.
func TestArchitectureShowsAllowedImports(t *testing.T) {
	page, err := os.ReadFile("docs/architecture.md")
	require.NoError(t, err)
	shown := make(map[string][]string)
	for _, row := range regexp.MustCompile(`(?m)^(sidecar\S*) +-> (.+)$`).FindAllStringSubmatch(string(page), -1) {
		for _, pkg := range strings.Fields(row[2]) {
			if _, below := ownImports["sidecar/"+pkg]; below {
				pkg = "sidecar/" + pkg
			}
			shown[row[1]] = append(shown[row[1]], pkg)
		}
	}
	for pkg, own := range ownImports {
		if strings.HasPrefix(pkg, "sidecar") && !strings.HasPrefix(pkg, "sidecar/e2e") && pkg != "sidecar/web/browser" && pkg != "sidecar/queue/queuetest" && pkg != "sidecar/fleet/fleettest" {
			require.ElementsMatch(t, own, shown[pkg], pkg)
			delete(shown, pkg)
		}
	}
	require.Empty(t, shown)
}
