package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// churn changes queues and runtime configuration while fila is killed, and knows the confirmed
// state.
type churn struct {
	l  *load
	mu struct {
		sync.Mutex
		exists    map[string]bool // confirmed: true created, false deleted
		confirmed int             // of churnKey
		sent      int
	}
}

const (
	churnKey    = "churn:counter"
	churnQueues = 8 // queues that are created and deleted
)

// startChurn starts the changes and the redrives; they end with the load.
func (l *load) startChurn() *churn {
	k := &churn{l: l}
	k.mu.exists = map[string]bool{}
	go k.run()
	go l.redriveNowAndThen()
	return k
}

func (k *churn) run() {
	rng := k.l.random()
	for i := 1; ; i++ {
		p := k.l.await()
		if p == nil {
			return
		}
		k.mu.Lock()
		k.mu.sent = i
		k.mu.Unlock()
		if k.ask(p, "fila.admin.config-set."+churnKey, fmt.Sprintf(`{"value":"%d"}`, i)) {
			k.mu.Lock()
			k.mu.confirmed = i
			k.mu.Unlock()
		}
		name := fmt.Sprint("churn.", rng.IntN(churnQueues))
		k.mu.Lock()
		there, known := k.mu.exists[name]
		delete(k.mu.exists, name) // unknown until confirmed
		k.mu.Unlock()
		verb := "queue-create."
		if known && there {
			verb = "queue-delete."
		}
		if k.ask(p, "fila.admin."+verb+name, "") {
			k.mu.Lock()
			k.mu.exists[name] = verb == "queue-create."
			k.mu.Unlock()
		}
		if !pause(k.l.ctx, 5*time.Millisecond) {
			return
		}
	}
}

// ask reports whether a request was accepted.
func (k *churn) ask(p *phase, subject, body string) bool {
	reply, err := k.l.conns[2].RequestWithContext(p.ctx, subject, []byte(body))
	if err != nil {
		return false
	}
	if e := errorOf(k.l.t, reply); e != nil {
		if e.Code != 500 && e.Code != 503 {
			k.l.t.Errorf("%s was refused: %v", subject, e)
		}
		return false
	}
	return true
}

// check compares the state with the confirmed one. No phase may be ready meanwhile, so that
// nothing changes.
func (k *churn) check(c *client) {
	c.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, there := range k.mu.exists {
		code := 0
		if e := errorOf(c.t, c.do(&nats.Msg{Subject: "fila.admin.queue-inspect." + name})); e != nil {
			code = e.Code
		}
		require.Equal(c.t, map[bool]int{true: 0, false: 404}[there], code, "queue %s after the kill", name)
	}
	if k.mu.confirmed == 0 {
		return
	}
	var value struct{ Value string }
	c.call("fila.admin.config-get."+churnKey, nil, &value)
	n, err := strconv.Atoi(value.Value)
	require.NoError(c.t, err)
	require.GreaterOrEqual(c.t, n, k.mu.confirmed, "a confirmed value was lost")
	require.LessOrEqual(c.t, n, k.mu.sent)
}

// redriveNowAndThen redrives the dead letters of the last queue at random times.
func (l *load) redriveNowAndThen() {
	rng := l.random()
	dlq := l.queues[len(l.queues)-1] + ".dlq"
	for {
		p := l.await()
		if p == nil {
			return
		}
		reply, err := l.conns[2].RequestWithContext(p.ctx, "fila.admin.redrive."+dlq, fmt.Appendf(nil, `{"count":%d}`, rng.IntN(10)))
		if err == nil {
			redriven(l.t, reply)
		}
		if !pause(l.ctx, 20*time.Millisecond) {
			return
		}
	}
}

func redriven(t testing.TB, reply *nats.Msg) {
	if e := errorOf(t, reply); e != nil {
		if e.Code != 500 && e.Code != 503 {
			t.Errorf("redrive was refused: %v", e)
		}
		return
	}
	var out struct{ Redriven *int }
	if err := json.Unmarshal(reply.Data, &out); err != nil || out.Redriven == nil {
		t.Errorf("reply to redrive: %q", reply.Data)
	}
}
