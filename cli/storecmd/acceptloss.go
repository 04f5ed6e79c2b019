package storecmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/store"
)

// lossReport is the JSON of fila store accept-loss.
type lossReport struct {
	File string `json:"file"`
	store.LostError
}

func newStoreAcceptLossCommand(env *command.Env) *cobra.Command {
	var dry, yes bool
	cmd := &cobra.Command{
		Use:   "accept-loss PATH",
		Short: "Give up confirmed commits that a store lacks",
		Long: `Give up commits that fila has confirmed and that the store lacks now. A store lacks them
when its file was replaced by an earlier copy, such as a backup, or when its end is
damaged. fila does not start on such a store; after this command it starts with the
commits that are left. Look for the right file first. PATH is a data directory or a
fila.db.

On a terminal the command asks, unless --yes is given. fila logs the loss at its next
start.`,
		Example: `  fila store accept-loss /var/lib/fila --dry-run
  fila store accept-loss /var/lib/fila`,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file, agreed := config.StoreFile(args[0]), false
		lost, err := store.AcceptLoss(file, storeOptions(env), func(lost *store.LostError) bool {
			agreed = !dry && (yes || !command.CanAsk(cmd) || command.Agreed(cmd, lost.Error()+"\ngive up the commits in between for good?"))
			return agreed
		})
		switch {
		case err != nil:
			return storeError(file, err)
		case lost == nil:
			return command.Exit(command.ExitConflict, fmt.Errorf("%s lacks no confirmed commits; nothing was changed", file))
		case !agreed && !dry:
			return command.Exit(command.ExitConflict, errors.New("nothing was changed"))
		}
		return env.Show(cmd, lossReport{file, *lost}, func() string {
			if dry {
				return lost.Error() + "\n"
			}
			return fmt.Sprintf("%s: the commits after %d, up to %d, are given up; fila starts with the commits that are left\n", file, lost.Commit, lost.Confirmed)
		})
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only show what is missing")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
