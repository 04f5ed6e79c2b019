package messagecmd

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func peekedMessages() []api.PeekedMessage {
	text, lines, gate := `{"id": 1}`, strings.Repeat("long ", 20), "half\x1b[2J"
	return []api.PeekedMessage{
		{ID: "1", Key: "acme", State: "ready", WaitsFor: "consumer", Attempt: 1, Priority: 9, EnqueuedAt: "2026-01-02T11:59:00Z", Headers: map[string][]string{}, PayloadBytes: 9, Payload: &text},
		{
			ID: "2", Key: "a\x1bb", State: "blocked", Attempt: 2, EnqueuedAt: "2026-01-02T11:59:30Z", PayloadBytes: 100, Payload: &lines,
			BlockedBy: &api.GateState{Kind: "rate", Gate: "throttle:stripe", AdmitsAt: "2026-01-02T12:00:01.5Z"},
			Headers:   map[string][]string{"tenant": {"acme"}, "a": {"1", "2"}}, HeadersCut: true, PayloadCut: true,
		},
		{ID: "3", Key: "k", State: "delayed", Attempt: 1, EnqueuedAt: "2026-01-02T11:59:59Z", ReadyAt: "2026-01-02T12:10:00Z", ExpiresAt: "2026-01-02T13:00:00Z", PayloadBase64: []byte("\xff\x00")},
		{ID: "4", Key: "k", State: "leased", Attempt: 1, EnqueuedAt: "2026-01-02T11:59:59Z", Consumer: "w", LeaseUntil: "2026-01-02T12:00:20Z", Payload: &gate},
		{ID: "5", Key: "k", State: "dead", Attempt: 1, EnqueuedAt: "2026-01-02T11:59:59Z", Unreadable: "broken", Dead: &api.DeadInfo{Reason: "max_deliveries", Error: "no money", ErrorCode: "402"}},
	}
}

func TestPeek(t *testing.T) {
	f := clitest.StartFake(t)
	clitest.Shows(f, program, "peek orders", "fila.admin.peek.orders", api.PeekReply{Queue: "orders", Messages: peekedMessages()},
		"ID  KEY   STATE    ATTEMPT  AGE  WAITS FOR                                  PAYLOAD",
		`1   acme  ready    1        1m   a consumer                                 {"id": 1}`,
		"2   a?b   blocked  2        30s  throttle:stripe (rate), may go in 1.5s     "+strings.Repeat("long ", 11)+"long~",
		"3   k     delayed  1        1s   the end of its delay, in 10m               base64:/wA=",
		"4   k     leased   1        1s   consumer w, lease ends in 20s              base64:aGFsZhtbMko=",
		"5   k     dead     1        1s   a redrive: max_deliveries [402]: no money  (unreadable: broken)",
	)
	require.JSONEq(t, `{"limit":10,"payload_bytes":1024}`, string(f.Next().Data))

	r := program.RunAt(t, "peek", "orders", "-v")
	require.Equal(t, clitest.Lines(
		"1  ready, key acme, attempt 1, enqueued 2026-01-02T11:59:00Z (1m ago), priority 9, waits for a consumer", "", `{"id": 1}`, "",
		"2  blocked, key a?b, attempt 2, enqueued 2026-01-02T11:59:30Z (30s ago), waits for throttle:stripe (rate), may go in 1.5s",
		"a: 1", "a: 2", "tenant: acme", "(more headers)", "", strings.Repeat("long ", 20), "(the first 100 of 100 bytes)", "",
		"3  delayed, key k, attempt 1, enqueued 2026-01-02T11:59:59Z (1s ago), waits for the end of its delay, in 10m, expires in 1h", "", "base64:/wA=", "",
		"4  leased, key k, attempt 1, enqueued 2026-01-02T11:59:59Z (1s ago), waits for consumer w, lease ends in 20s", "", "base64:aGFsZhtbMko=", "",
		"5  dead, key k, attempt 1, enqueued 2026-01-02T11:59:59Z (1s ago), waits for a redrive: max_deliveries [402]: no money", "", "(unreadable: broken)",
	), r.Out)
}

// For dead letters peek shows the attempts and the time since their death.
func TestPeekDeadLetters(t *testing.T) {
	f := clitest.StartFake(t)
	text := "x"
	dead := api.PeekedMessage{ID: "1", Key: "acme", State: "dead", Attempt: 1, EnqueuedAt: "2026-01-02T11:00:00Z", Payload: &text, Dead: &api.DeadInfo{
		Reason: "max_deliveries", Error: "no money", At: "2026-01-02T11:58:30Z", Attempts: 20, SourceQueue: "orders",
	}}
	lost, taken := dead, dead
	lost.ID, lost.Dead = "2", &api.DeadInfo{Reason: "unknown", Error: "it cannot be read"}
	taken.ID, taken.State, taken.Consumer, taken.LeaseUntil = "3", "leased", "w", "2026-01-02T12:00:20Z"
	clitest.Shows(f, program, "peek orders.dlq", "fila.admin.peek.orders.dlq", api.PeekReply{Queue: "orders.dlq", Messages: []api.PeekedMessage{dead, lost, taken}},
		"ID  KEY   STATE   ATTEMPTS  AGE  DEAD FOR  WAITS FOR                              PAYLOAD",
		"1   acme  dead    20        1h   1m30s     a redrive: max_deliveries: no money    x",
		"2   acme  dead    -         1h   -         a redrive: unknown: it cannot be read  x",
		"3   acme  leased  20        1h   1m30s     consumer w, lease ends in 20s          x",
	)
	r := program.RunAt(t, "peek", "orders.dlq", "-v", "--limit", "1")
	require.Contains(t, r.Out, "1  dead, key acme, 20 attempts, enqueued 2026-01-02T11:00:00Z (1h ago), dead since 2026-01-02T11:58:30Z (1m30s ago), waits for a redrive: max_deliveries: no money\n")
}

func TestPeekPages(t *testing.T) {
	f := clitest.StartFake(t)
	after := map[uint64]api.PeekReply{
		0: {Messages: peekedMessages()[:2], Next: 7},
		7: {Next: 9},
		9: {Messages: peekedMessages()[2:4], Next: 12},
	}
	f.Handle("fila.admin.peek.orders", func(msg *nats.Msg) any {
		req, bad := api.VerbPeek.Parse("", msg.Data)
		require.Nil(t, bad)
		require.Equal(t, []string{"acme"}, req.Filter.Keys)
		reply := after[req.After]
		reply.Messages = append([]api.PeekedMessage{}, reply.Messages[:min(len(reply.Messages), req.Limit)]...)
		return reply
	})
	reply := clitest.JSON[api.PeekReply](t, program.Run(t, "", "peek", "orders", "--key", "acme", "--limit", "3", "--json"))
	require.Len(t, reply.Messages, 3)
	require.EqualValues(t, 12, reply.Next)
	r := program.Run(t, "", "peek", "orders", "--key", "acme", "--limit", "3")
	require.Contains(t, r.Out, "\nthere are more; see --limit\n")
}

// TestPeekFilters checks that each flag sets its field of the filter.
func TestPeekFilters(t *testing.T) {
	f := clitest.StartFake(t)
	var got string
	f.Handle("fila.admin.peek.orders.dlq", func(msg *nats.Msg) any {
		var req struct{ Filter json.RawMessage }
		require.NoError(t, json.Unmarshal(msg.Data, &req))
		got = string(req.Filter)
		return api.PeekReply{Messages: []api.PeekedMessage{}}
	})
	const id = "01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80"
	for flags, want := range map[string]string{
		"": "",
		"--state dead --key a --key b --id " + id: `{"state":"dead","keys":["a","b"],"ids":["` + id + `"]}`,
		"--header a=1 --header b:":                `{"header":{"a":"1","b":""}}`,
		"--attempts-min 3 --consumer w --gate circuit:x --enqueued-after 1h --enqueued-before 2030-01-01T00:00:00Z":            `{"attempts_min":3,"enqueued_after":"1h","enqueued_before":"2030-01-01T00:00:00Z","consumer":"w","gate":"circuit:x"}`,
		"--reason term --error-code 402 --error-contains card --error-group 0123456789abcdef --died-after 2h --died-before 1h": `{"error_code":"402","error_contains":"card","error_group":"0123456789abcdef","reason":"term","died_after":"2h","died_before":"1h"}`,
		"--key [] --error-code 0 --error-contains []": `{"keys":["[]"],"error_code":"0","error_contains":"[]"}`,
		`--filter {"keys":["a"],"died_after":"1h"}`:   `{"keys":["a"],"died_after":"1h"}`,
	} {
		r := program.Run(t, "", append([]string{"peek", "orders.dlq"}, strings.Fields(flags)...)...)
		require.Zero(t, r.Code, "%s: %s", flags, r.Err)
		require.Equal(t, want, got, flags)
	}
}

func TestPeekMistakes(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.admin.peek.orders", api.PeekReply{Messages: []api.PeekedMessage{}})
	require.Equal(t, "queue orders has no messages that match\n", program.Run(t, "", "peek", "orders", "--key", "a").Out)
	f.Answer("fila.admin.peek.gone", wire.QueueNotFound("gone"))
	clitest.Complains(t, program.Run(t, "", "peek", "gone"), command.ExitNotFound, "`fila queue list` lists the queues")
	require.Equal(t, command.ExitConnect, program.Run(t, "", "peek", "nobody").Code)
	program.Mistakes(t, map[string]string{
		"peek q --key a --filter {}": "--filter goes without --key", "peek q --filter {}": "name the messages by",
		"peek q --state gone": "allowed are ready", "peek q --error-code=": "--error-code: a value is required",
		"peek q --attempts-min 0": "--attempts-min: a value", "peek q --filter []": "a JSON object is expected", "peek q --gate x": "throttle:KEY",
		"peek q --header a=1 --header A=2": "given twice", "peek q --header a": "name=value", "peek q --died-after soon": "90m",
		"peek a*b": "queue name", "peek q --limit 0": "--limit 0: allowed", "peek q --payload-bytes 65537": "--payload-bytes 65537: allowed are 0 to",
	})
}
