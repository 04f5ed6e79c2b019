package sidecar

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/cluster/transfer"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/e2e/natstest"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// natsBlock returns the block of docs/security.md that begins with this line, without it.
func natsBlock(t *testing.T, first string) string {
	t.Helper()
	page, err := os.ReadFile("../docs/security.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(page), "```nats\n"+first+"\n")
	require.True(t, ok, "docs/security.md has no block that begins with %s", first)
	block, _, ok := strings.Cut(rest, "```")
	require.True(t, ok)
	return block
}

// permissionBlock is the nats-server configuration of docs/security.md.
func permissionBlock(t *testing.T) string {
	t.Helper()
	return "authorization {\n" + natsBlock(t, "authorization {")
}

// withOperators adds the users with fewer permissions than an operator.
func withOperators(t *testing.T) func(permissions string) string {
	return func(permissions string) string {
		return strings.Replace(permissions, "  users = [\n", "  users = [\n{\n"+natsBlock(t, "{"), 1)
	}
}

// setPasswords sets the variables in the permissions of docs/security.md.
func setPasswords() {
	for _, user := range []string{"FILA", "PRODUCER", "WORKER_1", "WORKER_2", "CALLER", "OPERATOR", "VIEWER", "ON_CALL"} {
		_ = os.Setenv(user+"_PASSWORD", strings.ReplaceAll(strings.ToLower(user), "_", "-")+"-secret")
	}
}

// guarded is a site behind a NATS server with the permissions of docs/security.md.
type guarded struct {
	t       *testing.T
	url     string
	refused chan string // refusals of NATS
}

// startGuarded starts both. change alters the text of the permissions and may be nil; more alters the
// configuration of fila.
func startGuarded(t *testing.T, change func(permissions string) string, more ...func(*config.Config)) (*guarded, *testSite) {
	t.Helper()
	permissions := permissionBlock(t)
	if change != nil {
		permissions = change(permissions)
	}
	conf := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(conf, []byte(permissions), 0o600))
	ns := natstest.Start(t, func(o *server.Options) {
		given, err := server.ProcessConfigFile(conf)
		require.NoError(t, err)
		given.Host, given.Port, given.NoSigs, given.NoLog = o.Host, o.Port, true, true
		*o = *given
	})
	g := &guarded{t: t, url: ns.URL, refused: make(chan string, 64)}
	return g, startSite(t, t.TempDir(), func(c *config.Config) {
		c.NATS.URL, c.NATS.User, c.NATS.Password = ns.URL, "fila", "fila-secret"
		for _, change := range more {
			change(c)
		}
	})
}

// withJetStream returns a change of permissions for startGuarded.
func withJetStream(t *testing.T) func(permissions string) string {
	return func(permissions string) string {
		return permissions + fmt.Sprintf("\njetstream { store_dir: %q }\n", t.TempDir())
	}
}

func (g *guarded) connect(user string) *nats.Conn {
	g.t.Helper()
	nc, err := nats.Connect(g.url, nats.UserInfo(user, user+"-secret"), nats.CustomInboxPrefix("_INBOX."+user),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { g.refused <- user + ": " + err.Error() }))
	require.NoError(g.t, err)
	g.t.Cleanup(nc.Close)
	return nc
}

// ask sends a request and returns the reply, which may be an error.
func (g *guarded) ask(nc *nats.Conn, subject, body string) (*nats.Msg, *wire.Error) {
	g.t.Helper()
	m, err := nc.Request(subject, []byte(body), patience)
	require.NoError(g.t, err, subject)
	return m, wire.ParseError(m.Header, m.Data)
}

func (g *guarded) request(nc *nats.Conn, subject, body string) *nats.Msg {
	g.t.Helper()
	m, werr := g.ask(nc, subject, body)
	require.Nil(g.t, werr, subject)
	return m
}

// cannotPublish checks that NATS refuses a publish.
func (g *guarded) cannotPublish(nc *nats.Conn, subject, reply, body string) {
	g.t.Helper()
	require.NoError(g.t, nc.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: []byte(body)}))
	require.NoError(g.t, nc.Flush())
	require.Contains(g.t, strings.ToLower(<-g.refused), strings.ToLower("permissions violation for publish to \""+subject))
}

// cannotSubscribe checks that NATS refuses a subscription, also in a queue group.
func (g *guarded) cannotSubscribe(nc *nats.Conn, subject string) {
	g.t.Helper()
	for _, group := range []string{"", "group"} {
		sub, err := nc.QueueSubscribeSync(subject, group)
		require.NoError(g.t, err)
		require.NoError(g.t, nc.Flush())
		require.Contains(g.t, strings.ToLower(<-g.refused), strings.ToLower("permissions violation for subscription to \""+subject))
		_ = sub.Unsubscribe() // NATS has removed it
	}
}

func nextOf(t *testing.T, sub *nats.Subscription) *nats.Msg {
	t.Helper()
	m, err := sub.NextMsg(patience)
	require.NoError(t, err)
	return m
}

// TestDocumentedPermissions: every role of docs/security.md can do its work and nothing else.
func TestDocumentedPermissions(t *testing.T) {
	g, x := startGuarded(t, nil)
	defer x.end()
	producer, consumer, operator := g.connect("producer"), g.connect("worker-1"), g.connect("operator")

	events, err := operator.SubscribeSync("fila.event.>")
	require.NoError(t, err)
	g.request(operator, "fila.admin.queue-create.orders", "")
	g.request(operator, "$SRV.PING.fila", "")
	require.Equal(t, "fila.event.queue-created.orders", nextOf(t, events).Subject)

	deliveries, err := consumer.SubscribeSync("fila.deliver.worker-1.orders")
	require.NoError(t, err)
	g.request(consumer, "fila.consumer.worker-1.orders", "")
	g.request(producer, "fila.enqueue.orders", "hello")
	g.request(consumer, nextOf(t, deliveries).Reply, "-NAK")
	require.Empty(t, g.request(consumer, nextOf(t, deliveries).Reply, "+ACK").Data)
	g.request(consumer, "fila.consumer.worker-1.orders", `{"leave":true}`)
	require.Equal(t, "404", g.request(consumer, "fila.consumer.worker-1.orders", `{"fetch":{}}`).Header.Get("Status"))

	t.Run("no role can do another's work", func(t *testing.T) {
		for nc, subjects := range map[*nats.Conn][]string{
			producer: {"fila.ack.0.x.orders", "fila.admin.queue-delete.orders", "fila.consumer.worker-1.orders", "fila.consume.orders", "fila.deliver.worker-1.orders", "fila.event.x.y", "fila.node.announce"},
			consumer: {"fila.enqueue.orders", "fila.admin.queue-delete.orders", "fila.deliver.worker-1.orders", "fila.node.ask", "fila.node.answer.x"},
			operator: {"fila.enqueue.orders", "fila.ack.0.x.orders", "fila.fetch.orders", "fila.consumer.worker-1.orders", "fila.node.announce", "fila.node.ask"},
		} {
			for _, subject := range subjects {
				g.cannotPublish(nc, subject, "", "")
			}
		}
		for _, nc := range []*nats.Conn{producer, consumer, operator} {
			g.cannotSubscribe(nc, "fila.node.>")
		}
		fila := g.connect("fila")
		g.cannotPublish(fila, "fila.admin.queue-delete.orders", "", `{"force":true}`)
		g.cannotPublish(fila, "fila.consumer.worker-1.orders", "", `{"leave":true}`)
	})
	t.Run("a caller of the guard is bound to its key", func(t *testing.T) {
		caller := g.connect("caller")
		var a api.GuardAnswer
		require.NoError(t, json.Unmarshal(g.request(caller, "fila.guard.check.vendor:stripe", "").Data, &a))
		require.True(t, a.Allowed)
		g.request(caller, "fila.guard.state.vendor:stripe", "")
		for _, subject := range []string{
			"fila.guard.check.vendor:other", "fila.guard.check._", "fila.guard.state._", "fila.guard.check.vendor:stripe.x", "fila.guard.done.vendor:other",
			"fila.admin.circuit-open.vendor:stripe", "fila.enqueue.orders",
		} {
			g.cannotPublish(caller, subject, caller.NewInbox(), `{"key":"vendor:other"}`)
		}
		for _, subject := range []string{"fila.guard.>", "fila.guard.done.*", "_INBOX.>"} {
			g.cannotSubscribe(caller, subject)
		}
		_, werr := g.ask(caller, "fila.guard.check.vendor:stripe", `{"key":"vendor:other"}`)
		require.Equal(t, wire.CodeBadField, werr.ErrCode, "the subject decides")
		_, werr = g.ask(caller, "fila.guard.check.vendor:stripe", `{"checks":[{},{"key":"vendor:other"}]}`)
		require.Equal(t, wire.CodeBadField, werr.ErrCode)
		require.Contains(t, werr.Description, "checks[1]")
		g.request(caller, "fila.guard.done.vendor:stripe", `{"outcome":"ok","permit":"`+a.Permit+`"}`)
		for _, nc := range []*nats.Conn{producer, consumer, operator} {
			g.cannotPublish(nc, "fila.guard.check.vendor:stripe", "", "")
		}
		g.cannotPublish(g.connect("fila"), "fila.guard.check.vendor:stripe", "", "")
	})
	t.Run("fila's user is enough for a second fila to be refused", func(t *testing.T) {
		require.ErrorIs(t, failsToStart(t, func(c *config.Config) {
			c.NATS.URL, c.NATS.User, c.NATS.Password = g.url, "fila", "fila-secret"
		}), ErrAnotherFila)
	})
	t.Run("a reply subject cannot make fila an accomplice", func(t *testing.T) {
		require.NoError(t, producer.PublishRequest("fila.enqueue.orders", "fila.admin.queue-delete.orders", []byte(`{"force":true}`)))
		require.NoError(t, producer.Flush())
		event := nextOf(t, events)
		for !strings.HasPrefix(event.Subject, "fila.event.refused.") {
			event = nextOf(t, events)
		}
		require.Contains(t, string(event.Data), "reply subject")
		g.request(operator, "fila.admin.queue-inspect.orders", "")
	})
}

// TestKindsOfOperators: each operator of docs/security.md can send its verbs and no others.
func TestKindsOfOperators(t *testing.T) {
	g, x := startGuarded(t, withOperators(t))
	defer x.end()
	const look, operate, all = 1, 2, 3
	least := map[string]int{
		"queue-list": look, "queue-inspect": look, "queue-wanted": look, "attention": look, "noisy": look, "lanes": look, "explain": look, "dead-groups": look, "dead-rates": look,
		"job-list": look, "job-show": look, "schedule-list": look,
		"throttle-list": look, "throttle-show": look, "circuit-list": look, "circuit-show": look, "pause-list": look, "guard-permits": look, "budget-list": look, "budget-show": look,
		"config-list": look, "config-get": look, "config-log": look, "marks": look, "cluster-status": look,

		"peek": operate, "message-show": operate, "schedule-show": operate,
		"message-run-now": operate, "redrive": operate, "hook-show": look, "hook-reset": operate, "pause": operate, "resume": operate,
		"throttle-set": operate, "throttle-clear": operate, "budget-top-up": operate, "budget-reset": operate, "circuit-open": operate, "circuit-close": operate, "circuit-reset": operate, "guard-end": operate, "annotate": operate,
		"job-pause": operate, "job-resume": operate, "job-cancel": operate, "schedule-pause": operate, "schedule-resume": operate,
		"store-backup": operate, "cluster-drain": operate, "cluster-move": operate, "cluster-verify": operate,

		"hook-set": all, "queue-create": all, "queue-update": all, "queue-delete": all, "queue-purge": all, "message-delete": all,
		"job-create.redrive.orders": operate, "job-create.delay.orders": operate, "job-create.run-now.orders": operate, "job-create.reprioritise.orders": operate,
		"job-create": all, "job-create.delete.orders.dlq": all, "job-create.cancel.orders": all, "job-create.move.orders": all, "job-create.edit.orders": all,
		"schedule-add": all, "schedule-delete": all, "config-set": all, "config-edit": all, "config-delete": all, "reload": all, "cluster-repair": all, "cluster-accept": all,
	}
	var subjects []string
	for _, v := range x.s.parts.admin.Verbs() {
		switch {
		case v.AnyVerb == api.VerbJobCreate:
			subjects = append(subjects, v.String(), "job-create.delete.orders.dlq")
			for _, op := range api.JobOps() {
				if op != api.JobDelete {
					subjects = append(subjects, v.String()+"."+op+".orders")
				}
			}
		case v.Kind() != api.TailNone:
			require.Contains(t, least, v.String())
			least[v.String()+".nosuch"] = least[v.String()]
			delete(least, v.String())
			subjects = append(subjects, v.String()+".nosuch")
		default:
			subjects = append(subjects, v.String())
		}
	}
	require.Len(t, least, len(subjects), "who may send a verb is said of each")
	for user, may := range map[string]int{"viewer": look, "on-call": operate} {
		nc := g.connect(user)
		g.request(nc, "$SRV.PING.fila", "")
		for _, what := range subjects {
			require.Contains(t, least, what)
			subject := "fila.admin." + what
			if least[what] <= may {
				_, _ = g.ask(nc, subject, "") // the answer does not matter
			} else {
				g.cannotPublish(nc, subject, nc.NewInbox(), "")
			}
		}
		for _, subject := range []string{"fila.enqueue.orders", "fila.ack.0.x.orders", "fila.consume.orders", "fila.node.ask", "fila.guard.check.k"} {
			g.cannotPublish(nc, subject, "", "")
		}
		g.cannotSubscribe(nc, "fila.>")
		g.cannotSubscribe(nc, "_INBOX.>")
	}
}

// TestOnCallRedrivesAndDeletesNothing: neither bodies nor bare subjects let the on-call user of
// docs/security.md do more than its subjects allow.
func TestOnCallRedrivesAndDeletesNothing(t *testing.T) {
	g, x := startGuarded(t, withOperators(t))
	defer x.end()
	operator, onCall := g.connect("operator"), g.connect("on-call")
	g.request(operator, "fila.admin.queue-create.orders", "")
	g.request(g.connect("producer"), "fila.enqueue.orders", "hello")
	worker := g.connect("worker-1")
	g.request(worker, g.request(worker, "fila.consumer.worker-1.orders", `{"fetch":{}}`).Reply, "+TERM")

	const dead, remove = "fila.admin.job-create.redrive.orders.dlq", `{"queue":"orders.dlq","op":"delete","filter":{"all":true}}`
	for _, subject := range []string{"fila.admin.job-create", "fila.admin.job-create.delete.orders.dlq"} {
		g.cannotPublish(onCall, subject, onCall.NewInbox(), remove)
	}
	for body, says := range map[string]string{
		remove: `op is "delete": the subject has "redrive"`,
		`{"op":"delete","op":"redrive","filter":{"all":true}}`:  "given twice",
		`{"op":"redrive","OP":"delete","filter":{"all":true}}`:  "unknown field",
		`{"queue":"other.dlq","filter":{"all":true}}`:           `the subject has "orders.dlq"`,
		`{"op":"","filter":{"all":true}}`:                       "op is missing",
		`{"op":null,"queue":null,"filter":{"state":"pending"}}`: "dead letter queue",
	} {
		_, werr := g.ask(onCall, dead, body)
		require.NotNil(t, werr, body)
		require.Contains(t, werr.Description, says, body)
	}
	for _, subject := range []string{"fila.admin.job-create.redrive", "fila.admin.job-create.melt.orders", "fila.admin.job-create.redrive.nosuch"} {
		_, werr := g.ask(onCall, subject, `{"filter":{"all":true}}`)
		require.NotNil(t, werr, subject)
	}
	var job api.JobInfo
	require.NoError(t, json.Unmarshal(g.request(onCall, dead, `{"filter":{"all":true},"dry_run":true}`).Data, &job))
	require.Equal(t, []any{"redrive", "orders.dlq", int64(1)}, []any{job.Op, job.Queue, job.Eligible})
	require.NoError(t, json.Unmarshal(g.request(onCall, "fila.admin.job-create.redrive.orders", `{"queue":"orders.dlq","filter":{"all":true}}`).Data, &job))
	require.Equal(t, "redrive", job.Op)
	g.request(operator, "fila.admin.job-create", remove)
}

// TestDocumentedPermissionsInside: the roles work in the embedded server as well, where fila needs no
// login, beside JetStream.
func TestDocumentedPermissionsInside(t *testing.T) {
	dir := t.TempDir()
	users := filepath.Join(dir, "users.conf")
	require.NoError(t, os.WriteFile(users, []byte(permissionBlock(t)), 0o600))
	x := startSite(t, filepath.Join(dir, "data"), func(c *config.Config) {
		c.NATS.Embedded.Port, c.NATS.Embedded.UsersFile, c.NATS.Embedded.JetStream = anyPort, users, true
	})
	defer x.end()
	g := &guarded{t: t, url: x.s.ClientURL(), refused: make(chan string, 64)}
	operator, producer, worker := g.connect("operator"), g.connect("producer"), g.connect("worker-1")
	g.request(operator, "fila.admin.queue-create.orders", "")
	g.request(producer, "fila.enqueue.orders", "hello")
	delivery := g.request(worker, "fila.consumer.worker-1.orders", `{"fetch":{}}`)
	require.Equal(t, "hello", string(delivery.Data))
	g.request(worker, delivery.Reply, "+ACK")
	g.cannotPublish(producer, "fila.admin.queue-delete.orders", "", `{"force":true}`)
	g.cannotSubscribe(worker, "fila.deliver.worker-2.orders")
	_, err := nats.Connect(g.url)
	require.ErrorIs(t, err, nats.ErrAuthorization)
	require.DirExists(t, filepath.Join(dir, "data", "jetstream"))
}

// TestOtherAccounts: a producer and a consumer in an account that imports fila's subjects, with the
// documented permissions of fila's user.
func TestOtherAccounts(t *testing.T) {
	g, x := startGuarded(t, func(permissions string) string {
		permissions = strings.Replace(permissions, "authorization {", `accounts {
  FILA: {
    exports = [{service: "fila.enqueue.>"}, {service: "fila.fetch.>", response_type: stream}, {service: "fila.ack.>"}]`, 1)
		return permissions + `
  TEAM: {
    imports = [{service: {account: FILA, subject: "fila.enqueue.>"}}, {service: {account: FILA, subject: "fila.fetch.>"}}, {service: {account: FILA, subject: "fila.ack.>"}}]
    users = [{user: team, password: team-secret}]
  }
}`
	})
	defer x.end()
	g.request(g.connect("operator"), "fila.admin.queue-create.orders", "")
	team := g.connect("team")
	g.request(team, "fila.enqueue.orders", "from another account")
	delivery := g.request(team, "fila.fetch.orders", "")
	require.Equal(t, "from another account", string(delivery.Data))
	require.Empty(t, g.request(team, delivery.Reply, "+ACK").Data)
}

// TestUsersOfTheGuard: permits count for the user that NATS names, as it does for imports with share,
// and otherwise for the name that callers give themselves.
func TestUsersOfTheGuard(t *testing.T) {
	g, x := startGuarded(t, func(permissions string) string {
		permissions = strings.Replace(permissions, "authorization {", "accounts {\n  FILA: {\n    exports = [{service: \"fila.guard.>\"}]", 1)
		return permissions + `
  TOLD: {
    imports = [{service: {account: FILA, subject: "fila.guard.>"}, share: true}]
    users = [{user: told, password: told-secret}]
  }
  UNTOLD: {
    imports = [{service: {account: FILA, subject: "fila.guard.>"}}]
    users = [{user: untold, password: untold-secret}]
  }
}`
	})
	defer x.end()
	check := func(user string) {
		m := nats.NewMsg("fila.guard.check.v")
		m.Data = []byte(`{"caller":"web"}`)
		m.Header = nats.Header{"Nats-Request-Info": {`{"acc":"FILA","user":"another"}`}}
		reply, err := g.connect(user).RequestMsg(m, patience)
		require.NoError(t, err)
		require.Contains(t, string(reply.Data), `"allowed":true`)
	}
	operator := g.connect("operator")
	for user, known := range map[string]string{"told": "TOLD/told", "untold": ""} {
		check(user)
		var list api.GuardPermitList
		require.NoError(t, json.Unmarshal(g.request(operator, "fila.admin.guard-permits", "").Data, &list))
		require.Len(t, list.Permits, 1)
		require.Equal(t, []string{"web", known}, []string{list.Permits[0].Caller, list.Permits[0].User}, user)
		var ended api.GuardEndReply
		require.NoError(t, json.Unmarshal(g.request(operator, "fila.admin.guard-end", `{"key":"v"}`).Data, &ended))
		require.EqualValues(t, 1, ended.Ended)
	}
}

// TestClientsCannotFloodTheLog: repeated refusals of a client are logged a few times, and the line about
// the stop is still written.
func TestClientsCannotFloodTheLog(t *testing.T) {
	const flood, few = 5000, 25
	g, x := startGuarded(t, nil)
	producer, operator := g.connect("producer"), g.connect("operator")
	g.request(operator, "fila.admin.queue-create.orders", "")
	for range flood {
		require.NoError(t, producer.PublishRequest("fila.enqueue.orders", "elsewhere.x", nil))
		require.NoError(t, operator.PublishRequest("$SRV.PING", "elsewhere.x", nil))
	}
	g.request(producer, "fila.enqueue.orders", "")
	g.request(operator, "$SRV.PING", "")
	const refused, notSent = "a request is refused without a reply", "NATS permissions deny a reply to the reply subject of a client"
	require.Eventually(t, func() bool { return x.log.count(notSent) >= 20 }, patience, time.Millisecond)
	x.end()
	for _, text := range []string{refused, notSent} {
		require.GreaterOrEqual(t, x.log.count(text), 20, text)
		require.LessOrEqual(t, x.log.count(text), few, text)
	}
	require.Zero(t, x.log.count("that it needs"))
	require.Equal(t, 1, x.log.count("msg=stopped"))
}

// TestNoConsumerReachesAnother: worker-2 tries everything against worker-1, which holds a message of the
// queue that both consume.
func TestNoConsumerReachesAnother(t *testing.T) {
	g, x := startGuarded(t, nil)
	defer x.end()
	producer, operator := g.connect("producer"), g.connect("operator")
	victim, attacker := g.connect("worker-1"), g.connect("worker-2")
	g.request(operator, "fila.admin.queue-create.orders", "")
	held := func() api.QueueInfo {
		var info api.QueueInfo
		require.NoError(t, json.Unmarshal(g.request(operator, "fila.admin.queue-inspect.orders", "").Data, &info))
		return info
	}
	deliveries, err := victim.SubscribeSync("fila.deliver.worker-1.orders")
	require.NoError(t, err)
	g.request(victim, "fila.consumer.worker-1.orders", `{"max_in_flight":1}`)
	g.request(producer, "fila.enqueue.orders", "of the victim")
	precious := nextOf(t, deliveries)

	t.Run("read", func(t *testing.T) {
		for _, subject := range []string{
			"fila.deliver.worker-1.orders", "fila.deliver.*.orders", "fila.deliver.>", "fila.>", ">", "_INBOX.worker-1.>", "_INBOX.>",
			"fila.enqueue.>", "fila.event.>", "fila.consumer.worker-1.>",
			"fila.ack.>", "fila.nack.>", precious.Reply, // tokens
		} {
			g.cannotSubscribe(attacker, subject)
		}
		g.cannotPublish(attacker, "fila.admin.peek.orders", attacker.NewInbox(), "")
		g.cannotPublish(attacker, "fila.deliver.worker-1.orders", "", "forged")
	})
	t.Run("end, renew, change", func(t *testing.T) {
		for _, body := range []string{`{"leave":true}`, `{"max_in_flight":9}`, `{"ttl_ms":1}`} {
			g.cannotPublish(attacker, "fila.consumer.worker-1.orders", attacker.NewInbox(), body)
		}
		for _, body := range []string{`{"consumer":"worker-1","leave":true}`, `{"consumer":"worker-1","max_in_flight":9}`} {
			g.cannotPublish(attacker, "fila.consume.orders", attacker.NewInbox(), body)
			_, werr := g.ask(attacker, "fila.consumer.worker-2.orders", body)
			require.NotNil(t, werr)
			require.Equal(t, wire.CodeBadField, werr.ErrCode, werr)
		}
	})
	t.Run("ack, nack, extend", func(t *testing.T) {
		own, err := attacker.SubscribeSync("fila.deliver.worker-2.orders")
		require.NoError(t, err)
		g.request(attacker, "fila.consumer.worker-2.orders", `{"max_in_flight":1}`)
		g.request(producer, "fila.enqueue.orders", "of the attacker")
		reply := nextOf(t, own).Reply
		token, queue, ok := x.s.subjects.ParseToken(reply)
		require.True(t, ok)
		for i := range token { // no change of an own token gives another consumer's token
			forged := []byte(token)
			forged[i] = 'A'
			if token[i] == 'A' {
				forged[i] = 'B'
			}
			for _, subject := range []string{x.s.subjects.Ack(string(forged), queue), x.s.subjects.Nack(string(forged), queue)} {
				_, werr := g.ask(attacker, subject, "+WPI")
				require.NotNil(t, werr, subject)
				require.Equal(t, 400, werr.Code, werr)
			}
		}
		g.request(attacker, reply, "+ACK")
		for _, payload := range []string{"+ACK", "-NAK", "+WPI", "+TERM"} {
			_, werr := g.ask(attacker, reply, payload)
			require.NotNil(t, werr, "a token is good for one lease")
			require.Equal(t, 409, werr.Code, werr)
		}
		g.request(attacker, "fila.consumer.worker-2.orders", `{"leave":true}`)
	})
	t.Run("fetch as", func(t *testing.T) {
		g.request(producer, "fila.enqueue.orders", "waits")
		into := victim.NewInbox() // in case the attacker can guess it
		inbox, err := victim.SubscribeSync(into)
		require.NoError(t, err)
		require.NoError(t, victim.Flush())
		const fetch = `{"fetch":{"batch":5}}`
		g.cannotPublish(attacker, "fila.consumer.worker-1.orders", into, fetch)
		g.cannotPublish(attacker, "fila.consumer.worker-1.orders", attacker.NewInbox(), fetch)
		g.cannotPublish(attacker, "fila.fetch.orders", into, "")
		require.NoError(t, attacker.PublishRequest("fila.consumer.worker-2.orders", into, []byte(fetch)))
		refusal := nextOf(t, inbox)
		werr := wire.ParseError(refusal.Header, refusal.Data)
		require.NotNil(t, werr, "%s", refusal.Data)
		require.Equal(t, wire.CodeBadReplySubject, werr.ErrCode)
		require.EqualValues(t, 1, held().Pending, "the message waits for a consumer that wants it")
		own := g.request(attacker, "fila.consumer.worker-2.orders", fetch)
		require.Equal(t, "waits", string(own.Data))
		g.request(attacker, own.Reply, "+ACK")
	})

	info := held()
	require.EqualValues(t, 1, info.InFlight)
	require.Equal(t, 1, info.Consumers)
	g.request(victim, precious.Reply, "+WPI")
	g.request(victim, precious.Reply, "+ACK")
	g.request(producer, "fila.enqueue.orders", "the next one")
	last := nextOf(t, deliveries)
	require.Equal(t, "the next one", string(last.Data), "the victim is registered as before")
	g.request(victim, last.Reply, "+ACK")
}

// clusterPermissions adds the permissions of a cluster in docs/security.md to fila's user.
func clusterPermissions(t *testing.T, permissions string) string {
	t.Helper()
	publish, subscribe, ok := strings.Cut(natsBlock(t, "# publish.allow"), "# subscribe.allow\n")
	require.True(t, ok)
	const here, there = `"fila.deliver.>", "fila.event.>"`, `"fila.enqueue.>", "fila.ack.>", "fila.nack.>", "fila.admin.>", "fila.consumer.>", "fila.consume.>", "fila.fetch.>", "fila.guard.>", "fila.node.>"`
	require.Equal(t, 1, strings.Count(permissions, here))
	require.Equal(t, 1, strings.Count(permissions, there))
	permissions = strings.Replace(permissions, here, publish+here, 1)
	permissions = strings.Replace(permissions, there, subscribe+there, 1)

	never := natsBlock(t, "# publish.deny")
	begin, end := strings.Index(permissions, "    {\n      # fila itself"), strings.Index(permissions, "    {\n      user: producer")
	require.Positive(t, begin)
	require.Greater(t, end, begin)
	fila := permissions[begin:end]
	mover := strings.Replace(fila, "user: fila, password: $FILA_PASSWORD", "user: mover, password: mover-secret", 1)
	require.NotEqual(t, fila, mover)
	const deny = "deny: ["
	require.Equal(t, 1, strings.Count(fila, deny))
	return permissions[:begin] + strings.Replace(fila, deny, deny+strings.TrimSpace(never)+", ", 1) + mover + permissions[end:]
}

// TestTransferWithDocumentedPermissions: the user of the nodes can make and export a cluster, but not
// delete logs, which it reports. The role without that restriction can.
func TestTransferWithDocumentedPermissions(t *testing.T) {
	t.Parallel()
	var dir string
	g, x := startGuarded(t, func(permissions string) string {
		return withJetStream(t)(clusterPermissions(t, permissions))
	}, func(c *config.Config) { dir = c.DataDir })
	g.request(g.connect("operator"), "fila.admin.queue-create.orders", "")
	g.request(g.connect("producer"), "fila.enqueue.orders", "one")
	x.end()

	files := t.TempDir()
	as := func(user string, fn func(ctx context.Context, o transfer.Options) error) error {
		t.Helper()
		cfg := config.Default()
		cfg.DataDir, cfg.NATS.URL, cfg.NATS.User, cfg.NATS.Password = files, g.url, user, user+"-secret"
		cfg.Cluster = config.ClusterConfig{Enabled: true, Name: "fila", Node: "a", Shards: 8, FailoverMs: 2500, Replicas: 1, AllowR1: true}
		tr, err := OpenTransfer(t.Context(), cfg, slog.New(slog.DiscardHandler), "transfer")
		require.NoError(t, err)
		defer tr.Close()
		tr.Options.Listen = 100 * time.Millisecond // there are no nodes
		return fn(t.Context(), tr.Options)
	}
	rebuild := func(ctx context.Context, o transfer.Options) error {
		plan, err := transfer.Survey(ctx, o, nil) // only of the logs
		if err != nil {
			return err
		}
		defer plan.Close()
		_, _, err = plan.Rebuild(ctx)
		return err
	}
	require.NoError(t, as("fila", func(ctx context.Context, o transfer.Options) error {
		_, err := transfer.Import(ctx, o, filepath.Join(dir, "fila.db"))
		return err
	}))
	err := as("fila", rebuild)
	require.ErrorIs(t, err, nats.ErrPermissionViolation)
	require.ErrorContains(t, err, "STREAM.DELETE")
	require.NoError(t, as("mover", rebuild))
	require.NoError(t, as("fila", func(ctx context.Context, o transfer.Options) error {
		moved, err := transfer.Export(ctx, o, filepath.Join(t.TempDir(), "fila.db"))
		require.EqualValues(t, 1, moved.Messages)
		return err
	}))

	fila := g.connect("fila")
	for _, stream := range []string{"FILA_fila_LOG_0", "FILA_fila_LOG_7", "OBJ_FILA_fila_SNAP", "KV_FILA_fila_META", "KV_FILA_fila_GATES"} {
		g.cannotPublish(fila, "$JS.API.STREAM.DELETE."+stream, fila.NewInbox(), "")
	}
	mover := g.connect("mover")
	for _, subject := range []string{"$JS.API.STREAM.DELETE.ORDERS", "$JS.API.STREAM.DELETE.FILA_other_LOG_0", "$KV.OTHERS.x"} {
		g.cannotPublish(mover, subject, mover.NewInbox(), "")
	}
}

// TestClusterWithDocumentedPermissions: fila's role is enough for a node to start, serve and take over;
// no other role reaches the cluster's data in JetStream or the subjects between nodes.
func TestClusterWithDocumentedPermissions(t *testing.T) {
	t.Parallel()
	asNode := func(name string) func(*config.Config) {
		return func(c *config.Config) {
			c.Cluster = config.ClusterConfig{Enabled: true, Name: "fila", Node: name, Shards: 8, FailoverMs: 2500, Replicas: 1, AllowR1: true}
			c.Reload = func() (config.Config, error) { return *c, nil }
		}
	}
	g, x := startGuarded(t, func(permissions string) string {
		return withJetStream(t)(clusterPermissions(t, permissions))
	}, asNode("a"))
	owns := func(x *testSite, shards int) {
		t.Helper()
		require.Eventually(t, func() bool { return len(x.s.parts.shards.Numbers()) >= shards }, time.Minute, 10*time.Millisecond)
	}
	owns(x, 8)
	operator, producer, worker := g.connect("operator"), g.connect("producer"), g.connect("worker-1")
	g.request(operator, "fila.admin.queue-create.orders", "")
	g.request(producer, "fila.enqueue.orders", "one")
	work := func() {
		g.request(worker, g.request(worker, "fila.consumer.worker-1.orders", `{"fetch":{}}`).Reply, "+ACK")
	}
	work()
	for _, r := range x.s.storage.(*clusterNode).replicas {
		_, err := r.Snapshot(t.Context())
		require.NoError(t, err)
	}

	second := startSite(t, t.TempDir(), func(c *config.Config) {
		c.NATS.URL, c.NATS.User, c.NATS.Password = g.url, "fila", "fila-secret"
		asNode("b")(c)
	})
	owns(second, 1) // by a handover
	var reloaded api.ReloadReply
	require.NoError(t, json.Unmarshal(g.request(operator, "fila.admin.reload", "").Data, &reloaded))
	require.ElementsMatch(t, []string{"a", "b"}, reloaded.Nodes)
	g.request(operator, "fila.admin.queue-inspect.orders", "")
	g.request(operator, "fila.admin.cluster-drain", `{"node":"a"}`) // any node may answer
	owns(second, 8)
	x.end()
	g.request(producer, "fila.enqueue.orders", "two")
	work()

	for _, nc := range []*nats.Conn{operator, producer, worker} {
		for _, subject := range []string{
			"fila_log.fila.0", "fila_node.fila.admin.0.queue-list", "fila_node.fila.admin.node.b.reload", "fila_node.fila.member", "fila_node.fila.ping.b",
			"$KV.FILA_fila_META.cluster", "$KV.FILA_fila_GATES.x", "$O.FILA_fila_SNAP.M.x",
			"$JS.API.DIRECT.GET.KV_FILA_fila_META.$KV.FILA_fila_META.cluster", "$JS.API.STREAM.MSG.GET.KV_FILA_fila_META", "$JS.API.STREAM.MSG.GET.FILA_fila_LOG_0",
			"$JS.API.STREAM.PURGE.FILA_fila_LOG_0", "$JS.API.STREAM.DELETE.FILA_fila_LOG_0", "$JS.API.CONSUMER.CREATE.FILA_fila_LOG_0.x",
			"$JS.API.CONSUMER.CREATE.OBJ_FILA_fila_SNAP.x", "$JS.API.STREAM.UPDATE.KV_FILA_fila_META",
		} {
			g.cannotPublish(nc, subject, nc.NewInbox(), "{}")
		}
		for _, subject := range []string{"fila_log.>", "fila_node.>", "$KV.>", "$O.>"} {
			g.cannotSubscribe(nc, subject)
		}
	}
	fila := g.connect("fila")
	for _, subject := range []string{"$JS.API.STREAM.DELETE.ORDERS", "$JS.API.STREAM.MSG.GET.ORDERS", "$JS.API.CONSUMER.CREATE.ORDERS.x", "$KV.OTHERS.x", "fila_log.other.0"} {
		g.cannotPublish(fila, subject, fila.NewInbox(), "{}")
	}
	second.end()
	for _, x := range []*testSite{x, second} {
		require.Zero(t, x.log.count("NATS permissions deny"), "%s", x.log.buf.String())
	}
}
