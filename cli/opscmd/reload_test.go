package opscmd

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire"
)

func TestConfigLog(t *testing.T) {
	f := clitest.StartFake(t)
	ten, empty, odd := "10", "", "a\nb"
	log := wire.ConfigLog{Total: 3, Entries: []wire.ConfigLogEntry{
		{Seq: 12, Time: "2026-01-02T11:59:00Z", Key: "throttle:stripe:rate", Old: &ten, By: "override-ended"},
		{Seq: 11, Time: "2026-01-02T11:00:00Z", Key: "feature", Old: &empty, New: &odd, By: "config-set"},
	}}
	f.Answer("fila.admin.config-log", log)
	r := program.RunAt(t, "config", "log", "throttle:", "--limit", "2")
	require.JSONEq(t, `{"prefix":"throttle:","limit":2}`, string(f.Next().Data))
	require.Equal(t, clitest.Ended(command.ExitOK, clitest.Lines(
		"SEQ  TIME                           KEY                   OLD  NEW  BY",
		"12   2026-01-02T11:59:00Z (1m ago)  throttle:stripe:rate  10   -    override-ended",
		`11   2026-01-02T11:00:00Z (1h ago)  feature               ""   a?b  config-set`,
	), ""), r)
	got := clitest.JSON[wire.ConfigLog](t, program.RunAt(t, "config", "log", "--json"))
	require.Equal(t, log.Entries, got.Entries)
	r = program.RunAt(t, "config", "log", "--limit", "-1")
	require.Equal(t, command.ExitUsage, r.Code)

	none := clitest.StartFake(t)
	none.Answer("fila.admin.config-log", wire.ConfigLog{})
	require.Equal(t, "no changes\n", program.RunAt(t, "config", "log").Out)
}

func TestReload(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.admin.reload", wire.ReloadReply{Changes: []string{"error_rule slow is new", "throttle stripe: rate 10 -> 5"}})
	require.Equal(t, clitest.Ended(command.ExitOK, clitest.Lines("error_rule slow is new", "throttle stripe: rate 10 -> 5"), ""), program.RunAt(t, "reload"))
	require.True(t, json.Valid([]byte(program.RunAt(t, "reload", "--json").Out)))

	f = clitest.StartFake(t)
	f.Answer("fila.admin.reload", wire.ReloadReply{})
	require.Equal(t, clitest.Ended(command.ExitOK, "reloaded, nothing has changed\n", ""), program.RunAt(t, "reload"))

	f = clitest.StartFake(t)
	f.Answer("fila.admin.reload", wire.ReloadFailed(json.Unmarshal([]byte("{"), new(int))))
	clitest.Complains(t, program.RunAt(t, "reload"), command.ExitUsage, "nothing was reloaded: unexpected end of JSON input: correct the file and reload again")
}
