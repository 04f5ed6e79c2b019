package natsio

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strconv"
	"sync"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/telemetry"
)

// embeddedMaxPending is how many bytes the embedded server holds for one
// connection that reads slower than it is sent to, before it cuts it off. The
// server's own default of 64 MiB is less than a burst of 100,000 messages of
// 1 KiB, which fila promises to take.
const embeddedMaxPending = 256 << 20

// StartEmbedded runs a NATS server inside this process: core NATS only, no
// JetStream, no cluster. It listens when it returns. Port -1 takes any free
// port (ClientURL tells which); port 0, which config.Config.Validate refuses, does not
// listen at all and leaves only the in-process connection, for tests in a
// synctest bubble.
//
// The caller ends it with Shutdown and WaitForShutdown. Every error is one line
// that names the address and what to do.
func StartEmbedded(cfg config.EmbeddedConfig, log *slog.Logger) (*server.Server, error) {
	srv, err := server.NewServer(embeddedOptions(cfg))
	if err != nil {
		return nil, fmt.Errorf("nats.embedded: %w", err)
	}
	bridge := &natsLog{log: log.With("component", "nats-server")}
	srv.SetLogger(bridge, false, false)
	srv.Start()
	// Start does its work, the listening included, before it returns, but tells
	// of a failure only to the logger.
	if cfg.Port != 0 && srv.Addr() == nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, listenError(cfg, bridge.fatal())
	}
	return srv, nil
}

func embeddedOptions(cfg config.EmbeddedConfig) *server.Options {
	return &server.Options{
		ServerName: "fila-embedded",
		Host:       cfg.Host,
		Port:       cfg.Port, // -1 is the server's RANDOM_PORT
		DontListen: cfg.Port == 0,
		MaxPayload: int32(cfg.MaxPayload),
		MaxPending: embeddedMaxPending,
		Username:   cfg.User,
		Password:   cfg.Password,
		// The server calls a token "authorization".
		Authorization: cfg.Token,
		// Signals are the business of main.
		NoSigs: true,
		// Every ack and every inbox is a subject of its own, seen once: a cache
		// of subjects is filled and thrown away all the time.
		NoSublistCache: true,
	}
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
// of ours, since clients can have many different ones written.
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
		message = "the NATS server says about a client"
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
