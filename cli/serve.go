package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/sidecar"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/telemetry"
)

// runner is the part of sidecar.Server that serve uses.
type runner interface {
	Run(ctx context.Context) error // until ctx ends, gracefully
	Kill()                         // stops at once
	Reload() error                 // reads the rules of the file again; changes nothing if it fails
	Check() error                  // reads the files of the configuration without starting anything
}

type serverFactory func(cfg config.Config, log *slog.Logger, version string) (runner, error)

func newSidecar(cfg config.Config, log *slog.Logger, version string) (runner, error) {
	return sidecar.New(cfg, log, version)
}

// serveKeys maps flags of fila serve to configuration keys, in addition to command.NATSKeys.
var serveKeys = map[string]string{
	"data-dir":       "data_dir",
	"drain-timeout":  "drain_timeout_ms",
	"log-level":      "log.level",
	"log-format":     "log.format",
	"host":           "nats.embedded.host",
	"port":           "nats.embedded.port",
	"max-payload":    "nats.embedded.max_payload",
	"http":           "http.addr",
	"cluster":        "cluster.enabled",
	"pprof":          "http.pprof",
	"nats-url":       "nats.url",
	"subject-prefix": "nats.subject_prefix",
}

func newServeCommand(a *app) *cobra.Command {
	var path string
	var check bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the sidecar",
		Long: `Run the sidecar until SIGINT or SIGTERM. After the first signal fila waits for messages
in flight; a second one stops it at once. SIGHUP reloads the configuration file, as
"fila reload" does.

The configuration comes from defaults, a file (--config, ./config.toml or
/etc/fila/config.toml), FILA_* variables (FILA_NATS__URL is nats.url) and flags,
later ones winning. Without nats.url fila runs a NATS server on 127.0.0.1:4222.

--check reads the configuration and the files that it names, and prints whether fila
would start. "fila reload --dry-run" shows what a file would change in a running
fila.`,
		Example: `  fila serve
  fila serve --config /etc/fila/config.toml
  fila serve --config /etc/fila/config.toml --check
  fila serve --nats-url nats://nats:4222 --data-dir /var/lib/fila
  FILA_LOG__LEVEL=debug fila serve --port -1`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd, path, check) },
	}
	defaults := config.Default()
	drain := terminal.Millis(defaults.DrainTimeoutMs)
	flags := cmd.Flags()
	flags.StringVar(&path, "config", "", "configuration `file`; it must exist")
	flags.BoolVar(&check, "check", false, "check the configuration, and start nothing")
	flags.String("data-dir", defaults.DataDir, "`directory` of the store")
	flags.Var(&drain, "drain-timeout", "how long a shutdown waits for messages in flight")
	flags.String("log-level", defaults.Log.Level, "debug, info, warn or error")
	flags.String("log-format", defaults.Log.Format, "text or json")
	command.Allow(cmd, "log-level", "debug", "info", "warn", "error")
	command.Allow(cmd, "log-format", "text", "json")
	flags.String("nats-url", "", "`url` of an external NATS server, same as --server (default: an embedded server)")
	flags.String("host", defaults.NATS.Embedded.Host, "`address` of the embedded NATS server")
	flags.Int("port", defaults.NATS.Embedded.Port, "port of the embedded NATS server; -1 takes any free port")
	flags.Int64("max-payload", defaults.NATS.Embedded.MaxPayload, "largest message of the embedded NATS server, in `bytes`")
	flags.String("http", defaults.HTTP.Addr, "`host:port` of the pages, health checks and metrics; empty is off")
	flags.Bool("cluster", defaults.Cluster.Enabled, "be a node of the cluster in [cluster] of the configuration")
	flags.Bool("pprof", defaults.HTTP.Pprof, "serve /debug/pprof on the HTTP address")
	return cmd
}

func (a *app) serve(cmd *cobra.Command, path string, check bool) error {
	flags := cmd.Flags()
	for _, name := range []string{"timeout", "inbox-prefix"} {
		if flags.Changed(name) {
			return command.UsageError("--%s is for commands that talk to a running fila, not for serve", name)
		}
	}
	if flags.Changed("server") && flags.Changed("nats-url") {
		return command.UsageError("--server and --nats-url say the same: one of them is allowed")
	}
	if flags.Changed("config") && path == "" {
		return command.UsageError("--config is empty: name a file")
	}
	// From here on, because an unhandled SIGHUP would end the process.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	cfg, err := config.Load(config.Sources{
		File: path, Search: command.ConfigFiles, Environ: os.Environ(), Flags: serveSettings(flags, a.JSON),
	})
	if err != nil {
		return command.Exit(command.ExitUsage, err)
	}
	if check {
		return a.checkConfig(cmd, cfg)
	}
	defer tuneMemory(os.Getenv)()
	log := newLogger(cfg.Log, cmd.ErrOrStderr())
	for _, warning := range cfg.Warnings {
		log.Warn(warning)
	}
	if cfg.File != "" {
		log.Info("configuration read", "file", cfg.File)
	}
	server, err := a.newServer(cfg.Config, log, command.ReadBuildInfo().Version)
	if err != nil {
		return command.Exit(command.ExitUsage, err)
	}
	ctx, stop := stopOnSignals(cmd.Context(), log, server.Kill)
	defer stop()
	defer reloadOnSignals(hangups, log, server.Reload)()
	err = server.Run(ctx)
	if errors.Is(err, sidecar.ErrAnotherFila) {
		return command.Exit(command.ExitConflict, err)
	}
	return err
}

// configCheck is the JSON of fila serve --check.
type configCheck struct {
	Valid    bool     `json:"valid"`
	File     string   `json:"file,omitempty"`
	Warnings []string `json:"warnings"`
}

// checkConfig checks whether fila would start with a configuration, as far as files can show
// it.
func (a *app) checkConfig(cmd *cobra.Command, cfg *config.Loaded) error {
	server, err := a.newServer(cfg.Config, slog.New(slog.DiscardHandler), command.ReadBuildInfo().Version)
	if err == nil {
		err = server.Check()
	}
	if err != nil {
		return command.Exit(command.ExitUsage, err)
	}
	return a.Show(cmd, configCheck{Valid: true, File: cfg.File, Warnings: append([]string{}, cfg.Warnings...)}, func() string {
		var b strings.Builder
		for _, warning := range cfg.Warnings {
			b.WriteString("warning: " + terminal.Clean(warning) + "\n")
		}
		name := "the configuration without a file"
		if cfg.File != "" {
			name = terminal.Clean(cfg.File)
		}
		fmt.Fprintf(&b, "%s is valid: %s, %s, %s\n", name, terminal.Plural(int64(len(cfg.Queues)), "queue"),
			terminal.Plural(int64(len(cfg.Throttles)), "throttle"), terminal.Plural(int64(len(cfg.Circuits)), "circuit"))
		return b.String()
	})
}

// serveSettings returns the settings of the given flags. --json makes the log JSON unless
// --log-format is given.
func serveSettings(flags *pflag.FlagSet, json bool) []config.Setting {
	var given []config.Setting
	if json {
		given = append(given, config.Setting{Name: "--json", Key: "log.format", Text: "json"})
	}
	given = append(given, command.Settings(flags, serveKeys)...)
	return append(given, command.Settings(flags, command.NATSKeys)...)
}

// reloadOnSignals calls reload for every signal until the returned function is called. It logs
// a failed reload, which changes nothing.
func reloadOnSignals(signals chan os.Signal, log *slog.Logger, reload func() error) (stop func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for s := range signals {
			log.Info("reloading the configuration file", "signal", s.String())
			if err := reload(); err != nil {
				log.Error("reload failed", "error", err)
			}
		}
	}()
	return func() {
		endSignals(signals)
		<-ended
	}
}

// stopOnSignals returns a context that ends with the first SIGINT or SIGTERM; the second signal
// calls kill.
func stopOnSignals(parent context.Context, log *slog.Logger, kill func()) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		if s, ok := <-signals; ok {
			log.Info("stopping; another signal stops at once", "signal", s.String())
			cancel()
		}
		if s, ok := <-signals; ok {
			log.Warn("stopping at once", "signal", s.String())
			kill()
		}
	}()
	return ctx, func() {
		endSignals(signals)
		cancel()
	}
}

// endSignals closes a channel of signals. After signal.Stop nobody sends on it.
func endSignals(signals chan os.Signal) {
	signal.Stop(signals)
	close(signals)
}

func newLogger(cfg config.LogConfig, w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		level = slog.LevelInfo // Validate has refused unknown levels already
	}
	options := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		options.ReplaceAttr = telemetry.LogAttr
		return slog.New(telemetry.EventLog(slog.NewJSONHandler(w, options)))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
