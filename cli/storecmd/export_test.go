package storecmd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
	"github.com/filaq/fila/wire"
)

func exportOf(t require.TestingT, path string, all bool) string {
	var out bytes.Buffer
	e := &exporter{all: all, opts: store.Options{Now: storeTime.UnixNano}, errOut: os.Stderr}
	require.NoError(t, e.run(config.StoreFile(path), "", &out))
	return out.String()
}

func importTo(t require.TestingT, dir, lines string) error {
	_, err := importStore(dir, strings.NewReader(lines), store.Options{Now: storeTime.UnixNano})
	return err
}

const exported = `{"type":"header","format":"fila-export","version":1}
{"type":"queue","name":"orders","settings":SETTINGS}
{"type":"queue","name":"orders.dlq","settings":SETTINGS.dlq}
{"type":"config","key":"throttle:api:rate","value":"10"}
{"type":"consumer","queue":"orders","name":"w1","max_in_flight":64,"expires_at":"2026-01-02T03:20:45.000000006Z","reg":3}
{"type":"message","queue":"orders","seq":7,"id":"01000000-0000-0000-0000-000000000002","enqueued_at":"2026-01-02T03:02:35.000000006Z","not_before":"2026-01-02T03:04:05.000000006Z","expires_at":"2026-01-02T03:04:05.000000007Z","key":"acme","weight":1.5,"cost":1,"throttle_keys":["api","tenant:*"],"circuit_key":"stripe","attempts":1,"headers":{"tenant":["acme"],"x":["1","<2>"]},"payload":"{\"n\":1}"}
{"type":"message","queue":"orders","seq":9,"id":"00000000-0000-0000-0000-000000000000","enqueued_at":"2026-01-02T03:04:05.000000006Z","key":{"base64":"/wA="},"weight":1,"cost":0.001,"state":{"attempts":3,"ready_at":"2026-01-02T03:04:10.000000006Z","last_error":"too late","lease":{"id":"9223372036854775809","consumer":"w1","deadline":"2026-01-02T03:04:35.000000006Z"}},"headers_base64":"b2Rk","payload":{"base64":"/g=="}}
{"type":"message","queue":"orders.dlq","seq":1,"id":"00000000-0000-0000-0000-000000000000","enqueued_at":"2026-01-02T03:04:05.000000006Z","key":"default","weight":1,"cost":1,"dead":{"reason":"max_deliveries","error":{"base64":"Ym9vbSDw"},"error_code":"E1","source_queue":"orders","at":"2026-01-02T03:04:05.000000006Z","attempts":20},"payload":""}
{"type":"dedupe","queue":"orders","dedupe_id":"once","id":"01000000-0000-0000-0000-000000000002","until":"2026-01-13T16:50:45.000000006Z"}
{"type":"end","lines":9}
`

// TestStoreExport compares with the golden text of version 1.
func TestStoreExport(t *testing.T) {
	dir := t.TempDir()
	file := aStore(t, dir)
	snap := snapshotOf(t, file)
	settings := string(snap.Queues[0].Settings)
	want := strings.Replace(exported, "SETTINGS.dlq", string(snap.Queues[1].Settings), 1)
	want = strings.Replace(want, "SETTINGS", settings, 1)
	r := program.RunEnv(t, t.Context(), storeApp(), "", "store", "export", dir)
	require.Equal(t, clitest.Ended(command.ExitOK, want, ""), r)

	all := exportOf(t, dir, true)
	require.NotContains(t, want, "pause/queue")
	require.Contains(t, all, `{"type":"config","key":"\u0000pause/queue//orders","value":"{}"}`)
	require.Contains(t, all, `"secret":"`)

	to := filepath.Join(dir, "x.jsonl")
	r = program.RunEnv(t, t.Context(), storeApp(), "", "store", "export", file, "--to", to)
	require.Equal(t, clitest.Ended(command.ExitOK, "", ""), r)
	fi, err := os.Stat(to)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), fi.Mode().Perm())
	require.Equal(t, command.ExitConflict, program.Run(t, "", "store", "export", file, "--to", to).Code)

	into := filepath.Join(dir, "new")
	r = program.RunEnv(t, t.Context(), storeApp(), "", "store", "import", into, "--from", to)
	require.Equal(t, clitest.Ended(command.ExitOK, filepath.Join(into, "fila.db")+": 2 queues, 3 messages, 1 consumer, 1 dedupe id, 1 configuration key\n", ""), r)
	require.Equal(t, want, exportOf(t, into, false))
	require.NotEqual(t, snap.Secret, snapshotOf(t, filepath.Join(into, "fila.db")).Secret, "it has a key of its own")
	clitest.Complains(t, program.RunEnv(t, t.Context(), storeApp(), want, "store", "import", into), command.ExitConflict, "is there: import into a directory without a store\n")

	whole := filepath.Join(dir, "whole")
	require.Contains(t, program.RunEnv(t, t.Context(), storeApp(), all, "store", "import", whole, "--json").Out, `"messages": 3`)
	require.Equal(t, all, exportOf(t, whole, true))
	require.Equal(t, snap.Secret, snapshotOf(t, filepath.Join(whole, "fila.db")).Secret)
	require.Equal(t, command.ExitOK, program.Run(t, "", "store", "check", whole).Code)
}

func snapshotOf(t require.TestingT, file string) store.Snapshot {
	f, err := store.OpenFile(file, store.Options{})
	require.NoError(t, err)
	snap, err := f.Snapshot()
	require.NoError(t, errors.Join(err, f.Close()))
	return snap
}

// TestStoreImportRefuses: an error names the line, and nothing is left behind.
func TestStoreImportRefuses(t *testing.T) {
	src := t.TempDir()
	aStore(t, src)
	good := exportOf(t, src, false)
	lines := strings.SplitAfter(strings.TrimSuffix(good, "\n"), "\n")
	replaced := func(n int, from, to string) string {
		changed := append([]string{}, lines...)
		changed[n-1] = strings.Replace(changed[n-1], from, to, 1)
		require.NotEqual(t, lines[n-1], changed[n-1], "%q is not in line %d", from, n)
		return strings.Join(changed, "")
	}
	without := func(n int) string {
		changed := append(append([]string{}, lines[:n-1]...), lines[n:]...)
		last := len(changed) - 1
		changed[last] = fmt.Sprintf(`{"type":"end","lines":%d}`, last)
		return strings.Join(changed, "")
	}
	for _, tc := range []struct{ name, in, want string }{
		{"nothing", "", "the export ends after line 0 without its end line"},
		{"no header", strings.Join(lines[1:], ""), "line 1: comes before the header line"},
		{"no export", "hello\n", "line 1: invalid character"},
		{"another version", replaced(1, `"version":1`, `"version":2`), `line 1: format "fila-export" of version 2: this fila reads`},
		{"a short secret", replaced(1, `"version":1`, `"version":1,"secret":"AAAA"`), "line 1: secret of 3 bytes"},
		{"two headers", lines[0] + good, "line 2: a second header"},
		{"cut off", strings.Join(lines[:7], ""), "the export ends after line 7 without its end line: it was cut off"},
		{"cut in a line", good[:len(good)/2], "line "},
		{"a line missing", strings.Join(append(append([]string{}, lines[:6]...), lines[7:]...), ""), "line 9: 9 lines should come before it"},
		{"after the end", good + lines[3], "line 11: comes after the end line"},
		{"an empty line", replaced(4, lines[3], "\n"), "line 4: is empty"},
		{"bad JSON", replaced(6, `"seq":7`, `"seq":`), "line 6: "},
		{"unknown field", replaced(6, `"seq":7`, `"seq":7,"sequence":1`), `line 6: unknown field "sequence"`},
		{"field twice", replaced(6, `"seq":7`, `"seq":7,"seq":8`), "line 6: field \"seq\" is given twice"},
		{"unknown type", replaced(4, `"type":"config"`, `"type":"konfig"`), `line 4: type "konfig": allowed are`},
		{"bad id", replaced(6, "01000000-", "0100000-"), "line 6: "},
		{"bad time", replaced(6, `03:02:35.000000006Z`, `03:72:35Z`), "line 6: "},
		{"a year that is too far", replaced(6, `"2026-01-02T03:02:35`, `"2700-01-02T03:02:35`), "line 6: "},
		{"bad weight", replaced(6, `"weight":1.5`, `"weight":1.5001`), "line 6: "},
		{"bad base64", replaced(7, `"/wA="`, `"/w"`), "line 7: "},
		{"bad UTF-8", replaced(6, "acme", "\xff"), "line 6: "},
		{"reserved header", replaced(6, `"tenant":["acme"]`, `"Fila-Id":["acme"]`), "line 6: headers: a name"},
		{"unknown queue", replaced(6, `"queue":"orders"`, `"queue":"bills"`), `line 6: there is no line for queue "bills" before it`},
		{"bad queue name", replaced(2, `"name":"orders"`, `"name":"a b"`), "line 2: queue name"},
		{"queue twice", replaced(3, `"name":"orders.dlq"`, `"name":"orders"`), "line 3: queue orders is there twice"},
		{"bad settings", replaced(2, `"settings":{`, `"settings":{"name":1,`), "line 2: settings: "},
		{"config twice", replaced(5, lines[4], lines[3]), "line 5: configuration key throttle:api:rate is there twice"},
		{"message twice", replaced(7, `"seq":9`, `"seq":7`), "line 7: queue orders has a message with seq 7 already"},
		{"far away", replaced(7, `"seq":9`, `"seq":9223372036854775807`), "line 7: seq 9223372036854775807: allowed is up to 2305843009213693952"},
		{"a dead letter that expires", replaced(8, `"seq":`, `"expires_at":"2026-01-02T03:04:05Z","seq":`), "line 8: expires_at: dead letters have none"},
		{"no dead letter queue", strings.ReplaceAll(without(3), "orders.dlq\",\"seq\"", "orders\",\"seq\""), "queue orders: its dead letter queue does not exist"},
	} {
		dir := filepath.Join(t.TempDir(), "new")
		err := importTo(t, dir, tc.in)
		require.ErrorContains(t, err, tc.want, tc.name)
		require.NoDirExists(t, dir, tc.name)
	}
	// An existing directory also stays empty.
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fila.db.import"), []byte("killed"), 0o600))
	require.Error(t, importTo(t, dir, without(3)))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, importTo(t, dir, good))
	require.Equal(t, good, exportOf(t, dir, false))
	r := program.Run(t, "", "store", "import", filepath.Join(dir, "x"), "--from", filepath.Join(dir, "none"))
	require.Equal(t, command.ExitFailed, r.Code)
}

// TestStoreExportBroken omits broken records only with --skip-broken.
func TestStoreExportBroken(t *testing.T) {
	dir := t.TempDir()
	file := aStore(t, dir)
	image, err := os.ReadFile(file)
	require.NoError(t, err)
	image[strings.Index(string(image), `{"n":1}`)] ^= 1
	require.NoError(t, os.WriteFile(file, image, 0o600))
	to := filepath.Join(dir, "x.jsonl")
	clitest.Complains(t, program.Run(t, "", "store", "export", dir, "--to", to), command.ExitFailed, "fila store check "+file+" shows all that is broken")
	require.NoFileExists(t, to)
	r := program.RunEnv(t, t.Context(), storeApp(), "", "store", "export", dir, "--to", to, "--skip-broken")
	require.Equal(t, command.ExitFailed, r.Code)
	require.Contains(t, r.Err, "fila: left out: store: "+file+" is corrupt: segment of segment 1")
	require.Contains(t, r.Err, "fila: the export leaves out 1 record that could not be read\n")
	text, err := os.ReadFile(to)
	require.NoError(t, err)
	into := filepath.Join(dir, "new")
	require.NoError(t, importTo(t, into, string(text)))
	require.Equal(t, string(text), exportOf(t, into, false))
	require.NotContains(t, string(text), `"seq":7`)
	require.Contains(t, string(text), `"seq":9`)
}

// TestStoreRoundTrip exports all kinds of content of a store.
func TestStoreRoundTrip(t *testing.T) {
	str := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z:*]{0,9}`), rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 9), func(b []byte) string { return string(b) }))
	when := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64(), rapid.SampledFrom([]int64{1, -1, math.MaxInt64, math.MinInt64, storeTime.UnixNano()}))
	headers := rapid.OneOf(
		rapid.SliceOfN(rapid.Byte(), 0, 9),
		rapid.Map(rapid.MapOfN(str, rapid.SliceOfN(str, 0, 3), 0, 4), func(h map[string][]string) []byte { return wire.EncodeHeaders(nil, h) }))
	message := func(rt *rapid.T, ref store.Ref) store.Message {
		m := store.Message{
			Ref: ref, ID: store.ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(rt, "id")), EnqueuedAt: when.Draw(rt, "at"),
			NotBefore: when.Draw(rt, "not before"), Delayed: rapid.Bool().Draw(rt, "delayed"), ExpiresAt: when.Draw(rt, "expires"),
			Class: store.Class{
				Weight: rapid.Uint32().Draw(rt, "weight"), Cost: rapid.Uint32().Draw(rt, "cost"), Key: str.Draw(rt, "key"), CircuitKey: str.Draw(rt, "circuit"),
				Priority: rapid.Uint8Range(0, store.MaxPriority).Draw(rt, "priority"), ThrottleKeys: rapid.SliceOfN(str, 0, 3).Draw(rt, "throttle"),
			},
			Attempts: rapid.Uint32().Draw(rt, "attempts"),
			Headers:  headers.Draw(rt, "headers"), Payload: []byte(str.Draw(rt, "payload")),
		}
		for range rapid.IntRange(0, 2).Draw(rt, "routes") {
			m.Routes = append(m.Routes, store.Route{
				Name: str.Draw(rt, "route"), Weight: rapid.Uint32Range(0, math.MaxInt32).Draw(rt, "route weight"),
				ThrottleKeys: rapid.SliceOfN(str, 0, 2).Draw(rt, "route throttle"), CircuitKey: str.Draw(rt, "route circuit"),
			})
		}
		if ref.Queue == 2 {
			m.ExpiresAt = 0 // dead letters do not expire
		}
		if rapid.Bool().Draw(rt, "dead") {
			m.Dead = &store.Dead{
				Reason: str.Draw(rt, "reason"), Error: str.Draw(rt, "error"), ErrorCode: str.Draw(rt, "code"), SourceQueue: str.Draw(rt, "source"),
				At: when.Draw(rt, "died"), Attempts: rapid.Uint32().Draw(rt, "tried"),
			}
		}
		return m
	}
	n := 0
	base := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		n++
		dir := filepath.Join(base, fmt.Sprint(n))
		require.NoError(rt, os.Mkdir(dir, 0o700))
		makeStore(t, dir, func(b *store.Batch) {
			seqs := rapid.SliceOfNDistinct(rapid.Uint64Range(0, 1000), 0, 12, rapid.ID[uint64]).Draw(rt, "seqs")
			for _, seq := range seqs {
				m := message(rt, store.Ref{Queue: store.QueueID(1 + seq%2), Seq: seq})
				b.Add = append(b.Add, m)
				for range rapid.IntRange(0, 3).Draw(rt, "history") {
					record := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(rt, "record")
					b.History = append(b.History, store.Attempt{Ref: m.Ref, Record: record})
				}
				if rapid.Bool().Draw(rt, "state") {
					b.State = append(b.State, store.State{
						Ref: m.Ref, Attempts: rapid.Uint32().Draw(rt, "ended"), ReadyAt: when.Draw(rt, "ready"), LastError: str.Draw(rt, "last"),
						Lease: store.Lease{ID: rapid.Uint64().Draw(rt, "lease"), Consumer: str.Draw(rt, "consumer"), Deadline: when.Draw(rt, "deadline"), DeliveredAt: when.Draw(rt, "began"), Held: str.Draw(rt, "held")},
					})
				}
			}
			for i := range rapid.IntRange(0, 5).Draw(rt, "dedupes") {
				b.Dedupe = append(b.Dedupe, store.Dedupe{
					Queue: 1, DedupeID: fmt.Sprint(i) + str.Draw(rt, "dedupe"), ID: store.ID{byte(i)},
					Until: storeTime.UnixNano() + rapid.Int64Range(-20e9, 60e9).Draw(rt, "until"),
				})
			}
			for key := range rapid.MapOfN(str, str, 0, 4).Draw(rt, "config") {
				if key != "" {
					b.PutConfig = append(b.PutConfig, store.Entry{Key: key, Value: str.Draw(rt, "value")})
				}
			}
			b.PutConsumers = []store.ConsumerRecord{{Queue: 2, Name: "c", MaxInFlight: 5, ExpiresAt: when.Draw(rt, "registered"), Reg: rapid.Uint64().Draw(rt, "reg")}}
		})
		lines := exportOf(rt, dir, true)
		require.NoError(rt, importTo(rt, dir+"-new", lines))
		require.Equal(rt, lines, exportOf(rt, dir+"-new", true))
		require.Equal(rt, contents(rt, dir), contents(rt, dir+"-new"))
	})
}

func contents(t require.TestingT, dir string) *storetest.Content {
	s, err := store.Open(filepath.Join(dir, "fila.db"), store.Options{NoSync: true, Now: storeTime.UnixNano})
	require.NoError(t, err)
	c := storetest.Dump(t, s)
	require.NoError(t, s.Close())
	return c
}

// TestStoreImportInParts crosses the limits of batches, with a long line.
func TestStoreImportInParts(t *testing.T) {
	dir := t.TempDir()
	makeStore(t, dir, func(b *store.Batch) {
		for seq := range uint64(2*importRecords + 5) {
			m := store.Message{Ref: store.Ref{Queue: 1, Seq: seq}, Payload: storetest.Payload(1, seq)}
			if seq == 3 {
				m.Payload = bytes.Repeat([]byte("long "), 1<<20)
			}
			b.Add = append(b.Add, m)
		}
	})
	lines := exportOf(t, dir, false)
	require.NoError(t, importTo(t, dir+"-new", lines))
	require.Equal(t, len(lines), len(exportOf(t, dir+"-new", false)))
	require.Equal(t, contents(t, dir), contents(t, dir+"-new"))

	all := strings.SplitAfter(lines, "\n")
	require.ErrorContains(t, importTo(t, dir+"-twice", strings.Join(all[:8000], "")), "the export ends after line 8000")
	all[8190] = all[4001] // of another batch
	err := importTo(t, dir+"-twice", strings.Join(all, ""))
	require.ErrorContains(t, err, "line 8191: queue orders has a message with seq 3998 already")
	require.NoDirExists(t, dir+"-twice")
}

// BenchmarkStorePort exports and imports messages of 1 KB.
func BenchmarkStorePort(b *testing.B) {
	const n = 20_000
	dir := b.TempDir()
	makeStore(b, dir, func(batch *store.Batch) {
		payload := []byte(strings.Repeat("0123456789abcde ", 64))
		for seq := range uint64(n) {
			batch.Add = append(batch.Add, store.Message{
				Ref: store.Ref{Queue: 1, Seq: seq}, EnqueuedAt: 1e18, Class: store.Class{Weight: 1000, Cost: 1000, Key: "tenant"}, Payload: payload,
			})
		}
	})
	lines := exportOf(b, dir, false)
	imported := 0
	for name, port := range map[string]func() error{
		"export": func() error { return new(exporter).run(config.StoreFile(dir), "", io.Discard) },
		"import": func() error {
			imported++
			return importTo(b, filepath.Join(dir, fmt.Sprint(imported)), lines)
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, port())
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/message")
		})
	}
}
