package opscmd

import (
	"hash/fnv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
)

func clusterOutcome() clusterReport {
	return clusterReport{Killed: "a", Confirmed: 4500, Delivered: 4500, Queues: []clusterQueue{
		{Queue: "mails", OwnerBefore: "a", LogBefore: "b", Owner: "b", Epoch: 3, Sent: 1500, Confirmed: 1500, Delivered: 1500, Again: 2, SilentMs: 2840, back: true},
		{Queue: "jobs", Shard: 1, OwnerBefore: "b", LogBefore: "a", Owner: "b", Epoch: 1, Sent: 1500, Confirmed: 1500, Delivered: 1500, SilentMs: 8100, back: true},
		{Queue: "orders", Shard: 2, OwnerBefore: "c", LogBefore: "c", Owner: "c", Epoch: 2, Sent: 1500, Confirmed: 1500, Delivered: 1500, SilentMs: 40, back: true},
	}}
}

func TestDemoClusterTable(t *testing.T) {
	r := clusterOutcome()
	lines := r.lines(terminal.Style{})
	require.Equal(t, []string{
		"",
		"QUEUE   OWNER EPOCH    SENT CONFIRMED DELIVERED  SILENT",
		"mails       b     3    1500      1500      1500   2.8 s",
		"jobs        b     1    1500      1500      1500   8.1 s",
		"orders      c     2    1500      1500      1500   0.0 s",
		"",
	}, lines)
	for _, line := range lines {
		require.LessOrEqual(t, len(line), 60)
	}
	r.Killed, r.Queues[0].Owner = "", ""
	require.Equal(t, "mails       -     3    1500      1500      1500       -", r.lines(terminal.Style{})[2], "nothing was killed yet, and nobody serves it")
}

func TestDemoClusterWords(t *testing.T) {
	r := clusterOutcome()
	require.Equal(t, "Node a was killed, and its NATS server with it. "+
		"It owned mails: nothing was confirmed for 2.8 s, until b had taken over. "+
		"It led the log of jobs, whose owner lived: nothing was confirmed for 8.1 s, until NATS had elected another leader. "+
		"orders had neither there: its longest time without a confirmation was 0.0 s. "+
		"In the end 4500 messages had been confirmed and 4500 of them delivered (2 more than once, as it may be): 0 lost.", r.words())
	r.Queues[0].LogBefore, r.Delivered, r.Lost = "a", 4499, 1
	require.Contains(t, r.words(), "It owned mails and led its log: nothing was confirmed for 2.8 s, until NATS had elected another leader and b had taken over.")
	require.Contains(t, r.words(), "4499 of them delivered (2 more than once, as it may be): 1 lost.")
}

// Losses are counted by message: duplicates do not hide them.
func TestDemoClusterCountsWhatIsLost(t *testing.T) {
	d := newClusterPlay(newDemoStage(&command.Env{}, &clitest.Buffer{}))
	q := d.mu.queues[1]
	q.confirmed, q.delivered = map[int]bool{1: true, 2: true, 3: true}, map[int]bool{1: true, 3: true, 4: true}
	r := d.report()
	require.Equal(t, []int{3, 2, 1}, []int{r.Confirmed, r.Delivered, r.Lost})
	require.Equal(t, "3 confirmed, 2 delivered, 1 lost", r.count())
}

// Each queue is in its own shard: FNV-1a of the name, see docs/cluster.md.
func TestDemoClusterQueues(t *testing.T) {
	for shard, queue := range clusterQueues {
		h := fnv.New32a()
		_, _ = h.Write([]byte(queue))
		require.Equal(t, shard, int(h.Sum32())%len(clusterQueues), queue)
	}
	require.Len(t, clusterNodes, len(clusterQueues))
}

// With less load than the real demo: after the kill another node takes over, and no confirmed
// message is lost.
func TestDemoCluster(t *testing.T) {
	demoDir(t)
	defer func(patience time.Duration) { demoPatience = patience }(demoPatience)
	demoPatience = 5 * time.Minute
	t.Setenv("TEST_ACT_AS_FILA", "1") // for the nodes; see TestMain
	report := clitest.JSON[clusterReport](t, program.Run(t, "", "demo", "--cluster", "--duration", "2s", "--json"))
	require.Equal(t, "a", report.Killed)
	require.Len(t, report.Queues, 3)
	require.Positive(t, report.Confirmed)
	require.Zero(t, report.Lost)
	require.Equal(t, report.Confirmed, report.Delivered)
	for i, q := range report.Queues {
		require.Equal(t, clusterQueues[i], q.Queue)
		require.Equal(t, clusterNodes[i], q.OwnerBefore)
		require.NotEqual(t, report.Killed, q.Owner)
		require.Contains(t, clusterNodes, q.LogBefore)
		require.Positive(t, q.SilentMs)
		require.Equal(t, q.Sent, q.Confirmed)
		require.Equal(t, q.Sent, q.Delivered)
	}
	first := report.Queues[0]
	require.GreaterOrEqual(t, first.SilentMs, int64(1500), "a takeover begins with a silence of its log")
	inOrder(t, report.Moments, "nodes a, b, c start", "the cluster is there", "a owns mails, b owns jobs, c owns orders", "SIGKILL to a",
		"mails: confirmed again", "nothing more is sent")
	for _, m := range report.Moments {
		require.LessOrEqual(t, len("  0.0 s  "+m.Text), 60, m.Text)
	}

	out := interrupted(t, time.Second, "--cluster", "--duration", "1h") // while the cluster starts
	require.Contains(t, out, "Three nodes form a cluster")
	require.NotContains(t, out, "\x1b")
	for line := range strings.Lines(out) {
		require.LessOrEqual(t, len(line), 61, line)
	}
}
