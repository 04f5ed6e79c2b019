//go:build unix

package e2e

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// lives is a load with a fixed rate whose latencies are measured. Nothing acks one queue, so
// its confirmations wait for the disk; a consumer acks another one at once. Requests also
// inspect a third queue, which takes a step of it.
type lives struct {
	t      testing.TB
	nc     *nats.Conn
	during atomic.Pointer[latencies]
	over   chan struct{}
	work   sync.WaitGroup
}

// latencies are the latencies of one phase by kind.
type latencies struct {
	sync.Mutex
	of map[string][]time.Duration
}

func (l *lives) took(what string, since time.Time) {
	to, d := l.during.Load(), time.Since(since)
	to.Lock()
	defer to.Unlock()
	to.of[what] = append(to.of[what], d)
}

// Kinds of latencies.
const (
	livesKept    = "confirmation, no acks"
	livesAcked   = "confirmation, acked at once"
	livesDeliver = "delivery"
	livesTurn    = "queue-inspect"
)

const (
	livesRate  = 200 // messages a second in each queue
	livesBytes = 256
)

// startLives creates the queues and starts the load.
func startLives(t testing.TB, p *proc, inspected string) *lives {
	t.Helper()
	c := p.client(t)
	c.createQueue("kept", nil)
	c.createQueue("acked", nil)
	l := &lives{t: t, nc: c.nc, over: make(chan struct{})}
	l.next()
	deliver := func(msg *nats.Msg) {
		l.took(livesDeliver, sentAt(msg.Data))
		_ = msg.Respond(nil)
	}
	_, err := c.nc.Subscribe("fila.deliver.w.acked", deliver)
	require.NoError(t, err)
	c.call("fila.consume.acked", m{"consumer": "w", "max_in_flight": 100}, nil)
	l.publish("kept", livesKept)
	l.publish("acked", livesAcked)
	l.work.Go(func() {
		for l.sleep(time.Now().Add(10 * time.Millisecond)) {
			begin := time.Now()
			if _, err := l.nc.Request("fila.admin.queue-inspect."+inspected, nil, patience); err == nil {
				l.took(livesTurn, begin)
			}
		}
	})
	return l
}

// sentAt returns the publish time, which the payload starts with.
func sentAt(data []byte) time.Time {
	at, _ := strconv.ParseInt(string(data[:20]), 10, 64)
	return time.Unix(0, at)
}

func (l *lives) sleep(until time.Time) bool {
	select {
	case <-l.over:
		return false
	case <-time.After(time.Until(until)):
		return true
	}
}

// publish publishes to a queue at the rate and ignores the outcome.
func (l *lives) publish(queue, what string) {
	inbox := nats.NewInbox()
	_, err := l.nc.Subscribe(inbox+".*", func(msg *nats.Msg) {
		if msg.Header.Get("Nats-Service-Error") == "" {
			l.took(what, sentAt([]byte(msg.Subject[len(inbox)+1:])))
		}
	})
	require.NoError(l.t, err)
	l.work.Go(func() {
		begin := time.Now()
		for n := 0; l.sleep(begin.Add(time.Duration(n) * time.Second / livesRate)); n++ {
			at := fmt.Sprintf("%020d", time.Now().UnixNano())
			_ = l.nc.PublishMsg(&nats.Msg{Subject: "fila.enqueue." + queue, Reply: inbox + "." + at, Data: append([]byte(at), make([]byte, livesBytes)...)})
		}
	})
}

// next starts a phase and returns the last one.
func (l *lives) next() *latencies {
	return l.during.Swap(&latencies{of: make(map[string][]time.Duration)})
}

func (l *lives) stop() {
	close(l.over)
	l.work.Wait()
}

// TestJobsMeasure prints the cost of sorting out many dead letters of 1 KB with histories,
// beside two queues in use.
func TestJobsMeasure(t *testing.T) {
	if !*flagMeasure {
		t.Skip("prints figures; -fila.measure")
	}
	n := *flagMessages
	p := newFila(t, options{})
	p.Start(t)
	begin := time.Now()
	p.pile(t, n, 1024, "orders.dlq")
	t.Logf("%d dead letters, made and loaded in %v; %s", n, time.Since(begin).Round(time.Millisecond), machine())
	c := p.client(t)

	var asked []time.Duration
	for range 51 {
		begin := time.Now()
		var groups struct {
			Messages int
			Groups   []any
		}
		c.call("fila.admin.dead-groups.orders.dlq", nil, &groups)
		asked = append(asked, time.Since(begin))
		require.Equal(t, n, groups.Messages)
		require.Len(t, groups.Groups, len(pileCauses)+1)
	}
	t.Logf("groups, cold: %v", asked[0].Round(time.Millisecond))
	t.Logf("groups, warm, 50 times: %s", spread(asked[1:]))
	filter := m{"header": m{"tenant": "tenant-17"}}
	var dry []time.Duration
	for range 3 {
		begin := time.Now()
		var told struct{ Matched int }
		c.call("fila.admin.job-create", m{"queue": "orders.dlq", "op": "redrive", "filter": filter, "dry_run": true}, &told)
		dry = append(dry, time.Since(begin))
		require.Equal(t, n/pileTenants, told.Matched)
	}
	t.Logf("a dry run with a header filter, three times: %v", dry)

	l := startLives(t, p, "orders")
	time.Sleep(2 * time.Second)
	l.next()
	time.Sleep(10 * time.Second)
	alone := l.next()
	load := machine()
	var job struct {
		ID, State string
		Done      int
	}
	begin = time.Now()
	c.call("fila.admin.job-create", m{"queue": "orders.dlq", "op": "redrive", "filter": m{"all": true}}, &job)
	for job.State != "done" {
		time.Sleep(50 * time.Millisecond)
		c.call("fila.admin.job-show", m{"id": job.ID}, &job)
	}
	took := time.Since(begin)
	beside := l.next()
	time.Sleep(10 * time.Second)
	after := l.next()
	l.stop()
	require.Equal(t, n, job.Done)
	t.Logf("redrive: %.0f/s; before: %s; after: %s", float64(n)/took.Seconds(), load, machine())
	for _, what := range []string{livesKept, livesAcked, livesDeliver, livesTurn} {
		all := append(alone.of[what], after.of[what]...)
		t.Logf("%-28s alone %s; beside %s; p99 beside / alone %.2f", what, spread(all), spread(beside.of[what]),
			float64(quantile(beside.of[what], .99))/float64(quantile(all, .99)))
	}
}
