package natsio

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/config"
)

const (
	// A dead connection is noticed after at most three intervals, since two pings may go
	// unanswered.
	natsPingInterval = 20 * time.Second
	// The connection of shared records is given up sooner: other filas declare a fila dead
	// that has been silent for 10 s.
	fleetPingInterval = 3 * time.Second
	natsDialTimeout   = 5 * time.Second

	// The wait between rounds over all servers doubles from the first to the second.
	natsReconnectFirst = 50 * time.Millisecond
	natsReconnectMax   = 2 * time.Second

	// A missing connection is logged this often.
	natsReportEvery = 30 * time.Second
)

// Connect connects fila to NATS: to the embedded server unless it is nil, otherwise to cfg.URL.
// The connection reconnects for ever.
//
// If an external server is down, Connect returns a connection that is not connected yet
// (IsConnected is false, MaxPayload 0), and logs that it waits. Subscriptions made meanwhile are
// sent when it connects. Connect returns an error for what waiting does not mend: a refused
// login, a certificate that does not verify, a file that cannot be read.
//
// Without a connection, publishing fails at once and nothing is buffered: a late delivery would
// arrive after its lease, at a consumer that may be gone.
//
// onDisconnect is called when an established connection is lost, onReconnect when it is back
// with all subscriptions, and also for a first connection that had to be waited for. Neither is
// called when the caller closes the connection. Both run on the callback goroutine of the
// connection and must not block; both may be nil.
//
// Messages with headers beyond the limits of cfg arrive without headers and payload, and a
// [Front] refuses them. Over WebSocket there are no such limits.
func Connect(cfg config.NATSConfig, embedded *Embedded, log *slog.Logger, onDisconnect, onReconnect func(), opts ...nats.Option) (*nats.Conn, error) {
	log = log.With("component", "nats")
	opts = append(watchOptions(cfg, log, onDisconnect, onReconnect), opts...)
	limits := HeaderLimitsOf(&cfg)
	switch {
	case embedded != nil:
		opts = append(opts, nats.InProcessServer(filteredServer{embedded, limits}))
	case !strings.HasPrefix(strings.TrimSpace(cfg.URL), "ws"):
		opts = append(opts, filteredDial(limits))
	}
	return dial(cfg, embedded, log, opts)
}

// CheckConfig reads the files that Connect and StartEmbedded need: users, credentials,
// certificates. It connects to nothing.
func CheckConfig(cfg config.NATSConfig, embedded config.EmbeddedConfig) error {
	if cfg.URL == "" {
		_, _, err := embeddedOptions(embedded)
		return err
	}
	login, err := loginOptions(cfg)
	if err != nil {
		return err
	}
	opts := nats.GetDefaultOptions()
	for _, option := range login {
		if err := option(&opts); err != nil {
			return fmt.Errorf("connect to NATS: %w", err)
		}
	}
	return nil
}

// PingOften is an option of [Connect] for a fila that others depend on: it leaves a server that
// does not answer within 9 s.
func PingOften() nats.Option { return nats.PingInterval(fleetPingInterval) }

// FleetInbox is the prefix of the inboxes of [ConnectFleet].
const FleetInbox = "_INBOX.fila"

// ConnectFleet makes the connection for shared records, separate so that it does not wait behind
// deliveries. Its inboxes are under [FleetInbox], since fila's user may not subscribe to all
// inboxes. Its user reports lost connections.
func ConnectFleet(cfg config.NATSConfig, embedded *Embedded, log *slog.Logger) (*nats.Conn, error) {
	log = log.With("component", "nats", "connection", "shared")
	cfg.ReplyPrefixes = []string{""} // no client chooses subjects of this connection, so all are needed
	opts := append(watchOptions(cfg, log, nil, nil),
		nats.Name(cfg.Name+" shared"), nats.CustomInboxPrefix(FleetInbox), nats.PingInterval(fleetPingInterval),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { log.Debug("disconnected", "error", err) }))
	return dial(cfg, embedded, log, opts)
}

func dial(cfg config.NATSConfig, embedded *Embedded, log *slog.Logger, opts []nats.Option) (*nats.Conn, error) {
	if embedded != nil {
		opts = slices.Concat([]nats.Option{nats.InProcessServer(embedded)}, opts, embedded.login)
		nc, err := nats.Connect("", opts...)
		if err != nil {
			return nil, fmt.Errorf("connect to the embedded NATS server: %w", err)
		}
		return nc, nil
	}

	login, err := loginOptions(cfg)
	if err != nil {
		return nil, err
	}
	opts = append(opts, login...)
	shown := redactURLs(cfg.URL)
	// Not with RetryOnFailedConnect: a wrong password would be retried for ever.
	nc, err := nats.Connect(cfg.URL, opts...)
	if err == nil {
		log.Info("connected", "url", nc.ConnectedUrlRedacted())
		return nc, nil
	}
	if isConfigurationError(err) {
		return nil, fmt.Errorf("connect to NATS at %s: %w", shown, err)
	}
	log.Warn("NATS does not answer; retrying", "url", shown, "error", err)
	nc, err = nats.Connect(cfg.URL, append(opts, nats.RetryOnFailedConnect(true))...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", shown, err)
	}
	return nc, nil
}

// WaitConnected waits for the first connection.
func WaitConnected(ctx context.Context, nc *nats.Conn) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !nc.IsConnected() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// closeTimeout bounds the last flush, which has no reason to wait.
const closeTimeout = 5 * time.Second

// Disconnect sends buffered messages and closes the connection.
func Disconnect(nc *nats.Conn, log *slog.Logger) {
	if nc.Status() == nats.CONNECTED {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := nc.FlushWithContext(ctx); err != nil {
			log.Debug("last flush", "error", err)
		}
	}
	nc.Close()
}

// watchOptions are the options that all connections of fila share.
func watchOptions(cfg config.NATSConfig, log *slog.Logger, onDisconnect, onReconnect func()) []nats.Option {
	quiet := &reportLimiter{}
	up := func(nc *nats.Conn, text string) {
		quiet.reset()
		log.Info(text, "url", nc.ConnectedUrlRedacted())
		// Until the server has processed the subscriptions that went out with the connection,
		// a request would find nobody.
		for nc.IsConnected() && nc.FlushTimeout(natsDialTimeout) != nil {
		}
		// If it is lost again meanwhile, its next return calls up again.
		if onReconnect != nil && nc.IsConnected() {
			onReconnect()
		}
	}
	return []nats.Option{
		nats.Name(cfg.Name),
		nats.Timeout(natsDialTimeout),
		nats.PingInterval(natsPingInterval),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(reconnectDelay),
		// A server that is being reconfigured refuses logins for a while.
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectBufSize(-1),
		nats.ReconnectOnFlusherError(),
		nats.ConnectHandler(func(nc *nats.Conn) {
			// It is also called for a plain Connect, where the caller knows.
			if nc.Opts.RetryOnFailedConnect {
				up(nc, "connected")
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) { up(nc, "reconnected") }),
		nats.NoCallbacksAfterClientClose(),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			log.Warn("disconnected; deliveries stop until NATS is back", "error", err)
			if onDisconnect != nil {
				onDisconnect()
			}
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			if quiet.allow(time.Now(), err.Error()) {
				log.Warn("still no connection to NATS; retrying", "error", err)
			}
		}),
		nats.PermissionErrOnSubscribe(true), // waiting subscribers get the error
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) { logAsyncError(cfg, log, sub, err) }),
		nats.LameDuckModeHandler(func(*nats.Conn) { log.Warn("the NATS server is about to shut down") }),
		// It is not called when fila closes the connection, but when the server has refused
		// the protocol for good.
		nats.ClosedHandler(func(nc *nats.Conn) {
			log.Error("NATS closed the connection for good; restart fila", "error", nc.LastError())
		}),
	}
}

// password returns the login with a user or a token, if there is one.
func password(user, secret, token string) []nats.Option {
	switch {
	case user != "":
		return []nats.Option{nats.UserInfo(user, secret)}
	case token != "":
		return []nats.Option{nats.Token(token)}
	}
	return nil
}

// loginOptions returns the options for credentials and TLS. It reads the files now, so that a
// wrong path stops the start even while NATS is down.
func loginOptions(cfg config.NATSConfig) ([]nats.Option, error) {
	var opts []nats.Option
	switch {
	case cfg.Creds != "":
		if err := readable("nats.creds", cfg.Creds); err != nil {
			return nil, err
		}
		opts = append(opts, nats.UserCredentials(cfg.Creds))
	case cfg.NKey != "":
		opt, err := nats.NkeyOptionFromSeed(cfg.NKey)
		if err != nil {
			return nil, fmt.Errorf("nats.nkey = %q: allowed is a file with the seed of a user nkey: %w", cfg.NKey, err)
		}
		opts = append(opts, opt)
	default:
		opts = password(cfg.User, cfg.Password, cfg.Token)
	}
	if cfg.TLS.CA != "" {
		if err := readable("nats.tls.ca", cfg.TLS.CA); err != nil {
			return nil, err
		}
		opts = append(opts, nats.RootCAs(cfg.TLS.CA))
	}
	if cfg.TLS.Cert != "" {
		if _, err := tls.LoadX509KeyPair(cfg.TLS.Cert, cfg.TLS.Key); err != nil {
			return nil, fmt.Errorf("nats.tls.cert = %q, nats.tls.key = %q: allowed are two PEM files that belong together: %w", cfg.TLS.Cert, cfg.TLS.Key, err)
		}
		opts = append(opts, nats.ClientCert(cfg.TLS.Cert, cfg.TLS.Key))
	}
	return opts, nil
}

func readable(key, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%s = %q: allowed is a file that can be read: %w", key, path, errors.Unwrap(err))
	}
	return f.Close()
}

// isConfigurationError reports whether only an operator can mend the cause of an error.
func isConfigurationError(err error) bool {
	fatal := []error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrNkeysNotSupported, nats.ErrSecureConnRequired, nats.ErrSecureConnWanted,
		nats.ErrMixingWebsocketSchemes, nats.ErrMultipleTLSConfigs,
	}
	var cert *tls.CertificateVerificationError
	return errors.As(err, &cert) || slices.ContainsFunc(fatal, func(f error) bool { return errors.Is(err, f) })
}

// reconnectDelay returns the wait before round n (from 1) over all servers, with jitter so that
// many filas do not reconnect at once.
func reconnectDelay(round int) time.Duration {
	wait := natsReconnectMax
	if round < 7 {
		wait = min(wait, natsReconnectFirst<<(round-1))
	}
	return wait + rand.N(wait/4)
}

func logAsyncError(cfg config.NATSConfig, log *slog.Logger, sub *nats.Subscription, err error) {
	var attrs []any
	if sub != nil {
		attrs = append(attrs, "subject", sub.Subject)
	}
	attrs = append(attrs, "error", err)
	switch {
	case errors.Is(err, nats.ErrSlowConsumer):
		if sub != nil {
			if dropped, bad := sub.Dropped(); bad == nil {
				attrs = append(attrs, "dropped", dropped)
			}
		}
		log.Error("the NATS client dropped messages that arrived faster than fila read them", attrs...)
	case errors.Is(err, nats.ErrPermissionViolation) && !needed(cfg, err):
		log.Warn("NATS permissions deny a reply to the reply subject of a client", attrs...)
	case errors.Is(err, nats.ErrPermissionViolation):
		log.Error("NATS permissions deny fila's user a subject that it needs", attrs...)
	default:
		log.Warn("NATS reports an error", attrs...)
	}
}

// publishRefused finds the subject in the error text of a refused publish.
var publishRefused = regexp.MustCompile(`(?i)violation for publish to ("(?:[^"\\]|\\.)*")`)

// needed reports whether fila needs a subject that the server has refused: for itself or to
// answer under the reply prefixes. Other subjects are replies of the micro service, which fila
// does not check.
func needed(cfg config.NATSConfig, refusal error) bool {
	found := publishRefused.FindStringSubmatch(refusal.Error())
	if found == nil {
		return true
	}
	subject, err := strconv.Unquote(found[1])
	return err != nil || slices.ContainsFunc(slices.Concat(cfg.ReplyPrefixes, []string{cfg.SubjectPrefix + "."}), func(prefix string) bool {
		return strings.HasPrefix(subject, prefix)
	})
}

// redactURLs hides the passwords of a list of URLs.
func redactURLs(list string) string {
	var shown []string
	for one := range strings.SplitSeq(list, ",") {
		one = strings.TrimSpace(one)
		if !strings.Contains(one, "://") {
			one = "nats://" + one
		}
		u, err := url.Parse(one)
		if err != nil {
			shown = append(shown, "(unreadable URL)")
			continue
		}
		shown = append(shown, u.Redacted())
	}
	return strings.Join(shown, ",")
}

// reportLimiter allows a text that differs from the last one, or the same after natsReportEvery.
// It is used by the callback goroutine of the connection.
type reportLimiter struct {
	text string
	at   time.Time
}

func (r *reportLimiter) allow(now time.Time, text string) bool {
	if text == r.text && now.Sub(r.at) < natsReportEvery {
		return false
	}
	r.text, r.at = text, now
	return true
}

func (r *reportLimiter) reset() { *r = reportLimiter{} }
