package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// completions returns the completions of a command line whose last word is incomplete.
func completions(t *testing.T, line ...string) (words []string, directive string) {
	t.Helper()
	r := clitest.OK(t, program.Run(t, "", append([]string{"__complete"}, line...)...))
	require.Equal(t, 1, strings.Count(r.Err, "\n"), "nothing is said but what cobra does: %s", r.Err)
	words = strings.Split(strings.TrimSuffix(r.Out, "\n"), "\n")
	return words[:len(words)-1], words[len(words)-1]
}

const (
	onlyThese = ":4"
	files     = ":0"
	dirs      = ":16"
)

func TestCompletionAsksFila(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.admin.queue-list", api.QueueList{Total: 3, Queues: []api.QueueSummary{{Name: "orders"}, {Name: "orders.dlq"}, {Name: "mail"}}})
	f.Answer("fila.admin.queue-inspect.orders", api.QueueInfo{TopFlows: []api.FlowInfo{{Key: "acme"}, {Key: "two words"}, {Key: "two\nlines"}}})
	f.Answer("fila.admin.throttle-list", api.ThrottleList{Total: 2, Throttles: []api.ThrottleInfo{{Key: "stripe"}, {Key: "tenant:*"}}})
	f.Answer("fila.admin.circuit-list", api.CircuitList{Total: 1, Circuits: []api.CircuitInfo{{Key: "paypal"}}})
	f.Answer("fila.admin.config-list", api.ConfigList{Total: 1, Entries: []api.ConfigEntry{{Key: "feature:x"}}})
	f.Answer("fila.admin.pause-list", api.PauseList{Total: 3, Pauses: []api.PauseInfo{
		{Kind: "queue", Name: "mail"}, {Kind: "key", Queue: "orders", Name: "held"}, {Kind: "key", Queue: "mail", Name: "other"}, {Kind: "throttle", Name: "slow"},
	}})
	f.Answer("fila.admin.queue-inspect.orders.dlq", api.QueueInfo{TopFlows: []api.FlowInfo{{Key: "died"}}, ConsumerList: []api.ConsumerInfo{{Name: "undertaker"}}})
	f.Answer("fila.admin.job-list", api.JobList{Jobs: []api.JobInfo{
		{ID: "j1", JobCreateRequest: api.JobCreateRequest{Op: "redrive", Queue: "orders.dlq"}, State: api.JobRunning}, {ID: "j2", JobCreateRequest: api.JobCreateRequest{Op: "move", Queue: "mail"}, State: api.JobPaused}, {ID: "j3", JobCreateRequest: api.JobCreateRequest{Op: "delete", Queue: "mail.dlq"}, State: api.JobDone},
	}, Missing: []int{1}})
	f.Answer("fila.admin.dead-groups.orders.dlq", api.DeadGroups{Groups: []api.DeadGroup{
		{Group: "0123456789abcdef", ErrorCode: "402", Error: "no\nmoney", Messages: 2}, {Group: "fedcba9876543210", Error: "gone", Messages: 1},
	}})
	f.Answer("fila.admin.schedule-list", api.ScheduleList{Schedules: []api.ScheduleInfo{{Name: "nightly", Schedule: "@daily"}, {Name: "tick", Schedule: "@every 1m"}}})
	f.Answer("fila.admin.cluster-status", api.ClusterStatus{Nodes: []api.ClusterNode{{Node: "fila-1"}, {Node: "fila-2"}}, Shards: []api.ClusterShard{{Shard: 0}, {Shard: 1}}})
	for line, want := range map[string]string{
		"cluster drain |":                           "fila-1 fila-2",
		"cluster move |":                            "0 1",
		"cluster move 1 |":                          "fila-1 fila-2",
		"queue inspect |":                           "mail orders orders.dlq",
		"queue list o|":                             "orders orders.dlq",
		"queue update o|":                           "orders orders.dlq",
		"queue delete x|":                           "",
		"queue create |":                            "",
		"queue inspect orders |":                    "",
		"consume |":                                 "mail orders orders.dlq",
		"publish ma|":                               "mail",
		"publish mail |":                            "",
		"peek |":                                    "mail orders orders.dlq",
		"peek orders --key |":                       "acme,two words",
		"peek --key |":                              "",
		"redrive |":                                 "orders.dlq",
		"job create |":                              "mail orders orders.dlq",
		"job create orders |":                       "cancel delay delete edit move redrive reprioritise run-now",
		"job create orders re|":                     "redrive reprioritise",
		"job create orders move --to |":             "mail orders orders.dlq",
		"job create orders redrive --key |":         "died",
		"job create orders cancel --key a|":         "acme",
		"job create orders reprioritise --to-key |": "acme,two words",
		"job create orders move --gate |":           "circuit:paypal throttle:stripe throttle:tenant:*",
		"job create orders move --gate throttle:s|": "throttle:stripe",
		"job list --queue m|":                       "mail",
		"job show |":                                "j1\tredrive orders.dlq, running,j2\tmove mail, paused,j3\tdelete mail.dlq, done",
		"job pause |":                               "j1\tredrive orders.dlq, running,j2\tmove mail, paused",
		"job resume |":                              "j2\tmove mail, paused",
		"job cancel j1|":                            "j1\tredrive orders.dlq, running",
		"dead groups |":                             "orders.dlq",
		"dead list orders --key |":                  "died",
		"dead list orders --consumer |":             "undertaker",
		"dead list orders --error-code |":           "402",
		"dead list orders --error-group f|":         "fedcba9876543210\t1 message: gone",
		"dead show orders |":                        "0123456789abcdef\t2 messages: 402 no?money,fedcba9876543210\t1 message: gone",
		"schedule list --queue m|":                  "mail",
		"schedule show orders |":                    "nightly\t@daily,tick\t@every 1m",
		"schedule delete orders t|":                 "tick\t@every 1m",
		"hook reset |":                              "mail orders orders.dlq",
		"explain key |":                             "mail orders orders.dlq",
		"explain key orders a|":                     "acme",
		"explain queue m|":                          "mail",
		"explain message x --queue m|":              "mail",
		"top --queue m|":                            "mail",
		"watch --queue m|":                          "mail",
		"throttle set |":                            "stripe tenant:*",
		"throttle show t|":                          "tenant:*",
		"throttle clear |":                          "stripe tenant:*",
		"throttle list s|":                          "stripe",
		"circuit open |":                            "paypal",
		"circuit list |":                            "paypal",
		"config get |":                              "feature:x",
		"config set |":                              "feature:x",
		"config set feature:x |":                    "",
		"config log |":                              "feature:x",
		"pause queue |":                             "mail orders orders.dlq",
		"pause key orders |":                        "acme,two words",
		"pause key --queue orders |":                "acme,two words",
		"pause throttle |":                          "stripe tenant:*",
		"pause circuit |":                           "paypal",
		"resume queue |":                            "mail",
		"resume key orders |":                       "held",
		"resume key --queue mail |":                 "other",
		"resume throttle |":                         "slow",
		"resume circuit |":                          "",
		"queue create a --ordering |":               "key",
		"queue update a --on-blocked |":             "skip wait",
		"throttle set k --unset bu|":                "budget burst",
		"throttle set k --unset limit,c|":           "limit,concurrency",
		"watch --type paused,re|":                   "paused,redriven paused,refused paused,resumed",
		"hook run f --hook |":                       "on_enqueue on_failure",
		"hook reset q --hook on_f|":                 "on_failure",
		"bench --workload life|":                    "life life-confirmed",
		"bench --system hop|":                       "hops hops-wire",
		"serve --log-level |":                       "debug error info warn",
		"serve --log-format |":                      "json text",
	} {
		words := strings.Fields(strings.TrimSuffix(line, "|"))
		if strings.HasSuffix(line, " |") {
			words = append(words, "")
		}
		got, directive := completions(t, words...)
		separator := " "
		if strings.Contains(want, "two words") || strings.Contains(want, "\t") {
			separator = ","
		}
		require.Equal(t, want, strings.Join(got, separator), line)
		require.Equal(t, onlyThese, directive, line)
	}
}

func TestCompletionOfFiles(t *testing.T) {
	home := clitest.Isolate(t)
	for _, line := range []string{"hook check", "hook run", "store check", "store export", "publish q --file", "queue create a --on-enqueue", "serve --config", "--creds", "bench --chart", "store import d --from"} {
		words, directive := completions(t, append(strings.Fields(line), "")...)
		require.Empty(t, words, line)
		require.Equal(t, files, directive, line)
	}
	for _, line := range []string{"man", "store import", "store backup --data-dir", "serve --data-dir", "bench --dir"} {
		_, directive := completions(t, append(strings.Fields(line), "")...)
		require.Equal(t, dirs, directive, line)
	}

	words, _ := completions(t, "queue", "list", "--context", "")
	require.Empty(t, words, "no context is no failure")
	require.NoError(t, os.MkdirAll(filepath.Join(home, "nats", "context"), 0o700))
	for _, name := range []string{"prod.json", "dev.json", "dev.json.bak"} {
		require.NoError(t, os.WriteFile(filepath.Join(home, "nats", "context", name), nil, 0o600))
	}
	words, directive := completions(t, "queue", "list", "--context", "")
	require.Equal(t, []string{"dev", "prod"}, words)
	require.Equal(t, onlyThese, directive)
}

// Without an answer there are quickly no words, and no message.
func TestCompletionWithoutFila(t *testing.T) {
	f := clitest.StartFake(t)
	words, _ := completions(t, "queue", "inspect", "")
	require.Empty(t, words, "no fila")
	f.Answer("fila.admin.queue-list", wire.QueueNotFound("orders"))
	words, _ = completions(t, "queue", "inspect", "")
	require.Empty(t, words, "a refusal")
	words, _ = completions(t, "job", "create", "orders", "mo")
	require.Equal(t, []string{"move"}, words, "what needs no fila")
	for _, args := range [][]string{{"--server", "nats://127.0.0.1:1"}, {"--token", "a", "--creds", "b"}, {"--context", "nosuch"}} {
		words, _ = completions(t, append(args, "queue", "inspect", "")...)
		require.Empty(t, words, args)
	}

	silent := clitest.StartFake(t)
	silent.Handle("fila.admin.queue-list", func(*nats.Msg) any { return nil })
	for _, subject := range []string{"job-list", "dead-groups.orders.dlq", "schedule-list"} {
		silent.Handle("fila.admin."+subject, func(*nats.Msg) any { return nil })
	}
	for _, line := range []string{"queue inspect", "job show", "dead show orders", "schedule show orders"} {
		words, _ = completions(t, append(strings.Fields(line+" --timeout 1h"), "")...)
		require.Empty(t, words, "it does not wait for --timeout")
	}
}
