package gatecmd

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func TestPauseAndResume(t *testing.T) {
	f := clitest.StartFake(t)
	f.Handle("fila.admin.pause", func(msg *nats.Msg) any {
		r, err := api.VerbPause.Parse("", msg.Data)
		if err != nil {
			return err
		}
		until := r.Until
		if r.ForMs > 0 {
			until = "2026-01-02T12:10:00Z"
		}
		return api.PauseInfo{Kind: r.Kind, Queue: r.Queue, Name: r.Name, Since: "2026-01-02T12:00:00Z", Until: until, By: "operator"}
	})
	f.Handle("fila.admin.resume", func(msg *nats.Msg) any {
		r, err := api.VerbResume.Parse("", msg.Data)
		if err != nil {
			return err
		}
		return api.PauseInfo{Kind: r.Kind, Queue: r.Queue, Name: r.Name, Since: "2026-01-02T11:30:00Z", By: "max_failures"}
	})
	for _, tc := range []struct {
		args, body, out string
	}{
		{"pause queue orders", `{"kind":"queue","name":"orders"}`, "queue orders paused until `fila resume queue orders`\n"},
		{"pause queue orders --for 10m", `{"kind":"queue","name":"orders","for_ms":600000}`, "queue orders paused until 2026-01-02T12:10:00Z (in 10m)\n"},
		{
			"pause queue orders --until 2026-01-03T07:00:00+01:00", `{"kind":"queue","name":"orders","until":"2026-01-03T06:00:00Z"}`,
			"queue orders paused until 2026-01-03T06:00:00Z (in 18h)\n",
		},
		{"pause throttle stripe --until 12:30", `{"kind":"throttle","name":"stripe","until":"2026-01-02T12:30:00Z"}`, "throttle stripe paused until 2026-01-02T12:30:00Z (in 30m)\n"},
		{"pause circuit stripe", `{"kind":"circuit","name":"stripe"}`, "circuit stripe paused until `fila resume circuit stripe`\n"},
		{"pause key orders acme", `{"kind":"key","queue":"orders","name":"acme"}`, "key acme of queue orders paused until `fila resume key orders acme`\n"},
		{"pause key acme --queue orders", `{"kind":"key","queue":"orders","name":"acme"}`, "key acme of queue orders paused until `fila resume key orders acme`\n"},
		{"resume queue orders", `{"kind":"queue","name":"orders"}`, "queue orders resumed (paused 30m ago)\n"},
		{"resume key orders acme", `{"kind":"key","queue":"orders","name":"acme"}`, "key acme of queue orders resumed (paused 30m ago)\n"},
		{"resume key acme --queue orders", `{"kind":"key","queue":"orders","name":"acme"}`, "key acme of queue orders resumed (paused 30m ago)\n"},
		{"resume circuit stripe", `{"kind":"circuit","name":"stripe"}`, "circuit stripe resumed (paused 30m ago)\n"},
	} {
		r := program.RunAt(t, strings.Fields(tc.args)...)
		require.Equal(t, clitest.Ended(command.ExitOK, tc.out, ""), r, tc.args)
		require.JSONEq(t, tc.body, string(f.Next().Data), tc.args)
		clitest.JSON[api.PauseInfo](t, program.RunAt(t, append(strings.Fields(tc.args), "--json")...))
		f.Next()
	}

	f.Answer("fila.admin.resume", wire.PauseNotFound("queue", "", "orders"))
	r := program.RunAt(t, "resume", "queue", "orders")
	require.Equal(t, clitest.Ended(command.ExitNotFound, "", "fila: queue \"orders\" is not paused: `fila pause list` lists the pauses [err_code 16404]\n"), r)
	f.Answer("fila.admin.pause", wire.QueueNotFound("orders"))
	clitest.Complains(t, program.RunAt(t, "pause", "queue", "orders"), command.ExitNotFound, "`fila queue list`")
}

func TestPauseUsage(t *testing.T) {
	clitest.Isolate(t)
	t.Setenv("NATS_URL", "nats://127.0.0.1:1")
	program.Mistakes(t, map[string]string{
		"pause tenant acme":                             `unknown command "tenant" for "fila pause"`,
		"pause queue":                                   "QUEUE is missing",
		"pause key orders":                              "KEY is missing",
		"pause key orders acme --queue orders":          `unexpected argument "acme"`,
		"pause throttle a b":                            `unexpected argument "b"`,
		"pause queue a --until soon":                    `--until "soon": allowed is an RFC 3339 time`,
		"pause queue a --until 2026-01-02T11:59:59Z":    "allowed is a future time",
		"pause queue a --until 13:00 --for 5m":          "--until and --for: only one is allowed",
		"pause queue a --for 0":                         "leave out --for to pause until `fila resume`",
		"resume queue":                                  "QUEUE is missing",
		"resume list":                                   `unknown command "list" for "fila resume"`,
		"resume queue a --for 5m":                       "unknown flag: --for",
		"pause queue a --until 2026-01-02T25:00:00Z":    `--until "2026-01-02T25:00:00Z"`,
		"pause queue a --until 25:00":                   `--until "25:00"`,
		"pause throttle stripe --queue orders --for 5m": "unknown flag: --queue",
	})
}

func TestParseUntil(t *testing.T) {
	zone := time.FixedZone("CET", 3600)
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, zone)
	for s, want := range map[string]time.Time{
		"13:30":                now.Add(90 * time.Minute),
		"12:00":                now.Add(24 * time.Hour),
		"07:00":                now.Add(19 * time.Hour),
		"2026-01-02 13:00":     now.Add(time.Hour),
		"2026-01-02T13:00:30":  now.Add(time.Hour + 30*time.Second),
		"2026-01-02T12:00:00Z": now.Add(time.Hour),
	} {
		got, err := parseUntil(s, now)
		require.NoError(t, err, s)
		require.True(t, want.Equal(got), "%s is %s", s, got)
	}
}

func TestPauseList(t *testing.T) {
	f := clitest.StartFake(t)
	list := api.PauseList{Total: 2, Pauses: []api.PauseInfo{
		{Kind: "key", Queue: "orders", Name: "acme", Since: "2026-01-02T11:59:00Z", Until: "2026-01-02T12:01:00Z", By: "max_failures"},
		{Kind: "queue", Name: "mail", Since: "2026-01-01T12:00:00Z", By: "operator"},
	}}
	clitest.Shows(f, program, "pause list", "fila.admin.pause-list", list,
		"KIND   NAME  QUEUE   SINCE                           UNTIL                         BY",
		"key    acme  orders  2026-01-02T11:59:00Z (1m ago)   2026-01-02T12:01:00Z (in 1m)  max_failures",
		"queue  mail  -       2026-01-01T12:00:00Z (24h ago)  until resumed                 operator",
	)
	clitest.Shows(f, program, "pause list", "fila.admin.pause-list", api.PauseList{Pauses: []api.PauseInfo{}}, "nothing is paused")
}
