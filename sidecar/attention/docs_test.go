package attention_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/attention"
	"github.com/filaq/fila/wire/api"
)

var update = flag.Bool("update", false, "write the tables of docs/attention.md")

const page = "../../docs/attention.md"

// rows are the rows of the table of conditions, and the list of alerts without one.
func rows() (conditions, others string) {
	var table, list []string
	for _, c := range attention.Conditions {
		table = append(table, fmt.Sprintf("| `%s` | %s | %s | %s |", c.Name, c.Severity, c.Holds, strings.Join(c.Alerts, ", ")))
	}
	for _, name := range slices.Sorted(maps.Keys(attention.NotConditions)) {
		list = append(list, fmt.Sprintf("- `%s`: %s.", name, attention.NotConditions[name]))
	}
	return strings.Join(table, "\n"), strings.Join(list, "\n")
}

func TestConditionsAreDocumented(t *testing.T) {
	data, err := os.ReadFile(page)
	require.NoError(t, err)
	text := string(data)
	conditions, others := rows()
	if *update {
		text = regexp.MustCompile(`(?s)(\|---\|---\|---\|---\|\n).*?\n\n`).ReplaceAllString(text, "${1}"+conditions+"\n\n")
		text = regexp.MustCompile(`(?s)(have no condition:\n\n).*?\n\n`).ReplaceAllString(text, "${1}"+others+"\n\n")
		require.NoError(t, os.WriteFile(page, []byte(text), 0o644))
	}
	require.Contains(t, text, "\n"+conditions+"\n\n")
	require.Contains(t, text, "\n"+others+"\n\n")
}

// TestAlertsHaveConditions: each alert of deploy/prometheus is in the table or has a reason why
// not, and each alert of the table exists. The severity of a condition is the one of its worst alert.
func TestAlertsHaveConditions(t *testing.T) {
	data, err := os.ReadFile("../../deploy/prometheus/fila.rules.yml")
	require.NoError(t, err)
	severities := map[string]string{}
	name := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if alert, ok := strings.CutPrefix(line, "- alert: "); ok {
			name = alert
		} else if severity, ok := strings.CutPrefix(line, "labels: {severity: "); ok {
			severities[name] = strings.TrimSuffix(severity, "}")
		}
	}
	require.NotEmpty(t, severities)
	watched := map[string]bool{}
	for _, c := range attention.Conditions {
		require.NotEmpty(t, c.Alerts, c.Name)
		worst := len(api.Severities)
		for _, alert := range c.Alerts {
			require.Contains(t, severities, alert, c.Name)
			watched[alert] = true
			worst = min(worst, slices.Index(api.Severities, severities[alert]))
		}
		require.Equal(t, c.Severity, api.Severities[worst], c.Name)
	}
	for alert, why := range attention.NotConditions {
		require.Contains(t, severities, alert)
		require.NotContains(t, watched, alert)
		require.NotEmpty(t, why, alert)
		watched[alert] = true
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(severities)), slices.Collect(maps.Keys(watched)))
}
