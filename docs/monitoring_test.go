package docs

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const (
	rulesFile     = "deploy/prometheus/fila.rules.yml"
	ruleTestsFile = "deploy/prometheus/fila.test.yml"
	runbookPage   = "docs/runbook.md"
)

// rule is a rule of Prometheus.
type rule struct {
	record, alert, expr string
	node                any
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	text := func(v any) string {
		s, _ := v.(string)
		return s
	}
	for _, group := range at(readYAML(t, readText(t, rulesFile))[0], "groups").([]any) {
		for _, r := range at(group, "rules").([]any) {
			all = append(all, rule{text(at(r, "record")), text(at(r, "alert")), text(at(r, "expr")), r})
		}
	}
	require.NotEmpty(t, all)
	return all
}

// alerts returns the names of the alerts.
func alerts(t *testing.T) (all []string) {
	t.Helper()
	for _, r := range rules(t) {
		if r.alert != "" {
			all = append(all, r.alert)
		}
	}
	return all
}

// promtool accepts the rules, and its unit tests of the alerts pass.
func TestRulesPassPromtool(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("there is no promtool: Debian has it in the package prometheus")
	}
	for _, command := range [][]string{
		{"check", "rules", "fila.rules.yml"},
		{"check", "config", "prometheus.yml"},
		{"test", "rules", "fila.test.yml"},
	} {
		cmd := exec.Command("promtool", command...)
		cmd.Dir = filepath.Dir(rulesFile)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "promtool %s\n%s", strings.Join(command, " "), out)
	}
}

// promtool parses every query of the dashboards.
func TestDashboardQueriesParse(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("there is no promtool: Debian has it in the package prometheus")
	}
	var queries []any
	for _, d := range dashboards(t) {
		for _, row := range d.Rows {
			for _, p := range row.Panels {
				for _, q := range p.Queries {
					expr := strings.NewReplacer("$job", "fila", "$queue", "orders").Replace(q.Expr)
					queries = append(queries, object{"record": fmt.Sprintf("query:%d", len(queries)), "expr": expr})
				}
			}
		}
	}
	text, err := yaml.Marshal(object{"groups": []any{object{"name": "dashboards", "rules": queries}}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "dashboards.yml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	out, err := exec.Command("promtool", "check", "rules", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// Each alert has a test in which it fires and one in which it does not.
func TestAlertsAreTested(t *testing.T) {
	fires, silent := map[string]int{}, map[string]int{}
	for _, group := range at(readYAML(t, readText(t, ruleTestsFile))[0], "tests").([]any) {
		tests, _ := at(group, "alert_rule_test").([]any)
		for _, one := range tests {
			name := at(one, "alertname").(string)
			if len(at(one, "exp_alerts").([]any)) > 0 {
				fires[name]++
			} else {
				silent[name]++
			}
		}
	}
	require.ElementsMatch(t, alerts(t), keys(fires))
	require.ElementsMatch(t, alerts(t), keys(silent))
}

// Each alert has a severity and a section in the runbook with its meaning and three commands;
// TestDocsCommands runs the commands of fila. Each section is about an alert.
func TestRunbookHasEachAlert(t *testing.T) {
	sections := map[string]string{}
	for _, section := range strings.Split(readText(t, runbookPage), "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		sections[name] = text
	}
	require.ElementsMatch(t, alerts(t), keys(sections))
	for name, text := range sections {
		meaning, _, _ := strings.Cut(text, "```")
		require.Greater(t, len(strings.TrimSpace(meaning)), 100, name)
		found := blocks(runbookPage, text)
		require.Len(t, found, 1, name)
		require.Len(t, found[0].steps(), 3, name)
		own := 0
		for _, step := range found[0].steps() {
			if strings.HasPrefix(step.command, "fila ") {
				own++
			}
		}
		require.Positive(t, own, name)
	}
	for _, r := range rules(t) {
		if r.alert == "" {
			continue
		}
		require.Contains(t, []any{"critical", "warning", "info"}, at(r.node, "labels", "severity"), r.alert)
		require.NotEmpty(t, at(r.node, "annotations", "summary"), r.alert)
		require.Equal(t, "https://github.com/filaq/fila/blob/main/"+runbookPage+"#"+anchor(r.alert), at(r.node, "annotations", "runbook_url"))
	}
}

// matcher is a label matcher of PromQL.
type matcher struct{ label, op, value string }

// query has the metrics and labels of an expression of PromQL.
type query struct {
	metrics map[string][]matcher
	groups  []string // labels after by, on and the like
}

var (
	promToken   = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\[[^\]]*\]|[a-zA-Z_:][a-zA-Z0-9_:]*|=~|!~|[=!<>]=|[0-9.]+[a-z]*|\S`)
	promName    = regexp.MustCompile(`^[a-zA-Z_:]`)
	promLabels  = []string{"by", "without", "on", "ignoring", "group_left", "group_right"}
	promBetween = []string{"and", "or", "unless", "bool", "offset"}
)

// readQuery finds the names of metrics and labels in an expression.
func readQuery(t *testing.T, expr string) query {
	t.Helper()
	q := query{metrics: map[string][]matcher{}}
	tokens := append(promToken.FindAllString(expr, -1), "", "")
	until := func(i int, end string) []string {
		n := slices.Index(tokens[i:], end)
		require.GreaterOrEqual(t, n, 0, "no %s in %s", end, expr)
		return tokens[i : i+n]
	}
	for i := 0; i < len(tokens); i++ {
		name, next := tokens[i], ""
		if !promName.MatchString(name) || slices.Contains(promBetween, name) {
			continue
		}
		next = tokens[i+1]
		switch {
		case slices.Contains(promLabels, name):
			if next == "(" {
				for _, label := range until(i+2, ")") {
					if label != "," {
						q.groups = append(q.groups, label)
					}
					i++
				}
				i += 2
			}
		case next == "(" || slices.Contains(promLabels, next): // a function
		case next == "{":
			in := until(i+2, "}")
			i += 2 + len(in)
			q.metrics[name] = append(q.metrics[name], []matcher{}...)
			for len(in) > 0 {
				require.GreaterOrEqual(t, len(in), 3, expr)
				q.metrics[name] = append(q.metrics[name], matcher{in[0], in[1], strings.Trim(in[2], `"`)})
				in = in[min(4, len(in)):]
			}
		default:
			q.metrics[name] = append(q.metrics[name], []matcher{}...)
		}
	}
	require.NotEmpty(t, q.metrics, expr)
	return q
}

func TestReadQuery(t *testing.T) {
	q := readQuery(t, `sum by (job, queue) (rate(fila_a_total{queue!~".*[.]dlq", code="by"}[5m])) / on (job) group_left up == 0 and topk(3, x:y:z5m) > 0.5`)
	require.Equal(t, []string{"job", "queue", "job"}, q.groups)
	require.Equal(t, map[string][]matcher{"fila_a_total": {{"queue", "!~", ".*[.]dlq"}, {"code", "=", "by"}}, "up": nil, "x:y:z5m": nil}, q.metrics)
}

// series are the metrics of a running fila: metric, label, values.
type series map[string]map[string][]string

var (
	sampleLine  = regexp.MustCompile(`(?m)^([a-zA-Z_:]+)(?:\{(.*)\})? \S+$`)
	sampleLabel = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

func scrape(t *testing.T, addr string) series {
	t.Helper()
	reply, err := http.Get("http://" + addr + "/metrics")
	require.NoError(t, err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	require.NoError(t, err)
	found := series{}
	for _, line := range sampleLine.FindAllStringSubmatch(string(text), -1) {
		labels := found[line[1]]
		if labels == nil {
			labels = map[string][]string{}
			found[line[1]] = labels
		}
		for _, l := range sampleLabel.FindAllStringSubmatch(line[2], -1) {
			labels[l[1]] = append(labels[l[1]], l[2])
		}
	}
	return found
}

// everything configures a fila that has all metrics: a cluster node with shared gates and a
// collector.
const everything = `
[otel]
endpoint = "http://127.0.0.1:1"
metrics_interval_ms = 0
[nats.embedded]
jetstream = true
[cluster]
enabled = true
name = "shop"
node = "a"
shards = 1
replicas = 1
allow_r1 = true
[[circuit]]
key = "stripe"
threshold = 3
[[throttle]]
key = "mail"
concurrency = 1
[[throttle]]
key = "llm"
concurrency = 10
adapt = { signal = "overload", min = 1 }
[[queue]]
name = "orders"
on_enqueue = "function on_enqueue(msg) return {} end"
`

// documentedMetrics returns the metrics of docs/metrics.md with their labels.
func documentedMetrics(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^- `(fila_[a-z_]+)`(?: \\(([^)]+)\\))?: ").FindAllStringSubmatch(readText(t, "docs/metrics.md"), -1) {
		labels := []string{}
		for _, l := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[2], -1) {
			labels = append(labels, l[1])
		}
		all[row[1]] = labels
	}
	require.Greater(t, len(all), 60)
	return all
}

// family returns the name of a metric in docs/metrics.md.
func (s series) family(name string) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, suffix); ok && s[base+"_bucket"] != nil {
			return base
		}
	}
	return name
}

// scrapeEverything returns all metrics of a fila. It waits for them: a node owns a shard some
// time after it is ready. Queue metrics without a series yet are taken from docs/metrics.md;
// the tests of package telemetry compare that page with the code.
func scrapeEverything(t *testing.T) series {
	t.Helper()
	_, addr := runEverything(t)
	documented := documentedMetrics(t)
	missing := slices.DeleteFunc(keys(documented), func(name string) bool {
		return slices.Contains(documented[name], "queue") && !slices.Contains(waitingMessageMetrics, name)
	})
	for until := time.Now().Add(patience * time.Second); ; time.Sleep(100 * time.Millisecond) {
		found := scrape(t, addr)
		missing = slices.DeleteFunc(missing, func(name string) bool { return found[name] != nil || found[name+"_bucket"] != nil })
		// A shard has no snapshot before it has entries for one.
		const snapshot = "fila_cluster_snapshot_age_seconds"
		if len(missing) == 0 || slices.Equal(missing, []string{snapshot}) {
			if found[snapshot] == nil {
				found[snapshot] = map[string][]string{"shard": nil}
			}
			for name, labels := range documented {
				if found[name] == nil && found[name+"_bucket"] == nil {
					found.assume(name, labels)
				}
			}
			return found
		}
		require.True(t, time.Now().Before(until), "a running fila does not have %v", missing)
	}
}

// waitingMessageMetrics have a series for a queue as soon as a message waits in it.
var waitingMessageMetrics = []string{"fila_enqueued_total", "fila_queue_depth", "fila_queue_pending", "fila_queue_schedules", "fila_refused_total", "fila_hook_runs_total"}

// assume adds a metric with these labels and any values.
func (s series) assume(name string, labels []string) {
	suffixes := []string{""}
	if name == "fila_delivery_latency_seconds" || name == "fila_attempt_duration_seconds" {
		suffixes = []string{"_bucket", "_sum", "_count"}
	}
	for _, suffix := range suffixes {
		s[name+suffix] = map[string][]string{}
		for _, l := range labels {
			s[name+suffix][l] = nil
		}
		if suffix == "_bucket" {
			s[name+suffix]["le"] = nil
		}
	}
}

// runEverything runs a fila with all metrics and a message that waits. It returns a shell with
// its address in NATS_URL, and the address of its metrics.
func runEverything(t *testing.T) (s *shell, addr string) {
	t.Helper()
	needBinaries(t)
	s = newShell(t)
	s.write("config.toml", everything)
	out, code := s.run("fila_serve --config config.toml && await 'an owner' fila publish orders hello >/dev/null 2>&1; " +
		"fila schedule add orders yearly @yearly >/dev/null; fila circuit open stripe >/dev/null; fila circuit close stripe >/dev/null; " +
		"fila guard check vendor mail >/dev/null; fila guard check vendor mail >/dev/null; " +
		"fila throttle set spent --budget 5 --period day >/dev/null; fila guard check spent mail >/dev/null; fila publish orders hello -H 'Fila-Delay: never'")
	require.Contains(t, out, "err_code", "no message was refused: %d", code)
	found := regexp.MustCompile(`http=(\S+)`).FindStringSubmatch(s.log())
	require.NotNil(t, found)
	return s, found[1]
}

// docs/metrics.md has the metrics and labels of a running fila, and rules and dashboards use
// only these.
func TestMetricsAreDocumentedAndUsedMetricsExist(t *testing.T) {
	t.Parallel()
	found, documented := scrapeEverything(t), documentedMetrics(t)
	for name, labels := range found {
		if !strings.HasPrefix(name, "fila_") {
			continue
		}
		of, ok := documented[found.family(name)]
		require.True(t, ok, "docs/metrics.md does not have %s", name)
		have := slices.DeleteFunc(keys(labels), func(l string) bool { return l == "le" })
		require.ElementsMatch(t, of, have, name)
	}

	// Prometheus itself adds these.
	found["up"] = map[string][]string{}
	found["ALERTS"] = map[string][]string{"alertname": nil, "alertstate": nil}
	known := maps.Clone(found)
	check := func(where, expr string, more ...string) (labels []string) {
		q := readQuery(t, expr)
		have := map[string]bool{"job": true, "instance": true}
		for metric, matchers := range q.metrics {
			of, ok := known[metric]
			require.True(t, ok, "%s: there is no %s: %s", where, metric, expr)
			for label := range of {
				have[label] = true
			}
			for _, m := range matchers {
				_, ok := of[m.label]
				require.True(t, ok || m.label == "job" || m.label == "instance", "%s: %s has no label %s: %s", where, metric, m.label, expr)
				if of[m.label] == nil || strings.ContainsAny(m.value, "$*") || strings.HasPrefix(m.op, "!") {
					continue
				}
				for one := range strings.SplitSeq(m.value, "|") {
					require.Contains(t, of[m.label], one, "%s: %s", where, expr)
				}
			}
		}
		for _, label := range slices.Concat(q.groups, more) {
			require.True(t, have[label], "%s: nothing has the label %s: %s", where, label, expr)
		}
		if len(q.groups) > 0 {
			return q.groups
		}
		return keys(have)
	}
	for _, r := range rules(t) {
		labels := map[string][]string{}
		for _, l := range check(r.alert+r.record, r.expr) {
			labels[l] = nil
		}
		if r.record != "" {
			known[r.record] = labels
		}
	}
	legend := regexp.MustCompile(`\{\{(\w+)\}\}`)
	shown := 0
	for _, d := range dashboards(t) {
		for _, row := range d.Rows {
			for _, p := range row.Panels {
				for _, q := range p.Queries {
					var labels []string
					for _, l := range legend.FindAllStringSubmatch(q.Legend, -1) {
						labels = append(labels, l[1])
					}
					check(fmt.Sprintf("%s, %s", d.Title, p.Title), q.Expr, labels...)
					shown++
				}
			}
		}
	}
	require.Greater(t, shown, 50)
}

// The compose sample mounts existing files where Prometheus and Grafana read them.
func TestComposeMountsMonitoringFiles(t *testing.T) {
	compose := readYAML(t, readText(t, "deploy/compose/compose.yaml"))[0]
	mounts := map[string]string{}
	for _, service := range []string{"prometheus", "grafana"} {
		require.Equal(t, []any{"monitoring"}, at(compose, "services", service, "profiles"))
		for _, volume := range at(compose, "services", service, "volumes").([]any) {
			from, to, _ := strings.Cut(strings.TrimSuffix(volume.(string), ":ro"), ":")
			if strings.HasPrefix(from, ".") {
				_, err := os.Stat(filepath.Join("deploy/compose", from))
				require.NoError(t, err, volume)
			}
			mounts[to] = from
		}
	}
	prometheus := readYAML(t, readText(t, "deploy/prometheus/prometheus.yml"))[0]
	require.Equal(t, []any{"fila.rules.yml"}, at(prometheus, "rule_files"))
	require.Equal(t, "../prometheus/fila.rules.yml", mounts["/etc/prometheus/fila.rules.yml"])
	require.Equal(t, "../prometheus/prometheus.yml", mounts["/etc/prometheus/prometheus.yml"])
	require.Equal(t, "fila", at(prometheus, "scrape_configs", 0, "job_name"), "rules and dashboards use it")
	require.Equal(t, "fila:8222", at(prometheus, "scrape_configs", 0, "static_configs", 0, "targets", 0))
	provider := readYAML(t, readText(t, "deploy/grafana/provisioning/dashboards/fila.yaml"))[0]
	require.Equal(t, "../grafana/dashboards", mounts[at(provider, "providers", 0, "options", "path").(string)])
	require.Equal(t, "../grafana/provisioning", mounts["/etc/grafana/provisioning"])
	source := readYAML(t, readText(t, "deploy/grafana/provisioning/datasources/prometheus.yaml"))[0]
	require.Equal(t, "http://prometheus:9090", at(source, "datasources", 0, "url"))
}
