package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/sidecar/queue/queuetest"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	rig      = queuetest.Rig
	delivery = queue.Delivery
)

func newRig(t queuetest.T, change func(*queue.Settings)) *rig { return queuetest.NewRig(t, change) }

// Answers of consumers, and of the server for them.
var (
	done   = wire.Ack{Kind: wire.AckDone}
	nack   = wire.Ack{Kind: wire.AckNack}
	term   = wire.Ack{Kind: wire.AckTerm}
	nobody = wire.Ack{Kind: wire.AckNoResponders}
)

// check looks whether all that is known of messages agrees.
func check(r *rig) {
	r.T.Helper()
	queue.Check(r.T, r.M, r.Now, false)
	for s := range queue.Roles {
		moving := int64(0)
		for _, b := range r.Disk.Waiting() {
			for i := range b.Move {
				if b.Move[i].To.Queue == r.IDs[s] {
					moving++
				}
			}
		}
		require.Equal(r.T, r.Depth[s], live(r, s)+moving, "depth")
	}
}

// live is how many messages a side has.
func live(r *rig, s queue.Role) int64 {
	m := r.M.Inspect(s).Stats(r.Now)
	return m.Pending + m.Delayed + m.InFlight + m.Moving
}

// current reports whether the lease of a delivery is in force.
func current(r *rig, d delivery) bool { return queue.Leased(r.M, d.Role, d.Token) }

func perSecond(n int64) throttle.Limits {
	return throttle.Limits{Rate: throttle.PerSecond(n * throttle.One), Burst: throttle.One}
}

// subjects are who was answered since the last call.
func subjects(r *rig) []string {
	var all []string
	for _, a := range r.Answers {
		all = append(all, a.Subject)
	}
	r.Answers = nil
	return all
}

// registered is how many registrations a side has.
func registered(r *rig, s queue.Role) int {
	n := 0
	for _, c := range r.M.Inspect(s).Consumers() {
		if !c.Fetch {
			n++
		}
	}
	return n
}

// kill makes dead letters of deliveries.
func kill(r *rig, ds ...delivery) {
	r.T.Helper()
	for _, d := range ds {
		r.Ack(d, term, "")
	}
	r.Commit()
}

// pick takes up to n dead letters with sequences up to last out of the schedule.
func pick(r *rig, last uint64, n int) *queue.Claimed {
	r.T.Helper()
	views, _ := r.M.Inspect(queue.Dead).Select(&inspect.Match{}, 0, n, 1000, nil, r.Now)
	var named []queue.MessageRef
	for _, v := range views {
		if v.Seq <= last {
			named = append(named, queue.MessageRef{Seq: v.Seq, ID: v.ID})
		}
	}
	r.Do(queue.Dead, queue.Claim{Messages: named})
	return r.Picked
}

// stay unclaims claimed dead letters.
func stay(r *rig, claimed []queue.ClaimedMessage) {
	r.T.Helper()
	r.Do(queue.Dead, queue.Complete{Unclaim: seqs(claimed)})
}

func seqs(claimed []queue.ClaimedMessage) []uint64 {
	var all []uint64
	for _, l := range claimed {
		all = append(all, l.Seq)
	}
	return all
}

// moved returns the moves of claimed messages to a role.
func moved(r *rig, to queue.Role, claimed []queue.ClaimedMessage) []queue.Moved {
	var all []queue.Moved
	for _, l := range claimed {
		l.Message.Queue = r.IDs[to]
		all = append(all, queue.Moved{From: l.Seq, Message: l.Message, Size: l.Size})
	}
	return all
}

func ref(r *rig, s queue.Role, seq uint64) store.Ref { return store.Ref{Queue: r.IDs[s], Seq: seq} }
