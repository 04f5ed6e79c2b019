package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func TestPlainOutputs(t *testing.T) {
	f := clitest.StartFake(t)
	was := "4"
	f.Answer("fila.admin.queue-delete.orders", api.QueueDeleteReply{Deleted: 1})
	f.Answer("fila.admin.queue-delete.filed", api.QueueDeleteReply{Warnings: []string{"it comes back"}})
	f.Answer("fila.admin.redrive.orders.dlq", api.RedriveReply{Redriven: 2, Job: "j-1"})
	f.Answer("fila.admin.config-set.a", api.ConfigSetReply{Key: "a", Value: "5", Previous: &was})
	f.Answer("fila.admin.config-get.a", api.ConfigEntry{Key: "a", Value: "line 1\nline 2"})
	f.Answer("fila.admin.config-delete.a", api.ConfigEntry{Key: "a", Value: "5"})
	f.Answer("fila.admin.config-list", api.ConfigList{Total: 1, Entries: []api.ConfigEntry{{Key: "a", Value: "5"}}})
	f.Answer("fila.admin.hook-reset.orders", api.HookResetReply{Queue: "orders", Hooks: []api.HookInfo{{Hook: "on_failure", State: "closed"}}})
	for _, tc := range []struct {
		args, out, body string
	}{
		{"queue delete orders --force", "queue orders deleted, 1 message with it\n", `{"force":true}`},
		{"queue delete filed", "queue filed deleted, 0 messages with it\nwarning: it comes back\n", `{}`},
		{"queue rm orders", "queue orders deleted, 1 message with it\n", `{}`},
		{"redrive orders --count 10", "2 messages redriven from orders.dlq, job j-1\n", `{"count":10}`},
		{"hook reset orders.dlq", "HOOK        CIRCUIT\non_failure  closed\n", `{}`},
		{"redrive orders.dlq --count 10", "2 messages redriven from orders.dlq, job j-1\n", `{"count":10}`},
		{"config set a 5 --if-value 4", "a = 5 (was 4)\n", `{"value":"5","if_value":"4"}`},
		{"config set a -- -5", "a = 5 (was 4)\n", `{"value":"-5"}`},
		{"config get a", "line 1\nline 2\n", ""},
		{"config delete a", "a deleted (was 5)\n", ""},
		{"config list x:", "KEY  VALUE\na    5\n", `{"prefix":"x:","limit":1000}`},
		{"hook reset orders --hook on_failure", "HOOK        CIRCUIT\non_failure  closed\n", `{"hook":"on_failure"}`},
	} {
		r := program.Run(t, "", strings.Fields(tc.args)...)
		require.Equal(t, clitest.Ended(command.ExitOK, tc.out, ""), r, tc.args)
		if body := f.Next().Data; tc.body != "" {
			require.JSONEq(t, tc.body, string(body))
		}
		r = clitest.OK(t, program.Run(t, "", append(strings.Fields("--json"), strings.Fields(tc.args)...)...))
		require.True(t, json.Valid([]byte(r.Out)), tc.args)
		f.Next()
	}
}

// Every argument that is a queue has suggestions for misspelled names.
func TestUnknownQueue(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.admin.queue-list", api.QueueList{Total: 3, Queues: []api.QueueSummary{{Name: "mail"}, {Name: "orders"}, {Name: "orders.dlq"}}})
	for _, subject := range []string{"fila.admin.*.ordres", "fila.admin.*.ordres.dlq", "fila.admin.explain", "fila.admin.pause", "fila.admin.resume", "fila.admin.message-show", "fila.admin.message-delete", "fila.admin.message-run-now", "fila.admin.job-create.redrive.*", "fila.admin.job-create.redrive.*.dlq", "fila.admin.job-list", "fila.admin.schedule-list", "fila.admin.attention", "fila.admin.annotate", "fila.admin.marks"} {
		f.Answer(subject, wire.QueueNotFound("ordres"))
	}
	more := map[string][]string{ // what these need, too
		"fila queue update": {"--max-depth", "5"},
		"fila publish":      {"text"},
		"fila job create":   {"--all"},
	}
	script := filepath.Join(t.TempDir(), "hook.lua")
	require.NoError(t, os.WriteFile(script, []byte("function on_enqueue(msg) return {} end"), 0o600))
	seen := 0
	ask := func(cmd *cobra.Command, meant string, args ...string) {
		seen++
		line := append(append(strings.Fields(cmd.CommandPath())[1:], args...), more[cmd.CommandPath()]...)
		clitest.Complains(t, program.Run(t, "", line...), command.ExitNotFound, ": did you mean "+meant+"? `fila queue list` lists the queues [err_code 10404]")
	}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		required, placeholders := []string{}, strings.Fields(cmd.Use)[1:]
		meant := ""
		for _, placeholder := range placeholders {
			switch {
			case placeholder == "QUEUE":
				required, meant = append(required, "ordres"), "orders"
			case placeholder == "QUEUE.dlq":
				required, meant = append(required, "ordres.dlq"), "orders.dlq"
			case placeholder == "FILE":
				required = append(required, script)
			case placeholder == "OP":
				required = append(required, "redrive")
			case !strings.HasPrefix(placeholder, "["):
				required = append(required, "01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80")
			}
		}
		if meant != "" && cmd.CommandPath() != "fila queue create" {
			ask(cmd, meant, required...)
		}
		cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			if placeholder, _ := pflag.UnquoteUsage(flag); placeholder != "queue" || cmd.Name() == "watch" { // which may wait for one
				return
			}
			if len(placeholders) > 0 && placeholders[0] == "QUEUE" {
				required = required[1:] // the flag says it
			}
			ask(cmd, "orders", append(required, "--"+flag.Name, "ordres")...)
		})
	}
	visit(root())
	require.GreaterOrEqual(t, seen, 17)

	f.Answer("fila.admin.queue-list", api.QueueList{Total: 1, Queues: []api.QueueSummary{{Name: "mail"}}})
	require.Equal(t, "fila: no such queue \"ordres\": `fila queue list` lists the queues [err_code 10404]\n", program.Run(t, "", "peek", "ordres").Err)
	f.Answer("fila.admin.queue-list", wire.Draining())
	require.Equal(t, "fila: no such queue \"ordres\": `fila queue list` lists the queues [err_code 10404]\n", program.Run(t, "", "peek", "ordres").Err)
}

// A list of keys takes their beginning as an argument or as --prefix.
func TestListsByPrefix(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.admin.config-list", api.ConfigList{})
	f.Answer("fila.admin.config-log", api.ConfigLog{})
	f.Answer("fila.admin.throttle-list", api.ThrottleList{})
	f.Answer("fila.admin.circuit-list", api.CircuitList{})
	require.Equal(t, "no keys\n", program.Run(t, "", "config", "list").Out)
	f.Next()
	for _, list := range []string{"config list", "config log", "throttle list", "circuit list"} {
		for line, want := range map[string]string{list: "", list + " feature:": "feature:", list + " --prefix feature:": "feature:"} {
			clitest.OK(t, program.Run(t, "", strings.Fields(line)...))
			req, bad := api.VerbConfigList.Parse("", f.Next().Data)
			require.Nil(t, bad)
			require.Equal(t, want, req.Prefix, line)
		}
		program.Mistakes(t, map[string]string{list + " a --prefix b": "KEY-PREFIX and --prefix say the same: one of them is allowed"})
	}
	f.Answer("other.admin.queue-list", api.QueueList{})
	clitest.OK(t, program.Run(t, "", "queue", "list", "--subject-prefix", "other"))
	program.Mistakes(t, map[string]string{"queue list --subject-prefix a..b": "--subject-prefix: "})
}

// The help topic flags lists the common flags once; every page refers to it.
func TestHelpHasGlobalFlagsOnce(t *testing.T) {
	topic := clitest.OK(t, program.Run(t, "", "help", "flags")).Out
	globals := root().PersistentFlags()
	n := 0
	globals.VisitAll(func(f *pflag.Flag) {
		n++
		require.Contains(t, topic, "--"+f.Name+" ")
	})
	require.Greater(t, n, 10)
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if command.IsTopic(cmd) {
			return
		}
		page := clitest.OK(t, program.Run(t, "", append(strings.Fields(cmd.CommandPath())[1:], "--help")...)).Out
		require.Contains(t, page, "Usage:\n  "+cmd.CommandPath())
		require.Contains(t, page, "\nFlags of every command, such as --server, --timeout and --json: fila help flags\n", cmd.CommandPath())
		require.NotContains(t, page, "--tlscert", cmd.CommandPath())
		if cmd.HasParent() {
			require.Contains(t, page, cmd.Example)
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			require.Equal(t, !f.Hidden, strings.Contains(page, "--"+f.Name), "%s --%s", cmd.CommandPath(), f.Name)
		})
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				require.Contains(t, page, "\n  "+sub.Name()+" ")
				visit(sub)
			}
		}
	}
	visit(root())
}

func TestExitCodes(t *testing.T) {
	f := clitest.StartFake(t)
	for code, want := range map[int]int{400: command.ExitUsage, 404: command.ExitNotFound, 409: command.ExitConflict, 413: command.ExitUsage, 429: command.ExitRefused, 500: command.ExitFailed, 503: command.ExitRefused} {
		subject := "fila.admin.queue-delete.q" + strings.Repeat("x", code-399)
		f.Answer(subject, &wire.Error{Code: code, ErrCode: 20_000 + code, Description: "because", RetryAfter: time.Second})
		r := program.Run(t, "", "queue", "delete", strings.TrimPrefix(subject, "fila.admin.queue-delete."))
		require.Equal(t, want, r.Code)
		require.Contains(t, r.Err, "fila: because (retry in 1s) [err_code 20")
		require.Empty(t, r.Out)
	}
}

func TestNobodyAnswers(t *testing.T) {
	f := clitest.StartFake(t)
	url := os.Getenv("NATS_URL")
	r := program.Run(t, "", "queue", "list")
	require.Equal(t, clitest.Ended(command.ExitConnect, "", "fila: no fila listens at "+url+` under the prefix "fila": is `+"`fila serve` running and connected to this NATS server?\n"), r)

	f.Handle("fila.admin.queue-list", func(*nats.Msg) any { return nil })
	clitest.Complains(t, program.Run(t, "", "queue", "list", "--timeout", "20ms"), command.ExitFailed, "no reply in time")

	page := 0 // of a list without end
	f.Handle("fila.admin.throttle-list", func(*nats.Msg) any {
		page++
		return api.ThrottleList{Total: 1 << 30, Next: strconv.Itoa(page), Throttles: []api.ThrottleInfo{{Key: strconv.Itoa(page)}}}
	})
	clitest.Complains(t, program.Run(t, "", "throttle", "list", "--timeout", "50ms"), command.ExitFailed, "no reply in time")

	r = program.Run(t, "", "queue", "list", "--server", "nats://me:secret@127.0.0.1:1")
	require.Equal(t, command.ExitConnect, r.Code)
	require.Equal(t, "fila: no NATS server answers at nats://me:xxxxx@127.0.0.1:1: start one with `fila serve`, or name another with --server, --context or NATS_URL\n", r.Err)
}

func TestUsageErrors(t *testing.T) {
	clitest.Isolate(t)
	t.Setenv("NATS_URL", "nats://127.0.0.1:1")
	dir := t.TempDir()
	program.Mistakes(t, map[string]string{
		"nosuch":                     `unknown command "nosuch" for "fila"`,
		"que":                        `unknown command "que" for "fila" (did you mean queue?)`,
		"queue lst":                  `unknown command "lst" for "fila queue" (did you mean list?)`,
		"hook nosuch":                `unknown command "nosuch" for "fila hook"`,
		"queue create":               "QUEUE is missing (see `fila queue create --help`)",
		"hook run":                   "FILE is missing (see `fila hook run --help`)",
		"hook check":                 "FILE is missing (see `fila hook check --help`)",
		"hook run a b":               `unexpected argument "b"`,
		"queue create a b":           `unexpected argument "b" (see`,
		"queue list --nosuch":        "unknown flag: --nosuch (see `fila queue list --help`)",
		"queue create a --quantum x": `--quantum "x": allowed is a whole number`,
		"queue create a --visibility-timeout soon":     `allowed is a duration such as 30s`,
		"queue create a --on-enqueue " + dir:           "--on-enqueue: " + dir + ": is a directory",
		"queue create a --enqueue-rate fast":           "--enqueue-rate: allowed is a number per second such as 10 or 0.5",
		"queue create a --on-enqueue nosuch.lua":       "--on-enqueue: nosuch.lua: no such file or directory",
		"queue create a --on-enqueue - --on-failure -": "standard input can be read once",
		"publish a x -H tenant":                        `--header "tenant": allowed is name=value or name:value`,
		"publish a x -H =acme":                         `--header "=acme": allowed is name=value`,
		"publish a x --delay -5s":                      "allowed is a duration",
		"publish a x --dedupe-id=":                     "--dedupe-id is empty",
		"consume a --count -1":                         "--count -1: allowed is 0",
		"redrive a.dlq --count -1":                     "--count -1: allowed is 0",
		"queue list --timeout 0":                       "--timeout 0s: allowed is 1ms and more",
		"queue list --context nosuch":                  `NATS context "nosuch" does not exist`,
		"queue list --token a --creds b":               "more than one way to log in",
		"queue list --tlscert a":                       "--tlscert and --tlskey go together",
	})
	require.Equal(t, command.ExitOK, program.Run(t, "", "queue").Code)
	require.Equal(t, command.ExitOK, program.Run(t, "", "--help").Code)
}

// Every flag that is a duration refuses a number without a unit.
func TestBareDurations(t *testing.T) {
	seen := 0
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "duration" {
				return
			}
			seen++
			require.ErrorContains(t, f.Value.Set("5"), "write 5ms or 5s", "%s --%s", cmd.CommandPath(), f.Name)
			require.NoError(t, f.Value.Set("0"), "%s --%s", cmd.CommandPath(), f.Name)
		})
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root())
	require.Greater(t, seen, 20)
	clitest.Isolate(t)
	t.Setenv("NATS_URL", "nats://127.0.0.1:1")
	program.Mistakes(t, map[string]string{
		"queue create a --visibility-timeout 30000": `fila: --visibility-timeout "30000" has no unit: write 30s (30000 milliseconds) or 30000s; allowed is`,
		"queue create a --visibility-timeout 5":     `"5" has no unit: write 5ms or 5s`,
		"publish a x --delay 5000":                  `fila: --delay "5000" has no unit: write 5s (5000 milliseconds) or 5000s`,
		"schedule add a b @hourly --ttl 5000":       `fila: --ttl "5000" has no unit: write 5s (5000 milliseconds) or 5000s`,
		"peek a --enqueued-after 90":                `fila: --enqueued-after is "90": the unit is missing, as in 90s or 90m; allowed are`,
		"throttle set a --if-window 5":              "write 5ms or 5s",
	})
	t.Setenv("NATS_TIMEOUT", "5")
	program.Mistakes(t, map[string]string{"queue list": "NATS_TIMEOUT = \"5\" has no unit: write 5ms or 5s"})
}

// A NATS permission error ends a command at once, with its own exit code.
func TestPermissionsAreKnownAtOnce(t *testing.T) {
	clitest.Isolate(t)
	srv := clitest.StartNATS(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "u", Password: "p", Permissions: &server.Permissions{
				Publish:   &server.SubjectPermission{Allow: []string{"fila.enqueue.mine"}},
				Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.u.>"}},
			}},
			{Username: "deaf", Password: "p", Permissions: &server.Permissions{Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.u.>"}}}},
		}
	})
	t.Setenv("NATS_URL", srv.ClientURL())
	t.Setenv("NATS_PASSWORD", "p")
	t.Setenv("NATS_TIMEOUT", "1h")
	for line, says := range map[string]string{
		"publish other x --user u --inbox-prefix _INBOX.u":              "permissions do not allow to publish to fila.enqueue.other, so nothing was done",
		"publish other x --count 9 --user u --inbox-prefix _INBOX.u":    "permissions do not allow to publish to fila.enqueue.other, so nothing was done",
		"publish other x --no-confirm --user u --inbox-prefix _INBOX.u": "fila.enqueue.other",
		"consume other --user u --inbox-prefix _INBOX.u":                "permissions do not allow to subscribe to fila.deliver.",
		"queue list --user u --inbox-prefix _INBOX.u":                   "publish to fila.admin.queue-list, so nothing was done; docs/security.md has",
		"queue list --user deaf":                                        "permissions do not allow to subscribe to _INBOX.",
		"publish q x --user deaf":                                       "permissions do not allow to subscribe to _INBOX.",
	} {
		clitest.Complains(t, program.Run(t, "", strings.Fields(line)...), command.ExitDenied, says)
	}
}

func TestContexts(t *testing.T) {
	home := clitest.Isolate(t)
	srv := clitest.StartNATS(t, nil)
	write := func(name, text string) {
		path := filepath.Join(home, "nats", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("context/a.json", `{"description":"","url":"nats://a:1","user":"u","password":"p","creds":"","ca":"~/ca.pem","inbox_prefix":"_INBOX.u","jetstream_domain":"x"}`)
	write("context/b.json", `{"url":"nats://b:1","creds":"$CREDS_DIR/b.creds"}`)
	write("context/nsc.json", `{"nsc":"nsc://x"}`)
	write("context/bad.json", `{"url":`)
	write("context/first.json", `{"url":"nats://a:1","tls_first":true}`)
	t.Setenv("HOME", "/home/me")
	t.Setenv("CREDS_DIR", "/creds")

	settle := func(args ...string) (*command.Settled, error) {
		a := &app{Env: &command.Env{}}
		cmd := newRootCommand(a)
		require.NoError(t, cmd.ParseFlags(args))
		return a.Conn.Settle()
	}
	must := func(args ...string) config.NATSContext {
		s, err := settle(args...)
		require.NoError(t, err)
		return s.NATSContext
	}
	require.Equal(t, config.NATSContext{URL: command.DefaultServer}, must())
	a := config.NATSContext{URL: "nats://a:1", User: "u", Password: "p", CA: "/home/me/ca.pem", InboxPrefix: "_INBOX.u"}
	require.Equal(t, a, must("--context", "a"))
	require.Equal(t, a, must("--context", filepath.Join(home, "nats", "context", "a.json")))
	require.Equal(t, "/creds/b.creds", must("--context", "b").Creds)

	write("context.txt", "a\n")
	require.Equal(t, a, must(), "the selected one")
	require.Equal(t, "nats://b:1", must("--context", "b").URL)
	t.Setenv("NATS_CONTEXT", "b")
	require.Equal(t, "nats://b:1", must().URL)
	require.Equal(t, a, must("--context", "a"), "flag over environment")
	t.Setenv("NATS_CONTEXT", "")

	own := must("--token", "t", "--server", "nats://own:1")
	require.Equal(t, config.NATSContext{URL: "nats://own:1", Token: "t", CA: a.CA, InboxPrefix: a.InboxPrefix}, own, "a login replaces the context's")
	require.Equal(t, "solo", must("--user", "solo").Token, "a user without password is a token")
	t.Setenv("NATS_URL", "nats://env:1")
	require.Equal(t, "nats://env:1", must().URL)
	require.Equal(t, "nats://flag:1", must("-s", "nats://flag:1").URL)

	for name, want := range map[string]string{
		"nsc": "uses nsc, which fila does not support", "bad": "unexpected end of JSON", "../a": "not a name of a context",
	} {
		_, err := settle("--context", name)
		require.ErrorContains(t, err, want)
	}
	t.Setenv("NATS_TIMEOUT", "soon")
	_, err := settle()
	require.ErrorContains(t, err, "NATS_TIMEOUT = ")
	t.Setenv("NATS_TIMEOUT", "2s")
	s, err := settle()
	require.NoError(t, err)
	require.Equal(t, 2*time.Second, s.Timeout)
	_ = srv
}

func TestLogin(t *testing.T) {
	clitest.Isolate(t)
	srv := clitest.StartNATS(t, func(o *server.Options) { o.Username, o.Password = "me", "secret" })
	args := []string{"queue", "list", "--server", srv.ClientURL()}
	clitest.Complains(t, program.Run(t, "", args...), command.ExitConnect, "Authorization Violation")
	r := program.Run(t, "", append(args, "--user", "me", "--password", "secret")...)
	require.Contains(t, r.Err, "no fila listens", "logged in")
}

// TestARedriveThatTakesLong shows that the job continues after the command stops waiting.
func TestARedriveThatTakesLong(t *testing.T) {
	f := clitest.StartFake(t)
	f.Handle("fila.admin.redrive.orders.dlq", func(*nats.Msg) any { return nil })
	r := program.Run(t, "", "redrive", "orders.dlq", "--timeout", "50ms")
	clitest.Complains(t, r, command.ExitFailed, "a redrive is a job and goes on: `fila job list --queue orders` shows it")
}

// TestProblemsAsJSON expects problems on one line of standard error, with the fields of an
// error reply, an empty standard output, and the usual exit codes.
func TestProblemsAsJSON(t *testing.T) {
	f := clitest.StartFake(t)
	full := &wire.Error{Code: 429, ErrCode: wire.CodeBacklogMessages, Description: `queue "orders" is full`, RetryAfter: 1500 * time.Millisecond}
	f.Answer("fila.admin.queue-delete.orders", full)
	for line, want := range map[string]struct {
		code int
		json string
	}{
		"queue delete orders --json":             {command.ExitRefused, `{"code":429,"err_code":10429,"name":"backlog_full","description":"queue \"orders\" is full","retry_after_ms":1500}`},
		"queue list --server 127.0.0.1:1 --json": {command.ExitConnect, "{\"description\":\"no NATS server answers at 127.0.0.1:1: start one with `fila serve`, or name another with --server, --context or NATS_URL\"}"},
		"queue list --nosuch --json":             {command.ExitUsage, "{\"description\":\"unknown flag: --nosuch (see `fila queue list --help`)\"}"},
		"--json queue inspect":                   {command.ExitUsage, "{\"description\":\"QUEUE is missing (see `fila queue inspect --help`)\"}"},
	} {
		r := program.Run(t, "", strings.Fields(line)...)
		require.Equal(t, want.code, r.Code, line)
		require.Empty(t, r.Out, line)
		require.JSONEq(t, `{"error":`+want.json+`}`, r.Err, line)
		require.Equal(t, 1, strings.Count(r.Err, "\n"), "one line: %s", r.Err)
	}
	r := program.Run(t, "", "queue", "list", "--nosuch", "--", "--json")
	require.Equal(t, "fila: unknown flag: --nosuch (see `fila queue list --help`)\n", r.Err, "what follows -- is no flag")
}
