package storecmd

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

var program = clitest.Program(Commands)

var storeTime = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// makeStore fills a store as a fila would, and then calls fill.
func makeStore(t testing.TB, dir string, fill func(b *store.Batch)) (file string) {
	t.Helper()
	file = filepath.Join(dir, "fila.db")
	s, err := store.Open(file, store.Options{NoSync: true, Now: storeTime.UnixNano})
	require.NoError(t, err)
	settings := func(name string) []byte {
		data, err := json.Marshal(wire.DefaultQueueSettings(name))
		require.NoError(t, err)
		return data
	}
	b := &store.Batch{PutQueues: []store.QueueRecord{
		{ID: 1, Name: "orders", Settings: settings("orders")}, {ID: 2, Name: "orders.dlq", Settings: settings("orders.dlq")},
	}}
	if fill != nil {
		fill(b)
	}
	require.NoError(t, errors.Join(storetest.Do(s, b), s.Close()))
	return file
}

// aStore has one record of each kind.
func aStore(t *testing.T, dir string) string {
	return makeStore(t, dir, func(b *store.Batch) {
		at := storeTime.UnixNano()
		headers := wire.EncodeHeaders(nil, map[string][]string{"tenant": {"acme"}, "x": {"1", "<2>"}})
		b.Add = []store.Message{
			{
				Ref: store.Ref{Queue: 1, Seq: 7}, ID: store.ID{1, 15: 2}, EnqueuedAt: at - 90e9, NotBefore: at, ExpiresAt: at + 1,
				Class:    store.Class{Weight: 1500, Cost: 1000, Key: "acme", ThrottleKeys: []string{"api", "tenant:*"}, CircuitKey: "stripe"},
				Attempts: 1, Headers: headers, Payload: []byte(`{"n":1}`),
			},
			{
				Ref: store.Ref{Queue: 1, Seq: 9}, EnqueuedAt: at,
				Class: store.Class{Weight: 1000, Cost: 1, Key: "\xff\x00"}, Headers: []byte("odd"), Payload: []byte{0xfe},
			},
			{
				Ref: store.Ref{Queue: 2, Seq: 1}, EnqueuedAt: at, Class: store.Class{Weight: 1000, Cost: 1000, Key: "default"},
				Dead: &store.Dead{Reason: "max_deliveries", Error: "boom \xf0", ErrorCode: "E1", SourceQueue: "orders", At: at, Attempts: 20},
			},
		}
		b.State = []store.State{{
			Ref: store.Ref{Queue: 1, Seq: 9}, Attempts: 3, ReadyAt: at + 5e9, LastError: "too late",
			Lease: store.Lease{ID: 1<<63 + 1, Consumer: "w1", Deadline: at + 30e9},
		}}
		b.Dedupe = []store.Dedupe{{Queue: 1, DedupeID: "once", ID: store.ID{1, 15: 2}, Until: at + 1e15}}
		b.PutConsumers = []store.ConsumerRecord{{Queue: 1, Name: "w1", MaxInFlight: 64, ExpiresAt: at + 1e12, Reg: 3}}
		b.PutConfig = []store.Entry{{Key: "throttle:api:rate", Value: "10"}, {Key: "\x00pause/queue//orders", Value: "{}"}}
	})
}

func storeApp() *command.Env { return &command.Env{Clock: func() time.Time { return storeTime }} }

func TestStoreCheck(t *testing.T) {
	dir := t.TempDir()
	file := aStore(t, dir)
	r := clitest.OK(t, program.Run(t, "", "store", "check", dir))
	require.Regexp(t, `fila.db: 2 queues, 3 messages in 1 segment, 1 state, 1 dedupe id, \S+ KiB\nnothing is wrong\n$`, r.Out)
	report := clitest.JSON[checkReport](t, program.Run(t, "", "store", "check", file, "--json"))
	require.True(t, report.OK)
	require.True(t, report.Structure)
	require.EqualValues(t, 3, report.Messages)
	require.Empty(t, report.Problems)

	// A payload and a state are broken.
	image, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, text := range []string{`{"n":1}`, "too late"} {
		image[strings.Index(string(image), text)] ^= 1
	}
	require.NoError(t, os.WriteFile(file, image, 0o600))
	r = program.Run(t, "", "store", "check", dir)
	require.Equal(t, command.ExitFailed, r.Code)
	require.Regexp(t, `(?m)^segment of segment 1 at offset \d+: checksum does not match$`, r.Out)
	require.Regexp(t, `(?m)^state 000000010000000000000009: checksum does not match$`, r.Out)
	require.Contains(t, r.Err, "fila: 2 problems found in "+file+"; docs/operations.md says what to do\n")
	r = program.Run(t, "", "store", "check", dir, "--json")
	require.Equal(t, command.ExitFailed, r.Code)
	report = checkReport{}
	require.NoError(t, json.Unmarshal([]byte(r.Out), &report))
	require.False(t, report.OK)
	require.EqualValues(t, 2, report.ProblemsTotal)
	require.Len(t, report.Problems, 2)
	require.EqualValues(t, 1, report.Problems[0].Segment)
	require.NotNil(t, report.Problems[0].Offset)

	// Without the structure nothing can be checked.
	require.NoError(t, os.Truncate(file, 20_000))
	r = program.Run(t, "", "store", "check", file)
	require.Equal(t, command.ExitFailed, r.Code)
	require.Contains(t, r.Out, "cut short")
	require.Contains(t, r.Out, "the pages of the file are broken")
}

func TestStoreCheckQueues(t *testing.T) {
	dir := t.TempDir()
	makeStore(t, dir, func(b *store.Batch) {
		b.PutQueues[1].Name = "bills.dlq"
		b.PutQueues[1].Settings = []byte("{")
		b.PutQueues = append(b.PutQueues, store.QueueRecord{ID: 3, Name: "a b", Settings: []byte("{}")})
	})
	r := program.Run(t, "", "store", "check", dir)
	require.Equal(t, command.ExitFailed, r.Code)
	for _, want := range []string{
		"queue orders: its dead letter queue does not exist\n",
		"queue bills.dlq: is a dead letter queue, but its queue bills does not exist\n",
		"queue bills.dlq: its settings cannot be read: unexpected end of JSON input\n",
		"queue a b: queue name \"a b\": allowed are",
	} {
		require.Contains(t, r.Out, want)
	}
}

func TestStoreMistakes(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "none")
	other := filepath.Join(dir, "other.db")
	require.NoError(t, os.WriteFile(other, []byte("hello"), 0o600))
	for _, verb := range []string{"check", "stats", "compact", "export"} {
		r := program.Run(t, "", "store", verb, none)
		require.Equal(t, clitest.Ended(command.ExitNotFound, "", "fila: there is no store at "+none+": name a data directory or its fila.db\n"), r)
		require.NoFileExists(t, none)
		clitest.Complains(t, program.Run(t, "", "store", verb, other), command.ExitUsage, "not a fila store")
		require.Equal(t, command.ExitUsage, program.Run(t, "", "store", verb).Code)
	}
	file := aStore(t, dir)
	s, err := store.Open(file, store.Options{})
	require.NoError(t, err)
	for _, verb := range []string{"check", "stats", "compact", "export"} {
		r := program.Run(t, "", "store", verb, dir)
		require.Equal(t, clitest.Ended(command.ExitRefused, "", "fila: "+file+" is in use by a fila process or another fila store command: stop it first\n"), r)
	}
	clitest.Complains(t, program.Run(t, "", "store", "backup", "--data-dir", dir, "--to", filepath.Join(dir, "b.db")), command.ExitRefused, "leave out --data-dir and --to")
	require.NoError(t, s.Close())
}

func TestStoreStats(t *testing.T) {
	dir := t.TempDir()
	aStore(t, dir)
	r := clitest.OK(t, program.RunEnv(t, t.Context(), storeApp(), "", "store", "stats", dir))
	require.Regexp(t, `(?m)^size +\S+ KiB, \d+ of \d+ pages free$`, r.Out)
	require.Regexp(t, `(?m)^messages +3 with 33 B$`, r.Out)
	require.Contains(t, r.Out, "QUEUE       MESSAGES  SIZE  LEASED  DELAYED  RETRIED  DEDUPE IDS  CONSUMERS  OLDEST\n")
	require.Contains(t, r.Out, "orders      2         33 B  1       0        1        1           1          1m30s\n")
	require.Contains(t, r.Out, "orders.dlq  1         0 B   0       0        0        0           0          -\n")

	report := clitest.JSON[storeReport](t, program.RunEnv(t, t.Context(), storeApp(), "", "store", "stats", dir, "--json"))
	require.EqualValues(t, report.Pages, report.PagesFree+report.UsedPages)
	require.Positive(t, report.PagesFree)
	require.Len(t, report.Queues, 2)
	require.Equal(t, storeTime.Add(-90*time.Second), *report.Queues[0].Oldest)
}

func TestStoreCompact(t *testing.T) {
	dir := t.TempDir()
	aStore(t, dir)
	before := program.RunEnv(t, t.Context(), storeApp(), "", "store", "export", dir, "--all")
	keep := filepath.Join(dir, "old.db")
	r := clitest.OK(t, program.RunEnv(t, t.Context(), storeApp(), "", "store", "compact", dir, "--keep", keep))
	require.Regexp(t, `fila.db: \S+ \S+ before, \S+ \S+ now; 3 messages kept, 0 finished ones dropped\n$`, r.Out)
	require.FileExists(t, keep)
	require.Equal(t, before, program.RunEnv(t, t.Context(), storeApp(), "", "store", "export", dir, "--all"))
	r = program.RunEnv(t, t.Context(), storeApp(), "", "store", "compact", dir, "--keep", keep)
	require.Equal(t, command.ExitConflict, r.Code, r.Err)
	clitest.Complains(t, program.RunEnv(t, t.Context(), storeApp(), "", "store", "compact", dir, "--keep", filepath.Join(dir, "no", "old.db")), command.ExitFailed, "no such file or directory")
	report := clitest.JSON[compactReport](t, program.RunEnv(t, t.Context(), storeApp(), "", "store", "compact", dir, "--json"))
	require.EqualValues(t, 3, report.Messages)
	require.LessOrEqual(t, report.After, report.Before)
	require.Equal(t, before, program.RunEnv(t, t.Context(), storeApp(), "", "store", "export", dir, "--all"))
}

// TestALastCommitMayBeMissing damages the newer meta page of a store after its last commit: the
// older state is sound, and each command reports that the commit may be missing.
func TestALastCommitMayBeMissing(t *testing.T) {
	dir := t.TempDir()
	file := aStore(t, dir)
	want := clitest.OK(t, program.RunEnv(t, t.Context(), storeApp(), "", "store", "export", dir)).Out
	s, err := store.Open(file, store.Options{NoSync: true, Now: storeTime.UnixNano})
	require.NoError(t, err)
	add := store.Message{Ref: store.Ref{Queue: 1, Seq: 11}, ID: store.ID{1, 15: 3}, Class: store.Class{Weight: 1000, Cost: 1000, Key: "k"}, Payload: []byte("confirmed")}
	require.NoError(t, errors.Join(storetest.Do(s, &store.Batch{Add: []store.Message{add}}), s.Close()))
	damageNewerMeta(t, file)

	const says = "its last commit may be missing; docs/operations.md says what to do\n"
	r := program.Run(t, "", "store", "check", dir)
	clitest.Complains(t, r, command.ExitInDoubt, says)
	require.NotContains(t, r.Out, "nothing is wrong")
	r = program.Run(t, "", "store", "check", dir, "--json")
	require.Equal(t, command.ExitInDoubt, r.Code)
	report := clitest.JSON[checkReport](t, clitest.Ended(command.ExitOK, r.Out, ""))
	require.False(t, report.OK)
	require.True(t, report.TornMeta)
	require.Zero(t, report.ProblemsTotal)

	r = program.RunEnv(t, t.Context(), storeApp(), "", "store", "export", dir)
	clitest.Complains(t, r, command.ExitInDoubt, says)
	require.Equal(t, want, r.Out, "what is there is exported")
	to := filepath.Join(t.TempDir(), "copy.db")
	r = program.Run(t, "", "store", "backup", "--data-dir", dir, "--to", to)
	clitest.Complains(t, r, command.ExitInDoubt, says)
	require.FileExists(t, to)
	r = program.RunEnv(t, t.Context(), storeApp(), "", "store", "compact", dir)
	clitest.Complains(t, r, command.ExitInDoubt, says)
	clitest.OK(t, program.Run(t, "", "store", "check", dir))
}

// damageNewerMeta flips a byte of the meta page of the last commit.
func damageNewerMeta(t *testing.T, file string) {
	t.Helper()
	const page, txID = 4096, 16 + 48
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // what it wrote is read below
	var at [2]uint64
	for i := range at {
		b := make([]byte, 8)
		_, err := f.ReadAt(b, int64(i)*page+txID)
		require.NoError(t, err)
		at[i] = binary.NativeEndian.Uint64(b)
	}
	newer := int64(0)
	if at[1] > at[0] {
		newer = 1
	}
	_, err = f.WriteAt([]byte{0xff}, newer*page+txID+7)
	require.NoError(t, err)
}

func TestStoreBackup(t *testing.T) {
	dir := t.TempDir()
	aStore(t, dir)
	want := program.RunEnv(t, t.Context(), storeApp(), "", "store", "export", dir)
	to := filepath.Join(dir, "copy.db")
	r := clitest.OK(t, program.Run(t, "", "store", "backup", "--data-dir", dir, "--to", to))
	require.True(t, strings.HasPrefix(r.Out, to+": "))
	require.Equal(t, want, program.RunEnv(t, t.Context(), storeApp(), "", "store", "export", to))
	require.Equal(t, command.ExitConflict, program.Run(t, "", "store", "backup", "--data-dir", dir, "--to", to).Code)
	require.Equal(t, command.ExitUsage, program.Run(t, "", "store", "backup", "--to", to).Code)
	require.Equal(t, command.ExitNotFound, program.Run(t, "", "store", "backup", "--data-dir", filepath.Join(dir, "no"), "--to", to).Code)
	clitest.Isolate(t)
	clitest.Complains(t, program.Run(t, "", "store", "backup", "--server", "nats://127.0.0.1:1", "--timeout", "2s"), command.ExitConnect, "if it does not run, give --data-dir and --to\n")
}

func TestStoreBackupOnline(t *testing.T) {
	f := clitest.StartFake(t)
	made := api.StoreBackupReply{Path: "/var/lib/fila/backups/x.db", Bytes: 2 << 20, DurationMs: 1500}
	clitest.Shows(f, program, "store backup", "fila.admin.store-backup", made, "/var/lib/fila/backups/x.db: 2.0 MiB in 1.5s")
	require.Empty(t, f.Next().Data)

	f.Answer("fila.admin.store-backup", wire.BackupFailed("no room"))
	r := program.Run(t, "", "store", "backup")
	require.Equal(t, clitest.Ended(command.ExitFailed, "", "fila: no backup was made: no room [err_code 12500]\n"), r)
}
