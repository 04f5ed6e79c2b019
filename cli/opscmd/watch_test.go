package opscmd

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire"
)

var program = clitest.Program(Commands)

func TestEventSentences(t *testing.T) {
	noon := func() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) }
	w := watcher{env: &command.Env{Clock: noon}}
	seen := map[string]bool{}
	for _, tc := range []struct{ event, want string }{
		{`{"type":"queue-created","queue":"orders"}`, "queue orders was created"},
		{`{"type":"queue-updated","queue":"orders"}`, "the settings of queue orders changed"},
		{`{"type":"queue-deleted","queue":"orders","data":{"messages":7}}`, "queue orders was deleted, with messages: 7"},
		{`{"type":"config-changed","key":"a","data":{"value":"1","previous":null}}`, "a is 1"},
		{`{"type":"config-changed","key":"a","data":{"value":"2","previous":"1"}}`, "a is 2; it was 1"},
		{`{"type":"config-changed","key":"a","data":{"value":null,"previous":"2"}}`, "a was deleted; it was 2"},
		{
			`{"type":"refused","queue":"orders","data":{"code":429,"err_code":10429,"description":"full","not_reported":3}}`,
			"a message without reply subject was refused by queue orders: full [err_code 10429]; earlier refusals that were not reported: 3",
		},
		{
			`{"type":"dead-lettered","queue":"orders","data":{"id":"x","reason":"max_deliveries","error":"no\u001b[2J money","attempts":5}}`,
			"message x of queue orders was dead-lettered (max_deliveries), attempts: 5; last error: no?[2J money",
		},
		{`{"type":"redriven","queue":"orders","data":{"redriven":2}}`, "messages redriven from orders.dlq to orders: 2"},
		{
			`{"type":"circuit-changed","key":"stripe","data":{"old":"closed","new":"open","cause":"failures","consecutive_failures":10,"until":"2026-01-02T12:05:00Z"}}`,
			"circuit stripe changed from closed to open (failures), failures in a row: 10, until 2026-01-02T12:05:00Z (in 5m)",
		},
		{
			`{"type":"hook-circuit-changed","queue":"orders","data":{"hook":"on_enqueue","old":"open","new":"closed","consecutive_failures":0}}`,
			"the circuit of on_enqueue of queue orders changed from open to closed",
		},
		{`{"type":"consumer-joined","queue":"orders","data":{"consumer":"w","max_in_flight":64}}`, "consumer w joined queue orders, up to 64 in flight"},
		{
			`{"type":"consumer-lost","queue":"orders","data":{"consumer":"w","reason":"no responders","in_flight":2}}`,
			"consumer w of queue orders is lost (no responders), in flight: 2",
		},
		{`{"type":"flow-noisy","queue":"orders","key":"acme","data":{"began":true,"noisy_flows":1,"in_flight":60}}`, "key acme of queue orders is noisy, in flight: 60"},
		{`{"type":"flow-noisy","queue":"orders","key":"acme","data":{"began":false,"noisy_flows":0}}`, "key acme of queue orders is no longer noisy"},
		{
			`{"type":"flow-starved","queue":"orders","key":"globex","data":{"began":true,"starved_flows":1,"wait_ms":61000}}`,
			"key globex of queue orders starves: only others were delivered for 1m1s",
		},
		{`{"type":"flow-starved","queue":"orders","key":"globex","data":{"began":false,"starved_flows":0}}`, "key globex of queue orders no longer starves"},
		{`{"type":"paused","queue":"orders","data":{"kind":"queue","by":"operator"}}`, "queue orders is paused (operator)"},
		{
			`{"type":"paused","queue":"orders","key":"acme","data":{"kind":"key","by":"operator","until":"2026-01-02T13:00:00Z"}}`,
			"key acme of queue orders is paused (operator), until 2026-01-02T13:00:00Z (in 1h)",
		},
		{`{"type":"resumed","key":"stripe","data":{"kind":"throttle","by":"time"}}`, "throttle stripe is resumed (time)"},
		{`{"type":"throttle-cut","key":"llm","data":{"of":"concurrency","old":24,"new":16.8,"cause":"429 of message m","at":"2026-01-02T12:00:00Z","cuts":1}}`, "the concurrency of throttle llm was cut from 24 to 16.8 by 429 of message m"},
		{`{"type":"consumer-left","queue":"orders","data":{"consumer":"w-1","in_flight":3}}`, "consumer w-1 left queue orders, in flight: 3"},
		{`{"type":"budget-warning","key":"tenant:a","data":{"part":0.8,"used":812,"budget":1000,"ends_at":"2026-02-01T00:00:00Z"}}`, "812 of 1000 of the budget of tenant:a are used (warn_at 0.8); it begins again at 2026-02-01T00:00:00Z"},
		{`{"type":"held","key":"stripe","data":{"kind":"circuit","failures":3,"until":"closed"}}`, "circuit stripe is blocked after 3 failures, until closed"},
		{`{"type":"held","queue":"orders","key":"acme","data":{"kind":"key","by":"max_failures"}}`, "key acme of queue orders is blocked after too many failures"},
		{
			`{"type":"failure-critical","queue":"orders","key":"acme","data":{"id":"x","error":"boom","error_code":"E1","rule":"r","attempts":2}}`,
			"message x of key acme in queue orders failed, attempt 2: [E1] boom (rule r)",
		},
		{
			`{"type":"failure-high","queue":"orders","key":"acme","data":{"id":"x","route":"openai","error":"boom","rule":"r","attempts":1}}`,
			"message x of key acme in queue orders failed, attempt 1 by route openai: boom (rule r)",
		},
		{
			`{"type":"failure-critical","key":"vendor:x","data":{"kind":"call","caller":"web","error":"boom","error_code":"401","rule":"r","attempts":1}}`,
			"a call of vendor:x by web failed, attempt 1: [401] boom (rule r)",
		},
		{
			`{"type":"failure-high","key":"vendor:x","data":{"kind":"call","caller":"","error":"boom","error_code":"","rule":"r","attempts":1}}`,
			"a call of vendor:x failed, attempt 1: boom (rule r)",
		},
		{`{"type":"rules-reloaded","data":{"changes":["a","b"]}}`, "the configuration file was reloaded, changes: 2: a; b"},
		{`{"type":"disk-low","data":{"free_bytes":5,"min_free_bytes":10}}`, "messages are refused: the disk of fila has 5 bytes free, below 10"},
		{`{"type":"disk-recovered","data":{"free_bytes":15,"min_free_bytes":10}}`, "messages are accepted again: the disk of fila has 15 bytes free"},
		{`{"type":"client-cut","data":{"reason":"deadline","user":"worker","client":"w-1","address":"10.0.0.7:51234"}}`, "the embedded NATS server disconnected client w-1 (user worker) at 10.0.0.7:51234: it read nothing for too long"},
		{`{"type":"shared-degraded","data":{"error":"timeout"}}`, "the bucket of shared circuits and limits is unreachable, each fila decides alone: timeout"},
		{
			`{"type":"shared-conflict","key":"vendor:x","data":{"kind":"throttle","by":"eu","limits":"5 in flight","own":"none"}}`,
			"fila eu set the limits of the shared throttle vendor:x later: its limits (5 in flight) are in force here, instead of none",
		},
		{
			`{"type":"shared-conflict","key":"stripe","data":{"kind":"circuit","by":"eu","limits":"threshold 5","own":"threshold 3"}}`,
			"fila eu set the limits of the shared circuit stripe later: its limits (threshold 5) are in force here, instead of threshold 3",
		},
		{`{"type":"shared-recovered","data":{}}`, "circuits and limits are shared again"},
		{`{"type":"owner-changed","data":{"shard":3,"owner":"b","epoch":2,"previous":"a","planned":true}}`, "shard 3 was handed over to node b, epoch 2; previous owner: a"},
		{`{"type":"owner-changed","data":{"shard":3,"owner":"b","epoch":2,"previous":"a","planned":false}}`, "shard 3 was taken over by node b, epoch 2; previous owner: a"},
		{`{"type":"fenced","data":{"shard":3,"node":"a","epoch":2}}`, "node a cannot write the log of shard 3 and neither delivers nor answers"},
		{`{"type":"log-lost","data":{"shard":3,"node":"a","has":"b","seq":120,"log_end":100}}`, "the log of shard 3 lacks confirmed messages: it ends at record 100, and node b has record 120"},
		{`{"type":"log-damaged","data":{"shard":3,"node":"a","problem":"record 7: checksum does not match"}}`, "a replica of the log of shard 3 is damaged, as read by node a: record 7: checksum does not match"},
		{`{"type":"member-joined","data":{"node":"b","version":"v1"}}`, "node b (v1) has joined the cluster"},
		{`{"type":"member-left","data":{"node":"b","version":"v1"}}`, "node b has left the cluster"},
		{`{"type":"job-created","queue":"a.dlq","data":{"job":"J","op":"redrive","matched":0,"done":0}}`, "job J (redrive) of queue a.dlq: created, 0 of 0 done"},
		{`{"type":"job-paused","queue":"a.dlq","data":{"job":"J","op":"redrive","matched":9,"done":4,"why":"full"}}`, "job J (redrive) of queue a.dlq: paused, 4 of 9 done; full"},
		{`{"type":"job-resumed","queue":"a","data":{"job":"J","op":"move","matched":9,"done":4}}`, "job J (move) of queue a: resumed, 4 of 9 done"},
		{`{"type":"job-done","queue":"a","data":{"job":"J","op":"move","matched":9,"done":9}}`, "job J (move) of queue a: done, 9 of 9 done"},
		{`{"type":"job-canceled","queue":"a","data":{"job":"J","op":"move","matched":9,"done":4}}`, "job J (move) of queue a: canceled, 4 of 9 done"},
		{`{"type":"schedule-created","queue":"a","data":{"schedule":"n","text":"@daily"}}`, "schedule n of queue a: created (@daily)"},
		{`{"type":"schedule-replaced","queue":"a","data":{"schedule":"n","text":"@daily"}}`, "schedule n of queue a: replaced (@daily)"},
		{`{"type":"schedule-deleted","queue":"a","data":{"schedule":"n","text":"@daily"}}`, "schedule n of queue a: deleted (@daily)"},
		{`{"type":"schedule-paused","queue":"a","data":{"schedule":"n","text":"@daily"}}`, "schedule n of queue a: paused (@daily)"},
		{`{"type":"schedule-resumed","queue":"a","data":{"schedule":"n","text":"@daily"}}`, "schedule n of queue a: resumed (@daily)"},
		{`{"type":"schedule-ended","queue":"a","data":{"schedule":"n","text":"@at x"}}`, "schedule n of queue a: ended (@at x)"},
		{`{"type":"schedule-missed","queue":"a","data":{"schedule":"n","text":"@daily","missed":3}}`, "schedule n of queue a: missed, runs: 3 (@daily)"},
		{`{"type":"schedule-refused","queue":"a","data":{"schedule":"n","text":"@daily","err_code":1,"description":"it is full"}}`, "schedule n of queue a: refused, it is full (@daily)"},
		{`{"type":"something-new","queue":"orders","data":{"a":1}}`, `orders {"a":1}`},
		{`{"type":"config-changed"}`, " was deleted"},
	} {
		var e wire.Event
		require.NoError(t, json.Unmarshal([]byte(tc.event), &e))
		seen[e.Type] = true
		e.Time = "2026-01-02T12:00:00.123456789Z"
		require.Equal(t, "2026-01-02T12:00:00.123Z  "+(e.Type + strings.Repeat(" ", 20))[:20]+"  "+tc.want, w.line(e))
	}
	for _, typ := range eventTypes() {
		require.True(t, seen[typ], "%s has its sentence", typ)
	}
}

// TestWatchKnowsAllEvents: only listed events can be selected.
func TestWatchKnowsAllEvents(t *testing.T) {
	files, err := filepath.Glob("../../wire/*.go")
	require.NoError(t, err)
	var all []string
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile(`(?m)^\s+Event[A-Z]\w* += "([a-z-]+)"`).FindAllSubmatch(source, -1) {
			all = append(all, string(found[1]))
		}
	}
	require.ElementsMatch(t, all, eventTypes())
}

func TestWatch(t *testing.T) {
	f := clitest.StartFake(t)
	events := []string{
		`{"type":"queue-created","time":"2026-01-02T12:00:00Z","queue":"other"}`,
		`no event`,
		`{"type":"queue-created","time":"2026-01-02T12:00:00Z","queue":"orders"}`,
		`{"type":"paused","time":"2026-01-02T12:00:00Z","queue":"orders","data":{"kind":"queue","by":"operator"}}`,
	}
	for _, tc := range []struct{ args, want string }{
		{"--count 1", "2026-01-02T12:00:00.000Z  queue-created         queue other was created\n"},
		{"--count 1 --queue orders", "2026-01-02T12:00:00.000Z  queue-created         queue orders was created\n"},
		{"--count 1 --type paused,resumed", "2026-01-02T12:00:00.000Z  paused                queue orders is paused (operator)\n"},
		{"--count 2 --queue orders --json", events[2] + "\n" + events[3] + "\n"},
	} {
		done := make(chan clitest.Result)
		go func() { done <- program.Run(t, "", append([]string{"watch"}, strings.Fields(tc.args)...)...) }()
		var r clitest.Result
		require.Eventually(t, func() bool { // there is no telling when it listens
			for _, e := range events {
				require.NoError(t, f.NC.Publish("fila.event.x.y", []byte(e)))
			}
			require.NoError(t, f.NC.Flush())
			select {
			case r = <-done:
				return true
			default:
				return false
			}
		}, 20*time.Second, 10*time.Millisecond, tc.args)
		require.Equal(t, command.ExitOK, r.Code, r.Err)
		if !strings.Contains(tc.args, "json") {
			require.Equal(t, tc.want, r.Out)
		} else {
			require.Equal(t, 2, strings.Count(r.Out, "\n"))
			require.True(t, json.Valid([]byte(strings.SplitN(r.Out, "\n", 2)[0])))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, command.ExitOK, program.RunEnv(t, ctx, &command.Env{}, "", "watch").Code)
	for _, args := range []string{"--type nosuch", "--count -1", "extra"} {
		require.Equal(t, command.ExitUsage, program.Run(t, "", append([]string{"watch"}, strings.Fields(args)...)...).Code)
	}
}

func TestWatchSaysWhenItMayNot(t *testing.T) {
	clitest.Isolate(t)
	srv := clitest.StartNATS(t, func(o *server.Options) {
		o.Users = guests("fila.event.>")
	})
	t.Setenv("NATS_URL", srv.ClientURL())
	r := program.Run(t, "", "watch", "--user", "guest", "--password", "guest")
	require.Equal(t, command.ExitDenied, r.Code)
	require.Contains(t, strings.ToLower(r.Err), "permissions violation")
}

// guests returns the user guest, with password guest, who may not subscribe to one subject.
func guests(denied string) []*server.User {
	return []*server.User{{Username: "guest", Password: "guest", Permissions: &server.Permissions{
		Subscribe: &server.SubjectPermission{Deny: []string{denied}},
	}}}
}
