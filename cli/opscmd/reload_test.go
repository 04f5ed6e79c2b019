package opscmd

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func TestConfigLog(t *testing.T) {
	f := clitest.StartFake(t)
	ten, empty, odd := "10", "", "a\nb"
	log := api.ConfigLog{Total: 2, Entries: []api.ConfigLogEntry{
		{Seq: 12, Time: "2026-01-02T11:59:00Z", Key: "throttle:stripe:rate", Old: &ten, By: "override-ended"},
		{Seq: 11, Time: "2026-01-02T11:00:00Z", Key: "feature", Old: &empty, New: &odd, By: "config-set"},
	}}
	clitest.Shows(f, program, "config log throttle: --limit 2", "fila.admin.config-log", log,
		"SEQ  TIME                           KEY                   OLD  NEW  BY",
		"12   2026-01-02T11:59:00Z (1m ago)  throttle:stripe:rate  10   -    override-ended",
		`11   2026-01-02T11:00:00Z (1h ago)  feature               ""   a?b  config-set`,
	)
	require.JSONEq(t, `{"prefix":"throttle:","limit":2}`, string(f.Next().Data))
	long := strings.Repeat("x", 1000)
	f.Answer("fila.admin.config-log", api.ConfigLog{Total: 10, Entries: []api.ConfigLogEntry{{Seq: 1, Time: "2026-01-02T11:59:00Z", Key: "k", New: &long, By: "config-set"}}})
	cut := clitest.OK(t, program.RunAt(t, "config", "log", "--limit", "1")).Out
	require.Contains(t, cut, " "+long[:changeWidth-1]+"~ ")
	require.Contains(t, cut, "\n9 changes more; see --limit\n")
	require.Equal(t, 10, clitest.JSON[api.ConfigLog](t, program.RunAt(t, "config", "log", "--limit", "1", "--json")).Total, "of all that are kept")
	require.Contains(t, clitest.OK(t, program.RunAt(t, "config", "log", "--json")).Out, long)
	job := func(seq uint64, text string) api.ConfigLogEntry {
		return api.ConfigLogEntry{Seq: seq, Time: "2026-01-02T11:59:00Z", Key: "job:j", New: &text, By: "job-create", Client: "ann"}
	}
	clitest.Shows(f, program, "config log", "fila.admin.config-log", api.ConfigLog{Total: 4, Entries: []api.ConfigLogEntry{
		job(4, `{"id":"j","queue":"orders","op":"move","reason":"by hand","filter":{"all":true},"to":"slow","matched":0}`),
		job(3, `{"id":"j","queue":"orders.dlq","op":"delete","reason":"gone","filter":{"ids":["1",`),
		job(2, `{"id":"j","queue":"orders","op":"run-now","filter":{"all":true}}`),
		job(1, `{"id":"j`),
	}},
		"SEQ  TIME                           KEY    OLD  NEW                           BY",
		"4    2026-01-02T11:59:00Z (1m ago)  job:j  -    move orders to slow: by hand  job-create (ann)",
		"3    2026-01-02T11:59:00Z (1m ago)  job:j  -    delete orders.dlq: gone       job-create (ann)",
		"2    2026-01-02T11:59:00Z (1m ago)  job:j  -    run-now orders                job-create (ann)",
		`1    2026-01-02T11:59:00Z (1m ago)  job:j  -    {"id":"j                      job-create (ann)`,
	)
	clitest.Complains(t, program.RunAt(t, "config", "log", "--limit", "-1"), command.ExitUsage, "--limit -1")
	clitest.Shows(f, program, "config log", "fila.admin.config-log", api.ConfigLog{Entries: []api.ConfigLogEntry{}}, "no changes")
}

func TestReload(t *testing.T) {
	f := clitest.StartFake(t)
	changes := []string{"error_rule slow is new", "throttle stripe: rate 10 -> 5"}
	clitest.Shows(f, program, "reload", "fila.admin.reload", api.ReloadReply{Changes: changes}, changes...)
	clitest.Shows(f, program, "reload", "fila.admin.reload", api.ReloadReply{}, "reloaded, nothing has changed")
	clitest.Shows(f, program, "reload", "fila.admin.reload",
		api.ReloadReply{Changes: []string{"b: queue orders is new"}, Nodes: []string{"a", "b"}, NotReloaded: []string{"c: the node does not answer"}},
		"reloaded at a, b", "NOT reloaded at c: the node does not answer", "b: queue orders is new")
	clitest.Shows(f, program, "reload --dry-run", "fila.admin.reload", api.ReloadReply{DryRun: true, Changes: changes}, append([]string{"a reload would change:"}, changes...)...)
	clitest.Shows(f, program, "reload --dry-run", "fila.admin.reload", api.ReloadReply{DryRun: true}, "a reload would change nothing")
	clitest.Shows(f, program, "reload --dry-run", "fila.admin.reload",
		api.ReloadReply{DryRun: true, Changes: []string{"b: queue orders is new"}, Nodes: []string{"a", "b"}, NotReloaded: []string{"c: the node does not answer"}},
		"a reload would change, read at a, b", "NOT read at c: the node does not answer", "b: queue orders is new")
	f.Answer("fila.admin.reload", wire.ReloadFailed(json.Unmarshal([]byte("{"), new(int))))
	clitest.Complains(t, program.RunAt(t, "reload"), command.ExitUsage, "nothing was reloaded: unexpected end of JSON input: correct the file and reload again")
}
