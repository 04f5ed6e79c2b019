package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/architecture.md says of the rooms of the sidecar who may import whom as the
// table of imports_test.go does.
func TestArchitectureSaysWhoMayImportWhom(t *testing.T) {
	page, err := os.ReadFile("docs/architecture.md")
	require.NoError(t, err)
	said := make(map[string][]string)
	for _, row := range regexp.MustCompile(`(?m)^(sidecar\S*) +-> (.+)$`).FindAllStringSubmatch(string(page), -1) {
		for _, room := range strings.Fields(row[2]) {
			if _, below := ownImports["sidecar/"+room]; below {
				room = "sidecar/" + room
			}
			said[row[1]] = append(said[row[1]], room)
		}
	}
	for room, own := range ownImports {
		if strings.HasPrefix(room, "sidecar") && room != "sidecar/e2e" && room != "sidecar/web/browser" && room != "sidecar/queue/queuetest" && room != "sidecar/fleet/fleettest" {
			require.ElementsMatch(t, own, said[room], room)
			delete(said, room)
		}
	}
	require.Empty(t, said)
}
