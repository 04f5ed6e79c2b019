//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
)

// TestClusterSeesItsServers: a cluster that requires synced servers says which of three external ones
// do not sync, and serves nevertheless, until all of them do.
func TestClusterSeesItsServers(t *testing.T) {
	t.Parallel()
	servers := startCluster(t, 3)
	var monitoring []string
	for _, s := range servers.servers {
		monitoring = append(monitoring, fmt.Sprintf("%q", s.status))
	}
	p := clusterNodes(t, servers.URL(), fmt.Sprintf("shards = 1\nrequire = [\"version\", \"sync\"]\nmonitoring = [%s]", strings.Join(monitoring, ", ")), "a")["a"]
	c := dial(t, servers.URL())
	seen := func() (list string) {
		r, err := c.nc.Request("fila.admin.cluster-status", nil, 2*time.Second)
		if err != nil {
			return ""
		}
		var st struct {
			Servers []struct {
				Server, Version, Sync string
				Missing               []string
			}
		}
		require.NoError(t, json.Unmarshal(r.Data, &st))
		for _, s := range st.Servers {
			list += fmt.Sprintln(s.Server, s.Version, s.Sync, s.Missing)
		}
		return list
	}
	want := ""
	for i := range 3 {
		want += fmt.Sprintf("n%d %s 2m0s [sync 2m0s]\n", i, natsserver.VERSION)
	}
	require.True(t, pollFor(2*patience, func() bool { return seen() == want }), "all servers lack the sync: %s", seen())
	require.True(t, pollFor(2*patience, func() bool {
		r, err := c.nc.Request("fila.admin.queue-create.orders", nil, 2*time.Second)
		return err == nil && errorOf(t, r) == nil
	}), "it serves nevertheless, when it has waited for other nodes")
	eventually(t, func() bool { return strings.Contains(readyz(p), "degraded") }, "readyz says so")
	for i, s := range servers.servers {
		servers.Kill(i)
		config, err := os.ReadFile(s.config)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(s.config, []byte(strings.Replace(string(config), "jetstream {", "jetstream { sync_interval: always,", 1)), 0o600))
	}
	for i := range servers.servers {
		servers.start(i)
	}
	want = strings.ReplaceAll(want, "2m0s [sync 2m0s]", "always []")
	require.True(t, pollFor(2*patience, func() bool { return seen() == want }), "all servers sync: %s", seen())
	eventually(t, func() bool { body := readyz(p); return body != "" && !strings.Contains(body, "degraded") }, "readyz says so")
}

// readyz returns what a fila says of itself, "" unless it answers 200.
func readyz(p *proc) string {
	resp, err := http.Get(p.HTTP + "/readyz")
	if err != nil {
		return ""
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}
