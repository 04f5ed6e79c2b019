package sandbox

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	onEnqueue = "on_enqueue"
	onFailure = "on_failure"
)

// patient limits are for tests that are not about time: a busy machine may
// leave a test without the processor for longer than the hard wall limit.
var patient = Limits{Timeout: time.Minute}

// message is the argument of a hook in the tests.
type message struct {
	Headers          map[string][]string
	PayloadSize      int
	Queue, ID, Error string
	Route            string
	Attempts         int
	HasDelay, failed bool
	RequestedDelay   time.Duration
}

func (m *message) fill(a *Argument) {
	a.SetText("queue", m.Queue)
	if !m.failed {
		a.SetNumber("payload_size", float64(m.PayloadSize))
		a.SetMap("headers", m.Headers)
		return
	}
	a.SetText("id", m.ID)
	a.SetText("error", m.Error)
	a.SetOptionalText("route", m.Route, m.Route != "")
	a.SetNumber("attempts", float64(m.Attempts))
	a.SetMap("headers", m.Headers)
	a.SetOptionalNumber("requested_delay_ms", float64(m.RequestedDelay)/1e6, m.HasDelay)
}

// result is the result of a run.
type result struct {
	Returned any
	Usage
	Err *RunError
}

// field returns a field of the returned table.
func (r result) field(name string) any {
	m, _ := r.Returned.(map[string]any)
	return m[name]
}

// hook is a VM that runs on messages.
type hook struct{ *VM }

func (h hook) run(m *message) (r result) {
	r.Err = h.Run(m.fill, func(t Table) string {
		r.Returned = t.Plain()
		return ""
	})
	r.Usage = h.Usage()
	return r
}

func compileHook(name, text string, l Limits) (*Script, error) {
	return Compile(name, text, []string{onEnqueue, onFailure}, l)
}

// newHook compiles a script under the name "s", with patient limits by default.
func newHook(t testing.TB, function, text string, l Limits) hook {
	t.Helper()
	if l == (Limits{}) {
		l = patient
	}
	script, err := compileHook("s", text, l)
	require.NoError(t, err)
	return hook{New(script, function, l, Env{Get: func(key string) (string, bool) { return "v", key == "k" }})}
}

// corpusScript is a script of testdata with its header lines.
type corpusScript struct {
	name, text, function string
	want                 map[string]any
	message              message
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
		c := corpusScript{name: strings.TrimSuffix(filepath.Base(f), ".lua"), text: string(text), function: onEnqueue}
		c.message = message{
			Headers:     map[string][]string{"tenant": {"acme"}, "tier": {"Gold"}, "region": {"eu-west-1"}},
			PayloadSize: 1234, Queue: "orders", ID: "m1", Attempts: 3, Error: "upstream returned 503",
		}
		for line := range strings.Lines(c.text) {
			if !strings.HasPrefix(line, "--@") {
				break
			}
			if rest, ok := strings.CutPrefix(line, "--@want "); ok {
				require.NoError(t, json.Unmarshal([]byte(rest), &c.want), c.name)
			}
			if strings.HasPrefix(line, "--@hook 1") {
				c.function, c.message.failed = onFailure, true
			}
			if rest, ok := strings.CutPrefix(line, "--@msg "); ok {
				require.NoError(t, json.Unmarshal([]byte(rest), &c.message), c.name)
			}
		}
		out = append(out, c)
	}
	if dir == "hostile" {
		out = append(out, corpusScript{name: "z08_giant", text: "-- attack: 2 MiB of source\nx = 1 -- " + strings.Repeat("y", 2<<20), function: onEnqueue})
	}
	return out
}

// TestGoodCorpus runs every good script three times in one VM. Each result must be
// right.
func TestGoodCorpus(t *testing.T) {
	for _, c := range readCorpus(t, "good") {
		t.Run(c.name, func(t *testing.T) {
			h := newHook(t, c.function, c.text, Limits{})
			for range 3 {
				res := h.run(&c.message)
				require.Nil(t, res.Err)
				text, err := json.Marshal(res.Returned)
				require.NoError(t, err)
				var got map[string]any
				require.NoError(t, json.Unmarshal(text, &got))
				for k, want := range c.want {
					require.Equal(t, want, got[k], k)
				}
			}
		})
	}
}
