package control

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func valueOf(r *rig, key string) string {
	value, _ := r.c.Get(key)
	return value
}

// Two owners cannot take each other's values by any verb. With force the change is made, and the
// reply, the log and the audit log name the owner and both values.
func TestOwnersOfValues(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		set := func(by Actor, key, value string) ([]string, *wire.Error) {
			reply, err := r.c.ConfigSet(by, key, api.ConfigSetRequest{Value: value})
			return reply.Warnings, err
		}
		edit := func(by Actor, key string, value *string) ([]string, *wire.Error) {
			reply, err := r.c.ConfigEdit(by, api.ConfigEditRequest{Set: map[string]*string{key: value}})
			return reply.Warnings, err
		}
		for _, v := range []struct {
			key, old, next, object, changes string
			change                          func(by Actor) ([]string, *wire.Error)
		}{
			{"throttle:a:rate", "40", "5", "throttle:a", "rate 40 -> 5", nil},
			{"throttle:b:rate", "40", "5", "throttle:b", "rate 40 -> 5", func(by Actor) ([]string, *wire.Error) {
				req := api.ThrottleSetRequest{Key: "b"}
				req.Rate = new(wire.Rate("5"))
				info, err := r.c.ThrottleSet(by, req)
				return info.Warnings, err
			}},
			{"throttle:c:rate", "40", "", "throttle:c", "rate 40 -> none", func(by Actor) ([]string, *wire.Error) {
				info, err := r.c.ThrottleClear(by, api.GateKeyRequest{Key: "c"})
				return info.Warnings, err
			}},
			{"circuit:a:threshold", "5", "7", "circuit:a", "threshold 5 -> 7", nil},
			{"weight:orders:a", "2", "3", "weight:orders:a", "value 2 -> 3", nil},
			{"feature:a", "on", "off", "feature:a", "value on -> off", nil},
			{"feature:b", "on", "", "feature:b", "value on -> none", func(by Actor) ([]string, *wire.Error) {
				reply, err := r.c.ConfigDelete(by, "feature:b")
				return reply.Warnings, err
			}},
			{"feature:c", "on", "", "feature:c", "value on -> none", func(by Actor) ([]string, *wire.Error) { return edit(by, "feature:c", nil) }},
			{"retry_policy:p", `{"max_retries":3}`, `{"max_retries":4}`, "retry_policy:p", "value", nil},
			{"error_rule:r", `{"code":"x"}`, `{"code":"y"}`, "error_rule:r", "value", nil},
			{"route_choice:c", `{"routes":[{"name":"a"}]}`, `{"routes":[{"name":"b"}]}`, "route_choice:c", "value", nil},
			{"guard:g", `{"with":["h"]}`, `{"with":["i"]}`, "guard:g", "value", nil},
			{"feature:d", "on", "", "feature:d", "owner billing -> mail", func(by Actor) ([]string, *wire.Error) { return set(by, "owner:feature:d", "mail") }},
		} {
			t.Log(v.key)
			change := v.change
			if change == nil {
				change = func(by Actor) ([]string, *wire.Error) { return set(by, v.key, v.next) }
			}
			billing := Actor{By: "config-set", Sender: api.Sender{Client: "a", Owner: "billing", Reason: "contract"}}
			_, err := set(billing, v.key, v.old)
			require.Nil(t, err)
			require.Equal(t, api.Owner{Owner: "billing", Reason: "contract"}, r.c.Owner(v.object))

			mail := Actor{By: "test", Sender: api.Sender{Client: "b", Owner: "mail"}}
			for _, by := range []Actor{mail, {By: "test", Sender: api.Sender{Client: "b"}}} {
				_, err = change(by)
				refused(t, wire.CodeOwned, err)
				require.Contains(t, err.Description, `"`+v.object+`" belongs to "billing" (`+v.changes)
				_, err = edit(by, v.key, new("never"))
				require.NotNil(t, err)
			}
			require.Equal(t, v.old, valueOf(r, v.key))

			mail.Force, mail.Reason = true, "incident 7"
			warnings, err := change(mail)
			require.Nil(t, err)
			require.Len(t, warnings, 1)
			require.Contains(t, warnings[0], v.object+" belongs to billing: "+v.changes)
			require.Contains(t, r.log.String(), strings.Trim(strconv.Quote(warnings[0]), `"`))
			if v.next != "" {
				require.Equal(t, v.next, valueOf(r, v.key))
				require.Equal(t, api.Owner{Owner: "mail", Reason: "incident 7"}, r.c.Owner(v.object))
				_, err = set(billing, v.key, v.old)
				refused(t, wire.CodeOwned, err)
			}
			log, err := r.c.ConfigLog(api.KeyListRequest{Limit: 2})
			require.Nil(t, err)
			e := log.Entries[0]
			require.Equal(t, [4]string{"b", "mail", "incident 7", "billing"}, [4]string{e.Client, e.Owner, e.Reason, e.OwnedBy})
		}
		for _, gone := range []string{"throttle:c", "feature:b", "feature:c"} {
			require.Empty(t, r.c.Owner(gone), "an object without values has no owner")
		}
	})
}

// A change that expects the present value passes, and names the owner all the same. Reading never
// needs an owner, and a change without one leaves it.
func TestOwnersAndExpectedValues(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		billing := Actor{By: "config-set", Sender: api.Sender{Client: "a", Owner: "billing"}}
		_, err := r.c.ConfigSet(billing, "throttle:a:rate", api.ConfigSetRequest{Value: "40"})
		require.Nil(t, err)
		other := Actor{By: "config-set", Sender: api.Sender{Client: "b"}}
		reply, err := r.c.ConfigSet(other, "throttle:a:rate", api.ConfigSetRequest{Value: "41", IfValue: new("40")})
		require.Nil(t, err)
		require.Equal(t, []string{"throttle:a belongs to billing: rate 40 -> 41"}, reply.Warnings)
		_, err = r.c.ConfigSet(other, "throttle:a:rate", api.ConfigSetRequest{Value: "42", IfValue: new("40")})
		refused(t, wire.CodeConfigMismatch, err)

		req := api.ThrottleSetRequest{Key: "a", If: &api.ThrottleLimits{Rate: new(wire.Rate("41"))}}
		req.Rate = new(wire.Rate("42"))
		info, err := r.c.ThrottleSet(other, req)
		require.Nil(t, err)
		require.Equal(t, []string{"throttle:a belongs to billing: rate 41 -> 42"}, info.Warnings)
		require.Equal(t, "billing", info.Owner)
		req.If = &api.ThrottleLimits{}
		_, err = r.c.ThrottleSet(other, req)
		require.Nil(t, err, "it changes nothing")
		req.Rate = new(wire.Rate("43"))
		_, err = r.c.ThrottleSet(other, req)
		refused(t, wire.CodeOwned, err)
		edited, err := r.c.ConfigEdit(other, api.ConfigEditRequest{
			Set: map[string]*string{"throttle:a:rate": new("43")}, If: map[string]*string{"owner:throttle:a": new("billing")}, DryRun: true,
		})
		require.Nil(t, err)
		require.Equal(t, []string{"throttle:a belongs to billing: rate 42 -> 43"}, edited.Warnings)

		override := api.ThrottleSetRequest{Key: "a", ForMs: 1000}
		override.Rate = new(wire.Rate("2"))
		info, err = r.c.ThrottleSet(other, override)
		require.Nil(t, err, "an override ends by itself")
		require.Contains(t, info.Warnings[0], "throttle:a belongs to billing: override none -> ")
		r.pass(2 * time.Second)

		r.restart(true, 0)
		_, err = r.c.ConfigSet(other, "throttle:a:rate", api.ConfigSetRequest{Value: "1"})
		refused(t, wire.CodeOwned, err)
		entry, err := r.c.ConfigGet("throttle:a:rate")
		require.Nil(t, err)
		require.Equal(t, api.ConfigEntry{Key: "throttle:a:rate", Value: "42", Owner: "billing"}, entry)
		reply, err = r.c.ConfigSet(other, "throttle:a:rate", api.ConfigSetRequest{Value: "42"})
		require.Nil(t, err, "it changes nothing")
		require.Empty(t, reply.Warnings)
		_, err = r.c.ConfigSet(other, "owner:throttle:a", api.ConfigSetRequest{Value: "two words"})
		refused(t, wire.CodeBadConfigValue, err)
	})
}

// Without an owner the client of the newest change stands for it: others are warned.
func TestClientsOfValues(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		set := func(client, value string) []string {
			reply, err := r.c.ConfigSet(Actor{By: "config-set", Sender: api.Sender{Client: client}}, "throttle:a:rate", api.ConfigSetRequest{Value: value})
			require.Nil(t, err)
			return reply.Warnings
		}
		require.Empty(t, set("billing-1", "40"))
		require.Empty(t, set("billing-1", "41"), "its own")
		require.Equal(t, []string{"throttle:a had been set by billing-1 at " + in(0) + "; changed now: rate 41 -> 5"}, set("mail-1", "5"))
		require.Contains(t, r.log.String(), "a value that another owner or client has set is changed")
	})
}

// The configuration file wins over every owner, and its lines and the audit log name the owner.
func TestFileAndOwners(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		file := config.Default()
		r.started(&file)
		billing := Actor{By: "config-set", Sender: api.Sender{Client: "a", Owner: "billing"}}
		_, err := r.c.ConfigSet(billing, "throttle:stripe:rate", api.ConfigSetRequest{Value: "40"})
		require.Nil(t, err)
		file.Throttles = []config.ThrottleTable{{Key: "stripe", Rate: "5"}}
		require.Contains(t, r.reloaded(), "throttle stripe: rate 40 -> 5 (it belongs to billing)")
		log, err := r.c.ConfigLog(api.KeyListRequest{Limit: 1})
		require.Nil(t, err)
		require.Equal(t, [2]string{byFile, "billing"}, [2]string{log.Entries[0].By, log.Entries[0].OwnedBy})

		_, err = r.c.ConfigSet(billing, "owner:queue:filed", api.ConfigSetRequest{Value: "billing"})
		require.Nil(t, err)
		file.Queues = []wire.QueueSettings{wire.DefaultQueueSettings("filed")}
		r.reloaded()
		require.Empty(t, r.c.Owner("queue:filed"), "it was the owner of an earlier queue")
		_, err = r.c.ConfigSet(billing, "owner:queue:filed", api.ConfigSetRequest{Value: "billing"})
		require.Nil(t, err)
		r.reloaded()
		require.Equal(t, "billing", r.c.Owner("queue:filed").Owner)
	})
}
