package natsio

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
)

// withUsers starts an embedded server with a users file and connects fila.
func withUsers(t *testing.T, text, account string) (*Embedded, *nats.Conn, *logText) {
	t.Helper()
	checkLeaks(t)
	cfg := config.Default().NATS
	cfg.Embedded = anyPort()
	cfg.Embedded.UsersFile, cfg.Embedded.Account = writeUsers(t, text), account
	log, said := newTestLog()
	srv, err := StartEmbedded(cfg.Embedded, log)
	require.NoError(t, err)
	t.Cleanup(func() { stopTestServer(srv) })
	own, err := Connect(cfg, srv, log, nil, nil)
	require.NoError(t, err)
	t.Cleanup(own.Close)
	return srv, own, said
}

func writeUsers(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users.conf")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// user connects a user and returns the permission errors that it gets.
func user(t *testing.T, srv *Embedded, opts ...nats.Option) (*nats.Conn, <-chan error) {
	t.Helper()
	refused := make(chan error, 8)
	nc, err := nats.Connect(srv.ClientURL(), append(opts,
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc, refused
}

// reaches checks whether messages of one connection reach another.
func reaches(t *testing.T, from, to *nats.Conn, subject string, want bool) {
	t.Helper()
	sub, err := to.SubscribeSync(subject)
	require.NoError(t, err)
	require.NoError(t, to.Flush())
	require.NoError(t, from.Publish(subject, nil))
	require.NoError(t, from.Flush())
	require.NoError(t, to.Flush())
	n, _, err := sub.Pending()
	require.NoError(t, err)
	require.Equal(t, want, n == 1, subject)
	require.NoError(t, sub.Unsubscribe())
}

func TestUsersFile(t *testing.T) {
	key, err := nkeys.CreateUser()
	require.NoError(t, err)
	public, err := key.PublicKey()
	require.NoError(t, err)
	t.Setenv("ANN_PASSWORD", "secret")
	srv, own, said := withUsers(t, `
		MAY_PUBLISH: ["fila.enqueue.>"]
		authorization {
			users = [
				{user: ann, password: $ANN_PASSWORD, permissions: {publish: {allow: $MAY_PUBLISH}}}
				{nkey: `+public+`}
			]
		}`, "")
	ann, refused := user(t, srv, nats.UserInfo("ann", "secret"))
	reaches(t, ann, own, "fila.enqueue.orders", true)
	reaches(t, ann, own, "fila.admin.queue-list", false)
	require.ErrorIs(t, <-refused, nats.ErrPermissionViolation)
	reaches(t, own, ann, "fila.event.x.y", true)
	byKey, _ := user(t, srv, nats.Nkey(public, key.Sign))
	reaches(t, byKey, own, "anything", true)

	for _, login := range [][]nats.Option{nil, {nats.UserInfo("ann", "wrong")}, {nats.Token("secret")}} {
		_, err := nats.Connect(srv.ClientURL(), login...)
		require.ErrorIs(t, err, nats.ErrAuthorization)
	}
	_, err = nats.Connect(srv.ClientURL(), srv.login...)
	require.ErrorIs(t, err, nats.ErrAuthorization, "fila's own user is for this process")
	require.NotContains(t, said.String(), "secret")
}

func TestUsersFileOfOneUser(t *testing.T) {
	srv, own, _ := withUsers(t, "authorization {user: ann, password: secret}", "")
	ann, _ := user(t, srv, nats.UserInfo("ann", "secret"))
	reaches(t, ann, own, "x", true)
	_, err := nats.Connect(srv.ClientURL())
	require.ErrorIs(t, err, nats.ErrAuthorization)
}

func TestUsersFileWithAccounts(t *testing.T) {
	srv, own, _ := withUsers(t, `
		accounts {
			JOBS: {users: [{user: ann, password: secret}]}
			OTHER: {users: [{user: bob, password: secret}]}
		}
		no_auth_user: bob`, "JOBS")
	ann, _ := user(t, srv, nats.UserInfo("ann", "secret"))
	bob, _ := user(t, srv)
	reaches(t, ann, own, "x", true)
	reaches(t, bob, own, "x", false)
	reaches(t, own, ann, "x", true)
	reaches(t, own, bob, "x", false)
}

func TestUsersFileMistakes(t *testing.T) {
	checkLeaks(t)
	const users = "authorization {user: ann, password: secret}\n"
	const accounts = "accounts {A: {users: [{user: a, password: secret}]}, B: {users: [{user: b, password: secret}]}}\n"
	for name, tc := range map[string]struct{ text, account, want string }{
		"other key":         {users + "port: 4333", "", "port is not allowed there, only authorization, accounts, no_auth_user; fila sets everything else"},
		"JetStream":         {users + "jetstream: enabled", "", "jetstream is not allowed there"},
		"system account":    {accounts + "system_account: A", "A", "system_account is not allowed there"},
		"no file":           {"", "", "users.conf.missing"},
		"syntax":            {"authorization {", "", "users_file = "},
		"unknown setting":   {"authorization {users: [{user: ann, password: secret, color: red}]}", "", `unknown field "color"`},
		"nobody":            {"authorization {timeout: 1}", "", "it has no users"},
		"token":             {"authorization {token: secret}", "", "a token is nats.embedded.token"},
		"callout":           {"authorization {users: [{user: a, password: secret}], auth_callout: {issuer: ABJHLOVMPA4CI6R5KLNGOB4GSLNIY7IOUPAJC4YFNDLQVIOBYQGUWVLA, auth_users: [a]}}", "", "auth_callout is not allowed"},
		"no such user":      {users + "no_auth_user: bob", "", `no_auth_user: "bob"`},
		"no account":        {accounts, "", `nats.embedded.account = "": it names the account of fila; allowed is `},
		"wrong account":     {accounts, "C", `nats.embedded.account = "C": it names the account of fila; allowed is `},
		"account of nobody": {users, "A", `nats.embedded.account = "A": it names the account of fila; allowed is none, since nats.embedded.users_file has no accounts`},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := anyPort()
			cfg.UsersFile, cfg.Account = writeUsers(t, tc.text), tc.account
			if tc.text == "" {
				cfg.UsersFile += ".missing"
			}
			_, err := StartEmbedded(cfg, quietly())
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, "nats.embedded")
			require.NotContains(t, err.Error(), "\n")
			require.NotContains(t, err.Error(), "secret")
		})
	}
}
