package opscmd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/bench"
	"github.com/filaq/fila/bench/load"
	"github.com/filaq/fila/bench/system"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
)

// benchFlags are the flags of fila bench.
type benchFlags struct {
	bench.Options
	duration   terminal.Millis
	url, chart string
}

func newBenchCommand(env *command.Env) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure fila side by side with JetStream and bare NATS",
		Long: `Measure fila side by side with JetStream and bare NATS, on this machine.

The command starts the systems as processes on free ports with temporary data. Each
round measures every system; figures are medians of rounds, ratios are within a
round. The systems:

  fila            fila serve, fair order by a header
  fila-min        fila serve, consumers that ask for few headers
  fila-batch      fila serve, messages, deliveries and acks in batches
  fila-fifo       fila serve, one flow
  hops            the same messages over NATS, with no work in between
  hops-wire       the same, with headers and ack subjects like fila's
  jetstream       a WorkQueue stream in files, synced every two minutes
  jetstream-sync  the same, synced before each confirmation, as fila does

The systems of the workload cluster, besides fila:

  fila-r3            a cluster of three with one shard, synced by NATS every two minutes
  fila-r3-batch      a cluster of three as well, with messages in batches
  fila-r3-sync       the same, synced before each confirmation
  jetstream-r3       a WorkQueue stream with three replicas, synced every two minutes
  jetstream-r3-sync  the same, synced before each confirmation

The systems of the workload peers, besides fila and JetStream. Their servers must be
installed; their clients are not part of fila, but of the program of --peers, which
"go build -C bench/peers ." makes in a checkout:

  jetstream-fast        the stream, filled by a fast batch, synced every two minutes
  jetstream-batch       the stream, filled by atomic batches, synced every two minutes
  jetstream-batch-sync  the same, synced before a batch is confirmed
  rabbitmq              a quorum queue of one server
  rabbitmq-classic      a durable classic queue
  redis-asynq           asynq with Redis, synced every second
  redis-asynq-sync      the same, synced at every write
  river                 River with PostgreSQL
  beanstalkd            with a binlog, synced every 50 ms
  beanstalkd-sync       the same, synced at every write

The workloads:

` + workloadList() + `
Without --workload all but cluster, peers, soak and adapt run, for about an hour; nothing
else should run meanwhile. adapt is a simulation, which takes seconds. --quick takes seconds and only shows that everything works.
docs/benchmarks.md explains the figures. --url measures a running fila, in queues that
are deleted at the end, and needs an operator's permissions.`,
		Example: `  fila bench --quick
  fila bench --workload life --workload latency --rounds 5
  fila bench --workload life --system fila --system hops --duration 10s
  fila bench --json --chart bench.svg > bench.json
  fila bench --workload peers --peers bench/peers/peers --duration 2s
  fila bench --workload soak --duration 30m --chart soak.svg
  fila bench --workload adapt --chart adapt.svg
  fila bench --url nats://127.0.0.1:4222 --workload life --count 100000`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBench(env, cmd, &f) },
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.Workloads, "workload", nil, "`name` of a workload; may be repeated")
	flags.StringArrayVar(&f.Systems, "system", nil, "`name` of a system; may be repeated (default all)")
	command.Allow(cmd, "workload", workloadNames()...)
	command.Allow(cmd, "system", system.Names()...)
	flags.IntVar(&f.Rounds, "rounds", 0, "number of rounds (default 5, with --quick 1; one for a soak and for adapt)")
	flags.Var(&f.duration, "duration", "length of each measurement (default 3s, a soak 30m)")
	flags.Lookup("duration").DefValue = "" // the text has the defaults
	flags.Int64Var(&f.Count, "count", 0, "messages of each measurement, instead of --duration (with --quick 1000)")
	flags.Int64Var(&f.Backlog, "backlog", 0, "`messages` in workloads with a backlog (default 1000000, with --quick 10000)")
	flags.IntVar(&f.Batch, "batch", 0, "most `messages` of a batch of fila-batch and jetstream-batch (default a fourth of the messages in flight)")
	flags.IntVar(&f.Payload, "size", 1024, "`bytes` of a message, unless the workload says otherwise")
	flags.BoolVar(&f.Quick, "quick", false, "few measurements of few messages, to check that everything works")
	flags.StringVar(&f.url, "url", "", "NATS `url` of a running fila to measure instead of starting servers")
	flags.StringVar(&f.Dir, "dir", "", "`directory` for the servers' data, on the same kind of disk as production (default the temporary directory)")
	flags.StringVar(&f.Peers, "peers", "", "`program` with the clients of other queues, built from bench/peers of a checkout")
	flags.StringVar(&f.chart, "chart", "", "write a chart to this `file` as SVG")
	cmd.AddCommand(
		benchProcess("node KIND DIR", "A server to compare with", func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return system.RunNode(ctx, args[0], args[1], cmd.OutOrStdout())
		}),
		benchProcess("load", "Producers and consumers", func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			return load.Run(ctx, cmd.InOrStdin(), cmd.OutOrStdout(), system.Open)
		}))
	return cmd
}

func workloadNames() []string {
	var names []string
	for _, w := range bench.Workloads() {
		names = append(names, w.Name)
	}
	return names
}

func workloadList() string {
	var b strings.Builder
	for _, w := range bench.Workloads() {
		fmt.Fprintf(&b, "  %-15s %s\n", w.Name, w.About)
	}
	return b.String()
}

func runBench(env *command.Env, cmd *cobra.Command, f *benchFlags) error {
	if err := f.complete(env, cmd); err != nil {
		return err
	}
	ctx, stop := command.UntilSignal(cmd)
	defer stop()
	report, err := bench.Run(ctx, f.Options)
	if err != nil {
		return err
	}
	if f.chart != "" {
		var picture bytes.Buffer
		if err := report.Chart(&picture); err != nil {
			return err
		}
		if err := os.WriteFile(f.chart, picture.Bytes(), 0o644); err != nil {
			return fmt.Errorf("--chart: %w", err)
		}
	}
	if env.JSON {
		err = terminal.PrintJSON(cmd.OutOrStdout(), report)
	} else {
		err = report.WriteTable(cmd.OutOrStdout())
	}
	switch failures := report.Failures(); {
	case err != nil:
		return err
	case report.Interrupted:
		return fmt.Errorf("interrupted: the report is not complete")
	case failures > 0:
		return fmt.Errorf("%s failed; the report has the reason", terminal.Plural(int64(failures), "measurement"))
	}
	return nil
}

// complete checks the flags and sets the defaults.
func (f *benchFlags) complete(env *command.Env, cmd *cobra.Command) (err error) {
	flags := cmd.Flags()
	f.Duration, f.Version, f.Progress = f.duration.Duration(), command.ReadBuildInfo().Version, cmd.ErrOrStderr()
	// 0 means the default inside, but never what a user means.
	for name, zero := range map[string]bool{
		"rounds": f.Rounds == 0, "duration": f.duration == 0, "count": f.Count == 0, "backlog": f.Backlog == 0, "size": f.Payload == 0, "batch": f.Batch == 0,
	} {
		if zero && flags.Changed(name) {
			return command.UsageError("--%s 0: allowed is more than 0", name)
		}
	}
	if flags.Changed("url") && f.url == "" {
		return command.UsageError("--url is empty: name a NATS server, or leave it out to start servers")
	}
	if flags.Changed("url") && flags.Changed("server") {
		return command.UsageError("--url and --server say the same: one of them is allowed")
	}
	if flags.Changed("url") || flags.Changed("server") || flags.Changed("context") {
		if f.url != "" {
			env.Conn.Login.URL = f.url
		}
		if f.Target, err = benchTarget(env); err != nil {
			return err
		}
	}
	if f.Target != nil && f.Dir != "" {
		return command.UsageError("--dir is for servers that fila bench starts, not for --url")
	}
	if f.Peers != "" {
		if f.Peers, err = peersProgram(f.Peers); err != nil {
			return err
		}
	}
	if err := f.Complete(); err != nil {
		return command.UsageError("%w", err)
	}
	if f.Executable, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program to start it again: %w", err)
	}
	return nil
}

// peersProgram returns the path of the program with the clients of peers, which runs in other
// directories.
func peersProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", command.UsageError("--peers: %w: build it in a checkout of fila with `go build -C bench/peers .`", err)
	}
	return path, nil
}

// benchTarget returns the running fila, after it has answered once.
func benchTarget(env *command.Env) (*system.Access, error) {
	where, err := env.Conn.Settle()
	if err != nil {
		return nil, err
	}
	s, err := env.Conn.Open()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if _, err := s.QueueListPage(context.Background(), 0, 1); err != nil {
		return nil, s.Explain(err)
	}
	return &system.Access{
		URL: where.URL, Creds: where.Creds, NKey: where.NKey, User: where.User, Password: where.Password, Token: where.Token,
		CA: where.CA, Cert: where.Cert, Key: where.Key, InboxPrefix: where.InboxPrefix, TLSFirst: where.TLSFirst, Prefix: env.Conn.Prefix,
	}, nil
}

// benchProcess is a part of fila bench that runs as a separate process.
func benchProcess(use, short string, run func(ctx context.Context, cmd *cobra.Command, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Hidden: true, Args: command.Args(strings.Fields(use)[1:]...),
		Short: short + " (started by fila bench)",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := command.UntilSignal(cmd)
			defer stop()
			return run(ctx, cmd, args)
		},
	}
}
