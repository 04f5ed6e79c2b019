package admin

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
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
		h.must(api.VerbScheduleAdd, "orders", `{"name":"x","schedule":"@every 1h"}`, nil)
		require.NotNil(t, h.askAs(billing, api.VerbScheduleAdd, "orders", `{"name":"x","schedule":"never"}`, nil))
		require.Empty(t, h.control.Owner("schedule:orders/x"))

		require.Nil(t, h.askAs(billing, api.VerbQueueCreate, "orders", "", nil), "it adopts the queue that is there")
		require.Equal(t, "billing", h.control.Owner("queue:orders").Owner)
		h.must(api.VerbQueueUpdate, "orders", "{}", nil)
		h.must(api.VerbQueuePurge, "orders", "", nil)
	})
}

// A new queue or schedule belongs to its maker, also if an earlier one of its name had another owner.
func TestNewObjectsForgetOwners(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		record := func(object string) {
			h.must(api.VerbConfigSet, "owner:"+object, `{"value":"old"}`, nil)
			require.Equal(t, "old", h.control.Owner(object).Owner)
		}
		for _, owner := range []string{"billing", ""} {
			by := api.Sender{Client: "a", Owner: owner}
			record("queue:orders")
			record("schedule:orders/later")
			record("schedule:bills/later")
			require.Nil(t, h.askAs(by, api.VerbQueueCreate, "orders", "", nil))
			require.Equal(t, owner, h.control.Owner("queue:orders").Owner)
			require.Empty(t, h.control.Owner("schedule:orders/later"), "schedules of a new queue are new as well")
			require.Equal(t, "old", h.control.Owner("schedule:bills/later").Owner)

			record("schedule:orders/later")
			var info api.ScheduleInfo
			require.NotNil(t, h.askAs(by, api.VerbScheduleDelete, "orders", `{"name":"later"}`, nil))
			require.Nil(t, h.askAs(by, api.VerbScheduleAdd, "orders", `{"name":"later","schedule":"@every 1h"}`, &info))
			require.Empty(t, info.Warnings)
			require.Equal(t, owner, h.control.Owner("schedule:orders/later").Owner)

			record("schedule:orders/by-enqueue")
			headers := nats.Header{wire.HeaderSchedule: {"@every 1h"}, wire.HeaderScheduleTarget: {"orders"}, wire.HeaderScheduleName: {"by-enqueue"}}
			m := &nats.Msg{Subject: "fila.enqueue.orders", Reply: "confirm", Header: headers, Sub: &nats.Subscription{}}
			require.Nil(t, h.shards.Queue("orders").Accept(m))
			h.replied("confirm")
			require.Empty(t, h.control.Owner("schedule:orders/by-enqueue"))
			record("schedule:orders/by-enqueue")
			headers.Set(wire.HeaderSchedule, "@every 2h")
			err := h.shards.Queue("orders").Accept(m)
			require.NotNil(t, err, "an enqueue names no owner")
			require.Equal(t, wire.CodeOwned, err.ErrCode)
			require.Contains(t, err.Description, `"schedule:orders/by-enqueue" belongs to "old" (schedule "@every 1h" -> "@every 2h")`)

			require.Nil(t, h.askAs(by, api.VerbQueueDelete, "orders", "", nil))
			require.Empty(t, h.control.Owner("queue:orders"))
		}
	})
}

// A queue that a node cannot make, such as one whose shard it has handed over, keeps its owners.
func TestFailedCreationLeavesOwners(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		for _, object := range []string{"queue:orders", "schedule:orders/later"} {
			h.must(api.VerbConfigSet, "owner:"+object, `{"value":"billing"}`, nil)
		}
		h.shards.Drain()
		require.Equal(t, wire.CodeDraining, h.askAs(api.Sender{Owner: "billing"}, api.VerbQueueCreate, "orders", "", nil).ErrCode)
		require.Equal(t, "billing", h.control.Owner("queue:orders").Owner)
		require.Equal(t, "billing", h.control.Owner("schedule:orders/later").Owner)
	})
}

// A change of a queue that the configuration file has warns that it will end, unless it changes nothing.
func TestChangesOfQueuesOfTheFileWarn(t *testing.T) {
	withAdmin(t, func(c *config.Config) { c.Queues = []wire.QueueSettings{wire.DefaultQueueSettings("orders")} }, func(t *testing.T, h *rig) {
		for _, v := range []struct {
			verb     api.AnyVerb
			body     string
			warnings int
		}{
			{api.VerbQueueUpdate, `{"max_deliveries":5}`, 1},
			{api.VerbQueueUpdate, `{"max_deliveries":5}`, 0},
			{api.VerbHookSet, `{"hook":"on_enqueue","script":"function on_enqueue(msg) return {} end"}`, 1},
		} {
			var reply struct{ Warnings []string }
			h.must(v.verb, "orders", v.body, &reply)
			require.Len(t, reply.Warnings, v.warnings)
			if v.warnings > 0 {
				require.Contains(t, reply.Warnings[0], "the configuration file has queue orders")
			}
		}
		h.must(api.VerbQueueCreate, "bills", "", nil)
		var reply api.QueueReply
		h.must(api.VerbQueueUpdate, "bills", `{"max_deliveries":5}`, &reply)
		require.Empty(t, reply.Warnings)
	})
}
