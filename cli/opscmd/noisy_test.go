package opscmd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire/api"
)

func TestNoisy(t *testing.T) {
	f := clitest.StartFake(t)
	reply := api.NoisyReply{
		Queue: "orders", InFlight: 64, BusyMs: 90_000,
		Noisy:      []api.NoisyFlow{{Key: "acme\x1b[2J", InFlight: 60, InFlightShare: 0.9375, BusyMs: 81_000, BusyShare: 0.9, Ended: 812, FairShare: 1. / 3, Ready: 12_000}},
		QuietReady: 21, QuietOldestAgeMs: 12_345,
		Waiting: []api.WaitingFlow{{Key: "globex", Ready: 20, WaitMs: 12_345}, {Key: "initech", Ready: 1, WaitMs: 900}},
	}
	clitest.Shows(f, program, "noisy orders --limit 2", "fila.admin.noisy.orders", reply,
		"NOISY     FAIR  IN FLIGHT  BUSY         ENDED  READY",
		"acme?[2J  33%   60 (94%)   1m21s (90%)  812    12000",
		"",
		"21 messages of other flows ready, the longest wait 12.3s",
		"",
		"WAITS    READY  WAIT",
		"globex   20     12.3s",
		"initech  1      900ms",
	)
	reply.StarvedFlows, reply.Starved, reply.Noisy = 2, reply.Waiting[:1], nil
	clitest.Shows(f, program, "noisy orders", "fila.admin.noisy.orders", reply,
		"no flow of queue orders is noisy",
		"",
		"21 messages of other flows ready, the longest wait 12.3s",
		"",
		"STARVES  READY  WAIT",
		"globex   20     12.3s",
		"",
		"WAITS    READY  WAIT",
		"globex   20     12.3s",
		"initech  1      900ms",
	)
	require.NotNil(t, f.Next())
	require.JSONEq(t, `{"limit":2}`, string(f.Next().Data))
	clitest.Shows(f, program, "noisy orders", "fila.admin.noisy.orders", api.NoisyReply{Queue: "orders"},
		"no flow of queue orders is noisy", "", "0 messages of other flows ready")
	clitest.Complains(t, program.RunAt(t, "noisy", "orders", "--limit", "-1"), command.ExitUsage, "--limit -1")
}
