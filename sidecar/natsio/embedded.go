package natsio

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/telemetry"
)

// embeddedMaxPending is how many bytes the embedded server holds for one
// connection that reads slower than it is sent to, before it cuts it off. The
// server's own default of 64 MiB is less than a burst of 100,000 messages of
// 1 KiB, which fila promises to take.
const embeddedMaxPending = 256 << 20

// Embedded is a NATS server inside this process.
type Embedded struct {
	*server.Server
	login []nats.Option // of fila itself
}

// StartEmbedded runs a NATS server inside this process, without a cluster. It
// listens when it returns. Port -1 takes any free port (ClientURL tells which);
// port 0, which config.Config.Validate refuses, does not listen at all and leaves only
// the in-process connection, for tests in a synctest bubble.
//
// The caller ends it with Shutdown and WaitForShutdown. Every error is one line
// that names the address, or the key, and what to do.
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
	// Start does its work, the listening included, before it returns, but tells
	// of a failure only to the logger.
	noJetStream := strings.Contains(bridge.fatal(), "JetStream")
	if cfg.Port != 0 && srv.Addr() == nil || noJetStream {
		srv.Shutdown()
		srv.WaitForShutdown()
		if noJetStream {
			return nil, fmt.Errorf("nats.embedded.jetstream, in %s: %s", cfg.JetStreamDir, bridge.fatal())
		}
		return nil, listenError(cfg, bridge.fatal())
	}
	return &Embedded{Server: srv, login: login}, nil
}

// embeddedOptions returns the options of the server, and with what fila logs in to it.
func embeddedOptions(cfg config.EmbeddedConfig) (opts *server.Options, login []nats.Option, err error) {
	opts, login = &server.Options{}, password(cfg.User, cfg.Password, cfg.Token)
	if cfg.UsersFile != "" {
		if opts, login, err = readUsers(cfg.UsersFile, cfg.Account); err != nil {
			return nil, nil, err
		}
	} else {
		opts.Username, opts.Password = cfg.User, cfg.Password
		opts.Authorization = cfg.Token // as the server calls a token
	}
	if opts.TLSConfig, err = serverTLS(&cfg.TLS); err != nil {
		return nil, nil, err
	}
	opts.TLSVerify = cfg.TLS.CA != ""
	opts.ServerName = "fila-embedded"
	opts.Host = cfg.Host
	opts.Port = cfg.Port // -1 is the server's RANDOM_PORT
	opts.DontListen = cfg.Port == 0
	opts.MaxPayload = int32(cfg.MaxPayload)
	opts.MaxPending = embeddedMaxPending
	opts.JetStream, opts.StoreDir = cfg.JetStream, cfg.JetStreamDir
	// Signals are the business of main.
	opts.NoSigs = true
	// Every ack and every inbox is a subject of its own, seen once: a cache of
	// subjects is filled and thrown away all the time.
	opts.NoSublistCache = true
	return opts, login, nil
}

// serverTLS returns nil where there are no files. With a CA it asks clients for
// certificates.
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

// listenError explains why the embedded server does not listen. The server
// keeps the reason to itself, so the address is tried once more; should it be
// free by now, what the server logged has to do.
func listenError(cfg config.EmbeddedConfig, logged string) error {
	addr := net.JoinHostPort(cfg.Host, strconv.Itoa(max(cfg.Port, 0)))
	l, err := net.Listen("tcp", addr)
	if err == nil {
		_ = l.Close()
		return fmt.Errorf("the embedded NATS server cannot listen on %s: %s", addr, logged)
	}
	return telemetry.ListenError("the embedded NATS server", addr, err,
		"set nats.embedded.port (-1 takes any free port), or nats.url to use a NATS server that runs already")
}

// natsLog passes what the embedded server logs on to slog: its notices are
// details of ours, its fatal errors do not end the process. Its texts are no messages
// of ours, since clients can have many different ones written, and what a client did
// is no error of the server.
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

// aboutConnection is how the server begins lines about a connection: its address, its
// kind and number.
var aboutConnection = regexp.MustCompile(`^\S+ - [a-z]+:\d+`)

func (l *natsLog) say(level slog.Level, format string, v []any) {
	message, text := "the NATS server says", fmt.Sprintf(format, v...)
	if aboutConnection.MatchString(text) {
		message, level = "the NATS server says about a client", min(level, slog.LevelWarn)
	}
	l.log.Log(context.Background(), level, message, "text", text)
}

// Fatalf remembers the first text; StartEmbedded makes an error of it.
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
