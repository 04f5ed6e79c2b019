//go:build unix

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// lossRig is a cluster of three filas on three NATS servers, whose disks can be put back to what
// they were.
type lossRig struct {
	t      *testing.T
	nats   *natsCluster
	filas  []*proc
	c      *client
	queues []string
	sent   []string // confirmed messages, with their queues: also their dedupe ids
}

const lossShards = 2

func startLossRig(t *testing.T) *lossRig { return startLossRigWith(t, "") }

// startLossRigWith starts another binary than the one under test, if one is named.
func startLossRigWith(t *testing.T, bin string) *lossRig {
	r := &lossRig{t: t, nats: startCluster(t, 3)}
	for i := range 3 {
		p := newFila(t, options{
			natsURL: r.nats.URL(), drainMs: 5000,
			tail: fmt.Sprintf("[cluster]\nenabled = true\nname = \"loss\"\nnode = %q\nshards = %d\n", nodeName(i), lossShards),
		})
		r.filas, p.bin = append(r.filas, p), bin
		require.NoError(t, p.start())
	}
	for _, p := range r.filas {
		require.NoError(t, p.waitReady(), p.log)
	}
	r.c = dial(t, r.nats.URL(), nats.PingInterval(time.Second), nats.Timeout(2*time.Second))
	for i := range 4 { // in both shards
		queue := fmt.Sprint("loss", i)
		r.queues = append(r.queues, queue)
		r.ask(&nats.Msg{Subject: "fila.admin.queue-create." + queue})
	}
	return r
}

// ask repeats a request until it succeeds.
func (r *lossRig) ask(m *nats.Msg) (reply *nats.Msg) {
	r.t.Helper()
	var last error
	require.True(r.t, pollFor(2*patience, func() bool {
		reply, last = r.c.nc.RequestMsg(m, 3*time.Second)
		return last == nil && errorOf(r.t, reply) == nil
	}), "%s: %v %v", m.Subject, last, reply)
	return reply
}

// send sends messages to all queues, and notes them when they are confirmed.
func (r *lossRig) send(n int) {
	r.t.Helper()
	for i := range n {
		queue := r.queues[i%len(r.queues)]
		id := fmt.Sprintf("%s %d", queue, len(r.sent))
		r.ask(message(queue, id, "Nats-Msg-Id", id))
		r.sent = append(r.sent, id)
	}
}

// copyDisk copies the disk of a server that is not running.
func (r *lossRig) copyDisk(i int) string {
	r.t.Helper()
	to := r.t.TempDir()
	require.NoError(r.t, os.CopyFS(to, os.DirFS(r.disk(i))))
	return to
}

func (r *lossRig) disk(i int) string {
	s := r.nats.servers[i]
	return filepath.Join(filepath.Dir(s.config), s.name)
}

// putBack puts a copy in the place of a disk.
func (r *lossRig) putBack(i int, copied string) {
	r.t.Helper()
	require.NoError(r.t, os.RemoveAll(r.disk(i)))
	require.NoError(r.t, os.CopyFS(r.disk(i), os.DirFS(copied)))
}

// roll restarts servers: two of them come back as they were before during, and the third without
// anything.
func (r *lossRig) roll(during func()) {
	r.t.Helper()
	copies := map[int]string{}
	for i := range 2 {
		r.nats.Kill(i)
		copies[i] = r.copyDisk(i)
		r.nats.start(i)
		r.nats.WaitHealthy()
	}
	r.settle()
	during()
	for i := range 3 {
		r.nats.Kill(i)
	}
	for i, from := range copies {
		r.putBack(i, from)
	}
	for i := range 2 {
		r.nats.start(i)
	}
	for shard := range lossShards {
		r.nats.Leader(fmt.Sprint("FILA_loss_LOG_", shard))
	}
	require.NoError(r.t, os.RemoveAll(r.disk(2))) // it would know better
	r.nats.start(2)
}

// settle waits until all running filas follow all logs, and longer than an owner takes to store
// what it has.
func (r *lossRig) settle() {
	r.t.Helper()
	if !pollFor(3*patience, func() bool {
		for _, p := range r.filas {
			if p.running() && p.readiness() != http.StatusOK {
				return false
			}
		}
		st, ok := r.status()
		for _, s := range st.Shards {
			ok = ok && s.Owner != ""
		}
		return ok
	}) {
		require.Fail(r.t, "the filas are not ready", r.differences())
	}
	pause(r.t.Context(), 7*time.Second)
}

// lossStatus is a part of cluster-status.
type lossStatus struct {
	Shards []lossShard `json:"shards"`
}

type lossShard struct {
	Shard int    `json:"shard"`
	Owner string `json:"owner"`
	Lost  *struct {
		Records     uint64 `json:"records"`
		Unreachable uint64 `json:"unreachable"`
	} `json:"log_lost"`
}

func (r *lossRig) status() (st lossStatus, ok bool) {
	m, err := r.c.nc.Request("fila.admin.cluster-status", nil, 2*time.Second)
	ok = err == nil && errorOf(r.t, m) == nil && json.Unmarshal(m.Data, &st) == nil && len(st.Shards) == lossShards
	return st, ok
}

// lost waits until the logs that lack commits are reported, and their last owners have noticed that they
// cannot write.
func (r *lossRig) lost() (shards []int) {
	r.t.Helper()
	require.True(r.t, pollFor(2*patience, func() bool {
		st, ok := r.status()
		shards = nil
		decided := 0
		for _, s := range st.Shards {
			if s.Lost != nil {
				shards = append(shards, s.Shard)
			}
			if (s.Lost != nil) != (s.Owner != "") {
				decided++
			}
		}
		return ok && decided == lossShards && len(shards) > 0
	}), "no loss is reported")
	return shards
}

// stays checks for a while that no node takes over a log that lacks commits.
func (r *lossRig) stays(shards []int) {
	r.t.Helper()
	for range 15 {
		if st, ok := r.status(); ok {
			for _, s := range shards {
				require.Empty(r.t, st.Shards[s].Owner, "shard %d", s)
			}
		}
		pause(r.t.Context(), time.Second)
	}
	for _, s := range r.queues {
		reply, err := r.c.nc.Request("fila.admin.queue-inspect."+s, nil, 3*time.Second)
		if err == nil && errorOf(r.t, reply) != nil && errorOf(r.t, reply).ErrCode == 16503 {
			return
		}
	}
	require.Fail(r.t, "no queue says that its log is lost")
}

// heal repairs all logs that lack commits, until all shards are served. It returns how many it
// has repaired.
func (r *lossRig) heal() (repaired int) {
	r.t.Helper()
	var last string
	if !pollFor(3*patience, func() bool {
		st, ok := r.status()
		for _, s := range st.Shards {
			if s.Lost == nil {
				ok = ok && s.Owner != ""
				continue
			}
			ok = false
			m, err := r.c.nc.Request("fila.admin.cluster-repair", fmt.Appendf(nil, `{"shard":%d}`, s.Shard), 30*time.Second)
			switch {
			case err != nil:
				last = err.Error()
			case errorOf(r.t, m) != nil:
				last = errorOf(r.t, m).Description
			default:
				repaired++
			}
		}
		return ok
	}) {
		require.Fail(r.t, "not served again", "%s\n%s", last, r.differences())
	}
	return repaired
}

// differences describes records of the logs that replicas have otherwise than their leader.
func (r *lossRig) differences() string {
	js, err := r.c.nc.JetStream(nats.MaxWait(2 * time.Second))
	require.NoError(r.t, err)
	var out strings.Builder
	for shard := range lossShards {
		name := fmt.Sprint("FILA_loss_LOG_", shard)
		info, err := js.StreamInfo(name)
		if err != nil {
			fmt.Fprintf(&out, "%s: %v\n", name, err)
			continue
		}
		fmt.Fprintf(&out, "%s: records %d to %d, leader %s\n", name, info.State.FirstSeq, info.State.LastSeq, info.Cluster.Leader)
		found := 0
		for seq := info.State.LastSeq; seq >= info.State.FirstSeq && seq+20_000 > info.State.LastSeq && found < 5; seq-- {
			led, err := js.GetMsg(name, seq)
			if err != nil {
				fmt.Fprintf(&out, "  %d: %v\n", seq, err)
				break
			}
			for range 4 { // of any replica
				if m, err := js.GetMsg(name, seq, nats.DirectGet()); err != nil || !bytes.Equal(m.Data, led.Data) {
					fmt.Fprintf(&out, "  %d: the leader has %x, a replica has", seq, led.Data[:min(len(led.Data), 40)])
					if err == nil {
						fmt.Fprintf(&out, " %x\n", m.Data[:min(len(m.Data), 40)])
					} else {
						fmt.Fprintf(&out, " %v\n", err)
					}
					found++
					break
				}
			}
		}
	}
	return out.String()
}

// whole checks that all confirmed messages are there, once.
func (r *lossRig) whole() {
	r.t.Helper()
	for _, queue := range r.queues {
		want := map[string]bool{}
		for _, id := range r.sent {
			if strings.HasPrefix(id, queue+" ") {
				want[id] = true
			}
		}
		k := r.c.subscribe(queue, "w")
		r.ask(&nats.Msg{Subject: "fila.consume." + queue, Data: []byte(`{"consumer":"w","max_in_flight":10000}`)})
		for len(want) > 0 {
			m := k.next()
			require.True(r.t, want[string(m.Data)], "%q was acked, or comes twice", m.Data)
			delete(want, string(m.Data))
		}
		k.none()
		k.leave()
	}
}

func (p *proc) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// readiness returns the status of /readyz, 0 if nobody answers.
func (p *proc) readiness() int {
	resp, err := http.Get(p.HTTP + "/readyz")
	if err != nil {
		return 0
	}
	defer resp.Body.Close() //nolint:errcheck // it is not read
	return resp.StatusCode
}

// Two of three servers come back without the last confirmed messages. The filas know better: no
// shard whose log lacks commits gets an owner, and a repair brings everything back. More than one
// of -fila.kills runs all cases.
func TestServersForget(t *testing.T) {
	t.Parallel()
	for name, during := range map[string]struct{ away, restart bool }{
		"all filas alive":      {},
		"one fila was away":    {away: true},
		"all filas restarted":  {away: true, restart: true},
		"filas restarted, all": {restart: true},
	} {
		t.Run(name, func(t *testing.T) {
			if *flagKills == 1 && (during.restart || !during.away) {
				t.Skip("the case of a fila that was away is the hardest")
			}
			r := startLossRig(t)
			r.send(100)
			if during.away {
				r.filas[2].kill()
			}
			r.roll(func() {
				r.send(100)
				r.settle()
				if during.restart {
					r.filas[0].kill()
					r.filas[1].kill()
				}
			})
			if during.restart {
				require.NoError(t, r.filas[0].start())
				require.NoError(t, r.filas[1].start())
			}
			if during.away {
				require.NoError(t, r.filas[2].start())
			}
			lost := r.lost()
			r.stays(lost)
			r.heal()
			r.whole()
			r.send(20)
		})
	}
}
