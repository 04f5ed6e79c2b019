package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/sidecar"
	"github.com/filaq/fila/store"
)

// storeCommands returns fila store.
func storeCommands(a *app) []*cobra.Command {
	return []*cobra.Command{newStoreCommand(a)}
}

func newStoreCommand(a *app) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "store",
		Short: "Check, measure, compact, back up, export and import a store",
		Long: `Check, measure, compact, back up, export and import a store. All but a backup
work on the files of a fila that does not run.`,
	})
	cmd.AddCommand(newStoreCheckCommand(a), newStoreStatsCommand(a), newStoreCompactCommand(a),
		newStoreBackupCommand(a), newStoreExportCommand(a), newStoreImportCommand(a))
	return cmd
}

// storeFile returns the file that an argument names: itself, or the one in the
// data directory.
func storeFile(path string) string {
	if fi, err := os.Stat(path); err == nil && fi.IsDir() {
		cfg := sidecar.Config{DataDir: path}
		return cfg.StorePath()
	}
	return path
}

// storeOptions are those of every command on files.
func (a *app) storeOptions() store.Options {
	return store.Options{Now: func() int64 { return a.now().UnixNano() }}
}

// storeError words what is in the way of working on a file.
func storeError(file string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrLocked):
		return &exitError{exitRefused, fmt.Errorf("%s is in use by a fila process or another fila store command: stop it first", file)}
	case errors.Is(err, fs.ErrNotExist) && !isThere(file):
		return &exitError{exitNotFound, fmt.Errorf("there is no store at %s: name a data directory or its fila.db", file)}
	case errors.Is(err, store.ErrNotStore):
		return &exitError{exitUsage, err}
	case errors.Is(err, store.ErrCorrupt):
		return fmt.Errorf("%w (fila store check %s shows all that is broken)", err, file)
	case errors.Is(err, fs.ErrExist):
		return &exitError{exitConflict, err}
	}
	return err
}

func isThere(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

func newStoreCompactCommand(a *app) *cobra.Command {
	var keep string
	cmd := &cobra.Command{
		Use:   "compact PATH",
		Short: "Write the store anew, as small as it can be",
		Long: `Write the store anew, as small as it can be, and put the new file in the place of
the old one. PATH is a data directory or a fila.db that no fila has open. A
running fila reuses the space of finished messages by itself; this is for a file
that a large backlog has left behind.

The new file is written beside the old one, synced, read again and compared
before it takes its place in one rename. Whenever this is interrupted, the whole
old or the whole new file is there. The disk needs room for both. A store with
anything broken is refused.`,
		Example: `  fila store compact /var/lib/fila
  fila store compact /var/lib/fila --keep /var/lib/fila/before.db`,
		Args:              needArgs("PATH"),
		ValidArgsFunction: completeFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			file := storeFile(args[0])
			r, err := store.CompactFile(file, keep, a.storeOptions())
			if err != nil {
				return storeError(file, err)
			}
			if a.json {
				return printJSON(cmd.OutOrStdout(), compactReport{file, r.Before, r.After, r.Messages, r.Dropped})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s before, %s now; %s kept, %d finished ones dropped\n",
				file, size(r.Before), size(r.After), plural(r.Messages, "message"), r.Dropped)
			return err
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
