package storecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire/api"
)

// backupWait bounds the time of a backup without --timeout.
const backupWait = time.Hour

func newStoreBackupCommand(env *command.Env) *cobra.Command {
	var dir, to string
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Copy the store, also while fila runs",
		Long: `Copy the store. Without flags the running fila writes a consistent copy into the
directory backups of its data directory, and prints its path when it is on disk.
With --data-dir and --to the command copies the store of a fila that does not run.

To restore a backup, put it into an empty data directory as fila.db. It holds the
messages and the key of the ack tokens; its mode is 0600. The default of --timeout
is an hour here.`,
		Example: `  fila store backup
  fila store backup --server nats://nats:4222 --json
  fila store backup --data-dir /var/lib/fila --to /mnt/backup/fila.db`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (dir == "") != (to == "") {
				return command.UsageError("--data-dir and --to go together; without both the running fila writes the backup")
			}
			if dir == "" {
				return backupOnline(env, cmd, args)
			}
			reply, doubt, err := backupOffline(cmd.Context(), config.StoreFile(dir), to)
			if err != nil {
				return err
			}
			err = env.Show(cmd, reply, func() string { return showBackup(reply, nil) })
			return cmp.Or(err, doubt)
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "", "data `directory` of a fila that does not run")
	cmd.Flags().StringVar(&to, "to", "", "the new `file`; it must not exist")
	return cmd
}

func showBackup(r api.StoreBackupReply, _ []string) string {
	return fmt.Sprintf("%s: %s in %s\n", r.Path, terminal.Size(r.Bytes), time.Duration(r.DurationMs)*time.Millisecond)
}

func backupOnline(env *command.Env, cmd *cobra.Command, args []string) error {
	err := command.Ask(env, func(_ context.Context, s *command.Session, _ []string) (api.StoreBackupReply, error) {
		ctx, cancel := s.WaitFor(cmd, backupWait)
		defer cancel()
		return s.StoreBackup(ctx)
	}, showBackup)(cmd, args)
	if command.ExitCode(err) == command.ExitConnect {
		err = command.Exit(command.ExitConnect, fmt.Errorf("%w; if it does not run, give --data-dir and --to", err))
	}
	return err
}

// backupOffline copies a file. doubt says why the copy may lack commits.
func backupOffline(ctx context.Context, file, to string) (reply api.StoreBackupReply, doubt, err error) {
	begin := time.Now()
	f, err := store.OpenFile(file, store.Options{})
	if errors.Is(err, store.ErrLocked) {
		return reply, nil, command.Exit(command.ExitRefused, fmt.Errorf("%s is in use by a fila process: leave out --data-dir and --to, and that fila writes the backup", file))
	}
	if err != nil {
		return reply, nil, storeError(file, err)
	}
	n, err := f.BackupTo(ctx, to)
	doubt = lastCommit(file, f.TornMeta(), f.Lost())
	err = errors.Join(err, f.Close())
	if errors.Is(err, os.ErrExist) {
		return reply, nil, command.Exit(command.ExitConflict, err)
	}
	if err != nil {
		return reply, nil, err
	}
	return api.StoreBackupReply{Path: to, Bytes: n, DurationMs: time.Since(begin).Milliseconds()}, doubt, nil
}
