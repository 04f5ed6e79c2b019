package opscmd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func TestAnnotate(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.admin.annotate", api.Mark{At: "2026-01-02T11:59:00Z", Kind: "annotation", Text: "release 3"})
	r := clitest.OK(t, program.Run(t, "", "annotate", "release 3"))
	require.Contains(t, r.Out, "release 3: marked on all charts at 2026-01-02T11:59:00Z (")
	require.JSONEq(t, `{"text":"release 3"}`, string(f.Next().Data))

	f.Answer("fila.admin.annotate", api.Mark{At: "2026-01-02T11:59:00Z", Kind: "annotation", Object: "queue:orders", Text: "import"})
	r = clitest.OK(t, program.Run(t, "", "annotate", "import", "--queue", "orders", "--at", "15m"))
	require.Contains(t, r.Out, "import: marked on the charts of queue:orders at ")
	require.JSONEq(t, `{"text":"import","queue":"orders","at":"15m"}`, string(f.Next().Data))

	f.Answer("fila.admin.annotate", wire.BadField("at", `"2h"`, "allowed is a time within the last hour"))
	r = program.Run(t, "", "annotate", "x", "--at", "2h")
	require.NotEqual(t, command.ExitOK, r.Code)
	require.Contains(t, r.Err, `at is "2h": allowed is a time within the last hour`)
	require.NotEqual(t, command.ExitOK, program.Run(t, "", "annotate").Code)
}

func TestMarks(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.admin.marks", api.Marks{Total: 3, Marks: []api.Mark{
		{At: "2026-01-02T11:59:00Z", Kind: "annotation", Text: "release\x1b[2J", By: "annotate", Client: "maria@ops"},
		{At: "2026-01-02T11:58:00Z", Kind: "circuit", Object: "circuit:bank", Text: "opened: failures", By: "failures"},
	}})
	r := clitest.OK(t, program.Run(t, "", "marks", "--queue", "orders", "--limit", "2"))
	require.JSONEq(t, `{"queue":"orders","limit":2,"window_ms":3600000}`, string(f.Next().Data))
	require.Regexp(t, `\n2026-01-02T11:59:00Z \(.*\) +-  +release\?\[2J +annotate \(maria@ops\)\n`, r.Out)
	require.Regexp(t, `circuit:bank  opened: failures +failures\n`, r.Out)
	require.Contains(t, r.Out, "1 mark more; see --limit\n")

	f.Answer("fila.admin.marks", api.Marks{})
	r = clitest.OK(t, program.Run(t, "", "marks"))
	require.Equal(t, "no marks in the last hour\n", r.Out)
}
