package control

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// TestHookVersionsAreKept: versions of hooks survive a restart and a crash. If the file has
// replaced the script since, the version before it is the one that a verb set last.
func TestHookVersionsAreKept(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		versions := func(script string) (string, string) {
			at, before := r.c.HookVersions("orders", wire.HookOnEnqueue, script)
			if before == nil {
				return at.Client, ""
			}
			return at.Client, before.Script
		}
		by := Actor{By: api.VerbHookSet.Name, Sender: api.Sender{Client: "alice"}}
		require.Nil(t, r.c.KeepHook(by, "orders", wire.HookOnEnqueue, "", "one", "first"))
		require.Nil(t, r.c.KeepHook(by, "orders", wire.HookOnEnqueue, "one", "two", ""))
		for _, crash := range []bool{false, true} {
			r.restart(crash, time.Hour)
			client, before := versions("two")
			require.Equal(t, "alice one", client+" "+before)
		}
		client, before := versions("of the file")
		require.Equal(t, " two", client+" "+before)
		_, none := r.c.HookVersions("orders", wire.HookOnFailure, "x")
		require.Nil(t, none)

		r.c.ForgetHooks("orders")
		require.Empty(t, r.stored(stateHook))
		r.restart(true, 0)
		_, before = versions("two")
		require.Empty(t, before)
	})
}
