package natsio

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/conf"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// inProcess is the server's connection type for in-process connections.
const inProcess = "IN_PROCESS"

// userKeys are the keys allowed in a users file besides variables.
var userKeys = []string{"authorization", "accounts", "no_auth_user"}

// readUsers reads users and accounts in the format of the nats-server configuration, and adds a
// user without permission limits for fila to the named account. That user has a key that only
// this process knows and cannot log in over the network.
func readUsers(path, account string) (*server.Options, []nats.Option, error) {
	fail := func(format string, args ...any) (*server.Options, []nats.Option, error) {
		text := strings.ReplaceAll(strings.TrimSpace(fmt.Sprintf(format, args...)), "\n", "; ")
		return nil, nil, fmt.Errorf("nats.embedded.users_file = %q: %s", path, text)
	}
	top, err := conf.ParseFileWithChecks(path)
	if err != nil {
		return fail("%v", err)
	}
	for _, key := range slices.Sorted(maps.Keys(top)) {
		variable, ok := top[key].(interface{ IsUsedVariable() bool })
		if !slices.Contains(userKeys, key) && !(ok && variable.IsUsedVariable()) {
			return fail("%s is not allowed there, only %s; fila sets everything else", key, strings.Join(userKeys, ", "))
		}
	}
	opts, err := server.ProcessConfigFile(path)
	if err != nil {
		return fail("%v", err)
	}
	if opts.Username != "" {
		opts.Users = append(opts.Users, &server.User{Username: opts.Username, Password: opts.Password})
		opts.Username, opts.Password = "", ""
	}
	switch {
	case opts.Authorization != "":
		return fail("a token is nats.embedded.token, not a user")
	case opts.AuthCallout != nil:
		return fail("auth_callout is not allowed: fila itself has to log in before anybody can be asked")
	case len(opts.Users)+len(opts.Nkeys) == 0:
		return fail("it has no users")
	}
	own, login, err := ownUser()
	if err != nil {
		return fail("%v", err)
	}
	if own.Account, err = findAccount(opts.Accounts, account); err != nil {
		return nil, nil, err
	}
	opts.Nkeys = append(opts.Nkeys, own)
	return opts, []nats.Option{login}, nil
}

func ownUser() (*server.NkeyUser, nats.Option, error) {
	key, err := nkeys.CreateUser()
	if err != nil {
		return nil, nil, err
	}
	public, err := key.PublicKey()
	if err != nil {
		return nil, nil, err
	}
	user := &server.NkeyUser{Nkey: public, AllowedConnectionTypes: map[string]struct{}{inProcess: {}}}
	return user, nats.Nkey(public, key.Sign), nil
}

// findAccount returns the account of a name. nil means the account of users without one, which
// exists if no accounts are configured.
func findAccount(accounts []*server.Account, name string) (*server.Account, error) {
	var names []string
	for _, a := range accounts {
		if a.Name == name {
			return a, nil
		}
		names = append(names, a.Name)
	}
	if name == "" && len(accounts) == 0 {
		return nil, nil
	}
	if len(names) == 0 {
		names = []string{"none, since nats.embedded.users_file has no accounts"}
	}
	return nil, fmt.Errorf("nats.embedded.account = %q: it names the account of fila; allowed is %s", name, strings.Join(names, ", "))
}
