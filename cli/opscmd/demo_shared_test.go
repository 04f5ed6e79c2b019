package opscmd

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/terminal"
)

func sharedOutcome() sharedReport {
	return sharedReport{ProbesAllowed: 3, Filas: []sharedFila{
		{Name: "east", Sent: 400, Done: 399, Failed: 5, WhileOpen: 1, Probes: 1, HeldBack: 161, Waiting: 1, Circuit: "closed", OpenedBy: "east"},
		{Name: "west", Sent: 41, Done: 20, Probes: 2, HeldBack: 14, Waiting: 21, Circuit: "half-open", OpenedBy: "east"},
	}}
}

func TestDemoSharedTable(t *testing.T) {
	require.Equal(t, []string{
		"",
		"FILA     SENT   DONE  FAILED  PROBES  WAITING  CIRCUIT",
		"east      400    399       6       1        1  closed",
		"west       41     20       0       2       21  half-open",
		"",
	}, sharedOutcome().lines(terminal.Style{}))
}

func TestDemoSharedWords(t *testing.T) {
	require.Equal(t, "east had seen the vendor fail 5 times and west 0 times when east opened the circuit, for both: west held its messages back, too. "+
		"While it was open the vendor got 1 call. "+
		"Then 3 probes tried, of 3 that are allowed to both together (east 1, west 2), while 161 and 14 messages waited; when they had gone well, all went. "+
		"All that it takes is [shared] enabled = true in the configuration of both.", sharedOutcome().words())
}

// In a fifth of the time of the real demo: the second fila is blocked by failures at the first,
// the probes stay within the limit, and everything is delivered.
func TestDemoShared(t *testing.T) {
	demoDir(t)
	report := clitest.JSON[sharedReport](t, program.Run(t, "", "demo", "--shared", "--duration", "4s", "--json"))
	require.Len(t, report.Filas, 2)
	east, west := report.Filas[0], report.Filas[1]
	require.Equal(t, []string{"east", "west"}, []string{east.Name, west.Name})
	require.Equal(t, 3, report.ProbesAllowed)
	require.Equal(t, 3, east.Probes+west.Probes, "as many probes as allowed, of both together")
	require.Contains(t, []string{"east", "west"}, east.OpenedBy)
	require.Equal(t, east.OpenedBy, west.OpenedBy, "one opening holds both back")
	for _, f := range report.Filas {
		require.Positive(t, f.HeldBack, f.Name)
		require.Equal(t, "closed", f.Circuit, f.Name)
		require.Greater(t, f.Done, f.Failed+f.WhileOpen+f.Probes, f.Name)
	}
	for _, f := range []string{"east", "west"} {
		inOrder(t, report.Moments, "the vendor fails", f+": open", "3 probes", f+": closed", "all that waited")
	}

	r := clitest.OK(t, program.Run(t, "", "demo", "--shared", "--duration", "1s"))
	require.Equal(t, 1, strings.Count(r.Out, "FILA "), "without a terminal the table comes once")
	require.NotContains(t, r.Out, "\x1b")
	require.Contains(t, r.Out, "west: open by ")
	require.Contains(t, r.Out, "3 probes: ")
	for line := range strings.Lines(r.Out) {
		require.LessOrEqual(t, len(line), 79, line)
	}

	interrupted(t, time.Second, "--shared", "--duration", "1h") // at some point
}
