package admin

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Two owners cannot take each other's queues, hooks and schedules by any verb; with force the change is
// made, and the reply and the audit log name the owner and the change.
func TestOwnersOfQueues(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		billing := api.Sender{Client: "a", Owner: "billing", Reason: "contract"}
		for _, v := range []struct {
			verb                  api.AnyVerb
			body, object, changes string
		}{
			{api.VerbQueueCreate, `{"quantum":1}`, "", ""},
			{api.VerbQueueUpdate, `{"max_deliveries":5}`, "queue:orders", "max_deliveries unset -> 5"},
			{api.VerbHookSet, `{"hook":"on_enqueue","script":"function on_enqueue(msg) return {} end"}`, "queue:orders", "on_enqueue"},
			{api.VerbHookSet, `{"hook":"on_enqueue","rollback":true}`, "queue:orders", "on_enqueue"},
			{api.VerbScheduleAdd, `{"name":"nightly","schedule":"@every 1h"}`, "", ""},
			{api.VerbScheduleAdd, `{"name":"nightly","schedule":"@every 2h"}`, "schedule:orders/nightly", `schedule "@every 1h" -> "@every 2h"`},
			{api.VerbScheduleDelete, `{"name":"nightly"}`, "schedule:orders/nightly", "deleted"},
			{api.VerbQueueDelete, `{"force":true}`, "queue:orders", "deleted"},
		} {
			if v.object == "" {
				require.Nil(t, h.askAs(billing, v.verb, "orders", v.body, nil))
				continue
			}
			t.Log(v.verb, v.body)
			require.Equal(t, api.Owner{Owner: "billing", Reason: "contract"}, h.control.Owner(v.object))
			for _, by := range []api.Sender{{Client: "b"}, {Client: "b", Owner: "mail"}} {
				err := h.askAs(by, v.verb, "orders", v.body, nil)
				require.NotNil(t, err)
				require.Equal(t, wire.CodeOwned, err.ErrCode)
				require.Contains(t, err.Description, `"`+v.object+`" belongs to "billing" (`+v.changes)
			}
			var reply struct{ Warnings []string }
			require.Nil(t, h.askAs(api.Sender{Client: "b", Force: true, Reason: "incident 7"}, v.verb, "orders", v.body, &reply))
			require.Len(t, reply.Warnings, 1)
			require.Contains(t, reply.Warnings[0], v.object+" belongs to billing: "+v.changes)
			log, err := h.control.ConfigLog(api.KeyListRequest{Prefix: v.object, Limit: 1})
			require.Nil(t, err)
			require.Equal(t, [2]string{"b", "incident 7"}, [2]string{log.Entries[0].Client, log.Entries[0].Reason})
		}
		require.Empty(t, h.control.Owner("queue:orders"), "it was deleted")
		require.Empty(t, h.control.Owner("schedule:orders/nightly"))
	})
}

// A request that is refused for another reason takes nothing.
func TestRefusedRequestsTakeNoOwner(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		billing := api.Sender{Owner: "billing"}
		require.NotNil(t, h.askAs(billing, api.VerbQueueCreate, "orders", `{"quantum":0}`, nil))
		require.Empty(t, h.control.Owner("queue:orders"))
		h.must(api.VerbQueueCreate, "orders", "", nil)
		require.NotNil(t, h.askAs(billing, api.VerbQueueCreate, "orders", `{"quantum":7}`, nil))
		require.NotNil(t, h.askAs(billing, api.VerbQueueUpdate, "orders", `{"quantum":0}`, nil))
		require.Empty(t, h.control.Owner("queue:orders"))
		require.NotNil(t, h.askAs(billing, api.VerbScheduleAdd, "orders", `{"name":"x","schedule":"never"}`, nil))
		require.Empty(t, h.control.Owner("schedule:orders/x"))

		require.Nil(t, h.askAs(billing, api.VerbQueueCreate, "orders", "", nil), "it adopts the queue that is there")
		require.Equal(t, "billing", h.control.Owner("queue:orders").Owner)
		h.must(api.VerbQueueUpdate, "orders", "{}", nil)
		h.must(api.VerbQueuePurge, "orders", "", nil)
	})
}
