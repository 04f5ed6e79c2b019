package gatecmd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire/api"
)

func TestGuardPermits(t *testing.T) {
	f := clitest.StartFake(t)
	id := api.PermitID(1, 2)
	list := api.GuardPermitList{
		Total: 9, Next: id, Missing: []string{"c"},
		Permits: []api.GuardPermit{
			{ID: api.PermitID(1, 1), Key: "v", GivenAt: "2026-01-02T11:59:00Z", ExpiresAt: "2026-01-02T12:01:00Z"},
			{ID: id, Key: "v", With: []string{"tenant:a"}, Caller: "web", User: "A/bob", GivenAt: "2026-01-02T11:59:00Z", ExpiresAt: "2026-01-02T13:00:00Z"},
		},
		Keys:    []api.GuardHolder{{Key: "v", Permits: 8}, {Key: "w", Permits: 1}},
		Callers: []api.GuardHolder{{User: "A/bob", Permits: 7}, {Permits: 2}},
	}
	clitest.Shows(f, program, "guard permits", "fila.admin.guard-permits", list,
		"ID                                 KEY         CALLER       GIVEN                          ENDS",
		"0000000000000001-0000000000000001  v           -            2026-01-02T11:59:00Z (1m ago)  2026-01-02T12:01:00Z (in 1m)",
		"0000000000000001-0000000000000002  v tenant:a  web (A/bob)  2026-01-02T11:59:00Z (1m ago)  2026-01-02T13:00:00Z (in 1h)",
		"more: --after 0000000000000001-0000000000000002",
		"",
		"KEY  PERMITS",
		"v    8",
		"w    1",
		"",
		"CALLER  PERMITS",
		"A/bob   7",
		"-       2",
		"not answered: c",
	)
	require.JSONEq(t, `{"limit":100}`, string(f.Next().Data))
	f.Next()
	clitest.Shows(f, program, "guard permits v --user A/bob --limit 5 --after "+id, "fila.admin.guard-permits", api.GuardPermitList{Permits: []api.GuardPermit{}}, "no permits")
	require.JSONEq(t, `{"key":"v","user":"A/bob","limit":5,"after":"`+id+`"}`, string(f.Next().Data))
	f.Next()
	clitest.OK(t, program.RunAt(t, "guard", "permits", "--caller", ""))
	require.JSONEq(t, `{"caller":"","limit":100}`, string(f.Next().Data))
}

func TestGuardEnd(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.admin.guard-end", api.GuardEndReply{Ended: 2, Missing: []string{"b"}})
	require.Equal(t, "2 permits ended\nnot answered: b\n", clitest.OK(t, program.RunAt(t, "guard", "end", "v", "--caller", "web", "--user", "A/bob")).Out)
	require.JSONEq(t, `{"key":"v","caller":"web","user":"A/bob"}`, string(f.Next().Data))
	clitest.OK(t, program.RunAt(t, "guard", "end", "--id", "x", "--id", "y"))
	require.JSONEq(t, `{"ids":["x","y"]}`, string(f.Next().Data))
	clitest.Complains(t, program.RunAt(t, "guard", "end"), command.ExitUsage, "the permits are missing")
}
