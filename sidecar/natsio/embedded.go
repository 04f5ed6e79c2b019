package natsio

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/telemetry"
)

// Embedded is a NATS server inside this process.
type Embedded struct {
	*server.Server
	log   *slog.Logger
	login []nats.Option // login of fila itself
	onCut atomic.Pointer[func(CutClient)]
	watch sync.WaitGroup
	stop  context.CancelFunc
}

// Shutdown stops the server.
func (e *Embedded) Shutdown() {
	e.stop()
	e.watch.Wait()
	e.Server.Shutdown()
}

// InProcessConn connects fila itself to the server, which never disconnects it as slow.
func (e *Embedded) InProcessConn() (net.Conn, error) {
	conn, err := e.Server.InProcessConn()
	if err != nil {
		return nil, err
	}
	return newReadAhead(conn, ownMaxPending), nil
}

// StartEmbedded starts a NATS server inside this process, standalone or as a member of the
// cluster that cfg.Cluster names; it does not wait for other members. The server listens when it
// returns. Port -1 means any free port (see ClientURL). Port 0, which config.Config.Validate
// refuses, means that only in-process connections are possible, for tests in a synctest bubble.
//
// The caller ends it with Shutdown and WaitForShutdown. Errors are one line with the address or
// the key and a remedy.
func StartEmbedded(cfg config.EmbeddedConfig, log *slog.Logger) (*Embedded, error) {
	opts, login, err := embeddedOptions(cfg)
	if err != nil {
		return nil, err
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("nats.embedded: %w", err)
	}
	bridge := &natsLog{log: log.With("component", "nats-server")}
	srv.SetLogger(bridge, false, false)
	srv.Start()
	if err := started(srv, cfg, bridge); err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, err
	}
	e := &Embedded{Server: srv, login: login, log: log}
	var ctx context.Context
	ctx, e.stop = context.WithCancel(context.Background())
	e.watch.Go(func() { e.watchClients(ctx, cfg.MaxConnectionsPerUser) })
	return e, nil
}

// started returns why the server has not started. Server.Start begins to listen for clients
// before it returns and listens for other servers in a goroutine; it reports failures to the
// logger only.
func started(srv *server.Server, cfg config.EmbeddedConfig, bridge *natsLog) error {
	if strings.Contains(bridge.fatal(), "JetStream") {
		return fmt.Errorf("nats.embedded.jetstream, in %s: %s", cfg.JetStreamDir, bridge.fatal())
	}
	if cfg.Port != 0 && srv.Addr() == nil {
		return listenError(forClients(cfg), bridge.fatal())
	}
	if cfg.Cluster.Name == "" {
		return nil
	}
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for srv.ClusterAddr() == nil {
		if bridge.fatal() != "" {
			return listenError(forServers(cfg), bridge.fatal())
		}
		<-look.C
	}
	return nil
}

// TryListen returns an error if [StartEmbedded] could not listen on the configured addresses.
func TryListen(cfg config.EmbeddedConfig) error {
	if cfg.Port > 0 {
		if err := forClients(cfg).try(); err != nil {
			return err
		}
	}
	if cfg.Cluster.Name == "" {
		return nil
	}
	return forServers(cfg).try()
}

// listener is an address on which the embedded server listens.
type listener struct{ name, addr, remedy string }

func forClients(cfg config.EmbeddedConfig) listener {
	return listener{
		"the embedded NATS server", net.JoinHostPort(cfg.Host, strconv.Itoa(max(cfg.Port, 0))),
		"set nats.embedded.port (-1 takes any free port), or nats.url to use a NATS server that runs already",
	}
}

func forServers(cfg config.EmbeddedConfig) listener {
	return listener{
		"the embedded NATS server, for other servers,", cfg.Cluster.Listen,
		"set nats.embedded.cluster.listen, and nats.embedded.cluster.routes of the other servers",
	}
}

// try returns an error if the address cannot be listened on now.
func (a listener) try() error {
	l, err := net.Listen("tcp", a.addr)
	if err != nil {
		return telemetry.ListenError(a.name, a.addr, err, a.remedy)
	}
	return l.Close()
}

// embeddedOptions returns the options of the server and the login of fila.
func embeddedOptions(cfg config.EmbeddedConfig) (opts *server.Options, login []nats.Option, err error) {
	opts, login = &server.Options{}, password(cfg.User, cfg.Password, cfg.Token)
	if cfg.UsersFile != "" {
		if opts, login, err = readUsers(cfg.UsersFile, cfg.Account); err != nil {
			return nil, nil, err
		}
	} else {
		opts.Username, opts.Password = cfg.User, cfg.Password
		opts.Authorization = cfg.Token // the server's name for a token
	}
	if opts.TLSConfig, err = serverTLS(&cfg.TLS); err != nil {
		return nil, nil, err
	}
	opts.TLSVerify = cfg.TLS.CA != ""
	opts.ServerName = "fila-embedded" // unless joinCluster sets it
	opts.Host = cfg.Host
	opts.Port = cfg.Port // -1 is the server's RANDOM_PORT
	opts.DontListen = cfg.Port == 0
	opts.MaxPayload = int32(cfg.MaxPayload)
	opts.MaxPending = max(cfg.MaxPending, 2*cfg.MaxPayload)
	opts.WriteDeadline = time.Duration(cfg.WriteDeadlineMs) * time.Millisecond
	opts.JetStream, opts.StoreDir, opts.SyncAlways = cfg.JetStream, cfg.JetStreamDir, cfg.SyncsAlways()
	if err := joinCluster(opts, &cfg); err != nil {
		return nil, nil, err
	}
	// main handles signals.
	opts.NoSigs = true
	// Every ack and inbox is a subject that is used once, so a cache of subjects is useless.
	opts.NoSublistCache = true
	return opts, login, nil
}

// joinCluster sets the options of a cluster member, if cfg names a cluster. Servers authenticate
// by a password and, if clients need TLS, by the same certificate.
func joinCluster(opts *server.Options, cfg *config.EmbeddedConfig) error {
	c := &cfg.Cluster
	if c.Name == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("nats.embedded.cluster.listen = %q: %w", c.Listen, err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return fmt.Errorf("nats.embedded.cluster.listen = %q: %w", c.Listen, err)
	}
	if opts.ServerName, err = serverName(c, port); err != nil {
		return err
	}
	opts.Cluster = server.ClusterOpts{Name: c.Name, Host: host, Port: number, Username: c.User, Password: c.Password}
	for _, route := range c.Routes {
		u := &url.URL{Scheme: "nats-route", Host: route}
		if c.User != "" {
			u.User = url.UserPassword(c.User, c.Password)
		}
		opts.Routes = append(opts.Routes, u)
	}
	opts.Cluster.TLSConfig = routeTLS(opts.TLSConfig)
	return nil
}

// serverName returns the name by which JetStream recognises the server after a restart.
func serverName(c *config.EmbeddedCluster, port string) (string, error) {
	if c.ServerName != "" {
		return c.ServerName, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("nats.embedded.cluster.server_name is not set, and the host has no name: %w", err)
	}
	return host + "-" + port, nil
}

// routeTLS returns the TLS configuration for routes, given the one for clients: on a route a
// server is both client and server. Without a CA, servers are verified by the CAs of the system,
// and the server that connects only by its password.
func routeTLS(clients *tls.Config) *tls.Config {
	if clients == nil {
		return nil
	}
	routes := clients.Clone()
	routes.RootCAs = clients.ClientCAs
	return routes
}

// serverTLS returns the TLS configuration for clients, nil without files. With a CA it requires
// client certificates.
func serverTLS(files *config.TLSConfig) (*tls.Config, error) {
	if files.Cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return nil, fmt.Errorf("nats.embedded.tls.cert = %q, nats.embedded.tls.key = %q: allowed are two PEM files that belong together: %w", files.Cert, files.Key, err)
	}
	own := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if files.CA == "" {
		return own, nil
	}
	pem, err := os.ReadFile(files.CA)
	if err != nil {
		return nil, fmt.Errorf("nats.embedded.tls.ca = %q: allowed is a file that can be read: %w", files.CA, errors.Unwrap(err))
	}
	own.ClientAuth, own.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !own.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("nats.embedded.tls.ca = %q: allowed is a PEM file with certificates", files.CA)
	}
	return own, nil
}

// listenError returns why the embedded server does not listen. The server does not report the
// reason, so it tries the address again; if that works by now, it returns what the server logged.
func listenError(a listener, logged string) error {
	if err := a.try(); err != nil {
		return err
	}
	return fmt.Errorf("%s cannot listen on %s: %s", a.name, a.addr, logged)
}

// natsLog is the logger of the embedded server. Notices become debug lines, and a fatal error
// does not end the process. Its texts become an attribute instead of a message, because clients
// can cause many different ones; lines about a client are warnings at most.
type natsLog struct {
	log *slog.Logger

	mu struct {
		sync.Mutex
		fatal string
	}
}

func (l *natsLog) Noticef(format string, v ...any) { l.say(slog.LevelDebug, format, v) }
func (l *natsLog) Warnf(format string, v ...any)   { l.say(slog.LevelWarn, format, v) }
func (l *natsLog) Errorf(format string, v ...any)  { l.say(slog.LevelError, format, v) }
func (l *natsLog) Debugf(string, ...any)           {}
func (l *natsLog) Tracef(string, ...any)           {}

// aboutConnection matches lines of the server about a connection, which begin with its address,
// kind and number.
var aboutConnection = regexp.MustCompile(`^\S+ - [a-z]+:\d+`)

func (l *natsLog) say(level slog.Level, format string, v []any) {
	message, text := "log line of the embedded NATS server", fmt.Sprintf(format, v...)
	if aboutConnection.MatchString(text) {
		message, level = "log line of the embedded NATS server about a client", min(level, slog.LevelWarn)
	}
	l.log.Log(context.Background(), level, message, "text", text)
}

// Fatalf keeps the first text for StartEmbedded.
func (l *natsLog) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.mu.Lock()
	if l.mu.fatal == "" {
		l.mu.fatal = text
	}
	l.mu.Unlock()
	l.say(slog.LevelDebug, "%s", []any{text})
}

func (l *natsLog) fatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.fatal
}
