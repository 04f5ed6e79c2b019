package sidecar

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// TestConfigLog is newest first, by prefix, in pages, and goes on after a
// restart.
func TestConfigLog(t *testing.T) {
	r := newGateRig(t)
	for i := range 5 {
		must[wire.ConfigSetReply](r, r.s.configSet, fmt.Sprintf("limit:%d", i%2), fmt.Sprintf(`{"value":"%d"}`, i))
	}
	must[wire.ConfigSetReply](r, r.s.configSet, "limit:0", `{"value":"4"}`)
	require.Len(t, r.trail(), 5, "what changes nothing is no change")
	must[wire.ConfigEntry](r, r.s.configDelete, "limit:0", "")
	r.restart(true, 0)
	must[wire.ConfigSetReply](r, r.s.configSet, "other", `{"value":""}`)
	log := func(body string) (seqs []uint64, total int) {
		l := must[wire.ConfigLog](r, r.s.configLog, "", body)
		for _, e := range l.Entries {
			seqs = append(seqs, e.Seq)
		}
		return seqs, l.Total
	}
	for body, want := range map[string]struct {
		seqs  []uint64
		total int
	}{
		"":                     {[]uint64{7, 6, 5, 4, 3, 2, 1}, 7},
		`{"prefix":"limit:0"}`: {[]uint64{6, 5, 3, 1}, 4},
		`{"prefix":"limit","offset":1,"limit":2}`: {[]uint64{5, 4}, 6},
		`{"offset":6}`:      {[]uint64{1}, 7},
		`{"offset":7}`:      {nil, 7},
		`{"prefix":"none"}`: {nil, 0},
	} {
		seqs, total := log(body)
		require.Equal(t, want.seqs, seqs, body)
		require.Equal(t, want.total, total, body)
	}
	newest := must[wire.ConfigLog](r, r.s.configLog, "", `{"limit":2}`).Entries
	four, none := "4", ""
	require.Equal(t, []wire.ConfigLogEntry{
		{Seq: 7, Time: r.in(0), Key: "other", New: &none, By: "config-set"},
		{Seq: 6, Time: r.in(0), Key: "limit:0", Old: &four, By: "config-delete"},
	}, newest)
	for _, bad := range []string{`{"limit":0}`, `{"limit":1001}`, `{"offset":-1}`, `{"before":1}`, `[]`} {
		_, err := do[any](r, r.s.configLog, "", bad)
		require.Equal(t, 400, err.Code, bad)
	}
}

// TestConfigLogIsBounded keeps the newest entries, in memory and in the store.
func TestConfigLogIsBounded(t *testing.T) {
	var a audit
	disk := make(map[string]string)
	record := func(n int) {
		t.Helper()
		changes := make([]change, n)
		for i := range changes {
			changes[i].key = "k"
		}
		b := &store.Batch{}
		a.record(b, rigStart, byFile, changes...)
		require.NoError(t, b.Check())
		for _, e := range b.PutConfig {
			disk[e.Key] = e.Value
		}
		for _, k := range b.DeleteConfig {
			require.NotEmpty(t, disk[k], k)
			delete(disk, k)
		}
	}
	check := func(newest uint64) {
		t.Helper()
		entries, total := a.list("", 0, maxAudit+1)
		require.Equal(t, maxAudit, total)
		require.Equal(t, newest, entries[0].Seq)
		require.Equal(t, newest-maxAudit+1, entries[maxAudit-1].Seq)
		require.Len(t, disk, maxAudit)
		require.NotEmpty(t, disk[auditKey(newest)])
		require.NotEmpty(t, disk[auditKey(newest-maxAudit+1)])
	}
	record(maxAudit - 1)
	record(1)
	check(maxAudit)
	record(3)
	check(maxAudit + 3)
	record(2*maxAudit + 5)
	check(3*maxAudit + 8)
	record(maxAudit)
	check(4*maxAudit + 8)

	var entries []store.Entry
	for _, k := range slices.Sorted(maps.Keys(disk)) {
		entries = append(entries, store.Entry{Key: k, Value: disk[k]})
	}
	a = audit{}
	a.restore(entries, slog.New(slog.DiscardHandler))
	check(4*maxAudit + 8)
	record(1)
	check(4*maxAudit + 9)
}

func TestAuditValuesAreCut(t *testing.T) {
	require.Nil(t, auditValue(nil))
	for _, fits := range []string{"", "x", strings.Repeat("x", maxAuditValue)} {
		require.Equal(t, fits, *auditValue(&fits))
	}
	for _, long := range []string{strings.Repeat("x", maxAuditValue+1), strings.Repeat("€", 1000), strings.Repeat("\xff", 2000)} {
		got := *auditValue(&long)
		require.LessOrEqual(t, len(got), maxAuditValue+20)
		require.True(t, strings.HasSuffix(got, fmt.Sprintf("... (%d bytes)", len(long))))
		require.Equal(t, utf8.ValidString(long), utf8.ValidString(got))
	}
}
