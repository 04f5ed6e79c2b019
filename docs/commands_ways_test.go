package docs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// way says how the tests run a command of a page that they cannot run as it is.
type way struct {
	page    string // empty: any page
	command string // its beginning
	skip    string // the reason why it does not run
	before  string // shell commands to run first
	after   string // shell commands to run afterwards
	instead string // replaces the beginning of the command
	fails   bool   // the command must fail
}

// ways: the first matching row counts.
var ways = []way{
	{command: "go run . serve", skip: "`.ci/run smoke` runs it"},
	{command: "go test ", skip: "a test does not run all tests; `.ci/run test` does"},
	{page: "README.md", command: "git clone ", skip: "this is the clone"},
	{page: "README.md", command: "cd fila", skip: "this is the clone"},
	{command: "go run . demo", skip: "takes 20 seconds; cli/opscmd/demo_test.go runs it"},
	{command: "go build", skip: "the test has built the binary"},
	{command: "CGO_ENABLED=0 go build", skip: "TestReproducibleBuild runs it, twice, and compares"},
	{command: "sha256sum fila", skip: "TestReproducibleBuild does"},
	{command: "cp deploy/compose/env.example", skip: "TestCompose reads it"},
	{command: "fila bench --quick", skip: "`.ci/run bench` runs it"},
	{command: "fila bench", skip: "takes up to an hour; cli/opscmd/bench_test.go checks its flags"},
	{command: "fila demo --duration 10s", instead: "fila demo --duration 1s"},
	{page: storyPage, command: "fila demo --incident bad-release", instead: "fila_demo --incident bad-release"},
	{command: "fila demo", skip: "takes 20 seconds; cli/opscmd/demo_test.go runs it"},
	{command: "fila cluster import /var/lib/fila --config node-a.toml", skip: "sidecar/transfer_test.go imports one, cli/clustercmd tests the command"},
	{command: "fila cluster export --to /var/lib/fila-alone --config node-a.toml", skip: "as above"},
	{command: "fila cluster rebuild /var/lib/fila /mnt/b/fila", skip: "as above"},
	{command: "fila cluster repair 3", skip: "needs a log that has lost something, as TestServersForget makes"},
	{command: "fila cluster accept 3", skip: "as above"},
	{command: "head -c 24 /dev/urandom", page: "docs/deploy.md", before: "mkdir -p deploy/compose"},
	{command: "docker ", skip: "needs a Docker daemon; deploy/check checks what needs no daemon"},
	{command: "helm ", skip: "needs helm; deploy/check runs it if it is there"},
	{command: "kubectl ", skip: "needs a cluster"},
	{command: "sudo ", skip: "changes the machine; deploy/check verifies the unit"},
	{command: "pip ", page: "sdk/python/README.md", skip: "needs PyPI; sdk/python/check installs it"},
	{command: "pip ", page: "examples/README.md", skip: "needs PyPI; examples/check installs it"},
	{command: "python ", page: "examples/README.md", skip: "needs nats-py; examples/check runs it"},
	{command: "fila apply -f llm/fila.yaml", page: "examples/README.md", before: `cp -r "$REPOSITORY/examples/llm" .`},
	{command: "go run ./examples/llm", page: "examples/README.md", skip: "examples/check runs it"},
	{command: "fila serve --nats-url", skip: "needs its own NATS server; sidecar/e2e starts one"},
	{command: "export NATS_URL=", skip: "the port differs here"},

	// Pages with transcripts start fila in another terminal.
	{command: "FILA_LOG__LEVEL=debug fila serve", instead: "FILA_LOG__LEVEL=debug fila_serve"},
	{page: clusterPage, command: "fila serve --config a.toml", before: "node_ports 6222 6223 6224", instead: "fila_serve_node a --config a.toml"},
	{page: clusterPage, command: "fila serve --config b.toml", instead: "fila_serve_node b --config b.toml"},
	{page: clusterPage, command: "fila serve --config c.toml", instead: "fila_serve_node c --config c.toml", after: "nodes_ready"},
	{page: clusterPage, command: "fila queue create orders", before: "await 'owners of all shards' fila queue list"},
	{page: clusterPage, command: "pkill -KILL -f 'serve --config a.toml'", instead: "kill_node a"},
	{page: clusterPage, command: "fila consume orders --count 1", before: "await 'another owner' fila queue inspect orders"},
	{command: "fila serve --config /etc/fila/config.toml --check", before: "mkdir -p etc/fila && : >etc/fila/config.toml", instead: "fila serve --config etc/fila/config.toml --check"},
	{command: "fila serve --config /etc/fila/config.toml", before: "mkdir -p etc/fila && : >etc/fila/config.toml", instead: "fila_serve --config etc/fila/config.toml"},
	{page: "examples/safety/README.md", command: "fila serve", before: `cp "$REPOSITORY/examples/safety/safety.toml" .`, instead: "fila_serve"},
	{command: "fila serve", instead: "fila_serve"},

	// docs/cli.md: what its examples need.
	{page: cliPage, command: "fila apply", before: aDocument},
	{page: cliPage, command: "fila diff", before: aDocument},
	{page: applyPage, command: "fila diff", fails: true}, // exit code 2: it would change something
	{page: cliPage, command: "fila circuit close", before: "fila circuit open stripe"},
	{page: cliPage, command: "fila circuit reset", before: "fila circuit open stripe"},
	{page: cliPage, command: "fila circuit show", before: "fila circuit open stripe"},
	{page: cliPage, command: "fila config delete", before: "fila config set feature:new-router on"},
	{page: cliPage, command: "fila config get", before: "fila config set feature:new-router on"},
	{page: cliPage, command: "fila consume orders.dlq --no-ack", before: deadLetter, instead: "first_line fila consume orders.dlq --no-ack"},
	{page: cliPage, command: "fila consume orders.dlq --json", before: deadLetter + "; fila redrive orders.dlq; " + deadLetter},
	{page: cliPage, command: "fila consume orders --count 10", before: "for i in 1 2 3 4 5 6 7 8 9 10; do fila publish orders $i; done"},
	{page: cliPage, command: "fila status --json"},         // jq ends with its own exit code
	{page: cliPage, command: "fila status", fails: true},   // the queues above have no consumers
	{page: cliPage, command: "fila cluster ", fails: true}, // this fila is not in a cluster
	{page: cliPage, command: "fila consume orders --exec", skip: "calls a server on the Internet; the line above shows --exec"},
	{page: cliPage, command: "fila consume orders", before: "fila publish orders hello", instead: "first_line fila consume orders"},
	{page: cliPage, command: "fila consume mails --exec", before: "printf '#!/bin/sh\\ncat; echo\\n' >send.sh && chmod +x send.sh && fila publish mails hello", instead: "first_line fila consume mails --exec"},
	{page: cliPage, command: "fila explain key", before: "fila queue update orders --fairness-header tenant && fila publish orders hello -H tenant:acme", after: "fila queue update orders --fairness-header ''"},
	{page: cliPage, command: "fila message delete", before: "id=$(fila publish orders hello)"},
	{page: cliPage, command: "fila message", before: "id=$(fila publish orders hello --delay 1h)"},
	{page: cliPage, command: "fila explain message", before: "id=$(fila publish orders hello -H tenant=acme)"},
	{page: cliPage, command: "fila hook show orders", before: hookFiles + "; fila hook set orders orders.lua; fila hook set orders retry.lua --hook on_failure"},
	{page: cliPage, command: "fila hook set orders fair.lua", before: hookFiles + "; cp orders.lua fair.lua"},
	{page: cliPage, command: "fila hook rollback orders", before: hookFiles + "; fila hook set orders orders.lua"},
	{page: cliPage, command: "fila hook reset", before: hookFiles + "; fila queue update orders --on-enqueue orders.lua --on-failure retry.lua"},
	{page: cliPage, command: "fila man man && man -l", skip: "needs man; the line above writes the pages"},
	{page: cliPage, command: "fila publish orders --delay", before: "echo '{}' >order.json"},
	{page: cliPage, command: "fila publish orders --file order.json --count 1000 --rate 50", before: "echo '{}' >order.json", instead: "fila publish orders --file order.json --count 20 --rate 50"},
	{page: cliPage, command: "tail -F access.log", before: "echo one >access.log", instead: "tail -n 5 access.log"},
	{page: cliPage, command: "fila queue create orders --fairness-header", before: "fila queue delete orders --force"},
	{page: cliPage, command: "fila queue create orders --on-enqueue", before: hookFiles + "; fila queue delete orders --force"},
	{page: cliPage, command: "fila queue delete orders --force", after: "fila queue create orders"},
	{page: cliPage, command: "fila queue delete orders", before: "fila queue delete orders --force; fila queue create orders", after: "fila queue create orders"},
	{page: cliPage, command: "fila redrive", before: deadLetter},
	{page: cliPage, command: "fila resume circuit stripe", before: "fila pause circuit stripe"},
	{page: cliPage, command: "fila resume key orders acme", before: "fila pause key orders acme"},
	{page: cliPage, command: "fila resume queue orders", before: "fila pause queue orders"},
	{page: cliPage, command: "fila resume throttle stripe", before: "fila pause throttle stripe"},
	{page: cliPage, command: "fila store accept-loss", before: "mv var/lib/fila/fila.db newest.db", after: "mv newest.db var/lib/fila/fila.db"},
	{page: cliPage, command: "fila store compact /var/lib/fila --keep", before: "rm -f var/lib/fila/before.db"},
	{page: cliPage, command: "fila store export backup.db --all --to", before: "rm -f store.jsonl"},
	{page: cliPage, command: "fila store import", before: "rm -rf var/lib/fila"},
	{page: cliPage, command: "gunzip -c store.jsonl.gz", before: "rm -rf var/lib/fila; gzip -kf store.jsonl"},
	{page: cliPage, command: "fila throttle set stripe --rate 20 --if-rate 10", before: "fila throttle clear stripe; fila throttle set stripe --rate 10"},
	{page: cliPage, command: "fila throttle clear", before: "fila throttle set stripe --rate 10 --force && fila throttle set 'tenant:*' --rate 10"},
	{page: cliPage, command: "fila job show", before: someJob},
	{page: cliPage, command: "fila job pause", before: waitingJob},
	{page: cliPage, command: "fila job resume", before: waitingJob},
	{page: cliPage, command: "fila job cancel", before: waitingJob},
	{page: cliPage, command: "fila schedule add orders launch", before: "echo x >launch.json"},
	{page: cliPage, command: "fila schedule delete", before: aSchedule},
	{page: cliPage, command: "fila schedule pause", before: aSchedule},
	{page: cliPage, command: "fila schedule resume", before: aSchedule},
	{page: cliPage, command: "fila schedule show", before: aSchedule},
	{page: cliPage, command: "fila budget", before: "fila throttle set tenant:acme --budget 5000000 --period month --force"},
	{page: cliPage, command: "fila throttle adapt", before: "fila throttle set llm:openai --concurrency 60 --adapt overload,min=4 --force"},
	{page: cliPage, command: "fila throttle show", before: "fila throttle set stripe --rate 10 --force"},
	{page: cliPage, command: "fila top --once"},
	{page: cliPage, command: "fila top", skip: "draws on a terminal until it is interrupted; cli/opscmd/top_test.go draws it"},
	{page: cliPage, command: "fila watch", before: "(while sleep 0.2; do fila queue create watched; " + deadLetter + "; fila queue delete watched; done) >/dev/null 2>&1 & provoke=$!", instead: "first_line fila watch", after: "kill $provoke"},

	{page: runbookPage, command: "systemctl ", skip: "needs systemd"},
	{page: runbookPage, command: "journalctl ", skip: "needs systemd"},
	{page: runbookPage, command: "curl ", skip: "the port differs here; sidecar/e2e asks it"},
	{page: runbookPage, command: "df ", skip: "the directory differs here"},
	{page: runbookPage, command: "ls ", skip: "the directory differs here"},
	{page: runbookPage, command: "iostat ", skip: "needs sysstat"},
	{page: runbookPage, command: "nats kv ", skip: "needs a bucket"},
	{page: "docs/attention.md", command: "fila status", skip: "its findings are an example"},
	{page: runbookPage, command: "fila cluster ", fails: true}, // this fila is not in a cluster

	{page: "docs/protocol.md", command: "nats sub ", instead: "nats sub >sub.out ", after: "await 'the subscription' [ -e subscribed ]"},
	{page: "docs/protocol.md", command: "nats req 'fila.ack.0.<token>", before: "await 'a delivery' [ -s token ]"},
	{page: "docs/protocol.md", command: "nats req fila.admin.queue-create", before: "fila queue delete orders --force"},
}

const (
	cliPage        = "docs/cli.md"
	applyPage      = "docs/apply.md"
	clusterPage    = "docs/cluster.md"
	comingFromPage = "docs/coming-from.md"
	storyPage      = "docs/workbench.md"
	deadLetter     = "fila publish orders dead --ttl 1s >/dev/null; " + untilDead
	aSchedule      = "fila schedule add orders nightly @daily"
	someJob        = "job=$(fila job create orders cancel --all --limit 1 --json | sed -n 's/^ *\"id\": \"\\(.*\\)\",*$/\\1/p')"
	waitingJob     = "for i in 1 2 3 4 5 6; do fila publish mails x >/dev/null; done; job=$(fila job create mails delay --all --run-at 1h --rate 1 --json | sed -n 's/^ *\"id\": \"\\(.*\\)\",*$/\\1/p')"
	untilDead      = "await 'a dead letter' orders_died"
	aDocument      = "mkdir -p fila; echo '{kind: Throttle, name: paypal, spec: {rate: 5}}' >fila/paypal.yaml"
	hookFiles      = "echo 'function on_enqueue(msg) return {} end' >orders.lua; echo 'function on_failure(msg) return { action = \"retry\" } end' >retry.lua"
)

// pageSetup has the commands to run before the first command of a page.
var pageSetup = map[string][]string{
	cliPage: {
		// The examples of `fila store` need a store that no process has open.
		"fila_serve --data-dir var/lib/fila; fila queue create orders && fila publish orders hello; stop_server; cp var/lib/fila/fila.db backup.db; mkdir -p mnt/backup",
		": >config.toml; fila_serve", "fila queue create orders", "fila queue create mails", "fila queue create lines", "fila circuit open stripe", "fila throttle set stripe --rate 10",
	},
	applyPage:                   {"fila_serve", "mkdir fila; echo 'function on_failure(msg) return { action = \"retry\" } end' >fila/retry.lua"},
	"docs/protocol.md":          {"fila_serve", "fila queue create orders"},
	"docs/configuration.md":     {"fila_serve"},
	"docs/limits-that-learn.md": {"fila_serve", "fila throttle set llm:openai --concurrency 60 --adapt overload,min=4"},
	runbookPage:                 {"fila_serve", "fila queue create orders", "fila circuit open stripe", deadLetter},
	storyPage:                   {"fila_serve", "fila queue create orders"},
	"docs/autoscaling.md": {
		"fila_serve", "fila queue create orders --throttle-header vendor", "fila queue create mails", "export HOSTNAME=worker-1",
		`nats req fila.consumer.worker-1.mails '{"max_in_flight":1}'`,
	},
	comingFromPage:      {"fila_serve"},
	"docs/schedules.md": {"fila_serve", "fila queue create orders"},
	"docs/hooks.md":     {"fila_serve", "echo 'function on_enqueue(msg) return { fairness_key = msg.headers[\"tenant\"] } end' >fair.lua"},
}

func wayOf(page, command string) way {
	for _, w := range ways {
		if (w.page == "" || w.page == page) && strings.HasPrefix(command, w.command) {
			return w
		}
	}
	return way{}
}

// rewrite returns the command to run: paths of the system become paths in the page's directory,
// ids become ids of messages that exist.
func (w way) rewrite(command string) string {
	if w.instead != "" {
		command = w.instead + strings.TrimPrefix(command, w.command)
		if strings.Contains(w.instead, "fila_serve") {
			command = strings.TrimSuffix(command, " &")
		}
	}
	return strings.NewReplacer(
		"01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80", `"$id"`,
		"01981c2e-9a30-7b12-8f00-6c1d2e3f4a5b", `"$job"`,
		"'fila.ack.0.<token>.orders'", `"fila.ack.0.$(cat token).orders"`,
		"'fila.nack.0.<token>.orders'", `"fila.nack.0.$(cat token).orders"`,
		" /var/lib/fila", " var/lib/fila",
		" /mnt/backup", " mnt/backup",
		" /usr/local/share", " usr/local/share",
		"nats://nats:4222", `"$NATS_URL"`,
		"nats://127.0.0.1:4222", `"$NATS_URL"`,
	).Replace(command)
}

// Every row of ways matches a command of a page.
func TestWaysMatchCommands(t *testing.T) {
	used := map[string]bool{}
	for name, text := range markdown(t) {
		for _, b := range blocks(name, text) {
			for _, s := range b.steps() {
				used[wayOf(name, s.command).command] = true
			}
		}
	}
	for _, w := range ways {
		require.True(t, used[w.command], "no command begins with %q", w.command)
	}
}
