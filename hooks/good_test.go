package hooks

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGoodCorpus runs every good script three times in one VM: the answer must
// be right each time.
func TestGoodCorpus(t *testing.T) {
	for _, c := range readCorpus(t, "good") {
		t.Run(c.name, func(t *testing.T) {
			r := newRunner(t, c.kind, c.text, RunnerOptions{})
			for range 3 {
				var res Result
				if c.kind == OnFailure {
					res = r.OnFailure(&c.failure)
				} else {
					res = r.OnEnqueue(&c.enqueue)
				}
				require.Nil(t, res.Err)
				got := asJSON(t, res.Returned)
				for k, want := range c.want {
					require.Equal(t, want, got[k], k)
				}
			}
		})
	}
}

func asJSON(t testing.TB, v any) map[string]any {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	var m map[string]any
	require.NoError(t, json.Unmarshal(b, &m))
	return m
}
