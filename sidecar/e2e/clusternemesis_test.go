//go:build unix

package e2e

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// nemesis harms the disks of a cluster in rounds, while messages are sent. After each round every
// confirmed message must be there once, and no acked message may come back. A log that has lost
// something must say so, and is repaired.
type nemesis struct {
	*lossRig
	rng *rand.Rand

	mu        sync.Mutex
	confirmed map[string]bool // and not acked
	unsure    map[string]bool // sent, or acked, without an answer
	acked     map[string]bool
	last      map[string]time.Time // when a message of a queue was last confirmed
	sent      int

	old     [3]string // an earlier copy of the disk of each server
	losses  int       // rounds with a log that had lost something
	repairs int
}

func newNemesis(r *lossRig, rng *rand.Rand) *nemesis {
	return &nemesis{lossRig: r, rng: rng, confirmed: map[string]bool{}, unsure: map[string]bool{}, acked: map[string]bool{}, last: map[string]time.Time{}}
}

// send sends messages until stop is closed.
func (n *nemesis) send(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		n.mu.Lock()
		queue := n.queues[n.sent%len(n.queues)]
		id := fmt.Sprintf("%s %d", queue, n.sent)
		n.sent++
		n.unsure[id] = true
		n.mu.Unlock()
		reply, err := n.c.nc.RequestMsg(message(queue, id, "Nats-Msg-Id", id), time.Second)
		if err == nil && reply.Header.Get("Nats-Service-Error-Code") == "" && len(reply.Data) > 0 {
			n.mu.Lock()
			delete(n.unsure, id)
			n.confirmed[id] = true
			n.last[queue] = time.Now()
			n.mu.Unlock()
		} else {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// drain consumes and acks everything, and checks it.
func (n *nemesis) drain() {
	n.t.Helper()
	for _, queue := range n.queues {
		k := n.c.subscribe(queue, "w")
		n.ask(&nats.Msg{Subject: "fila.consume." + queue, Data: []byte(`{"consumer":"w","max_in_flight":10000}`)})
		begin := time.Now()
		for n.missing(queue) > 0 {
			if time.Since(begin) > 3*patience {
				require.Fail(n.t, "lost, or their acks get no answer", "%d confirmed messages of %s: %s", n.missing(queue), queue, n.c.dump(queue))
			}
			select {
			case d := <-k.ch:
				n.take(d)
			case <-time.After(time.Second):
				n.ask(&nats.Msg{Subject: "fila.consume." + queue, Data: []byte(`{"consumer":"w","max_in_flight":10000}`)})
			}
		}
		for more := true; more; {
			select {
			case d := <-k.ch:
				n.take(d)
			case <-time.After(200 * time.Millisecond):
				more = false
			}
		}
		n.ask(&nats.Msg{Subject: "fila.consume." + queue, Data: []byte(`{"consumer":"w","leave":true}`)})
		k.unsubscribe()
	}
}

func (n *nemesis) missing(queue string) (count int) {
	for id := range n.confirmed {
		if strings.HasPrefix(id, queue+" ") {
			count++
		}
	}
	return count
}

// take acks a delivery.
func (n *nemesis) take(d delivery) {
	n.t.Helper()
	id := string(d.Data)
	require.False(n.t, n.acked[id], "%q was acked and comes back", id)
	require.True(n.t, n.confirmed[id] || n.unsure[id], "%q was never sent", id)
	delete(n.confirmed, id)
	n.unsure[id] = true
	if reply, err := n.c.nc.Request(d.Reply, nil, 2*time.Second); err == nil && errorOf(n.t, reply) == nil {
		delete(n.unsure, id)
		n.acked[id] = true
	}
}

// harms are what a round does; each returns when everything runs again.
var harms = map[string]func(*nemesis){
	"one server forgets":                          func(n *nemesis) { n.rollBack(1, "") },
	"two servers forget":                          func(n *nemesis) { n.rollBack(2, "") },
	"two servers forget, a fila was away":         func(n *nemesis) { n.rollBack(2, "away") },
	"two servers forget, the filas are restarted": func(n *nemesis) { n.rollBack(2, "restart") },
	"all servers forget":                          func(n *nemesis) { n.rollBack(3, "") },
	"a file of a server is damaged":               (*nemesis).damageServer,
	"a server loses its disk":                     func(n *nemesis) { n.onServer(func(disk string) { require.NoError(n.t, os.RemoveAll(disk)) }) },
	"a file of a fila is damaged":                 (*nemesis).damageFila,
	"a fila loses its disk":                       func(n *nemesis) { n.onFila(func(dir string) { require.NoError(n.t, os.RemoveAll(dir)) }) },
	"everything is killed":                        (*nemesis).killAll,
}

// rollBack puts servers back to an earlier state. The last of the others loses its disk if it
// would bring the records back.
func (n *nemesis) rollBack(servers int, filas string) {
	order := n.rng.Perm(3)
	n.refill()
	for _, i := range order[:servers] {
		n.nats.Kill(i)
		n.old[i] = n.copyDisk(i)
		n.nats.start(i)
		n.refill()
	}
	victim := n.rng.IntN(3)
	if filas == "away" {
		n.filas[victim].kill()
	}
	n.settle()
	n.busy(2 * time.Second)
	if filas == "restart" {
		for _, p := range n.filas {
			p.kill()
		}
	}
	for i := range 3 {
		n.nats.Kill(i)
	}
	for _, i := range order[:servers] {
		n.putBack(i, n.old[i])
		n.nats.start(i)
	}
	if servers == 2 {
		for shard := range lossShards {
			n.nats.Leader(fmt.Sprint("FILA_loss_LOG_", shard))
		}
		require.NoError(n.t, os.RemoveAll(n.disk(order[2])))
	}
	for _, i := range order[servers:] {
		n.nats.start(i)
	}
	for i, p := range n.filas {
		if filas == "restart" || filas == "away" && i == victim {
			require.NoError(n.t, p.start())
		}
	}
}

// refill gives an empty disk to a server that does not catch up: one that came back with records
// which the others do not have refuses what the new leader has for good.
func (n *nemesis) refill() {
	if pollFor(patience, n.nats.healthy) {
		return
	}
	for i := range 3 {
		if !n.nats.ask(i, "/healthz", nil) {
			n.t.Logf("server %d does not catch up and gets an empty disk", i)
			n.nats.Kill(i)
			require.NoError(n.t, os.RemoveAll(n.disk(i)))
			n.nats.start(i)
			break
		}
	}
	n.nats.WaitHealthy()
}

func (n *nemesis) busy(d time.Duration) { pause(n.t.Context(), d) }

// onServer harms the disk of a server that is killed meanwhile.
func (n *nemesis) onServer(harm func(disk string)) {
	i := n.rng.IntN(3)
	n.nats.Kill(i)
	harm(n.disk(i))
	n.nats.start(i)
}

func (n *nemesis) damageServer() {
	n.onServer(func(disk string) {
		n.damage(disk, func(path string) bool {
			return strings.HasSuffix(path, ".blk") || strings.HasSuffix(path, ".idx") || strings.Contains(path, "snapshots")
		})
	})
}

func (n *nemesis) onFila(harm func(dir string)) {
	p := n.filas[n.rng.IntN(3)]
	p.kill()
	harm(filepath.Join(p.Dir, "shards"))
	require.NoError(n.t, p.start())
}

func (n *nemesis) damageFila() {
	n.onFila(func(dir string) {
		n.damage(dir, func(path string) bool { return strings.HasSuffix(path, ".db") })
	})
}

// damage truncates a file, flips a bit in it, or deletes it.
func (n *nemesis) damage(dir string, of func(path string) bool) {
	var paths []string
	require.NoError(n.t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && of(path) {
			paths = append(paths, path)
		}
		return err
	}))
	path := paths[n.rng.IntN(len(paths))]
	data, err := os.ReadFile(path)
	require.NoError(n.t, err)
	what := "deleted"
	switch n.rng.IntN(3) {
	case 0:
		require.NoError(n.t, os.Remove(path))
	case 1:
		what = "cut"
		require.NoError(n.t, os.WriteFile(path, data[:n.rng.IntN(len(data)+1)], 0o600))
	default:
		what = "flipped"
		if len(data) > 0 {
			data[n.rng.IntN(len(data))] ^= 1 << n.rng.IntN(8)
		}
		require.NoError(n.t, os.WriteFile(path, data, 0o600))
	}
	n.t.Logf("%s: %s", what, strings.TrimPrefix(path, dir))
}

func (n *nemesis) killAll() {
	for i := range 3 {
		n.nats.Kill(i)
	}
	for _, p := range n.filas {
		p.kill()
	}
	for i := range 3 {
		n.nats.start(i)
	}
	for _, p := range n.filas {
		require.NoError(n.t, p.start())
	}
}

// revive starts filas that have ended.
func (n *nemesis) revive() {
	for _, p := range n.filas {
		if !p.running() {
			n.t.Logf("a fila has ended: %s", p.log.tail(3))
			require.NoError(n.t, p.start())
		}
	}
}

// recover repairs what has lost something until all queues confirm messages again. It returns how
// many logs it has repaired.
func (n *nemesis) recover() (repaired int) {
	n.t.Helper()
	for begin := time.Now(); ; {
		repaired += n.heal()
		healed := time.Now()
		if pollFor(10*time.Second, func() bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			for _, queue := range n.queues {
				if !n.last[queue].After(healed) {
					return false
				}
			}
			return true
		}) {
			return repaired
		}
		require.Less(n.t, time.Since(begin), 6*patience, "queues confirm nothing")
	}
}

// TestDiskNemesis harms disks of servers and filas at random: -fila.kills rounds, -fila.seed.
// -fila.trouble selects kinds.
func TestDiskNemesis(t *testing.T) {
	t.Parallel()
	_, rng := choices(t)
	var kinds []string
	for kind := range harms {
		if strings.Contains(kind, *flagKind) {
			kinds = append(kinds, kind)
		}
	}
	require.NotEmpty(t, kinds)
	slices.Sort(kinds)
	n := newNemesis(startLossRig(t), rng)
	for round := range *flagKills {
		kind := kinds[rng.IntN(len(kinds))]
		stop := make(chan struct{})
		var sending sync.WaitGroup
		sending.Go(func() { n.send(stop) })
		n.busy(time.Second)
		begin := time.Now()
		harms[kind](n)
		n.revive()
		lost := n.recover()
		close(stop)
		sending.Wait()
		n.drain()
		t.Logf("round %d: %s, %d repairs, %v; %d messages sent, %d acked, %d unsure", round+1, kind, lost, time.Since(begin).Round(time.Second), n.sent, len(n.acked), len(n.unsure))
		if lost > 0 {
			n.losses++
			n.repairs += lost
		}
	}
	t.Logf("%d rounds, %d with a loss, %d repairs: nothing lost, nothing back", *flagKills, n.losses, n.repairs)
}
