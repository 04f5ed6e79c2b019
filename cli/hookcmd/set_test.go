package hookcmd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/wire/api"
)

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
