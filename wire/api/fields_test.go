package api

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// TestFieldsOfReplies: the fields are public, because clients of any language read them by name.
// A question mark is a field that may be missing.
func TestFieldsOfReplies(t *testing.T) {
	for of, want := range map[reflect.Type]string{
		reflect.TypeFor[wire.EnqueueReply](): "id queue duplicate? schedule? replaced? unchanged? next?",
		reflect.TypeFor[wire.ConsumeReply](): "deliver max_in_flight visibility_timeout_ms left?",
		reflect.TypeFor[wire.Event]():        "type time queue? key? data?",
		reflect.TypeFor[QueueDeleteReply]():  "deleted warnings?",
		reflect.TypeFor[QueueList]():         "total queues next? missing_shards?",
		reflect.TypeFor[ConfigSetReply]():    "key value previous warnings?",
		reflect.TypeFor[ConfigEntry]():       "key value owner? reason? warnings?",
		reflect.TypeFor[ConfigList]():        "total entries next?",
		reflect.TypeFor[RedriveReply]():      "redriven job",
		reflect.TypeFor[HookResetReply]():    "queue hooks",
		reflect.TypeFor[HookReply]():         "queue hook HookVersion before? warnings?",
		reflect.TypeFor[HookVersion]():       "script client? at? reason?",
		reflect.TypeFor[HookInfo]():          "hook state runs failures bypassed warnings consecutive_failures last_error?",
		reflect.TypeFor[QueueSummary]():      "name pending ready blocked parked delayed in_flight moving? consumers bytes oldest_age_ms dlq? shard? owner? detail?",
		reflect.TypeFor[QueueDetail]():       "at_ms enqueued delivered acked failed expired terminated dead_lettered refused waits ended max_wait_ms tenants? noisy_flows quiet_ready quiet_pending quiet_oldest_age_ms starved_flows",
		reflect.TypeFor[QueueInfo]():         "QueueSummary settings sources quantum flows wanted busy_ms noisy_flows? starved_flows? consumer_list departures? top_flows hooks counters more_flows? more_consumers?",
		reflect.TypeFor[ConsumerInfo]():      "name max_in_flight in_flight credit fetch headers? batch? expires_at?",
		reflect.TypeFor[FlowInfo]():          "key weight deficit ready pending share in_flight busy_share",
		reflect.TypeFor[ThrottleLimits]():    "rate? burst? concurrency? limit? window_ms? adapt? level? budget? period? zone? warn_at? on_empty?",
		reflect.TypeFor[ThrottleInfo]():      "key ThrottleLimits source sources? override_until? owner? warnings? paused_until? admits state admits_at? opens_at? tokens in_window in_flight waiting waiting_messages? admitted blocked unused? change? waiting_keys? waiting_queues? spending? shared? learned?",
		reflect.TypeFor[WaitingQueue]():      "queue messages flows",
		reflect.TypeFor[ThrottleShared]():    "degraded? alone? users? tokens in_window own? by? changed_at?",
		reflect.TypeFor[ThrottleList]():      "total throttles next?",
		reflect.TypeFor[CircuitInfo]():       "key state consecutive_failures open_until? cause? opened_by_client? probes threshold cooldown_ms half_open_max_calls half_open_successes source? sources? max_failures failure_window_ms failure_hold_ms waiting waiting_messages? waiting_queues? openings? last_failure? history? shared? degraded? probes_by? opened_by? by? changed_at? version? own? limits_by? limits_changed_at?",
		reflect.TypeFor[CircuitList]():       "total circuits next?",
		reflect.TypeFor[PauseInfo]():         "kind queue? name since until? by client?",
		reflect.TypeFor[PauseList]():         "total pauses next?",
		reflect.TypeFor[ConfigLog]():         "total entries next?",
		reflect.TypeFor[Source]():            "by client? owner? reason? at?",
		reflect.TypeFor[Mark]():              "at kind object? text by? client? count? undo? changed_again?",
		reflect.TypeFor[Marks]():             "total marks",
		reflect.TypeFor[ReloadReply]():       "dry_run? changes nodes? not_reloaded?",
		reflect.TypeFor[GateState]():         "kind gate admits admits_at? limits? set_by? in_use? dead_letters? open opens_at?",
		reflect.TypeFor[BlockedCount]():      "GateState messages flows",
		reflect.TypeFor[ExplainMessage]():    "id state queue? key? attempt? enqueued_at? ready_at? consumer? lease_until? reason gates? routes? route? blocked_by? blocked_since? ahead estimate? history?",
		reflect.TypeFor[ExplainKey]():        "queue key pending ready blocked parked in_flight delayed moving? weight weight_by? deficit active share paused? blocked_by reason",
		reflect.TypeFor[ExplainQueue]():      "queue pending ready blocked parked delayed in_flight moving? consumers credit paused? blocked_by reason",
	} {
		var got []string
		for f := range of.Fields() {
			name := f.Name // of an embedded struct, whose fields stand beside the others
			if !f.Anonymous {
				name = strings.ReplaceAll(f.Tag.Get("json"), ",omitempty", "?")
			}
			got = append(got, name)
		}
		require.Equal(t, want, strings.Join(got, " "), "%v", of)
	}
}
