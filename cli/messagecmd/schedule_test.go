package messagecmd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// aSchedule is a schedule that runs at night.
func aSchedule() api.ScheduleInfo {
	return api.ScheduleInfo{
		Queue: "orders", Name: "nightly", Schedule: "0 30 2 * * *", TimeZone: "Europe/Berlin", Missed: wire.MissedOne, TTLMs: 60_000,
		State: api.ScheduleActive, CreatedAt: "2026-01-02T11:59:30Z",
		Next: []string{"2026-01-03T02:30:00+01:00", "2026-01-04T02:30:00+01:00"},
		Last: []api.ScheduleRun{{At: "2026-01-02T01:30:00Z", MadeAt: "2026-01-02T01:30:00.001Z", ID: "7"}},
		Runs: 3, MissedN: 1, Bytes: 16, Headers: map[string][]string{"tenant": {"acme"}}, Payload: []byte(`{"a":1}`),
	}
}

func TestScheduleShow(t *testing.T) {
	f := clitest.StartFake(t)
	clitest.Shows(f, program, "schedule show orders nightly", "fila.admin.schedule-show.orders", aSchedule(),
		"schedule     nightly",
		"queue        orders",
		"runs         0 30 2 * * *",
		"time zone    Europe/Berlin",
		"state        active",
		"missed runs  one",
		"ttl          1m",
		"created      2026-01-02T11:59:30Z (30s ago)",
		"next         2026-01-03T02:30:00+01:00 (in 13h30m)",
		"             2026-01-04T02:30:00+01:00 (in 37h30m)",
		"made         3",
		"missed       1",
		"header       tenant: acme",
		"bytes        16",
		`payload      {"a":1}`,
		"",
		"RAN AT                             MADE                      MESSAGE",
		"2026-01-02T01:30:00Z (10h30m ago)  2026-01-02T01:30:00.001Z  7",
	)
	require.JSONEq(t, `{"name":"nightly"}`, string(f.Next().Data))
	f.Next() // the same with --json
	require.Equal(t, 0, program.Run(t, "", "schedule", "show", "orders.dlq", "nightly").Code, "a dead letter queue has the schedules of its queue")
	require.Equal(t, "fila.admin.schedule-show.orders", f.Next().Subject)
	for _, verb := range []string{"pause", "resume"} {
		late := aSchedule()
		late.Why = "the queue is full"
		f.Answer("fila.admin.schedule-"+verb+".orders", late)
		r := program.Run(t, "", "schedule", verb, "orders", "nightly")
		require.Equal(t, 0, r.Code, r.Err)
		require.Contains(t, r.Out, "late")
		require.Contains(t, r.Out, "the queue is full")
		require.JSONEq(t, `{"name":"nightly"}`, string(f.Next().Data))
	}
	f.Answer("fila.admin.schedule-delete.orders", aSchedule())
	r := program.Run(t, "", "schedule", "delete", "orders", "nightly")
	require.Equal(t, 0, r.Code, r.Err)
	require.Equal(t, "deleted schedule nightly of queue orders: 0 30 2 * * *\n", r.Out)
	f.Next()
	f.Answer("fila.admin.schedule-show.orders", wire.ScheduleNotFound("orders", "none"))
	require.Equal(t, command.ExitNotFound, program.Run(t, "", "schedule", "show", "orders", "none").Code)
}

func TestScheduleAdd(t *testing.T) {
	f := clitest.StartFake(t)
	add := func(answer api.ScheduleInfo, want string, args ...string) string {
		t.Helper()
		f.Answer("fila.admin.schedule-add.orders", answer)
		r := program.Run(t, "piped", append([]string{"schedule", "add", "orders"}, args...)...)
		require.Equal(t, 0, r.Code, r.Err)
		require.JSONEq(t, want, string(f.Next().Data))
		return r.Out
	}
	replaced, there := aSchedule(), aSchedule()
	replaced.Replaced, there.Unchanged, there.ByEnqueue, there.Last = true, true, true, nil
	out := add(replaced, `{"name":"n","schedule":"0 30 2 * * *","time_zone":"Europe/Berlin","missed":"all","ttl_ms":60000,"headers":{"a":["1","2"]},"payload":"eA=="}`,
		"n", "0 30 2 * * *", "x", "--zone", "Europe/Berlin", "--missed", "all", "--ttl", "1m", "-H", "a=1", "-H", "a: 2")
	require.Contains(t, out, "was replaced")
	out = add(there, `{"name":"n","schedule":"@every 1m","missed":"one"}`, "n", "@every 1m")
	require.Contains(t, out, "existed already")
	require.Contains(t, out, "by an enqueue")
	add(there, `{"name":"n","schedule":"@every 1m","missed":"one","payload":"cGlwZWQ="}`, "n", "@every 1m", "--file", "-")
	path := filepath.Join(t.TempDir(), "payload")
	require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
	add(there, `{"name":"n","schedule":"@every 1m","missed":"one","payload":"eA=="}`, "n", "@every 1m", "--file", path)

	program.Mistakes(t, map[string]string{
		"schedule add orders":                          "NAME is missing",
		"schedule add orders n":                        "SCHEDULE is missing",
		"schedule add orders n 0 0 0":                  "in quotes",
		"schedule add orders n @daily x --file y":      "one of them is allowed",
		"schedule add orders n @daily --file /no/file": "no such file",
		"schedule add orders n @daily -H x":            "allowed is name=value",
	})
}

func TestScheduleList(t *testing.T) {
	f := clitest.StartFake(t)
	paused := api.ScheduleInfo{Queue: "orders", Name: "poll", Schedule: "@every 90s", State: api.SchedulePaused}
	clitest.Shows(f, program, "schedule list --queue orders", "fila.admin.schedule-list", api.ScheduleList{Total: 2, Schedules: []api.ScheduleInfo{aSchedule(), paused}},
		"QUEUE   NAME     SCHEDULE      ZONE           STATE   NEXT                                   RUNS  MISSED",
		"orders  nightly  0 30 2 * * *  Europe/Berlin  active  2026-01-03T02:30:00+01:00 (in 13h30m)  3     1",
		"orders  poll     @every 90s    -              paused  -                                      0     0",
	)
	require.JSONEq(t, `{"queue":"orders","limit":1000}`, string(f.Next().Data))
	f.Next()
	clitest.Shows(f, program, "schedule list", "fila.admin.schedule-list", api.ScheduleList{Schedules: []api.ScheduleInfo{}}, "there are no schedules")
}
