package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// llms.txt has the format of llmstxt.org, links every page, and names only subjects, acks and
// headers that docs/protocol.md has.
func TestLLMs(t *testing.T) {
	text := readText(t, "llms.txt")
	require.Regexp(t, `\A# fila\n\n> .+\n\n`, text)
	_, lists, ok := strings.Cut(text, "\n## ")
	require.True(t, ok)
	for line := range strings.Lines("## " + lists) {
		require.Regexp(t, `^(## .+|- \[[^\]]+\]\([^)]+\)(: .+)?|)\n$`, line)
	}
	for _, l := range link.FindAllStringSubmatch(text, -1) {
		_, err := os.Stat(l[1])
		require.NoError(t, err)
	}
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, page := range pages {
		require.Contains(t, text, "]("+page+")")
	}

	protocol := readText(t, "docs/protocol.md")
	for _, pattern := range []string{"`(fila\\.[a-z]+\\.<[^`]+)`", "`([+-][A-Z]{2,4}[^`]*)`", "`(Fila-[\\w-]+|Nats-[\\w-]+)`"} {
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1)
		require.NotEmpty(t, found, pattern)
		for _, f := range found {
			require.Contains(t, protocol, f[1])
		}
	}
}
