package storecmd

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/store"
)

// Commands returns fila store.
func Commands(env *command.Env) []*cobra.Command {
	group := &cobra.Command{
		Use:   "store",
		Short: "Check, measure, compact, back up, export and import a store",
		Long: `Check, measure, compact, back up, export and import a store, and accept the loss of
commits. Except backup, the commands need a store that no fila has open.`,
	}
	return []*cobra.Command{command.Group(group, newStoreCheckCommand(env), newStoreStatsCommand(env), newStoreCompactCommand(env),
		newStoreBackupCommand(env), newStoreExportCommand(env), newStoreImportCommand(env), newStoreAcceptLossCommand(env))}
}

// storeOptions are the options of the commands on files.
func storeOptions(env *command.Env) store.Options {
	return store.Options{Now: func() int64 { return env.Now().UnixNano() }}
}

// storeError explains an error about a file.
func storeError(file string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrLocked):
		return command.Exit(command.ExitRefused, fmt.Errorf("%s is in use by a fila process or another fila store command: stop it first", file))
	case errors.Is(err, fs.ErrNotExist) && !isThere(file):
		return command.Exit(command.ExitNotFound, fmt.Errorf("there is no store at %s: name a data directory or its fila.db", file))
	case errors.Is(err, store.ErrNotStore):
		return command.Exit(command.ExitUsage, err)
	case errors.Is(err, store.ErrCorrupt):
		return fmt.Errorf("%w (fila store check %s shows all that is broken)", err, file)
	case errors.Is(err, fs.ErrExist):
		return command.Exit(command.ExitConflict, err)
	}
	return err
}

// lastCommit returns the error of a successful command on a store that lacks confirmed commits,
// or has a damaged meta page.
func lastCommit(file string, torn bool, lost *store.LostError) error {
	switch {
	case lost != nil:
		return command.Exit(command.ExitInDoubt, fmt.Errorf("%w; docs/operations.md says what to do", lost))
	case !torn:
		return nil
	}
	return command.Exit(command.ExitInDoubt, fmt.Errorf("one of the two meta pages of %s is damaged: its last commit may be missing; docs/operations.md says what to do", file))
}

func isThere(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

func newStoreCompactCommand(env *command.Env) *cobra.Command {
	var keep string
	cmd := &cobra.Command{
		Use:   "compact PATH",
		Short: "Rewrite the store as small as possible",
		Long: `Rewrite the store as small as possible, for example after a large backlog; a running
fila only reuses the space of finished messages. PATH is a data directory or a fila.db.

The new file is written beside the old one, synced, read again and compared. One
rename replaces the old file, so an interruption leaves one complete file. The disk
needs space for both. A broken store is refused.`,
		Example: `  fila store compact /var/lib/fila
  fila store compact /var/lib/fila --keep /var/lib/fila/before.db`,
		RunE: func(cmd *cobra.Command, args []string) error {
			file := config.StoreFile(args[0])
			r, err := store.CompactFile(file, keep, storeOptions(env))
			if err != nil {
				return storeError(file, err)
			}
			err = env.Show(cmd, compactReport{file, r.Before, r.After, r.Messages, r.Dropped}, func() string {
				return fmt.Sprintf("%s: %s before, %s now; %s kept, %s dropped\n",
					file, terminal.Size(r.Before), terminal.Size(r.After), terminal.Plural(r.Messages, "message"), terminal.Plural(r.Dropped, "finished one"))
			})
			return cmp.Or(err, lastCommit(file, r.TornMeta, r.Lost))
		},
	}
	cmd.Flags().StringVar(&keep, "keep", "", "keep the old file as `file`, on the same file system")
	return cmd
}

// compactReport is the JSON of fila store compact. Sizes are bytes.
type compactReport struct {
	File     string `json:"file"`
	Before   int64  `json:"before"`
	After    int64  `json:"after"`
	Messages int64  `json:"messages"`
	Dropped  int64  `json:"dropped"`
}
