package messagecmd

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func TestMessageShow(t *testing.T) {
	f := clitest.StartFake(t)
	m := api.MessageInfo{
		PeekedMessage: peekedMessages()[1], Queue: "orders", Cost: 2.5, Reason: "It is blocked by throttle:stripe until 2026-01-02T12:00:01.5Z.",
		Gates:        []api.GateState{{Gate: "throttle:stripe", Kind: "rate"}, {Gate: "circuit:bank", Kind: "open", Admits: true}},
		BlockedSince: "2026-01-02T11:59:40Z", Ahead: 1, Estimate: "2026-01-02T12:00:05Z",
	}
	m.History = []api.AttemptInfo{
		{Outcome: wire.AttemptNack, Attempt: 1, At: "2026-01-02T11:59:31Z", Consumer: "w", TookMs: 120, Error: "no\x1bmoney", ErrorCode: "402", DecidedBy: wire.DecidedByRule, Rule: "broke", DelayMs: 5000},
		{
			Outcome: wire.AttemptNoResponders, Attempt: 2, At: "2026-01-02T11:59:40Z", Consumer: "w2", WaitedMs: 3500,
			Held: []api.HeldInfo{{Kind: "rate", Gate: "throttle:stripe", Ms: 3000}, {Kind: "paused", Gate: "queue:orders", Ms: 400}},
		},
		{Outcome: wire.AttemptExpired, Attempt: 2, Consumer: "w", Error: "lease expired", DecidedBy: wire.DecidedByLimit, Rule: "late", Reason: wire.ReasonMaxDeliveries},
		{Outcome: wire.AttemptNoResponders, Attempt: 3, At: "2026-01-02T11:59:45Z", Times: 3, LastAt: "2026-01-02T11:59:48Z"},
		{Outcome: wire.AttemptRedriven, At: "2026-01-02T11:59:50Z"},
		{Outcome: wire.AttemptMoved, At: "2026-01-02T11:59:55Z", From: "orders.dlq", To: "by-hand"},
		{Outcome: wire.AttemptNack, Attempt: 1, Dead: true, DecidedBy: wire.DecidedByDefault},
	}
	clitest.Shows(f, program, "message show 2 --queue orders --payload-bytes 100", "fila.admin.message-show", m,
		"It is blocked by throttle:stripe until 2026-01-02T12:00:01Z (in 1.5s).", "",
		"message        2",
		"queue          orders",
		"fairness key   a?b",
		"state          blocked",
		"attempt        2",
		"cost           2.5",
		"enqueued       2026-01-02T11:59:30Z (30s ago)",
		"blocked since  2026-01-02T11:59:40Z (20s ago)",
		"ahead of it    1 message",
		"may go         2026-01-02T12:00:05Z (in 5s), if nothing changes",
		"gate           throttle:stripe blocks",
		"gate           circuit:bank admits",
		"payload        100 bytes", "",
		"ATTEMPT   AT                              CONSUMER  ENDED                             ERROR           THEN                                       BEFORE",
		"1         2026-01-02T11:59:31Z (29s ago)  w         nacked after 120ms                [402] no?money  retried after 5s (rule broke)              -",
		"2         2026-01-02T11:59:40Z (20s ago)  w2        no subscriber                     -               -                                          waited 3.5s: throttle:stripe (rate) 3s, queue:orders (paused) 400ms",
		"2         -                               w         lease expired                     lease expired   dead-lettered: max_deliveries (rule late)  -",
		"3         2026-01-02T11:59:45Z (15s ago)  -         no subscriber, 3 times            -               the last 2026-01-02T11:59:48Z (12s ago)    -",
		"-         2026-01-02T11:59:50Z (10s ago)  -         redriven                          -               -                                          -",
		"-         2026-01-02T11:59:55Z (5s ago)   -         moved from orders.dlq to by-hand  -               -                                          -",
		"1 (dead)  -                               -         nacked                            -               retried at once (default)                  -", "",
		"a: 1", "a: 2", "tenant: acme", "(more headers)", "", strings.Repeat("long ", 20), "(the first 100 of 100 bytes)",
	)
	require.JSONEq(t, `{"id":"2","queue":"orders","payload_bytes":100}`, string(f.Next().Data))
}

// A history has a column of routes if an attempt had a choice.
func TestMessageShowNamesRoutes(t *testing.T) {
	f := clitest.StartFake(t)
	m := api.MessageInfo{PeekedMessage: api.PeekedMessage{ID: "2", State: "ready", Attempt: 3, Payload: new("hello"), PayloadBytes: 5}, Queue: "orders", Reason: "It is ready."}
	m.History = []api.AttemptInfo{
		{Outcome: wire.AttemptNack, Attempt: 1, Consumer: "w", Route: "openai", DecidedBy: wire.DecidedByDefault},
		{Outcome: wire.AttemptNack, Attempt: 2, Consumer: "w", DecidedBy: wire.DecidedByDefault},
	}
	clitest.Shows(f, program, "message show 2", "fila.admin.message-show", m,
		"It is ready.", "", "message      2", "queue        orders", "state        ready", "attempt      3", "cost         0", "ahead of it  0 messages", "payload      5 bytes", "",
		"ATTEMPT  AT  CONSUMER  ROUTE   ENDED   ERROR  THEN                       BEFORE",
		"1        -   w         openai  nacked  -      retried at once (default)  -",
		"2        -   w         -       nacked  -      retried at once (default)  -", "", "", "hello",
	)
}

func TestMessageDeleteAndRunNow(t *testing.T) {
	f := clitest.StartFake(t)
	clitest.Shows(f, program, "message delete 1", "fila.admin.message-delete",
		api.MessageReply{ID: "1", Queue: "orders.dlq", State: "dead", Done: true}, "message 1 removed from orders.dlq, where it was dead")
	require.JSONEq(t, `{"id":"1"}`, string(f.Next().Data))
	clitest.Shows(f, program, "message run-now 1 --queue orders", "fila.admin.message-run-now",
		api.MessageReply{ID: "1", Queue: "orders", State: "delayed", Done: true}, "message 1 of orders is ready")
	clitest.Shows(f, program, "message run-now 1", "fila.admin.message-run-now",
		api.MessageReply{ID: "1", Queue: "orders", State: "blocked"}, "message 1 of orders has no delay to end; it is blocked")
	f.Answer("fila.admin.message-delete", wire.MessageInFlight("orders", "1", "it is in flight"))
	r := program.Run(t, "", "message", "delete", "1")
	require.Equal(t, command.ExitConflict, r.Code)
	require.Contains(t, r.Err, "it is in flight")
	f.Answer("fila.admin.message-delete", wire.MessageNotFound("", "1"))
	require.Equal(t, command.ExitNotFound, program.Run(t, "", "message", "delete", "1").Code)
	program.Mistakes(t, map[string]string{
		"message show": "ID is missing", "message show 1 --payload-bytes -1": "allowed are 0 to 65536", "message 1": "unknown command",
	})
}
