package messagecmd

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire/api"
)

const aGroup = "0123456789abcdef"

func someGroups() api.DeadGroups {
	return api.DeadGroups{Queue: "orders.dlq", Messages: 5, Total: 3, Other: 1, Groups: []api.DeadGroup{
		{
			Group: aGroup, SourceQueue: "orders", ErrorCode: "402", Error: "no\nmoney for #", Messages: 3, First: "2026-01-02T11:00:00Z", Last: "2026-01-02T11:59:00Z",
			Left: 7, CameBack: 2, Keys: []api.KeyCount{{Key: "acme", Messages: 2}, {Key: "b\x1b", Messages: 1}}, Sample: exampleID,
		},
		{Group: "fedcba9876543210", SourceQueue: "orders", Error: "expired", Left: 9},
	}}
}

func TestDeadGroups(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.admin.dead-groups.orders.dlq", someGroups())
	for _, name := range []string{"orders", "orders.dlq"} {
		out := program.RunAt(t, "dead", "groups", name).Out
		require.Regexp(t, `(?m)^0123456789abcdef +3 +1h +1m +7 +2 +402 +no money for # +acme 2, b\? 1$`, out)
		require.Regexp(t, `(?m)^fedcba9876543210 +0 +- +- +9 +0 +- +expired`, out)
		require.Contains(t, out, "1 group more; see --limit\n1 message in further groups, which are not counted separately\n")
	}
	require.Equal(t, someGroups(), clitest.JSON[api.DeadGroups](t, program.Run(t, "", "dead", "groups", "orders", "--json")))
	f.Answer("fila.admin.dead-groups.empty.dlq", api.DeadGroups{Queue: "empty.dlq"})
	require.Equal(t, "queue empty.dlq has no messages\n", program.Run(t, "", "dead", "groups", "empty").Out)
}

func TestDeadList(t *testing.T) {
	f := clitest.StartFake(t)
	f.Handle("fila.admin.peek.orders.dlq", func(msg *nats.Msg) any {
		req, bad := api.VerbPeek.Parse("", msg.Data)
		require.Nil(t, bad)
		require.Equal(t, aGroup, req.Filter.ErrorGroup)
		return api.PeekReply{Queue: "orders.dlq", Messages: peekedMessages()[4:]}
	})
	for _, name := range []string{"orders", "orders.dlq"} {
		r := program.Run(t, "", "dead", "list", name, "--error-group", aGroup)
		require.Zero(t, r.Code, r.Err)
		require.Contains(t, r.Out, "a redrive: max_deliveries [402]: no money")
	}
	program.Mistakes(t, map[string]string{"dead list a*b": "queue name", "dead list q --limit 0": "--limit 0", "dead groups q --limit 1001": "--limit 1001"})
}

func TestDeadShow(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.admin.dead-groups.orders.dlq", someGroups())
	f.Handle("fila.admin.peek.orders.dlq", func(msg *nats.Msg) any {
		req, bad := api.VerbPeek.Parse("", msg.Data)
		require.Nil(t, bad)
		require.Equal(t, []string{exampleID}, req.Filter.IDs)
		return api.PeekReply{Queue: "orders.dlq", Messages: peekedMessages()[:1]}
	})
	r := program.Run(t, "", "dead", "show", "orders", aGroup)
	require.Zero(t, r.Code, r.Err)
	for _, part := range []string{"no money for #", "acme 2", "402", `{"id": 1}`} {
		require.True(t, strings.Contains(r.Out, part), "%s\n%s", part, r.Out)
	}
	r = program.Run(t, "", "dead", "show", "orders", "fedcba9876543210")
	require.Zero(t, r.Code, r.Err)
	require.Contains(t, r.Out, "expired", "there is no message to show")
	clitest.Complains(t, program.Run(t, "", "dead", "show", "orders", "gone"), command.ExitNotFound, "no dead letters of group")
}
