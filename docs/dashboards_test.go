package docs

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var flagUpdate = flag.Bool("update", false, "write deploy/grafana/dashboards")

// dashboard is one of deploy/grafana/dashboards.yaml.
type dashboard struct {
	UID, Title string
	Queue      bool // shows one queue
	Rows       []struct {
		Title  string
		Panels []panel
	}
}

type panel struct {
	Title, Type, Unit string
	Width             int
	Queries           []struct{ Expr, Legend string }
}

func dashboards(t *testing.T) (all []dashboard) {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(readText(t, "deploy/grafana/dashboards.yaml")))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&all))
	return all
}

type object map[string]any

var datasource = object{"type": "prometheus", "uid": "${datasource}"}

// variable returns a drop-down of a dashboard.
func variable(name, query string) object {
	return object{
		"name": name, "type": "query", "datasource": datasource, "refresh": 2, "sort": 1,
		"query": object{"query": query, "refId": name},
	}
}

// render returns the dashboard in the format of Grafana.
func (d *dashboard) render(t *testing.T) []byte {
	t.Helper()
	variables := []object{
		{"name": "datasource", "type": "datasource", "query": "prometheus"},
		variable("job", "label_values(fila_build_info, job)"),
	}
	if d.Queue {
		variables = append(variables, variable("queue", `label_values(fila_queue_depth{job="$job", queue!~".*[.]dlq"}, queue)`))
	}
	const columns, statHeight, height = 24, 4, 8
	var panels []object
	y := 0
	for _, row := range d.Rows {
		panels = append(panels, object{
			"id": len(panels) + 1, "type": "row", "title": row.Title, "collapsed": false, "panels": []object{},
			"gridPos": object{"x": 0, "y": y, "w": columns, "h": 1},
		})
		y++
		x, tall := 0, 0
		for _, p := range row.Panels {
			require.Positive(t, p.Width, p.Title)
			if x+p.Width > columns {
				x, y = 0, y+tall
			}
			one := object{
				"id": len(panels) + 1, "title": p.Title, "datasource": datasource,
				"fieldConfig": object{"defaults": object{"unit": p.Unit, "min": 0}, "overrides": []object{}},
			}
			switch p.Type {
			case "stat":
				tall = statHeight
				one["type"], one["options"] = "stat", object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "none"}
			case "":
				tall = height
				one["type"], one["options"] = "timeseries", object{
					"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"},
				}
			default:
				require.Fail(t, "no such type of panels", p.Type)
			}
			one["gridPos"] = object{"x": x, "y": y, "w": p.Width, "h": tall}
			var targets []object
			for i, q := range p.Queries {
				target := object{"refId": string(rune('A' + i)), "datasource": datasource, "expr": q.Expr, "legendFormat": q.Legend}
				if q.Legend == "" {
					target["legendFormat"] = p.Title
				}
				if p.Type == "stat" {
					target["instant"] = true
				}
				targets = append(targets, target)
			}
			require.NotEmpty(t, targets, p.Title)
			one["targets"] = targets
			panels = append(panels, one)
			x += p.Width
		}
		y += tall
	}
	text, err := json.MarshalIndent(object{
		"uid": d.UID, "title": d.Title, "tags": []string{"fila"}, "schemaVersion": 39, "editable": true, "refresh": "30s",
		"time": object{"from": "now-3h", "to": "now"}, "templating": object{"list": variables}, "panels": panels,
		"links": []object{{"type": "dashboards", "title": "fila", "tags": []string{"fila"}, "keepTime": true, "includeVars": true}},
	}, "", "  ")
	require.NoError(t, err)
	return append(text, '\n')
}

// Dashboards keep the rules that Grafana checks only when it shows them: unique ids, panels that
// fit and do not overlap, known types, variables and data sources that exist.
func TestDashboardsAreValid(t *testing.T) {
	source := readYAML(t, readText(t, "deploy/grafana/provisioning/datasources/prometheus.yaml"))[0]
	kind := at(source, "datasources", 0, "type").(string)
	uids := map[string]bool{}
	for _, d := range dashboards(t) {
		require.Regexp(t, "^[a-zA-Z0-9_-]{1,40}$", d.UID)
		require.False(t, uids[d.UID], d.UID)
		uids[d.UID] = true
		var read any
		require.NoError(t, json.Unmarshal([]byte(readText(t, filepath.Join("deploy/grafana/dashboards", strings.TrimPrefix(d.UID, "fila-")+".json"))), &read))
		require.GreaterOrEqual(t, at(read, "schemaVersion"), 39.)
		defined, used := map[string]bool{}, map[string]bool{}
		for _, v := range at(read, "templating", "list").([]any) {
			name := at(v, "name").(string)
			require.False(t, defined[name], name)
			defined[name] = true
			switch at(v, "type") {
			case "datasource":
				require.Equal(t, kind, at(v, "query"), "the provisioned one")
			case "query":
				require.Regexp(t, `^label_values\(fila_\w+(\{.*\})?, \w+\)$`, at(v, "query", "query"))
			default:
				require.Fail(t, "no such type of variables", at(v, "type"))
			}
		}
		variable := regexp.MustCompile(`\$\{?(\w+)`)
		ids, taken := map[float64]bool{}, map[[2]int]string{}
		for _, p := range at(read, "panels").([]any) {
			title := at(p, "title").(string)
			require.NotEmpty(t, title)
			id := at(p, "id").(float64)
			require.Positive(t, id, title)
			require.False(t, ids[id], title)
			ids[id] = true
			require.Contains(t, []any{"row", "stat", "timeseries"}, at(p, "type"), title)
			pos := func(name string) int { return int(at(p, "gridPos", name).(float64)) }
			require.GreaterOrEqual(t, pos("x"), 0, title)
			require.LessOrEqual(t, pos("x")+pos("w"), 24, title)
			for x := pos("x"); x < pos("x")+pos("w"); x++ {
				for y := pos("y"); y < pos("y")+pos("h"); y++ {
					require.Empty(t, taken[[2]int{x, y}], "%s lies under %s", title, taken[[2]int{x, y}])
					taken[[2]int{x, y}] = title
				}
			}
			if at(p, "type") == "row" {
				require.Equal(t, []any{}, at(p, "panels"), "the panels of an open row follow it")
				require.Equal(t, 1, pos("h"))
				continue
			}
			refs := map[any]bool{}
			for _, q := range at(p, "targets").([]any) {
				require.False(t, refs[at(q, "refId")], title)
				refs[at(q, "refId")] = true
				for _, of := range []any{p, q} {
					require.Equal(t, map[string]any{"type": kind, "uid": "${datasource}"}, at(of, "datasource"), title)
				}
			}
			text, err := json.Marshal(p)
			require.NoError(t, err)
			for _, v := range variable.FindAllStringSubmatch(string(text), -1) {
				used[v[1]] = true
			}
		}
		require.Equal(t, defined, used, d.UID)
	}
}

// deploy/grafana/dashboards is up to date with dashboards.yaml.
func TestDashboardsAreUpToDate(t *testing.T) {
	const dir = "deploy/grafana/dashboards"
	var names []string
	for _, d := range dashboards(t) {
		name := filepath.Join(dir, strings.TrimPrefix(d.UID, "fila-")+".json")
		names = append(names, name)
		want := d.render(t)
		if *flagUpdate {
			require.NoError(t, os.WriteFile(name, want, 0o644))
		}
		require.Equal(t, string(want), readText(t, name), "go test ./docs -run TestDashboardsAreUpToDate -update")
	}
	found, err := filepath.Glob(dir + "/*")
	require.NoError(t, err)
	require.ElementsMatch(t, names, found)
	require.Len(t, names, 3)
}
