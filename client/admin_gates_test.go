package client

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func TestAdminGates(t *testing.T) {
	f, c := setup(t)
	stripe := api.ThrottleInfo{Key: "stripe", ThrottleLimits: api.ThrottleLimits{Rate: new(wire.Rate("0.5"))}, Source: "operator", State: "open"}
	circuit := api.CircuitInfo{Key: "stripe", State: "open", Cause: "by hand"}
	pause := api.PauseInfo{Kind: api.PauseKey, Queue: "orders", Name: "acme", By: "operator"}
	testRequests(t, f, []adminRequest{
		{"throttle set", "fila.admin.throttle-set.stripe", `{"rate":"0.5","concurrency":5,"unset":["burst"],"for_ms":600000,"if":{"rate":"10"}}`, stripe, func() (any, error) {
			return c.ThrottleSet(t.Context(), ThrottleChange{
				Key: "stripe", Rate: "0.5", Concurrency: 5,
				Unset: []string{"burst"}, For: 10 * time.Minute, If: &api.ThrottleLimits{Rate: new(wire.Rate("10"))},
			})
		}},
		{"throttle set of a key that no subject has", "fila.admin.throttle-set._", `{"key":"vendor.*","rate":"0.5"}`, stripe, func() (any, error) {
			return c.ThrottleSet(t.Context(), ThrottleChange{Key: "vendor.*", Rate: "0.5"})
		}},
		{"throttle clear", "fila.admin.throttle-clear.tenant:*", `{}`, stripe, func() (any, error) {
			return c.ThrottleClear(t.Context(), "tenant:*")
		}},
		{"throttle show", "fila.admin.throttle-show._", `{"key":"two words"}`, stripe, func() (any, error) {
			return c.ThrottleShow(t.Context(), "two words")
		}},
		{"circuit show", "fila.admin.circuit-show.stripe", `{}`, circuit, func() (any, error) { return c.CircuitShow(t.Context(), "stripe") }},
		{"circuit open", "fila.admin.circuit-open.stripe", `{"for_ms":300000}`, circuit, func() (any, error) {
			return c.CircuitOpen(t.Context(), "stripe", 300_000)
		}},
		{"circuit close", "fila.admin.circuit-close._", `{"key":"_"}`, circuit, func() (any, error) { return c.CircuitClose(t.Context(), "_") }},
		{"circuit reset", "fila.admin.circuit-reset.stripe", `{}`, circuit, func() (any, error) { return c.CircuitReset(t.Context(), "stripe") }},
		{"pause", "fila.admin.pause", `{"kind":"key","queue":"orders","name":"acme","until":"2030-01-02T15:04:05Z"}`, pause, func() (any, error) {
			return c.Pause(t.Context(), api.PauseRequest{Kind: api.PauseKey, Queue: "orders", Name: "acme", Until: "2030-01-02T15:04:05Z"})
		}},
		{"resume", "fila.admin.resume", `{"kind":"queue","name":"orders"}`, pause, func() (any, error) {
			return c.Resume(t.Context(), api.PauseRequest{Kind: api.PauseQueue, Name: "orders"})
		}},
		{"throttles", "fila.admin.throttle-list", `{"prefix":"tenant:","limit":1000}`, api.ThrottleList{Total: 1, Throttles: []api.ThrottleInfo{stripe}}, func() (any, error) {
			all, err := c.ThrottleList(t.Context(), "tenant:")
			return api.ThrottleList{Total: len(all), Throttles: all}, err
		}},
		{"circuits", "fila.admin.circuit-list", `{"prefix":"a","limit":1000}`, api.CircuitList{Total: 1, Circuits: []api.CircuitInfo{circuit}}, func() (any, error) {
			all, err := c.CircuitList(t.Context(), "a")
			return api.CircuitList{Total: len(all), Circuits: all}, err
		}},
		{"pauses", "fila.admin.pause-list", `{"limit":1000}`, api.PauseList{Pauses: []api.PauseInfo{}}, func() (any, error) {
			all, err := c.Pauses(t.Context())
			return api.PauseList{Total: len(all), Pauses: all}, err
		}},
		{"reload", "fila.admin.reload", `{}`, api.ReloadReply{Changes: []string{"error_rule slow is new"}}, func() (any, error) {
			return c.Reload(t.Context())
		}},
		{"cluster status", "fila.admin.cluster-status", "", api.ClusterStatus{Name: "prod", Nodes: []api.ClusterNode{}, Shards: []api.ClusterShard{}}, func() (any, error) {
			return c.ClusterStatus(t.Context())
		}},
		{"cluster drain", "fila.admin.cluster-drain", `{"node":"b"}`, api.ClusterDrainReply{Node: "b", Draining: true, Shards: 3}, func() (any, error) {
			return c.ClusterDrain(t.Context(), "b", false)
		}},
		{"cluster move", "fila.admin.cluster-move", `{"shard":0,"node":"b"}`, api.ClusterMoveReply{From: "a", To: "b"}, func() (any, error) {
			return c.ClusterMove(t.Context(), 0, "b")
		}},
		{"cluster verify", "fila.admin.cluster-verify", `{"shard":0}`, api.ClusterVerifyReply{Node: "a", Shards: []api.ClusterVerifyShard{}}, func() (any, error) {
			return c.ClusterVerify(t.Context(), 0)
		}},
		{"cluster verify of all", "fila.admin.cluster-verify", `{}`, api.ClusterVerifyReply{Node: "a", Shards: []api.ClusterVerifyShard{}}, func() (any, error) {
			return c.ClusterVerify(t.Context(), -1)
		}},
		{"cluster repair", "fila.admin.cluster-repair", `{"shard":0,"dry_run":true}`, api.ClusterLoss{Node: "b", Records: 3}, func() (any, error) {
			return c.ClusterRepair(t.Context(), 0, 0, true)
		}},
		{"cluster accept", "fila.admin.cluster-accept", `{"shard":0,"loss":3}`, api.ClusterLoss{Node: "b", Records: 3, Unreachable: 3}, func() (any, error) {
			return c.ClusterAccept(t.Context(), 0, 3, false)
		}},
		{"permits", "fila.admin.guard-permits", `{"key":"v","caller":"","limit":100}`, api.GuardPermitList{Total: 1, Permits: []api.GuardPermit{{ID: "x"}}}, func() (any, error) {
			return c.GuardPermits(t.Context(), api.GuardPermitsRequest{PermitFilter: api.PermitFilter{Key: "v", Caller: new(string)}})
		}},
		{"end permits", "fila.admin.guard-end", `{"user":"A/bob","ids":["x"]}`, api.GuardEndReply{Ended: 1}, func() (any, error) {
			return c.GuardEnd(t.Context(), api.GuardEndRequest{PermitFilter: api.PermitFilter{User: "A/bob"}, IDs: []string{"x"}})
		}},
		{"explain message", "fila.admin.explain", `{"kind":"message","id":"x"}`, api.ExplainMessage{ID: "x", State: "parked"}, func() (any, error) {
			return c.ExplainMessage(t.Context(), "", "x")
		}},
		{"explain key", "fila.admin.explain", `{"kind":"key","queue":"orders","key":"two words"}`, api.ExplainKey{Queue: "orders"}, func() (any, error) {
			return c.ExplainKey(t.Context(), "orders", "two words")
		}},
		{"explain queue", "fila.admin.explain", `{"kind":"queue","queue":"orders"}`, api.ExplainQueue{Queue: "orders", Credit: 4}, func() (any, error) {
			return c.ExplainQueue(t.Context(), "orders")
		}},
	})
}

// A key that JSON would change on its way must not reach another gate.
func TestGateKeysAreChecked(t *testing.T) {
	_, c := setup(t)
	for _, key := range []string{"", "a\xff", strings.Repeat("k", wire.MaxKeyBytes+1)} {
		for name, call := range map[string]func() error{
			"set":  func() error { _, err := c.ThrottleSet(t.Context(), ThrottleChange{Key: key}); return err },
			"show": func() error { _, err := c.ThrottleShow(t.Context(), key); return err },
			"open": func() error { _, err := c.CircuitOpen(t.Context(), key, 0); return err },
			"pause": func() error {
				_, err := c.Pause(t.Context(), api.PauseRequest{Kind: api.PauseKey, Name: key})
				return err
			},
			"permits": func() error {
				_, err := c.GuardPermits(t.Context(), api.GuardPermitsRequest{PermitFilter: api.PermitFilter{Key: cmp.Or(key, "a\xff")}})
				return err
			},
			"explain": func() error { _, err := c.ExplainKey(t.Context(), "q", key); return err },
		} {
			refused := refusal(t, call(), name)
			require.Equal(t, wire.CodeBadField, refused.ErrCode)
			require.Contains(t, refused.Description, "allowed are 1 to 256 bytes of UTF-8")
		}
	}
}

// New entries move the others to later places while the client reads the log; no entry is
// returned twice.
func TestConfigLogPages(t *testing.T) {
	f, c := setup(t)
	newest := 2500
	f.handle("fila.admin.config-log", func(msg *nats.Msg) {
		var request api.KeyListRequest
		require.NoError(t, json.Unmarshal(msg.Data, &request))
		require.Equal(t, "throttle:", request.Prefix)
		log := api.ConfigLog{Total: newest}
		for i := request.Offset; i < min(request.Offset+request.Limit, newest); i++ {
			log.Entries = append(log.Entries, api.ConfigLogEntry{Seq: uint64(newest - i)})
		}
		newest += 3
		f.reply(msg, log)
	})
	for limit, want := range map[int]int{0: 2500, 5: 5, 1000: 1000, 1500: 1500} {
		newest = 2500
		log, err := c.ConfigLogPage(t.Context(), "throttle:", limit)
		require.NoError(t, err)
		require.Equal(t, 2500, log.Total)
		entries := log.Entries
		require.Len(t, entries, want)
		for i, entry := range entries {
			require.EqualValues(t, 2500-i, entry.Seq)
		}
	}
}
