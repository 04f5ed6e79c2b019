package docs

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const chartDir = "deploy/helm/fila"

// renderChart renders the chart with the functions of Helm that it uses, so that
// it is checked where there is no helm; deploy/check has the real one.
func renderChart(t *testing.T, change func(values map[string]any)) map[string]any {
	t.Helper()
	values := readYAML(t, readText(t, chartDir+"/values.yaml"))[0].(map[string]any)
	if change != nil {
		change(values)
	}
	chart := readYAML(t, readText(t, chartDir+"/Chart.yaml"))[0].(map[string]any)
	scope := map[string]any{
		"Values":  values,
		"Chart":   map[string]any{"Name": chart["name"], "Version": chart["version"], "AppVersion": chart["appVersion"]},
		"Release": map[string]any{"Name": "test", "Namespace": "default", "Service": "Helm"},
	}
	root := template.New("").Option("missingkey=error")
	root.Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var out bytes.Buffer
			err := root.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
		"nindent": func(n int, text string) string {
			indent := "\n" + strings.Repeat(" ", n)
			return indent + strings.ReplaceAll(text, "\n", indent)
		},
		"toYaml": func(v any) (string, error) {
			text, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(text), "\n"), err
		},
		"quote":      func(v any) string { return fmt.Sprintf("%q", fmt.Sprint(v)) },
		"contains":   func(part, s string) bool { return strings.Contains(s, part) },
		"trunc":      func(n int, s string) string { return s[:min(n, len(s))] },
		"trimSuffix": func(suffix, s string) string { return strings.TrimSuffix(s, suffix) },
		"sha256sum":  func(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) },
		"default": func(or, v any) any {
			if v == nil || v == "" {
				return or
			}
			return v
		},
	})
	files, err := filepath.Glob(chartDir + "/templates/*")
	require.NoError(t, err)
	for _, file := range files {
		_, err := root.New(filepath.Base(file)).Parse(readText(t, file))
		require.NoError(t, err)
	}
	objects := map[string]any{}
	for _, file := range files {
		var out bytes.Buffer
		require.NoError(t, root.ExecuteTemplate(&out, filepath.Base(file), scope))
		if filepath.Ext(file) != ".yaml" {
			continue
		}
		for _, object := range readYAML(t, out.String()) {
			kind := at(object, "kind").(string)
			require.NotContains(t, objects, kind)
			objects[kind] = object
		}
	}
	return objects
}

func TestChart(t *testing.T) {
	objects := renderChart(t, nil)
	require.ElementsMatch(t, []string{"ConfigMap", "Service", "StatefulSet"}, keys(objects))
	set := objects["StatefulSet"]
	require.Equal(t, 1, at(set, "spec", "replicas"))
	require.Equal(t, at(objects["Service"], "metadata", "name"), at(set, "spec", "serviceName"))
	require.Equal(t, "None", at(objects["Service"], "spec", "clusterIP"))
	labels := at(set, "spec", "template", "metadata", "labels")
	for _, selector := range []any{at(objects["Service"], "spec", "selector"), at(set, "spec", "selector", "matchLabels")} {
		require.NotEmpty(t, selector)
		require.Subset(t, labels, selector)
	}

	pod := at(set, "spec", "template", "spec")
	container := at(pod, "containers", 0)
	require.Equal(t, true, at(pod, "securityContext", "runAsNonRoot"))
	require.Contains(t, readText(t, "deploy/Dockerfile"), fmt.Sprintf("USER %d:%d", at(pod, "securityContext", "runAsUser"), at(pod, "securityContext", "runAsGroup")))
	require.Equal(t, "/readyz", at(container, "readinessProbe", "httpGet", "path"))
	require.Equal(t, "/healthz", at(container, "livenessProbe", "httpGet", "path"))
	require.Equal(t, at(objects["ConfigMap"], "metadata", "name"), at(pod, "volumes", 0, "configMap", "name"))
	require.Equal(t, at(pod, "volumes", 0, "name"), at(container, "volumeMounts", 1, "name"))
	require.Equal(t, at(set, "spec", "volumeClaimTemplates", 0, "metadata", "name"), at(container, "volumeMounts", 0, "name"))
	require.Equal(t, "nats://nats:4222", environment(t, container)["FILA_NATS__URL"])
	require.Nil(t, at(container, "envFrom"))
}

// The configuration and the environment of the chart, in front of a real fila.
func TestChartStarts(t *testing.T) {
	needBinaries(t)
	objects := renderChart(t, func(values map[string]any) {
		values["nats"] = map[string]any{"url": ""}
		values["existingSecret"] = "login"
		values["restartOnConfigChange"] = false
		values["config"] = values["config"].(string) + "[[queue]]\nname = \"orders\"\n"
	})
	container := at(objects["StatefulSet"], "spec", "template", "spec", "containers", 0)
	require.Equal(t, "login", at(container, "envFrom", 0, "secretRef", "name"))
	require.Equal(t, "nats", at(objects["Service"], "spec", "ports", 1, "targetPort"))
	require.NotContains(t, at(objects["StatefulSet"], "spec", "template", "metadata", "annotations"), "checksum/config")

	s := newShell(t)
	s.write("config.toml", at(objects["ConfigMap"], "data", "config.toml").(string))
	env := environment(t, container)
	require.Equal(t, map[string]string{"FILA_DATA_DIR": "/data", "FILA_HTTP__ADDR": "0.0.0.0:8222", "FILA_NATS__EMBEDDED__HOST": "0.0.0.0"}, env)
	require.Equal(t, []any{"serve", "--config", "/etc/fila/config.toml"}, at(container, "args"))
	out, code := s.run("FILA_DATA_DIR=./data FILA_NATS__EMBEDDED__HOST=127.0.0.1 fila_serve --config ./config.toml && fila queue list")
	require.Zero(t, code, out)
	require.Contains(t, out, "orders.dlq")
}

// Every value has a place in the schema, and the other way round.
func TestChartSchema(t *testing.T) {
	values := readYAML(t, readText(t, chartDir+"/values.yaml"))[0].(map[string]any)
	schema := readYAML(t, readText(t, chartDir+"/values.schema.json"))[0] // JSON is YAML
	properties := at(schema, "properties").(map[string]any)
	delete(properties, "global") // Helm's own
	require.ElementsMatch(t, keys(values), keys(properties))
	for name, value := range values {
		if of, ok := at(properties, name, "properties").(map[string]any); ok {
			require.ElementsMatch(t, keys(value.(map[string]any)), keys(of), name)
		}
	}
}

func environment(t *testing.T, container any) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, entry := range at(container, "env").([]any) {
		env[at(entry, "name").(string)] = at(entry, "value").(string)
	}
	return env
}

func keys(m map[string]any) []string { return slices.Collect(maps.Keys(m)) }
