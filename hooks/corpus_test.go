package hooks

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patient limits are for tests that are not about time: a busy machine may
// leave a test without the processor for longer than the hard wall limit.
var patient = Limits{Timeout: time.Minute}

// corpusScript is a script of testdata with its header lines.
type corpusScript struct {
	name, text string
	kind       Kind
	want       map[string]any
	enqueue    EnqueueInput
	failure    FailureInput
}

func readCorpus(t testing.TB, dir string) []corpusScript {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", dir, "*.lua"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var out []corpusScript
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		c := corpusScript{name: strings.TrimSuffix(filepath.Base(f), ".lua"), text: string(text), kind: OnEnqueue}
		headers := map[string][]string{"tenant": {"acme"}, "tier": {"Gold"}, "region": {"eu-west-1"}}
		c.enqueue = EnqueueInput{Headers: headers, PayloadSize: 1234, Queue: "orders"}
		c.failure = FailureInput{Headers: headers, ID: "m1", Queue: "orders", Attempts: 3, Error: "upstream returned 503"}
		for line := range strings.Lines(c.text) {
			if !strings.HasPrefix(line, "--@") {
				break
			}
			if rest, ok := strings.CutPrefix(line, "--@want "); ok {
				require.NoError(t, json.Unmarshal([]byte(rest), &c.want), c.name)
			}
			if strings.HasPrefix(line, "--@hook 1") {
				c.kind = OnFailure
			}
			if rest, ok := strings.CutPrefix(line, "--@msg "); ok {
				require.NoError(t, json.Unmarshal([]byte(rest), &c.enqueue), c.name)
				require.NoError(t, json.Unmarshal([]byte(rest), &c.failure), c.name)
			}
		}
		out = append(out, c)
	}
	if dir == "hostile" {
		out = append(out, corpusScript{name: "z08_giant", text: "-- attack: 2 MiB of source\nx = 1 -- " + strings.Repeat("y", 2<<20), kind: OnEnqueue})
	}
	return out
}
