package opscmd

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire/api"
)

// incidentSigns are how each incident shows. TestIncident is about the first one, which takes
// longer to happen.
var incidentSigns = map[string]func(ctx context.Context, c *client.Client) bool{
	"broken-hook": func(ctx context.Context, c *client.Client) bool { return finds(ctx, c, "hook-failing", "exports") },
	"rate-limited": func(ctx context.Context, c *client.Client) bool {
		q, err := c.QueueInspect(ctx, "sms", 0)
		return err == nil && q.Parked > 0 && finds(ctx, c, "circuit-open", "")
	},
	"wrong-limit": func(ctx context.Context, c *client.Client) bool {
		limit, err := c.ThrottleShow(ctx, "tenant:acme")
		q, failed := c.QueueInspect(ctx, "reports", 0)
		return err == nil && failed == nil && limit.Rate != nil && *limit.Rate == "2" && q.Parked > 0
	},
	"lost-consumers": func(ctx context.Context, c *client.Client) bool { return finds(ctx, c, "no-consumers", "thumbnails") },
}

// finds reports whether a condition of a queue is a finding. It need not be the worst one: on a loaded
// machine consumers may be lost for a while, which is worse.
func finds(ctx context.Context, c *client.Client, condition, queue string) bool {
	a, err := c.Attention(ctx, "", 10)
	return err == nil && slices.ContainsFunc(a.Findings, func(f api.Finding) bool { return f.Condition == condition && f.Queue == queue })
}

// Each incident happens, and the pages do not have its name.
func TestIncidents(t *testing.T) {
	if testing.Short() {
		t.Skip("runs servers")
	}
	for i := range incidents {
		n := &incidents[i]
		sign, ok := incidentSigns[n.name]
		if !ok {
			require.Equal(t, "bad-release", n.name)
			continue
		}
		t.Run(n.name, func(t *testing.T) {
			t.Parallel()
			s := newDemoStage(&command.Env{}, io.Discard)
			dir, err := os.MkdirTemp("", "fila-demo-") // t.TempDir has the name of the incident, and an error may have the path
			require.NoError(t, err)
			defer func() { require.NoError(t, os.RemoveAll(dir)) }()
			s.dir, s.errOut = dir, io.Discard
			defer func() { require.NoError(t, s.end(0)) }()
			l, err := n.start(t.Context(), s, 0)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return sign(t.Context(), l.server.c) }, demoPatience, incidentLook)
			for _, path := range []string{"/", "/queues", "/activity/audit", "/queues/" + n.queues[1].name} {
				page := get(t, l.server.pages+path)
				require.Contains(t, page, n.queues[1].name)
				require.NotContains(t, strings.ToLower(page), n.name)
			}
			require.NoError(t, s.failed(nil))
		})
	}
}

// get returns a page as text.
func get(t *testing.T, url string) string {
	t.Helper()
	r, err := http.Get(url)
	require.NoError(t, err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, r.StatusCode, "%s", body)
	return string(body)
}

// The output names the symptom, not the cause.
func TestIncidentShow(t *testing.T) {
	ready := incidentReady{Incident: "wrong-limit", NATS: "nats://n:1", Pages: "http://h:2"}
	i := slices.IndexFunc(incidents, func(n incident) bool { return n.name == ready.Incident })
	var out bytes.Buffer
	require.NoError(t, incidents[i].show(newDemoStage(&command.Env{JSON: true}, &out), ready))
	require.JSONEq(t, `{"incident":"wrong-limit","nats":"nats://n:1","pages":"http://h:2"}`, out.String())
	out.Reset()
	require.NoError(t, incidents[i].show(newDemoStage(&command.Env{}, &out), ready))
	for _, text := range []string{"acme says that its reports come late", "  http://h:2\n", "  export NATS_URL=nats://n:1\n", "An interrupt ends it"} {
		require.Contains(t, out.String(), text)
	}
	require.NotContains(t, out.String(), ready.Incident)
	out.Reset()
	require.NoError(t, incidents[0].show(newDemoStage(&command.Env{}, &out), ready))
	require.Contains(t, out.String(), "40,000 invoices are dead letters")
	require.Contains(t, out.String(), "  fila config set release 3\n")
}

func TestIncidentCommand(t *testing.T) {
	demoDir(t)
	interrupted(t, 0, "--incident", "bad-release")
	interrupted(t, time.Second, "--incident", "broken-hook")
	clitest.Complains(t, program.Run(t, "", "demo", "--incident", "bad-release", "--duration", "1s"), command.ExitUsage, "--incident has no --duration")
	clitest.Complains(t, program.Run(t, "", "demo", "--incident", "fire"), command.ExitUsage,
		`--incident "fire": allowed are bad-release, broken-hook, rate-limited, wrong-limit, lost-consumers`)
	for _, two := range [][]string{{"--incident", "wrong-limit", "--shared"}, {"--incident", "wrong-limit", "--cluster"}, {"--shared", "--cluster"}} {
		clitest.Complains(t, program.Run(t, "", append([]string{"demo"}, two...)...), command.ExitUsage, "one of them is allowed")
	}
}
