package web

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire/api"
)

// TestEntitledSharesAddUp: also of keys that have no backlog, as long as they compete; a key with less
// than its share is not noisy.
func TestEntitledSharesAddUp(t *testing.T) {
	served := func(n int64) api.WaitCounts { return api.WaitCounts{Waits: []int64{n}} }
	d := tenantsData{}
	d.Lanes = []api.Lane{
		{Key: "acme", Weight: 1, Share: 1. / 3, Ready: 9},
		{Key: "globex", Weight: 2, Share: 2. / 3, Blocked: 4, InFlight: 1},
		{Key: "initech", Weight: 1, Share: 1. / 4, InFlight: 3},
		{Key: "umbrella", Weight: 4, Share: 4. / 7, WaitCounts: served(5)},
		{Key: "idle", Weight: 1, Share: 1. / 4},
		{Key: "paused", Weight: 1, Ready: 3},
	}
	d.Noise.Noisy = []api.NoisyFlow{{Key: "initech"}, {Key: "globex"}}
	d.entitle()
	d.rows(d.colors())
	sum, shares, noisy := 0.0, map[string]float64{}, map[string]bool{}
	for _, r := range d.Rows {
		sum += r.Share
		shares[r.Key], noisy[r.Key] = r.Share, r.Noisy
	}
	require.InDelta(t, 1, sum, 1e-9)
	require.Equal(t, map[string]float64{"acme": 1. / 8, "globex": 2. / 8, "initech": 1. / 8, "umbrella": 4. / 8, "idle": 0, "paused": 0}, shares)
	require.True(t, noisy["initech"], "it has three of four messages in flight")
	require.False(t, noisy["globex"])
}

// TestColorsOfNames: a key has the color of its name unless another one has it, and no two keys the same.
func TestColorsOfNames(t *testing.T) {
	d := tenantsData{}
	for i := range 2 * tenantColors {
		d.Lanes = append(d.Lanes, api.Lane{Key: fmt.Sprint("key-", i)})
	}
	all := d.colors()
	require.Len(t, all, tenantColors)
	used := map[int]bool{}
	for _, c := range all {
		used[c] = true
	}
	require.Len(t, used, tenantColors)
	d.Lanes = d.Lanes[:1]
	require.Equal(t, all["key-0"], d.colors()["key-0"])
}
