package docs

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// KEDA's schemas accept the ScaledObject and the parameters of its trigger.
func TestKEDA(t *testing.T) {
	t.Parallel()
	all := readYAML(t, readText(t, "deploy/autoscaling/keda.yaml"))
	require.Len(t, all, 2)
	crd := readYAML(t, readText(t, "docs/testdata/keda/scaledobjects.yaml"))[0]
	schema := at(crd, "spec", "versions", 0, "schema", "openAPIV3Schema")
	require.Equal(t, "keda.sh/"+at(crd, "spec", "versions", 0, "name").(string), at(all[1], "apiVersion"))
	require.Equal(t, at(crd, "spec", "names", "kind"), at(all[1], "kind"))
	require.Empty(t, against(schema, all[1], "ScaledObject"))
	require.NotEmpty(t, against(schema, map[string]any{"spec": map[string]any{"trigger": 1}}, "ScaledObject"), "a field that KEDA does not know")
	require.Equal(t, at(all[0], "metadata", "name"), at(all[1], "spec", "scaleTargetRef", "name"))

	trigger := at(all[1], "spec", "triggers", 0)
	var scaler struct {
		Type       string
		Parameters []struct {
			Name     string
			Optional bool
			Default  any
		}
	}
	require.NoError(t, json.Unmarshal([]byte(readText(t, "docs/testdata/keda/metrics-api.json")), &scaler))
	require.Equal(t, scaler.Type, at(trigger, "type"))
	given := at(trigger, "metadata").(map[string]any)
	known := 0
	for _, p := range scaler.Parameters {
		if _, ok := given[p.Name]; ok {
			known++
		} else {
			require.True(t, p.Optional || p.Default != nil, p.Name)
		}
	}
	require.Equal(t, len(given), known, "parameters that the scaler knows")
	require.Equal(t, "workers", given["valueLocation"], "as in api.Scale")
	checkScaleURL(t, given["url"].(string))
}

// checkScaleURL checks the path and the parameters of a URL of /scale.
func checkScaleURL(t *testing.T, text string) {
	t.Helper()
	u, err := url.Parse(text)
	require.NoError(t, err)
	require.Regexp(t, `^/scale/[a-z,]+$`, u.Path)
	for name, values := range u.Query() {
		allowed := map[string]string{"per_worker": `^[0-9]+$`, "target_wait": `^[0-9]+s$`, "horizon": `^(0s|30s|1m|5m)$`}[name]
		require.NotEmpty(t, allowed, name)
		require.Regexp(t, allowed, values[0])
	}
}

// against returns how value breaks an OpenAPI schema: unknown and missing fields, and types.
func against(schema, value any, path string) (wrong []string) {
	switch typ, _ := at(schema, "type").(string); typ {
	case "object":
		fields, ok := value.(map[string]any)
		if !ok {
			return []string{path + " is no object"}
		}
		known, _ := at(schema, "properties").(map[string]any)
		for name, v := range fields {
			sub := known[name]
			if sub == nil {
				sub = at(schema, "additionalProperties")
			}
			if sub == nil && known != nil {
				wrong = append(wrong, path+"."+name+" is unknown")
			} else if sub != nil {
				wrong = append(wrong, against(sub, v, path+"."+name)...)
			}
		}
		required, _ := at(schema, "required").([]any)
		for _, name := range required {
			if _, ok := fields[name.(string)]; !ok {
				wrong = append(wrong, fmt.Sprintf("%s.%s is missing", path, name))
			}
		}
	case "array":
		list, ok := value.([]any)
		if !ok {
			return []string{path + " is no list"}
		}
		for i, v := range list {
			wrong = append(wrong, against(at(schema, "items"), v, fmt.Sprintf("%s[%d]", path, i))...)
		}
	default:
		got := map[string]bool{}
		switch value.(type) {
		case string:
			got["string"] = true
		case int:
			got["integer"], got["number"] = true, true
		case bool:
			got["boolean"] = true
		}
		if !got[typ] {
			wrong = append(wrong, fmt.Sprintf("%s is %v, not a %s", path, value, typ))
		}
	}
	return wrong
}

// The Pod has time for preStop and a message, and leaves as the page says.
func TestPreStop(t *testing.T) {
	t.Parallel()
	pod := at(readYAML(t, readText(t, "deploy/autoscaling/keda.yaml"))[0], "spec", "template", "spec")
	command := at(pod, "containers", 0, "lifecycle", "preStop", "exec", "command").([]any)
	require.Len(t, command, 3)
	leave, sleep, ok := strings.Cut(command[2].(string), "; sleep ")
	require.True(t, ok)
	var seconds int
	_, err := fmt.Sscan(sleep, &seconds)
	require.NoError(t, err)
	require.Greater(t, at(pod, "terminationGracePeriodSeconds"), seconds)
	// TestDocsCommands runs the line of the page.
	require.Contains(t, readText(t, "docs/autoscaling.md"), strings.ReplaceAll(leave, "orders", "mails"))
}

// The HPA names the metric and the label that fila has. No schema of Kubernetes is here: its
// fields are compared with the ones of autoscaling/v2 by hand.
func TestHPA(t *testing.T) {
	t.Parallel()
	hpa := readYAML(t, readText(t, "deploy/autoscaling/hpa.yaml"))[0]
	fields := func(path ...any) (names []string) {
		for name := range at(hpa, path...).(map[string]any) {
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	require.Equal(t, "autoscaling/v2", at(hpa, "apiVersion"))
	require.Equal(t, []string{"behavior", "maxReplicas", "metrics", "minReplicas", "scaleTargetRef"}, fields("spec"))
	require.Equal(t, []string{"apiVersion", "kind", "name"}, fields("spec", "scaleTargetRef"))
	require.Equal(t, []string{"external", "type"}, fields("spec", "metrics", 0))
	require.Equal(t, []string{"metric", "target"}, fields("spec", "metrics", 0, "external"))
	metric := at(hpa, "spec", "metrics", 0, "external", "metric")
	require.Equal(t, map[string]any{"queue": "orders"}, at(metric, "selector", "matchLabels"))
	rule := at(readYAML(t, readText(t, "deploy/autoscaling/prometheus-adapter.yaml"))[0], "rules", "external", 0)
	require.Equal(t, at(metric, "name"), at(rule, "seriesQuery"))
	for _, text := range []string{readText(t, "docs/metrics.md"), readText(t, "deploy/autoscaling/nomad.hcl")} {
		require.Contains(t, text, at(metric, "name"))
	}
}

// scale.sh asks for the number of workers, bounds it, and changes nothing without an answer.
func TestScaleScript(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"curl", "sed"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("there is no " + tool)
		}
	}
	script, err := filepath.Abs("deploy/autoscaling/scale.sh")
	require.NoError(t, err)
	answer, status := `{"wanted":320,"workers":7,"active":true,"why":"orders: 20 in flight"}`, http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "docker"), []byte("#!/bin/sh\necho docker \"$@\"\n"), 0o700))
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), script, args...)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.Output()
		return string(out), err
	}
	out, err := run(server.URL+"/scale/orders", "worker", "20")
	require.NoError(t, err)
	require.Equal(t, "docker compose up --detach --no-recreate --scale worker=7 worker\n", out)
	out, err = run(server.URL+"/scale/orders", "worker", "5")
	require.NoError(t, err)
	require.Contains(t, out, "worker=5")
	answer = `{"wanted":0,"workers":0,"active":false,"why":""}`
	out, err = run(server.URL+"/scale/orders", "worker", "5")
	require.NoError(t, err)
	require.Contains(t, out, "worker=0")
	answer = "{}"
	out, err = run(server.URL+"/scale/orders", "worker", "5")
	require.Error(t, err)
	require.Empty(t, out)
	status = http.StatusServiceUnavailable
	out, err = run(server.URL+"/scale/orders", "worker", "5")
	require.Error(t, err)
	require.Empty(t, out)
	_, err = run(server.URL)
	require.Error(t, err)
}
