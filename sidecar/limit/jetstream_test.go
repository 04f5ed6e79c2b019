package limit_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/natstest"
	"github.com/filaq/fila/sidecar/fleet"
	"github.com/filaq/fila/throttle"
)

// Four instances in one process, with wrong clocks, share limits on a real server.
func TestLimitsInJetStream(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t, natstest.JetStream)
	for name, tc := range map[string]struct {
		limits throttle.Limits
		least  int // in 3 s
	}{
		"rate":        {throttle.Limits{Rate: throttle.PerSecond(1000 * throttle.One), Burst: 200 * throttle.One}, 1500},
		"window":      {window, 60},
		"concurrency": {places, 300},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTrail(tc.limits)
			var all []*instance
			for _, skew := range []time.Duration{0, 5 * time.Second, -5 * time.Second, time.Second} {
				nc, err := nats.Connect(srv.URL)
				require.NoError(t, err)
				defer nc.Close()
				b, err := fleet.NewJetStream(nc, slog.New(slog.DiscardHandler), "G_"+name, 1)
				require.NoError(t, err)
				all = append(all, start(t, b, tc.limits, skew))
			}
			during(t, 3*time.Second, r, 10*time.Millisecond, all...)
			stop(all...)
			r.check(t)
			t.Log(r.sum(), r.by)
			require.GreaterOrEqual(t, r.sum(), tc.least)
		})
	}
}
