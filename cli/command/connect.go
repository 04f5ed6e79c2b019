package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"

	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
)

// DefaultServer is the default address of fila serve.
const DefaultServer = "nats://127.0.0.1:4222"

// Connection holds the flags for the connection to NATS. They have the names and variables of
// the nats CLI.
type Connection struct {
	Login           config.NATSContext // values of the flags
	context, Prefix string
	timeout         terminal.Millis
	flags           *pflag.FlagSet
}

// TimeoutVariable is the environment variable for --timeout.
const TimeoutVariable = "NATS_TIMEOUT"

// connectionFlag is a text flag and its environment variable.
type connectionFlag struct {
	name, short, variable string
	value                 *string
	usage                 string
}

func (c *Connection) texts() []connectionFlag {
	l := &c.Login
	return []connectionFlag{
		{"server", "s", "NATS_URL", &l.URL, "NATS `url`, several separated by commas [NATS_URL] (default " + DefaultServer + ")"},
		{"context", "", "NATS_CONTEXT", &c.context, "`name` of a nats CLI context [NATS_CONTEXT] (default the selected one)"},
		{"creds", "", "NATS_CREDS", &l.Creds, "credentials `file` [NATS_CREDS]"},
		{"nkey", "", "NATS_NKEY", &l.NKey, "`file` with the seed of a NATS key [NATS_NKEY]"},
		{"user", "", "NATS_USER", &l.User, "user `name`; without a password it is a token [NATS_USER]"},
		{"password", "", "NATS_PASSWORD", &l.Password, "the user's `password` [NATS_PASSWORD]"},
		{"token", "", "NATS_TOKEN", &l.Token, "NATS `token` [NATS_TOKEN]"},
		{"tlsca", "", "NATS_CA", &l.CA, "PEM `file` with the certificate authorities to trust [NATS_CA]"},
		{"tlscert", "", "NATS_CERT", &l.Cert, "PEM `file` with the client certificate [NATS_CERT]"},
		{"tlskey", "", "NATS_KEY", &l.Key, "PEM `file` with the key of the client certificate [NATS_KEY]"},
	}
}

// Variables are the environment variables of flags.
func Variables() []string {
	names := []string{TimeoutVariable}
	for _, flag := range new(Connection).texts() {
		names = append(names, flag.variable)
	}
	return names
}

func (c *Connection) addFlags(fs *pflag.FlagSet) {
	c.timeout, c.flags = 5000, fs
	for _, flag := range c.texts() {
		fs.StringVarP(flag.value, flag.name, flag.short, "", flag.usage)
	}
	fs.StringVar(&c.Login.InboxPrefix, "inbox-prefix", "", "`prefix` of reply subjects, under _INBOX (default _INBOX)")
	fs.StringVar(&c.Prefix, "subject-prefix", client.DefaultPrefix, "subject `prefix` of fila")
	fs.Var(&c.timeout, "timeout", "time limit for NATS and the reply, for all pages of a list together [NATS_TIMEOUT]")
}

// Settled is the connection's configuration after flags, variables and contexts.
type Settled struct {
	config.NATSContext
	Timeout time.Duration
}

// Settle merges settings; flags take precedence over the environment, and both over the
// context. Credentials are not mixed: any in flags or variables replace all of the context's.
func (c *Connection) Settle() (*Settled, error) {
	given := *c // keeps the flags unchanged
	for _, flag := range given.texts() {
		*flag.value = cmp.Or(*flag.value, os.Getenv(flag.variable))
	}
	if text := os.Getenv(TimeoutVariable); text != "" && !c.flags.Changed("timeout") {
		if err := given.timeout.Set(text); err != nil {
			return nil, UsageError("%s = %w", TimeoutVariable, err)
		}
	}
	if given.timeout <= 0 {
		return nil, UsageError("--timeout 0s: allowed is 1ms and more")
	}
	own := given.Login
	if own.User != "" && own.Password == "" { // as in the nats CLI
		own.User, own.Token = "", cmp.Or(own.Token, own.User)
	}
	base, err := contextFor(given.context)
	if err != nil {
		return nil, Exit(ExitUsage, err)
	}
	return &Settled{overlay(*base, own), given.timeout.Duration()}, nil
}

// contextFor reads the named context, or else the selected one.
func contextFor(name string) (*config.NATSContext, error) {
	if name == "" {
		var err error
		if name, err = config.SelectedNATSContext(); err != nil || name == "" {
			return &config.NATSContext{}, err
		}
	}
	return config.ReadNATSContext(name)
}

func overlay(base, own config.NATSContext) config.NATSContext {
	base.URL = cmp.Or(own.URL, base.URL, DefaultServer)
	base.InboxPrefix = cmp.Or(own.InboxPrefix, base.InboxPrefix)
	if own.Creds != "" || own.NKey != "" || own.User != "" || own.Token != "" {
		base.Creds, base.NKey = own.Creds, own.NKey
		base.User, base.Password, base.Token = own.User, own.Password, own.Token
	}
	if own.Cert != "" || own.Key != "" {
		base.Cert, base.Key = own.Cert, own.Key
	}
	base.CA = cmp.Or(own.CA, base.CA)
	return base
}

// options converts the settings to options of nats.go.
func (s *Settled) options() ([]nats.Option, error) {
	opts := []nats.Option{nats.Name(connectionName()), nats.Timeout(s.Timeout)}
	given := func(value string, option nats.Option) (n int) {
		if value == "" {
			return 0
		}
		opts = append(opts, option)
		return 1
	}
	logins := given(s.Creds, nats.UserCredentials(s.Creds)) + given(s.User, nats.UserInfo(s.User, s.Password)) + given(s.Token, nats.Token(s.Token))
	if s.NKey != "" {
		nkey, err := nats.NkeyOptionFromSeed(s.NKey)
		if err != nil {
			return nil, fmt.Errorf("nkey %s: %w", s.NKey, err)
		}
		logins += given(s.NKey, nkey)
	}
	if logins > 1 {
		return nil, errors.New("more than one way to log in is given: use one of creds, nkey, user and token")
	}
	if (s.Cert == "") != (s.Key == "") {
		return nil, errors.New("--tlscert and --tlskey go together")
	}
	given(s.Cert, nats.ClientCert(s.Cert, s.Key))
	given(s.CA, nats.RootCAs(s.CA))
	given(s.InboxPrefix, nats.CustomInboxPrefix(s.InboxPrefix))
	if s.TLSFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	return opts, nil
}

// Session is an open connection to a fila.
type Session struct {
	*client.Client
	Server  string // for messages, without passwords
	Timeout time.Duration
	named   []string // queues in the command line
}

// Open connects. Its error says what to do if no server answers.
func (c *Connection) Open(more ...nats.Option) (*Session, error) {
	where, err := c.Settle()
	if err != nil {
		return nil, err
	}
	opts, err := where.options()
	if err != nil {
		return nil, Exit(ExitUsage, err)
	}
	s := &Session{Server: redactURLs(where.URL), Timeout: where.Timeout}
	// Without a handler, the library would print errors of the server.
	opts = append(opts, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	nc, err := nats.Connect(where.URL, append(opts, more...)...)
	if err != nil {
		if errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) {
			return nil, Exit(ExitConnect, fmt.Errorf(
				"no NATS server answers at %s: start one with `fila serve`, or name another with --server, --context or NATS_URL", s.Server))
		}
		return nil, Exit(ExitConnect, fmt.Errorf("connect to NATS at %s: %w", s.Server, err))
	}
	if s.Client, err = client.New(nc, client.WithPrefix(c.Prefix), client.WithTimeout(where.Timeout)); err != nil {
		nc.Close()
		return nil, UsageError("--subject-prefix: %w", err)
	}
	return s, nil
}

// Close closes the connection.
func (s *Session) Close() { s.Conn().Close() }

// Flush waits until the server has processed everything that was sent, and returns a permission
// error if the server refused something.
func (s *Session) Flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	if err := s.Conn().FlushWithContext(ctx); err != nil {
		return err
	}
	if last := s.Conn().LastError(); errors.Is(last, nats.ErrPermissionViolation) {
		return s.Explain(last)
	}
	return nil
}

// remedies are what to do about refusals, by their numbers, if it does not depend on the command.
var remedies = map[int]string{
	wire.CodeQueueExists:      "`fila queue update` changes them",
	wire.CodeQueueNotEmpty:    "--force deletes them, too",
	wire.CodeOwned:            "--owner names its owner, and --force changes it all the same",
	wire.CodeThrottleNotFound: "`fila throttle list` lists the known keys",
	wire.CodeCircuitNotFound:  "`fila circuit list` lists the known circuits",
	wire.CodePauseNotFound:    "`fila pause list` lists the pauses",
	wire.CodeReloadFailed:     "correct the file and reload again; until then the present configuration stays in force",
}

// Explain adds an exit code and a remedy to an error of the client.
func (s *Session) Explain(err error) error {
	var refused *client.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		with := *refused
		if refused.ErrCode == wire.CodeQueueNotFound {
			with.Description += ": " + s.meant() + "`fila queue list` lists the queues"
		} else if remedy := remedies[refused.ErrCode]; remedy != "" {
			with.Description += ": " + remedy
		}
		return Exit(codeOf(refused.Code), &refusal{with})
	case errors.Is(err, nats.ErrPermissionViolation):
		return Exit(ExitDenied, fmt.Errorf("%w; docs/security.md has the permissions of each role", err))
	case errors.Is(err, client.ErrNoFila):
		return Exit(ExitConnect, fmt.Errorf(
			"no fila listens at %s under the prefix %q: is `fila serve` running and connected to this NATS server?", s.Server, s.Prefix()))
	case errors.Is(err, client.ErrNoReply):
		if last := s.Conn().LastError(); last != nil {
			return fmt.Errorf("%w; NATS said: %w", err, last)
		}
	}
	return err
}

// ExplainFor is Explain for requests on a queue's own subject: without a responder, the queue
// may not exist.
func (s *Session) ExplainFor(ctx context.Context, queue string, err error) error {
	if errors.Is(err, client.ErrNoFila) {
		if _, inspectErr := s.QueueInspect(ctx, queue, 0); inspectErr != nil {
			err = inspectErr
		}
	}
	return s.Explain(err)
}

func codeOf(code int) int {
	switch code {
	case 400, 413:
		return ExitUsage
	case 404:
		return ExitNotFound
	case 409:
		return ExitConflict
	case 429, 503:
		return ExitRefused
	}
	return ExitFailed
}

func redactURLs(list string) string {
	parts := strings.Split(list, ",")
	for i, one := range parts {
		one = strings.TrimSpace(one)
		parts[i] = one
		if strings.Contains(one, "@") {
			u, err := url.Parse(one)
			if err != nil {
				parts[i] = "(not shown)"
				continue
			}
			parts[i] = u.Redacted()
		}
	}
	return strings.Join(parts, ",")
}

// Hint adds a remedy to a refusal with this number.
func Hint(err error, errCode int, text string) error {
	var refused *client.Error
	if !errors.As(err, &refused) || refused.ErrCode != errCode {
		return err
	}
	with := *refused
	with.Description += ": " + text
	return &with
}

// connectionName returns the connection's name in NATS and in the audit log.
func connectionName() string {
	host, _ := os.Hostname()
	if u, err := user.Current(); err == nil {
		return "fila cli " + u.Username + "@" + host
	}
	return "fila cli @" + host
}
