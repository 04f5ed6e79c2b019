package attention_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/attention"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

var start = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// names returns the conditions of findings.
func names(findings []api.Finding) (list []string) {
	for _, f := range findings {
		list = append(list, f.Condition)
	}
	return list
}

// TestClusterConditions: each is found in the status of a cluster, and not without it.
func TestClusterConditions(t *testing.T) {
	shard := func(change func(*api.ClusterShard)) *attention.Sample {
		s := api.ClusterShard{Shard: 1, Owner: "a", Standbys: []api.ClusterStandby{{Node: "b", BehindMs: 10}}}
		change(&s)
		return &attention.Sample{Node: "a", Cluster: &api.ClusterStatus{Shards: []api.ClusterShard{s}}}
	}
	for _, tc := range []struct {
		condition string
		sample    *attention.Sample
		command   string
	}{
		{"shard-without-owner", shard(func(s *api.ClusterShard) { s.Owner = "" }), "fila cluster status"},
		{"log-lost", shard(func(s *api.ClusterShard) { s.Owner, s.Lost = "", &api.ClusterLoss{LogEnd: 5, Node: "b", Seq: 9} }), "fila cluster repair 1 --dry-run"},
		{"standby-lags", shard(func(s *api.ClusterShard) { s.Standbys[0].BehindMs = 5001 }), "fila cluster status"},
		{"standby-lags", shard(func(s *api.ClusterShard) { s.Standbys[0].Error = "it cannot be read" }), "fila cluster status"},
		{"cluster-degraded", &attention.Sample{Cluster: &api.ClusterStatus{Servers: []api.ClusterServer{{Server: "n1", Missing: []string{"sync 2m0s"}}}}}, "fila cluster status"},
		{"shared-degraded", &attention.Sample{Node: "a", SharedAway: errors.New("no responders")}, "fila throttle list"},
	} {
		t.Run(tc.condition, func(t *testing.T) {
			var m attention.Monitor
			tc.sample.At = start
			found := m.Find(tc.sample)
			require.Equal(t, []string{tc.condition}, names(found))
			require.Equal(t, tc.command, found[0].Action.Command)
			require.NotEmpty(t, found[0].Whom)
			require.Equal(t, "2026-01-02T12:00:00Z", found[0].Since)
			well := shard(func(*api.ClusterShard) {})
			well.At = start.Add(time.Minute)
			require.Empty(t, m.Find(well))
		})
	}
}

// orders is a queue with counters.
func orders(d api.QueueDetail, change func(*attention.Queue)) attention.Queue {
	q := attention.Queue{QueueSummary: api.QueueSummary{Name: "orders", DLQ: "orders.dlq", Consumers: 1, Detail: &d}}
	if change != nil {
		change(&q)
	}
	return q
}

func at(after time.Duration, queues ...attention.Queue) *attention.Sample {
	return &attention.Sample{At: start.Add(after), Queues: queues}
}

// TestSinceIsTheFirstSample that shows a finding, until it is gone.
func TestSinceIsTheFirstSample(t *testing.T) {
	var m attention.Monitor
	deserted := orders(api.QueueDetail{}, func(q *attention.Queue) { q.Consumers, q.Pending, q.Ready = 0, 3, 3 })
	require.Equal(t, "2026-01-02T12:00:00Z", m.Find(at(0, deserted))[0].Since)
	require.Equal(t, "2026-01-02T12:00:00Z", m.Find(at(time.Minute, deserted))[0].Since)
	require.Empty(t, m.Find(at(2*time.Minute, orders(api.QueueDetail{}, nil))))
	require.Equal(t, "2026-01-02T12:03:00Z", m.Find(at(3*time.Minute, deserted))[0].Since)
}

// TestLostConsumers: the finding says how many consumers there were, also between two points of
// the history, and no tenant is called noisy while nothing is delivered.
func TestLostConsumers(t *testing.T) {
	queue := func(consumers int) attention.Queue {
		return orders(api.QueueDetail{Delivered: 9, NoisyFlows: 1, QuietReady: 3, QuietOldestAgeMs: 5000}, func(q *attention.Queue) {
			q.Consumers, q.Pending, q.Ready = consumers, 3, 3
			q.Departures = []api.Departure{{Consumer: "b", At: "2026-01-02T12:00:03Z", Reason: "no responders"}, {Consumer: "a", At: "2026-01-02T12:00:01Z"}}
			q.Noise = &attention.Noise{Noisy: []api.NoisyFlow{{Key: "acme"}}}
		})
	}
	var m attention.Monitor
	require.Equal(t, []string{"noisy-tenant"}, names(m.Find(at(0, queue(2)))))
	m.Find(at(10*time.Second, queue(4)))
	found := m.Find(at(20*time.Second, queue(0)))
	require.Equal(t, []string{"no-consumers"}, names(found))
	require.Equal(t, "No consumer is registered, and no fetch waits."+
		" The last to go: b was lost at 2026-01-02T12:00:03Z (no responders), a left at 2026-01-02T12:00:01Z.", found[0].Why)
	later := queue(0)
	later.Departures = nil
	found = m.Find(at(30*time.Second, later))
	require.Equal(t, "No consumer is registered, and no fetch waits. It had up to 4 consumers in the last 15 minutes.", found[0].Why)
	found = m.Find(at(20*time.Minute, later))
	require.Equal(t, "No consumer is registered, and no fetch waits.", found[0].Why)
}

// TestCausesAreSentences of what an operator can do.
func TestCausesAreSentences(t *testing.T) {
	var m attention.Monitor
	found := m.Find(&attention.Sample{At: start, Circuits: []api.CircuitInfo{{Key: "vendor", State: "open", Cause: "retry_after"}}})
	require.Contains(t, found[0].Why, "429 or Retry-After")
	require.Contains(t, found[0].Action.Text, "Limit the rate")
	require.Equal(t, "fila circuit show vendor", found[0].Action.Command)

	held := orders(api.QueueDetail{}, func(q *attention.Queue) {
		gate := api.GateState{Kind: "rate", Gate: "throttle:tenant:acme", Limits: "2/s", SetBy: "prefix tenant:*, operator"}
		q.Blocked = []attention.Blocked{{GateState: gate, Messages: 5, Tenants: 1, Wait: 2 * time.Minute}}
	})
	found = m.Find(at(time.Second, held))
	require.Contains(t, found[0].Why, "An operator set this limit at run time.")
	held.Blocked[0].SetBy = "prefix tenant:*, file"
	found = m.Find(at(2*time.Second, held))
	require.NotContains(t, found[0].Why, "operator")

	failing := orders(api.QueueDetail{}, func(q *attention.Queue) {
		q.Hooks = []api.HookInfo{{Hook: "on_enqueue", State: "open", LastError: "error: orders/on_enqueue:2: no field\n  local plan = x\n        ^"}}
		q.HookVersions = map[string]api.HookVersion{"on_enqueue": {Client: "maria@ops", At: "2026-01-02T11:59:00Z"}}
	})
	require.Contains(t, m.Find(at(3*time.Second, failing))[0].Why, "maria@ops changed the script at 2026-01-02T11:59:00Z.")
	require.True(t, strings.HasSuffix(m.Find(at(3*time.Second, failing))[0].Why, "The last error: orders/on_enqueue:2: no field"))
}

// held is a queue whose messages have waited for a limit.
func held(messages int64, wait time.Duration, change *api.LimitsChange) attention.Queue {
	return orders(api.QueueDetail{}, func(q *attention.Queue) {
		gate := api.GateState{Kind: "rate", Gate: "throttle:tenant:acme", Limits: "2/s", SetBy: "prefix tenant:*, operator"}
		q.Blocked = []attention.Blocked{{GateState: gate, Messages: messages, Tenants: 1, Wait: wait, Change: change}}
	})
}

// TestHeldByLimit: a lowered limit is named with its rule, who lowered it, when and from what, and
// is to be set back while its messages wait longer; a raised one is not, nor one whose backlog drains.
func TestHeldByLimit(t *testing.T) {
	limits := func(rate wire.Rate) api.ThrottleLimits {
		return api.ThrottleLimits{Rate: &rate, Burst: new(2.5)}
	}
	lowered := &api.LimitsChange{Key: "tenant:*", At: "2026-01-02T11:58:00Z", By: "throttle-set", Client: "maria@ops", Old: limits("20"), New: limits("2")}
	var m attention.Monitor
	find := func(after time.Duration, q attention.Queue) api.Finding {
		found := m.Find(at(after, q))
		require.Equal(t, []string{"held-by-limit"}, names(found))
		return found[0]
	}
	f := find(0, held(90, 100*time.Second, lowered))
	require.Equal(t, api.SeverityInfo, f.Severity, "whether they get more is not known yet")
	require.Nil(t, f.Change)
	f = find(20*time.Second, held(100, 2*time.Minute, lowered))
	require.Equal(t, api.SeverityWarning, f.Severity)
	require.Contains(t, f.Why, "maria@ops lowered the limits of tenant:* from 20/s, burst 2.5 to 2/s, burst 2.5 at 2026-01-02T11:58:00Z, without a reason.")
	require.Equal(t, "Set the limits of tenant:* back to 20/s, burst 2.5, unless the change is meant.", f.Action.Text)
	require.Equal(t, "fila throttle set 'tenant:*' --rate 20 --burst 2.5 --if-rate 2 --if-burst 2.5", f.Action.Command)
	require.Equal(t, lowered, f.Change)

	f = find(40*time.Second, held(40, 3*time.Minute, lowered))
	require.Equal(t, api.SeverityInfo, f.Severity)
	require.Contains(t, f.Why, "The backlog drains: it is empty in about 13 s.")
	require.Nil(t, f.Change, "it drains")

	raised := &api.LimitsChange{Key: "tenant:*", At: "2026-01-02T12:00:25Z", Client: "maria@ops", Old: limits("2"), New: limits("20")}
	f = find(10*time.Minute, held(40, 3*time.Minute, raised))
	require.Equal(t, api.SeverityInfo, f.Severity, "nothing is known yet")
	require.Contains(t, f.Why, "maria@ops changed the limits of tenant:*")
	first := &api.LimitsChange{Key: "tenant:*", At: "2026-01-02T12:00:25Z", Client: "maria@ops", Reason: "INC-7", New: limits("2")}
	f = find(10*time.Minute, held(40, 3*time.Minute, first))
	require.Contains(t, f.Why, `maria@ops set the limits of tenant:*, which had none, to 2/s, burst 2.5 at 2026-01-02T12:00:25Z, for the reason "INC-7".`)
	require.Nil(t, f.Change)
	require.Equal(t, "fila throttle show tenant:acme", f.Action.Command)
	require.Equal(t, "Whether the backlog drains with these limits is known in half a minute.", f.Action.Text)
	find(10*time.Minute+10*time.Second, held(60, 3*time.Minute+5*time.Second, nil))
	raised.At = "2026-01-02T12:10:12Z"
	f = find(10*time.Minute+20*time.Second, held(70, 3*time.Minute+10*time.Second, raised))
	require.Equal(t, api.SeverityInfo, f.Severity, "it grew before the change")
	m = attention.Monitor{}
	find(10*time.Minute, held(40, 3*time.Minute, nil))
	f = find(10*time.Minute+20*time.Second, held(40, 3*time.Minute+10*time.Second, nil))
	require.Equal(t, api.SeverityWarning, f.Severity, "its oldest message gets older")
	f = find(10*time.Minute+40*time.Second, held(40, 3*time.Minute+11*time.Second, nil))
	require.Equal(t, api.SeverityInfo, f.Severity)
	f = find(10*time.Minute, held(40, time.Hour, nil))
	require.Equal(t, api.SeverityInfo, f.Severity, "the clock was set back")
}

// TestFlappingIsOneFinding: a finding that is away for less than a minute began when it was found first,
// and a circuit that flaps is a finding in its closed moments, too.
func TestFlappingIsOneFinding(t *testing.T) {
	var m attention.Monitor
	find := func(after time.Duration, state string, openings *api.CircuitOpenings) []api.Finding {
		s := at(after)
		s.Circuits = []api.CircuitInfo{{Key: "smsgate", State: state, Cause: "retry_after", Openings: openings, LastFailure: &api.CircuitFailure{ErrorCode: "429", Error: "429 Too Many Requests: 20 messages per second"}}}
		return m.Find(s)
	}
	began := "2026-01-02T12:00:00Z"
	require.Equal(t, began, find(0, "open", nil)[0].Since)
	require.Empty(t, find(50*time.Second, "closed", &api.CircuitOpenings{Count: 1, Last: "2026-01-02T12:00:00Z"}))
	require.Equal(t, began, find(59*time.Second, "open", nil)[0].Since)
	last := &api.CircuitOpenings{Count: 70, Last: "2026-01-02T12:01:00Z", Cause: "retry_after"}
	f := find(70*time.Second, "closed", last)[0]
	require.Equal(t, began, f.Since)
	require.Contains(t, f.Why, "It has opened 70 times in the last ten minutes.")
	require.Contains(t, f.Why, "Its last failure: 429 Too Many Requests: 20 messages per second.")
	require.Equal(t, "A circuit opens again and again", f.Title)
	require.Contains(t, f.Action.Text, "Limit the rate")
	require.Empty(t, find(2*time.Minute, "closed", last), "it stayed closed for a minute")
	require.Equal(t, "2026-01-02T12:02:10Z", find(130*time.Second, "open", nil)[0].Since, "it was away for a minute")
	require.Equal(t, began, find(0, "open", nil)[0].Since, "the clock was set back")
}

// TestRisingCountsAWindow: what was before the first sample or longer ago than 15 minutes does
// not count; what a new or restarted queue counts does.
func TestRisingCountsAWindow(t *testing.T) {
	dead := func(n int64) attention.Queue {
		return orders(api.QueueDetail{DeadLettered: n}, func(q *attention.Queue) { q.Dead = 1 })
	}
	var m attention.Monitor
	require.Equal(t, []string{"dead-letters"}, names(m.Find(at(0, dead(40_000)))), "they may be old")
	require.Equal(t, []string{"dead-letters"}, names(m.Find(at(10*time.Second, dead(40_010)))))
	require.Equal(t, []string{"dead-letters-rise"}, names(m.Find(at(20*time.Second, dead(40_011)))))
	for i := range 14 {
		found := m.Find(at(time.Duration(i+1)*time.Minute, dead(40_011)))
		require.Equal(t, []string{"dead-letters-rise"}, names(found))
		require.Equal(t, i > 0, strings.Contains(found[0].Why, "None came in the last minute."), "%d min", i+1)
	}
	require.Equal(t, []string{"dead-letters"}, names(m.Find(at(16*time.Minute, dead(40_011)))))
	require.Equal(t, []string{"dead-letters-rise"}, names(m.Find(at(17*time.Minute, dead(11)))), "its process has restarted")

	m = attention.Monitor{}
	require.Empty(t, m.Find(at(0)))
	require.Equal(t, []string{"dead-letters-rise"}, names(m.Find(at(10*time.Second, dead(11)))), "a queue that is new")
	require.Equal(t, []string{"dead-letters"}, names(m.Find(at(-time.Hour, dead(12)))), "the clock was set back")
}

// TestCommandsAreQuoted: names that clients choose are words of a command, and parts of a path.
func TestCommandsAreQuoted(t *testing.T) {
	var m attention.Monitor
	found := m.Find(&attention.Sample{At: start, Circuits: []api.CircuitInfo{{Key: "a'; rm -rf / #?&", State: "open"}, {Key: "--all", State: "open"}}})
	require.Equal(t, `fila circuit close '--all'`, found[0].Action.Command)
	require.Equal(t, `fila circuit close 'a'\''; rm -rf / #?&'`, found[1].Action.Command)
	require.Equal(t, `/gates/circuit?key=a%27%3B%20rm%20-rf%20%2F%20%23%3F%26`, found[1].Action.Page)
}

// TestMerge joins what several nodes find of one object, and sorts: critical first.
func TestMerge(t *testing.T) {
	circuit := api.Finding{Condition: "circuit-open", Severity: "warning", Gate: "circuit:stripe", Since: "2026-01-02T12:00:00Z", Messages: 3, Tenants: 1}
	later := circuit
	later.Since, later.Messages = "2026-01-02T12:01:00Z", 4
	other := api.Finding{Condition: "of-a-newer-node", Severity: "warning", Whom: "Everybody."}
	lost := api.Finding{Condition: "no-consumers", Severity: "critical", Queue: "orders", Messages: 1}
	merged := attention.Merge([]api.Finding{later, circuit, other, lost})
	require.Equal(t, []string{"no-consumers", "of-a-newer-node", "circuit-open"}, names(merged))
	require.Equal(t, "1 message waits.", merged[0].Whom)
	require.Equal(t, "Everybody.", merged[1].Whom)
	require.Equal(t, []any{int64(7), 2, "2026-01-02T12:00:00Z", "7 messages of 2 tenants are blocked."}, []any{merged[2].Messages, merged[2].Tenants, merged[2].Since, merged[2].Whom})
}

// TestAboutAQueue: what is wrong with a queue includes the gates that block its messages, with the
// messages of this queue.
func TestAboutAQueue(t *testing.T) {
	blocked := func(name, gate, kind string, messages int64, shared bool) attention.Queue {
		q := attention.Queue{QueueSummary: api.QueueSummary{Name: name, Consumers: 1}}
		q.Blocked = []attention.Blocked{{GateState: api.GateState{Kind: kind, Gate: gate}, Messages: messages, Tenants: 1, Shared: shared}}
		return q
	}
	s := at(0, blocked("orders", "circuit:stripe", "circuit", 3, true), blocked("mails", "circuit:stripe", "circuit", 5, true), blocked("images", "throttle:gpu", "paused", 1, false))
	s.Circuits = []api.CircuitInfo{{Key: "stripe", State: "open"}}
	s.Pauses = []api.PauseInfo{{Kind: api.PauseThrottle, Name: "gpu", By: "admin", Since: "2026-01-02T11:00:00Z"}}
	s.SharedAway = errors.New("no responders")
	var m attention.Monitor
	all := m.Find(s)
	require.Equal(t, []string{"circuit-open", "shared-degraded", "paused"}, names(all))
	require.Equal(t, []api.WaitingQueue{{Queue: "mails", Messages: 5, Flows: 1}, {Queue: "orders", Messages: 3, Flows: 1}}, all[0].Queues)
	require.EqualValues(t, 8, all[0].Messages)
	require.Equal(t, "8 messages of 2 tenants are blocked by shared limits and circuits, about which this fila decides alone.", all[1].Whom)

	orders := attention.About("orders", all)
	require.Equal(t, []string{"circuit-open", "shared-degraded"}, names(orders))
	f := orders[0]
	require.Equal(t, "3 messages of 1 tenant are blocked.", f.Whom)
	require.Equal(t, "It is open.", f.Why)
	require.Equal(t, "2026-01-02T12:00:00Z", f.Since)
	require.Equal(t, "fila circuit close stripe", f.Action.Command)
	require.Empty(t, f.Queues)
	require.Len(t, all[0].Queues, 2, "the finding itself is as it was")
	images := attention.About("images", all)
	require.Equal(t, []string{"paused"}, names(images))
	require.Equal(t, "2026-01-02T11:00:00Z", images[0].Since)
	require.Empty(t, attention.About("others", all))

	// Two nodes block messages of different queues at one circuit.
	merged := attention.Merge([]api.Finding{
		{Condition: "circuit-open", Gate: "circuit:stripe", Messages: 1, Tenants: 1, Queues: []api.WaitingQueue{{Queue: "a", Messages: 1, Flows: 1}}},
		{Condition: "circuit-open", Gate: "circuit:stripe", Messages: 2, Tenants: 1, Queues: []api.WaitingQueue{{Queue: "b", Messages: 2, Flows: 1}}},
	})
	require.Equal(t, []api.WaitingQueue{{Queue: "b", Messages: 2, Flows: 1}, {Queue: "a", Messages: 1, Flows: 1}}, merged[0].Queues)
}

// BenchmarkFind is a sample of 2,000 busy queues.
func BenchmarkFind(b *testing.B) {
	var queues []attention.Queue
	for i := range 2000 {
		q := orders(api.QueueDetail{Delivered: 1000, Acked: 900}, func(q *attention.Queue) { q.Pending, q.Ready, q.OldestAgeMs = 10, 10, 1000 })
		q.Name = fmt.Sprint("q", i)
		queues = append(queues, q)
	}
	var m attention.Monitor
	b.ReportAllocs()
	for i := range b.N {
		if len(m.Find(at(time.Duration(i)*time.Minute, queues...))) != 0 {
			b.Fatal("findings")
		}
	}
}

// TestTextsAreSentences.
func TestTextsAreSentences(t *testing.T) {
	for _, c := range attention.Conditions {
		require.True(t, strings.HasSuffix(c.Holds, "."), c.Name)
		require.False(t, strings.HasSuffix(c.Title, "."), c.Name)
	}
}
