package attention

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

const (
	// lagMs is how far behind a standby may be.
	lagMs = 5000
	// byMaxFailures is api.PauseInfo.By of a pause that a safety limit has begun.
	byMaxFailures = "max_failures"
)

func diskLow(v *view, add func(api.Finding)) {
	if v.Disk != nil && v.Disk.Low {
		add(api.Finding{
			Node: v.Node, Why: fmt.Sprintf("%s MiB are free on the disk of the store.", wire.Grouped(v.Disk.Free>>20)),
			Action: api.FindingAction{Text: "Free space on this disk, such as old backups and logs.", Command: Command("queue", "list"), Page: "/queues"},
		})
	}
}

func sharedDegraded(v *view, add func(api.Finding)) {
	if v.SharedAway != nil {
		f := api.Finding{
			Node: v.Node, Why: "The bucket is unreachable: " + v.SharedAway.Error() + ".",
			Action: api.FindingAction{Text: "Check the NATS servers and their JetStream.", Command: Command("throttle", "list"), Page: "/gates"},
		}
		hurt(&f, v, func(_ *Queue, b *Blocked) bool { return b.Shared })
		add(f)
	}
}

func nearLimits(v *view, add func(api.Finding)) {
	for _, l := range v.Limits {
		if l.Max > 0 && l.Used*5 > l.Max*4 {
			add(api.Finding{
				Node: v.Node, Gate: "limits." + l.Name, Why: fmt.Sprintf("%s of %s of limits.%s are used.", wire.Grouped(l.Used), wire.Grouped(l.Max), l.Name),
				Action: api.FindingAction{Text: "Find the clients that create these objects, or raise the limit and restart.", Command: Command("config", "list"), Page: "/settings"},
			})
		}
	}
}

// hurt names the messages, tenants and queues that the gates of a finding block. The gate of a
// pause of a queue or fairness key is of one queue.
func hurt(f *api.Finding, v *view, blocks func(q *Queue, b *Blocked) bool) {
	for i := range v.Queues {
		q := &v.Queues[i]
		of := api.WaitingQueue{Queue: q.Name}
		for j := range q.Blocked {
			if b := &q.Blocked[j]; blocks(q, b) {
				of.Messages, of.Flows = of.Messages+b.Messages, of.Flows+b.Tenants
			}
		}
		if of.Messages == 0 {
			continue
		}
		f.Messages, f.Tenants = f.Messages+of.Messages, f.Tenants+of.Flows
		if f.Queue == "" {
			f.Queues = append(f.Queues, of)
		}
	}
}

// byGate blocks what waits for a gate, of one queue or, for "", of all.
func byGate(queue, gate string) func(*Queue, *Blocked) bool {
	return func(q *Queue, b *Blocked) bool { return b.Gate == gate && (queue == "" || q.Name == queue) }
}

func openCircuits(v *view, add func(api.Finding)) {
	for i := range v.Circuits {
		c := &v.Circuits[i]
		paused := slices.ContainsFunc(v.Pauses, func(p api.PauseInfo) bool { return p.Kind == api.PauseCircuit && p.Name == c.Key })
		if c.State == "closed" && !flaps(c.Openings, v.At) || paused {
			continue
		}
		f := api.Finding{
			Gate: "circuit:" + c.Key, Why: "It is " + c.StateText() + ".",
			Action: api.FindingAction{Text: "Fix the destination; the circuit closes by itself when probes succeed.", Command: Command("circuit", "close", c.Key), Page: "/gates/circuit?key=" + escape(c.Key)},
		}
		cause := c.Cause
		if o := c.Openings; o != nil && o.Count > 1 {
			f.Why += fmt.Sprintf(" It has opened %s times in the last ten minutes.", wire.Grouped(o.Count))
			if c.State == "closed" {
				f.Title = "A circuit opens again and again"
				cause, f.Why = o.Cause, f.Why+" "+capital(openedText(o.Cause))+" opened it last."
			}
		}
		if last := c.LastFailure; last != nil && cause != api.CauseByHand {
			f.Why += fmt.Sprintf(" Its last failure: %s.", errorText(last.ErrorCode, last.Error))
		}
		switch {
		case cause == api.CauseRetryAfter:
			f.Action.Text = "Limit the rate of its messages with a throttle, to what the destination allows: the page of the circuit has its answer, and the throttle. Closing the circuit does not help."
			f.Action.Command = Command("circuit", "show", c.Key)
		case c.OpenUntil == "closed":
			f.Action.Text = "Close it when the destination works again: it does not close by itself."
		}
		hurt(&f, v, byGate("", f.Gate))
		add(f)
	}
}

// flaps reports whether a circuit that has these openings, of which nil are none, opens again and again.
func flaps(o *api.CircuitOpenings, now time.Time) bool {
	if o == nil || o.Count < 2 {
		return false
	}
	last, err := time.Parse(time.RFC3339Nano, o.Last)
	return err == nil && now.Sub(last) < gapOf
}

// openedText says what opens a circuit.
func openedText(cause string) string {
	switch cause {
	case api.CauseRetryAfter:
		return "a pause that the destination asked for (429 or Retry-After)"
	case api.CauseByHand:
		return "an operator"
	}
	return "failures in a row"
}

func safetyPauses(v *view, add func(api.Finding)) { eachPause(v, true, add) }

func pauses(v *view, add func(api.Finding)) { eachPause(v, false, add) }

// eachPause adds the pauses that a safety limit has begun, or all others.
func eachPause(v *view, bySafety bool, add func(api.Finding)) {
	for i := range v.Pauses {
		p := &v.Pauses[i]
		if (p.By == byMaxFailures) != bySafety {
			continue
		}
		f := api.Finding{Since: p.Since, Why: pauseText(p)}
		f.Action = api.FindingAction{Text: "Resume it when the reason is gone.", Command: Command("resume", p.Kind, p.Name), Page: "/gates"}
		gate := p.Kind + ":" + p.Name
		switch p.Kind {
		case api.PauseQueue:
			f.Queue, f.Action.Page = p.Name, QueuePage(p.Name, "")
		case api.PauseKey:
			f.Queue, f.Key = p.Queue, p.Name
			f.Action.Command, f.Action.Page = Command("resume", p.Kind, p.Queue, p.Name), QueuePage(p.Queue, "/tenants")
		default:
			f.Gate, f.Action.Page = gate, "/gates/"+p.Kind+"?key="+escape(p.Name)
		}
		hurt(&f, v, byGate(f.Queue, gate))
		add(f)
	}
}

func pauseText(p *api.PauseInfo) string {
	text := "Paused by " + api.ActorText(p.By, p.Client)
	if p.Until != "" {
		return text + " until " + p.Until + "."
	}
	return text + " until it is resumed."
}

// shards calls each with every shard of the cluster.
func (v *view) shards(each func(s *api.ClusterShard)) {
	if v.Cluster == nil {
		return
	}
	for i := range v.Cluster.Shards {
		each(&v.Cluster.Shards[i])
	}
}

func logLost(v *view, add func(api.Finding)) {
	v.shards(func(s *api.ClusterShard) {
		if s.Lost == nil {
			return
		}
		shard := s.Shard
		add(api.Finding{
			Shard: &shard, Why: fmt.Sprintf("The log ends at record %d, but node %s has record %d.", s.Lost.LogEnd, s.Lost.Node, s.Lost.Seq),
			Action: api.FindingAction{Text: "Repair the log from the copy of a node.", Command: Command("cluster", "repair", strconv.Itoa(shard), "--dry-run"), Page: "/cluster"},
		})
	})
}

func shardsWithoutOwner(v *view, add func(api.Finding)) {
	v.shards(func(s *api.ClusterShard) {
		if s.Owner != "" || s.Lost != nil {
			return
		}
		shard := s.Shard
		add(api.Finding{
			Shard: &shard, Why: "No node that sent a heartbeat in the last ten seconds owns it.",
			Action: api.FindingAction{Text: "Start the missing nodes, or find out why the others do not take over.", Command: Command("cluster", "status"), Page: "/cluster"},
		})
	})
}

func degradedServers(v *view, add func(api.Finding)) {
	if v.Cluster == nil {
		return
	}
	for _, s := range v.Cluster.Servers {
		if len(s.Missing) > 0 {
			add(api.Finding{
				Node: s.Server, Why: "NATS server " + s.Server + ": " + strings.Join(s.Missing, ", ") + ".",
				Action: api.FindingAction{Text: "Change the configuration of the NATS server.", Command: Command("cluster", "status"), Page: "/cluster"},
			})
		}
	}
}

func laggingStandbys(v *view, add func(api.Finding)) {
	v.shards(func(s *api.ClusterShard) {
		for _, b := range s.Standbys {
			if b.BehindMs <= lagMs && b.Error == "" {
				continue
			}
			shard, why := s.Shard, fmt.Sprintf("The copy of shard %d at node %s is %s behind.", s.Shard, b.Node, wire.Span(time.Duration(b.BehindMs)*time.Millisecond))
			if b.Error != "" {
				why = fmt.Sprintf("Node %s cannot follow the log of shard %d: %s.", b.Node, s.Shard, b.Error)
			}
			add(api.Finding{
				Shard: &shard, Node: b.Node, Why: why,
				Action: api.FindingAction{Text: "Check the disk, the CPU and the network of the node.", Command: Command("cluster", "status"), Page: "/cluster"},
			})
		}
	})
}
