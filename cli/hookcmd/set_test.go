package hookcmd

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// TestHookList shows the hooks of all queues; a queue that is deleted meanwhile has none.
func TestHookList(t *testing.T) {
	f := clitest.StartFake(t)
	queues := api.QueueList{Total: 4, Queues: []api.QueueSummary{{Name: "gone"}, {Name: "orders"}, {Name: "orders.dlq"}, {Name: "plain"}}}
	f.Answer("fila.admin.queue-list", queues)
	f.Answer("fila.admin.queue-inspect.gone", &wire.Error{Code: 404, ErrCode: wire.CodeQueueNotFound, Description: "no such queue"})
	f.Answer("fila.admin.queue-inspect.plain", api.QueueInfo{})
	f.Answer("fila.admin.queue-inspect.orders", api.QueueInfo{
		Settings: wire.QueueSettings{OnEnqueue: "a\nb\n", OnFailure: "c"},
		Sources: api.Sources{
			"on_enqueue": {By: api.SetByOperator, Client: "alice", At: "2026-01-02T11:59:00Z"}, "on_failure": {By: api.SetByFile},
		},
		Hooks: []api.HookInfo{
			{Hook: "on_enqueue", State: "closed", Runs: 7}, {Hook: "on_failure", State: "open", Runs: 5, Failures: 4, LastError: "it broke"},
		},
	})
	require.Equal(t, `QUEUE   HOOK        LINES  SET BY          AT                             CIRCUIT  RUNS  FAILURES  LAST ERROR
orders  on_enqueue  2      operator alice  2026-01-02T11:59:00Z (1m ago)  closed   7     0         -
orders  on_failure  1      file            -                              open     5     4         it broke
`, clitest.OK(t, program.RunAt(t, "hook", "list")).Out)

	var list hookList
	require.NoError(t, json.Unmarshal([]byte(clitest.OK(t, program.Run(t, "", "hook", "list", "--json")).Out), &list))
	require.Equal(t, 2, list.Total)
	require.Equal(t, "orders on_failure open 1", fmt.Sprint(list.Hooks[1].Queue, " ", list.Hooks[1].Hook, " ", list.Hooks[1].State, " ", list.Hooks[1].Lines))

	queues.Missing = []int{2}
	f.Answer("fila.admin.queue-list", queues)
	r := program.Run(t, "", "hook", "list")
	require.NotEqual(t, command.ExitOK, r.Code)
	require.Contains(t, r.Out, "it broke")
	require.Contains(t, r.Err, "the list is not whole")

	f.Answer("fila.admin.queue-list", api.QueueList{Queues: []api.QueueSummary{}})
	require.Contains(t, clitest.OK(t, program.Run(t, "", "hook", "list")).Out, "no queue has a hook")
	f.Answer("fila.admin.queue-list", api.QueueList{Total: 1, Queues: []api.QueueSummary{{Name: "stuck"}}})
	f.Answer("fila.admin.queue-inspect.stuck", wire.Draining())
	require.Equal(t, command.ExitRefused, program.Run(t, "", "hook", "list").Code)
}

// TestHookVersions: hooks are set with a reason, shown with the version before, rolled back.
func TestHookVersions(t *testing.T) {
	f := clitest.StartFake(t)
	reply := api.HookReply{
		Queue: "orders", Hook: "on_enqueue", HookVersion: api.HookVersion{Script: "a\nb\n", Client: "alice", At: "2026-01-02T11:59:00Z", Reason: "fair"},
		Before: &api.HookVersion{},
	}
	f.Answer("fila.admin.hook-set.orders", reply)
	f.Answer("fila.admin.hook-show.orders", reply)
	file := filepath.Join(t.TempDir(), "fair.lua")
	require.NoError(t, os.WriteFile(file, []byte("a\nb\n"), 0o600))
	r := clitest.OK(t, program.RunAt(t, "hook", "set", "orders", file, "--reason", "fair"))
	require.JSONEq(t, `{"hook":"on_enqueue","script":"a\nb\n","reason":"fair"}`, string(f.Next().Data))
	require.Contains(t, r.Out, "alice, 2026-01-02T11:59:00Z (1m ago)\n")
	require.Contains(t, r.Out, "none, set by the configuration file, or before fila kept versions\n")
	clitest.OK(t, program.RunAt(t, "hook", "rollback", "orders", "--hook", "on_failure"))
	require.JSONEq(t, `{"hook":"on_failure","rollback":true}`, string(f.Next().Data))
	require.Contains(t, clitest.OK(t, program.RunAt(t, "hook", "show", "orders")).Out, "a\nb")
}
