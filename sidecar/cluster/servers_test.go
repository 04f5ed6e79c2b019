package cluster

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/cluster/ownership"
	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// A real server shows its version when it greets, and how it syncs in its monitoring.
func TestServersAreSeen(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*server.Options)
		sync   string
	}{
		"always":       {func(o *server.Options) { o.JetStream, o.SyncAlways = true, true }, "always"},
		"interval":     {func(o *server.Options) { o.JetStream, o.SyncInterval = true, time.Minute }, "1m0s"},
		"no JetStream": {func(*server.Options) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			srv := natstest.Start(t, func(o *server.Options) {
				o.ServerName, o.HTTPHost, o.HTTPPort = "n1", "127.0.0.1", -1
				tc.change(o)
			})
			s, err := readGreeting(t.Context(), srv.Addr().String())
			require.NoError(t, err)
			require.Equal(t, ownership.Sighting{Server: "n1", Version: server.VERSION}, s)
			s, err = readMonitoring(t.Context(), "http://"+srv.MonitorAddr().String()+"/")
			require.NoError(t, err)
			require.Equal(t, ownership.Sighting{Server: "n1", Version: server.VERSION, Sync: tc.sync}, s)
		})
	}
}
