package admin

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// TestHookVersions: a hook is set with a reason, shown with the version before it and rolled
// back, and a second rollback undoes the first.
func TestHookVersions(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		const first, second = "function on_enqueue(msg) return {fairness_key='a'} end", "function on_enqueue(msg) return {fairness_key='b'} end"
		body := func(v any) string {
			data, err := json.Marshal(v)
			require.NoError(t, err)
			return string(data)
		}
		set := func(req map[string]any) (reply api.HookReply) {
			t.Helper()
			req["hook"] = wire.HookOnEnqueue
			h.must(api.VerbHookSet, "orders", body(req), &reply)
			return reply
		}
		h.must(api.VerbQueueCreate, "orders", body(map[string]any{"on_enqueue": first}), nil)
		require.Equal(t, wire.CodeHookNotFound, h.ask(api.VerbHookSet, "orders", `{"hook":"on_enqueue","rollback":true}`, nil).ErrCode)

		reply := set(map[string]any{"script": second, "reason": "b counts"})
		require.Equal(t, "b counts", reply.Reason)
		require.NotEmpty(t, reply.At)
		require.Equal(t, first, reply.Before.Script)
		require.Equal(t, wire.CodeHookLoad, h.ask(api.VerbHookSet, "orders", `{"hook":"on_enqueue","script":"function f("}`, nil).ErrCode)
		require.Equal(t, second, set(map[string]any{"script": second}).Script, "nothing has changed")

		reply = set(map[string]any{"rollback": true})
		require.Equal(t, first, reply.Script)
		require.Equal(t, second, reply.Before.Script)
		require.Equal(t, "b counts", reply.Before.Reason)
		reply = set(map[string]any{"rollback": true})
		require.Equal(t, second, reply.Script)

		// queue-update keeps the version before it as well.
		h.must(api.VerbQueueUpdate, "orders", `{"on_enqueue":""}`, nil)
		h.must(api.VerbHookShow, "orders", `{"hook":"on_enqueue"}`, &reply)
		require.Empty(t, reply.Script)
		require.Equal(t, second, reply.Before.Script)

		h.must(api.VerbQueueDelete, "orders", ``, nil)
		h.must(api.VerbQueueCreate, "orders", ``, nil)
		reply = api.HookReply{}
		h.must(api.VerbHookShow, "orders", `{"hook":"on_enqueue"}`, &reply)
		require.Nil(t, reply.Before, "it belonged to a deleted queue")
	})
}
