package docs

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/filaq/fila/sidecar/e2e/natstest"
)

const chartDir = "deploy/helm/fila"

// renderChart renders the chart with the functions of Helm that it uses, so that the tests need
// no helm; deploy/check uses the real one. It sets the image, which has no default.
func renderChart(t *testing.T, change func(values map[string]any)) map[string]any {
	t.Helper()
	objects, err := tryChart(t, func(values map[string]any) {
		values["image"].(map[string]any)["repository"] = "registry.example.com/fila"
		if change != nil {
			change(values)
		}
	})
	require.NoError(t, err)
	return objects
}

// tryChart renders the chart after change has changed its values.
func tryChart(t *testing.T, change func(values map[string]any)) (map[string]any, error) {
	t.Helper()
	values := readYAML(t, readText(t, chartDir+"/values.yaml"))[0].(map[string]any)
	change(values)
	chart := readYAML(t, readText(t, chartDir+"/Chart.yaml"))[0].(map[string]any)
	scope := map[string]any{
		"Values":  values,
		"Chart":   map[string]any{"Name": chart["name"], "Version": chart["version"], "AppVersion": chart["appVersion"]},
		"Release": map[string]any{"Name": "test", "Namespace": "default", "Service": "Helm"},
		"Files":   chartFiles{t},
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
		"required": func(why string, v any) (any, error) {
			if v == nil || v == "" {
				return nil, errors.New(why)
			}
			return v, nil
		},
		"fail": func(why string) (string, error) { return "", errors.New(why) },
		"list": func(of ...any) []any { return of },
		"join": func(by string, all []any) string {
			var texts []string
			for _, one := range all {
				texts = append(texts, fmt.Sprint(one))
			}
			return strings.Join(texts, by)
		},
		"int": func(v any) int { return v.(int) },
		"until": func(n int) (all []int) {
			for i := range n {
				all = append(all, i)
			}
			return all
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
		if err := root.ExecuteTemplate(&out, filepath.Base(file), scope); err != nil {
			return nil, err
		}
		if filepath.Ext(file) != ".yaml" {
			continue
		}
		for _, object := range readYAML(t, out.String()) {
			kind := at(object, "kind").(string)
			require.NotContains(t, objects, kind)
			objects[kind] = object
		}
	}
	return objects, nil
}

// chartFiles is .Files of a template.
type chartFiles struct{ t *testing.T }

// Get returns a file of the chart.
func (f chartFiles) Get(name string) string { return readText(f.t, filepath.Join(chartDir, name)) }

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

// A fila starts with the configuration and the environment of the chart.
func TestChartStarts(t *testing.T) {
	t.Parallel()
	needBinaries(t)
	objects := renderChart(t, func(values map[string]any) {
		values["nats"].(map[string]any)["url"] = ""
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

// Logins and certificates come from secrets, and other extras are where Kubernetes expects them.
func TestChartExtras(t *testing.T) {
	objects := renderChart(t, func(values map[string]any) {
		nats := values["nats"].(map[string]any)
		nats["creds"].(map[string]any)["secret"] = "login"
		nats["tls"].(map[string]any)["secret"] = "certs"
		values["extraEnv"] = []any{map[string]any{"name": "FILA_LOG__LEVEL", "value": "debug"}}
		values["extraVolumes"] = []any{map[string]any{"name": "hooks", "configMap": map[string]any{"name": "hooks"}}}
		values["extraVolumeMounts"] = []any{map[string]any{"name": "hooks", "mountPath": "/hooks"}}
		values["serviceMonitor"] = map[string]any{"enabled": true, "interval": "15s", "labels": map[string]any{"release": "prometheus"}}
	})
	require.ElementsMatch(t, []string{"ConfigMap", "Service", "StatefulSet", "ServiceMonitor"}, keys(objects))
	pod := at(objects["StatefulSet"], "spec", "template", "spec")
	container := at(pod, "containers", 0)
	require.Equal(t, "registry.example.com/fila:"+at(readYAML(t, readText(t, chartDir+"/Chart.yaml"))[0], "appVersion").(string), at(container, "image"))
	require.Equal(t, map[string]string{
		"FILA_DATA_DIR": "/data", "FILA_HTTP__ADDR": "0.0.0.0:8222", "FILA_NATS__URL": "nats://nats:4222", "FILA_LOG__LEVEL": "debug",
		"FILA_NATS__CREDS": "/etc/nats/creds/nats.creds", "FILA_NATS__TLS__CA": "/etc/nats/tls/ca.crt",
		"FILA_NATS__TLS__CERT": "/etc/nats/tls/tls.crt", "FILA_NATS__TLS__KEY": "/etc/nats/tls/tls.key",
	}, environment(t, container))
	mounts, volumes := map[any]any{}, map[any]any{}
	for _, m := range at(container, "volumeMounts").([]any) {
		mounts[at(m, "name")] = at(m, "mountPath")
	}
	for _, v := range at(pod, "volumes").([]any) {
		volumes[at(v, "name")] = at(v, "secret", "secretName")
	}
	require.Equal(t, map[any]any{"data": "/data", "config": "/etc/fila", "nats-creds": "/etc/nats/creds", "nats-tls": "/etc/nats/tls", "hooks": "/hooks"}, mounts)
	require.Equal(t, map[any]any{"config": nil, "nats-creds": "login", "nats-tls": "certs", "hooks": nil}, volumes)

	monitor, service := objects["ServiceMonitor"], objects["Service"]
	require.Equal(t, "prometheus", at(monitor, "metadata", "labels", "release"))
	require.Equal(t, at(service, "spec", "selector"), at(monitor, "spec", "selector", "matchLabels"))
	require.Subset(t, at(service, "metadata", "labels"), at(monitor, "spec", "selector", "matchLabels"))
	require.Equal(t, at(service, "spec", "ports", 0, "name"), at(monitor, "spec", "endpoints", 0, "port"))
	require.Equal(t, "15s", at(monitor, "spec", "endpoints", 0, "interval"))
}

// Behind the Ingress of the chart a fila asks for the token of its secret, also for metrics.
func TestChartPages(t *testing.T) {
	t.Parallel()
	needBinaries(t)
	objects := renderChart(t, func(values map[string]any) {
		values["nats"].(map[string]any)["url"] = ""
		values["existingSecret"] = "login"
		values["pages"].(map[string]any)["secret"] = "tokens"
		ingress := values["ingress"].(map[string]any)
		ingress["enabled"], ingress["host"], ingress["tls"], ingress["className"] = true, "fila.example.com", "certs", "nginx"
		ingress["proxies"] = []any{"10.0.0.0/8", "192.0.2.1"}
		values["serviceMonitor"].(map[string]any)["enabled"] = true
	})
	require.ElementsMatch(t, []string{"ConfigMap", "Service", "StatefulSet", "ServiceMonitor", "Ingress"}, keys(objects))
	ingress, service := objects["Ingress"], objects["Service"]
	require.Equal(t, "nginx", at(ingress, "spec", "ingressClassName"))
	require.Equal(t, "certs", at(ingress, "spec", "tls", 0, "secretName"))
	require.Equal(t, at(ingress, "spec", "rules", 0, "host"), at(ingress, "spec", "tls", 0, "hosts", 0))
	backend := at(ingress, "spec", "rules", 0, "http", "paths", 0, "backend", "service")
	require.Equal(t, at(service, "metadata", "name"), at(backend, "name"))
	require.Equal(t, at(service, "spec", "ports", 0, "name"), at(backend, "port", "name"))
	require.Equal(t, map[string]any{"name": "tokens", "key": "operator"}, at(objects["ServiceMonitor"], "spec", "endpoints", 0, "authorization", "credentials"))

	pod := at(objects["StatefulSet"], "spec", "template", "spec")
	container := at(pod, "containers", 0)
	require.Equal(t, "/etc/pages", at(container, "volumeMounts", 2, "mountPath"))
	require.Equal(t, at(container, "volumeMounts", 2, "name"), at(pod, "volumes", 1, "name"))
	require.Equal(t, "tokens", at(pod, "volumes", 1, "secret", "secretName"))
	env := environment(t, container)
	require.Equal(t, "/etc/pages/operator", env["FILA_HTTP__OPERATOR_TOKEN"])
	require.NotContains(t, env, "FILA_HTTP__VIEWER_TOKEN")

	s := newShell(t)
	s.write("operator", someToken)
	var export strings.Builder
	for name, value := range env {
		if strings.HasPrefix(name, "FILA_HTTP__") {
			export.WriteString("export " + name + "='" + strings.Replace(value, "/etc/pages/", "./", 1) + "'\n")
		}
	}
	out, code := s.run(export.String() + "export LISTEN=0.0.0.0; fila_serve")
	require.Zero(t, code, out)
	address := "http://127.0.0.1" + regexp.MustCompile(`http=\S*(:\d+)`).FindStringSubmatch(out)[1]
	token := strings.TrimSpace(someToken)
	requirePages(t, address+"/", "", http.StatusSeeOther)
	requirePages(t, address+"/", token, http.StatusOK)
	requirePages(t, address+"/metrics", "", http.StatusUnauthorized)
	requirePages(t, address+"/metrics", token, http.StatusOK)
	requirePages(t, address+"/healthz", "", http.StatusOK)
}

// The network policy lets in the listed peers and, in a cluster, the other pods. The rules are those
// of deploy/prometheus, for the job that the ServiceMonitor gives.
func TestChartPolicyAndRules(t *testing.T) {
	prometheus := map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"name": "monitoring"}}}
	render := func(change func(values, policy map[string]any)) map[string]any {
		return renderChart(t, func(values map[string]any) {
			policy := values["networkPolicy"].(map[string]any)
			policy["enabled"] = true
			values["prometheusRule"] = map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}}
			values["serviceMonitor"].(map[string]any)["enabled"] = true
			change(values, policy)
		})
	}
	objects := render(func(_, policy map[string]any) { policy["http"] = []any{prometheus} })
	require.ElementsMatch(t, []string{"ConfigMap", "Service", "StatefulSet", "ServiceMonitor", "NetworkPolicy", "PrometheusRule"}, keys(objects))
	policy, set := objects["NetworkPolicy"], objects["StatefulSet"]
	pods := at(set, "spec", "selector", "matchLabels")
	require.Equal(t, pods, at(policy, "spec", "podSelector", "matchLabels"))
	require.Equal(t, []any{"Ingress"}, at(policy, "spec", "policyTypes"))
	http := map[string]any{"from": []any{prometheus}, "ports": []any{map[string]any{"port": at(set, "spec", "template", "spec", "containers", 0, "ports", 0, "name")}}}
	require.Equal(t, []any{http}, at(policy, "spec", "ingress"))

	rule := objects["PrometheusRule"]
	require.Equal(t, "prometheus", at(rule, "metadata", "labels", "release"))
	rules := readText(t, rulesFile)
	require.Equal(t, rules, readText(t, filepath.Join(chartDir, filepath.Base(rulesFile))), "cp "+rulesFile+" "+chartDir)
	require.Equal(t, readYAML(t, rules)[0], at(rule, "spec"))
	label := at(objects["ServiceMonitor"], "spec", "jobLabel").(string)
	require.Equal(t, "fila", at(objects["Service"], "metadata", "labels", label))
	require.Nil(t, at(objects["ServiceMonitor"], "spec", "endpoints", 0, "authorization"))

	require.Nil(t, at(render(func(_, _ map[string]any) {})["NetworkPolicy"], "spec", "ingress"), "nobody")
	inside := render(func(values, policy map[string]any) {
		values["nats"].(map[string]any)["url"], values["existingSecret"] = "", "login"
		values["cluster"].(map[string]any)["enabled"] = true
		policy["nats"] = []any{prometheus}
	})
	ports := at(inside["StatefulSet"], "spec", "template", "spec", "containers", 0, "ports").([]any)
	require.Equal(t, []any{
		map[string]any{"from": []any{map[string]any{"podSelector": map[string]any{"matchLabels": pods}}}},
		map[string]any{"from": []any{prometheus}, "ports": []any{map[string]any{"port": at(ports[1], "name")}}},
	}, at(inside["NetworkPolicy"], "spec", "ingress"))
}

// A cluster has several pods. Each is a cluster node with the name of its pod.
func TestChartCluster(t *testing.T) {
	set := renderChart(t, func(values map[string]any) { values["cluster"].(map[string]any)["enabled"] = true })["StatefulSet"]
	require.Equal(t, 3, at(set, "spec", "replicas"))
	require.Equal(t, "Parallel", at(set, "spec", "podManagementPolicy"))
	env := environment(t, at(set, "spec", "template", "spec", "containers", 0))
	require.Equal(t, "true", env["FILA_CLUSTER__ENABLED"])
	require.NotContains(t, env, "FILA_CLUSTER__NODE", "the default is the host name, which is the name of the pod")
	alone := renderChart(t, nil)["StatefulSet"]
	require.Nil(t, at(alone, "spec", "podManagementPolicy"))
	require.NotContains(t, environment(t, at(alone, "spec", "template", "spec", "containers", 0)), "FILA_CLUSTER__ENABLED")
	require.NotContains(t, env, "FILA_NATS__EMBEDDED__CLUSTER__NAME")
	_, err := tryChart(t, func(values map[string]any) {
		values["image"].(map[string]any)["repository"] = "registry.example.com/fila"
		values["cluster"].(map[string]any)["enabled"] = true
		values["nats"].(map[string]any)["url"] = ""
	})
	require.ErrorContains(t, err, "cluster.enabled without nats.url needs existingSecret")
}

// Without an external NATS the pods of a cluster embed it. They find each other before any of
// them is ready, and filas with their environment form a cluster.
func TestChartClusterWithNATSInside(t *testing.T) {
	t.Parallel()
	needBinaries(t)
	objects := renderChart(t, func(values map[string]any) {
		values["cluster"].(map[string]any)["enabled"] = true
		values["nats"].(map[string]any)["url"] = ""
		values["existingSecret"] = "login"
	})
	set, service := objects["StatefulSet"], objects["Service"]
	require.Equal(t, true, at(service, "spec", "publishNotReadyAddresses"))
	require.Equal(t, "routes", at(service, "spec", "ports", 2, "targetPort"))
	container := at(set, "spec", "template", "spec", "containers", 0)
	require.Equal(t, "routes", at(container, "ports", 2, "name"))
	require.Equal(t, 6222, at(container, "ports", 2, "containerPort"))
	env := environment(t, container)
	var pods []string
	for i := range 3 {
		pods = append(pods, fmt.Sprintf("%s-%d", at(set, "metadata", "name"), i))
	}
	secret := map[string]string{
		"FILA_NATS__EMBEDDED__TOKEN": "t", "FILA_NATS__EMBEDDED__CLUSTER__USER": "route", "FILA_NATS__EMBEDDED__CLUSTER__PASSWORD": "p",
	}
	nodes := map[string]map[string]string{}
	for _, pod := range pods {
		of := maps.Clone(env)
		maps.Copy(of, secret)
		of["FILA_CLUSTER__NODE"] = pod // in Kubernetes it is the host name
		nodes[pod+"."+at(service, "metadata", "name").(string)] = of
	}
	status := serveCluster(t, nodes)
	for _, pod := range pods {
		require.Contains(t, status, `"node": "`+pod+`"`)
	}
}

// freeAddress finds a port that nobody listens on. It is none that the kernel gives to outgoing
// connections: other tests could take it before its server listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	for {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 20000+rand.IntN(12000)))
		if err == nil {
			require.NoError(t, l.Close())
			return l.Addr().String()
		}
	}
}

// serveCluster starts a fila for each host with its environment, with the hosts replaced by
// ports of this machine. It waits until all are ready, creates a queue, and returns the status.
func serveCluster(t *testing.T, nodes map[string]map[string]string) string {
	t.Helper()
	var local []string
	for host := range nodes {
		local = append(local, host+":6222", freeAddress(t))
	}
	here := strings.NewReplacer(local...)
	s := newShell(t)
	token := ""
	for host, env := range nodes {
		name := env["FILA_CLUSTER__NODE"]
		token = env["FILA_NATS__EMBEDDED__TOKEN"]
		routes := strings.Split(env["FILA_NATS__EMBEDDED__CLUSTER__ROUTES"], ",")
		require.Contains(t, routes, host+":6222")
		require.Len(t, routes, len(nodes))
		require.Equal(t, "0.0.0.0:6222", env["FILA_NATS__EMBEDDED__CLUSTER__LISTEN"])
		of := maps.Clone(env)
		of["FILA_DATA_DIR"], of["FILA_NATS__EMBEDDED__HOST"] = "./"+name, "127.0.0.1"
		of["FILA_NATS__EMBEDDED__CLUSTER__LISTEN"] = here.Replace(host + ":6222")
		of["FILA_NATS__EMBEDDED__CLUSTER__ROUTES"] = here.Replace(env["FILA_NATS__EMBEDDED__CLUSTER__ROUTES"])
		if path := of["FILA_HTTP__OPERATOR_TOKEN"]; path != "" {
			s.write(filepath.Base(path), someToken)
			of["FILA_HTTP__OPERATOR_TOKEN"] = "./" + filepath.Base(path)
		}
		var commands strings.Builder
		for name, value := range of {
			if strings.HasPrefix(name, "FILA_") {
				commands.WriteString("export " + name + "='" + value + "'\n")
			}
		}
		out, code := s.run(commands.String() + "fila_serve_node " + name)
		require.Zero(t, code, out)
	}
	out, code := s.run("export NATS_TOKEN='" + token + "'; nodes_ready && for i in $(seq 60); do fila queue create orders && break; sleep 1; done && fila cluster status --json")
	require.Zero(t, code, out)
	return out
}

// Rendering refuses values that cannot work and says why.
func TestChartRefuses(t *testing.T) {
	secret := func(name string) map[string]any { return map[string]any{"secret": name} }
	for want, change := range map[string]func(image, nats map[string]any){
		"one way to log in is allowed":         func(_, nats map[string]any) { nats["creds"], nats["nkey"] = secret("a"), secret("b") },
		"nats.nkey and nats.tls need nats.url": func(_, nats map[string]any) { nats["url"], nats["tls"] = "", secret("a") },
	} {
		_, err := tryChart(t, func(values map[string]any) {
			image, nats := values["image"].(map[string]any), values["nats"].(map[string]any)
			image["repository"] = "registry.example.com/fila"
			change(image, nats)
		})
		require.ErrorContains(t, err, want)
	}
	for want, change := range map[string]func(pages, ingress map[string]any){
		"ingress.host is needed":               func(pages, ingress map[string]any) { pages["secret"], ingress["enabled"] = "tokens", true },
		"without, the pages answer 403":        func(_, ingress map[string]any) { ingress["enabled"], ingress["host"] = true, "fila.example.com" },
		"needs pages.operator or pages.viewer": func(pages, _ map[string]any) { pages["secret"], pages["operator"] = "tokens", "" },
	} {
		_, err := tryChart(t, func(values map[string]any) {
			values["image"].(map[string]any)["repository"] = "registry.example.com/fila"
			change(values["pages"].(map[string]any), values["ingress"].(map[string]any))
		})
		require.ErrorContains(t, err, want)
	}
	_, err := tryChart(t, func(map[string]any) {})
	require.ErrorContains(t, err, "image.repository is needed", "the values of the chart name no image")
}

// fila logs in with the key of the chart's secret, and knows the variables of the chart.
func TestChartLogsIn(t *testing.T) {
	t.Parallel()
	needBinaries(t)
	user, err := nkeys.CreateUser()
	require.NoError(t, err)
	seed, err := user.Seed()
	require.NoError(t, err)
	public, err := user.PublicKey()
	require.NoError(t, err)
	nats := natstest.Start(t, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} })
	serve := func(s *shell, secret string) (out string, code int) {
		objects := renderChart(t, func(values map[string]any) {
			of := values["nats"].(map[string]any)
			of["url"] = nats.URL
			of[secret].(map[string]any)["secret"] = "login"
		})
		var export strings.Builder
		for name, value := range environment(t, at(objects["StatefulSet"], "spec", "template", "spec", "containers", 0)) {
			if strings.HasPrefix(name, "FILA_NATS__") {
				export.WriteString("export " + name + "='" + strings.Replace(value, "/etc/nats/nkey/", "./", 1) + "'\n")
			}
		}
		return s.run(export.String() + "fila_serve")
	}
	s := newShell(t)
	s.write("seed", string(seed))
	out, code := serve(s, "nkey")
	require.Zero(t, code, out)
	require.Contains(t, out, nats.URL)
	for secret, key := range map[string]string{"creds": "nats.creds", "tls": "nats.tls.ca"} {
		s := newShell(t)
		out, code := serve(s, secret)
		require.NotZero(t, code, out)
		require.Contains(t, out+s.log(), key, "fila does not know the variable")
	}
}

// The schema has exactly the values of the chart.
func TestChartSchema(t *testing.T) {
	values := readYAML(t, readText(t, chartDir+"/values.yaml"))[0].(map[string]any)
	schema := readYAML(t, readText(t, chartDir+"/values.schema.json"))[0] // JSON is YAML
	properties := at(schema, "properties").(map[string]any)
	delete(properties, "global") // Helm's own
	require.ElementsMatch(t, keys(values), keys(properties))
	for name, value := range values {
		if of, ok := at(properties, name, "properties").(map[string]any); ok {
			require.ElementsMatch(t, keys(value.(map[string]any)), keys(of), name)
			for inner, value := range value.(map[string]any) {
				if deeper, ok := at(of[inner], "properties").(map[string]any); ok {
					require.ElementsMatch(t, keys(value.(map[string]any)), keys(deeper), inner)
				}
			}
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

func keys[V any](m map[string]V) []string { return slices.Collect(maps.Keys(m)) }
