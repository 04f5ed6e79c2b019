package control

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
	"github.com/filaq/fila/wire/api"
)

// The audit log is newest first, by prefix, in pages, and goes on after a restart.
func TestConfigLog(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for i := range 5 {
			r.put(fmt.Sprintf("limit:%d", i%2), fmt.Sprint(i))
		}
		r.put("limit:0", "4")
		require.Len(t, r.trail(), 5, "what changes nothing is no change")
		r.delete("limit:0")
		r.restart(true, 0)
		r.put("other", "")
		for _, tc := range []struct {
			req   api.KeyListRequest
			seqs  []uint64
			total int
		}{
			{api.KeyListRequest{Limit: 100}, []uint64{7, 6, 5, 4, 3, 2, 1}, 7},
			{api.KeyListRequest{Prefix: "limit:0", Limit: 100}, []uint64{6, 5, 3, 1}, 4},
			{api.KeyListRequest{Prefix: "limit", Offset: 1, Limit: 2}, []uint64{5, 4}, 6},
			{api.KeyListRequest{Offset: 6, Limit: 100}, []uint64{1}, 7},
			{api.KeyListRequest{Offset: 7, Limit: 100}, nil, 7},
			{api.KeyListRequest{Prefix: "none", Limit: 100}, nil, 0},
		} {
			list, err := r.c.ConfigLog(tc.req)
			require.Nil(t, err)
			var seqs []uint64
			for _, e := range list.Entries {
				seqs = append(seqs, e.Seq)
			}
			require.Equal(t, tc.seqs, seqs, tc.req)
			require.Equal(t, tc.total, list.Total, tc.req)
			require.NotNil(t, list.Entries, "an empty list is [] in JSON")
		}
		four, none := "4", ""
		newest, err := r.c.ConfigLog(api.KeyListRequest{Limit: 2})
		require.Nil(t, err)
		require.Equal(t, []api.ConfigLogEntry{
			{Seq: 7, Time: in(0), Key: "other", New: &none, By: "config-set"},
			{Seq: 6, Time: in(0), Key: "limit:0", Old: &four, By: "config-delete"},
		}, newest.Entries)
	})
}

// The audit log keeps the newest entries, in memory and in the store.
func TestConfigLogIsBounded(t *testing.T) {
	c := &Control{}
	disk := make(map[string]string)
	record := func(n int) {
		t.Helper()
		changes := make([]change, n)
		for i := range changes {
			changes[i].key = "k"
		}
		var kept Batch
		c.audit.record(&kept, 1_700_000_000_000_000_000, Actor{By: byFile}, changes...)
		require.NoError(t, (&store.Batch{PutConfig: kept.Put, DeleteConfig: kept.Delete}).Check())
		for _, e := range kept.Put {
			disk[e.Key] = e.Value
		}
		for _, k := range kept.Delete {
			require.NotEmpty(t, disk[k], k)
			delete(disk, k)
		}
	}
	check := func(newest uint64) {
		t.Helper()
		list, err := c.ConfigLog(api.KeyListRequest{Limit: maxAudit + 1})
		require.Nil(t, err)
		require.Equal(t, maxAudit, list.Total)
		require.Equal(t, newest, list.Entries[0].Seq)
		require.Equal(t, newest-maxAudit+1, list.Entries[maxAudit-1].Seq)
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

	var kept []store.Entry
	for _, k := range slices.Sorted(maps.Keys(disk)) {
		kept = append(kept, store.Entry{Key: k, Value: disk[k]})
	}
	c = &Control{}
	c.audit.restore(kept, slog.New(slog.DiscardHandler))
	check(4*maxAudit + 8)
	record(1)
	check(4*maxAudit + 9)
}

func TestAuditValuesAreCut(t *testing.T) {
	require.Nil(t, auditValue(nil))
	for _, fits := range []string{"", "x", strings.Repeat("x", MaxAuditValue)} {
		require.Equal(t, fits, *auditValue(&fits))
	}
	for _, long := range []string{strings.Repeat("x", MaxAuditValue+1), strings.Repeat("€", 1000), strings.Repeat("\xff", 2000)} {
		got := *auditValue(&long)
		require.LessOrEqual(t, len(got), MaxAuditValue+20)
		require.True(t, strings.HasSuffix(got, fmt.Sprintf("... (%d bytes)", len(long))))
		require.Equal(t, utf8.ValidString(long), utf8.ValidString(got))
	}
}
