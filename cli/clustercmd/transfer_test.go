package clustercmd

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
)

// configFile is the configuration of a node on a NATS server with JetStream.
func configFile(t *testing.T) string {
	t.Helper()
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir()})
	require.NoError(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	require.True(t, srv.ReadyForConnections(time.Minute))
	dir := t.TempDir()
	file := filepath.Join(dir, "config.toml")
	require.NoError(t, os.WriteFile(file, []byte(`
data_dir = "`+filepath.ToSlash(dir)+`/data"
[nats]
url = "`+srv.ClientURL()+`"
[cluster]
node = "a"
shards = 2
replicas = 1
allow_r1 = true
`), 0o600))
	return file
}

// single creates the store of a standalone fila with two queues and three messages.
func single(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	b, err := store.Build(filepath.Join(dir, "fila.db"), nil, store.Options{})
	require.NoError(t, err)
	err = b.Add(&store.Batch{
		PutQueues: []store.QueueRecord{{ID: 1, Name: "q", Settings: []byte("{}")}, {ID: 2, Name: "q.dlq", Settings: []byte("{}")}},
		Add:       []store.Message{{Ref: store.Ref{Queue: 1, Seq: 1}}, {Ref: store.Ref{Queue: 1, Seq: 2}}, {Ref: store.Ref{Queue: 2, Seq: 1}}},
		PutConfig: []store.Entry{{Key: "color", Value: "blue"}},
	})
	require.NoError(t, errors.Join(err, b.Finish()))
	return dir
}

func TestImportExportAndRebuild(t *testing.T) {
	file, dir := configFile(t), single(t)
	clitest.Complains(t, program.RunAt(t, "cluster", "import", "--config", file), command.ExitUsage, "DATA_DIR is missing")
	clitest.Complains(t, program.RunAt(t, "cluster", "import", t.TempDir(), "--config", file), command.ExitNotFound, "no such file")
	clitest.Complains(t, program.RunAt(t, "cluster", "import", dir, "--config", "nowhere.toml"), command.ExitUsage, "nowhere.toml")
	clitest.Complains(t, program.RunAt(t, "cluster", "export", "--config", file), command.ExitUsage, "--to is missing")
	back := filepath.Join(t.TempDir(), "back")
	clitest.Complains(t, program.RunAt(t, "cluster", "export", "--to", back, "--config", file), command.ExitNotFound, "there is no such cluster")

	path := filepath.Join(dir, "fila.db")
	older, err := os.ReadFile(path)
	require.NoError(t, err)
	s, err := store.Open(path, store.Options{KeepConfirmed: true})
	require.NoError(t, err)
	require.NoError(t, storetest.Do(s, &store.Batch{PutConfig: []store.Entry{{Key: "color", Value: "blue"}}}))
	require.NoError(t, s.Close())
	newest, err := os.ReadFile(path)
	require.NoError(t, errors.Join(err, os.WriteFile(path, older, 0o600)))
	clitest.Complains(t, program.RunAt(t, "cluster", "import", dir, "--config", file), command.ExitConflict, "is older than what was confirmed")
	require.NoError(t, os.WriteFile(path, newest, 0o600))

	r := program.RunAt(t, "cluster", "import", dir, "--config", file)
	require.Equal(t, command.ExitOK, r.Code, r.Err)
	require.Contains(t, r.Out, "cluster fila: 2 queues, 3 messages, 0 consumers, 0 dedupe ids, 1 key of configuration and history\n")
	clitest.Complains(t, program.RunAt(t, "cluster", "import", dir, "--config", file), command.ExitConflict, "it is there already")

	r = program.RunAt(t, "cluster", "export", "--to", back, "--config", file, "--json")
	require.Equal(t, command.ExitOK, r.Code, r.Err)
	require.JSONEq(t, `{"queues":2,"messages":3,"consumers":0,"dedupe_ids":0,"entries":1}`, r.Out)
	clitest.Complains(t, program.RunAt(t, "cluster", "export", "--to", back, "--config", file), command.ExitConflict, "already exists")
	entries, err := os.ReadDir(back)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing but fila.db is left")

	copies := t.TempDir()
	clitest.Complains(t, program.RunAt(t, "cluster", "rebuild", copies, "--config", file), command.ExitFailed, "has no copies of shards")
	clitest.Complains(t, program.RunAt(t, "cluster", "nats", "--config", file), command.ExitUsage, "nats.url is set")
}
