package clustercmd

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire/api"
)

// On a terminal a loss is accepted by the name of the cluster alone.
func TestAcceptAsksForTheName(t *testing.T) {
	for typed, code := range map[string]int{"prod\n": command.ExitOK, "y\n": command.ExitConflict, "\n": command.ExitConflict} {
		f := clitest.StartFake(t)
		f.Answer("fila.admin.cluster-accept", api.ClusterLoss{Shard: 3, LogEnd: 500, Node: "a", Seq: 1000, Records: 500, Unreachable: 500})
		f.Answer("fila.admin.cluster-status", api.ClusterStatus{Name: "prod"})
		ours, theirs, screen := clitest.Terminal(t)
		var out clitest.Buffer
		ended := make(chan int, 1)
		go func() {
			ended <- program.Exec(t.Context(), strings.Fields("cluster accept 3 --loss 500"), theirs, &out, theirs)
		}()
		const question = "give these records up for good? Type the name of the cluster: "
		require.Eventually(t, func() bool { return strings.Contains(screen.String(), question) }, time.Minute, time.Millisecond)
		require.Contains(t, screen.String(), "log lost: the log of shard 3 ends at record 500", "what it would do comes first")
		_, err := ours.WriteString(typed)
		require.NoError(t, err)
		require.Equal(t, code, <-ended, screen.String())
		require.JSONEq(t, `{"shard":3,"loss":500,"dry_run":true}`, string(f.Next().Data))
		f.Next() // the status
		if code == command.ExitOK {
			require.JSONEq(t, `{"shard":3,"loss":500}`, string(f.Next().Data))
			require.Contains(t, out.String(), "shard 3 is accepted")
		}
		require.Empty(t, f.Got, typed)
	}
}
