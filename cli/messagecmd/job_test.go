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

// aJob is a job that paused itself.
func aJob() api.JobInfo {
	since := int64(4)
	return api.JobInfo{
		ID:               "7",
		JobCreateRequest: api.JobCreateRequest{Queue: "orders", Op: api.JobMove, To: "slow", Reason: "asked for"},
		State:            api.JobPaused, Why: "the queue is full", Matched: 12, Done: 9,
		Left: map[string]int64{api.LeftInFlight: 2, api.LeftGone: 1}, NewSince: &since, CreatedAt: "2026-01-02T11:59:30Z",
	}
}

func TestJobCreate(t *testing.T) {
	f := clitest.StartFake(t)
	clitest.Shows(f, program, "job create orders move --to slow --key acme --limit 12 --rate 5 --why asked --if-count 0", "fila.admin.job-create.move.orders", aJob(),
		"job         7",
		"queue       orders",
		"op          move",
		"to          slow",
		"state       paused",
		"why         the queue is full",
		"reason      asked for",
		"done        9",
		"matched     12",
		"skipped     1 finished meanwhile, 2 in flight",
		"came later  4",
		"created     2026-01-02T11:59:30Z (30s ago)",
	)
	require.JSONEq(t, `{"queue":"orders","op":"move","filter":{"keys":["acme"]},"to":"slow","rate":5,"limit":12,"if_count":0,"reason":"asked"}`, string(f.Next().Data))
	f.Next() // the same with --json

	for _, queue := range []string{"orders", "orders.dlq"} {
		f.Answer("fila.admin.job-create.redrive.orders.dlq", aJob())
		require.Equal(t, 0, program.Run(t, "", "job", "create", queue, "redrive", "--all").Code)
		require.JSONEq(t, `{"queue":"orders.dlq","op":"redrive","filter":{"all":true}}`, string(f.Next().Data))
	}

	payload := filepath.Join(t.TempDir(), "payload")
	require.NoError(t, os.WriteFile(payload, []byte("x"), 0o600))
	f.Answer("fila.admin.job-create.edit.orders.dlq", aJob())
	r := program.Run(t, "", "job", "create", "orders.dlq", "edit", "--id", "01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80",
		"--set-header", "a=1", "--remove-header", "b", "--payload-file", payload, "--json")
	require.Equal(t, 0, r.Code, r.Err)
	require.JSONEq(t, `{"queue":"orders.dlq","op":"edit","filter":{"ids":["01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80"]},"set_headers":{"a":"1"},"remove_headers":["b"],"payload":"eA=="}`,
		string(f.Next().Data))

	program.Mistakes(t, map[string]string{
		"job create orders":                                "OP is missing",
		"job create orders move --all --key a":             "--all selects all messages",
		"job create orders edit --all --set-header x":      "allowed is name=value",
		"job create orders edit --all --payload-file /no/": "--payload-file /no/: no such file",
		"job create orders cancel":                         "--all for all messages of the queue",
		"job create orders cancel --attempts-min x":        `--attempts-min "x": allowed is a whole number, 0 or more`,
	})
}

func TestJobDryRun(t *testing.T) {
	f := clitest.StartFake(t)
	clitest.Shows(f, program, "job create orders.dlq delete --all --dry-run", "fila.admin.job-create.delete.orders.dlq", api.JobInfo{
		JobCreateRequest: api.JobCreateRequest{Queue: "orders.dlq", Op: api.JobDelete}, Matched: 3, Eligible: 2,
		Left: map[string]int64{api.LeftInFlight: 1}, Samples: []api.JobSample{{ID: "1", Key: "acme", State: "dead", EnqueuedAt: "2026-01-02T11:59:30Z"}},
	},
		"would delete  orders.dlq",
		"matched       3",
		"eligible      2",
		"skipped       1 in flight",
		"",
		"ID  KEY   STATE  ENQUEUED",
		"1   acme  dead   2026-01-02T11:59:30Z (30s ago)",
	)
	require.JSONEq(t, `{"queue":"orders.dlq","op":"delete","filter":{"all":true},"dry_run":true}`, string(f.Next().Data))
}

func TestJobsByID(t *testing.T) {
	f := clitest.StartFake(t)
	for _, verb := range []string{"show", "pause", "resume", "cancel"} {
		f.Answer("fila.admin.job-"+verb, aJob())
		r := program.Run(t, "", "job", verb, "7")
		require.Equal(t, 0, r.Code, r.Err)
		require.Contains(t, r.Out, "the queue is full")
		require.JSONEq(t, `{"id":"7"}`, string(f.Next().Data))
	}
	f.Answer("fila.admin.job-cancel", wire.JobEnded("7", api.JobDone))
	require.Equal(t, command.ExitConflict, program.Run(t, "", "job", "cancel", "7").Code)
	clitest.Shows(f, program, "job list --queue orders", "fila.admin.job-list", api.JobList{Total: 1, Jobs: []api.JobInfo{aJob()}},
		"JOB  QUEUE   OP    STATE   DONE  MATCHED  CREATED",
		"7    orders  move  paused  9     12       2026-01-02T11:59:30Z (30s ago)",
	)
}

// TestListsThatAreNotWhole: lists show the available entries, then report that some are
// unavailable.
func TestListsThatAreNotWhole(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.admin.job-list", api.JobList{Jobs: []api.JobInfo{{ID: "j", State: api.JobDone}}, Missing: []int{2}})
	f.Answer("fila.admin.schedule-list", api.ScheduleList{Schedules: []api.ScheduleInfo{{Name: "s"}}, Missing: []int{2}})
	for _, verb := range []string{"job", "schedule"} {
		r := program.RunAt(t, verb, "list")
		require.NotZero(t, r.Code)
		require.Contains(t, r.Out, "QUEUE")
		require.Contains(t, r.Err, "the list is not whole: ")
	}
	f.Answer("fila.admin.job-list", api.JobList{Missing: []int{2}})
	r := program.RunAt(t, "job", "list")
	require.NotZero(t, r.Code)
	require.Empty(t, r.Out)
	require.NotContains(t, r.Err, "not whole")
}
