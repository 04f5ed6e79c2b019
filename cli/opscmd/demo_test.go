package opscmd

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
)

func demoOutcome() demoReport {
	return demoReport{Provider: 200, Runs: []demoResult{
		{Name: "fifo", title: "One line", Seconds: 10, Calls: 2000, Tenants: []demoFigures{
			{"noisy", 4000, 1940, 2060, 0.97, 2500, 5000},
			{"quiet-1", 40, 20, 20, 0.01, 2400, 4900},
			{"quiet-2", 40, 20, 20, 0.01, 2500, 5100},
			{"quiet-3", 40, 0, 40, 0, 0, 0},
		}},
		{Name: "fair", title: "Fair", Seconds: 10, Calls: 1990, Refused: 3, Tenants: []demoFigures{
			{"noisy", 4000, 1870, 2130, 0.94, 2600, 5200},
			{"quiet-1", 40, 40, 0, 0.02, 9.5, 20},
			{"quiet-2", 40, 40, 0, 0.02, 12, 25},
			{"quiet-3", 40, 40, 0, 0.02, 15, 30},
		}},
	}}
}

func TestDemoTable(t *testing.T) {
	r := demoOutcome()
	require.Equal(t, []string{
		"One line",
		"TENANT        SENT    DONE  WAITING   SHARE    WAIT P50    WAIT P99",
		"noisy         4000    1940     2060   97.0%       2.5 s       5.0 s",
		"quiet-1         40      20       20    1.0%       2.4 s       4.9 s",
		"quiet-2         40      20       20    1.0%       2.5 s       5.1 s",
		"quiet-3         40       0       40    0.0%           -           -",
		"10.0 s, 200 calls a second of the 200 that the provider takes, 0 refused by it", "",
	}, r.Runs[0].lines(terminal.Style{}))
	require.Contains(t, r.Runs[1].lines(terminal.Style{})[3], "9.5 ms       20 ms")
}

// The picture in the README is from the current demo.
func TestDemoPicture(t *testing.T) {
	picture, err := os.ReadFile("../../docs/demo.svg")
	require.NoError(t, err)
	for _, run := range demoRuns {
		require.Contains(t, string(picture), ">"+run.title+"<")
	}
	require.Contains(t, string(picture), ">"+demoOutcome().Runs[0].lines(terminal.Style{})[1]+"<")
}

func TestDemoWords(t *testing.T) {
	r := demoOutcome()
	require.Equal(t, "In one line, half of the quiet tenants' messages waited 2.5 s or more behind the noisy tenant's backlog (p99 5.1 s), "+
		"and 40 of 120 were handled. With a fair share for each tenant they waited 12 ms (p99 30 ms), and 120 of 120 were handled: 208 times faster. "+
		"The provider took 200 and 199 calls a second, of 200 that it allows: the noisy tenant still gets all that the others leave, 94%, and waits "+
		`in a line of its own. The difference is one line of Lua, fairness_key = msg.headers["tenant"].`, r.words())
	for i := range r.Runs[1].Tenants {
		r.Runs[1].Tenants[i].WaitP50Ms = 2000
	}
	require.NotContains(t, r.words(), "times faster", "it says what came out")
	for i := range r.Runs {
		for j := range r.Runs[i].Tenants {
			r.Runs[i].Tenants[j] = demoFigures{}
		}
	}
	require.Contains(t, r.words(), "they waited - (p99 -), and 0 of 0")
	for line := range strings.SplitSeq(terminal.Wrap(demoOutcome().words(), 0, 78), "\n") {
		require.LessOrEqual(t, len(line), 78)
	}
}

func TestDemoQuantile(t *testing.T) {
	var waits []time.Duration
	require.Zero(t, quantile(waits, 0.5))
	for i := range 100 {
		waits = append(waits, time.Duration(i+1)*time.Millisecond)
	}
	require.Equal(t, []float64{50, 99, 100, 1}, []float64{quantile(waits, 0.5), quantile(waits, 0.99), quantile(waits, 1), quantile(waits, 0)})
	require.InDelta(t, 1.0, quantile(waits[:1], 0.99), 0)
}

// A table is drawn over the one before, and events are above it.
func TestDemoScreen(t *testing.T) {
	var out bytes.Buffer
	s := newDemoStage(&command.Env{}, &out)
	s.live, s.table = true, func() []string { return []string{"a", "b"} }
	s.draw(false)
	s.line("the vendor fails")
	s.draw(true)
	s.line("after it")
	require.Equal(t, "a|b|^[2A"+"the vendor fails|a|b|^[2A"+"a|b|"+"after it|a|b|",
		strings.NewReplacer(terminal.EraseLine+"\n", "|", "\x1b", "^").Replace(out.String()))
}

func TestDemoResultFitsTheScreen(t *testing.T) {
	r := demoOutcome()
	for width, columns := range map[int]string{40: "40", 78: "200"} {
		t.Setenv("COLUMNS", columns)
		var out bytes.Buffer
		require.NoError(t, newDemoStage(&command.Env{}, &out).result(r, r.words()))
		longest := 0
		for line := range strings.Lines(out.String()) {
			longest = max(longest, len(strings.TrimSuffix(line, "\n")))
		}
		require.LessOrEqual(t, longest, width)
		require.Greater(t, longest, width/2)
	}
}

// demoDir sets the directory of demos, which leave nothing behind.
func demoDir(t *testing.T) (dir string) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs servers")
	}
	clitest.Isolate(t)
	dir = t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join(dir, "fila-demo-*"))
		require.NoError(t, err)
		require.Empty(t, left)
	})
	return dir
}

// interrupted interrupts a demo after a time, and returns its output.
func interrupted(t *testing.T, after time.Duration, flags ...string) (out string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(after, cancel)
	r := program.RunEnv(t, ctx, &command.Env{}, "", append([]string{"demo"}, flags...)...)
	require.Equal(t, clitest.Ended(command.ExitFailed, r.Out, "fila: interrupted\n"), r)
	return r.Out
}

// inOrder requires that moments begin with these texts, in this order.
func inOrder(t *testing.T, moments []demoMoment, texts ...string) {
	t.Helper()
	rest := moments
	for _, text := range texts {
		i := slices.IndexFunc(rest, func(m demoMoment) bool { return strings.HasPrefix(m.Text, text) })
		require.NotEqual(t, -1, i, "%s in %v", text, moments)
		rest = rest[i+1:]
	}
}

// A demo of a second works and leaves no file. The wait times depend on the machine.
func TestDemo(t *testing.T) {
	dir := demoDir(t)
	report := clitest.JSON[demoReport](t, program.Run(t, "", "demo", "--duration", "1200ms", "--json"))
	require.Len(t, report.Runs, 2)
	for i, name := range []string{"fifo", "fair"} {
		run := report.Runs[i]
		require.Equal(t, name, run.Name)
		require.Len(t, run.Tenants, 4)
		require.Greater(t, run.Calls, 0)
		require.Greater(t, run.Tenants[0].Sent, run.Tenants[1].Sent)
		done := 0
		for _, tenant := range run.Tenants {
			done += tenant.Done
			require.Equal(t, tenant.Sent, tenant.Done+tenant.Waiting)
		}
		require.Equal(t, run.Calls, done)
	}
	require.Contains(t, report.Result, "one line of Lua")

	r := clitest.OK(t, program.Run(t, "", "demo", "--duration", "400ms"))
	require.Equal(t, 2, strings.Count(r.Out, "TENANT "), "without a terminal each table comes once")
	require.NotContains(t, r.Out, "\x1b")

	interrupted(t, 300*time.Millisecond, "--duration", "1h") // at some point

	require.Equal(t, command.ExitUsage, program.Run(t, "", "demo", "--duration", "1ms").Code)
	t.Setenv("TMPDIR", filepath.Join(dir, "nosuch"))
	require.Equal(t, command.ExitFailed, program.Run(t, "", "demo").Code)
	_, err := os.Stat(filepath.Join(dir, "nosuch"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
