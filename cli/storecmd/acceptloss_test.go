package storecmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
)

// olderStore makes a store that lacks its last two commits. It returns its file and how
// commands name the loss.
func olderStore(t *testing.T, dir string) (file, loss string) {
	t.Helper()
	file = aStore(t, dir)
	older, err := os.ReadFile(file)
	require.NoError(t, err)
	confirm(t, file, 2)
	require.NoError(t, os.WriteFile(file, older, 0o600))
	return file, "store: " + file + " is older than what was confirmed: its last commit is 1, and commit 3 had been confirmed by 2026-01-02T03:04:05Z"
}

// confirm makes n commits.
func confirm(t *testing.T, file string, n int) {
	t.Helper()
	s, err := store.Open(file, store.Options{NoSync: true, KeepConfirmed: true, Now: storeTime.UnixNano})
	require.NoError(t, err)
	for i := range n {
		require.NoError(t, storetest.Do(s, &store.Batch{PutConfig: []store.Entry{{Key: "k", Value: fmt.Sprint(i)}}}))
	}
	require.NoError(t, s.Close())
}

// TestConfirmedCommitsAreMissing: each command on an older store says so, and so do commands on
// a compacted one.
func TestConfirmedCommitsAreMissing(t *testing.T) {
	dir := t.TempDir()
	_, loss := olderStore(t, dir)
	says := "fila: " + loss + "; docs/operations.md says what to do\n"
	run := func(args ...string) clitest.Result {
		t.Helper()
		return program.RunEnv(t, t.Context(), storeApp(), "", append([]string{"store"}, args...)...)
	}
	for range 2 {
		r := run("check", dir)
		require.Equal(t, command.ExitInDoubt, r.Code)
		require.Equal(t, says, r.Err)
		require.Contains(t, r.Out, "confirmed commits are missing: the last one is 1, and 3 had been confirmed\n")
		require.NotContains(t, r.Out, "nothing is wrong")
		report := clitest.JSON[checkReport](t, clitest.Ended(command.ExitOK, run("check", dir, "--json").Out, ""))
		require.False(t, report.OK)
		require.EqualValues(t, 3, report.Lost.Confirmed)
		clitest.Complains(t, run("export", dir), command.ExitInDoubt, loss)
		to := filepath.Join(t.TempDir(), "copy.db")
		clitest.Complains(t, run("backup", "--data-dir", dir, "--to", to), command.ExitInDoubt, loss)
		clitest.OK(t, run("check", to))
		clitest.Complains(t, run("compact", dir), command.ExitInDoubt, loss)
	}
}

func TestStoreAcceptLoss(t *testing.T) {
	dir := t.TempDir()
	file, loss := olderStore(t, dir)
	run := func(args ...string) clitest.Result {
		t.Helper()
		return program.RunEnv(t, t.Context(), storeApp(), "", append([]string{"store", "accept-loss"}, args...)...)
	}
	for range 2 {
		require.Equal(t, clitest.Ended(command.ExitOK, loss+"\n", ""), run(dir, "--dry-run"))
	}
	shown := clitest.JSON[lossReport](t, run(dir, "--dry-run", "--json"))
	require.Equal(t, lossReport{file, store.LostError{Commit: 1, Confirmed: 3, At: storeTime}}, shown)
	require.Equal(t, clitest.Ended(command.ExitOK, file+": the commits after 1, up to 3, are given up; fila starts with the commits that are left\n", ""), run(dir))
	clitest.OK(t, program.Run(t, "", "store", "check", dir))
	clitest.Complains(t, run(dir), command.ExitConflict, file+" lacks no confirmed commits; nothing was changed\n")
	confirm(t, file, 0)

	// The store is gone.
	require.NoError(t, os.Remove(file))
	gone := "store: " + file + " is missing or new, and commit 1 had been confirmed by 2026-01-02T03:04:05Z\n"
	require.Equal(t, clitest.Ended(command.ExitOK, gone, ""), run(file, "--dry-run"))
	require.Equal(t, clitest.Ended(command.ExitOK, file+": the commits after 0, up to 1, are given up; fila starts with the commits that are left\n", ""), run(dir, "--yes"))
	clitest.Complains(t, run(dir), command.ExitNotFound, "there is no store at "+file)
	confirm(t, file, 1)

	s, err := store.Open(file, store.Options{})
	require.NoError(t, err)
	clitest.Complains(t, run(dir), command.ExitRefused, "stop it first")
	require.NoError(t, errors.Join(s.Close(), os.WriteFile(file, []byte("hello"), 0o600)))
	clitest.Complains(t, run(dir), command.ExitUsage, "not a fila store")
	require.Equal(t, command.ExitUsage, run().Code)
}
