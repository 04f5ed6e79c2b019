package docs

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var flagUpdate = flag.Bool("update", false, "write deploy/grafana/dashboards")

// dashboard is one of deploy/grafana/dashboards.yaml.
type dashboard struct {
	UID, Title string
	Queue      bool // it is about one queue
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

// variable is a choice at the top of a dashboard.
func variable(name, query string) object {
	return object{
		"name": name, "type": "query", "datasource": datasource, "refresh": 2, "sort": 1,
		"query": object{"query": query, "refId": name},
	}
}

// render is what Grafana reads.
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

// The dashboards are what dashboards.yaml says.
func TestDashboards(t *testing.T) {
	const dir = "deploy/grafana/dashboards"
	var names []string
	for _, d := range dashboards(t) {
		name := filepath.Join(dir, strings.TrimPrefix(d.UID, "fila-")+".json")
		names = append(names, name)
		want := d.render(t)
		if *flagUpdate {
			require.NoError(t, os.WriteFile(name, want, 0o644))
		}
		require.Equal(t, string(want), readText(t, name), "go test ./docs -run TestDashboards -update")
	}
	found, err := filepath.Glob(dir + "/*")
	require.NoError(t, err)
	require.ElementsMatch(t, names, found)
	require.Len(t, names, 3)
}
