package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
)

// TestAJobIsKilledOnTheWay: a redrive goes on after each kill, and in the end each message is
// in exactly one place, in order.
func TestAJobIsKilledOnTheWay(t *testing.T) {
	t.Parallel()
	_, rng := choices(t)
	p := startFila(t, options{})
	c := p.client(t)
	const n = 5000
	c.createQueue("orders", m{"max_deliveries": 1, "retry_initial_ms": 0})
	var msgs []*nats.Msg
	for i := range n {
		msgs = append(msgs, &nats.Msg{Subject: "fila.enqueue.orders", Data: fmt.Append(nil, i)})
	}
	ids := c.enqueueAll(msgs)
	k := c.consume("orders", 1000)
	for range n {
		require.NoError(t, k.next().Respond([]byte("+TERM")))
	}
	c.waitDepth("orders.dlq", n)
	k.leave()
	type job struct {
		ID    string
		State string
		Done  int64
		Left  map[string]int64
	}
	var made job
	c.call("fila.admin.job-create", m{"queue": "orders.dlq", "op": "redrive", "filter": m{"all": true}, "rate": 2500}, &made)
	show := func(c *client) (j job) {
		c.call("fila.admin.job-show", m{"id": made.ID}, &j)
		return j
	}
	for range *flagKills {
		time.Sleep(time.Duration(rng.IntN(150)) * time.Millisecond) // at a random moment
		c.nc.Close()
		p.Kill9(t)
		p.Restart(t)
		c = p.client(t)
		if j := show(c); j.State != "done" {
			require.LessOrEqual(t, j.Done, c.depth("orders"))
		}
	}
	eventually(t, func() bool { return show(c).State == "done" })
	done := show(c)
	require.EqualValues(t, n, done.Done)
	require.Empty(t, done.Left)
	require.Zero(t, c.depth("orders.dlq"))
	require.EqualValues(t, n, c.depth("orders"))
	k = c.consume("orders", 1000)
	for i := range n {
		d := k.next()
		require.Equal(t, ids[i], d.id())
		require.NoError(t, d.Respond(nil))
	}
	c.waitDepth("orders", 0)
}

// TestJobsAreKilledOnTheWay: after each kill every message is in exactly one place, or gone if
// the job deletes, and the job's count on disk is right.
func TestJobsAreKilledOnTheWay(t *testing.T) {
	t.Parallel()
	for op, of := range map[string]struct{ from, to string }{
		"redrive": {"orders.dlq", "orders"},
		"move":    {"orders", "mails"},
		"delete":  {"orders.dlq", ""},
	} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			_, rng := choices(t)
			k := &killedJob{p: startFila(t, options{}), n: *flagMessages, from: of.from, to: of.to}
			k.run(t, op, rng)
		})
	}
}

// killedJob is a job on n messages that is killed.
type killedJob struct {
	p        *proc
	n        int
	from, to string // source and target queue; to is empty if the job deletes
	id       string
	known    map[store.ID]bool // the messages, and whether the current check has seen them
}

func (k *killedJob) run(t *testing.T, op string, rng *rand.Rand) {
	k.p.pile(t, k.n, 100, k.from)
	c := k.p.client(t)
	want := m{"queue": k.from, "op": op, "filter": m{"all": true}}
	if op == "move" {
		c.createQueue(k.to, m{"max_depth": 0})
		want["to"] = k.to
	}
	if k.n < 100_000 {
		want["rate"] = k.n / 2 // it would end before the first check
	}
	c.nc.Close()
	require.Zero(t, k.p.Stop(t))
	k.known = make(map[store.ID]bool)
	k.p.look(t, k.from, func(msg *store.Message, _ [][]byte) { k.known[msg.ID] = false })
	require.Len(t, k.known, k.n)
	k.p.Restart(t)
	c = k.p.client(t)
	var job struct {
		ID, State string
		Done      int
		Left      map[string]int
	}
	c.call("fila.admin.job-create", want, &job)
	k.id = job.ID
	kills, onTheWay := *flagKills, 0
	for i := range kills {
		at := (i*k.n + rng.IntN(k.n)) / (kills + 1)
		eventually(t, func() bool {
			c.call("fila.admin.job-show", m{"id": k.id}, &job)
			return job.Done >= at || job.State == "done"
		})
		time.Sleep(time.Duration(rng.IntN(20_000)) * time.Microsecond) // anywhere in a batch
		c.nc.Close()
		k.p.Kill9(t)
		if done := k.check(t); done > 0 && done < k.n {
			onTheWay++
		}
		k.p.Restart(t)
		c = k.p.client(t)
	}
	eventually(t, func() bool {
		c.call("fila.admin.job-show", m{"id": k.id}, &job)
		return job.State == "done"
	})
	require.Equal(t, k.n, job.Done)
	require.Empty(t, job.Left)
	c.nc.Close()
	require.Zero(t, k.p.Stop(t))
	require.Equal(t, k.n, k.check(t))
	t.Logf("%s of %d messages, killed %d times, %d of them on the way", op, k.n, kills, onTheWay)
}

// check reads the file of a fila that has ended, and returns the number of processed messages.
func (k *killedJob) check(t *testing.T) (done int) {
	t.Helper()
	for id := range k.known {
		k.known[id] = false
	}
	count := func(queue string) (n int) {
		k.p.look(t, queue, func(msg *store.Message, _ [][]byte) {
			seen, ok := k.known[msg.ID]
			require.True(t, ok, "%x is none of the messages", msg.ID)
			require.False(t, seen, "%x is in two places", msg.ID)
			k.known[msg.ID] = true
			n++
		})
		return n
	}
	left := count(k.from)
	done = k.n - left
	if k.to != "" {
		require.Equal(t, done, count(k.to), "messages are gone")
	}
	f, err := store.OpenFile(k.p.file(), store.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	snap, err := f.Snapshot()
	require.NoError(t, err)
	var at struct{ Done int }
	redriven := 0
	for _, e := range snap.Config {
		if strings.HasPrefix(e.Key, "\x00redriven/orders/") {
			var of struct{ Count int }
			require.NoError(t, json.Unmarshal([]byte(e.Value), &of))
			redriven += of.Count
		}
		if e.Key == "\x00job/"+k.id+"/at" {
			require.NoError(t, json.Unmarshal([]byte(e.Value), &at))
		}
	}
	require.Equal(t, done, at.Done, "the job says something else than what it has done")
	if k.to == "orders" {
		require.Equal(t, done, redriven, "the groups say something else")
	}
	return done
}
