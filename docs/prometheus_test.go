package docs

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// prometheus is a running Prometheus with the configuration and rules of deploy/prometheus.
type prometheus struct{ url string }

// startPrometheus runs a Prometheus that scrapes addr each second, and whose alerts fire
// without delay.
func startPrometheus(t *testing.T, addr string) *prometheus {
	t.Helper()
	dir := t.TempDir()
	change := func(text, pattern, with string) string {
		what := regexp.MustCompile(pattern)
		require.Regexp(t, what, text)
		return what.ReplaceAllString(text, with)
	}
	rules := change(readText(t, rulesFile), `(?m)^( +for:) \w+$`, "$1 0s")
	rules = change(rules, `fila_circuit_longest_open_seconds > 900`, "fila_circuit_longest_open_seconds > 0")
	config := change(readText(t, "deploy/prometheus/prometheus.yml"), `(scrape|evaluation)_interval: \w+`, "${1}_interval: 1s")
	config = change(config, `"fila:8222"`, `"`+addr+`"`)
	for name, text := range map[string]string{"fila.rules.yml": rules, "prometheus.yml": config} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for attempt := 1; ; attempt++ { // another process may take the port
		free, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		at := free.Addr().String()
		require.NoError(t, free.Close())
		var output bytes.Buffer
		cmd := exec.Command("prometheus", "--config.file", filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", at)
		cmd.Stdout, cmd.Stderr = &output, &output
		require.NoError(t, cmd.Start())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = cmd.Wait()
		}()
		p := &prometheus{url: "http://" + at}
		if p.ready(ended) {
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				<-ended
			})
			return p
		}
		_ = cmd.Process.Kill()
		<-ended
		require.Less(t, attempt, 3, "%s", &output)
	}
}

// ready waits until p answers. It returns false if p has ended or the patience has.
func (p *prometheus) ready(ended <-chan struct{}) bool {
	for until := time.Now().Add(patience * time.Second); time.Now().Before(until); {
		if reply, err := http.Get(p.url + "/-/ready"); err == nil {
			reply.Body.Close()
			if reply.StatusCode == http.StatusOK {
				return true
			}
		}
		select {
		case <-ended:
			return false
		case <-time.After(50 * time.Millisecond):
		}
	}
	return false
}

// get calls the API, which must answer with success.
func (p *prometheus) get(t *testing.T, path string, query url.Values, into any) {
	t.Helper()
	reply, err := http.Get(p.url + path + "?" + query.Encode())
	require.NoError(t, err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	require.NoError(t, err)
	answer := struct {
		Status, Error string
		Data          any
	}{Data: into}
	require.NoError(t, json.Unmarshal(text, &answer), "%s", text)
	require.Equal(t, "success", answer.Status, "%s: %s", query.Get("query"), answer.Error)
}

// seriesOf returns the number of series of an expression.
func (p *prometheus) seriesOf(t *testing.T, expr string) int {
	t.Helper()
	var found struct {
		ResultType string
		Result     json.RawMessage
	}
	p.get(t, "/api/v1/query", url.Values{"query": {expr}}, &found)
	if found.ResultType != "vector" {
		return 1
	}
	var all []any
	require.NoError(t, json.Unmarshal(found.Result, &all))
	return len(all)
}

// firing returns the summaries of the firing alerts by name.
func (p *prometheus) firing(t *testing.T) map[string]string {
	t.Helper()
	var found struct {
		Alerts []struct {
			State               string
			Labels, Annotations map[string]string
		}
	}
	p.get(t, "/api/v1/alerts", nil, &found)
	all := map[string]string{}
	for _, a := range found.Alerts {
		if a.State == "firing" {
			all[a.Labels["alertname"]] += a.Annotations["summary"] + "\n"
		}
	}
	return all
}

// A Prometheus with the files of deploy/prometheus scrapes a running fila: all rules have
// values, all queries of the dashboards are valid, and alerts fire and resolve.
func TestPrometheusScrapesAndAlerts(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("prometheus"); err != nil {
		t.Skip("there is no prometheus: Debian has it in the package of that name")
	}
	s, addr := runEverything(t)
	p := startPrometheus(t, addr)
	wait := func(what string, is func() bool) {
		t.Helper()
		for until := time.Now().Add(patience * time.Second); !is(); time.Sleep(200 * time.Millisecond) {
			require.True(t, time.Now().Before(until), "%s: %v", what, p.firing(t))
		}
	}
	wait("fila is scraped", func() bool { return p.seriesOf(t, `up{job="fila"} == 1`) == 1 })
	wait("a message without consumers", func() bool {
		return strings.Contains(p.firing(t)["FilaNoConsumers"], " messages of orders are ready, but no consumer is registered")
	})
	require.NotContains(t, p.firing(t), "FilaCircuitOpen")
	out, code := s.run("fila circuit open stripe && fila queue purge orders --force")
	require.Zero(t, code, out)
	wait("an open circuit", func() bool {
		return strings.Contains(p.firing(t)["FilaCircuitOpen"], "not closed: stripe")
	})
	wait("no message waits", func() bool { return p.firing(t)["FilaNoConsumers"] == "" })
	out, code = s.run("fila circuit close stripe")
	require.Zero(t, code, out)
	wait("the circuit is closed", func() bool { return p.firing(t)["FilaCircuitOpen"] == "" })
	// A message that was paused, delivered and acked gives the remaining metrics their series.
	out, code = s.run("fila pause queue orders && fila publish orders hello && fila resume queue orders && fila consume orders --count 1 --timeout 1m")
	require.Zero(t, code, out)

	for _, r := range rules(t) {
		if r.record != "" {
			wait("a value of "+r.record, func() bool { return p.seriesOf(t, r.record) > 0 })
		}
	}
	queries := 0
	variables := strings.NewReplacer("$job", "fila", "$queue", "orders")
	for _, d := range dashboards(t) {
		for _, row := range d.Rows {
			for _, panel := range row.Panels {
				for _, q := range panel.Queries {
					p.seriesOf(t, variables.Replace(q.Expr))
					queries++
				}
			}
		}
	}
	require.Greater(t, queries, 50)
}
