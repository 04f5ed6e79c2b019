package opscmd

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire/api"
)

// Invoices fail with three errors, and a fixed release ends one of them. docs/workbench.md
// shows how to sort them out; its test runs the command.
func TestIncident(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a server")
	}
	ctx := t.Context()
	s := newDemoStage(&command.Env{}, io.Discard)
	defer func() { require.NoError(t, s.end(0)) }()
	server, err := s.start(ctx, demoConfig(t.TempDir()))
	require.NoError(t, err)
	i := newBadRelease(s, server.c, server.c)
	require.NoError(t, i.prepare(ctx, 100))
	require.NoError(t, i.happen(ctx, 100, 1010))

	groups, err := server.c.DeadGroups(ctx, "invoices.dlq", 10)
	require.NoError(t, err)
	found := map[string]int64{}
	for _, g := range groups.Groups {
		found[g.ErrorCode+" "+g.Error] = g.Messages
	}
	require.Equal(t, map[string]int64{
		"500 template invoice.html:#: no field <text> in invoice <id>": 806,
		"550 mailbox <id> is unavailable":                              202,
		"422 currency <text> is not known":                             2,
	}, found)

	// The release had changed before the first of them, and can be set back.
	require.Len(t, groups.Groups[0].Before, 3)
	require.Equal(t, "release 2 of the workers", groups.Groups[0].Before[0].Text)
	require.Equal(t, "release from 1 to 2", groups.Groups[0].Before[1].Text)
	require.Equal(t, "fila config set release 1", groups.Groups[0].Before[1].Undo.Command)

	for _, value := range []string{"soon", "3"} { // the first version is not a release
		_, err = server.c.ConfigSet(ctx, incidentRelease, value, nil)
		require.NoError(t, err)
	}
	// The workers have taken the new release, so none of these fails again.
	_, err = server.c.JobCreate(ctx, api.JobCreateRequest{
		Queue: "invoices.dlq", Op: "redrive", Filter: &api.Filter{ErrorCode: "500"},
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		info, err := server.c.QueueInspect(ctx, "invoices", 0)
		return err == nil && info.Counters["acked"] == 79+806
	}, time.Minute, incidentLook)

	followCtx, stop := context.WithCancel(ctx)
	deployed, ended := make(chan int64), make(chan struct{})
	go func() {
		defer close(ended)
		i.follow(followCtx, func(release int64) { deployed <- release })
	}()
	require.EqualValues(t, 3, <-deployed)
	stop()
	<-ended
}
