package clustercmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/sidecar"
	"github.com/filaq/fila/sidecar/cluster/meta"
	"github.com/filaq/fila/sidecar/cluster/transfer"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/replog"
)

// configured is a command that uses the configuration of a node that does not run.
type configured struct {
	env  *command.Env
	path string // of --config
}

func (c *configured) addTo(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&c.path, "config", "", "a node's configuration `file` (default as fila serve)")
	return cmd
}

// load reads the configuration as fila serve --cluster does.
func (c *configured) load(cmd *cobra.Command) (config.Config, *slog.Logger, error) {
	flags := append(command.Settings(cmd.Flags(), command.NATSKeys), config.Setting{Name: cmd.CommandPath(), Key: "cluster.enabled", Text: "true"})
	cfg, err := config.Load(config.Sources{File: c.path, Search: command.ConfigFiles, Environ: os.Environ(), Flags: flags})
	if err != nil {
		return config.Config{}, nil, command.Exit(command.ExitUsage, err)
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	for _, warning := range cfg.Warnings {
		log.Warn(warning)
	}
	return cfg.Config, log, nil
}

// with calls fn with a cluster whose nodes do not run; the first signal ends its context.
func (c *configured) with(cmd *cobra.Command, dir string, fn func(ctx context.Context, o transfer.Options, cfg config.Config) error) error {
	cfg, log, err := c.load(cmd)
	if err != nil {
		return err
	}
	ctx, restore := command.UntilSignal(cmd)
	defer restore()
	t, err := sidecar.OpenTransfer(ctx, cfg, log, dir)
	if err != nil {
		return command.Exit(command.ExitConnect, err)
	}
	defer t.Close()
	t.Store.Now = func() int64 { return c.env.Now().UnixNano() }
	return explain(fn(ctx, t.Options, cfg))
}

// explain gives an error its exit code.
func explain(err error) error {
	switch {
	case errors.Is(err, store.ErrLocked):
		return command.Exit(command.ExitRefused, fmt.Errorf("%w: stop the fila that has it first", err))
	case errors.Is(err, transfer.ErrRuns):
		return command.Exit(command.ExitRefused, err)
	case errors.Is(err, fs.ErrExist), errors.Is(err, replog.ErrForeign):
		return command.Exit(command.ExitConflict, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, meta.ErrNone):
		return command.Exit(command.ExitNotFound, err)
	case errors.As(err, new(*store.LostError)):
		return command.Exit(command.ExitConflict, fmt.Errorf("%w; docs/operations.md says what to do", err))
	case errors.Is(err, meta.ErrUnusable):
		return command.Exit(command.ExitConflict, err)
	}
	return err
}

func moved(m transfer.Moved) string {
	return fmt.Sprintf("%s, %s, %s, %s, %s of configuration and history", terminal.Plural(m.Queues, "queue"), terminal.Plural(m.Messages, "message"),
		terminal.Plural(m.Consumers, "consumer"), terminal.Plural(m.DedupeIDs, "dedupe id"), terminal.Plural(m.Entries, "key"))
}

func newImportCommand(env *command.Env) *cobra.Command {
	c := &configured{env: env}
	return c.addTo(&cobra.Command{
		Use:   "import DATA_DIR",
		Short: "Make a cluster from the store of a single fila",
		Long: `Make the cluster of the configuration from the store of a single fila that does not
run. DATA_DIR is its data directory or fila.db, which is only read. The cluster must
not exist yet; start its nodes afterwards.

Messages keep their ids, order, attempts, delays, leases, dedupe ids and reasons,
and deliveries under way can be acked to the cluster. Queues, registrations, the
runtime configuration, pauses, overrides and the audit log are imported; circuits
and the usage of throttles start empty.

Nodes do not start until the import is complete; after an interruption run it again.
The configuration's data directory needs space for three copies of the store. If
JetStream runs in embedded servers, run "fila cluster nats" at the other nodes.`,
		Example: `  fila cluster import /var/lib/fila --config /etc/fila/node-a.toml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.with(cmd, "import", func(ctx context.Context, o transfer.Options, _ config.Config) error {
				r, err := transfer.Import(ctx, o, config.StoreFile(args[0]))
				if err != nil {
					return err
				}
				return env.Show(cmd, r, func() string {
					return fmt.Sprintf("cluster %s: %s\nStart its nodes now. Do not start a fila on %s again.\n", o.Cluster, moved(r), args[0])
				})
			})
		},
	})
}

func newExportCommand(env *command.Env) *cobra.Command {
	c := &configured{env: env}
	var to string
	cmd := c.addTo(&cobra.Command{
		Use:   "export",
		Short: "Make a store for a single fila from a cluster",
		Long: `Make a fila.db for a single fila from a cluster whose nodes do not run, in a data
directory that has none; it is created if missing. "fila serve" without [cluster]
continues with it, with the same ids, tokens, leases and configuration.

The command reads from JetStream only, and changes nothing there. The file appears when
it is complete.
The disk needs space for the messages twice.`,
		Example: `  fila cluster export --to /var/lib/fila-alone`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to == "" {
				return command.UsageError("--to is missing: name a data directory")
			}
			return c.with(cmd, "export", func(ctx context.Context, o transfer.Options, _ config.Config) error {
				alone := config.Config{DataDir: to}
				if err := os.MkdirAll(to, 0o750); err != nil {
					return fmt.Errorf("--to %s: %w", to, command.PathReason(err))
				}
				o.Dir = filepath.Join(to, "export")
				r, err := transfer.Export(ctx, o, alone.StorePath())
				if err != nil {
					return err
				}
				return env.Show(cmd, r, func() string {
					return fmt.Sprintf("%s: %s\nServe either this or the cluster, not both.\n", alone.StorePath(), moved(r))
				})
			})
		},
	})
	cmd.Flags().StringVar(&to, "to", "", "the data `directory` of the single fila")
	return cmd
}

func newRebuildCommand(env *command.Env) *cobra.Command {
	c := &configured{env: env}
	var yes bool
	cmd := c.addTo(&cobra.Command{
		Use:   "rebuild [DATA_DIR...]",
		Short: "Rebuild a cluster whose logs are lost from the copies of its nodes",
		Long: `Rebuild a cluster whose logs in JetStream are lost or truncated from the copies in
its nodes' data directories. No node may run. Name the data directories of all nodes,
or copies of them that this host can read. Without arguments the command uses the data
directory of the configuration.

For each shard the command takes the most advanced copy and the log, if it still
exists; newer records are lost. It shows these sources first, and asks. It puts the
nodes' files aside. A node whose directory was not named starts only after you put
aside the directory shards of its data directory. After an interruption run the
command again with the same directories.`,
		Example: `  fila cluster rebuild /var/lib/fila /mnt/b/fila /mnt/c/fila`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.with(cmd, "rebuild", func(ctx context.Context, o transfer.Options, cfg config.Config) error {
				if len(args) == 0 {
					args = []string{cfg.DataDir}
				}
				p, err := transfer.Survey(ctx, o, args)
				if err != nil {
					return err
				}
				defer p.Close()
				if err := agree(cmd, o.Cluster, p, yes); err != nil {
					return err
				}
				r, aside, err := p.Rebuild(ctx)
				if err != nil {
					return err
				}
				return env.Show(cmd, rebuilt{p, aside}, func() string {
					return fmt.Sprintf("cluster %s: %s, %s\nPut aside: %s\nStart its nodes now.\n", o.Cluster,
						terminal.Plural(r.Queues, "queue"), terminal.Plural(r.Messages, "message"), strings.Join(aside, ", "))
				})
			})
		},
	})
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// rebuilt is the JSON of fila cluster rebuild.
type rebuilt struct {
	*transfer.Plan
	Aside []string `json:"aside"` // directories
}

// agree shows what a rebuild uses, and asks for confirmation.
func agree(cmd *cobra.Command, name string, p *transfer.Plan, yes bool) error {
	t := terminal.NewTable("SHARD", "EPOCH", "LAST", "QUEUES", "MESSAGES", "FROM")
	for _, c := range p.Copies {
		t.Row(c.Shard, c.Epoch, c.Seq, c.Queues, c.Messages, c.From)
	}
	text := t.String()
	for _, why := range p.Passed {
		text += "not taken: " + terminal.Clean(why) + "\n"
	}
	if p.Lost {
		text += "The bucket of the cluster is lost: runtime configuration, pauses, overrides and the audit log are gone,\nand acks of deliveries that are out will be refused.\n"
	}
	if _, err := fmt.Fprint(cmd.ErrOrStderr(), text); err != nil {
		return err
	}
	if yes {
		return nil
	}
	if !terminal.IsTerminalInput(cmd.InOrStdin()) {
		return command.UsageError("nothing was done: --yes makes the cluster %s again of these", name)
	}
	if !command.Agreed(cmd, fmt.Sprintf("Make the cluster %s again of these? Logs that it has are deleted.", name)) {
		return errors.New("nothing was done")
	}
	return nil
}

func newNATSCommand(env *command.Env) *cobra.Command {
	c := &configured{env: env}
	return c.addTo(&cobra.Command{
		Use:   "nats",
		Short: "Run the embedded NATS server of a node alone",
		Long: `Run only the embedded NATS server of a node, until SIGINT or SIGTERM: for "fila
cluster import", "export" and "rebuild" at another node whose cluster has JetStream
in its embedded servers. With three nodes run it at two.`,
		Example: `  fila cluster nats --config /etc/fila/config.toml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, log, err := c.load(cmd)
			if err != nil {
				return err
			}
			if cfg.NATS.URL != "" {
				return command.UsageError("nats.url is set: this node has no embedded NATS server")
			}
			ctx, restore := command.UntilSignal(cmd)
			defer restore()
			return sidecar.ServeNATS(ctx, cfg, log, func(url string) error {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "NATS alone at %s; Ctrl-C ends it\n", url)
				return err
			})
		},
	})
}
