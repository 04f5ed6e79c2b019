package applycmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/filaq/fila/schemas/schematest"
)

// objects makes the objects of a text.
func objects(text string) (docs []*document, err error) {
	docs, err = readDocuments([]string{"-"}, strings.NewReader(text))
	for _, d := range docs {
		if _, _, e := d.makeObject(); e != nil {
			return docs, e
		}
	}
	return docs, err
}

func TestBadDocuments(t *testing.T) {
	for text, want := range map[string]string{
		"":                                                   "no documents in -",
		"---\n---\n":                                         "no documents in -",
		"- 1\n":                                              "-:1: allowed is a document with kind, name and spec",
		"kind: [":                                            "-: yaml",
		"\nkind: Queue\nnam: x\n":                            `-:3: unknown field "nam" (did you mean name?)`,
		"kind: Queue\n":                                      "-:1: kind and name are missing or empty",
		"kind: Queue\nname: x\nspec: 3\n":                    "cannot unmarshal",
		"kind: queue\nname: x\n":                             `unknown kind "queue" (did you mean Queue?)`,
		"kind: Topic\nname: x\n":                             `unknown kind "Topic": allowed are RetryPolicy, `,
		"kind: Queue\nname: x.dlq\n":                         "a dead letter queue comes with its queue",
		queueOf("visibility_timout: 3s"):                     `Queue x: unknown field "visibility_timout" (did you mean visibility_timeout?)`,
		queueOf("visibility_timeout: 45"):                    "visibility_timeout is 45: allowed is a duration such as 45s, or visibility_timeout_ms in milliseconds",
		queueOf("visibility_timeout: soon"):                  `visibility_timeout: "soon"`,
		queueOf("visibility_timeout_ms: [1]"):                "visibility_timeout_ms",
		queueOf("retry_max: 1s, retry_max_ms: 1"):            "retry_max and retry_max_ms are the same",
		queueOf("max_depth: many"):                           "max_depth",
		queueOf("on_enqueue_file: missing.lua"):              "missing.lua",
		queueOf("on_enqueue_file: a, on_enqueue: b"):         "a hook has a file or a text",
		"kind: Throttle\nname: x\n":                          "it limits nothing",
		throttleOf("limit: 3"):                               "limit and window go together",
		throttleOf("rate: fast"):                             "rate",
		throttleOf("rate: 1, burst: 0"):                      "burst",
		throttleOf("concurrency: 1, burst: 3"):               "burst needs a rate",
		throttleOf("concurrency: -1"):                        "concurrency",
		"kind: Circuit\nname: x\n":                           "it sets nothing",
		"kind: Circuit\nname: x\nspec: {threshold: 0}\n":     "threshold is 0: allowed is 1 to",
		"kind: Circuit\nname: x\nspec: {threshold: 1.5}\n":   "allowed are whole numbers",
		"kind: Circuit\nname: x*\nspec: {threshold: 1}\n":    "circuits have no prefixes",
		scheduleOf("schedule: '@daily'"):                     "queue is missing",
		scheduleOf("queue: q"):                               "schedule is missing",
		"kind: RetryPolicy\nname: x\nspec: {jitter: high}\n": "jitter",
	} {
		_, err := objects(text)
		require.ErrorContains(t, err, want, text)
	}
}

// fits returns an error if a document of a text does not have the form of the schema.
func fits(t *testing.T, text string) error {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		var document any
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		data, err := json.Marshal(document)
		require.NoError(t, err)
		if err := schematest.Validate(t, "apply", data); err != nil {
			return err
		}
	}
}

// TestSchema: editors see the same errors as the command.
func TestSchema(t *testing.T) {
	page, err := os.ReadFile("../../docs/apply.md")
	require.NoError(t, err)
	example := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	require.NoError(t, fits(t, string(example[1])))

	for text, ok := range map[string]bool{
		"kind: Queue\nname: x\n":                                                  true,
		"kind: Queue\n":                                                           false,
		"kind: queue\nname: x\n":                                                  false,
		"kind: Topic\nname: x\n":                                                  false,
		"kind: Queue\nname: x\nlabels: {}\n":                                      false,
		queueOf("visibility_timeout: 1h30m, dedupe_window: '0'"):                  true,
		queueOf("visibility_timeout_ms: 45s"):                                     true,
		queueOf("visibility_timeout_ms: 45000"):                                   true,
		queueOf("visibility_timeout_ms: 0"):                                       false,
		queueOf("visibility_timeout: 45"):                                         false,
		queueOf("visibility_timeout: soon"):                                       false,
		queueOf("visibility_timout: 3s"):                                          false,
		queueOf("starve_after_ms: 0, ordering: key"):                              true,
		queueOf("starve_after_ms: 999"):                                           false,
		queueOf("ordering: fifo"):                                                 false,
		queueOf("max_depth: many"):                                                false,
		queueOf("name: y"):                                                        false,
		throttleOf("rate: 1/3, burst: 2.5"):                                       true,
		throttleOf("limit: 3, window: 1m"):                                        true,
		throttleOf("concurrency: -1"):                                             false,
		"kind: Circuit\nname: x\nspec: {threshold: 3}\n":                          true,
		"kind: Circuit\nname: x\nspec: {threshold: 0}\n":                          false,
		"kind: Circuit\nname: x\nspec: {threshold: 1.5}\n":                        false,
		"kind: Guard\nname: x\nspec: {with: ['t:*']}\n":                           true,
		"kind: Guard\nname: x\nspec: {expired: late}\n":                           false,
		"kind: RouteChoice\nname: x\nspec: {routes: [{name: a, weight: 2.5}]}\n":  true,
		"kind: RouteChoice\nname: x\nspec: {routes: [{name: a, weight: none}]}\n": false,
		"kind: RouteChoice\nname: x\nspec: {}\n":                                  false,
		"kind: RetryPolicy\nname: x\nspec: {max_delay: 5m}\n":                     true,
		"kind: RetryPolicy\nname: x\nspec: {jitter: high}\n":                      false,
		"kind: RetryPolicy\nname: x\nspec: {max_retries: -1}\n":                   false,
		"kind: ErrorRule\nname: x\nspec: {code: c, order: 3}\n":                   true,
		"kind: ErrorRule\nname: x\nspec: {code: c, order: -1}\n":                  false,
		"kind: ErrorRule\nname: x\nspec: {severity: worst}\n":                     false,
		scheduleOf("queue: q, schedule: '@daily', payload: {a: 1}"):               true,
		scheduleOf("queue: q"):                                                    false,
		scheduleOf("schedule: '@daily'"):                                          false,
		scheduleOf("queue: q, schedule: '@daily', ttl: tomorrow"):                 false,
		scheduleOf("queue: q, schedule: '@daily', missed: two"):                   false,
	} {
		_, err := objects(text)
		require.Equal(t, ok, err == nil, "%s: %v", text, err)
		err = fits(t, text)
		require.Equal(t, ok, err == nil, "%s by the schema: %v", text, err)
	}
}

func scheduleOf(fields string) string { return "kind: Schedule\nname: x\nspec: {" + fields + "}\n" }
func queueOf(fields string) string    { return "kind: Queue\nname: x\nspec: {" + fields + "}\n" }
func throttleOf(fields string) string { return "kind: Throttle\nname: x\nspec: {" + fields + "}\n" }

func TestFilesOfADirectory(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"b.yaml": "kind: Throttle\nname: b\nspec: {rate: 1}\n", "a/c.yml": "kind: Throttle\nname: a\nspec: {rate: 1}\n---\n# nothing\n", "notes.txt": "x: y",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	docs, err := readDocuments([]string{dir}, nil)
	require.NoError(t, err)
	require.Len(t, docs, 2)
	require.Equal(t, "a", docs[0].Name)

	// A ConfigMap as Kubernetes mounts it.
	mounted := filepath.Join(dir, "..2026_11_26")
	require.NoError(t, os.Mkdir(mounted, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(mounted, "z.yaml"), []byte("kind: Throttle\nname: z\nspec: {rate: 1}\n"), 0o600))
	require.NoError(t, os.Symlink(mounted, filepath.Join(dir, "..data")))
	require.NoError(t, os.Symlink(filepath.Join("..data", "z.yaml"), filepath.Join(dir, "z.yaml")))
	docs, err = readDocuments([]string{dir}, nil)
	require.NoError(t, err)
	require.Len(t, docs, 3)
	require.Equal(t, "z", docs[2].Name)
	_, err = readDocuments([]string{filepath.Join(dir, "a", "missing")}, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = readDocuments([]string{t.TempDir()}, nil)
	require.ErrorContains(t, err, "no files that end in .yaml or .yml")
}

// Whatever a document says, an exported form of its spec means the same and has the form of the schema.
func FuzzDocuments(f *testing.F) {
	f.Add(queueOf("visibility_timeout: 45s, throttle_headers: [a, b]"))
	f.Add(throttleOf("rate: 1/3, burst: 2.5"))
	f.Add("kind: Schedule\nname: x\nspec: {queue: q, schedule: '@every 1h', payload: {a: 1}, headers: {h: [v]}}\n")
	f.Add("kind: ErrorRule\nname: r\nspec: {pattern: 'a+', retry: false, order: 3}\n---\nkind: Guard\nname: g\nspec: {with: [a]}\n")
	f.Add("a: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		docs, err := readDocuments([]string{"-"}, strings.NewReader(text))
		if err != nil {
			return
		}
		for _, d := range docs {
			if strings.Contains(text, "_file") {
				return // it may name a file that is there
			}
			o, k, err := d.makeObject()
			if err != nil {
				continue
			}
			spec, err := k.spec(d)
			require.NoError(t, err)
			again := &document{Kind: d.Kind, Name: d.Name, file: "-"}
			require.NoError(t, yaml.Unmarshal(spec, &again.Spec)) // JSON is YAML
			if !strings.Contains(string(spec), "null") {
				require.NoError(t, fits(t, fmt.Sprintf("{kind: %s, name: x, spec: %s}", d.Kind, spec)))
			}
			second, _, err := again.makeObject()
			require.NoError(t, err, string(spec))
			require.Equal(t, o, second)
		}
	})
}
