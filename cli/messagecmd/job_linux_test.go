package messagecmd

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire/api"
)

// TestDeleteAsks: on a terminal, a job that removes messages does a dry run first and starts
// after a yes, if the number of messages is about the same then. --yes and --dry-run ask
// nothing.
func TestDeleteAsks(t *testing.T) {
	dead := int64(3)
	f := clitest.StartFake(t)
	f.Handle("fila.admin.job-create.delete.orders.dlq", func(m *nats.Msg) any {
		j := api.JobInfo{JobCreateRequest: api.JobCreateRequest{Queue: "orders.dlq", Op: api.JobDelete}, State: api.JobWaiting, Matched: dead, Eligible: dead}
		if !strings.Contains(string(m.Data), `"dry_run"`) {
			j.ID = "j"
		}
		return j
	})
	const (
		dry    = `{"queue":"orders.dlq","op":"delete","filter":{"error_code":"550"},"dry_run":true}`
		counts = `{"queue":"orders.dlq","op":"delete","filter":{"error_code":"550"},"if_count":3}`
		plain  = `{"queue":"orders.dlq","op":"delete","filter":{"error_code":"550"}}`
	)
	for _, c := range []struct {
		name, flag, typed string
		dead              int64
		asked             []string
		code              int
	}{
		{"yes", "", "y\n", 3, []string{dry, counts}, command.ExitOK},
		{"no", "", "n\n", 3, []string{dry}, command.ExitConflict},
		{"neither", "", "\n", 3, []string{dry}, command.ExitConflict},
		{"nothing to remove", "", "", 0, []string{dry}, command.ExitOK},
		{"--yes", "--yes", "", 3, []string{plain}, command.ExitOK},
		{"--dry-run", "--dry-run", "", 3, []string{dry}, command.ExitOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			dead = c.dead
			ours, theirs, screen := clitest.Terminal(t)
			var out clitest.Buffer
			args := append(strings.Fields("job create orders.dlq delete --error-code 550"), strings.Fields(c.flag)...)
			code := make(chan int, 1)
			go func() { code <- program.Exec(t.Context(), args, theirs, &out, theirs) }()
			const question = "orders.dlq: remove 3 messages for good? [y/N] "
			if c.typed != "" {
				require.Eventually(t, func() bool { return strings.Contains(screen.String(), question) }, time.Minute, time.Millisecond)
				require.Contains(t, screen.String(), "matched       3", "what it would do comes first")
				_, err := ours.WriteString(c.typed)
				require.NoError(t, err)
			}
			require.Equal(t, c.code, <-code, screen.String())
			for _, asked := range c.asked {
				require.JSONEq(t, asked, string(f.Next().Data))
			}
			require.Empty(t, f.Got)
			if c.typed == "" {
				require.NotContains(t, screen.String(), "[y/N]")
			}
		})
	}
}
