package gatecmd

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

const messageID = "01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80"

func TestExplainMessage(t *testing.T) {
	f := clitest.StartFake(t)
	rate := api.GateState{
		Kind: "rate", Gate: "throttle:stripe", AdmitsAt: "2026-01-02T12:00:01.5Z", Limits: "0.5/s, burst 1",
		SetBy: "override until 2026-01-02T12:10:00.184427931Z", InUse: "0.2 tokens",
	}
	m := api.ExplainMessage{
		ID: messageID, State: api.StateBlocked, Queue: "orders", Key: "acme", Attempt: 2,
		EnqueuedAt: "2026-01-02T11:30:00Z", Reason: "It waits for throttle key stripe: 0.2 of the 1 token that it takes are there.",
		Gates:     []api.GateState{rate, {Kind: "open", Gate: "circuit:stripe", Admits: true, Limits: "threshold 10", SetBy: "default"}},
		BlockedBy: &rate, BlockedSince: "2026-01-02T11:58:30Z", Ahead: 1, Estimate: "2026-01-02T12:00:03.5Z",
	}
	clitest.Shows(f, program, "explain message "+messageID+" --queue orders", "fila.admin.explain", m,
		"It waits for throttle key stripe: 0.2 of the 1 token that it takes are there.",
		"",
		"message        "+messageID,
		"queue          orders",
		"fairness key   acme",
		"state          blocked",
		"attempt        2",
		"enqueued       2026-01-02T11:30:00Z (30m ago)",
		"blocked by     throttle:stripe (rate; 0.5/s, burst 1)",
		"blocked since  2026-01-02T11:58:30Z (1m30s ago)",
		"ahead of it    1 message",
		"may go         2026-01-02T12:00:03Z (in 3.5s), if nothing changes",
		"",
		"GATE             NOW           ADMITS   LIMITS          IN USE      SET BY",
		"throttle:stripe  blocks: rate  in 1.5s  0.5/s, burst 1  0.2 tokens  override until 2026-01-02T12:10:00Z (in 10m)",
		"circuit:stripe   admits        -        threshold 10    -           default",
	)
	require.JSONEq(t, `{"kind":"message","queue":"orders","id":"`+messageID+`"}`, string(f.Next().Data))
	f.Next()
	program.RunAt(t, "explain", "message", messageID)
	require.JSONEq(t, `{"kind":"message","id":"`+messageID+`"}`, string(f.Next().Data))
}

func TestExplainMessageStates(t *testing.T) {
	for _, tc := range []struct {
		m    api.ExplainMessage
		code int
		out  string
		err  string
	}{
		{
			api.ExplainMessage{
				ID: "x", State: api.StateLeased, Queue: "orders", Attempt: 1, Consumer: "worker-1",
				LeaseUntil: "2026-01-02T12:00:30Z", Reason: "worker-1 has it.",
			},
			command.ExitOK,
			clitest.Lines("worker-1 has it.", "", "message       x", "queue         orders", "state         leased", "attempt       1",
				"consumer      worker-1", "leased until  2026-01-02T12:00:30Z (in 30s)"), "",
		},
		{
			api.ExplainMessage{ID: "x", State: api.StateDelayed, Queue: "q", ReadyAt: "2026-01-02T12:01:00Z", Reason: "It is delayed\x1b[2J."},
			command.ExitOK,
			clitest.Lines("It is delayed?[2J.", "", "message        x", "queue          q", "state          delayed", "delayed until  2026-01-02T12:01:00Z (in 1m)"), "",
		},
		{ // the attempt would be that at the dead letter queue
			api.ExplainMessage{ID: "x", State: api.StateDead, Queue: "orders.dlq", Attempt: 1, Reason: "It was dead-lettered after 20 attempts."},
			command.ExitOK,
			clitest.Lines("It was dead-lettered after 20 attempts.", "", "message  x", "queue    orders.dlq", "state    dead"), "",
		},
		{
			api.ExplainMessage{ID: "x", State: api.StateUnknown, Reason: "No queue has a message x."},
			command.ExitNotFound,
			"", "fila: No queue has a message x.\n",
		},
	} {
		f := clitest.StartFake(t)
		f.Answer("fila.admin.explain", tc.m)
		require.Equal(t, clitest.Ended(tc.code, tc.out, tc.err), program.RunAt(t, "explain", "message", "x"))
		r := program.RunAt(t, "explain", "message", "x", "--json")
		require.Equal(t, tc.code, r.Code)
		require.True(t, json.Valid([]byte(r.Out)), "JSON in any case")
	}
}

func TestExplainKeyAndQueue(t *testing.T) {
	f := clitest.StartFake(t)
	blocked := []api.BlockedCount{{
		GateState: api.GateState{Kind: "circuit", Gate: "circuit:stripe", AdmitsAt: "2026-01-02T12:05:00Z", Limits: "threshold 10", SetBy: "default", InUse: "open"},
		Messages:  1200, Flows: 3,
	}}
	clitest.Shows(f, program, "explain key orders acme", "fila.admin.explain", api.ExplainKey{
		Queue: "orders", Key: "acme", Ready: 1, Blocked: 1200, InFlight: 2, Delayed: 3, Weight: 2.5, WeightBy: "operator", Deficit: 0.5, Active: true, Share: 0.25,
		Paused: "until resumed", BlockedBy: blocked, Reason: "It is paused.",
	},
		"It is paused.",
		"",
		"key        acme",
		"queue      orders",
		"ready      1",
		"blocked    1200",
		"delayed    3",
		"in flight  2",
		"weight     2.5 (set by an operator)",
		"share      25.0% of the weights of the active flows",
		"deficit    0.5",
		"paused     until `fila resume key orders acme`",
		"",
		"GATE            BLOCKED  FLOWS  NOW              ADMITS  LIMITS        IN USE  SET BY",
		"circuit:stripe  1200     3      blocks: circuit  in 5m   threshold 10  open    default",
	)
	require.JSONEq(t, `{"kind":"key","queue":"orders","key":"acme"}`, string(f.Next().Data))
	for line, key := range map[string]api.ExplainKey{
		"share      none while it is blocked, then 25.0%\n":        {Blocked: 2, Weight: 1, Share: 0.25},
		"share      none while no message is ready, then 100.0%\n": {Delayed: 2, Weight: 1, Share: 1},
		"share      -\n": {Paused: "until resumed"},
	} {
		f.Answer("fila.admin.explain", key)
		require.Contains(t, clitest.OK(t, program.RunAt(t, "explain", "key", "orders", "acme")).Out, line)
		f.Next()
	}
	f.Next()

	clitest.Shows(f, program, "explain queue orders", "fila.admin.explain", api.ExplainQueue{
		Queue: "orders", Ready: 5, Blocked: 1200, Consumers: 2, Credit: 1, Paused: "2026-01-02T12:10:00Z", Reason: "The queue is paused until 2026-01-02T12:10:00.2Z.",
	},
		"The queue is paused until 2026-01-02T12:10:00Z (in 10m).",
		"",
		"queue         orders",
		"ready         5",
		"blocked       1200",
		"delayed       0",
		"in flight     0",
		"consumers     2, with credit for 1 message",
		"paused until  2026-01-02T12:10:00Z (in 10m)",
	)
	require.JSONEq(t, `{"kind":"queue","queue":"orders"}`, string(f.Next().Data))
	f.Answer("fila.admin.explain", wire.QueueNotFound("nosuch"))
	r := program.RunAt(t, "explain", "queue", "nosuch")
	require.Equal(t, clitest.Ended(command.ExitNotFound, "", "fila: no such queue \"nosuch\": `fila queue list` lists the queues [err_code 10404]\n"), r)
}
